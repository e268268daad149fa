"""A side effect with the arguments of an earlier one of its request: the rungs of the ladder, and whom it concerns."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnl_core import (
    Allow,
    Context,
    Deny,
    Duplicates,
    DuplicateSideEffectError,
    InMemoryStorage,
    RequireApproval,
    RunLimits,
    agent_tool,
    args_hash,
    decide,
    keys,
    read_incidents,
    run_durable,
    stream_durable,
    tool,
)
from gnl_core.errors import (
    RunLimitExceededError,
    TaintedSideEffectError,
)
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


# Whatever a model asks for --------------------------------------------------------------------------------------------

STEPS = st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=4), min_size=1, max_size=4)


@given(steps=STEPS, action=st.sampled_from(["reflect", "block", "skip", "suspend"]), drives=st.integers(1, 2))
async def test_no_plan_of_calls_gets_one_effect_twice_unless_somebody_lets_it(steps, action, drives):
    done = []

    @tool
    def charge(amount: int) -> str:
        done.append(amount)
        return "receipt"

    turns = [*([("charge", {"amount": amount}) for amount in step] for step in steps), "done"]
    async with InMemoryStorage() as storage:
        for _ in range(drives):
            with contextlib.suppress(DuplicateSideEffectError):
                result = await drive(storage.runs, [charge], turns, limits=limits(action))
                assert (result.text == "done") is (not result.interrupts)
        assert len(done) == len(set(done))
        assert set(steps[0]) <= set(done), "the first of each runs"
