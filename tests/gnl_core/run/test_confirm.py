"""Tools that ask before every fresh call."""

import datetime as dt

import pytest

from gnl_core import (
    Allow,
    Context,
    SideEffectRetryBlockedError,
    decide,
    list_interrupts,
    run_durable,
    tool,
)
from gnl_core.testing.scripted import ScriptedModel


def charging(effects, *, fails=0, **options):
    @tool(**options)
    def charge(amount: int, ctx: Context) -> str:
        effects.fire("charge", ctx)
        if effects.fired <= fails:
            raise RuntimeError("the line went dead")
        return f"receipt {amount}"

    return charge


async def drive(journal, charge, turns=None, **options):
    model = ScriptedModel(turns or [[("charge", {"amount": 1})], "done"])
    return await run_durable(run_id="r", journal=journal, model=model, tools=[charge], prompt="pay", **options)


async def test_line_57_every_fresh_call_is_asked_about(journal, effects):
    charge = charging(effects, confirm=True)
    turns = [[("charge", {"amount": 1})], [("charge", {"amount": 1})], "done"]
    for step in range(2):
        (question,) = (await drive(journal, charge, turns)).interrupts
        assert question.question == f"r/s{step}p0/confirm/0", "a yes to one call is none to the next"
        assert effects.count() == step
        await decide(journal, question.question, True)
    assert (await drive(journal, charge, turns)).text == "done"
    assert effects.count() == 2


async def test_the_plain_question_shows_the_call(journal, effects):
    (question,) = (await drive(journal, charging(effects, confirm=True))).interrupts
    assert question.reason == 'Run charge({"amount": 1})?'
    assert question.kind == "confirm"


async def test_the_reason_is_made_of_typed_arguments(journal):
    seen = []

    def reason(args):
        seen.append(args)
        return f"Pay {args['amount']} on {args['day']:%d.%m.%Y} ({args['note']})?"

    @tool(confirm=reason)
    def charge(amount: int, day: dt.date, note: str = "none") -> str:
        return "ok"

    model = ScriptedModel([[("charge", {"amount": 5.0, "day": "2026-01-31"})], "done"])
    result = await run_durable(run_id="r", journal=journal, model=model, tools=[charge], prompt="pay")
    assert result.interrupts[0].reason == "Pay 5 on 31.01.2026 (none)?"
    assert seen == [{"amount": 5, "day": dt.date(2026, 1, 31), "note": "none"}]
    assert result.interrupts[0].args == {"amount": 5.0, "day": "2026-01-31"}, "the bytes are the model's"


async def test_wording_the_reason_changes_nothing(journal, rows):
    paid = []

    def reason(args):
        args["to"]["iban"] = "evil"
        return f"Pay {args.pop('to')}?"

    @tool(confirm=reason)
    def charge(to: dict[str, str]) -> str:
        paid.append(to)
        return "ok"

    turns = [[("charge", {"to": {"iban": "good"}})], "done"]
    result = await drive(journal, charge, turns, approvals={})
    assert result.interrupts[0].args == {"to": {"iban": "good"}}
    await decide(journal, "r/s0p0/confirm/0", True)
    await drive(journal, charge, turns)
    assert paid == [{"iban": "good"}]
    assert (await rows.values())["run/r/~/tool/000000/000"][0]["args"] == {"to": {"iban": "good"}}


@pytest.mark.parametrize("answer", [KeyError("x"), "", None, 7])
async def test_a_reason_that_cannot_be_worded_does_not_let_the_call_pass(journal, effects, answer):
    def reason(args):
        if isinstance(answer, Exception):
            raise answer
        return answer

    charge = charging(effects, confirm=reason)
    (question,) = (await drive(journal, charge)).interrupts
    assert question.reason
    assert question.reason != "None"
    assert effects.count() == 0
    await decide(journal, question.question, True)
    assert (await drive(journal, charge)).text == "done"


async def test_the_question_stands_as_it_was_asked(journal, effects):
    first = charging(effects, confirm=lambda args: "asked first")
    second = charging(effects, confirm=lambda args: "asked later")
    (question,) = (await drive(journal, first)).interrupts
    (again,) = (await drive(journal, second)).interrupts
    assert again == question
    assert await list_interrupts(journal) == [question]
    await decide(journal, question.question, False)
    result = await drive(journal, second)
    assert "The question was: asked first" in result.messages[-2].parts[0].text


async def test_line_57_a_failed_call_is_never_asked_to_be_confirmed(journal, effects):
    await drive(journal, charging(effects, fails=1))
    with pytest.raises(SideEffectRetryBlockedError) as blocked:
        await drive(journal, charging(effects, confirm=True))
    assert [one.kind for one in blocked.value.interrupts] == ["in_doubt"]
    assert effects.count() == 1


async def test_a_read_only_tool_may_ask_too(journal, effects):
    charge = charging(effects, confirm=True, side_effect=False)
    (question,) = (await drive(journal, charge)).interrupts
    assert effects.count() == 0
    await decide(journal, question.question, True)
    assert (await drive(journal, charge)).text == "done"
    assert effects.count() == 1


