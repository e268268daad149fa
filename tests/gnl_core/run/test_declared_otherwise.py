"""A tool that names its work otherwise than when a call of it began: the call stays under the name it has."""

import itertools

import pytest

from gnl_core import Context, NotPerformedError, SideEffectRetryBlockedError, decide, run_durable, tool
from gnl_core.errors import ModelUnavailableError
from gnl_core.testing.scripted import ScriptedModel

DECLARED = {
    "plain": {},
    "by order": {"idempotency_key": lambda args: args["order"]},
    "by order and day": {"idempotency_key": lambda args: f"{args['order']}/2026-12-01"},
    "by arguments": {"idempotency": "args"},
    "in the conversation": {"idempotency": "args", "window": "thread"},
    "across runs": {"idempotency": "args", "window": "cross-run"},
}
CHANGES = [pair for pair in itertools.permutations(DECLARED, 2) if pair[1] != "plain"]
CALL = [("charge", {"order": "1"})]


def charging(effects, declared, error=None):
    @tool(**DECLARED[declared])
    def charge(order: str, ctx: Context) -> str:
        effects.fire("charge", ctx)
        if error is not None:
            raise error
        return "paid"

    return charge


async def drive(journal, charge, *turns, **options):
    return await run_durable(
        run_id="r",
        journal=journal,
        model=ScriptedModel(list(turns)),
        tools=[charge],
        prompt="go",
        thread_id="t",
        **options,
    )


@pytest.mark.parametrize(("before", "after"), CHANGES)
async def test_what_is_recorded_as_done_never_runs_again(journal, effects, before, after):
    with pytest.raises(ModelUnavailableError):
        await drive(journal, charging(effects, before), CALL, ModelUnavailableError("down"))
    result = await drive(journal, charging(effects, after), CALL, "done")
    assert (result.text, effects.count()) == ("done", 1)


@pytest.mark.parametrize(("before", "after"), CHANGES)
async def test_what_may_have_happened_is_asked_about_and_runs_once_more_on_a_yes(journal, effects, before, after):
    with pytest.raises(ModelUnavailableError):
        await drive(journal, charging(effects, before, RuntimeError("cut")), CALL, ModelUnavailableError("down"))
    with pytest.raises(SideEffectRetryBlockedError) as blocked:
        await drive(journal, charging(effects, after), CALL, "done")
    assert effects.count() == 1
    await decide(journal, blocked.value.interrupts[0].question, True)
    assert (await drive(journal, charging(effects, after), CALL, "done")).text == "done"
    assert effects.count() == 2


async def test_what_did_not_happen_for_certain_stays_settled(journal, effects):
    with pytest.raises(ModelUnavailableError):
        await drive(journal, charging(effects, "plain", NotPerformedError("no")), CALL, ModelUnavailableError("down"))
    assert (await drive(journal, charging(effects, "by order"), CALL, "done")).text == "done"
    assert effects.count() == 1
