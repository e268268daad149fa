"""A journal in a PostgreSQL database: durable, shared by any number of processes on any number of machines."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from gnl_core.errors import ConfigError, MissingExtraError
from gnl_core.journal.access import Access, check_access, refuse_write
from gnl_core.journal.batches import Span, Step
from gnl_core.journal.durability import DurabilityFinding
from gnl_core.journal.loop_thread import LoopEngine, LoopThread
from gnl_core.journal.port import Applied, Capability, Key, Page, Read, Refused
from gnl_core.journal.postgres_report import SETTINGS, judge
from gnl_core.journal.postgres_state import Options, PostgresStatistics
from gnl_core.journal.state import Clock
from gnl_core.journal.storage import Storage, StoreJournal
from gnl_core.journal.waiting import Held, ask


class _Engine(LoopEngine):
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
        self.store_id: str | None = None
        target = target_of(dsn, schema)
        self.name, self.access = target.name, options.access
        clock = Clock(lambda: 0.0)  # the server's time alone; this only keeps it from running backwards
        make = partial(WriteRows, target, options, clock, statistics)
        super().__init__(LoopThread(target.name, make, abandon=WriteRows.abandon))

    def write(self, work: Callable[..., Any], *arguments: Any) -> Held:
        refuse_write(self.access, self.name)
        return super().write(work, *arguments)

    def open(self) -> str:
        if self.store_id is None:
            self.store_id = str(ask(self.thread, self.rows.opened))
        return self.store_id


class PostgresStorage(Storage):
    """A store in one schema of a PostgreSQL database, for any number of threads, event loops, processes and machines.

    Nothing is connected before the first call; that call makes the schema's tables if they are missing and brings older
    ones up to date. Needs the extra [postgres], PostgreSQL 12 or later, and a database whose encoding is UTF8.

    The connections live on a thread of the storage's own and are made when they are needed. One that the server has
    closed meanwhile, as it does when it restarts or when a connection was idle for long, is replaced by the next call.
    No session is relied upon: there are no prepared statements, no session locks and no search path, so that a pooler
    in transaction mode may stand between. After a fork the child makes connections of its own; both sides may go on.

    Every time in it is the server's. The bytes of what was erased stay in the tables' files until they are written over
    or VACUUM FULL writes the tables anew, and in the write-ahead log until that is recycled or, if it is archived, for
    as long as the archive is kept.

    A context manager, sync and async, that closes it.

    Attributes:
        runs: The journal.
    """

    runs: PostgresJournal

    def __init__(
        self,
        dsn: str,
        *,
        schema: str = "public",
        pool_size: int = 4,
        lock_wait: float = 60.0,
        reconnect_wait: float = 10.0,
        access: Access = "make",
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
            access: 'make' the tables if they are missing; 'write' only where they are; only 'read', for which a role
                does that may do no more than SELECT.

        Raises:
            ConfigError: The dsn or an option is none that can work.
            MissingExtraError: The driver is not installed.
        """
        if type(pool_size) is not int or pool_size < 1:
            raise ConfigError(f"pool_size is {pool_size!r}, must be at least 1")
        for name, seconds in (("lock_wait", lock_wait), ("reconnect_wait", reconnect_wait)):
            if not 0 <= seconds <= 1_000_000:
                raise ConfigError(f"{name} is {seconds!r}, must be 0 to 1,000,000 seconds")
        check_access(access)
        self._engine = _Engine(dsn, schema, Options(pool_size, lock_wait, reconnect_wait, access))
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


class PostgresJournal(StoreJournal[_Engine]):
    """The `Journal` of a `PostgresStorage`; the contract stands at `gnl_core.journal.port.Journal`."""

    @property
    def store_id(self) -> str:
        """UUID made with the schema; blocks while the store is opened for the first time."""
        return self._engine.open()

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Ordered, with blobs, durable; what the server's own settings take from that, `durability_report` tells."""
        return frozenset(("ordered", "blobs", "durable"))

    def _get_many(self, names: list[str], asked: Sequence[Key]) -> Awaitable[Read]:
        return self._engine.read(self._engine.rows.get_many, self._org, names, asked)

    def _scan(self, part: Span) -> Awaitable[Page]:
        return self._engine.read(self._engine.rows.scan, self._org, part)

    def _apply(self, steps: list[Step], batch: int) -> Awaitable[Applied | Refused]:
        return self._engine.write(self._engine.rows.apply, self._org, steps, batch)

    def _delete_prefix(self, part: Span) -> Awaitable[int]:
        return self._engine.write(self._engine.rows.delete_prefix, self._org, part)

    def _now(self) -> Awaitable[int]:
        return self._engine.read(self._engine.rows.now)

    def _scopes(self, after: str | None, limit: int) -> Awaitable[Sequence[str]]:
        return self._engine.read(self._engine.rows.scopes, after, limit)

    def _aclose(self) -> Awaitable[None]:
        return asyncio.to_thread(self._engine.close)