async def test_confirm_asks_before_the_guard_is_asked(journal, effects):
    seen = []

    def guard(call):
        seen.append(call.tool_call_id)
        return Allow()

    charge = charging(effects, confirm=True)
    await drive(journal, charge, guard=guard)
    assert seen == []
    await decide(journal, "r/s0p0/confirm/0", True)
    await drive(journal, charge, guard=guard)
    assert (seen, effects.count()) == (["s0p0"], 1)


# Work that is named by its arguments ---------------------------------------------------------------------------------


@pytest.mark.parametrize("window", ["run", "thread", "cross-run"])
@pytest.mark.parametrize("approved", [True, False])
async def test_keyed_work_can_be_asked_about_and_answered(journal, effects, window, approved):
    charge = charging(effects, confirm=True, idempotency="args", window=window)
    (question,) = (await drive(journal, charge, thread_id="t")).interrupts
    assert await list_interrupts(journal) == [question]
    assert await list_interrupts(journal, "r") == [question]
    await decide(journal, question.question, approved)
    result = await drive(journal, charge)
    assert (result.text, result.interrupts) == ("done", ())
    assert effects.count() == (1 if approved else 0)
    assert await list_interrupts(journal) == []


@pytest.mark.parametrize("window", ["run", "cross-run"])
async def test_two_calls_of_one_step_for_the_same_work_are_one_question(journal, effects, window):
    charge = charging(effects, confirm=True, idempotency="args", window=window)
    turns = [[("charge", {"amount": 1}), ("charge", {"amount": 1})], "done"]
    (question,) = (await drive(journal, charge, turns)).interrupts
    await decide(journal, question.question, True)
    result = await drive(journal, charge, turns)
    assert [call.output for call in result.steps[0].calls] == ["receipt 1", "receipt 1"]
    assert effects.count() == 1
    assert (await drive(journal, charge, turns)).text == "done"
    assert await list_interrupts(journal) == []


async def test_two_calls_of_one_step_for_the_same_work_are_refused_together(journal, effects):
    charge = charging(effects, confirm=True, idempotency="args")
    turns = [[("charge", {"amount": 1}), ("charge", {"amount": 1})], "done"]
    (question,) = (await drive(journal, charge, turns)).interrupts
    await decide(journal, question.question, False)
    for _ in range(2):
        result = await drive(journal, charge, turns)
        assert [call.status for call in result.steps[0].calls] == ["denied", "denied"]
    assert effects.count() == 0


async def test_one_key_with_other_arguments_is_a_question_of_its_own(journal, effects):
    @tool(confirm=True, idempotency_key=lambda args: args["order"])
    def charge(order: str, amount: int, ctx: Context) -> str:
        effects.fire("charge", ctx)
        return f"receipt {amount}"

    turns = [[("charge", {"order": "o", "amount": 1}), ("charge", {"order": "o", "amount": 1000})], "done"]
    first = await drive(journal, charge, turns)
    assert [one.args["amount"] for one in first.interrupts] == [1, 1000]
    # A yes to the one lets only that one run; the other one is the same work by its key, and is answered by it.
    await decide(journal, "r/s0p0/confirm/0", True)
    result = await drive(journal, charge, turns)
    assert [call.output for call in result.steps[0].calls] == ["receipt 1", "receipt 1"]
    assert effects.counts() == {"charge r/s0p0": 1}
    assert await list_interrupts(journal) == []


async def test_a_refusal_in_one_run_binds_no_other_run(journal, effects):
    charge = charging(effects, confirm=True, idempotency="args", window="cross-run")

    async def go(run_id):
        model = ScriptedModel([[("charge", {"amount": 1})], "done"])
        return await run_durable(run_id=run_id, journal=journal, model=model, tools=[charge], prompt="pay")

    await go("a")
    await decide(journal, "a/s0p0/confirm/0", False)
    await go("a")
    (question,) = (await go("b")).interrupts
    assert question.question == "b/s0p0/confirm/0", "a new request asks again"
    await decide(journal, question.question, True)
    assert (await go("b")).text == "done"
    assert effects.counts() == {"charge b/s0p0": 1}
    # What the first run was told stays told.
    assert (await go("a")).steps[0].calls[0].status == "denied"


async def test_a_question_whose_work_was_done_meanwhile_by_another_run_is_over(journal, effects):
    charge = charging(effects, confirm=True, idempotency="args", window="cross-run")

    async def go(run_id):
        model = ScriptedModel([[("charge", {"amount": 1})], "done"])
        return await run_durable(run_id=run_id, journal=journal, model=model, tools=[charge], prompt="pay")

    await go("a")
    await go("b")
    await decide(journal, "b/s0p0/confirm/0", True)
    await go("b")
    result = await go("a")
    assert (result.text, result.replayed_tool_calls[0].origin, effects.count()) == ("done", "window", 1)
    assert await list_interrupts(journal) == []
