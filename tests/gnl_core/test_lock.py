"""One driver a request: over every store, with processes that are killed and stopped."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gnl_core import keys
from gnl_core.errors import (
    ConfigError,
    JournalFormatError,
    RunBusyError,
    StoreCorruptError,
)
from gnl_core.journal import Applied, Create, Entry, Expect, Journal, JsonValue, Op, Put, Refused, Replace, new_batch
from gnl_core.lock import acquire_ops, fence_check, holder, release_op, renew_ops
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


async def acquire(journal: Journal, owner: Owner, ttl_ms: int = HOUR, *, later: int = 0) -> Applied | Refused:
    """Take the lock as a driver does, as if `later` milliseconds of the store's clock had passed."""
    read = await journal.get_many([keys.lock(ROOT), keys.beat(ROOT)])
    ops = acquire_ops(ROOT, *read.entries, now=read.now + later, owner=owner, ttl_ms=ttl_ms)
    return await journal.apply(ops, batch=new_batch())


async def hold(journal: Journal, owner: Owner, ttl_ms: int = HOUR, *, later: int = 0) -> int:
    """Take the lock and return its fence."""
    result = await acquire(journal, owner, ttl_ms, later=later)
    assert isinstance(result, Applied)
    return result.version


async def do(journal: Journal, *ops: Op) -> Applied | Refused:
    """Apply one batch."""
    return await journal.apply(ops, batch=new_batch())


async def who(journal: Journal, *, later: int = 0) -> Owner | None:
    """Return who holds the lock."""
    read = await journal.get_many([keys.lock(ROOT), keys.beat(ROOT)])
    return holder(*read.entries, read.now + later)


# Acquire, fence, release --------------------------------------------------------------------------------------------


async def test_a_free_lock_is_taken_and_its_version_is_the_fence(journal: Journal, owner: Owner) -> None:
    assert await who(journal) is None
    fence = await hold(journal, owner)

    assert await who(journal) == owner
    assert isinstance(await do(journal, fence_check(ROOT, fence)), Applied)
    assert isinstance(await do(journal, fence_check(ROOT, fence + 1)), Refused)


async def test_a_second_driver_is_refused(journal: Journal, owner: Owner) -> None:
    await hold(journal, owner)

    with pytest.raises(RunBusyError):
        await acquire(journal, new_owner())


async def test_a_driver_of_another_host_is_named_by_host_and_pid(journal: Journal) -> None:
    await hold(journal, elsewhere())

    with pytest.raises(RunBusyError, match="driven by process 77 of host 'db-2'"):
        await acquire(journal, new_owner())


async def test_a_released_lock_is_free_and_keeps_who_had_it(journal: Journal, owner: Owner) -> None:
    fence = await hold(journal, owner)
    await do(journal, release_op(ROOT, fence, owner))

    assert await who(journal) is None
    row = (await journal.get_many([keys.lock(ROOT)])).entries[0]
    assert row is not None
    assert isinstance(row.value, dict)
    assert row.value["owner"] == owner.to_json()
    assert await hold(journal, elsewhere()) > fence


async def test_a_release_without_a_name_frees_the_lock_too(journal: Journal, owner: Owner) -> None:
    await do(journal, release_op(ROOT, await hold(journal, owner)))

    assert await who(journal) is None
    await hold(journal, owner)


async def test_s69_a_renewal_after_the_release_is_refused_by_itself(journal: Journal, owner: Owner) -> None:
    fence = await hold(journal, owner)
    assert isinstance(await do(journal, *renew_ops(ROOT, fence)), Applied)
    await do(journal, release_op(ROOT, fence, owner))

    assert isinstance(await do(journal, *renew_ops(ROOT, fence)), Refused)
    assert await who(journal) is None


async def test_a_driver_that_was_taken_over_can_neither_renew_nor_release(journal: Journal, owner: Owner) -> None:
    old = await hold(journal, elsewhere(), 1_000)
    new = await hold(journal, owner, later=2_000)

    assert isinstance(await do(journal, *renew_ops(ROOT, old)), Refused)
    assert isinstance(await do(journal, release_op(ROOT, old)), Refused)
    assert isinstance(await do(journal, fence_check(ROOT, new)), Applied)
    assert await who(journal) == owner


async def test_a_ttl_below_one_is_refused(owner: Owner) -> None:
    with pytest.raises(ConfigError, match="0 ms"):
        acquire_ops(ROOT, None, None, now=1, owner=owner, ttl_ms=0)


# Time to live -------------------------------------------------------------------------------------------------------


