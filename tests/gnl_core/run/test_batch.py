"""A batch: a plan that is only looked at, items that run once each, and outcomes that say what became of them."""

import asyncio
import json
import re

import pytest

from gnl_core import (
    BatchPlanMismatchError,
    Context,
    Deny,
    Duplicates,
    DuplicateSideEffectError,
    NotPerformedError,
    RunLimits,
    SemanticIdentity,
    create_batch,
    decide,
    keys,
    list_interrupts,
    read_batch,
    read_incidents,
    read_run,
    run_durable,
    tool,
)
from gnl_core.errors import ConfigError, IdInvalidError, NotCanonicalError, StoreUnavailableError, ToolDeclarationError
from gnl_core.journal import scan_all
from gnl_core.prior import Inactive
from gnl_core.testing.faulty import Fault, FaultyJournal
from gnl_core.testing.scripted import ScriptedModel
from tests.stores import Clock

BY_SKU = SemanticIdentity(keys=("sku",), amount_fields=("price",))
ITEMS = [{"key": f"k{number}", "sku": f"sku-{number}"} for number in range(4)]


def creating(effects, identity=BY_SKU, fails=(), **options):
    @tool(semantic_identity=identity, **options)
    async def create(ctx: Context, key: str, sku: object = None, price: float = 1.0, note: str = "") -> str:
        if key in fails:
            raise fails[key]
        effects.fire("create", ctx)
        return f"created {sku}"

    return create


def batch_of(journal, effects, tool=None, **options):
    options = {"resource_id": "ann", **options}
    return create_batch(journal=journal, tool=tool or creating(effects), item_key="key", **options)


async def go(batch, batch_id, items):
    return await batch.run(batch_id, items, plan_token=(await batch.preflight(batch_id, items)).token)


async def chat(journal, effects, sku, run_id="chat-1", **options):
    return await run_durable(
        run_id=run_id,
        journal=journal,
        model=ScriptedModel([[("create", {"key": "x", "sku": sku})], "done"]),
        tools=[creating(effects)],
        prompt="go",
        resource_id="ann",
        channel="chat",
        **options,
    )


def outcomes(report):
    return {item.key: item.outcome for item in report.items}


# Run -----------------------------------------------------------------------------------------------------------------


async def test_every_item_runs_once_and_is_replayed_when_the_batch_is_run_again(journal, effects):
    batch = batch_of(journal, effects)
    report = await go(batch, "march", ITEMS)
    assert report.counts == {"done": 4}
    assert report.of("k2").output == "created sku-2"
    assert [item.key for item in report.items] == ["k0", "k1", "k2", "k3"]
    again = await go(batch, "march", ITEMS)
    assert again.counts == {"replayed": 4}
    assert again.of("k2").output == "created sku-2"
    assert effects.counts() == {f"create batch:march:k{number}/s0p0": 1 for number in range(4)}


async def test_an_item_is_a_run_with_one_call_that_people_can_read(journal, effects):
    await go(batch_of(journal, effects, actor="night-job"), "march", ITEMS[:1])
    view = await read_run(journal, "batch:march:k0")
    assert (view.run.status, view.run.channel, view.run.resource_id, view.run.actor) == (
        "completed",
        "batch",
        "ann",
        "night-job",
    )
    assert view.run.model == "batch/item"
    (call,) = view.calls
    assert (call.id, call.tool, call.status, call.args) == ("s0p0", "create", "succeeded", ITEMS[0])
    assert not view.problems


async def test_what_is_kept_of_a_batch_holds_no_contents(journal, effects):
    await go(batch_of(journal, effects), "march", [{"key": "k0", "sku": "secret-sku"}])
    view = await read_batch(journal, "march")
    assert (view.tool, view.items, view.runs, view.outcomes) == ("create", 1, 1, {"k0": ("done", "")})
    assert view.begun_at <= view.reported_at
    kept = [entry async for entry in scan_all(journal, keys.batch("march"), blobs=True)]
    assert len(kept) == 2
    assert "secret" not in str(kept)
    assert "created sku" not in str(kept)
    assert await read_batch(journal, "other") is None


