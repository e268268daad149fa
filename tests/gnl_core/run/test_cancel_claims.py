"""Claims whose body never began are taken back; what bodies raise of their own reaches the caller."""

import asyncio
import contextlib
import threading

import pytest

from gnl_core import (
    Context,
    InMemoryStorage,
    body,
    keys,
    list_interrupts,
    run_durable,
    run_durable_sync,
    stream_durable,
    tool,
)
from gnl_core.errors import SideEffectRetryBlockedError, StepTimeoutError
from gnl_core.journal import get
from gnl_core.testing.scripted import ScriptedModel
from gnl_core.threads import Threads

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


# A body that did not begin -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"idempotency": "args"}])
@pytest.mark.parametrize("after", [True, False], ids=["written", "on its way"])
async def test_a_claim_that_is_cancelled_is_taken_back(journal, effects, options, after):
    @tool(**options)
    async def charge(ctx: Context, order: int) -> dict:
        """Charge."""
        return effects.fire("charge", ctx, {"receipt": order})

    slow = Gate(journal, writes("running"), after=after)
    task = asyncio.ensure_future(drive(slow, [charge]))
    await slow.met.wait()
    await cancelled(task)
    assert (await record(journal))["status"] == "released"
    assert await list_interrupts(journal) == []
    assert await status(journal) == "failed"
    assert (await drive(journal, [charge])).text == "Done.", "nobody is asked about what never began"
    assert effects.count() == 1
    assert (await record(journal))["attempts"] == 1


async def test_a_sibling_that_was_claimed_and_not_entered_is_taken_back_too(journal, effects):
    @tool
    async def charge(ctx: Context, order: int) -> dict:
        """Charge."""
        return effects.fire("charge", f"order-{order}", {"receipt": order})

    slow = Gate(journal, writes("running", 1), after=False)
    task = asyncio.ensure_future(drive(slow, [charge], TWO))
    await slow.met.wait()
    await cancelled(task)
    assert effects.count() == 0
    assert [(await record(journal, n))["status"] for n in (0, 1)] == ["released", "released"]
    assert (await drive(journal, [charge], TWO)).text == "Done."
    assert effects.counts() == {"charge order-1": 1, "charge order-2": 1}


async def test_a_call_cancelled_while_its_lookup_asks_never_began(journal, effects):
    asking = asyncio.Event()

    async def lookup(order: int):
        asking.set()
        await asyncio.Event().wait()

    @tool(lookup=lookup)
    async def charge(ctx: Context, order: int) -> dict:
        """Charge."""
        return effects.fire("charge", ctx, {"receipt": order})

    task = asyncio.ensure_future(drive(journal, [charge]))
    await asking.wait()
    await cancelled(task)
    assert (await record(journal))["status"] == "released"


async def test_an_approval_outlives_a_claim_that_was_taken_back(journal, effects):
    @tool(confirm=True)
    async def charge(ctx: Context, order: int) -> dict:
        """Charge."""
        return effects.fire("charge", ctx, {"receipt": order})

    first = await drive(journal, [charge])
    slow = Gate(journal, writes("running"), after=True)
    task = asyncio.ensure_future(drive(slow, [charge], approvals={first.interrupts[0].question: True}))
    await slow.met.wait()
    await cancelled(task)
    assert (await record(journal))["status"] == "suspended"
    assert (await drive(journal, [charge])).text == "Done.", "it is asked no second time"
    assert effects.count() == 1


async def test_a_step_whose_recording_was_cancelled_is_recorded_once(journal, effects):
    @tool(side_effect=False)
    async def stock(order: int) -> int:
        """Read."""
        return 3

    slow = Gate(journal, lambda ops: any("model" in op.key for op in ops), after=True)
    turns = [[("stock", {"order": 1})], "Done."]
    task = asyncio.ensure_future(drive(slow, [stock], turns))
    await slow.met.wait()
    await cancelled(task)
    assert await status(journal) == "failed", "the end of the drive is written, too"
    model = ScriptedModel(turns)
    result = await run_durable(run_id="r", journal=journal, model=model, tools=[stock], prompt="Go.")
    assert (result.text, model.calls) == ("Done.", 1)


async def test_s60_a_drive_cancelled_in_the_model_step_gives_the_lock_back(journal, rows):
    model = ScriptedModel(ONE, gate=asyncio.Event())
    task = asyncio.ensure_future(run_durable(run_id="r", journal=journal, model=model, tools=[], prompt="Go."))
    await model.entered.wait()
    await cancelled(task)
    assert (await get(journal, keys.lock("r"))).value["released"] is True
    assert await status(journal) == "failed"


async def test_s60_a_drive_cancelled_before_it_began_leaves_nothing(journal, rows):
    task = asyncio.ensure_future(drive(journal, []))
    await cancelled(task)
    assert await rows.all() == {}


@pytest.mark.parametrize("after", [True, False], ids=["written", "on its way"])
async def test_s60_a_drive_cancelled_while_it_is_admitted_blocks_nobody(journal, after):
    slow = Gate(journal, lambda ops: any(op.key[-1] == "lock" for op in ops), after=after)
    task = asyncio.ensure_future(drive(slow, [], ["Hi."]))
    await slow.met.wait()
    await cancelled(task)
    assert (await drive(journal, [], ["Hi."])).text == "Hi."


