"""The gate behind every way to drive a run: streams, own loops, sync callers, threads, organisations, stores."""

import asyncio
import threading

import pytest

from gnl_core import (
    ApprovalRequiredError,
    InMemoryStorage,
    SqliteStorage,
    args_hash,
    decide,
    durable_context,
    durable_tools,
    keys,
    list_interrupts,
    run_durable_sync,
    stream_durable,
)
from gnl_core.testing import ScriptedModel

pytestmark = pytest.mark.stores()

ABC, SPACED, THIRD = {"sku": "abc"}, {"sku": " ABC "}, {"sku": "Abc"}


def turns(*calls):
    return ScriptedModel([*([("createProduct", call)] for call in calls), "done"])


async def test_a_stream_ends_with_the_question(shop):
    await shop.run(ABC)
    stream = await stream_durable(
        run_id="second",
        journal=shop.journal,
        model=turns(SPACED),
        tools=[shop.tool()],
        prompt="go",
        thread_id="t",
        limits=shop.limits(),
    )
    result = await stream.result
    assert [question.kind for question in result.interrupts] == ["semantic"]
    assert shop.effects.count() == 1


async def test_a_loop_of_ones_own_is_asked_and_goes_on_after_a_yes(shop):
    await shop.run(ABC)

    async def drive():
        async with durable_context(run_id="own", journal=shop.journal, limits=shop.limits(), thread_id="t") as ctx:
            return await durable_tools([shop.tool()], ctx)["createProduct"].call(SPACED, tool_call_id="s0p0")

    with pytest.raises(ApprovalRequiredError) as caught:
        await drive()
    (question,) = caught.value.interrupts
    assert (question.kind, question.prior["run_id"]) == ("semantic", "r1")
    await decide(shop.journal, question.question, True, actor="deniz")
    assert await drive() == "made 2"
    assert len(await shop.tombstones()) == 1


def sync_run(shop, storage, run, args):
    return run_durable_sync(
        run_id=run,
        journal=storage.runs,
        model=turns(args),
        tools=[shop.tool()],
        prompt="go",
        thread_id="t",
        limits=shop.limits(),
    )


def test_one_gate_serves_many_event_loops_one_after_another(place, shop_of, effects):
    with SqliteStorage(place / "j.db") as storage:
        shop = shop_of(storage.runs)
        for number in range(4):
            assert sync_run(shop, storage, f"r{number}", {"sku": f"product {number}"}).interrupts == ()
        (question,) = sync_run(shop, storage, "again", {"sku": "PRODUCT 2"}).interrupts
    assert (question.kind, question.prior["run_id"], effects.count()) == ("semantic", "r2", 4)


def test_one_gate_serves_many_threads_at_once(place, shop_of, effects):
    found, errors = {}, []
    with SqliteStorage(place / "j.db") as storage:
        shop = shop_of(storage.runs)

        def work(number):
            try:
                sync_run(shop, storage, f"r{number}", {"sku": f"product {number}"})
                found[number] = sync_run(shop, storage, f"again-{number}", {"sku": f"PRODUCT {number}"}).interrupts
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert errors == []
    assert {number: asked[0].prior["run_id"] for number, asked in found.items()} == {
        number: f"r{number}" for number in range(6)
    }
    assert effects.count() == 6


async def test_organisations_do_not_meet(shop, shop_of, journal):
    one, other = shop_of(journal.scoped("one")), shop_of(journal.scoped("other"))
    other.gate = one.gate
    await one.run(ABC)
    assert (await other.run(SPACED)).text == "done"
    assert shop.effects.count() == 2
    assert [question.kind for question in (await one.run(THIRD)).interrupts] == ["semantic"]
    assert await list_interrupts(journal.scoped("other")) == []


async def test_two_stores_do_not_meet_in_one_gate(shop, shop_of):
    await shop.run(ABC)
    async with InMemoryStorage() as elsewhere:
        other = shop_of(elsewhere.runs)
        other.gate = shop.gate
        assert (await other.run(SPACED)).text == "done"
        assert [question.prior["run_id"] for question in (await other.run(THIRD)).interrupts] == ["r1"]


async def test_a_persons_same_work_in_another_conversation_is_the_exact_ladders_and_comes_first(shop, asked):
    await shop.run(ABC, resource_id="person", thread_id="one", channel="batch")
    question = asked(await shop.run(SPACED, resource_id="person", thread_id="two"))
    assert (question.kind, question.prior["origin"], question.prior["channel"]) == ("duplicate", "channel", "batch")
    assert shop.embed.sent == ["createProduct: abc"], "what settles it needs no vector"


