"""A run whose task is cancelled: what is recorded, what is taken back, and that the cancellation is never lost."""

import asyncio
import threading

import pytest

from gnl_core import (
    Context,
    keys,
    run_durable,
    tool,
)
from gnl_core.errors import RunBusyError, SideEffectRetryBlockedError, StoreCorruptError
from gnl_core.journal import get
from gnl_core.testing.scripted import ScriptedModel

ONE = [[("charge", {"order": 1})], "Done."]
TWO = [[("charge", {"order": 1}), ("charge", {"order": 2})], "Done."]


@pytest.fixture
def release():
    """Lets a body in a thread end, at the latest with its test: a thread that waits keeps the process alive."""
    event = threading.Event()
    yield event
    event.set()


def drive(journal, tools, turns=ONE, run_id="r", **options):
    return run_durable(run_id=run_id, journal=journal, model=ScriptedModel(turns), tools=tools, prompt="Go.", **options)


async def record(journal, position=0, step=0, run_id="r"):
    entry = await get(journal, keys.tool(run_id, keys.ROOT, step, position))
    return None if entry is None else entry.value


async def status(journal, run_id="r"):
    return (await get(journal, keys.head(run_id))).value["status"]


async def cancelled(task):
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


class Gate:
    """An async body that waits, and a store that can be made to tell when a batch comes."""

    def __init__(self, journal, match, *, after):
        self._journal, self._match, self._after = journal, match, after
        self.met, self.go_on = asyncio.Event(), asyncio.Event()

    def __getattr__(self, name):
        return getattr(self._journal, name)

    async def apply(self, ops, *, batch):
        hit = not self.met.is_set() and self._match(ops)
        if not hit:
            return await self._journal.apply(ops, batch=batch)
        outcome = await self._journal.apply(ops, batch=batch) if self._after else None
        self.met.set()
        await asyncio.sleep(0)
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            if outcome is None:
                await self._journal.apply(ops, batch=batch)  # the port: a cancelled write waits for its outcome
            raise
        return outcome or await self._journal.apply(ops, batch=batch)


def writes(status, position=None):
    def match(ops):
        return any(
            op.key[3:4] in (("tool",), ("args",))
            and isinstance(value := getattr(op, "value", None), dict)
            and value.get("status") == status
            and (position is None or op.key[-1] == f"{position:03d}")
            for op in ops
        )

    return match


# A body that began -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("side_effect", [True, False])
@pytest.mark.parametrize("bound", [None, 60.0])
async def test_s58_an_async_body_is_in_doubt_if_it_acts_and_may_run_again_if_it_reads(
    journal, effects, side_effect, bound
):
    entered = asyncio.Event()

    @tool(side_effect=side_effect, timeout=bound)
    async def charge(ctx: Context, order: int) -> str:
        """Act, or read."""
        effects.fire("charge", ctx)
        if not entered.is_set():
            entered.set()
            await asyncio.Event().wait()
        return "done"

    task = asyncio.ensure_future(drive(journal, [charge]))
    await entered.wait()
    await cancelled(task)
    assert await status(journal) == "failed"
    if side_effect:
        found = await record(journal)
        assert (found["status"], found["cause"], found["ended"]) == ("in_doubt", "cancelled", True)
        with pytest.raises(SideEffectRetryBlockedError):
            await drive(journal, [charge])
        assert effects.count() == 1
    else:
        assert await record(journal) is None
        assert (await drive(journal, [charge])).text == "Done."
        assert effects.count() == 2


async def test_s58_a_body_in_a_thread_is_in_doubt_and_its_late_result_settles_it(journal, effects, release, appears):
    entered = threading.Event()
    seen = []

    @tool
    def charge(ctx: Context, order: int) -> dict:
        """Charge."""
        entered.set()
        release.wait()
        seen.append(ctx.cancelled.is_set())
        return effects.fire("charge", ctx, {"receipt": order})

    task = asyncio.ensure_future(drive(journal, [charge]))
    await asyncio.to_thread(entered.wait)
    await cancelled(task)
    found = await record(journal)
    assert (found["status"], found["cause"], found.get("ended")) == ("in_doubt", "cancelled", None)
    release.set()
    evidence = keys.evidence("r", keys.ROOT, "s0p0", 1)
    await appears(evidence)
    assert (await drive(journal, [charge])).text == "Done."
    assert ((await record(journal))["settled_by"], seen, effects.count()) == ("evidence", [True], 1)