async def test_s60_a_deadline_around_a_run_is_a_cancellation_like_any_other(journal, effects):
    @tool
    async def charge(ctx: Context, order: int) -> dict:
        """Charge and hang."""
        effects.fire("charge", ctx)
        await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(drive(journal, [charge]), timeout=0.2)
    assert (await record(journal))["cause"] == "cancelled"


# What bodies raise -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("raised", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("threaded", [True, False])
@pytest.mark.parametrize("parallel", [True, False])
def test_an_interrupt_in_a_body_is_a_doubt_and_reaches_the_caller(place, effects, raised, threaded, parallel):
    journal = InMemoryStorage().runs

    def act(ctx, order):
        effects.fire("charge", f"order-{order}")
        if order == 1:
            raise raised
        return order

    if threaded:

        @tool
        def charge(ctx: Context, order: int) -> int:
            """Charge."""
            return act(ctx, order)
    else:

        @tool
        async def charge(ctx: Context, order: int) -> int:
            """Charge."""
            return act(ctx, order)

    turns = TWO if parallel else ONE
    options = {"run_id": "r", "journal": journal, "tools": [charge], "prompt": "Go."}
    with contextlib.ExitStack() as stack:
        stack.enter_context(pytest.raises(raised))
        run_durable_sync(model=ScriptedModel(turns), **options)
    with pytest.raises(SideEffectRetryBlockedError) as blocked:
        run_durable_sync(model=ScriptedModel(turns), **options)
    assert "s0p0" in [one.tool_call_id for one in blocked.value.interrupts]
    assert effects.count("charge", "order-1") == 1


async def own_cancellation(order):
    inner = asyncio.ensure_future(asyncio.Event().wait())
    inner.cancel()
    await inner


@pytest.mark.parametrize("declared", [{}, {"timeout": 60}], ids=["", "bounded"])
@pytest.mark.parametrize("threaded", [False, True])
async def test_a_body_that_raises_a_cancellation_of_its_own_is_in_doubt(journal, effects, declared, threaded):
    async def task(ctx: Context, order: int) -> dict:
        """Charge by a task that somebody stops."""
        effects.fire("charge", ctx)
        await own_cancellation(order)

    def thread(ctx: Context, order: int) -> dict:
        """Charge, and raise what no plain function should."""
        effects.fire("charge", ctx)
        raise asyncio.CancelledError

    charge = tool(name="charge", **declared)(thread if threaded else task)
    with pytest.raises(SideEffectRetryBlockedError, match="nobody had cancelled it") as blocked:
        await drive(journal, [charge])
    assert [one.question for one in blocked.value.interrupts] == ["r/s0p0/in_doubt/1"]
    assert (await record(journal))["status"] == "in_doubt"
    with pytest.raises(SideEffectRetryBlockedError):
        await drive(journal, [charge])
    assert effects.count() == 1


@pytest.mark.parametrize("declared", [{}, {"timeout": 60}], ids=["", "bounded"])
async def test_a_read_that_raises_a_cancellation_of_its_own_has_failed_and_the_run_goes_on(journal, declared):
    @tool(side_effect=False, **declared)
    async def charge(order: int) -> dict:
        """Look up by a task that somebody stops."""
        await own_cancellation(order)

    result = await drive(journal, [charge])
    assert (result.text, result.steps[0].calls[0].status) == ("Done.", "failed")
    assert "nobody had cancelled it" in (await record(journal))["error"]["message"]


async def test_a_stream_that_is_left_while_a_body_runs_is_in_doubt(journal, effects):
    entered = asyncio.Event()

    @tool
    async def charge(ctx: Context, order: int) -> dict:
        """Charge."""
        effects.fire("charge", ctx)
        entered.set()
        await asyncio.Event().wait()

    async with await stream_durable(
        run_id="r", journal=journal, model=ScriptedModel(ONE), tools=[charge], prompt="Go."
    ):
        await entered.wait()
    assert (await record(journal))["status"] == "in_doubt"
    with pytest.raises(SideEffectRetryBlockedError):
        await drive(journal, [charge])
    assert effects.count() == 1


async def test_a_body_that_found_no_thread_in_time_did_not_begin(journal, effects, monkeypatch, release):
    @tool(timeout=0.02)
    def charge(ctx: Context, order: int) -> dict:
        """Charge."""
        return effects.fire("charge", ctx, {"receipt": order})

    threads, idle = Threads(1, "test"), threading.Event()
    monkeypatch.setattr(body, "_THREADS", threads)
    threads.submit(release.wait)
    try:
        with pytest.raises(StepTimeoutError, match="has not run"):
            await drive(journal, [charge])
        assert (await record(journal))["status"] == "released"
    finally:
        release.set()
    threads.submit(idle.set)
    await asyncio.to_thread(idle.wait)
    assert effects.count() == 0, "what nobody waits for is not begun later"
    assert (await drive(journal, [charge])).text == "Done."
    assert effects.count() == 1