async def test_so_many_items_run_at_once_and_no_more(journal, effects):
    at_once, most = 0, 0
    second = asyncio.Event()

    @tool(side_effect=True)
    async def work(key: str) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        if at_once == 2:
            second.set()
        await asyncio.wait_for(second.wait(), 30)
        await asyncio.sleep(0)
        at_once -= 1

    batch = create_batch(journal=journal, tool=work, item_key="key", concurrency=2)
    assert (await go(batch, "march", [{"key": str(n)} for n in range(6)])).counts == {"done": 6}
    assert most == 2


async def test_a_failing_a_denied_and_a_doubtful_item_stop_no_other(journal, effects):
    fails = {"k0": ValueError("boom"), "k1": NotPerformedError("out of stock")}

    def guard(call):
        return Deny("not this one") if call.args["key"] == "k2" else None

    from gnl_core import Allow  # noqa: PLC0415 - used here only

    batch = batch_of(
        journal,
        effects,
        creating(effects, fails=fails),
        guard=lambda call: guard(call) or Allow(),
    )
    report = await go(batch, "march", ITEMS)
    assert outcomes(report) == {"k0": "failed", "k1": "failed", "k2": "denied", "k3": "done"}
    assert {item.key: item.code for item in report.items} == {
        "k0": "tool_failed",
        "k1": "not_performed",
        "k2": "",
        "k3": "",
    }
    assert [one.question for one in report.interrupts] == ["batch:march:k0/s0p0/in_doubt/1"], "it may have taken effect"
    assert "not this one" in report.of("k2").message
    assert (await read_run(journal, "batch:march:k0")).run.status == "failed"
    again = await go(batch_of(journal, effects, creating(effects)), "march", ITEMS)
    assert outcomes(again) == {"k0": "suspended", "k1": "done", "k2": "denied", "k3": "replayed"}
    assert again.of("k0").code == "side_effect_retry_blocked"
    await decide(journal, "batch:march:k0/s0p0/in_doubt/1", True)
    last = await go(batch_of(journal, effects, creating(effects)), "march", ITEMS)
    assert outcomes(last) == {"k0": "done", "k1": "replayed", "k2": "denied", "k3": "replayed"}
    assert (await read_batch(journal, "march")).counts == {"done": 3, "denied": 1}
    assert effects.count() == 3


@pytest.mark.parametrize("options", [{}, {"timeout": 60.0}])
@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_a_body_that_raises_what_would_close_its_caller_is_in_doubt_and_stops_no_other(
    journal, effects, kind, options
):
    async def create(ctx: Context, key: str, sku: str, price: float = 1.0) -> str:
        return act(ctx, key)

    def create_in_thread(ctx: Context, key: str, sku: str, price: float = 1.0) -> str:
        return act(ctx, key)

    def act(ctx, key):
        effects.fire("create", ctx)
        if key == "k1":
            raise GeneratorExit
        return "created"

    body = create if kind == "async" else create_in_thread
    batch = batch_of(journal, effects, tool(name="create", semantic_identity=BY_SKU, **options)(body), concurrency=2)
    first, again = await go(batch, "b", ITEMS), await go(batch, "b", ITEMS)
    assert [item.outcome for item in first.items] == ["done", "failed", "done", "done"]
    assert [item.outcome for item in again.items] == ["replayed", "suspended", "replayed", "replayed"]
    assert "GeneratorExit" in first.items[1].message
    assert effects.count() == 4
    assert [task for task in asyncio.all_tasks() if "Heartbeat" in repr(task)] == [], "no run is held on to"


async def test_arguments_that_do_not_fit_are_told_beforehand_and_stop_that_item_alone(journal, effects):
    items = [*ITEMS[:1], {"key": "k9", "sku": "x", "price": "cheap"}, {"key": "k8", "wrong": 1}]
    batch = batch_of(journal, effects)
    plan = await batch.preflight("march", items)
    assert [item.key for item in plan.unfit] == ["k9", "k8"]
    assert "price" in plan.unfit[0].text
    report = await batch.run("march", items, plan_token=plan.token)
    assert outcomes(report) == {"k0": "done", "k9": "failed", "k8": "failed"}
    assert report.of("k8").code == "tool_arguments_invalid"
    assert (await read_run(journal, "batch:march:k8")).run.error["code"] == "tool_arguments_invalid"