async def test_elsewhere_the_holders_own_ttl_decides(journal: Journal, owner: Owner) -> None:
    await hold(journal, elsewhere(), 60_000)

    with pytest.raises(RunBusyError):
        await acquire(journal, owner, 1, later=50_000)
    await hold(journal, owner, HOUR, later=61_000)


async def test_a_beat_keeps_the_lock(journal: Journal, owner: Owner) -> None:
    fence = await hold(journal, elsewhere(), 60_000)
    lock = (await journal.get_many([keys.lock(ROOT)])).entries[0]
    assert lock is not None
    await do(journal, *renew_ops(ROOT, fence))
    beat = (await journal.get_many([keys.beat(ROOT)])).entries[0]
    assert beat is not None
    later = replace(beat, updated_at=lock.updated_at + 50_000)

    assert holder(lock, None, lock.updated_at + 60_001) is None
    assert holder(lock, later, lock.updated_at + 60_001) is not None
    assert holder(lock, later, lock.updated_at + 110_001) is None


async def test_a_beat_between_reading_and_taking_over_refuses_the_takeover(journal: Journal, owner: Owner) -> None:
    fence = await hold(journal, elsewhere(), 1_000)
    for _ in range(2):  # the first beat makes the row, the second changes it
        read = await journal.get_many([keys.lock(ROOT), keys.beat(ROOT)])
        ops = acquire_ops(ROOT, *read.entries, now=read.now + 5_000, owner=owner, ttl_ms=HOUR)
        await do(journal, *renew_ops(ROOT, fence))

        assert isinstance(await do(journal, *ops), Refused)
    assert isinstance(await do(journal, fence_check(ROOT, fence)), Applied)


async def test_the_beat_of_an_earlier_holder_does_not_count(journal: Journal, owner: Owner) -> None:
    fence = await hold(journal, elsewhere(), 1_000)
    await do(journal, *renew_ops(ROOT, fence))
    await hold(journal, elsewhere(), 1_000, later=5_000)
    lock, beat = (await journal.get_many([keys.lock(ROOT), keys.beat(ROOT)])).entries
    assert lock is not None
    assert beat is not None

    assert holder(lock, replace(beat, updated_at=lock.updated_at + HOUR), lock.updated_at + 1_001) is None


def row(value: JsonValue, *, version: int = 7, at: int = 1_000_000) -> Entry:
    """Return a lock row as a store would."""
    return Entry(keys.lock(ROOT), value, None, version, 1, at, at)


def held_by(owner: Owner, ttl_ms: int, at: int = 1_000_000) -> Entry:
    """Return the row of a lock that is held."""
    op = acquire_ops(ROOT, None, None, now=at, owner=owner, ttl_ms=ttl_ms)[0]
    assert isinstance(op, Create)
    return row(op.value, at=at)


@given(st.integers(1, 10**9), st.integers(-(10**9), 2 * 10**9))
@example(30_000, 30_000)
@example(30_000, 30_001)
@example(30_000, 29_999)
@example(30_000, 1)
def test_the_lock_is_free_after_the_ttl_and_the_error_says_the_seconds_left(ttl_ms: int, age: int) -> None:
    lock = held_by(elsewhere(), ttl_ms)
    owner = new_owner()
    if age > ttl_ms:
        ops = acquire_ops(ROOT, lock, None, now=1_000_000 + age, owner=owner, ttl_ms=5)
        assert [type(op) for op in ops] == [Expect, Replace]
        return
    with pytest.raises(RunBusyError) as busy:
        acquire_ops(ROOT, lock, None, now=1_000_000 + age, owner=owner, ttl_ms=5)

    left = busy.value.retry_after
    assert left >= 1
    assert 1000 * left >= ttl_ms - age  # never told to come too early
    assert left == 1 or 1000 * (left - 1) < ttl_ms - age


def test_the_error_says_who_holds_the_lock_and_how_long_at_most(owner: Owner) -> None:
    with pytest.raises(RunBusyError) as busy:
        acquire_ops(ROOT, held_by(owner, 30_000), None, now=1_002_500, owner=new_owner(), ttl_ms=5)

    assert str(busy.value) == (
        f"run 'order-1' is driven by this very process (pid {os.getpid()}), in another task or thread; its last sign "
        "of life is 2 s old. Without another one it can be taken over in 28 s: wait until that one has ended, and try "
        "again"
    )
    assert busy.value.detail == {"run_id": ROOT, "retry_after": 28, "host": owner.host, "pid": owner.pid}