@pytest.mark.parametrize("bound", [None, 60.0])
async def test_a_body_that_goes_on_in_spite_of_it_is_recorded_and_the_run_stops(journal, effects, bound):
    entered, ended = asyncio.Event(), asyncio.Event()

    @tool(timeout=bound)
    async def charge(ctx: Context, order: int) -> dict:
        """Charge, and finish what was begun."""
        try:
            entered.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            effects.fire("charge", ctx)
        ended.set()
        return {"receipt": order}

    model = ScriptedModel(ONE)
    task = asyncio.ensure_future(run_durable(run_id="r", journal=journal, model=model, tools=[charge], prompt="Go."))
    await entered.wait()
    await cancelled(task)
    assert (await record(journal))["status"] == "succeeded"
    assert (model.calls, await status(journal)) == (1, "failed"), "no further step after the cancellation"
    assert (await drive(journal, [charge])).text == "Done."
    assert effects.count() == 1


async def test_a_cancellation_while_a_timed_out_read_ends_is_not_lost(journal):
    ending, entered = asyncio.Event(), asyncio.Event()

    @tool(side_effect=False, timeout=0.01)
    async def stock(order: int) -> int:
        """Read, and take long to stop."""
        entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ending.set()
            await asyncio.sleep(0.05)
            raise

    model = ScriptedModel([[("stock", {"order": 1})], "Done."])
    task = asyncio.ensure_future(run_durable(run_id="r", journal=journal, model=model, tools=[stock], prompt="Go."))
    await ending.wait()
    await cancelled(task)
    assert model.calls == 1


async def test_s60_cancelled_parallel_bodies_are_all_in_doubt(journal, effects):
    entered = []
    both = asyncio.Event()

    @tool
    async def charge(ctx: Context, order: int) -> dict:
        """Charge."""
        effects.fire("charge", f"order-{order}")
        entered.append(order)
        if len(entered) == 2:
            both.set()
        await asyncio.Event().wait()

    task = asyncio.ensure_future(drive(journal, [charge], TWO))
    await both.wait()
    await cancelled(task)
    assert [(await record(journal, n))["status"] for n in (0, 1)] == ["in_doubt", "in_doubt"]
    with pytest.raises(SideEffectRetryBlockedError) as blocked:
        await drive(journal, [charge], TWO)
    assert [one.tool_call_id for one in blocked.value.interrupts] == ["s0p0", "s0p1"]
    assert effects.count() == 2


async def test_a_finished_sibling_of_a_cancelled_body_keeps_its_record(journal, effects):
    waiting = asyncio.Event()

    @tool
    async def charge(ctx: Context, order: int) -> dict:
        """Charge; the second waits."""
        effects.fire("charge", f"order-{order}")
        if order == 2:
            waiting.set()
            await asyncio.Event().wait()
        return {"receipt": order}

    task = asyncio.ensure_future(drive(journal, [charge], TWO))
    await waiting.wait()
    async with asyncio.timeout(30):
        while (await record(journal))["status"] != "succeeded":  # noqa: ASYNC110 - it appears in the store
            await asyncio.sleep(0.002)
    await cancelled(task)
    assert [(await record(journal, n))["status"] for n in (0, 1)] == ["succeeded", "in_doubt"]


async def test_a_store_that_is_away_does_not_hide_the_cancellation(journal, effects):
    entered = asyncio.Event()

    @tool(claim_ttl=0.05)
    async def charge(ctx: Context, order: int) -> dict:
        """Charge."""
        effects.fire("charge", ctx)
        entered.set()
        await asyncio.Event().wait()

    class Refusing(Gate):
        async def apply(self, ops, *, batch):
            if self._match(ops):
                raise StoreCorruptError("the record cannot be written")
            return await self._journal.apply(ops, batch=batch)

    task = asyncio.ensure_future(drive(Refusing(journal, writes("in_doubt"), after=False), [charge]))
    await entered.wait()
    await cancelled(task)
    assert (await record(journal))["status"] == "running"
    with pytest.raises(RunBusyError, match="this very process"):
        await drive(journal, [charge])
    await asyncio.sleep(0.05)
    with pytest.raises(SideEffectRetryBlockedError):
        await drive(journal, [charge])
    assert effects.count() == 1