async def test_a_store_that_is_away_for_one_item_leaves_it_not_run(journal, effects):
    def first_of_k1(ops):
        return any(op.key[:2] == ("run", "batch:march:k1") for op in ops)

    fault = Fault(number=1, action="unavailable", times=50, match=first_of_k1)
    report = await go(batch_of(FaultyJournal(journal, fault=fault), effects), "march", ITEMS)
    assert outcomes(report) == {"k0": "done", "k1": "not-run", "k2": "done", "k3": "done"}
    assert report.of("k1").code == StoreUnavailableError.code
    assert (await go(batch_of(journal, effects), "march", ITEMS)).counts == {"replayed": 3, "done": 1}
    assert effects.count() == 4


async def test_a_report_that_cannot_be_kept_costs_no_item(journal, effects):
    def report_row(ops):
        return any(op.key == keys.batch_report("march") for op in ops)

    fault = Fault(number=1, action="unavailable", times=50, match=report_row)
    report = await go(batch_of(FaultyJournal(journal, fault=fault), effects), "march", ITEMS)
    assert report.counts == {"done": 4}
    assert "could not be kept" in report.warnings[0]


async def test_a_canceled_batch_goes_on_where_it_was(journal, effects):
    begun = asyncio.Event()

    @tool(side_effect=True, recover=lambda: {"done": False}, claim_ttl=0.1)
    async def work(ctx: Context, key: str) -> None:
        if key == "b" and not begun.is_set():
            begun.set()
            await asyncio.Event().wait()
        effects.fire("work", key)

    batch = create_batch(journal=journal, tool=work, item_key="key", concurrency=1)
    items = [{"key": "a"}, {"key": "b"}, {"key": "c"}]
    running = asyncio.create_task(go(batch, "march", items))
    await asyncio.wait_for(begun.wait(), 30)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    async with asyncio.timeout(30):  # what a stopped body began elsewhere has until its claim is over
        while (report := await go(batch, "march", items)).of("b").code == "run_busy":
            assert effects.count("work", "b") == 0
    assert report.of("b").outcome == "done"
    assert report.of("a").outcome == "replayed"
    assert effects.counts() == {"work a": 1, "work b": 1, "work c": 1}


async def test_two_workers_at_one_batch_run_each_item_once(journal, effects):
    batch, other = batch_of(journal, effects), batch_of(journal, effects)
    items = [{"key": f"k{number}", "sku": str(number)} for number in range(24)]
    one, two = await asyncio.gather(go(batch, "march", items), go(other, "march", items))
    assert all(count == 1 for count in effects.counts().values())
    assert effects.count() == 24
    for report in (one, two):
        assert set(report.counts) <= {"done", "replayed", "not-run"}
        assert all(item.code == "run_busy" for item in report.items if item.outcome == "not-run")
    assert (await read_batch(journal, "march")).counts == {"done": 24}


async def test_an_item_that_another_worker_is_at_is_looked_at_once_more(journal, effects):
    begun, release = asyncio.Event(), asyncio.Event()

    @tool(side_effect=True)
    async def slow(ctx: Context, key: str) -> str:
        effects.fire("slow", ctx)
        begun.set()
        await release.wait()
        return "slow"

    items = [{"key": "a"}]
    batch = create_batch(journal=journal, tool=slow, item_key="key")
    first = asyncio.create_task(go(batch, "march", items))
    await asyncio.wait_for(begun.wait(), 30)
    busy = await go(batch, "march", items)
    assert (busy.of("a").outcome, busy.of("a").code) == ("not-run", "run_busy")
    release.set()
    assert (await first).counts == {"done": 1}
    assert (await go(batch, "march", items)).counts == {"replayed": 1}
    assert effects.count() == 1


# The plan ------------------------------------------------------------------------------------------------------------


async def test_preflight_writes_nothing(journal, effects, rows):
    await chat(journal, effects, "sku-1")
    batch = batch_of(FaultyJournal(journal), effects)
    before = await rows.all()
    plan = await batch.preflight("march", ITEMS)
    assert batch._journal.writes == 0
    assert await rows.all() == before
    assert plan.fresh == ("k0", "k2", "k3")
    assert [item.key for item in plan.xid_hits] == ["k1"]


