"""Nothing begins beside a body that may still be executing: not by time alone, not after a guess that it has ended."""

import asyncio
import os
import threading

import pytest

from gnl_core import Context, decide, keys, run_durable, tool, with_idempotency
from gnl_core import body as bodies
from gnl_core.errors import (
    DoubtError,
    EffectNotRecordedError,
    RefusedError,
    RunBusyError,
    RunFencedError,
    SideEffectRetryBlockedError,
    StepTimeoutError,
    StoreUnavailableError,
)
from gnl_core.journal import get
from gnl_core.options import Options
from gnl_core.owner import is_alive, is_dead, new_owner, register
from gnl_core.request import Request
from gnl_core.testing.faulty import FaultyJournal
from gnl_core.testing.scripted import ScriptedModel

ONE = [[("charge", {"order": 1})], "Done."]
HOUR_MS = 3_600_000
ACROSS = {"idempotency_key": lambda args: args["order"], "window": "cross-run"}
ME = f"this very process .pid {os.getpid()}"


@pytest.fixture
def journal(storage, clock):
    """The journal of the store, whose clock a test moves."""
    return clock.moved(storage.runs)


@pytest.fixture
def release():
    """Lets a body in a thread end, at the latest with its test: a thread that waits keeps the process alive."""
    event = threading.Event()
    yield event
    event.set()


def not_done(order):
    return {"done": False}


def drive(journal, tools, turns=ONE, run_id="r", **options):
    return run_durable(run_id=run_id, journal=journal, model=ScriptedModel(turns), tools=tools, prompt="Go.", **options)


def outputs(result):
    return [call.output for step in result.steps for call in step.calls]


async def soon(found):
    while not (value := await found()):  # noqa: ASYNC110 - it appears in the store
        await asyncio.sleep(0.005)
    return value


class Waiting:
    """A charge that waits in its body until it is let go."""

    def __init__(self, effects, **options):
        self.entered, self.go_on = asyncio.Event(), asyncio.Event()
        options = {"recover": not_done} | options

        @tool(**options)
        async def charge(ctx: Context, order: int, note: str = "") -> dict:
            """Charge."""
            self.entered.set()
            await self.go_on.wait()
            return effects.fire("charge", f"order-{order}", {"receipt": order})

        self.tool = charge


# A body that is stopped leaves a thread behind ---------------------------------------------------------------------


@pytest.mark.parametrize("how", ["timeout", "cancelled", "timeout, raises", "cancelled, raises"])
@pytest.mark.parametrize("again", ["not done", "yes"])
async def test_a_thread_that_a_stopped_body_waited_for_is_not_run_beside(journal, effects, release, clock, how, again):
    entered, begun, written = asyncio.Event(), threading.Event(), threading.Event()

    def post(order):
        begun.set()
        release.wait()
        effects.fire("charge", f"order-{order}")
        written.set()

    @tool(timeout=0.02 if "timeout" in how else None, recover=not_done if again == "not done" else None)
    async def charge(ctx: Context, order: int) -> dict:
        """Charge, in a thread that no cancellation stops."""
        entered.set()
        try:
            if ctx.attempt == 1:
                posting = asyncio.get_running_loop().run_in_executor(None, post, order)
                assert begun.wait(30)  # what no thread has come to yet would be taken back
                await posting
        except asyncio.CancelledError:
            if "raises" in how:
                raise ConnectionError("stopped") from None
            raise
        return {"attempt": ctx.attempt}

    task = asyncio.ensure_future(drive(journal, [charge]))
    await entered.wait()
    if "cancelled" in how:
        await asyncio.sleep(0)
        task.cancel()
    with pytest.raises((StepTimeoutError, asyncio.CancelledError)):
        await task
    found = (await get(journal, keys.tool("r", keys.ROOT, 0, 0))).value
    assert (found["status"], found["cause"], found["ended"]) == ("in_doubt", how.split(",")[0], True)
    if again == "yes":
        with pytest.raises(SideEffectRetryBlockedError):
            await drive(journal, [charge])
        await decide(journal, "r/s0p0/in_doubt/1", True)
    for _ in range(2):
        with pytest.raises(RunBusyError, match=ME) as busy:
            await drive(journal, [charge])
        assert (busy.value.detail["pid"], busy.value.retry_after > 1) == (os.getpid(), True)
    release.set()
    await asyncio.to_thread(written.wait)
    assert effects.count() == 1
    clock.pass_ms(31_000)  # nobody will come back to say how it ended: its claim's time decides
    assert outputs(await drive(journal, [charge])) == [{"attempt": 2}]


async def test_a_stopped_body_can_be_settled_or_refused_at_once(journal, effects):
    for run_id, answer in (("a", {"output": {"receipt": 9}}), ("b", {})):
        charge = Waiting(effects)
        task = asyncio.ensure_future(drive(journal, [charge.tool], run_id=run_id))
        await charge.entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await decide(journal, f"{run_id}/s0p0/in_doubt/1", False, **answer)
        result = await drive(journal, [charge.tool], run_id=run_id)
        assert result.steps[0].calls[0].status == ("succeeded" if answer else "denied")
    assert effects.count() == 0


