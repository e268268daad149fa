"""What is read from a PostgreSQL store, one statement a call. Runs on the store's own thread."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import psycopg

from gnl_core.errors import JournalFormatError, StoreCorruptError, StoreUnavailableError
from gnl_core.journal.batches import Span
from gnl_core.journal.port import Entry, Key, Page, Read
from gnl_core.journal.postgres_open import check_format, prepare
from gnl_core.journal.postgres_pool import Connection, Connections
from gnl_core.journal.postgres_sql import JSON_TEXT, ROW_FORMAT, statements
from gnl_core.journal.postgres_state import Options, PostgresStatistics
from gnl_core.journal.postgres_target import (
    AGAIN,
    RACED,
    Target,
    busy_error,
    is_lost,
    is_poolers,
    lost_error,
    translate,
    unknown_error,
)
from gnl_core.journal.state import Clock
from gnl_core.journal.values import from_text, key_of

Row: TypeAlias = tuple[Any, ...]
_Answer = TypeVar("_Answer")

MOST = 1 << 62
"""Bound of what is asked as a bigint."""

GRACE_S = 15.0
"""Seconds beyond the wait for locks after which a server that says nothing is given up."""
_MANY = 32  # keys of a read, beyond which each is looked up by itself
_MOST_LOSSES = 4  # connections that a call may lose in a row before it gives up
_LONGEST_NAP_S = 0.01
_FIRST_NAP_S, _LONGEST_WAIT_S = 0.02, 0.5  # while a pooler waits for its server


@dataclass(slots=True)
class Attempt:
    """One try of a call.

    Attributes:
        until: Time of `time.monotonic` until which locks are waited for.
        committing: Whether COMMIT may have been sent: whoever loses the connection then does not know what stands.
    """

    until: float
    committing: bool = False

    @property
    def patience_ms(self) -> int:
        """Milliseconds for which locks are waited for from now on, at least 1."""
        return max(1, int((self.until - time.monotonic()) * 1000))


class Rows:
    """The server, as one store object sees it.

    Attributes:
        target: Where it is.
        store_id: UUID of the store; '' until it was opened.
    """

    def __init__(self, target: Target, options: Options, clock: Clock, statistics: PostgresStatistics) -> None:
        self.target = target
        self.store_id = ""
        self._options = options
        self._clock = clock
        self._statistics = statistics
        self._sql = statements(target)
        self._pool = Connections(target, options.pool_size, options.lock_wait, options.reconnect_wait)
        self._opening = asyncio.Lock()

    async def close(self) -> None:
        """Close the connections."""
        await self._pool.close()

    def abandon(self) -> None:
        """In a forked child: let go of them."""
        self._pool.abandon()
        self._clock.reset_lock()

    async def opened(self) -> str:
        """Return the store's id."""
        await self.select(self._sql.opened, ())
        return self.store_id

    async def now(self) -> int:
        """Return the server's time in milliseconds."""
        rows = await self.select(self._sql.opened, ())
        return self._clock.read(rows[0][2])

    async def get_many(self, org: str, names: list[str], asked: Sequence[Key]) -> Read:
        """Read rows in the order asked, from one point in time."""
        sql = self._sql.get_more if len(names) > _MANY else self._sql.get_many
        rows = await self.select(sql, (org, " ".join(names)))
        by_name = dict(zip(names, asked, strict=True))
        found = {row[3]: row[3:] for row in rows if row[3] is not None}
        entries = tuple(entry_of(found[name], by_name[name]) if name in found else None for name in names)
        self._statistics.reads += 1
        self._statistics.rows_read += len(found)
        return Read(entries, self._clock.read(_latest(rows[0][2], entries)))

    async def scan(self, org: str, part: Span) -> Page:
        """Read one page from one point in time."""
        newer = [part.newer_than] if part.newer_than else []
        limit, most = min(part.limit, MOST), min(part.max_bytes, MOST)
        below = [org, part.low, part.high, *newer, limit + 1]
        own = [] if part.own is None else [org, part.own, *newer]
        sql = self._sql.page(own=bool(own), newer=bool(newer), reverse=part.reverse, blobs=part.blobs)
        rows = await self.select(sql, (limit, most, *below, *own, limit + 1))
        found = sorted((row[3:] for row in rows if row[3] is not None), key=_name, reverse=part.reverse)
        entries = tuple(entry_of(row, key_of(row[0])) for row in found if row[9])
        self._statistics.scans += 1
        self._statistics.rows_read += len(entries)
        now = self._clock.read(_latest(rows[0][2], entries))
        return Page(entries, entries[-1].key if len(entries) < len(found) else None, now)

    async def scopes(self, after: str | None, limit: int) -> list[str]:
        """List organisations that have rows."""
        rows = await self.select(self._sql.scopes, (after, after, min(limit, MOST)))
        return sorted(row[3] for row in rows if row[3] is not None)

    async def settings(self, sql: bytes) -> list[Row]:
        """Return the rows of a statement that reads no table of the store's."""
        return await self.again(lambda connection, _: self._fetch(connection, sql, ()))

    # Beneath ---------------------------------------------------------------------------------------------------------

    async def select(self, sql: bytes, parameters: tuple[Any, ...]) -> list[Row]:
        """Return all rows of one statement, of which each begins with what `check_head` reads."""
        rows = await self.again(lambda connection, _: self._fetch(connection, sql, parameters))
        self.check_head(rows[0] if rows else None)
        return rows

    async def _fetch(self, connection: Connection, sql: bytes, parameters: tuple[Any, ...]) -> list[Row]:
        with self.deadline(connection):
            cursor = connection.cursor(binary=True)
            await cursor.execute(sql, parameters)
            return await cursor.fetchall()

    @contextlib.contextmanager
    def deadline(self, connection: Connection) -> Iterator[None]:
        """Bound one exchange with the server, which waits for no lock longer than it was told.

        Raises:
            TimeoutError: It said nothing; the connection is dead.
        """
        over = False

        def hang_up() -> None:
            # Not by a cancellation: the driver would first ask the silent server to cancel, and wait for its answer.
            nonlocal over
            over = True
            with (
                contextlib.suppress(OSError, psycopg.Error),
                socket.fromfd(connection.fileno(), socket.AF_INET, socket.SOCK_STREAM) as line,
            ):
                line.shutdown(socket.SHUT_RDWR)

        timer = asyncio.get_running_loop().call_later(self._options.lock_wait + GRACE_S, hang_up)
        try:
            yield
        except psycopg.Error as error:
            if over:
                raise TimeoutError("the server does not answer") from error
            raise
        finally:
            timer.cancel()

    async def again(self, attempt: Callable[[Connection, Attempt], Awaitable[_Answer]]) -> _Answer:
        """Run an attempt until it comes to an end that others, or a dead connection, have not spoilt.

        Raises:
            StoreBusyError: Others spoilt it for as long as they are waited for.
            StoreUnknownError: The connection was lost while it committed.
            JournalError: Whatever else the server said.
        """
        began = time.monotonic()
        until = began + self._options.lock_wait
        losses, nap = 0, _FIRST_NAP_S
        while True:
            this = Attempt(until)
            try:
                async with self._pool.connection(until) as connection:
                    if not self.store_id:
                        await self._open(connection, this)
                    return await attempt(connection, this)
            except psycopg.Error as error:
                if not is_lost(error):
                    await self._spoilt(error, until)
                    continue
                if this.committing:
                    raise unknown_error(self.target, error) from error
                losses += 1
                left = self._options.reconnect_wait - (time.monotonic() - began)
                if self.store_id and is_poolers(error) and nap < left:
                    await asyncio.sleep(nap * random.uniform(0.5, 1))  # noqa: S311 - as where connections are made
                    nap = min(nap * 2, _LONGEST_WAIT_S)
                elif losses >= _MOST_LOSSES:
                    raise lost_error(self.target, error) from error
            except TimeoutError as error:
                raise (unknown_error if this.committing else lost_error)(self.target, error) from error
            self._statistics.losses += 1
            await self._pool.drop_idle()

    async def _spoilt(self, error: psycopg.Error, until: float) -> None:
        """Return when the same may be tried again."""
        if error.sqlstate not in (*AGAIN, RACED):
            raise translate(error, self.target) from error
        if time.monotonic() >= until:
            raise busy_error(
                self.target, self._options.lock_wait, "others wrote the same rows again and again"
            ) from error
        self._statistics.retries += 1
        await asyncio.sleep(random.uniform(0, _LONGEST_NAP_S))  # noqa: S311 - so that two who retry do not march in step

    async def _open(self, connection: Connection, this: Attempt) -> None:
        async with self._opening:
            if not self.store_id:
                with self.deadline(connection):
                    self.store_id = await prepare(
                        connection, self.target, self._options.access, patience_ms=this.patience_ms
                    )

    def check_head(self, row: Row | None) -> None:
        """Check that it is still the store that was opened, in a form that this release knows.

        Raises:
            StoreUnavailableError: The tables were made anew: another store.
            JournalFormatError: A newer release has migrated them meanwhile.
        """
        if row is None or row[0] != self.store_id:
            raise StoreUnavailableError(
                f"{self.target.name} was replaced by another store while it was in use; nothing was written. Open "
                "that one as a new storage"
            )
        check_format(row[1], self.target)


def entry_of(row: Row, key: Key) -> Entry:
    """Return a row as it was written.

    Raises:
        JournalFormatError: A newer release wrote it.
        StoreCorruptError: Its value is no JSON.
    """
    name, version, batch, created, updated, form, codec, text, blob = row[:9]
    if form != ROW_FORMAT or codec != JSON_TEXT:
        raise JournalFormatError(
            f"the row {name} has format {form!r} and codec {codec!r}, this release reads {ROW_FORMAT} and "
            f"{JSON_TEXT}: update gnl-semantic",
            key=name,
        )
    if version < 1 or batch < 0:
        raise StoreCorruptError(f"the row {name} has version {version} and tag {batch}; run `gnl doctor`", key=name)
    return Entry(key, from_text(name, text), blob, version, batch, created, updated)


def _latest(now: int, entries: Sequence[Entry | None]) -> int:
    return max([now, *(entry.updated_at for entry in entries if entry is not None)])


def _name(row: Row) -> str:
    return str(row[0])
