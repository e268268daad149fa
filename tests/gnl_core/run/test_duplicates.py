"""A side effect with the arguments of an earlier one of its request: each rung of the ladder, and whom it concerns."""

import pytest

from gnl_core import (
    Allow,
    Approval,
    Context,
    Deny,
    Duplicates,
    DuplicatesByClass,
    DuplicateSideEffectError,
    RequireApproval,
    RunLimits,
    agent_tool,
    args_hash,
    decide,
    fork_run,
    keys,
    list_interrupts,
    read_incidents,
    resume_run,
    run_durable,
    stream_durable,
    tool,
)
from gnl_core.errors import RunLimitExceededError, TaintedSideEffectError, UnknownQuestionError
from gnl_core.testing.scripted import ScriptedModel

CHARGE = [("charge", {"amount": 1})]
TWICE = [CHARGE, CHARGE, "done"]
TWINS = [[*CHARGE, *CHARGE], "done"]


def charging(effects, *, fails=0, **options):
    @tool(**options)
    def charge(amount: int, ctx: Context) -> str:
        effects.fire("charge", ctx)
        if effects.fired <= fails:
            raise RuntimeError("the line went dead")
        return f"receipt {effects.fired}"

    return charge


def limits(action, **others):
    return RunLimits(side_effect_duplicates=action, **others)


async def drive(journal, tools, turns, *, run_id="r", **options):
    options.setdefault("prompt", "go")
    return await run_durable(run_id=run_id, journal=journal, model=ScriptedModel(turns), tools=tools, **options)


def statuses(result):
    return [call.status for step in result.steps for call in step.calls]


async def noted(journal, run_id="r"):
    """Source, action and call of each incident, in order."""
    return [(one.source, one.action, one.tool_call_id) for one in await read_incidents(journal, run_id)]


def told(result):
    """What the model was told of each call."""
    return [part.text for message in result.messages if message.role == "tool" for part in message.parts]


# Off, warn -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("turns", [TWICE, TWINS], ids=["later", "twins"])
async def test_off_runs_both_and_notes_nothing(journal, rows, effects, turns):
    result = await drive(journal, [charging(effects)], turns, limits=limits("off"))
    assert (result.text, effects.count(), await noted(journal)) == ("done", 2, [])
    assert not [key for key in await rows.values() if key.startswith("xthr/")]


@pytest.mark.parametrize("turns", [TWICE, TWINS], ids=["later", "twins"])
async def test_l37_warn_runs_both_and_notes_exactly_one_incident_also_after_a_replay(journal, effects, turns):
    for _ in range(2):
        result = await drive(journal, [charging(effects)], turns, limits=limits("warn"))
        assert (result.text, effects.count()) == ("done", 2)
    (incident,) = await read_incidents(journal, "r")
    second = "s1p0" if turns is TWICE else "s0p1"
    assert (incident.source, incident.action, incident.tool_call_id) == ("duplicate-guard", "warn", second)
    assert "not run" not in incident.message, "it did run"
    assert "not executed" not in incident.message.lower()
    assert incident.detail == {
        "tool": "charge",
        "origin": "exact",
        "first_run": "r",
        "first_call": "s0p0",
        "args_hash": args_hash({"amount": 1}),
    }


async def test_warn_notes_each_repeat_against_the_first(journal, effects):
    await drive(journal, [charging(effects)], [CHARGE, CHARGE, CHARGE, "done"], limits=limits("warn"))
    found = await read_incidents(journal, "r")
    assert [(one.tool_call_id, one.detail["first_call"]) for one in found] == [("s1p0", "s0p0"), ("s2p0", "s0p0")]


# Reflect -------------------------------------------------------------------------------------------------------------


async def test_l39_reflect_nudges_once_and_lets_the_run_go_on(journal, effects):
    for _ in range(2):
        result = await drive(journal, [charging(effects)], TWICE, limits=limits("reflect"))
        assert (result.text, statuses(result)) == ("done", ["succeeded", "reflected"])
    assert effects.count() == 1
    assert await noted(journal) == [("duplicate-guard", "reflect", "s1p0")]
    text = told(result)[1]
    assert "did not run" in text
    for word in ("argument", "again", "different", "change", "differ", "approv"):
        assert word not in text, "it teaches no way around"


