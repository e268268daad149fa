"""A journal on a Redis server: for any number of processes and machines, with a bound to be accepted by name."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import weakref
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self, cast

from gnl_core.errors import ConfigError
from gnl_core.journal.batches import check_limit, check_org, name_of, prepare, refuse_scope, span
from gnl_core.journal.durability import DurabilityFinding
from gnl_core.journal.port import Applied, Capability, Key, Op, Page, Read, Refused
from gnl_core.journal.redis_replicas import WaitReplicas
from gnl_core.journal.redis_scripts import check_prefix
from gnl_core.journal.redis_session import RedisSession, State
from gnl_core.journal.redis_thread import LoopThread
from gnl_core.journal.redis_wire import address_of
from gnl_core.journal.waiting import Held, Job


class _Engine:
    """The thread of a storage, and how calls reach it. Stops it when nothing refers to it any more."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.thread = LoopThread(state.address.where, lambda: RedisSession(state))
        weakref.finalize(self, self.thread.stop).atexit = False

    def write(self, work: Callable[..., Any], *arguments: Any) -> Held:
        loop = asyncio.get_running_loop()
        future = Held(loop)
        self.thread.submit(Job(_opened(work), arguments, future, loop))
        return future

    def read(self, work: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        self.thread.submit(Job(_opened(work), arguments, future, loop))
        return future

    def open(self) -> None:
        if self.state.durable is None or self.state.store_id is None:
            future: concurrent.futures.Future[str] = concurrent.futures.Future()
            self.thread.submit(Job(RedisSession.opened, (), future, None))
            future.result()

    def close(self) -> None:
        thread: threading.Thread | None = self.thread.stop()
        if thread is not None:
            thread.join()


def _opened(work: Callable[..., Any]) -> Callable[..., Any]:
    async def call(session: RedisSession, *arguments: Any) -> Any:
        await session.opened()
        return await work(session, *arguments)

    return call


class RedisStorage:
    """A store on a Redis server (or Valkey), for any number of threads, event loops, processes and machines.

    Read this before it holds runs. Redis replicates asynchronously: when a replica takes over, it may miss writes that
    were acknowledged, and a claim that is missing lets an effect happen twice. `accept_async_replication=True` says
    that this is known. `durability_report` tells how a server is set up; appendonly yes, appendfsync always and
    maxmemory-policy noeviction lose nothing that was acknowledged as long as no replica takes over.

    Nothing touches the network before the first call. A batch is one script, whose keys all carry one hash tag, the
    prefix: a store lives in one slot of a cluster, and grows with one node's memory. Keys never expire.

    One thread a storage object holds its connections, so that any event loop may call it. After a fork both sides go
    on, each with connections of its own; a fork waits for the calls that are under way. A server that comes back after
    it was away is used again; one that comes back empty is refused by the storage objects that knew it.

    A context manager, sync and async, that closes it.

    Attributes:
        runs: The journal.
    """

    def __init__(
        self,
        url: str,
        *,
        accept_async_replication: bool = False,
        wait_replicas: WaitReplicas | None = None,
        prefix: str = "gnl",
        connections: int = 8,
        timeout: float = 30.0,
        connect_timeout: float = 5.0,
    ) -> None:
        """Name a store.

        Args:
            url: 'redis://', 'rediss://' (TLS) or 'unix://', as the client redis takes it.
            accept_async_replication: Must be True: see above.
            wait_replicas: Wait for replicas after each batch; None does not.
            prefix: Of the store's keys, 1 to 64 of A-Z a-z 0-9 ._:-; stores of different prefixes know nothing of each
                other.
            connections: Connections at most, at least 1; calls beyond them wait.
            timeout: Seconds to wait for an answer (then `StoreUnknownError`, for a write) and for a free connection
                (then `StoreBusyError`).
            connect_timeout: Seconds to wait for a connection (then `StoreUnavailableError`).

        Raises:
            ConfigError: The replication was not accepted, the URL is none, or an option is out of range. At the first
                call: the server drops keys when its memory is full (maxmemory-policy).
            MissingExtraError: The client is not installed.
        """
        if accept_async_replication is not True:
            raise ConfigError(
                "Redis replicates asynchronously: a fail-over can lose an acknowledged claim, and then an effect may "
                "happen twice. Keep runs in SQLite or Postgres, or say accept_async_replication=True to accept that"
            )
        if wait_replicas is not None and not isinstance(wait_replicas, WaitReplicas):
            raise ConfigError(f"wait_replicas is {wait_replicas!r}, must be a WaitReplicas or None")
        address = address_of(url, connect_timeout=connect_timeout, timeout=timeout, connections=connections)
        self._engine = _Engine(State(address, check_prefix(prefix), wait_replicas))
        self.runs = RedisJournal(self._engine)

    async def durability_report(self) -> Sequence[DurabilityFinding]:
        """Read how the server is set up, and say what each setting means for what was acknowledged.

        Works on servers that the journal refuses, too.

        Raises:
            JournalError: The server cannot be asked.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Sequence[DurabilityFinding]] = loop.create_future()
        self._engine.thread.submit(Job(RedisSession.durability, (), future, loop))
        return await future

    def close(self) -> None:
        """Finish what is under way, then close the connections; calls after it raise `StoreUnavailableError`."""
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


class RedisJournal:
    """The `Journal` of a `RedisStorage`; the contract stands at `gnl_core.journal.port.Journal`."""

    def __init__(self, engine: _Engine, org: str = "") -> None:
        self._engine = engine
        self._org = org

    @property
    def store_id(self) -> str:
        """UUID made with the store; blocks while it is opened for the first time."""
        self._engine.open()
        return self._engine.state.store_id or ""

    @property
    def org(self) -> str:
        """The organisation it is scoped to; '' where it is not."""
        return self._org

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Ordered, with blobs; 'durable' where the server syncs each write. Blocks while it is opened at first."""
        self._engine.open()
        if self._engine.state.durable:
            return frozenset(("ordered", "blobs", "durable"))
        return frozenset(("ordered", "blobs"))

    async def get_many(self, keys: Sequence[Key]) -> Read:
        """Read rows, with their blobs, in the order asked."""
        names = [name_of(key) for key in keys]
        return cast("Read", await self._engine.read(RedisSession.get_many, self._org, names, tuple(keys)))

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
        return cast("Page", await self._engine.read(RedisSession.scan, self._org, part))

    async def apply(self, ops: Sequence[Op], *, batch: int) -> Applied | Refused:
        """Write a batch, all or nothing."""
        steps = prepare(ops, batch)
        return cast("Applied | Refused", await self._engine.write(RedisSession.apply, self._org, steps, batch))

    async def delete_prefix(self, prefix: Key, *, limit: int = 1000) -> int:
        """Delete at most `limit` rows at and below a non-empty prefix."""
        name_of(prefix)
        part = span(prefix, after=None, newer_than=0, reverse=False, limit=limit, max_bytes=1, blobs=False)
        return cast("int", await self._engine.write(RedisSession.delete_prefix, self._org, part))

    async def now(self) -> int:
        """Return the server's clock in milliseconds."""
        return cast("int", await self._engine.read(RedisSession.now))

    def scoped(self, org: str) -> RedisJournal:
        """Return the same store seen by one organisation."""
        if self._org:
            raise refuse_scope("scoped()")
        return RedisJournal(self._engine, check_org(org))

    async def scopes(self, *, after: str | None = None, limit: int = 100) -> Sequence[str]:
        """List organisations that have rows, ascending; '' is the unscoped one."""
        if self._org:
            raise refuse_scope("scopes()")
        check_limit(limit)
        return cast("list[str]", await self._engine.read(RedisSession.scopes, after, limit))

    async def aclose(self) -> None:
        """Close the storage; on a scoped journal, which holds nothing of its own, do nothing."""
        if not self._org:
            await asyncio.to_thread(self._engine.close)