async def test_an_equal_identity_is_found_behind_any_number_of_nearer_records(shop, asked):
    shop.gate = shop.gated(top_k=1)
    for number in range(6):
        await shop.run({"sku": f"nearer {number}"})
    shop.embed.place("createProduct: abc", -0.5)
    await shop.run(ABC, run="first")
    shop.embed.angles.clear()
    shop.gate = shop.gated(top_k=1, embed=type(shop.embed)())
    question = asked(await shop.run(SPACED))
    assert (question.prior["run_id"], question.prior["score"]) == ("first", -0.5)


@pytest.mark.parametrize("top_k", [1, 2, 5])
async def test_no_more_records_by_cosine_are_looked_at_than_was_said(shop, top_k):
    await shop.run(*({"sku": f"product number {number}"} for number in range(5)))
    shop.gate = shop.gated(top_k=top_k)
    await shop.run({"sku": "unlike any"}, run="second")
    assert (await shop.noted("second"))[0][2]["dropped_identity"] == top_k


@pytest.mark.parametrize(("least", "asks"), [(0.5, True), (0.71, False)])
async def test_the_threshold_is_the_callers_where_one_is_given(shop, least, asks):
    shop.embed.place("createProduct: far", 0.7)
    shop.gate = shop.gated(min_similarity=least)
    await shop.run(ABC)
    await shop.run({"sku": "far"}, run="second")
    assert bool(await shop.noted("second")) is asks


async def test_describe_is_called_once_a_call(shop):
    seen = []

    def describe(args):
        seen.append(args["sku"])
        return "a sentence"

    made = shop.tool(declared={"keys": ("sku",), "describe": describe})
    await shop.run(ABC, tools=[made], resource_id="person")
    assert seen == ["abc"]
    await shop.run(SPACED, tools=[made], run="second", resource_id="another", shared_thread=True)
    assert seen == ["abc", " ABC "]


async def test_once_per_identical_key_and_not_per_intent(shop):
    """Two wordings are two keys: without the gate both run, and the exact layer sees nothing of it."""
    shop.gate = None
    result = await shop.run(ABC, SPACED, run="first")
    assert (result.interrupts, shop.effects.count()) == ((), 2)
    again = await shop.run(ABC, SPACED, run="first")
    assert (len(again.replayed_tool_calls), shop.effects.count()) == (2, 2)


async def test_the_window_is_the_conversation_and_its_time(shop, asked, clock):
    shop.ttl_ms = 1_000
    await shop.run(ABC)
    assert asked(await shop.run(SPACED)).kind == "semantic"
    assert (await shop.run(SPACED, thread_id="another")).text == "done"
    clock.seconds(5)
    assert (await shop.run(THIRD)).text == "done"


async def test_a_tombstone_and_records_of_a_request_outlive_the_run(shop, asked):
    await shop.run(ABC, run="first")
    question = asked(await shop.run(SPACED, run="second"))
    await decide(shop.journal, question.question, True, actor="deniz", relation="deliberate_repeat")
    await shop.run(SPACED, run="second")
    await shop.journal.delete_prefix(("run", "first"))
    third = asked(await shop.run(THIRD))
    assert third.prior["prior_hash"] in (args_hash(ABC), args_hash(SPACED))
    assert len(await shop.tombstones()) == 1


async def test_the_vectors_row_is_the_unit_vector_and_the_record_names_its_stamp(shop):
    await shop.run(ABC)
    entry = await shop.get(keys.similar(("xthr", "t"), "createProduct", args_hash(ABC)))
    assert entry.blob == b"\x00\x00\x80?\x00\x00\x00\x00"
    assert entry.value["model"] == "fake@1"


async def test_a_slow_embedder_keeps_no_run_from_going_on_beside_it(shop):
    entered, woken = asyncio.Event(), asyncio.Event()

    async def slow(texts):
        entered.set()
        await woken.wait()
        return [[1.0, 0.0]]

    fast, shop.gate = shop.gate, shop.gated(embed=slow)
    waiting = asyncio.create_task(shop.run(ABC, run="slow"))
    await entered.wait()
    shop.gate = fast
    assert (await shop.run({"sku": "beside"}, run="fast")).text == "done"
    woken.set()
    assert (await waiting).text == "done"