async def test_the_token_stands_for_items_and_rules_and_for_no_order(journal, effects):
    batch = batch_of(journal, effects)
    token = (await batch.preflight("march", ITEMS)).token
    assert re.fullmatch("[0-9a-f]{64}", token)
    assert (await batch.preflight("march", ITEMS[::-1])).token == token
    assert (await batch.preflight("march", [dict(reversed(item.items())) for item in ITEMS])).token == token
    others = [
        await batch.preflight("march", ITEMS[:3]),
        await batch.preflight("march", [*ITEMS[:3], {**ITEMS[3], "sku": "other"}]),
        await batch.preflight("april", ITEMS),
        await batch_of(journal, effects, on_duplicate="skip").preflight("march", ITEMS),
        await batch_of(journal, effects, resource_id="bob").preflight("march", ITEMS),
        await batch_of(journal, effects, thread_id="t").preflight("march", ITEMS),
    ]
    assert len({token, *(plan.token for plan in others)}) == 7


async def test_without_the_token_nothing_runs_and_nothing_is_written(journal, effects, rows):
    batch = batch_of(journal, effects)
    token = (await batch.preflight("march", ITEMS)).token
    for wrong, items in ((None, ITEMS), ("", ITEMS), (token, ITEMS[:3]), (token[:-1] + "g", ITEMS)):
        with pytest.raises(BatchPlanMismatchError) as refused:
            await batch.run("march", items, plan_token=wrong)
        assert (refused.value.code, refused.value.http_status) == ("batch_plan_mismatch", 409)
    assert await rows.all() == {}


async def test_one_batch_id_is_one_plan(journal, effects):
    batch = batch_of(journal, effects)
    await go(batch, "march", ITEMS[:2])
    with pytest.raises(BatchPlanMismatchError, match="was begun with other items"):
        await go(batch, "march", ITEMS)
    assert effects.count() == 2


async def test_another_job_under_an_items_id_is_no_item_whatever_became_of_the_plan(journal, effects, rows):
    batch = batch_of(journal, effects)
    await go(batch, "march", ITEMS[:1])
    await rows.delete(keys.batch_plan("march"))
    report = await go(batch, "march", [{"key": "k0", "sku": "another"}])
    assert (report.of("k0").outcome, report.of("k0").code) == ("not-run", "run_input_mismatch")


async def test_the_plan_says_where_each_item_of_the_batch_stands(journal, effects):
    fails = {"k1": ValueError("boom")}
    batch = batch_of(journal, effects, creating(effects, fails=fails), guard=None)
    await chat(journal, effects, "sku-2")
    await go(batch, "march", ITEMS)
    plan = await batch.preflight("march", ITEMS)
    assert [item.key for item in plan.already_done] == ["k0", "k3"]
    assert [(item.key, item.run_id) for item in plan.unfinished] == [("k1", "batch:march:k1")]
    assert [item.key for item in plan.suspended] == ["k2"]
    assert "a question is open" in plan.suspended[0].text
    assert plan.fresh == ()
    assert plan.repeats == ()


async def test_a_plan_can_be_written_as_json(journal, effects):
    await chat(journal, effects, "sku-1")
    plan = await batch_of(journal, effects).preflight("march", ITEMS)
    told = json.loads(json.dumps(plan.to_json()))
    assert told["xid_hits"][0]["key"] == "k1"
    assert "xid_identity_unusable" not in told


async def test_items_without_a_person_are_named_since_nobodys_jobs_can_be_looked_at(journal, effects):
    persons = {"k0": "ann"}
    batch = batch_of(journal, effects, resource_id=lambda item: persons.get(item["key"]))
    plan = await batch.preflight("march", ITEMS)
    assert plan.xid_scope_disabled == ("k1", "k2", "k3")
    await batch.run("march", ITEMS, plan_token=plan.token)
    jobs = [entry async for entry in scan_all(journal, ("xid",))]
    assert [entry.key[1] for entry in jobs] == ["ann"]


async def test_l72_an_identity_of_a_field_that_no_item_has_names_every_item_and_repeats_nothing(journal, effects):
    wrong = creating(effects, SemanticIdentity(keys=("note",)))
    batch = batch_of(journal, effects, wrong)
    plan = await batch.preflight("march", ITEMS[:3])
    assert plan.fresh == ("k0", "k1", "k2")
    assert [(item.key, item.fields) for item in plan.xid_identity_unusable] == [(key, ("note",)) for key in plan.fresh]
    assert "sku-1" not in str(plan.xid_identity_unusable), "names of fields, never their values"
    assert plan.intra_batch_duplicates == ()
    assert (await batch.run("march", ITEMS[:3], plan_token=plan.token)).counts == {"done": 3}
    (incident,) = await read_incidents(journal, "batch:march:k0")
    assert incident.detail["reason"] == "identity-unusable"


