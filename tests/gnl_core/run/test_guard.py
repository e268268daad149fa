"""The caller's guard: what it may answer, when it is asked, and that it has the last word before a body begins."""

import pytest

from gnl_core import (
    Allow,
    Context,
    Deny,
    RequireApproval,
    SideEffectRetryBlockedError,
    decide,
    keys,
    run_durable,
    tool,
)
from gnl_core.errors import GuardFailedError
from gnl_core.journal import Put
from gnl_core.policy import GuardCall
from gnl_core.testing.faulty import FaultyJournal
from gnl_core.testing.scripted import ScriptedModel

ASKED = "r/s0p0/guard/0"


def charging(effects, *, fails=0, **options):
    @tool(**options)
    def charge(amount: int, ctx: Context) -> str:
        effects.fire("charge", ctx)
        if effects.fired <= fails:
            raise RuntimeError("the line went dead")
        return f"receipt {amount}"

    return charge


async def drive(journal, charge, *amounts, **options):
    model = ScriptedModel([[("charge", {"amount": amount}) for amount in amounts or (1,)], "done"])
    return await run_durable(run_id="r", journal=journal, model=model, tools=[charge], prompt="pay", **options)


def told(result, call="s0p0"):
    return next(
        part.text
        for message in result.messages
        if message.role == "tool"
        for part in message.parts
        if part.tool_call_id == call
    )


class Watch:
    """A guard that lists what it was asked and says what it is told to."""

    def __init__(self, answer):
        self.answer = answer
        self.seen = []

    def __call__(self, call):
        self.seen.append(call)
        return self.answer


class AsyncWatch(Watch):
    async def __call__(self, call):
        return super().__call__(call)


@pytest.mark.parametrize("kind", [Watch, AsyncWatch])
@pytest.mark.parametrize("answer", [Allow(), {"action": "allow"}, {"action": "allow", "reason": None}])
async def test_allow_lets_it_run(journal, effects, kind, answer):
    guard = kind(answer)
    assert (await drive(journal, charging(effects), guard=guard)).text == "done"
    assert effects.count() == 1
    assert guard.seen == [GuardCall("charge", {"amount": 1}, "s0p0", "r", False)]


@pytest.mark.parametrize("kind", [Watch, AsyncWatch])
@pytest.mark.parametrize("answer", [Deny("over the limit"), {"action": "deny", "reason": "over the limit"}])
async def test_deny_ends_the_call_and_the_model_reads_why(journal, rows, effects, kind, answer):
    guard = kind(answer)
    result = await drive(journal, charging(effects), guard=guard)
    assert (result.text, result.interrupts, effects.count()) == ("done", (), 0)
    assert "not permitted" in told(result)
    assert "did not run" in told(result)
    assert "over the limit" in told(result)
    record = (await rows.values())["run/r/~/tool/000000/000"][0]
    assert record["status"] == "denied"
    assert "settled_by" not in record, "no person decided it"
    # It is terminal: a guard that has changed its mind is not asked about it.
    again = Watch(Allow())
    assert told(await drive(journal, charging(effects), guard=again)) == told(result)
    assert (again.seen, effects.count()) == ([], 0)


async def test_a_denied_call_stops_no_sibling(journal, effects):
    def guard(call):
        return Deny("no") if call.args["amount"] == 2 else Allow()

    result = await drive(journal, charging(effects), 1, 2, 3, guard=guard)
    assert [call.status for call in result.steps[0].calls] == ["succeeded", "denied", "succeeded"]
    assert effects.counts() == {"charge r/s0p0": 1, "charge r/s0p2": 1}


@pytest.mark.parametrize("kind", [Watch, AsyncWatch])
@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (RequireApproval("a large sum"), "a large sum"),
        ({"action": "require-approval", "reason": "a large sum"}, "a large sum"),
        (RequireApproval(), "Policy asks for an approval of charge."),
    ],
)
async def test_line_52_require_approval_asks_and_a_yes_runs_it_once(journal, effects, kind, answer, reason):
    guard, charge = kind(answer), charging(effects)
    first = await drive(journal, charge, guard=guard)
    (question,) = first.interrupts
    assert (question.question, question.reason, question.args) == (ASKED, reason, {"amount": 1})
    assert effects.count() == 0
    await decide(journal, ASKED, True)
    assert (await drive(journal, charge, guard=guard)).text == "done"
    assert (await drive(journal, charge, guard=guard)).text == "done"
    assert effects.count() == 1