async def test_l39_the_repeat_after_the_nudge_is_blocked(journal, effects):
    for _ in range(2):
        with pytest.raises(DuplicateSideEffectError):
            await drive(journal, [charging(effects)], [CHARGE, CHARGE, CHARGE, "done"], limits=limits("reflect"))
    assert effects.count() == 1
    assert await noted(journal) == [("duplicate-guard", "reflect", "s1p0"), ("duplicate-guard", "block", "s2p0")]


async def test_l39_parallel_twins_are_nudged_once(journal, effects):
    result = await drive(journal, [charging(effects)], TWINS, limits=limits("reflect"))
    assert (statuses(result), effects.count()) == (["succeeded", "reflected"], 1)
    with pytest.raises(DuplicateSideEffectError):
        await drive(journal, [charging(effects)], [CHARGE * 3, "done"], run_id="q", limits=limits("reflect"))
    assert await noted(journal, "q") == [
        ("duplicate-guard", "reflect", "s0p1"),
        ("duplicate-guard", "block", "s0p2"),
    ]
    assert effects.count() == 2


async def test_other_arguments_have_a_nudge_of_their_own(journal, effects):
    other = [("charge", {"amount": 2})]
    result = await drive(journal, [charging(effects)], [CHARGE, CHARGE, other, other, "done"], limits=limits("reflect"))
    assert statuses(result) == ["succeeded", "reflected", "succeeded", "reflected"]


# Block ---------------------------------------------------------------------------------------------------------------


async def test_l38_block_raises_with_both_calls_and_leaves_the_first_as_it_was(journal, rows, effects):
    first = await drive(journal, [charging(effects)], TWICE, limits=limits("block"), max_steps=1)
    before = (await rows.values())["run/r/~/tool/000000/000"]
    for _ in range(2):
        with pytest.raises(DuplicateSideEffectError) as blocked:
            await drive(journal, [charging(effects)], TWICE)
    assert blocked.value.detail == {
        "run_id": "r",
        "tool_call_id": "s1p0",
        "tool": "charge",
        "args_hash": args_hash({"amount": 1}),
        "first_run": "r",
        "first_tool_call_id": "s0p0",
    }
    found = await rows.values()
    assert found["run/r/~/tool/000000/000"] == before
    assert "run/r/~/tool/000001/000" not in found, "a block leaves no record of its call"
    assert await noted(journal) == [("duplicate-guard", "block", "s1p0")]
    assert (first.steps[0].calls[0].output, effects.count()) == ("receipt 1", 1)


async def test_a_blocked_run_goes_on_under_another_rule(journal, effects):
    with pytest.raises(DuplicateSideEffectError):
        await drive(journal, [charging(effects)], TWICE, limits=limits("block"))
    result = await drive(journal, [charging(effects)], TWICE, limits=limits("warn"))
    assert (result.text, effects.count()) == ("done", 2)


async def test_a_blocked_stream_ends_with_one_event_and_its_text_raises(journal, effects):
    opened = await stream_durable(
        run_id="r",
        journal=journal,
        model=ScriptedModel(TWICE),
        tools=[charging(effects)],
        prompt="go",
        limits=limits("block"),
    )
    events = [event async for event in opened.events]
    assert [event.kind for event in events].count("blocked") == 1
    assert (events[-1].kind, events[-1].detail["code"]) == ("blocked", "duplicate_side_effect")
    with pytest.raises(DuplicateSideEffectError):
        await opened.text
    assert effects.count() == 1


# Suspend -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [None, "suspend"])
async def test_l40_suspend_is_the_default_and_shows_what_was_done(journal, rows, effects, given):
    result = await drive(journal, [charging(effects)], TWICE, limits=limits(given))
    (question,) = result.interrupts
    assert (question.question, question.kind, question.args) == ("r/s1p0/duplicate/0", "duplicate", {"amount": 1})
    assert effects.count() == 1
    first = (await rows.all())["run/r/~/tool/000000/000"]
    assert question.prior == {"origin": "exact", "run_id": "r", "tool_call_id": "s0p0", "at": first.updated_at}
    assert "call s0p0 of run r" in question.reason
    assert "just now" in question.reason
    shown = (await rows.values())[keys.encode(keys.question("r", keys.ROOT, "s1p0", "duplicate", 0))][0]
    assert shown == {"f": 1, "tool": "charge", "kind": "duplicate", "prior": question.prior}
    assert await noted(journal) == [("duplicate-guard", "suspend", "s1p0")]
    (listed,) = await list_interrupts(journal)
    assert listed.prior == question.prior


