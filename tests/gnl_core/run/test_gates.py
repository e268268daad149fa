"""The walk through the gates: calls that cannot be used, which reason comes first, and what is written of it."""

import inspect

import pytest

from gnl_core import (
    Allow,
    Context,
    Deny,
    LoopDetection,
    RequireApproval,
    RunLimits,
    agent_tool,
    cancel_run,
    decide,
    list_interrupts,
    read_incidents,
    run_durable,
    tool,
)
from gnl_core.errors import (
    DoubtError,
    IdempotencyOwnerMismatchError,
    JournalGapError,
    RefusedError,
    RunLimitExceededError,
)
from gnl_core.gates import GATES
from gnl_core.model.messages import ModelResponse, ToolCallPart
from gnl_core.testing.faulty import FaultyJournal
from gnl_core.testing.scripted import Call, ScriptedModel
from gnl_core.verdicts import State


def charging(effects, *, fails=0, **options):
    @tool(**options)
    def charge(amount: int, ctx: Context) -> str:
        effects.fire("charge", ctx)
        if effects.fired <= fails:
            raise RuntimeError("the line went dead")
        return f"receipt {amount}"

    return charge


async def drive(journal, tools, *turns, run_id="r", **options):
    model = ScriptedModel([*turns, "done"])
    return await run_durable(run_id=run_id, journal=journal, model=model, tools=tools, prompt="go", **options)


CHARGE = [("charge", {"amount": 1})]


def results(result):
    return [part for message in result.messages if message.role == "tool" for part in message.parts]


# Calls that cannot be used -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (Call("transfer", {"amount": 1}), ["transfer", "charge"]),
        (Call("charge", {"amount": "much"}), ["amount"]),
        (Call("charge", {}), ["amount"]),
        (Call("charge", {"amount": 1, "currency": "EUR"}), ["currency"]),
        (Call("charge", "[1]"), ["no JSON object", "[1]"]),
        (Call("charge", "{amount: 1}"), ["no JSON object"]),
        (Call("charge", ""), ["amount"]),
        (Call("charge", '{"amount": NaN}'), []),
        (Call("charge", '{"amount": 1e999}'), []),
    ],
)
async def test_an_unusable_call_is_told_to_the_model_recorded_and_never_run(journal, rows, effects, call, words):
    tools = [charging(effects)]
    first = await drive(journal, tools, [call, *CHARGE])
    told = results(first)
    assert told[0].is_error
    assert all(word in told[0].text for word in words), told[0].text
    assert [one.status for one in first.steps[0].calls] == ["failed", "succeeded"]
    assert effects.counts() == {"charge r/s0p1": 1}, "a sibling is not stopped by it"
    record = (await rows.values())["run/r/~/tool/000000/000"][0]
    assert (record["status"], record["certain"], record["side_effect"]) == ("failed", True, False)
    again = await drive(journal, tools, [call, *CHARGE])
    assert again.messages == first.messages
    assert await list_interrupts(journal, "r") == [], "it is in no doubt"


@pytest.mark.parametrize("amount", [float("nan"), float("inf"), float("-inf")])
async def test_s19_numbers_that_are_none_reach_no_tool(journal, effects, amount):
    @tool
    def charge(amount: float, ctx: Context) -> str:
        effects.fire("charge", ctx)
        return "ok"

    part = ToolCallPart("", "charge", {"amount": amount}, "", "call_1")
    result = await drive(journal, [charge], ModelResponse((part,), stop_reason="tool_calls"))
    assert (result.text, effects.count()) == ("done", 0)
    assert results(result)[0].is_error
    assert (await drive(journal, [charge], ModelResponse((part,), stop_reason="tool_calls"))).text == "done"


async def test_a_tool_that_is_gone_does_not_change_what_was_recorded(journal, effects):
    await drive(journal, [charging(effects)], CHARGE)
    result = await drive(journal, [], CHARGE)
    assert (results(result)[0].text, effects.count()) == ("receipt 1", 1)


async def test_a_tool_that_takes_other_arguments_now_replays_what_was_recorded(journal, effects):
    await drive(journal, [charging(effects)], CHARGE)

    @tool
    def charge(cents: int) -> str:
        raise AssertionError("not called")

    assert results(await drive(journal, [charge], CHARGE))[0].text == "receipt 1"


