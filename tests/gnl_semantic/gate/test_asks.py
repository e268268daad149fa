"""What the gate asks about, what it leaves alone, and what either leaves behind: in real runs, over real stores."""

import pytest

from gnl_core import args_hash, decide, keys
from gnl_core.approvals import Approval
from gnl_core.journal import Delete, new_batch

pytestmark = pytest.mark.stores()

ABC, SPACED = {"sku": "abc"}, {"sku": " ABC ", "note": "again, please"}


def statuses(result):
    return [call.status for step in result.steps for call in step.calls]


def told(result):
    """What the model was told of each call."""
    return [part.text for message in result.messages if message.role == "tool" for part in message.parts]


def ahead(approved):
    """Answer SPACED before its question."""
    return Approval(approved=approved, args_digest=args_hash(SPACED), actor="deniz")


# What is kept --------------------------------------------------------------------------------------------------------


async def test_l05_the_first_success_leaves_one_record_that_holds_the_identity_alone(shop):
    await shop.run({"sku": "abc", "price": 5, "note": "for Ayşe, urgently"}, run="first")
    (record,) = await shop.records()
    assert record == {
        "f": 1,
        "model": "fake@1",
        "template": "1",
        "sentence": "createProduct: abc",
        "identity": {"sku": "abc"},
        "amounts": {"price": "5"},
        "discriminators": {"cancel": ""},
        "run": "first",
        "call": "s0p0",
    }
    assert "Ay" not in str(record), "an undeclared field never enters it"
    assert shop.embed.sent == ["createProduct: abc"]


@pytest.mark.parametrize("case", ["failed", "suspended", "denied"])
async def test_work_that_did_not_succeed_is_not_remembered(shop, asked, case):
    made = shop.tool(fails=1) if case == "failed" else shop.tool(confirm=True)
    result = await shop.run(ABC, tools=[made])
    if case == "denied":
        await decide(shop.journal, asked(result).question, False, actor="deniz")
        result = await shop.run(ABC, run="r1", tools=[made])
        assert statuses(result) == ["denied"]
    assert await shop.records() == []
    assert await shop.get(keys.generation(("xthr", "t"), "createProduct")) is None


async def test_a_repeat_that_ran_keeps_the_stamp_of_the_first(shop, asked):
    await shop.run(ABC, run="first")
    before = await shop.rows("xthr", "t", "sem")
    result = await shop.run(ABC, run="again")
    await decide(shop.journal, asked(result).question, True, actor="deniz")
    await shop.run(ABC, run="again")
    assert shop.effects.count() == 2
    after = await shop.rows("xthr", "t", "sem")
    assert [(entry.value, entry.created_at, entry.version) for entry in after.values()] == [
        (entry.value, entry.created_at, entry.version) for entry in before.values()
    ]


async def test_a_record_without_a_vector_gets_one_with_the_next_success(shop, asked):
    shop.embed.error = RuntimeError("down")
    await shop.run(ABC, run="first")
    assert [entry.blob for entry in (await shop.rows("xthr", "t", "sem")).values()] == [None]
    shop.embed.error = None
    result = await shop.run(ABC, run="again")
    await decide(shop.journal, asked(result).question, True, actor="deniz")
    await shop.run(ABC, run="again")
    (entry,) = (await shop.rows("xthr", "t", "sem")).values()
    assert (len(entry.blob), entry.value["run"]) == (8, "first")
    assert (await shop.get(keys.generation(("xthr", "t"), "createProduct"))).value == {"n": 1, "f": 1}
    assert asked(await shop.run(SPACED)).kind == "semantic"


# Equal identity ------------------------------------------------------------------------------------------------------


async def test_l06_another_spelling_of_the_same_identity_is_asked_about(shop, asked):
    await shop.run(ABC, run="first")
    question = asked(await shop.run(SPACED, run="second"))
    assert question.kind == "semantic"
    assert "call s0p0 of run first" in question.reason
    assert "100 % alike" in question.reason
    assert question.prior == {
        "origin": "identity",
        "run_id": "first",
        "tool_call_id": "s0p0",
        "at": question.prior["at"],
        "sentence": "createProduct: abc",
        "present": "createProduct: abc",
        "score": 1.0,
        "prior_hash": args_hash(ABC),
        "identity_keys": ["sku"],
    }
    assert shop.effects.count() == 1
    ((source, action, detail),) = await shop.noted("second")
    assert (source, action, detail["origin"]) == ("semantic-guard", "suspend", "identity")
    assert (detail["first_run"], detail["first_call"]) == ("first", "s0p0")
    shown = await shop.get(keys.question("second", "~", "s0p0", "semantic", 0))
    assert shown.value == {"f": 1, "tool": "createProduct", "kind": "semantic", "prior": question.prior}