async def test_l40_approve_runs_it_a_second_time_for_real(journal, effects):
    await drive(journal, [charging(effects)], TWICE)
    await decide(journal, "r/s1p0/duplicate/0", True)
    for _ in range(2):
        result = await drive(journal, [charging(effects)], TWICE)
        assert [call.output for step in result.steps for call in step.calls] == ["receipt 1", "receipt 2"]
    assert effects.counts() == {"charge r/s0p0": 1, "charge r/s1p0": 1}
    assert await noted(journal) == [("duplicate-guard", "suspend", "s1p0")]


async def test_l40_deny_ends_it_denied_and_the_model_reads_so_in_the_past_tense(journal, effects):
    await drive(journal, [charging(effects)], TWICE)
    await decide(journal, "r/s1p0/duplicate/0", False, reason="once is enough")
    result = await drive(journal, [charging(effects)], TWICE)
    assert (result.text, statuses(result), effects.count()) == ("done", ["succeeded", "denied"], 1)
    assert told(result)[1].startswith("A person refused this call and it did not run. Reason: once is enough.")


async def test_l46_after_a_no_the_next_repeat_of_the_request_does_not_run_and_is_not_asked(journal, effects):
    turns = [CHARGE, CHARGE, CHARGE, CHARGE, "done"]
    await drive(journal, [charging(effects)], turns)
    await decide(journal, "r/s1p0/duplicate/0", False)
    result = await drive(journal, [charging(effects)], turns)
    assert (result.text, result.interrupts, effects.count()) == ("done", (), 1)
    assert statuses(result) == ["succeeded", "denied", "denied", "denied"]
    assert "refused" in told(result)[2]
    assert (await drive(journal, [charging(effects)], turns)).messages == result.messages


async def test_l46_a_no_binds_sub_agents_too_and_no_later_request(journal, effects):
    charge = charging(effects)
    helper = agent_tool(name="helper", description="pays", model=ScriptedModel([CHARGE, "paid"]), tools=[charge])
    turns = [CHARGE, CHARGE, [("helper", {"task": "pay"})], "done"]
    await drive(journal, [charge, helper], turns)
    await decide(journal, "r/s1p0/duplicate/0", False)
    result = await drive(journal, [charge, helper], turns)
    assert (result.text, effects.count()) == ("done", 1)
    (question,) = (await drive(journal, [charge], TWICE, run_id="next")).interrupts
    assert question.question == "next/s1p0/duplicate/0", "a new request asks again"


async def test_s82_a_yes_is_for_one_repeat_and_the_next_is_asked_again(journal, effects):
    turns = [CHARGE, CHARGE, CHARGE, "done"]
    await drive(journal, [charging(effects)], turns)
    await decide(journal, "r/s1p0/duplicate/0", True)
    (question,) = (await drive(journal, [charging(effects)], turns)).interrupts
    assert (question.question, effects.count()) == ("r/s2p0/duplicate/0", 2)
    assert question.prior["tool_call_id"] == "s0p0"


async def test_s82_a_deliberate_repeat_is_two_executions(journal, effects):
    @tool
    def add_to_cart(item: str, ctx: Context) -> str:
        effects.fire("add", ctx)
        return "added"

    turns = [[("add_to_cart", {"item": "tshirt"})], [("add_to_cart", {"item": "tshirt"})], "two of them"]
    await drive(journal, [add_to_cart], turns)
    await decide(journal, "r/s1p0/duplicate/0", True, relation="deliberate_repeat")
    assert ((await drive(journal, [add_to_cart], turns)).text, effects.count()) == ("two of them", 2)


async def test_skip_leaves_it_out_and_tells_the_model(journal, effects):
    for _ in range(2):
        result = await drive(journal, [charging(effects)], TWICE, limits=limits("skip"))
        assert (result.text, statuses(result), effects.count()) == ("done", ["succeeded", "denied"], 1)
    assert "did not run" in told(result)[1]
    assert await noted(journal) == [("duplicate-guard", "skip", "s1p0")]


# Twins of one step ---------------------------------------------------------------------------------------------------


