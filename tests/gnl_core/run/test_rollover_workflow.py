"""A workflow's work anew: from its own input, each step once more, and not while one of them is in doubt."""

import pytest

from gnl_core import Context, RolloverRefusedError, StepRetryBlockedError, rollover_run, run_workflow, tool

WORK = {"work_key": "order 1", "resource_id": "ann"}


async def test_a_workflow_is_begun_anew_from_its_own_input(journal, effects):
    @tool(side_effect=True)
    async def charge(ctx: Context, order: str) -> dict:
        return effects.fire("charge", order, {"run": ctx.run_id})

    async def pay(flow, order):
        return await flow.step("charge", charge, order=order)

    first = await run_workflow(pay, journal=journal, **WORK, input={"order": "o-1"})
    new = await rollover_run(journal, first.run_id)
    assert new == f"{first.run_id}#2"
    for _ in range(2):
        again = await run_workflow(pay, journal=journal, **WORK, input={"order": "o-1"})
        assert (again.run_id, again.output) == (new, {"run": new})
    assert effects.counts() == {"charge o-1": 2}
    with pytest.raises(Exception, match="another input"):
        await run_workflow(pay, journal=journal, **WORK, input={"order": "o-2"})
    old = await run_workflow(pay, journal=journal, run_id=first.run_id)
    assert (old.output, effects.count()) == ({"run": first.run_id}, 2)
    later = await rollover_run(journal, new)
    result = await run_workflow(pay, journal=journal, **WORK)  # with no input: that of the first
    assert (result.run_id, result.output) == (later, {"run": later})


async def test_a_workflow_that_waits_is_not_begun_anew(journal):
    async def pay(flow):
        return await flow.wait("paid")

    waits = await run_workflow(pay, journal=journal, **WORK, input={})
    with pytest.raises(RolloverRefusedError) as refused:
        await rollover_run(journal, waits.run_id)
    assert refused.value.detail["why"] == "suspended"
    await run_workflow(pay, journal=journal, **WORK, send={"paid": 5})
    assert await rollover_run(journal, waits.run_id) == f"{waits.run_id}#2"
    assert (await run_workflow(pay, journal=journal, **WORK)).status == "suspended"


async def test_a_workflow_with_a_step_in_doubt_is_not_begun_anew(journal, effects):
    @tool(side_effect=True)
    async def charge(order: str) -> dict:
        effects.fire("charge", order)
        raise ConnectionError("reset")

    async def pay(flow):
        return await flow.step("charge", charge, order="o-1")

    drive = {"journal": journal, "run_id": "r", "input": {}}
    with pytest.raises(Exception, match="reset"):
        await run_workflow(pay, **drive)
    with pytest.raises(StepRetryBlockedError):
        await run_workflow(pay, **drive)
    with pytest.raises(RolloverRefusedError) as refused:
        await rollover_run(journal, "r")
    assert refused.value.detail["why"] == "in_doubt"
    assert effects.count() == 1
