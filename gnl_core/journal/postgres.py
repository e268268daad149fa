"""A journal in a PostgreSQL database: durable, shared by any number of processes on any number of machines."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import weakref
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast

from gnl_core.errors import ConfigError, MissingExtraError
from gnl_core.journal.batches import check_limit, check_org, name_of, prepare, refuse_scope, span
from gnl_core.journal.durability import DurabilityFinding
from gnl_core.journal.port import Applied, Capability, Key, Op, Page, Read, Refused
from gnl_core.journal.postgres_report import SETTINGS, judge
from gnl_core.journal.postgres_state import Options, PostgresStatistics
from gnl_core.journal.postgres_thread import LoopThread
from gnl_core.journal.state import Clock
from gnl_core.journal.waiting import Held, Job

if TYPE_CHECKING:
    from collections.abc import Callable


class _Engine:
    """The thread of a storage, and how calls reach it. Stops it when nothing refers to it any more."""

    def __init__(self, dsn: str, schema: str, options: Options) -> None:
        try:
            from gnl_core.journal.postgres_target import target_of  # noqa: PLC0415 - the driver comes with an extra
            from gnl_core.journal.postgres_write import WriteRows  # noqa: PLC0415 - ditto
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "psycopg":
                raise
            raise MissingExtraError("PostgresStorage", "postgres") from error
        self.rows = WriteRows
        self.statistics = statistics = PostgresStatistics()
        target = target_of(dsn, schema)
        clock = Clock(lambda: 0.0)  # the server's time alone; this only keeps it from running backwards
        self.thread = LoopThread(target.name, lambda: WriteRows(target, options, clock, statistics))
        self.store_id: str | None = None
        weakref.finalize(self, self.thread.stop).atexit = False

    def write(self, work: Callable[..., Any], *arguments: Any) -> Held:
        loop = asyncio.get_running_loop()
        future = Held(loop)
        self.thread.submit(Job(work, arguments, future, loop))
        return future

    def read(self, work: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        self.thread.submit(Job(work, arguments, future, loop))
        return future

    def open(self) -> str:
        if self.store_id is None:
            future: concurrent.futures.Future[str] = concurrent.futures.Future()
            self.thread.submit(Job(self.rows.opened, (), future, None))
            self.store_id = future.result()
        return self.store_id

    def close(self) -> None:
        thread = self.thread.stop()
        if thread is not None and thread is not threading.current_thread():
            thread.join()


class PostgresStorage:
    """A store in one schema of a PostgreSQL database, for any number of threads, event loops, processes and machines.

    Nothing is connected before the first call; that call makes the schema's tables if they are missing and brings older
    ones up to date. Needs the extra [postgres], PostgreSQL 12 or later, and a database whose encoding is UTF8.

    The connections live on a thread of the storage's own and are made when they are needed. One that the server has
    closed meanwhile, as it does when it restarts or when a connection was idle for long, is replaced by the next call.
    No session is relied upon: there are no prepared statements, no session locks and no search path, so that a pooler
    in transaction mode may stand between. After a fork the child makes connections of its own; both sides may go on.

    Every time in it is the server's. What was erased stays in dead rows until VACUUM, and in the write-ahead log until
    that is recycled or, if it is archived, for as long as the archive is kept.

    A context manager, sync and async, that closes it.

    Attributes:
        runs: The journal.
    """

    def __init__(
        self,
        dsn: str,
        *,
        schema: str = "public",
        pool_size: int = 4,
        lock_wait: float = 60.0,
        reconnect_wait: float = 10.0,
    ) -> None:
        """Name a store.

        Args:
            dsn: 'postgresql://user@host/database' or 'host=… dbname=…'; whatever libpq reads, also from its environment
                variables and password file.
            schema: Of the store's tables; made if it is missing. Several stores in one database have several schemas.
            pool_size: Connections at most, at least 1. Calls beyond them wait for a free one.
            lock_wait: Seconds to wait for a free connection, and for rows that others hold, before `StoreBusyError`.
            reconnect_wait: Seconds to wait for a server that was reached before and is away, as while it restarts,
                before `StoreUnavailableError`. A server that was never reached is not waited for.

        Raises:
            ConfigError: The dsn or an option is none that can work.
            MissingExtraError: The driver is not installed.
        """
        if type(pool_size) is not int or pool_size < 1:
            raise ConfigError(f"pool_size is {pool_size!r}, must be at least 1")
        for name, seconds in (("lock_wait", lock_wait), ("reconnect_wait", reconnect_wait)):
            if not 0 <= seconds <= 1_000_000:
                raise ConfigError(f"{name} is {seconds!r}, must be 0 to 1,000,000 seconds")
        self._engine = _Engine(dsn, schema, Options(pool_size, lock_wait, reconnect_wait))
        self.runs = PostgresJournal(self._engine)

    @property
    def statistics(self) -> PostgresStatistics:
        """What this object has done so far: batches, commits, reads, rows, bytes, retries, lost connections."""
        return self._engine.statistics.copy()

    async def durability_report(self) -> tuple[DurabilityFinding, ...]:
        """Return what the server's settings mean for batches that were acknowledged.

        Raises:
            JournalError: The server cannot be asked.
        """
        rows = await self._engine.read(self._engine.rows.settings, SETTINGS)
        return judge(dict(rows))

    def close(self) -> None:
        """Finish what was asked, then close the connections; calls after it raise `StoreUnavailableError`."""
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


class PostgresJournal:
    """The `Journal` of a `PostgresStorage`; the contract stands at `gnl_core.journal.port.Journal`."""

    def __init__(self, engine: _Engine, org: str = "") -> None:
        self._engine = engine
        self._org = org

    @property
    def store_id(self) -> str:
        """UUID made with the schema; blocks while the store is opened for the first time."""
        return self._engine.open()

    @property
    def org(self) -> str:
        """The organisation it is scoped to; '' where it is not."""
        return self._org

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Ordered, with blobs, durable; what the server's own settings take from that, `durability_report` tells."""
        return frozenset(("ordered", "blobs", "durable"))

    async def get_many(self, keys: Sequence[Key]) -> Read:
        """Read rows, with their blobs, in the order asked."""
        names = [name_of(key) for key in keys]
        return cast("Read", await self._engine.read(self._engine.rows.get_many, self._org, names, tuple(keys)))

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
        return cast("Page", await self._engine.read(self._engine.rows.scan, self._org, part))

    async def apply(self, ops: Sequence[Op], *, batch: int) -> Applied | Refused:
        """Write a batch, all or nothing."""
        steps = prepare(ops, batch)
        return cast("Applied | Refused", await self._engine.write(self._engine.rows.apply, self._org, steps, batch))

    async def delete_prefix(self, prefix: Key, *, limit: int = 1000) -> int:
        """Delete at most `limit` rows at and below a non-empty prefix."""
        name_of(prefix)
        part = span(prefix, after=None, newer_than=0, reverse=False, limit=limit, max_bytes=1, blobs=False)
        return cast("int", await self._engine.write(self._engine.rows.delete_prefix, self._org, part))

    async def now(self) -> int:
        """Return the server's clock in milliseconds."""
        return cast("int", await self._engine.read(self._engine.rows.now))

    def scoped(self, org: str) -> PostgresJournal:
        """Return the same store seen by one organisation."""
        if self._org:
            raise refuse_scope("scoped()")
        return PostgresJournal(self._engine, check_org(org))

    async def scopes(self, *, after: str | None = None, limit: int = 100) -> Sequence[str]:
        """List organisations that have rows, ascending; '' is the unscoped one."""
        if self._org:
            raise refuse_scope("scopes()")
        check_limit(limit)
        return cast("list[str]", await self._engine.read(self._engine.rows.scopes, after, limit))

    async def aclose(self) -> None:
        """Close the storage; on a scoped journal, which holds nothing of its own, do nothing."""
        if not self._org:
            await asyncio.to_thread(self._engine.close)