async def test_s80_twins_one_runs_and_the_other_is_asked(journal, effects):
    result = await drive(journal, [charging(effects)], TWINS)
    (question,) = result.interrupts
    assert (question.question, effects.counts()) == ("r/s0p1/duplicate/0", {"charge r/s0p0": 1})
    assert question.prior["in_flight"] is True
    assert "which had not ended when this was asked" in question.reason
    await decide(journal, question.question, True)
    assert ((await drive(journal, [charging(effects)], TWINS)).text, effects.count()) == ("done", 2)


async def test_s80_twins_under_block_one_runs_and_is_recorded(journal, rows, effects):
    with pytest.raises(DuplicateSideEffectError):
        await drive(journal, [charging(effects)], TWINS, limits=limits("block"))
    assert effects.count() == 1
    assert (await rows.values())["run/r/~/tool/000000/000"][0]["status"] == "succeeded"


async def test_s80_twins_under_skip_one_runs(journal, effects):
    result = await drive(journal, [charging(effects)], TWINS, limits=limits("skip"))
    assert (statuses(result), effects.count()) == (["succeeded", "denied"], 1)


@pytest.mark.parametrize("action", ["off", "warn", "reflect", "block", "suspend", "skip"])
async def test_s80_keyed_twins_are_one_execution_and_both_ids_are_answered(journal, effects, action):
    result = await drive(journal, [charging(effects, idempotency="args")], TWINS, limits=limits(action))
    assert (effects.count(), [call.output for call in result.steps[0].calls]) == (1, ["receipt 1"] * 2)
    answered = [part.tool_call_id for message in result.messages if message.role == "tool" for part in message.parts]
    assert answered == ["s0p0", "s0p1"]
    assert await noted(journal) == [], "a keyed tool never reaches the ladder"


# What is no repeat ---------------------------------------------------------------------------------------------------


async def test_l41_a_retry_after_a_failure_is_no_repeat(journal, effects):
    turns = [CHARGE, CHARGE, "done"]
    result = await drive(journal, [charging(effects, fails=1)], turns, limits=limits("block"))
    assert (statuses(result), effects.count()) == (["failed", "succeeded"], 2)
    assert await noted(journal) == []


async def test_a_first_attempt_in_doubt_is_earlier_work(journal, effects):
    """A person forbids to run it again; whether it took effect is not known, so a repeat is asked about."""
    charge = charging(effects, fails=1)
    turns = [CHARGE, CHARGE, "done"]
    await drive(journal, [charge], turns, max_steps=1)
    await decide(journal, "r/s0p0/in_doubt/1", False)
    result = await drive(journal, [charge], turns)
    assert ([one.question for one in result.interrupts], effects.count()) == (["r/s1p0/duplicate/0"], 1)


async def test_l44_tools_that_only_read_are_never_asked_about(journal, effects):
    """S82: five equal reads."""
    charge = charging(effects, side_effect=False)
    result = await drive(journal, [charge], [CHARGE * 2, CHARGE, CHARGE, CHARGE, "done"], limits=limits("block"))
    assert (result.text, effects.count(), await noted(journal)) == ("done", 5, [])


async def test_other_arguments_and_other_tools_are_other_work(journal, effects):
    @tool
    def refund(amount: int) -> str:
        return "refunded"

    turns = [CHARGE, [("charge", {"amount": 2})], [("refund", {"amount": 1})], "done"]
    assert (await drive(journal, [charging(effects), refund], turns, limits=limits("block"))).text == "done"


async def test_equal_arguments_are_equal_however_they_are_written(journal):
    @tool
    def ship(to: str, boxes: float) -> str:
        return "shipped"

    turns = [[("ship", {"to": "Z\u00fcrich", "boxes": 1})], [("ship", {"boxes": 1.0, "to": "Zu\u0308rich"})], "done"]
    with pytest.raises(DuplicateSideEffectError):
        await drive(journal, [ship], turns, limits=limits("block"))


async def test_l45_another_request_is_not_asked(journal, effects):
    for run_id in ("a", "b"):
        assert (await drive(journal, [charging(effects)], [CHARGE, "done"], run_id=run_id)).interrupts == ()
    assert effects.count() == 2


async def test_a_resumed_call_is_no_repeat_of_itself(journal, effects):
    def guard(call):
        return RequireApproval("sure?")

    await drive(journal, [charging(effects)], [CHARGE, "done"], guard=guard, limits=limits("block"))
    await decide(journal, "r/s0p0/guard/0", True)
    assert (await drive(journal, [charging(effects)], [CHARGE, "done"], guard=guard)).text == "done"
    assert effects.count() == 1