async def test_a_call_in_doubt_whose_arguments_fit_no_more_is_neither_run_nor_dropped(journal, effects):
    await drive(journal, [charging(effects, fails=1)], CHARGE)
    await decide(journal, "r/s0p0/in_doubt/1", True)

    @tool
    def charge(cents: int) -> str:
        raise AssertionError("not called")

    with pytest.raises(DoubtError, match="fit charge no more"):
        await drive(journal, [charge], CHARGE)
    assert (await drive(journal, [charging(effects)], CHARGE)).text == "done"
    assert effects.count() == 2


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("gone", [True, False])
async def test_a_call_that_waits_is_not_passed_over_where_its_tool_is_gone_or_another(journal, effects, keyed, gone):
    declared = {"confirm": True, "idempotency": "args" if keyed else "call"}
    await drive(journal, [charging(effects, **declared)], CHARGE)

    @tool(**declared)
    def charge(cents: int) -> str:
        raise AssertionError("not called")

    if gone or keyed:
        with pytest.raises(RefusedError, match="Give the run the tool") as stopped:
            await drive(journal, [] if gone else [charge], CHARGE)
        assert [one.question for one in stopped.value.interrupts] == ["r/s0p0/confirm/0"]
    else:
        result = await drive(journal, [charge], CHARGE)
        assert [one.question for one in result.interrupts] == ["r/s0p0/confirm/0"]
    await decide(journal, "r/s0p0/confirm/0", True)
    result = await drive(journal, [charging(effects, **declared)], CHARGE)
    assert (result.text, effects.count()) == ("done", 1)


async def test_a_call_in_doubt_is_not_passed_over_where_its_tool_is_gone(journal, effects):
    await drive(journal, [charging(effects, fails=1)], CHARGE)
    for _ in range(2):
        with pytest.raises(DoubtError, match="no tool named 'charge'") as stopped:
            await drive(journal, [], CHARGE)
        assert [one.question for one in stopped.value.interrupts] == ["r/s0p0/in_doubt/1"]
    assert effects.count() == 1


async def test_a_sub_agent_that_waits_is_not_passed_over_where_it_is_gone(journal, effects):
    inner = ScriptedModel([CHARGE, "paid"])
    helper = agent_tool(name="helper", description="x", model=inner, tools=[charging(effects, confirm=True)])
    turn = [("helper", {"task": "pay"})]
    (question,) = (await drive(journal, [helper], turn)).interrupts
    with pytest.raises(RefusedError, match="no tool named 'helper'"):
        await drive(journal, [], turn)
    await decide(journal, question.question, True)
    assert (await drive(journal, [helper], turn)).text == "done"
    assert effects.count() == 1


async def test_a_harmless_failure_that_the_model_was_told_of_is_not_tried_again(journal, effects):
    charge = charging(effects, fails=1, side_effect=False)
    first = await drive(journal, [charge], CHARGE)
    assert results(first)[0].text == "RuntimeError: the line went dead"
    assert (await drive(journal, [charge], CHARGE)).messages == first.messages
    assert effects.count() == 1


async def test_a_missing_record_before_a_later_step_is_a_gap_and_runs_nothing(journal, rows, effects):
    await drive(journal, [charging(effects)], CHARGE)
    await rows.delete("run/r/~/tool/000000/000")
    with pytest.raises(JournalGapError):
        await drive(journal, [charging(effects)], CHARGE)
    assert effects.count() == 1


# Order ---------------------------------------------------------------------------------------------------------------


def test_the_gates_stand_in_the_order_that_the_walk_relies_on():
    assert [gate.name for gate in GATES] == [
        "owner",
        "recorded",
        "taint_source",
        "answered",
        "confirm",
        "policy",
        "duplicate",
        "halted",
        "semantic",
        "taint",
        "limits",
        "remember",
        "crash",
    ]
    for gate in GATES:
        assert inspect.iscoroutinefunction(gate.rule)
        assert gate.states <= frozenset(State)
    # Every state is somebody's, and none of those that may yet begin passes the halt flag by.
    assert frozenset().union(*(gate.states for gate in GATES)) == frozenset(State)
    halted = next(gate for gate in GATES if gate.name == "halted")
    assert halted.states == frozenset(State) - {State.DONE, State.WAITING}


async def test_a_denied_call_is_not_also_a_loop_or_one_too_many(journal, effects):
    limits = RunLimits(max_tool_calls=2, loop_detection=LoopDetection(max_repeats=2), side_effect_duplicates="off")

    def guard(call):
        return Deny("enough") if call.tool_call_id == "s2p0" else Allow()

    result = await drive(journal, [charging(effects)], CHARGE, CHARGE, CHARGE, limits=limits, guard=guard)
    assert result.text == "done"
    assert await read_incidents(journal, "r") == []
    assert effects.count() == 2


async def test_a_canceled_run_begins_nothing_and_replays_what_is_there(journal, effects):
    charge = charging(effects, confirm=True)
    await drive(journal, [charge], [*CHARGE, *CHARGE])
    for position in range(2):
        await decide(journal, f"r/s0p{position}/confirm/0", True)
    await cancel_run(journal, "r")
    with pytest.raises(Exception, match="canceled") as stopped:
        await drive(journal, [charge], [*CHARGE, *CHARGE])
    assert (stopped.value.code, effects.count()) == ("run_canceled", 0)