async def test_some_items_may_be_unusable_and_the_others_not(journal, effects):
    items = [ITEMS[0], {"key": "k1", "sku": ["a", "b"]}]
    plan = await batch_of(journal, effects).preflight("march", items)
    assert [item.key for item in plan.xid_identity_unusable] == ["k1"]
    assert "flatten" in plan.xid_identity_unusable[0].text
    assert (await batch_of(journal, effects).preflight("march", items[:1])).xid_identity_unusable is None


async def test_items_that_are_the_same_work_are_named_and_all_run(journal, effects):
    items = [
        {"key": "a", "sku": "X", "price": 1.0},
        {"key": "b", "sku": " x ", "price": 2.0},
        {"key": "c", "sku": "y"},
        {"key": "d", "sku": "Y"},
        {"key": "e", "sku": "z"},
    ]
    batch = batch_of(journal, effects)
    plan = await batch.preflight("march", items)
    assert [(one.keys, one.by, one.amounts_differ) for one in plan.intra_batch_duplicates] == [
        (("a", "b"), "identity", ("price",)),
        (("c", "d"), "identity", ()),
    ]
    assert (await batch.run("march", items, plan_token=plan.token)).counts == {"done": 5}


async def test_equal_arguments_are_the_same_work_and_two_persons_are_two(journal, effects):
    @tool(side_effect=True)
    def ping(ctx: Context, host: str) -> None:
        effects.fire("ping", ctx)

    names = iter("abcd")
    items = [{"host": "h"}, {"host": "h"}, {"host": "other"}]
    batch = create_batch(journal=journal, tool=ping, item_key=lambda _: next(names), thread_id="t")
    plan = await batch.preflight("march", items)
    assert [(one.keys, one.by) for one in plan.intra_batch_duplicates] == [(("a", "b"), "arguments")]
    persons = batch_of(journal, effects, resource_id=lambda item: item["key"])
    apart = await persons.preflight("march", [{"key": "a", "sku": "x"}, {"key": "b", "sku": "x"}])
    assert apart.intra_batch_duplicates == ()


# How the items are read is no matter of the store, and ten thousand of them take a server many seconds.
@pytest.mark.parametrize("storage", ["memory", "sqlite"], indirect=True)
async def test_ten_thousand_items_are_read_in_chunks(counting, journal, effects):
    items = [{"key": f"k{number}", "sku": str(number)} for number in range(10_000)]
    looking = counting(journal)
    most = 0
    read = looking.get_many

    async def get_many(asked):
        nonlocal most
        most = max(most, len(asked))
        return await read(asked)

    looking.get_many, looking.org = get_many, ""
    plan = await batch_of(looking, effects).preflight("march", items)
    assert len(plan.fresh) == 10_000
    assert looking.reads == 2 + 100  # plan and report of an earlier run, then the items in chunks
    assert most <= 400


# Repeats -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("price", [1.0, 2.0])
async def test_an_item_that_repeats_a_persons_work_becomes_a_question(journal, effects, price):
    clock = Clock()
    moved = clock.moved(journal)
    await chat(moved, effects, "SKU-1")
    clock.seconds(5 * 60)
    items = [ITEMS[0], {**ITEMS[1], "price": price}]
    batch = batch_of(moved, effects)
    plan = await batch.preflight("march", items)
    (hit,) = plan.xid_hits if price == 1.0 else plan.amount_mismatches
    assert len(plan.repeats) == 1
    assert (hit.key, hit.run_id, hit.tool_call_id, hit.channel) == ("k1", "chat-1", "s0p0", "chat")
    assert hit.fields == (() if price == 1.0 else ("price",))
    assert "5 min ago, via chat" in hit.text
    report = await batch.run("march", items, plan_token=plan.token)
    assert outcomes(report) == {"k0": "done", "k1": "suspended"}
    (question,) = report.interrupts
    assert "5 min ago, via chat" in question.reason
    assert [one.question for one in await list_interrupts(journal)] == ["batch:march:k1/s0p0/duplicate/0"]
    await decide(journal, question.question, True)
    assert outcomes(await go(batch, "march", items)) == {"k0": "replayed", "k1": "done"}
    assert effects.count() == 3