# Sub-agents ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["parent", "child", "sibling"])
async def test_l45_the_whole_request_is_one_scope(journal, effects, first):
    charge = charging(effects)
    model = ScriptedModel([CHARGE, "paid"])
    helpers = [agent_tool(name=name, description="pays", model=model, tools=[charge]) for name in ("one", "two")]
    calls = {
        "parent": [CHARGE, [("one", {"task": "pay"})]],
        "child": [[("one", {"task": "pay"})], CHARGE],
        "sibling": [[("one", {"task": "pay"})], [("two", {"task": "pay"})]],
    }[first]
    turns = [*calls, "done"]
    (question,) = (await drive(journal, [charge, *helpers], turns)).interrupts
    parent, child = ("r", "s0p0"), (keys.child_id("r", keys.ROOT, "s0p0"), "s0p0")
    prior = (question.prior["run_id"], question.prior["tool_call_id"])
    assert (prior, effects.count()) == (parent if first == "parent" else child, 1)
    asked = {"parent": keys.child_id("r", keys.ROOT, "s1p0"), "child": "r", "sibling": keys.child_id("r", "~", "s1p0")}
    assert question.run_id == asked[first]
    await decide(journal, question.question, True)
    assert ((await drive(journal, [charge, *helpers], turns)).text, effects.count()) == ("done", 2)


async def test_parallel_sub_agents_meet(journal, effects):
    charge = charging(effects)
    helper = agent_tool(name="helper", description="pays", model=ScriptedModel([CHARGE, "paid"]), tools=[charge])
    turns = [[("helper", {"task": "pay"}), ("helper", {"task": "pay too"})], "done"]
    result = await drive(journal, [helper], turns)
    assert (len(result.interrupts), effects.count()) == (1, 1)


# The other gates -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stopped_by", ["guard", "limits", "taint"])
async def test_l43_a_call_that_another_gate_stopped_leaves_no_marker(journal, rows, effects, stopped_by):
    @tool(side_effect=False, untrusted=True)
    def fetch() -> str:
        return "from a stranger"

    rule = Duplicates(action="suspend", scope="thread")
    turns = [[("fetch", {})], CHARGE, "done"]
    tools = [fetch, charging(effects)]
    if stopped_by == "guard":
        deny = lambda call: Deny("no") if call.tool_name == "charge" else Allow()  # noqa: E731
        await drive(journal, tools, turns, thread_id="t", limits=limits(rule), guard=deny)
    elif stopped_by == "limits":
        with pytest.raises(RunLimitExceededError):
            await drive(journal, tools, turns, thread_id="t", limits=limits(rule, max_tool_calls=1))
    else:
        with pytest.raises(TaintedSideEffectError):
            await drive(journal, tools, turns, thread_id="t", limits=limits(rule, tainted_side_effects="block"))
    assert not [key for key in await rows.values() if key.startswith("xthr/")]
    result = await drive(journal, [charging(effects)], [CHARGE, "done"], run_id="q", thread_id="t", limits=limits(rule))
    assert (result.text, effects.count()) == ("done", 1)


async def test_l48_the_ladder_rules_before_taint(journal, effects):
    @tool(side_effect=False, untrusted=True)
    def fetch() -> str:
        return "from a stranger"

    tools, turns = [fetch, charging(effects)], [CHARGE, [("fetch", {})], CHARGE, "done"]
    await drive(journal, tools, turns, limits=limits("warn", tainted_side_effects="warn"))
    assert set(await noted(journal)) == {("duplicate-guard", "warn", "s2p0"), ("taint-guard", "warn", "s2p0")}
    with pytest.raises(DuplicateSideEffectError):
        await drive(journal, tools, turns, run_id="q", limits=limits("block", tainted_side_effects="block"))
    assert await noted(journal, "q") == [("duplicate-guard", "block", "s2p0")], "and no incident of the taint guard"


async def test_a_guards_denial_comes_first(journal, effects):
    guard = lambda call: Deny("enough") if call.tool_call_id == "s1p0" else Allow()  # noqa: E731
    result = await drive(journal, [charging(effects)], TWICE, guard=guard, limits=limits("block"))
    assert (statuses(result), await noted(journal)) == (["succeeded", "denied"], [])