async def test_line_53_a_no_is_told_in_the_past_tense_with_the_question(journal, rows, effects):
    guard, charge = Watch(RequireApproval("Pay 1 to a new account?")), charging(effects)
    await drive(journal, charge, guard=guard)
    await decide(journal, ASKED, False, actor="ana", reason="unknown payee")
    result = await drive(journal, charge, guard=guard)
    assert (result.interrupts, effects.count()) == ((), 0)
    assert told(result) == (
        "A person refused this call and it did not run. Reason: unknown payee. "
        "The question was: Pay 1 to a new account?"
    )
    record = (await rows.values())["run/r/~/tool/000000/000"][0]
    assert (record["status"], record["settled_by"]) == ("denied", "person")
    assert told(await drive(journal, charge)) == told(result)


# Fail closed ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [None, True, "allow", {}, {"action": "Allow"}, {"action": None}, {"action": ["allow"]}, Allow, object()],
)
async def test_an_answer_that_is_none_lets_nothing_run(journal, rows, effects, answer):
    for _ in range(2):
        with pytest.raises(GuardFailedError, match="Allow") as failed:
            await drive(journal, charging(effects), guard=Watch(answer))
    assert (failed.value.detail["tool_call_id"], effects.count()) == ("s0p0", 0)
    assert "run/r/~/tool/000000/000" not in await rows.values(), "the call is as fresh as before"
    assert (await drive(journal, charging(effects), guard=Watch(Allow()))).text == "done"


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_guard_that_raises_lets_nothing_run_and_siblings_stand(journal, effects, is_async):
    def broken(call):
        if call.args["amount"] == 1:
            raise OSError("the policy server is away")
        return RequireApproval("?") if call.args["amount"] == 3 else Allow()

    async def broken_later(call):
        return broken(call)

    guard = broken_later if is_async else broken
    with pytest.raises(GuardFailedError, match="the policy server is away") as failed:
        await drive(journal, charging(effects), 1, 2, 3, guard=guard)
    assert effects.counts() == {"charge r/s0p1": 1}
    assert [one.question for one in failed.value.interrupts] == ["r/s0p2/guard/0"]


async def test_a_guard_cannot_change_the_arguments(journal, rows):
    paid = []

    @tool
    def charge(amount: int, to: dict[str, str]) -> str:
        paid.append((amount, to))
        return "ok"

    def guard(call):
        call.args["amount"] = 1_000
        call.args["to"]["iban"] = "evil"
        return Allow()

    model = ScriptedModel([[("charge", {"amount": 1, "to": {"iban": "good"}})], "done"])
    await run_durable(run_id="r", journal=journal, model=model, tools=[charge], prompt="pay", guard=guard)
    assert paid == [(1, {"iban": "good"})]
    record = (await rows.values())["run/r/~/tool/000000/000"][0]
    assert record["args"] == {"amount": 1, "to": {"iban": "good"}}


# When it is asked ----------------------------------------------------------------------------------------------------


async def test_s33_the_guard_is_asked_again_when_an_approved_call_is_dispatched_and_wins(journal, rows, effects):
    charge = charging(effects)
    await drive(journal, charge, guard=Watch(RequireApproval("?")))
    await decide(journal, ASKED, True, actor="ana")
    guard = Watch(Deny("the policy changed"))
    result = await drive(journal, charge, guard=guard)
    assert (len(guard.seen), effects.count()) == (1, 0)
    assert "the policy changed" in told(result)
    kept = await rows.values()
    assert kept["run/r/~/answer/s0p0/guard/000"][0]["actor"] == "ana", "the answer is evidence still"
    assert kept["run/r/~/tool/000000/000"][0].get("settled_by") != "person", "it was not a person who refused it"


async def test_s33_a_confirmed_call_meets_the_guard(journal, effects):
    charge = charging(effects, confirm=True)
    await drive(journal, charge, guard=Watch(Allow()))
    await decide(journal, "r/s0p0/confirm/0", True)
    result = await drive(journal, charge, guard=Watch(Deny("no")))
    assert ("not permitted" in told(result), effects.count()) == (True, 0)


async def test_a_call_that_waits_or_was_refused_is_not_shown_to_the_guard(journal, effects):
    charge = charging(effects, confirm=True)
    guard = Watch(Allow())
    await drive(journal, charge, guard=guard)
    await drive(journal, charge, guard=guard)
    await decide(journal, "r/s0p0/confirm/0", False)
    await drive(journal, charge, guard=guard)
    assert (guard.seen, effects.count()) == ([], 0)


