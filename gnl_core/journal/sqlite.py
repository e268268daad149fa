"""A journal in one SQLite file: durable, shared by any number of processes on one machine."""

from __future__ import annotations

import asyncio
import os
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from gnl_core.errors import ConfigError
from gnl_core.journal import waiting
from gnl_core.journal.batches import Span, Step
from gnl_core.journal.durability import DurabilityFinding
from gnl_core.journal.port import Applied, Capability, Key, Page, Read, Refused
from gnl_core.journal.sqlite_open import Durability, target_of
from gnl_core.journal.sqlite_rows import Rows
from gnl_core.journal.sqlite_thread import Reader, Writer
from gnl_core.journal.sqlite_write import WriteRows
from gnl_core.journal.state import Clock, Statistics
from gnl_core.journal.storage import Storage, StoreJournal
from gnl_core.journal.waiting import Held


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
        return waiting.write(self.writer, work, *arguments)

    def read(self, work: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        return waiting.read(self.reader, work, *arguments)

    def open(self) -> str:
        if self.store_id is None:
            self.store_id = str(waiting.ask(self.reader, Rows.opened))
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


_FULL = "What is acknowledged to this program is on the disk, and survives a power cut."
_NORMAL = (
    "A power cut may lose the batches that were acknowledged last, and their effects would run again; a crash of the "
    "process alone loses none. Open the journal with durability='full', the default."
)


class SqliteStorage(Storage):
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

    runs: SqliteJournal

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

    async def durability_report(self) -> tuple[DurabilityFinding, ...]:
        """Return what this object's way to sync means; other programs choose their own. It asks nothing of the file."""
        if self._engine.target.durability == "full":
            return (DurabilityFinding(setting="synchronous", value="FULL", level="ok", meaning=_FULL),)
        return (DurabilityFinding(setting="synchronous", value="NORMAL", level="fault", meaning=_NORMAL),)

    def close(self) -> None:
        """Finish what is queued, then close the file; calls after it raise `StoreUnavailableError`."""
        self._engine.close()


class SqliteJournal(StoreJournal[_Engine]):
    """The `Journal` of a `SqliteStorage`; the contract stands at `gnl_core.journal.port.Journal`."""

    @property
    def store_id(self) -> str:
        """UUID made with the file; blocks while the file is opened for the first time."""
        return self._engine.open()

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Ordered, with blobs; 'durable' with durability 'full' alone."""
        if self._engine.target.durability == "full":
            return frozenset(("ordered", "blobs", "durable"))
        return frozenset(("ordered", "blobs"))

    def _get_many(self, names: list[str], asked: Sequence[Key]) -> Awaitable[Read]:
        return self._engine.read(Rows.get_many, self._org, names, asked)

    def _scan(self, part: Span) -> Awaitable[Page]:
        return self._engine.read(Rows.scan, self._org, part)

    def _apply(self, steps: list[Step], batch: int) -> Awaitable[Applied | Refused]:
        return self._engine.write(WriteRows.apply, self._org, steps, batch)

    def _delete_prefix(self, part: Span) -> Awaitable[int]:
        return self._engine.write(WriteRows.delete_prefix, self._org, part)

    def _now(self) -> Awaitable[int]:
        return self._engine.now()

    def _scopes(self, after: str | None, limit: int) -> Awaitable[Sequence[str]]:
        return self._engine.read(Rows.scopes, after, limit)

    def _aclose(self) -> Awaitable[None]:
        return asyncio.to_thread(self._engine.close)