async def test_a_guards_question_shows_the_earlier_work(journal, effects):
    """Its yes lets the call run, so whoever gives it must know that it repeats one."""

    def guard(call):
        return RequireApproval("sure?") if call.tool_call_id == "s1p0" else Allow()

    (question,) = (await drive(journal, [charging(effects)], TWICE, guard=guard)).interrupts
    assert (question.kind, question.prior["tool_call_id"]) == ("guard", "s0p0")
    assert question.reason.startswith("sure? \u26a0 Identical work was already completed")
    (incident,) = await read_incidents(journal, "r")
    assert (incident.source, incident.action, incident.detail["asked_by"]) == ("duplicate-guard", "suspend", "guard")
    await decide(journal, question.question, True)
    assert ((await drive(journal, [charging(effects)], TWICE, guard=guard)).text, effects.count()) == ("done", 2)


# Words ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("options", "named"), [({}, True), ({"side_effect": True}, False)])
async def test_the_question_names_the_way_out_for_a_tool_that_declares_nothing(journal, effects, options, named):
    (question,) = (await drive(journal, [charging(effects, **options)], TWICE)).interrupts
    assert ("side_effect=False" in question.reason) is named


# Answers ahead -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("approved", [True, False])
@pytest.mark.parametrize("name", ["s1p0", "r/s1p0/duplicate/0"])
async def test_an_answer_given_ahead_counts_and_is_recorded(journal, rows, effects, approved, name):
    ahead = {name: Approval(approved=approved, args_digest=args_hash({"amount": 1}), actor="ann")}
    result = await drive(journal, [charging(effects)], TWICE, approvals=ahead)
    assert (result.text, result.interrupts, effects.count()) == ("done", (), 2 if approved else 1)
    assert result.unused_approvals == ()
    answer = (await rows.values())[keys.encode(keys.answer("r", keys.ROOT, "s1p0", "duplicate", 0))][0]
    assert (answer["approved"], answer["actor"]) == (approved, "ann")
    assert await noted(journal) == [("duplicate-guard", "suspend", "s1p0")]


async def test_an_answer_given_ahead_for_other_arguments_is_none(journal, effects):
    ahead = {"s1p0": Approval(approved=True, args_digest=args_hash({"amount": 2}))}
    result = await drive(journal, [charging(effects)], TWICE, approvals=ahead)
    assert (len(result.interrupts), effects.count(), result.unused_approvals) == (1, 1, ("s1p0",))


# Forks and resumes ---------------------------------------------------------------------------------------------------


async def test_copies_of_a_fork_are_earlier_work(journal, effects):
    await drive(journal, [charging(effects)], [CHARGE, "done"])
    await fork_run(journal=journal, run_id="r", step=1, new_run_id="f")
    result = await drive(journal, [charging(effects)], [CHARGE, CHARGE, "done"], run_id="f", prompt=None)
    (question,) = result.interrupts
    assert (question.question, question.prior["tool_call_id"], effects.count()) == ("f/s1p0/duplicate/0", "s0p0", 1)


async def test_a_fork_asks_what_its_source_had_been_answered(journal, effects):
    await drive(journal, [charging(effects)], TWICE)
    await fork_run(journal=journal, run_id="r", step=2, new_run_id="f")
    await decide(journal, "r/s1p0/duplicate/0", True)
    result = await drive(journal, [charging(effects)], TWICE, run_id="f", prompt=None)
    assert [one.question for one in result.interrupts] == ["f/s1p0/duplicate/0"]
    assert effects.count() == 1


@pytest.mark.parametrize(
    "rule",
    [
        "block",
        Duplicates(action="block", scope="thread", ttl_ms=60_000),
        DuplicatesByClass(by_class={"transactional": "block"}, default="off"),
    ],
    ids=["word", "object", "by_class"],
)
async def test_a_resume_goes_by_the_frozen_rule(journal, effects, rule):
    charge = charging(effects, effect_class="transactional" if isinstance(rule, DuplicatesByClass) else None)
    await drive(journal, [charge], TWICE, limits=limits(rule), thread_id="t", max_steps=1)
    with pytest.raises(DuplicateSideEffectError):
        await resume_run(run_id="r", journal=journal, model=ScriptedModel(TWICE), tools=[charge])
    assert effects.count() == 1


async def test_an_answer_to_no_question_is_refused(journal, effects):
    await drive(journal, [charging(effects)], TWICE, limits=limits("warn"))
    with pytest.raises(UnknownQuestionError):
        await decide(journal, "r/s1p0/duplicate/0", True)