async def test_an_idempotent_tool_that_was_stopped_may_run_again_at_once(journal, effects):
    @tool(timeout=0.02, idempotent=True, side_effect=True)
    async def charge(ctx: Context, order: int) -> dict:
        """Charge under the provider's key."""
        if ctx.attempt == 1:
            await asyncio.Event().wait()
        return effects.fire("charge", ctx, {"receipt": order})

    with pytest.raises(StepTimeoutError):
        await drive(journal, [charge])
    assert outputs(await drive(journal, [charge])) == [{"receipt": 1}]


# Time alone --------------------------------------------------------------------------------------------------------


async def test_a_clock_that_jumps_runs_nothing_beside_a_living_holder_of_the_run(journal, effects, clock):
    charge = Waiting(effects)
    first = asyncio.ensure_future(drive(journal, [charge.tool]))
    await charge.entered.wait()
    clock.pass_ms(HOUR_MS)
    with pytest.raises(RunBusyError, match=ME):
        await drive(journal, [charge.tool])
    charge.go_on.set()
    with pytest.raises(RunFencedError):
        await first
    assert outputs(await drive(journal, [charge.tool])) == [{"receipt": 1}]
    assert effects.count() == 1


@pytest.mark.parametrize("answer", ["not done", "none"])
async def test_another_run_waits_for_a_claim_and_is_busy_once_its_time_is_over(journal, effects, clock, answer):
    charge = Waiting(effects, **ACROSS, recover=not_done if answer == "not done" else None)
    first = asyncio.ensure_future(drive(journal, [charge.tool], run_id="a"))
    await charge.entered.wait()
    second = asyncio.ensure_future(drive(journal, [charge.tool], run_id="b"))
    done, _ = await asyncio.wait({second}, timeout=0.05)
    assert not done, "it waits"
    clock.pass_ms(HOUR_MS)
    with pytest.raises(RunBusyError, match=ME):
        await second
    charge.go_on.set()
    assert outputs(await first) == outputs(await drive(journal, [charge.tool], run_id="b")) == [{"receipt": 1}]
    assert effects.count() == 1


async def test_work_without_a_run_is_busy_once_its_time_is_over(journal, effects, clock):
    for recover in (not_done, None):
        charge = Waiting(effects, recover=recover)
        order = 1 if recover else 2
        call = with_idempotency(charge.tool, journal)
        first = asyncio.ensure_future(call(order=order))
        await charge.entered.wait()
        clock.pass_ms(HOUR_MS)
        with pytest.raises(RunBusyError, match=ME):
            await call(order=order)
        charge.go_on.set()
        assert await first == await call(order=order) == {"receipt": order}
    assert effects.count() == 2


async def test_twins_of_one_step_wait_however_long_the_first_takes(journal, effects, clock):
    charge = Waiting(effects, idempotency="args")
    task = asyncio.ensure_future(drive(journal, [charge.tool], [[("charge", {"order": 1})] * 3, "Done."]))
    await charge.entered.wait()
    clock.pass_ms(HOUR_MS)
    done, _ = await asyncio.wait({task}, timeout=0.1)
    assert not done
    charge.go_on.set()
    assert outputs(await task) == [{"receipt": 1}] * 3
    assert effects.count() == 1


class LateReads(FaultyJournal):
    """Answers of decisions arrive only when a test says so, as from a server that is busy."""

    def __init__(self, inner):
        super().__init__(inner)
        self.read, self.go_on = asyncio.Event(), asyncio.Event()
        self.go_on.set()

    async def get_many(self, wanted):
        found = await super().get_many(wanted)
        if any("answer" in key for key in wanted):
            self.read.set()
            await self.go_on.wait()
        return found


async def test_a_twin_whose_look_arrives_after_the_first_has_ended_gets_its_result(
    journal, effects, clock, monkeypatch
):
    late, ended = LateReads(journal), asyncio.Event()
    end = Request.body_ended
    monkeypatch.setattr(Request, "body_ended", lambda request, one: (end(request, one), ended.set()))
    charge = Waiting(effects, idempotency="args")
    task = asyncio.ensure_future(drive(late, [charge.tool], [[("charge", {"order": 1})] * 2, "Done."]))
    await charge.entered.wait()
    clock.pass_ms(HOUR_MS)
    for held in (False, False, True):  # two looks, so that the time is known to be over at the third
        if held:
            late.go_on.clear()
        late.read.clear()
        await late.read.wait()
    charge.go_on.set()
    await ended.wait()
    late.go_on.set()
    assert outputs(await task) == [{"receipt": 1}] * 2
    assert effects.count() == 1