async def test_a_no_denies_the_item_for_good(journal, effects):
    await chat(journal, effects, "sku-1")
    batch = batch_of(journal, effects)
    (question,) = (await go(batch, "march", ITEMS)).interrupts
    await decide(journal, question.question, False)
    for _ in range(2):
        assert (await go(batch, "march", ITEMS)).of("k1").outcome == "denied"
    assert effects.count() == 4


async def test_l49_a_chat_that_repeats_an_item_is_asked_about_via_batch(journal, effects):
    clock = Clock()
    moved = clock.moved(journal)
    await go(batch_of(moved, effects), "march", ITEMS)
    clock.seconds(5 * 60)
    result = await chat(moved, effects, " Sku-1")
    (question,) = result.interrupts
    assert "5 min ago, via batch" in question.reason
    assert question.prior["run_id"] == "batch:march:k1"


async def test_skip_leaves_a_repeat_out(journal, effects):
    await chat(journal, effects, "sku-1")
    batch = batch_of(journal, effects, on_duplicate="skip")
    for expected in ("done", "replayed"):
        report = await go(batch, "march", ITEMS)
        assert outcomes(report) == {"k0": expected, "k1": "skipped", "k2": expected, "k3": expected}
    assert report.interrupts == ()
    assert (await read_batch(journal, "march")).outcomes["k1"] == ("skipped", "")


async def test_fail_batch_begins_nothing_where_the_plan_knows_of_a_repeat(journal, effects):
    await chat(journal, effects, "sku-1")
    batch = batch_of(journal, effects, on_duplicate="fail-batch")
    with pytest.raises(DuplicateSideEffectError, match="k1") as failed:
        await go(batch, "march", ITEMS)
    assert failed.value.detail["items"] == ["k1"]
    assert effects.count() == 1
    kept = (await read_batch(journal, "march")).outcomes
    assert kept["k1"] == ("not-run", "duplicate_side_effect")
    assert {outcome for outcome, _ in kept.values()} == {"not-run"}


async def test_limits_that_are_given_win_over_fail_batch(journal, effects):
    await chat(journal, effects, "sku-1")
    batch = batch_of(journal, effects, on_duplicate="fail-batch", limits=RunLimits(side_effect_duplicates="warn"))
    assert set(outcomes(await go(batch, "march", ITEMS)).values()) == {"done"}


async def test_fail_batch_begins_nothing_more_once_a_repeat_comes_up(journal, effects):
    @tool(semantic_identity=BY_SKU, name="create")
    async def create(ctx: Context, key: str, sku: str, price: float = 1.0) -> None:
        effects.fire("create", ctx)
        if key == "k0":
            await chat(journal, effects, "sku-1")  # somebody does it while the batch is under way

    batch = batch_of(journal, effects, create, on_duplicate="fail-batch", concurrency=1)
    with pytest.raises(DuplicateSideEffectError) as failed:
        await go(batch, "march", ITEMS)
    assert failed.value.detail["items"] == ["k1"]
    kept = (await read_batch(journal, "march")).outcomes
    assert {key: outcome for key, (outcome, _) in kept.items()} == {
        "k0": "done",
        "k1": "not-run",
        "k2": "not-run",
        "k3": "not-run",
    }


async def test_equal_arguments_in_a_conversation_are_exact_repeats(journal, effects):
    @tool(side_effect=True)
    def ping(ctx: Context, host: str) -> None:
        effects.fire("ping", ctx)

    batch = create_batch(journal=journal, tool=ping, item_key="host", thread_id="t")
    await go(batch, "march", [{"host": "a"}, {"host": "b"}])
    plan = await batch.preflight("april", [{"host": "a"}, {"host": "c"}])
    (repeat,) = plan.exact_repeats
    assert (repeat.key, repeat.run_id, repeat.channel) == ("a", "batch:march:a", "batch")
    report = await batch.run("april", [{"host": "a"}, {"host": "c"}], plan_token=plan.token)
    assert outcomes(report) == {"a": "suspended", "c": "done"}


