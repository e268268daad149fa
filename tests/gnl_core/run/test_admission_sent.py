"""The batch that admits a run is sent until its outcome is known: nobody is refused as busy by themselves."""

import asyncio

import pytest

from gnl_core import Context, keys, run_durable, stream_durable, tool
from gnl_core.errors import StoreUnavailableError, StoreUnknownError
from gnl_core.journal import get
from gnl_core.journal.send import BEGIN_TRIES
from gnl_core.testing.faulty import Fault, FaultyJournal
from gnl_core.testing.scripted import ScriptedModel

ONE = [[("charge", {"order": 1})], "Done."]
ONCE = [("unavailable", "before"), ("busy", "before"), ("unknown", "before"), ("unknown", "after")]


def charging(effects):
    @tool
    async def charge(ctx: Context, order: int) -> dict:
        """Charge an order."""
        return effects.fire("charge", f"order-{order}", {"receipt": order})

    return charge


def options(journal, effects, turns=ONE):
    return {
        "run_id": "r",
        "journal": journal,
        "model": ScriptedModel(turns),
        "tools": [charging(effects)],
        "prompt": "Go.",
        "thread_id": "t",
        "resource_id": "ann",
    }


@pytest.mark.parametrize(("action", "when"), ONCE)
async def test_a_store_that_breaks_off_once_admits_the_run(journal, effects, action, when):
    faulty = FaultyJournal(journal, fault=Fault(number=1, action=action, when=when))
    assert (await run_durable(**options(faulty, effects))).text == "Done."
    assert (faulty.hit, effects.count()) == (1, 1)


@pytest.mark.parametrize(("action", "when"), ONCE)
async def test_so_does_one_that_breaks_off_when_it_goes_on(journal, effects, action, when):
    await run_durable(**options(journal, effects))
    faulty = FaultyJournal(journal, fault=Fault(number=1, action=action, when=when))
    async with await stream_durable(**options(faulty, effects, [AssertionError("asked")])) as stream:
        assert await stream.text == "Done."
    assert (faulty.hit, effects.count()) == (1, 1)


async def test_a_store_that_stays_away_admits_nobody_and_keeps_nobody_out(journal, rows, effects):
    faulty = FaultyJournal(journal, fault=Fault(number=1, times=BEGIN_TRIES, action="unavailable"))
    with pytest.raises(StoreUnavailableError):
        await run_durable(**options(faulty, effects))
    assert await rows.all() == {}
    assert (await run_durable(**options(faulty, effects))).text == "Done."


async def test_who_never_learns_that_it_was_admitted_keeps_nobody_out(journal, effects):
    faulty = FaultyJournal(journal, fault=Fault(number=1, times=BEGIN_TRIES, action="unknown", when="after"))
    with pytest.raises(StoreUnknownError):
        await run_durable(**options(faulty, effects))
    assert (await get(journal, keys.lock("r"))).value["released"] is False
    assert (await run_durable(**options(journal, effects))).text == "Done."
    assert effects.count() == 1


async def test_who_is_cancelled_while_it_is_admitted_keeps_nobody_out(journal, effects):
    class Held:
        """A store that takes the first batch, and lets nobody know until it is told to."""

        def __init__(self):
            self.taken, self.told = asyncio.Event(), asyncio.Event()

        def __getattr__(self, name):
            return getattr(journal, name)

        async def apply(self, ops, *, batch):
            first = not self.taken.is_set()
            self.taken.set()
            outcome = await journal.apply(ops, batch=batch)
            if first:
                await self.told.wait()
            return outcome

    held = Held()
    task = asyncio.ensure_future(run_durable(**options(held, effects)))
    await held.taken.wait()
    task.cancel()
    held.told.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await run_durable(**options(journal, effects))).text == "Done."
    assert effects.count() == 1
