"""The connections of a PostgreSQL store: at most so many, made when needed, thrown away when they broke.

A pool of our own, since a caller must be told two things apart that look alike to one who waits for a connection: all
are in use (`StoreBusyError`), or the server is away (`StoreUnavailableError`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import time
from collections.abc import AsyncIterator
from typing import Any, TypeAlias

import psycopg
from psycopg.pq import TransactionStatus

from gnl_core.journal.postgres_target import Target, busy_error, lost_error

Connection: TypeAlias = "psycopg.AsyncConnection[tuple[Any, ...]]"

_CLEAN_S = 5.0  # for a rollback; who does not answer by then is thrown away
_LONGEST_NAP_S = 0.5


@contextlib.asynccontextmanager
async def pipelined(connection: Connection) -> AsyncIterator[None]:
    """Send statements in one exchange with the server.

    Whoever leaves the driver's own pipeline by an error has each error that it drags along written to the log, and to
    lose a race is no fault. So the first one waits outside of it.

    Raises:
        psycopg.Error: The first error of the statements.
    """
    first: psycopg.Error | None = None
    try:
        async with connection.pipeline():
            try:
                yield
            except psycopg.Error as error:
                first = error
    except psycopg.Error:
        if first is None:
            raise
    if first is not None:
        raise first


class Connections:
    """Used by one event loop, which `open` is called on.

    Attributes:
        made: Connections made so far.
    """

    def __init__(self, target: Target, size: int, wait: float, reconnect_wait: float) -> None:
        self._target = target
        self._wait = wait
        self._reconnect_wait = reconnect_wait
        self._permits = asyncio.Semaphore(size)
        self._idle: list[Connection] = []
        self._open: dict[Connection, int] = {}
        self.made = 0

    @contextlib.asynccontextmanager
    async def connection(self, until: float) -> AsyncIterator[Connection]:
        """Lend a connection in autocommit mode, outside any transaction; who broke it hands it back all the same.

        Args:
            until: Time of `time.monotonic` until which a free one is waited for.

        Raises:
            StoreBusyError: All stayed in use.
            StoreUnavailableError: The server cannot be reached.
        """
        try:
            async with asyncio.timeout_at(until):
                await self._permits.acquire()
        except TimeoutError:
            raise busy_error(self._target, self._wait, "all connections of the pool stayed in use") from None
        try:
            connection = self._idle.pop() if self._idle else await self._connect()
            try:
                yield connection
            finally:
                await self._take_back(connection)
        finally:
            self._permits.release()

    async def drop_idle(self) -> None:
        """Close what is not in use: what broke one connection has mostly broken its neighbours."""
        idle, self._idle = self._idle, []
        for connection in idle:
            await self._discard(connection)

    async def close(self) -> None:
        """Close all connections, none of which is in use any more."""
        for connection in list(self._open):
            await self._discard(connection)

    def abandon(self) -> None:
        """In a forked child: let go of the parent's sockets without a word to the server.

        Closing a connection would tell the server to end the parent's session; keeping the socket would hide the
        parent's death from the server, and with it keep locks.
        """
        nowhere = os.open(os.devnull, os.O_RDWR)
        for socket in self._open.values():
            with contextlib.suppress(OSError):
                os.dup2(nowhere, socket)
        os.close(nowhere)

    async def _connect(self) -> Connection:
        # Who has never reached the server is told at once, since the address may be wrong; a server that was there
        # before is starting again, or another one is taking over.
        began, nap = time.monotonic(), 0.02
        while True:
            try:
                connection = await psycopg.AsyncConnection.connect(
                    self._target.conninfo, autocommit=True, prepare_threshold=None
                )
            except (psycopg.Error, UnicodeError) as error:  # the second of a host that no name can be
                until = began + (self._reconnect_wait if self.made else 0)
                if isinstance(error, UnicodeError) or time.monotonic() + nap >= until:
                    raise lost_error(self._target, error) from error
                await asyncio.sleep(nap * random.uniform(0.5, 1))  # noqa: S311 - so that processes do not march in step
                nap = min(nap * 2, _LONGEST_NAP_S)
                if self._idle:  # the server may take no more connections than there are
                    return self._idle.pop()
                continue
            self.made += 1
            self._open[connection] = connection.fileno()
            return connection

    async def _take_back(self, connection: Connection) -> None:
        if not connection.broken and not connection.closed:
            with contextlib.suppress(psycopg.Error, TimeoutError):
                async with asyncio.timeout(_CLEAN_S):
                    if connection.info.transaction_status != TransactionStatus.IDLE:
                        await connection.execute("ROLLBACK")
                if connection.info.transaction_status == TransactionStatus.IDLE:
                    self._idle.append(connection)
                    return
        await self._discard(connection)

    async def _discard(self, connection: Connection) -> None:
        self._open.pop(connection, None)
        with contextlib.suppress(psycopg.Error):
            await connection.close()
