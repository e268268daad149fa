"""A body that is given up: stopped by its user, left by its client, out of time."""

import asyncio
import threading

import pytest

from gnl_core import Context, decide, keys, list_interrupts, run_durable, tool
from gnl_core.errors import GnlError, SideEffectRetryBlockedError, StepTimeoutError
from gnl_core.journal import get
from gnl_core.testing.scripted import ScriptedModel

TURNS = [[("charge", {"amount": 10})], "Done."]


async def record(storage, position=0):
    return (await get(storage.runs, keys.tool("r", keys.ROOT, 0, position))).value


def drive(storage, tools, turns=TURNS, **options):
    return run_durable(
        run_id="r", journal=storage.runs, model=ScriptedModel(turns), tools=tools, prompt="Do it.", **options
    )


async def test_s58_a_charge_that_is_cancelled_is_in_doubt_and_a_read_is_not(storage, effects):
    entered = asyncio.Event()

    @tool
    async def charge(ctx: Context, amount: int) -> dict:
        """Charge a card."""
        effects.fire("charge", ctx)
        entered.set()
        await asyncio.Event().wait()

    reads = 0

    @tool(side_effect=False)
    async def stock(sku: str) -> int:
        """Read."""
        nonlocal reads
        reads += 1
        if reads == 1:
            await asyncio.Event().wait()
        return 3

    turns = [[("charge", {"amount": 10}), ("stock", {"sku": "a"})], "Done."]
    task = asyncio.ensure_future(drive(storage, [charge, stock], turns))
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ((await record(storage))["status"], (await record(storage))["cause"]) == ("in_doubt", "cancelled")

    with pytest.raises(SideEffectRetryBlockedError) as blocked:
        await drive(storage, [charge, stock], turns)
    assert [q.question for q in blocked.value.interrupts] == ["r/s0p0/in_doubt/1"]
    await decide(storage.runs, "r/s0p0/in_doubt/1", False, output="charged")
    result = await drive(storage, [charge, stock], turns)
    answered = [part.tool_call_id for m in result.messages if m.role == "tool" for part in m.parts]
    assert answered == ["s0p0", "s0p1"], "every call of the history has a result"
    assert (effects.count(), reads) == (1, 2)


async def test_s60_a_client_that_leaves_during_the_models_answer_leaves_no_lock(storage, effects):
    @tool
    async def charge(ctx: Context, amount: int) -> dict:
        """Charge a card."""
        return effects.fire("charge", ctx, {"receipt": amount})

    model = ScriptedModel(TURNS, gate=asyncio.Event())
    task = asyncio.ensure_future(
        run_durable(run_id="r", journal=storage.runs, model=model, tools=[charge], prompt="Do it.")
    )
    await model.entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await drive(storage, [charge])).text == "Done.", "driven again at once: nobody is busy"
    assert effects.count() == 1


async def test_s60_a_client_that_leaves_during_a_tool_leaves_no_lock_and_a_named_doubt(storage, effects):
    entered = asyncio.Event()

    @tool
    async def charge(ctx: Context, amount: int) -> dict:
        """Charge a card."""
        effects.fire("charge", ctx)
        entered.set()
        await asyncio.Event().wait()

    task = asyncio.ensure_future(asyncio.wait_for(drive(storage, [charge]), timeout=60))
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(SideEffectRetryBlockedError):
        await drive(storage, [charge])
    assert [q.kind for q in await list_interrupts(storage.runs)] == ["in_doubt"]
    assert effects.count() == 1


async def test_s61_a_thread_that_ends_after_its_time_is_evidence_that_settles_the_doubt(storage, effects):
    release, written = threading.Event(), threading.Event()

    @tool(timeout=0.2)
    def charge(ctx: Context, amount: int) -> dict:
        """Charge a card, late."""
        release.wait()
        effects.fire("charge", ctx)
        written.set()
        return {"receipt": amount}

    try:
        with pytest.raises(StepTimeoutError) as late:
            await drive(storage, [charge])
        assert [q.question for q in late.value.interrupts] == ["r/s0p0/in_doubt/1"]
        assert effects.count() == 0
        found = await record(storage)
        assert (found["status"], found["cause"]) == ("in_doubt", "timeout"), "never 'failed': it may still land"
        with pytest.raises(GnlError) as again:
            await drive(storage, [charge])
        assert again.value.code in ("side_effect_retry_blocked", "run_busy")
    finally:
        release.set()
    await asyncio.to_thread(written.wait)
    assert effects.count() == 1, "the late write is seen once"
    evidence = keys.evidence("r", keys.ROOT, "s0p0", 1)
    async with asyncio.timeout(60):
        while await get(storage.runs, evidence) is None:  # noqa: ASYNC110 - it appears in the store
            await asyncio.sleep(0.005)
    result = await drive(storage, [charge])
    assert result.text == "Done."
    found = await record(storage)
    assert (found["status"], found["settled_by"], found["output"]) == ("succeeded", "evidence", {"receipt": 10})
    assert effects.count() == 1


async def test_s62_a_timeout_is_no_reason_to_try_a_charge_again(storage, effects):
    @tool(timeout=0.05, max_retries=3)
    async def charge(ctx: Context, amount: int) -> dict:
        """Charge a card and never come back."""
        effects.fire("charge", ctx)
        await asyncio.Event().wait()

    with pytest.raises(StepTimeoutError):
        await drive(storage, [charge])
    for _ in range(3):
        with pytest.raises(SideEffectRetryBlockedError):
            await drive(storage, [charge])
    assert effects.count() == 1


async def test_s62_a_tool_declared_harmless_to_repeat_may_begin_again(storage, effects):
    @tool(timeout=0.05, idempotent=True, side_effect=True)
    async def charge(ctx: Context, amount: int) -> dict:
        """Charge a card under an idempotency key of the provider's."""
        effects.fire("charge", ctx)
        if ctx.attempt == 1:
            await asyncio.Event().wait()
        return {"receipt": amount}

    with pytest.raises(StepTimeoutError):
        await drive(storage, [charge])
    assert effects.count() == 1, "not within the same drive"
    assert (await drive(storage, [charge])).text == "Done."
    assert effects.count() == 2
