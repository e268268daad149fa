"""What is asked about a call has its time: a recover, a lookup or a guard that hangs holds no run up for ever."""

import asyncio
import subprocess
import sys
import textwrap
import threading

import pytest

from gnl_core import Allow, SideEffectRetryBlockedError, Timeouts, compensate_run, hook, run_durable, tool
from gnl_core.errors import GuardFailedError
from gnl_core.testing.scripted import ScriptedModel

TURNS = [[("charge", {"order": 1})], "Done."]
SHORT = 0.02


async def drive(journal, charge, **options):
    return await run_durable(
        run_id="r", journal=journal, model=ScriptedModel(TURNS), tools=[charge], prompt="Go.", **options
    )


@pytest.fixture
def hanging():
    """Hooks of each kind that hang until the test is over."""
    over = threading.Event()

    async def forever():
        await asyncio.Event().wait()

    async def stubborn():
        """Answer only when it is told to stop."""
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return {"done": False, "exists": True, "output": "made up"}

    def blocked():
        over.wait()

    def promising():
        return forever()

    yield {"async": forever, "stubborn": stubborn, "thread": blocked, "awaitable": promising}
    over.set()


def charging(effects, *, lost=True, **options):
    @tool(**options)
    async def charge(order: int) -> str:
        """Charge, and lose the answer."""
        effects.fire("charge", f"order-{order}")
        if lost:
            raise ConnectionError("lost")
        return "paid"

    return charge


BOUNDS = {
    "the tool's": ({"timeout": SHORT}, {}),
    "the run's": ({}, {"timeouts": Timeouts(tool=SHORT)}),
    "the runtime's": ({}, {}),
    "the tool's before the run's": ({"timeout": SHORT}, {"timeouts": Timeouts(tool=3600)}),
}


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("kind", ["async", "stubborn", "thread", "awaitable"])
async def test_a_recover_that_hangs_is_no_answer(journal, effects, monkeypatch, hanging, kind, bound):
    monkeypatch.setattr(hook, "HOOK_SECONDS", SHORT)
    of_tool, of_run = BOUNDS[bound]
    charge = charging(effects, recover=hanging[kind], **of_tool)
    warned = (await drive(journal, charge, **of_run)).warnings
    assert not any("recover of charge" in one for one in warned)
    with pytest.raises(SideEffectRetryBlockedError) as blocked:
        await drive(journal, charge, **of_run)
    assert [one.question for one in blocked.value.interrupts] == ["r/s0p0/in_doubt/1"]
    assert effects.count() == 1


async def test_a_recover_that_hangs_is_warned_about(journal, effects, hanging, caplog):
    charge = charging(effects, recover=hanging["async"], timeout=SHORT)
    await drive(journal, charge)
    with pytest.raises(SideEffectRetryBlockedError):
        await drive(journal, charge)
    assert (
        "recover of charge did not answer within 0.02 s (call s0p0 of run r); this counts as no answer" in caplog.text
    )


@pytest.mark.parametrize("kind", ["async", "stubborn", "thread", "awaitable"])
async def test_a_lookup_that_hangs_is_no_answer_and_the_call_runs(journal, effects, hanging, kind):
    charge = charging(effects, lost=False, lookup=hanging[kind], timeout=SHORT)
    result = await drive(journal, charge)
    assert (result.text, result.steps[0].calls[0].output, effects.count()) == ("Done.", "paid", 1)
    assert any("lookup of charge did not answer within" in one for one in result.warnings)


async def test_a_guard_that_hangs_lets_nothing_run(journal, effects):
    async def hangs(call):
        await asyncio.Event().wait()

    async def stubborn(call):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return Allow()

    charge = charging(effects, lost=False, timeout=SHORT)
    for guard in (hangs, stubborn):
        with pytest.raises(GuardFailedError, match="no verdict within"):
            await drive(journal, charge, guard=guard)
    assert effects.count() == 0
    assert (await drive(journal, charge, guard=lambda call: Allow())).text == "Done."


@pytest.mark.parametrize("mode", ["async", "thread"])
async def test_a_hook_that_cancels_itself_stops_no_run(journal, effects, mode):
    async def sync_or_not():
        raise asyncio.CancelledError

    def in_thread():
        raise asyncio.CancelledError

    charge = charging(effects, lost=False, lookup=sync_or_not if mode == "async" else in_thread)
    result = await drive(journal, charge)
    assert result.text == "Done."
    assert any("nobody had cancelled it" in one for one in result.warnings)


async def test_a_drive_that_is_cancelled_while_a_hook_is_asked_stops(journal, effects):
    entered = asyncio.Event()

    async def lookup():
        entered.set()
        await asyncio.Event().wait()

    charge = charging(effects, lookup=lookup)
    driven = asyncio.ensure_future(drive(journal, charge))
    await entered.wait()
    driven.cancel()
    with pytest.raises(asyncio.CancelledError):
        await driven
    assert effects.count() == 0


async def test_a_compensate_has_the_time_that_it_needs(journal, effects, monkeypatch):
    monkeypatch.setattr(hook, "HOOK_SECONDS", SHORT)

    async def undo():
        await asyncio.sleep(3 * SHORT)
        effects.fire("refund", "1")

    charge = charging(effects, lost=False, compensate=undo, timeout=SHORT)
    await drive(journal, charge)
    (undone,) = await compensate_run(journal, "r", [charge])
    assert (undone.status, effects.count("refund")) == ("undone", 1)


def test_a_hook_that_hangs_in_a_thread_keeps_no_process_from_ending():
    program = """
        import asyncio, threading
        from gnl_core.hook import LATE, within

        assert asyncio.run(within(0.01, threading.Event().wait, in_thread=True)) is LATE
    """
    ended = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=False, timeout=60)
    assert ended.returncode == 0


async def test_a_hook_in_a_thread_may_raise_anything():
    class Odd(BaseException):
        """No Exception."""

    def odd():
        raise Odd

    with pytest.raises(Odd):
        await hook.within(60, odd, in_thread=True)
    assert await hook.within(60, lambda: 1, in_thread=True) == 1