async def test_a_clock_that_was_set_back_takes_nobodys_lock(owner: Owner) -> None:
    lock = held_by(elsewhere(), 30_000)

    with pytest.raises(RunBusyError, match="clock was set back by 600 s") as busy:
        acquire_ops(ROOT, lock, None, now=1_000_000 - 600_000, owner=owner, ttl_ms=5)

    assert busy.value.retry_after == 630
    assert holder(lock, None, 1_000_000 - 600_000) is not None


# Races --------------------------------------------------------------------------------------------------------------


async def test_s08_of_eight_tasks_that_start_one_run_one_drives(journal: Journal) -> None:
    together = asyncio.Barrier(8)

    async def drive() -> str:
        mine = new_owner()
        register(mine)
        read = await journal.get_many([keys.lock(ROOT), keys.beat(ROOT)])
        await together.wait()
        ops = acquire_ops(ROOT, *read.entries, now=read.now, owner=mine, ttl_ms=HOUR)
        return mine.id if isinstance(await do(journal, *ops), Applied) else ""

    winners = [identity for identity in await asyncio.gather(*(drive() for _ in range(8))) if identity]

    assert len(winners) == 1
    live = await who(journal)
    assert live is not None
    assert live.id == winners[0]
    with pytest.raises(RunBusyError):
        await acquire(journal, new_owner())


async def test_of_eight_tasks_that_take_one_lock_over_one_gets_it(journal: Journal) -> None:
    old = await hold(journal, elsewhere(), 1_000)
    await do(journal, *renew_ops(ROOT, old))
    together = asyncio.Barrier(8)

    async def take() -> int:
        mine = new_owner()
        register(mine)
        read = await journal.get_many([keys.lock(ROOT), keys.beat(ROOT)])
        await together.wait()
        ops = acquire_ops(ROOT, *read.entries, now=read.now + 5_000, owner=mine, ttl_ms=HOUR)
        result = await do(journal, *ops)
        return result.version if isinstance(result, Applied) else 0

    fences = [fence for fence in await asyncio.gather(*(take() for _ in range(8))) if fence]

    assert len(fences) == 1
    assert fences[0] > old
    assert isinstance(await do(journal, fence_check(ROOT, fences[0])), Applied)


# Rows from disk -----------------------------------------------------------------------------------------------------


def _spoilt(**change: JsonValue) -> dict[str, JsonValue]:
    return {"f": 1, "owner": elsewhere().to_json(), "ttl_ms": 1, "released": False, **change}


@pytest.mark.parametrize(
    "value",
    [
        None,
        "text",
        [],
        {},
        {"f": 1},
        _spoilt(owner=None),
        _spoilt(owner={"id": "x"}),
        _spoilt(ttl_ms=0),
        _spoilt(ttl_ms="1"),
        _spoilt(ttl_ms=True),
        _spoilt(released=None),
        _spoilt(f="1"),
    ],
)
@pytest.mark.parametrize(
    "read",
    [
        lambda lock: holder(lock, None, 2_000_000),
        lambda lock: acquire_ops(ROOT, lock, None, now=2_000_000, owner=new_owner(), ttl_ms=1),
    ],
    ids=["holder", "acquire"],
)
def test_a_lock_row_that_cannot_be_read_is_an_error(value: JsonValue, read: Callable[[Entry], object]) -> None:
    with pytest.raises(StoreCorruptError, match="run/order-1/req/lock"):
        read(row(value))


def test_the_lock_of_a_newer_release_is_left_alone() -> None:
    with pytest.raises(JournalFormatError):
        acquire_ops(ROOT, row(_spoilt(f=2)), None, now=2_000_000, owner=new_owner(), ttl_ms=1)


@pytest.mark.parametrize("value", [None, 3, {}, {"fence": "7"}, {"fence": None}])
def test_a_beat_that_cannot_be_read_is_no_sign_of_life(value: JsonValue) -> None:
    lock = held_by(elsewhere(), 30_000)
    beat = Entry(keys.beat(ROOT), value, None, 9, 1, 1_020_000, 1_020_000)

    assert holder(lock, beat, 1_040_000) is None
    assert holder(lock, replace(beat, value={"fence": 7}), 1_040_000) is not None


def test_the_rows_say_no_more_than_they_need() -> None:
    owner = new_owner()
    (create,) = acquire_ops(ROOT, None, None, now=1, owner=owner, ttl_ms=9)
    assert isinstance(create, Create)
    assert json.loads(json.dumps(create.value)) == {"f": 1, "owner": owner.to_json(), "ttl_ms": 9, "released": False}
    assert renew_ops(ROOT, 7)[1] == Put(keys.beat(ROOT), {"f": 1, "fence": 7})
