"""A journal in one SQLite file: durable, shared by any number of processes on one machine."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self, cast

from gnl_core.errors import ConfigError
from gnl_core.journal.batches import check_limit, check_org, name_of, prepare, refuse_scope, span
from gnl_core.journal.port import Applied, Capability, Key, Op, Page, Read, Refused
from gnl_core.journal.sqlite_open import Durability, target_of
from gnl_core.journal.sqlite_rows import Rows
from gnl_core.journal.sqlite_thread import Reader, Writer
from gnl_core.journal.sqlite_write import WriteRows
from gnl_core.journal.state import Clock, Statistics
from gnl_core.journal.waiting import Held, Job


class _Engine:
    """The two threads of a storage, and how calls reach them. Stops them when nothing refers to it any more."""

    def __init__(
        self, path: str | os.PathLike[str], durability: Durability, lock_wait: float, seconds: Callable[[], float]
    ) -> None:
        self.target = target_of(path, durability)
        self.statistics = Statistics()
        self.clock = Clock(seconds)
        name = self.target.database.rpartition("/")[2]
        self.writer = Writer(f"gnl-writer {name}", self.target, lock_wait, self.clock, self.statistics)
        self.reader = Reader(f"gnl-reader {name}", self.target, lock_wait, self.clock, self.statistics)
        self.store_id: str | None = None
        weakref.finalize(self, _stop, self.writer, self.reader).atexit = False

    def write(self, work: Callable[..., Any], *arguments: Any) -> Held:
        loop = asyncio.get_running_loop()
        future = Held(loop)
        self.writer.submit(Job(work, arguments, future, loop))
        return future

    def read(self, work: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        self.reader.submit(Job(work, arguments, future, loop))
        return future

    def open(self) -> str:
        if self.store_id is None:
            future: concurrent.futures.Future[str] = concurrent.futures.Future()
            self.reader.submit(Job(Rows.opened, (), future, None))
            self.store_id = future.result()
        return self.store_id

    async def now(self) -> int:
        if self.store_id is None:
            self.store_id = await self.read(Rows.opened)
        self.reader.check_open()
        return self.clock.read()

    def close(self) -> None:
        for thread in _stop(self.writer, self.reader):
            thread.join()


def _stop(*workers: Writer | Reader) -> list[threading.Thread]:
    return [thread for worker in workers if (thread := worker.stop()) is not None]


class SqliteStorage:
    """A store in one SQLite file, for any number of threads, event loops and processes of one machine.

    Nothing touches the disk before the first call; that call makes the file if it is missing (its folder must exist)
    and brings an older schema up to date. Each storage object has a writing and a reading thread with connections of
    their own. Two objects on one path are as safe as two processes, and share no commits: make one a process.

    After a fork the child opens the file anew at its first call; both sides may go on. Network file systems cannot hold
    the file. No other code of the process should open and close the file except through SQLite: POSIX drops a process's
    locks on a file when any descriptor of it is closed.

    A context manager, sync and async, that closes it.

    Attributes:
        runs: The journal.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        durability: Durability = "full",
        *,
        lock_wait: float = 60.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Name a store.

        Args:
            path: The file; or a 'file:' URI, of which 'mode=ro' allows reads only.
            durability: 'full' syncs the log with each commit: what was acknowledged survives a power cut. 'normal'
                syncs only now and then and costs this: a power cut may lose the last acknowledged batches, each of them
                whole; a crash of the process alone loses none.
            lock_wait: Seconds to wait for other processes' transactions before `StoreBusyError`.
            clock: Seconds since the epoch; the store's clock never runs backwards, whatever this returns.

        Raises:
            ConfigError: The path names no file, or an option is out of range.
        """
        if not lock_wait >= 0:
            raise ConfigError(f"lock_wait is {lock_wait!r}, must be 0 or more seconds")
        self._engine = _Engine(path, durability, lock_wait, clock)
        self.runs = SqliteJournal(self._engine)

    @property
    def statistics(self) -> Statistics:
        """What this object has done so far: batches, commits, reads, rows, bytes."""
        return self._engine.statistics.copy()

    def close(self) -> None:
        """Finish what is queued, then close the file; calls after it raise `StoreUnavailableError`."""
        self._engine.close()

    async def aclose(self) -> None:
        """Do what `close` does, without blocking the loop."""
        await self.runs.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class SqliteJournal:
    """The `Journal` of a `SqliteStorage`; the contract stands at `gnl_core.journal.port.Journal`."""

    def __init__(self, engine: _Engine, org: str = "") -> None:
        self._engine = engine
        self._org = org

    @property
    def store_id(self) -> str:
        """UUID made with the file; blocks while the file is opened for the first time."""
        return self._engine.open()

    @property
    def org(self) -> str:
        """The organisation it is scoped to; '' where it is not."""
        return self._org

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Ordered, with blobs; 'durable' with durability 'full' alone."""
        if self._engine.target.durability == "full":
            return frozenset(("ordered", "blobs", "durable"))
        return frozenset(("ordered", "blobs"))

    async def get_many(self, keys: Sequence[Key]) -> Read:
        """Read rows, with their blobs, in the order asked."""
        names = [name_of(key) for key in keys]
        return cast("Read", await self._engine.read(Rows.get_many, self._org, names, tuple(keys)))

    async def scan(
        self,
        prefix: Key,
        *,
        after: Key | None = None,
        newer_than: int = 0,
        reverse: bool = False,
        limit: int = 500,
        max_bytes: int = 4 << 20,
        blobs: bool = False,
    ) -> Page:
        """Read one page of the rows at and below `prefix`."""
        part = span(
            prefix,
            after=after,
            newer_than=newer_than,
            reverse=reverse,
            limit=limit,
            max_bytes=max_bytes,
            blobs=blobs,
        )
        return cast("Page", await self._engine.read(Rows.scan, self._org, part))

    async def apply(self, ops: Sequence[Op], *, batch: int) -> Applied | Refused:
        """Write a batch, all or nothing."""
        steps = prepare(ops, batch)
        return cast("Applied | Refused", await self._engine.write(WriteRows.apply, self._org, steps, batch))

    async def delete_prefix(self, prefix: Key, *, limit: int = 1000) -> int:
        """Delete at most `limit` rows at and below a non-empty prefix."""
        name_of(prefix)
        part = span(prefix, after=None, newer_than=0, reverse=False, limit=limit, max_bytes=1, blobs=False)
        return cast("int", await self._engine.write(WriteRows.delete_prefix, self._org, part))

    async def now(self) -> int:
        """Return the store's clock in milliseconds."""
        return await self._engine.now()

    def scoped(self, org: str) -> SqliteJournal:
        """Return the same store seen by one organisation."""
        if self._org:
            raise refuse_scope("scoped()")
        return SqliteJournal(self._engine, check_org(org))

    async def scopes(self, *, after: str | None = None, limit: int = 100) -> Sequence[str]:
        """List organisations that have rows, ascending; '' is the unscoped one."""
        if self._org:
            raise refuse_scope("scopes()")
        check_limit(limit)
        return cast("list[str]", await self._engine.read(Rows.scopes, after, limit))

    async def aclose(self) -> None:
        """Close the storage; on a scoped journal, which holds nothing of its own, do nothing."""
        if not self._org:
            await asyncio.to_thread(self._engine.close)
