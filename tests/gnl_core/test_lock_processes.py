"""The run lock between processes that are killed, frozen, and started at the same moment."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from gnl_core import keys
from gnl_core.errors import RunBusyError
from gnl_core.journal import Applied, Journal, Refused, new_batch
from gnl_core.lock import Heartbeat, acquire_ops, fence_check, holder
from gnl_core.owner import Owner, new_owner, register, unregister

ROOT = "order-1"
HOUR = 3_600_000


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def common(request: pytest.FixtureRequest, new_store: Callable[[str], Any]) -> Any:
    """Tell where a store is that any number of processes may open."""
    return new_store(request.param)


@pytest.fixture
def owner() -> Iterator[Owner]:
    """Yield a hold of this process that it really has."""
    mine = new_owner()
    register(mine)
    yield mine
    unregister(mine)


async def acquire(journal: Journal, owner: Owner) -> Applied | Refused:
    """Take the lock as a driver does."""
    read = await journal.get_many([keys.lock(ROOT), keys.beat(ROOT)])
    ops = acquire_ops(ROOT, *read.entries, now=read.now, owner=owner, ttl_ms=HOUR)
    return await journal.apply(ops, batch=new_batch())


async def hold(journal: Journal, owner: Owner) -> int:
    """Take the lock and return its fence."""
    result = await acquire(journal, owner)
    assert isinstance(result, Applied)
    return result.version


async def who(journal: Journal) -> Owner | None:
    """Return who holds the lock."""
    read = await journal.get_many([keys.lock(ROOT), keys.beat(ROOT)])
    return holder(*read.entries, read.now)


def test_a_run_whose_event_loop_was_torn_down_is_taken_over_at_once(common: Any) -> None:
    async def drive() -> int:
        # What an engine does on its way out, whatever the reason: the hold is forgotten, the row is not.
        mine = new_owner()
        register(mine)
        try:
            async with common.open() as storage:
                fence = await hold(storage.runs, mine)
                await Heartbeat(storage.runs, ROOT, fence, HOUR).start()
                return fence
        finally:
            unregister(mine)

    first = asyncio.run(drive())  # returns, though a heartbeat was running

    assert asyncio.run(drive()) > first


DRIVE = """
import asyncio, gnl_core, sys
from gnl_core import keys
from gnl_core.errors import RunBusyError
from gnl_core.journal import Applied, new_batch
from gnl_core.lock import Heartbeat, acquire_ops
from gnl_core.owner import new_owner, register

store, ttl_ms = sys.argv[1], int(sys.argv[2])

async def main():
    async with eval(store) as storage:
        journal = storage.runs
        owner = new_owner()
        register(owner)
        print("ready", flush=True)
        sys.stdin.readline()
        read = await journal.get_many([keys.lock("order-1"), keys.beat("order-1")])
        try:
            ops = acquire_ops("order-1", *read.entries, now=read.now, owner=owner, ttl_ms=ttl_ms)
        except RunBusyError as error:
            print("busy", error.retry_after, flush=True)
            return
        result = await journal.apply(ops, batch=new_batch())
        if not isinstance(result, Applied):
            print("refused", flush=True)
            return
        print("holds", result.version, flush=True)
        fenced = asyncio.Event()
        heartbeat = Heartbeat(journal, "order-1", result.version, ttl_ms, fenced.set)
        await heartbeat.start()
        await fenced.wait()
        print("fenced", heartbeat.fenced, flush=True)
        await heartbeat.stop()

asyncio.run(main())
"""


@contextmanager
def drivers(common: Any, count: int, ttl_ms: int) -> Iterator[list[subprocess.Popen[str]]]:
    """Run programs that wait for one line and then take the lock."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", DRIVE, common.spelled, str(ttl_ms)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(count)
    ]
    try:
        for process in processes:
            assert hear(process) == ["ready"]
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def hear(process: subprocess.Popen[str]) -> list[str]:
    """Return the next line of a program."""
    assert process.stdout is not None
    return process.stdout.readline().split()


def go(process: subprocess.Popen[str]) -> None:
    """Let a program begin."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def freeze(process: subprocess.Popen[str]) -> None:
    """Stop a program, and return once it stands still."""
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)


needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells when a process started")


@needs_linux
def test_a_killed_script_is_taken_over_at_once_whatever_its_ttl(common: Any) -> None:
    with drivers(common, 2, HOUR) as (first, second):
        go(first)
        said, fence = hear(first)
        assert said == "holds"
        first.kill()
        os.waitid(os.P_PID, first.pid, os.WEXITED | os.WNOWAIT)  # dead, and not even reaped

        go(second)
        said, later = hear(second)

    assert said == "holds"
    assert int(later) > int(fence)


@needs_linux
def test_s08_of_four_processes_that_start_one_run_one_drives(common: Any) -> None:
    with drivers(common, 4, HOUR) as processes:
        for process in processes:
            go(process)
        said = [hear(process) for process in processes]

        assert sorted(line[0] == "holds" for line in said) == [False, False, False, True]
        assert all(line[0] in ("holds", "busy", "refused") for line in said)


@needs_linux
async def test_s06_a_frozen_driver_is_taken_over_and_told_so_when_it_wakes(common: Any, owner: Owner) -> None:
    with drivers(common, 1, 1_000) as (process,):
        go(process)
        assert hear(process)[0] == "holds"
        async with common.open() as storage:
            with pytest.raises(RunBusyError) as busy:  # it beats
                await acquire(storage.runs, owner)
            assert busy.value.retry_after == 1

            freeze(process)
            fence = 0
            while not fence:
                try:
                    fence = await hold(storage.runs, owner)
                except RunBusyError:  # stopped is not dead: its ttl has to pass
                    await asyncio.sleep(0.01)

            process.send_signal(signal.SIGCONT)
            assert hear(process) == ["fenced", "True"]
            assert await who(storage.runs) == owner
            assert isinstance(await storage.runs.apply([fence_check(ROOT, fence)], batch=new_batch()), Applied)