async def test_l07_a_yes_runs_it_and_leaves_one_tombstone(shop, asked):
    await shop.run(ABC)
    question = asked(await shop.run(SPACED, run="second"))
    await decide(shop.journal, question.question, True, actor="deniz")
    result = await shop.run(SPACED, run="second")
    assert (result.text, shop.effects.count()) == ("done", 2)
    assert await shop.tombstones() == [
        keys.tombstone(("xthr", "t"), "createProduct", args_hash(SPACED), args_hash(ABC))
    ]
    assert len(await shop.records()) == 2


async def test_a_no_runs_nothing_and_the_next_repeat_is_asked_about_again(shop, asked):
    await shop.run(ABC)
    question = asked(await shop.run(SPACED, run="second"))
    await decide(shop.journal, question.question, False, actor="deniz", reason="it exists")
    result = await shop.run(SPACED, run="second")
    assert (statuses(result), shop.effects.count(), await shop.tombstones()) == (["denied"], 1, [])
    assert asked(await shop.run(SPACED, run="third")).kind == "semantic"


async def test_a_yes_ahead_of_the_question_runs_it_unasked(shop):
    await shop.run(ABC)
    result = await shop.run(SPACED, run="second", approvals={"second/s0p0": ahead(True)})
    assert (result.text, result.interrupts, shop.effects.count()) == ("done", (), 2)
    assert (await shop.noted("second"), result.unused_approvals) == ([], ())


async def test_a_no_ahead_of_the_question_counts_for_what_looks_the_same(shop):
    await shop.run(ABC)
    result = await shop.run(SPACED, run="second", approvals={"second/s0p0": ahead(False)})
    assert (statuses(result), shop.effects.count()) == (["denied"], 1)


async def test_l08_the_same_arguments_a_third_time_are_the_exact_layers(shop, asked):
    await shop.run(ABC)
    question = asked(await shop.run(SPACED, run="second"))
    await decide(shop.journal, question.question, True, actor="deniz")
    await shop.run(SPACED, run="second")
    again = asked(await shop.run(SPACED, run="third"))
    assert (again.kind, again.prior["origin"]) == ("duplicate", "exact")
    assert "these very arguments" in again.reason


async def test_l09_another_conversation_is_another_matter(shop):
    await shop.run(ABC, thread_id="one")
    assert (await shop.run(SPACED, thread_id="two")).text == "done"
    assert shop.effects.count() == 2


async def test_l10_a_tombstone_silences_its_own_pair_only(shop, asked):
    await shop.run(ABC)
    await shop.put(keys.tombstone(("xthr", "t"), "createProduct", args_hash(SPACED), args_hash(ABC)), {"f": 1})
    assert (await shop.run(SPACED)).text == "done"
    third = asked(await shop.run({"sku": "Abc"}))
    assert third.kind == "semantic"
    assert shop.effects.count() == 2


async def test_a_tombstone_is_of_an_ordered_pair(shop, asked):
    await shop.run(SPACED)
    await shop.put(keys.tombstone(("xthr", "t"), "createProduct", args_hash(SPACED), args_hash(ABC)), {"f": 1})
    assert asked(await shop.run(ABC)).kind == "semantic", "that SPACED may follow ABC says nothing of ABC after SPACED"


async def test_l12_score_alone_never_asks_and_the_model_learns_nothing(shop):
    await shop.run(ABC, run="first")
    result = await shop.run({"sku": "xyz"}, run="second")
    assert (statuses(result), shop.effects.count()) == (["succeeded"], 2)
    assert told(result) == ["made 2"]
    ((source, action, detail),) = await shop.noted("second")
    assert (source, action) == ("semantic-guard", "warn")
    assert detail == {
        "dropped_identity": 1,
        "gray_calls": 1,
        "tool": "createProduct",
        "embed_model_id": "fake@1",
        "identity_keys": ["sku"],
    }


async def test_below_the_threshold_nothing_is_seen_unless_the_identity_folds_alike(shop, asked):
    shop.embed.place("createProduct: far", 0.59)
    await shop.run(ABC)
    await shop.run({"sku": "far"}, run="far")
    assert await shop.noted("far") == []
    shop.embed.place("createProduct: a-b-c 7", 0.0)
    await shop.run({"sku": "abc 7"})
    shop.gate = shop.gated(rules=True)
    question = asked(await shop.run({"sku": "a-b-c 7"}))
    assert (question.prior["origin"], question.prior["score"]) == ("rule", 0.0)