async def test_each_call_is_shown_once_a_drive_also_where_it_walks_again(journal, effects):
    guard, charge = Watch(RequireApproval("?")), charging(effects)
    await drive(journal, charge, 1, 2, guard=guard)
    assert [call.tool_call_id for call in guard.seen] == ["s0p0", "s0p1"]
    await drive(journal, charge, 1, 2, guard=guard)
    assert len(guard.seen) == 2, "calls that wait have been ruled on"


class Restless(FaultyJournal):
    """Writes the answer's row anew right before the first claim: the call must walk again."""

    restless = True

    async def apply(self, ops, *, batch):
        claims = [op for op in ops if "tool" in op.key and getattr(op, "value", {}).get("status") == "running"]
        if self.restless and claims:
            self.restless = False
            entry = (await self.get_many([keys.answer("r", "~", "s0p0", "guard", 0)])).entries[0]
            await super().apply((Put(entry.key, entry.value),), batch=batch + 1)
        return await super().apply(ops, batch=batch)


async def test_a_call_that_walks_again_is_shown_once(journal, effects):
    guard, charge = Watch(RequireApproval("?")), charging(effects)
    await drive(journal, charge, guard=guard)
    await decide(journal, ASKED, True)
    guard.seen.clear()
    restless = Restless(journal)
    assert (await drive(restless, charge, guard=guard)).text == "done"
    assert not restless.restless
    assert (len(guard.seen), effects.count()) == (1, 1)


async def test_an_unusable_call_is_not_shown_to_the_guard(journal, effects):
    guard = Watch(Allow())
    model = ScriptedModel([[("charge", {"amount": "much"}), ("nothing", {})], "done"])
    await run_durable(run_id="r", journal=journal, model=model, tools=[charging(effects)], prompt="pay", guard=guard)
    assert guard.seen == []


# Before a call in doubt runs once more -------------------------------------------------------------------------------


async def test_s33_a_guard_that_denies_now_lets_no_doubt_run_again_and_buries_none(journal, rows, effects):
    charge = charging(effects, fails=1)
    await drive(journal, charge)
    await decide(journal, "r/s0p0/in_doubt/1", True)
    for _ in range(2):
        with pytest.raises(SideEffectRetryBlockedError, match="the policy changed"):
            await drive(journal, charge, guard=Watch(Deny("the policy changed")))
    assert effects.count() == 1
    assert (await rows.values())["run/r/~/tool/000000/000"][0]["status"] == "failed", "it may have happened"
    assert (await drive(journal, charge, guard=Watch(Allow()))).text == "done"
    assert effects.count() == 2


async def test_a_guard_that_fails_lets_no_doubt_run_again(journal, effects):
    charge = charging(effects, fails=1, idempotent=True, side_effect=True)
    await drive(journal, charge)
    with pytest.raises(GuardFailedError):
        await drive(journal, charge, guard=Watch(None))
    assert effects.count() == 1


async def test_a_guards_denial_does_not_keep_recover_from_settling(journal, effects):
    charge = charging(effects, fails=1, recover=lambda amount: {"done": True, "output": f"found {amount}"})
    await drive(journal, charge)
    assert told(await drive(journal, charge, guard=Watch(Deny("no")))) == "found 1"
    assert effects.count() == 1


async def test_a_call_that_a_guard_wants_approved_needs_one_before_it_begins_again(journal, effects):
    not_done = {"recover": lambda amount: {"done": False}}
    charge = charging(effects, fails=1, **not_done)
    await drive(journal, charge)  # no guard then
    guard = Watch(RequireApproval("large sums are approved now"))
    with pytest.raises(SideEffectRetryBlockedError, match="approval") as blocked:
        await drive(journal, charge, guard=guard)
    await decide(journal, blocked.value.detail["question"], True)
    assert (await drive(journal, charge, guard=guard)).text == "done"
    assert effects.count() == 2


async def test_a_call_that_was_approved_and_has_not_happened_is_not_approved_twice(journal, effects):
    charge = charging(effects, fails=1, recover=lambda amount: {"done": False})
    guard = Watch(RequireApproval("?"))
    await drive(journal, charge, guard=guard)
    await decide(journal, ASKED, True)
    await drive(journal, charge, guard=guard)
    assert effects.count() == 1
    assert told(await drive(journal, charge, guard=guard)) == "receipt 1"
    assert effects.count() == 2