async def test_a_lookup_that_takes_long_is_not_run_beside(journal, effects, clock):
    entered, go_on = asyncio.Event(), asyncio.Event()

    async def lookup(order: int):
        entered.set()
        await go_on.wait()
        return {"exists": False}

    @tool(lookup=lookup, recover=not_done, idempotency="args")
    async def charge(ctx: Context, order: int) -> dict:
        """Charge."""
        return effects.fire("charge", ctx, {"receipt": order})

    task = asyncio.ensure_future(drive(journal, [charge], [[("charge", {"order": 1})] * 2, "Done."]))
    await entered.wait()
    clock.pass_ms(HOUR_MS)
    await asyncio.wait({task}, timeout=0.1)
    go_on.set()
    assert outputs(await task) == [{"receipt": 1}] * 2
    assert effects.count() == 1


# Work that another caller claimed meanwhile ------------------------------------------------------------------------


@pytest.mark.parametrize("ends", ["returns", "raises", "reads"])
async def test_work_that_another_caller_claimed_meanwhile_is_no_lost_run(journal, rows, effects, ends):
    entered, go_on = asyncio.Event(), asyncio.Event()

    @tool(**ACROSS, side_effect=ends != "reads")
    async def charge(ctx: Context, order: int) -> dict:
        """Charge."""
        entered.set()
        await go_on.wait()
        if ends == "raises":
            raise ConnectionError("lost")
        return effects.fire("charge", ctx, {"receipt": order})

    task = asyncio.ensure_future(drive(journal, [charge]))
    await entered.wait()
    (key,) = await rows.all(("xrun",))
    await rows.change(key, owner={**new_owner().to_json(), "boot": "another-kernel"}, attempts=2)
    go_on.set()
    with pytest.raises(EffectNotRecordedError if ends == "returns" else DoubtError, match="somebody else") as lost:
        await task
    assert lost.value.detail["tool_call_id"] == "s0p0"
    if ends == "returns":
        assert lost.value.output == {"receipt": 1}
    kept = (await get(journal, keys.evidence("r", keys.ROOT, "s0p0", 1))).value
    assert kept["ok"] == (ends != "raises")
    lock = (await get(journal, keys.lock("r"))).value
    assert lock["released"] is True, "the run was this one's all the time"


# Evidence ----------------------------------------------------------------------------------------------------------


class Unsteady:
    """A store that is away for the first batches of evidence."""

    def __init__(self, journal, times):
        self.journal, self.left, self.tags = journal, times, []

    def __getattr__(self, name):
        return getattr(self.journal, name)

    async def apply(self, ops, *, batch):
        if any(op.key == keys.evidence("r", keys.ROOT, "s0p0", 1) for op in ops):
            self.tags.append(batch)
            if self.left:
                self.left -= 1
                raise StoreUnavailableError("away")
        return await self.journal.apply(ops, batch=batch)


async def test_evidence_is_sent_again_from_the_threads_own_loop(journal, effects, release, begun):
    @tool(timeout=0.02)
    def charge(ctx: Context, order: int) -> dict:
        """Charge, late."""
        release.wait()
        return effects.fire("charge", ctx, {"receipt": order})

    unsteady = Unsteady(journal, 2)
    with pytest.raises(StepTimeoutError):
        await drive(unsteady, [charge])
    release.set()
    await soon(lambda: get(journal, keys.evidence("r", keys.ROOT, "s0p0", 1)))
    assert (len(unsteady.tags), len(set(unsteady.tags))) == (3, 1)
    assert outputs(await drive(journal, [charge])) == [{"receipt": 1}]
    assert effects.count() == 1


def a_request(journal):
    owner = new_owner()
    register(owner)
    return Request(journal=journal, root="r", fence=1, owner=owner, options=Options(), now=0)


def end_all(request, some):
    for one in some:
        request.body_ended(one)


async def test_an_owner_lives_until_the_last_of_its_bodies_has_ended_in_whatever_thread(journal):
    for released_first in (True, False):
        request = a_request(journal)
        left = [request.body_begins(("run", str(n))) for n in range(50)]
        parts = [left[n::5] for n in range(1, 5)]
        threads = [threading.Thread(target=end_all, args=(request, part)) for part in parts]
        if released_first:
            request.release()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        request.release()
        assert is_alive(request.owner)
        for one in (*left[::5], left[0]):  # twice is no error
            request.body_ended(one)
        assert is_dead(request.owner)


# No thread ---------------------------------------------------------------------------------------------------------


async def test_a_body_for_which_no_thread_can_be_started_has_not_begun(journal, effects, monkeypatch):
    @tool
    def charge(ctx: Context, order: int) -> dict:
        """Charge."""
        return effects.fire("charge", ctx, {"receipt": order})

    def refuse(*_):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(bodies._THREADS, "submit", refuse)
        with pytest.raises(RefusedError, match="it has not run"):
            await drive(journal, [charge])
    assert effects.count() == 0
    assert outputs(await drive(journal, [charge])) == [{"receipt": 1}]
    assert effects.count() == 1