async def test_l13_deleting_what_was_created_is_another_tool(shop):
    tools = [shop.tool(), shop.tool("deleteProduct")]
    result = await shop.run(ABC, ("deleteProduct", {"sku": "ABC"}), tools=tools)
    assert (statuses(result), shop.effects.count()) == (["succeeded", "succeeded"], 2)


@pytest.mark.parametrize("names", [("order", "order-cancel"), ("order-cancel", "order"), ("order", "order/x")])
async def test_l14_tools_whose_names_begin_alike_do_not_meet(shop, names):
    first, second = names
    if "/" in second:
        second = "order_x"
    declared = {"keys": ("sku",), "describe": lambda _: "one and the same sentence"}
    tools = [shop.tool(first, declared=declared), shop.tool(second, declared=declared)]
    result = await shop.run((first, ABC), (second, SPACED), tools=tools)
    assert (statuses(result), shop.effects.count()) == (["succeeded", "succeeded"], 2)
    assert await shop.noted() == []


@pytest.mark.parametrize(
    "threads",
    [("a", "a:sem-createProduct-x"), ("a", "a/sem/createProduct"), ("a:sem", "a"), ("a/sem", "a"), ("%2F", "/")],
)
async def test_l15_conversations_whose_names_begin_alike_do_not_meet(shop, asked, threads):
    one, other = threads
    await shop.run(ABC, thread_id=one)
    assert (await shop.run(SPACED, thread_id=other)).text == "done"
    assert shop.effects.count() == 2
    assert asked(await shop.run({"sku": "Abc"}, thread_id=one)).prior["run_id"] == "r1"


async def test_l16_a_discriminator_that_differs_is_another_job(shop, asked):
    await shop.run({"sku": "abc", "cancel": False}, run="first")
    result = await shop.run({"sku": "ABC", "cancel": True}, run="second")
    assert (result.text, shop.effects.count()) == ("done", 2)
    ((_, _, detail),) = await shop.noted("second")
    assert (detail["dropped_discriminator"], "dropped_identity" in detail) == (1, False)
    assert asked(await shop.run({"sku": "Abc", "cancel": True})).prior["run_id"] == "second"


async def test_l17_amounts_that_differ_are_named(shop, asked):
    await shop.run({"sku": "abc", "price": 5})
    question = asked(await shop.run({"sku": "abc", "price": 7}))
    assert question.prior["amounts_differ"] == ["price"]
    assert "amounts differ (price)" in question.reason
    assert "7" not in question.reason.replace(question.prior["run_id"], "")


@pytest.mark.parametrize(
    ("first", "second", "differ"),
    [({"price": 5}, {}, True), ({}, {"price": 5}, True), ({"price": 5}, {"price": 5.0}, False), ({}, {}, False)],
)
async def test_an_amount_that_only_one_side_has_differs(shop, asked, first, second, differ):
    await shop.run({"sku": "abc"} | first)
    question = asked(await shop.run({"sku": "ABC"} | second))
    assert ("amounts_differ" in question.prior) is differ


async def test_l23_an_optional_key_that_both_lack_does_not_silence_the_question(shop, asked):
    made = shop.tool(declared={"keys": ("sku", "warehouse")})
    await shop.run(ABC, tools=[made])
    assert asked(await shop.run(SPACED, tools=[made])).kind == "semantic"
    result = await shop.run({"sku": "Abc", "warehouse": "north"}, tools=[made])
    assert result.interrupts == ()


async def test_l30_records_past_their_time_count_no_more_by_the_stores_clock(shop, asked, clock):
    shop.ttl_ms = 60_000
    await shop.run(ABC)
    clock.seconds(59)
    assert asked(await shop.run(SPACED)).kind == "semantic"
    clock.seconds(3)
    assert (await shop.run({"sku": "Abc"})).text == "done"
    assert shop.effects.count() == 2


async def test_a_record_past_its_time_is_not_found_by_its_fold_either(shop, clock):
    shop.ttl_ms = 60_000
    await shop.run(ABC)
    clock.seconds(62)
    shop.gate = shop.gated(embed_model_id="fake@2")
    result = await shop.run(SPACED, run="second")
    assert (result.text, await shop.noted("second")) == ("done", [])


async def test_a_call_never_looks_like_its_own_record(shop):
    await shop.run(ABC)
    marker = keys.marker(("xthr", "t"), "createProduct", args_hash(ABC))
    await shop.journal.apply((Delete(marker),), batch=new_batch())
    assert (await shop.run(ABC)).text == "done", "equal arguments are the exact layer's alone"


async def test_the_age_and_the_channel_are_the_stores_and_the_first_runs(shop, asked, clock):
    await shop.run(ABC, channel="batch")
    clock.seconds(3 * 3600)
    assert "3 h ago" in asked(await shop.run(SPACED)).reason
