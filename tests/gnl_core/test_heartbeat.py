"""A holder's signs of life: while it runs, until it is stopped, and never after it gave the lock back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from gnl_core import keys
from gnl_core.errors import RunBusyError, StoreUnavailableError
from gnl_core.journal import Applied, Journal, Op, Refused, new_batch
from gnl_core.journal.memory import InMemoryStorage
from gnl_core.lock import Heartbeat, acquire_ops, fence_check, holder, release_op
from gnl_core.owner import Owner, new_owner, register, unregister

ROOT = "order-1"
HOUR = 3_600_000


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis"])
async def journal(request: pytest.FixtureRequest, new_store: Callable[[str], Any]) -> AsyncIterator[Journal]:
    """Yield each store's runs."""
    async with new_store(request.param).open() as storage:
        yield storage.runs


@pytest.fixture
def owner() -> Iterator[Owner]:
    """Yield a hold of this process that it really has."""
    mine = new_owner()
    register(mine)
    yield mine
    unregister(mine)


def elsewhere() -> Owner:
    """Return a hold of a process on another host."""
    return replace(new_owner(), boot="00000000-0000-0000-0000-000000000000", host="db-2", pid=77)


async def hold(journal: Journal, owner: Owner, ttl_ms: int = HOUR) -> int:
    """Take the lock and return its fence."""
    read = await journal.get_many([keys.lock(ROOT), keys.beat(ROOT)])
    ops = acquire_ops(ROOT, *read.entries, now=read.now, owner=owner, ttl_ms=ttl_ms)
    result = await journal.apply(ops, batch=new_batch())
    assert isinstance(result, Applied)
    return result.version


async def do(journal: Journal, *ops: Op) -> Applied | Refused:
    """Apply one batch."""
    return await journal.apply(ops, batch=new_batch())


async def who(journal: Journal) -> Owner | None:
    """Return who holds the lock."""
    read = await journal.get_many([keys.lock(ROOT), keys.beat(ROOT)])
    return holder(*read.entries, read.now)


class Watched:
    """A store's runs that say when a batch is applied, and let a test hold one back or fail it."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.open = asyncio.Event()
        self.open.set()
        self.begun = asyncio.Event()
        self.done: asyncio.Queue[Applied | Refused | Exception] = asyncio.Queue()
        self.fail_with: list[Exception] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    async def apply(self, ops: Sequence[Op], *, batch: int) -> Applied | Refused:
        self.begun.set()
        await self.open.wait()
        if self.fail_with:
            error = self.fail_with.pop()
            self.done.put_nowait(error)
            raise error
        result = await self._journal.apply(ops, batch=batch)
        self.done.put_nowait(result)
        return result


@pytest.fixture
def watched(journal: Journal) -> Watched:
    """Return a store's runs under watch."""
    return Watched(journal)


async def test_a_heartbeat_renews_until_it_is_stopped(journal: Journal, watched: Watched, owner: Owner) -> None:
    fence = await hold(journal, owner)
    heartbeat = Heartbeat(watched, ROOT, fence, 20)
    await heartbeat.start()
    await heartbeat.start()  # a second call does nothing
    renewals = [await watched.done.get() for _ in range(3)]
    await heartbeat.stop()

    assert all(isinstance(renewal, Applied) for renewal in renewals)
    beat = (await journal.get_many([keys.beat(ROOT)])).entries[0]
    assert beat is not None
    assert isinstance(beat.value, dict)
    assert beat.value["fence"] == fence
    assert not heartbeat.fenced
    await heartbeat.stop()
    assert isinstance(await do(journal, fence_check(ROOT, fence)), Applied)  # a beat is no change of the lock