async def test_a_canceled_run_begins_no_harmless_call_either(journal, effects):
    charge = charging(effects, side_effect=False)
    with pytest.raises(RunLimitExceededError):
        await drive(journal, [charge], CHARGE, limits=RunLimits(max_tool_calls=0))
    await cancel_run(journal, "r")
    with pytest.raises(Exception, match="canceled") as stopped:
        await drive(journal, [charge], CHARGE, limits=RunLimits())
    assert (stopped.value.code, effects.count()) == ("run_canceled", 0)


async def test_a_person_cannot_be_answered_with_anothers_work(journal, effects):
    charge = charging(effects, idempotency="args", window="cross-run")
    await drive(journal, [charge], CHARGE, resource_id="ana")
    with pytest.raises(IdempotencyOwnerMismatchError) as refused:
        await drive(journal, [charge], CHARGE, run_id="q", resource_id="bob")
    assert "ana" not in str(refused.value), "a refusal names nobody"
    assert effects.count() == 1


# What is written -----------------------------------------------------------------------------------------------------


async def test_line_43_a_gated_call_leaves_no_trace_that_bars_a_later_one(journal, rows, effects):
    charge = charging(effects, idempotency="args", window="cross-run")
    denied = await drive(journal, [charge], CHARGE, guard=lambda call: Deny("not here"))
    assert denied.steps[0].calls[0].status == "denied"
    with pytest.raises(RunLimitExceededError):
        await drive(journal, [charge], CHARGE, run_id="q", limits=RunLimits(max_tool_calls=0))
    assert not [key for key in await rows.values() if key.startswith("xrun/")]
    assert (await drive(journal, [charge], CHARGE, run_id="p")).steps[0].calls[0].output == "receipt 1"
    # What each run was told stays told.
    again = await drive(journal, [charge], CHARGE)
    assert (again.steps[0].calls[0].status, effects.count()) == ("denied", 1)


async def test_a_block_keeps_its_incident_to_one_over_many_drives(journal, effects):
    for _ in range(3):
        with pytest.raises(RunLimitExceededError):
            await drive(journal, [charging(effects)], CHARGE, limits=RunLimits(max_tool_calls=0))
    (incident,) = await read_incidents(journal, "r")
    assert (incident.source, incident.action, incident.tool_call_id) == ("limit-guard", "max_tool_calls", "s0p0")


async def test_a_drive_that_only_waits_writes_no_rows_but_its_lock(journal, rows, effects):
    def guard(call):
        return RequireApproval("?")

    await drive(journal, [charging(effects)], CHARGE, guard=guard)
    before = await rows.values()
    await drive(journal, [charging(effects)], CHARGE, guard=guard)
    after = await rows.values()
    changed = {key for key in {*before, *after} if before.get(key) != after.get(key)}
    changed = {key for key in changed if not key.startswith("ix/status/")}
    assert changed <= {"run/r/req/lock", "run/r/req/beat", "run/r/~/head"}


@pytest.mark.parametrize("side_effect", [True, False])
async def test_an_open_question_stands_in_the_list_until_it_is_carried_out(journal, rows, effects, side_effect):
    async def listed():
        return [key.split("/", 3)[3] for key in await rows.values() if key.startswith("ix/ask/")]

    charge = charging(effects, confirm=True, side_effect=side_effect)
    await drive(journal, [charge], [*CHARGE, *CHARGE])
    assert await listed() == ["r/~/s0p0", "r/~/s0p1"]
    await decide(journal, "r/s0p0/confirm/0", True)
    await decide(journal, "r/s0p1/confirm/0", False)
    assert await list_interrupts(journal) == []
    await drive(journal, [charge], [*CHARGE, *CHARGE])
    assert await listed() == []


async def test_a_claim_is_written_before_its_body_begins_and_once(journal, effects):
    seen = []
    watched = FaultyJournal(journal, on_write=lambda number, ops: seen.append((effects.count(), statuses(ops))))
    await drive(watched, [charging(effects)], [*CHARGE, ("charge", {"amount": 2})])
    claims = [(count, status) for count, status in seen if "running" in status]
    assert len(claims) == 2
    assert all(count == 0 for count, _ in claims), "both were claimed before a body began"
    assert sum(status.count("succeeded") for _, status in seen) == 2


def statuses(ops):
    values = [getattr(op, "value", None) for op in ops if "tool" in op.key]
    return [value["status"] for value in values if isinstance(value, dict) and "status" in value]