async def test_work_that_is_recorded_under_a_key_of_its_own_is_given(journal, effects):
    @tool(idempotency_key=lambda args: args["order"], window="cross-run")
    def charge(ctx: Context, order: str, note: str = "") -> str:
        return effects.fire("charge", ctx, f"charged {order}")

    batch = create_batch(journal=journal, tool=charge, item_key="order")
    await go(batch, "march", [{"order": "1"}])
    plan = await batch.preflight("april", [{"order": "1", "note": "x"}, {"order": "2"}])
    (repeat,) = plan.exact_repeats
    assert repeat.run_id == "batch:march:1"
    assert "its result is given" in repeat.text
    items = [{"order": "1", "note": "x"}, {"order": "2"}]
    report = await batch.run("april", items, plan_token=plan.token)
    assert outcomes(report) == {"1": "replayed", "2": "done"}
    assert report.of("1").output == "charged 1"
    assert effects.count() == 2


# Declarations --------------------------------------------------------------------------------------------------------


async def test_items_that_cannot_be_are_named_by_their_position(journal, effects):
    batch = batch_of(journal, effects)
    for items, error, words in (
        ([*ITEMS, {"sku": "x"}], ConfigError, "item 4 has no 'key'"),
        ([*ITEMS, {"key": "a b"}], IdInvalidError, "item 4 is 'a b'"),
        ([*ITEMS, {"key": 7}], IdInvalidError, "item 4"),
        ([*ITEMS, ITEMS[1]], ConfigError, "items 1 and 4 have one key, 'k1'"),
        ([*ITEMS, "k9"], ConfigError, "item 4 is str"),
        ([*ITEMS, {"key": "k9", "sku": {1, 2}}], NotCanonicalError, "item 4"),
        ([*ITEMS, {"key": "k9", "price": float("nan")}], NotCanonicalError, "item 4"),
        ({"key": "k9"}, ConfigError, "items is dict"),
        (None, ConfigError, "items is NoneType"),
    ):
        with pytest.raises(error, match=words):
            await batch.preflight("march", items)
    for wrong in ("", "a:b", "a/b", "x" * 129, None):
        with pytest.raises(IdInvalidError):
            await batch.preflight(wrong, ITEMS)
    shouting = batch_of(journal, effects, resource_id=lambda item: item["nobody"])
    with pytest.raises(ConfigError, match="resource_id of item 0"):
        await shouting.preflight("march", ITEMS)


def test_a_tool_that_says_nothing_of_its_work_is_told_what_to_declare(effects):
    @tool
    def plain(key: str) -> None:
        """Do it."""

    for wrong in (plain, plain.function, "plain"):
        with pytest.raises(ToolDeclarationError):
            create_batch(journal=object(), tool=wrong, item_key="key")
    with pytest.raises(ToolDeclarationError, match="declare semantic_identity"):
        create_batch(journal=object(), tool=plain, item_key="key")


async def test_a_tool_that_remembers_within_a_conversation_needs_one(journal):
    @tool(idempotency="args", window="thread")
    def book(room: str) -> str:
        return f"booked {room}"

    with pytest.raises(ConfigError, match="thread_id"):
        create_batch(journal=journal, tool=book, item_key="room")
    batch = create_batch(journal=journal, tool=book, item_key="room", thread_id="t")
    assert (await go(batch, "march", [{"room": "7"}])).counts == {"done": 1}
    plan = await batch.preflight("april", [{"room": "7"}])
    assert [item.run_id for item in plan.exact_repeats] == ["batch:march:7"]


async def test_a_finder_without_a_conversation_is_told_of_once_and_not_by_every_item(journal, effects, caplog):
    finds = RunLimits(side_effect_duplicates=Duplicates(scope="thread", semantic=Inactive({})))
    batch = batch_of(journal, effects, limits=finds)
    assert any("names no thread_id" in warning for warning in batch.warnings)
    report = await go(batch, "march", ITEMS)
    assert report.counts == {"done": 4}
    assert all(item.warnings == () for item in report.items)
    assert "thread_id" not in caplog.text


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"on_duplicate": "ask"}, "on_duplicate"),
        ({"concurrency": 0}, "concurrency"),
        ({"concurrency": True}, "concurrency"),
        ({"approvals": {"s0p0": True}}, "decide"),
        ({"limits": RunLimits(side_effect_duplicates="reflect")}, "reflect"),
        ({"prompt": "x"}, "no option 'prompt'"),
        ({"thread_id": "t", "resource_id": lambda item: item["key"]}, "shared_thread"),
        ({"resource_id": 7}, "resource_id"),
        ({"preset": "wild"}, "preset"),
        ({"limits": 7}, "limits"),
        ({"channel": "a b"}, "channel"),
        ({"lock_ttl": 0}, "lock_ttl"),
    ],
)
async def test_options_that_cannot_be_are_refused_at_once(effects, options, words):
    from gnl_core import InMemoryStorage  # noqa: PLC0415 - used here only

    async with InMemoryStorage() as storage:
        with pytest.raises((ConfigError, IdInvalidError), match=words):
            create_batch(journal=storage.runs, tool=creating(effects), item_key="key", **options)
        with pytest.raises(ConfigError, match="item_key"):
            create_batch(journal=storage.runs, tool=creating(effects), item_key="")


