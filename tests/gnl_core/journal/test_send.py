"""A batch is sent until its outcome is known, whoever is cancelled meanwhile."""

import asyncio

import pytest

from gnl_core.errors import StoreUnavailableError
from gnl_core.journal import Create, get
from gnl_core.journal import send as module
from gnl_core.journal.memory import InMemoryStorage
from gnl_core.journal.port import Applied
from gnl_core.journal.send import send

KEY = ("run", "r", "~", "head")


class Away:
    """A store that is away for a number of batches, and says when it was asked."""

    def __init__(self, journal, batches):
        self.journal = journal
        self.batches = batches
        self.asked = asyncio.Event()

    async def apply(self, ops, *, batch):
        self.asked.set()
        if self.batches:
            self.batches -= 1
            raise StoreUnavailableError("away")
        return await self.journal.apply(ops, batch=batch)


async def test_who_is_cancelled_between_two_tries_learns_that_it_was_written():
    journal = InMemoryStorage().runs
    away = Away(journal, 2)
    task = asyncio.ensure_future(send(away, [Create(KEY, {"f": 1})], run_id="r", tries=4))
    await away.asked.wait()
    task.cancel()
    outcome, cancelled = await task
    assert isinstance(outcome, Applied)
    assert isinstance(cancelled, asyncio.CancelledError)
    assert (await get(journal, KEY)).value == {"f": 1}


async def test_who_is_cancelled_while_the_store_stays_away_is_cancelled(monkeypatch):
    monkeypatch.setattr(module, "FIRST_PAUSE", 0.001)
    away = Away(InMemoryStorage().runs, 10)
    task = asyncio.ensure_future(send(away, [Create(KEY, {"f": 1})], run_id="r", tries=3))
    await away.asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert away.batches == 7


async def test_a_store_that_stays_away_is_told(monkeypatch):
    monkeypatch.setattr(module, "FIRST_PAUSE", 0.001)
    with pytest.raises(StoreUnavailableError):
        await send(Away(InMemoryStorage().runs, 10), [Create(KEY, {"f": 1})], run_id="r", tries=3)