async def test_s06_a_tool_may_take_longer_than_the_ttl_while_its_driver_beats() -> None:
    clock = [1_000.0]
    async with InMemoryStorage(clock=lambda: clock[0]) as storage:
        watched = Watched(storage.runs)
        elsewhere = replace(new_owner(), boot="another host's")
        heartbeat = Heartbeat(watched, ROOT, await hold(storage.runs, elsewhere, 20), 20)
        await heartbeat.start()
        for _ in range(10):
            assert isinstance(await watched.done.get(), Applied)
            clock[0] += 0.009  # 90 ms in all, of a ttl of 20
            with pytest.raises(RunBusyError):
                await hold(storage.runs, new_owner())
        await heartbeat.stop()

        clock[0] += 0.021
        await hold(storage.runs, new_owner())


async def test_a_heartbeat_that_never_started_stops(journal: Journal) -> None:
    await Heartbeat(journal, ROOT, 1, 20).stop()


async def test_a_heartbeat_stopped_before_its_first_renewal_writes_nothing(journal: Journal, owner: Owner) -> None:
    heartbeat = Heartbeat(journal, ROOT, await hold(journal, owner), HOUR)
    await heartbeat.start()
    await heartbeat.stop()

    assert (await journal.get_many([keys.beat(ROOT)])).entries == (None,)


async def test_a_driver_is_told_once_that_it_was_taken_over(journal: Journal, watched: Watched, owner: Owner) -> None:
    calls: list[int] = []
    told = asyncio.Event()
    heartbeat = Heartbeat(watched, ROOT, await hold(journal, owner), 20, lambda: (calls.append(1), told.set()))
    unregister(owner)
    await hold(journal, elsewhere())
    await heartbeat.start()
    await told.wait()
    await heartbeat.stop()

    assert calls == [1]
    assert heartbeat.fenced
    assert isinstance(watched.done.get_nowait(), Refused)
    assert watched.done.empty()


async def test_a_callback_that_fails_is_logged(
    journal: Journal, owner: Owner, caplog: pytest.LogCaptureFixture
) -> None:
    told = asyncio.Event()

    def fail() -> None:
        told.set()
        raise ValueError("of the caller's own")

    heartbeat = Heartbeat(journal, ROOT, await hold(journal, owner) + 1, 20, fail)
    await heartbeat.start()
    await told.wait()
    await heartbeat.stop()

    assert "of the caller's own" in caplog.text
    assert heartbeat.fenced


@pytest.mark.parametrize("error", [StoreUnavailableError("the disk is full"), RuntimeError("a store's bug")])
async def test_a_store_that_fails_costs_no_heartbeat(
    journal: Journal, watched: Watched, owner: Owner, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    caplog.set_level(logging.WARNING)
    watched.fail_with = [error]
    heartbeat = Heartbeat(watched, ROOT, await hold(journal, owner), 40, lambda: pytest.fail("was not fenced"))
    await heartbeat.start()
    assert await watched.done.get() is error
    assert isinstance(await watched.done.get(), Applied)
    await heartbeat.stop()

    assert f"was not renewed ({error})" in caplog.text
    assert await who(journal) == owner


async def test_s69_a_stop_waits_for_the_renewal_under_way(journal: Journal, watched: Watched, owner: Owner) -> None:
    fence = await hold(journal, owner)
    watched.open.clear()
    heartbeat = Heartbeat(watched, ROOT, fence, 20)
    await heartbeat.start()
    await watched.begun.wait()
    stopping = asyncio.create_task(heartbeat.stop())
    for _ in range(5):
        await asyncio.sleep(0)
    assert not stopping.done()

    watched.open.set()
    await stopping
    assert isinstance(watched.done.get_nowait(), Applied)  # it landed before the release, not after
    await do(journal, release_op(ROOT, fence, owner))
    assert await who(journal) is None


async def test_a_stop_that_is_cancelled_waits_first(journal: Journal, watched: Watched, owner: Owner) -> None:
    watched.open.clear()
    heartbeat = Heartbeat(watched, ROOT, await hold(journal, owner), 20)
    await heartbeat.start()
    await watched.begun.wait()
    stopping = asyncio.create_task(heartbeat.stop())
    for _ in range(5):
        await asyncio.sleep(0)
    stopping.cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    assert not stopping.done()

    watched.open.set()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    assert isinstance(watched.done.get_nowait(), Applied)