async def test_limits_win_over_on_duplicate_and_that_over_the_preset(journal, effects):
    await chat(journal, effects, "sku-1")
    warn = RunLimits(side_effect_duplicates="warn")
    assert (await go(batch_of(journal, effects, preset="headless"), "a", ITEMS)).of("k1").code == (
        "duplicate_side_effect"
    )
    skip = batch_of(journal, effects, preset="headless", on_duplicate="skip")
    assert (await go(skip, "b", ITEMS[1:2])).of("k1").outcome == "skipped"
    other = batch_of(journal, effects, on_duplicate="skip", limits=warn)
    assert (await go(other, "c", ITEMS[1:2])).of("k1").outcome == "done"
    keeps = batch_of(journal, effects, on_duplicate="skip", limits=RunLimits(max_tool_calls=5))
    assert (await go(keeps, "d", ITEMS[1:2])).of("k1").outcome == "skipped"
    with pytest.raises(ToolDeclarationError, match="strict-critical"):
        batch_of(journal, effects, preset="critical")
    critical = batch_of(journal, effects, creating(effects, recover=lambda key: {"done": False}), preset="critical")
    assert "names no thread_id" in critical.warnings[0]
    assert (await go(critical, "e", ITEMS[1:2])).of("k1").outcome == "suspended"
    off = batch_of(journal, effects, limits=RunLimits(side_effect_duplicates=Duplicates(action="off")))
    assert (await off.preflight("f", ITEMS[1:2])).fresh == ("k1",)


BY_KEY = {"idempotency_key": lambda args: args["key"]}


@pytest.mark.parametrize(
    ("declared", "options", "sees"),
    [
        ({"identity": None, "side_effect": True}, {}, False),
        ({"identity": None, "side_effect": True}, {"thread_id": "t"}, True),
        ({}, {"resource_id": None}, False),
        ({}, {}, True),
        ({"identity": None, **BY_KEY}, {}, False),
        ({"identity": None, **BY_KEY, "window": "cross-run"}, {}, True),
        ({"identity": None, "side_effect": False}, {}, True),
        ({"identity": None, "side_effect": True}, {"limits": RunLimits(side_effect_duplicates="off")}, True),
    ],
)
async def test_a_batch_that_can_see_no_repeat_says_so(journal, effects, declared, options, sees):
    for name in ("march", "april"):
        batch = batch_of(journal, effects, creating(effects, **declared), **options)
        told = [warning for warning in batch.warnings if "another batch does its items again" in warning]
        assert bool(told) is not sees
        plan = await batch.preflight(name, ITEMS[:1])
        assert set(told) <= set(plan.warnings)
        await batch.run(name, ITEMS[:1], plan_token=plan.token)
    if not sees:  # what it says is so
        assert effects.count() == 2


async def test_a_plan_that_the_batch_cannot_run_any_more_says_so(journal, effects):
    batch = batch_of(journal, effects)
    await go(batch, "march", ITEMS)
    assert (await batch.preflight("march", ITEMS)).warnings == ()
    plan = await batch.preflight("march", ITEMS[:3])
    assert "was begun with other items" in plan.warnings[0]
    with pytest.raises(BatchPlanMismatchError):
        await batch.run("march", ITEMS[:3], plan_token=plan.token)


async def test_the_default_is_the_default_whether_it_is_said_or_not(journal, effects):
    said = await batch_of(journal, effects, on_duplicate="suspend-item").preflight("march", ITEMS)
    assert (await batch_of(journal, effects).preflight("march", ITEMS)).token == said.token
    fails = await batch_of(journal, effects, on_duplicate="fail-batch").preflight("march", ITEMS)
    blocks = batch_of(journal, effects, limits=RunLimits(side_effect_duplicates="block"))
    assert (await blocks.preflight("march", ITEMS)).token != fails.token
