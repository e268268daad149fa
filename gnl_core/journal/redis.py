"""A journal on a Redis server: for any number of processes and machines, with a bound to be accepted by name."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from gnl_core.errors import ConfigError
from gnl_core.journal.access import Access, check_access, refuse_write
from gnl_core.journal.batches import Span, Step
from gnl_core.journal.durability import DurabilityFinding
from gnl_core.journal.loop_thread import LoopEngine, LoopThread
from gnl_core.journal.port import Applied, Capability, Key, Page, Read, Refused
from gnl_core.journal.redis_replicas import WaitReplicas
from gnl_core.journal.redis_scripts import check_prefix
from gnl_core.journal.redis_session import RedisSession, State
from gnl_core.journal.redis_wire import address_of
from gnl_core.journal.storage import Storage, StoreJournal
from gnl_core.journal.waiting import Held, ask, read


class _Engine(LoopEngine):
    def __init__(self, state: State) -> None:
        self.state = state
        super().__init__(LoopThread(state.address.where, lambda: RedisSession(state)))

    def write(self, work: Callable[..., Any], *arguments: Any) -> Held:
        refuse_write(self.state.access, f"the Redis server {self.state.address.where}")
        return super().write(_opened(work), *arguments)

    def read(self, work: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        return super().read(_opened(work), *arguments)

    def open(self) -> None:
        if self.state.durable is None or self.state.store_id is None:
            ask(self.thread, RedisSession.opened)


def _opened(work: Callable[..., Any]) -> Callable[..., Any]:
    async def call(session: RedisSession, *arguments: Any) -> Any:
        await session.opened()
        return await work(session, *arguments)

    return call


class RedisStorage(Storage):
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

    runs: RedisJournal

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
        access: Access = "make",
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
            access: 'make' the store if it is missing; 'write' only where it is; only 'read'.

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
        check_access(access)
        address = address_of(url, connect_timeout=connect_timeout, timeout=timeout, connections=connections)
        self._engine = _Engine(State(address, check_prefix(prefix), wait_replicas, access))
        self.runs = RedisJournal(self._engine)

    async def durability_report(self) -> Sequence[DurabilityFinding]:
        """Read how the server is set up, and say what each setting means for what was acknowledged.

        Works on servers that the journal refuses, too.

        Raises:
            JournalError: The server cannot be asked.
        """
        findings: Sequence[DurabilityFinding] = await read(self._engine.thread, RedisSession.durability)
        return findings

    def close(self) -> None:
        """Finish what is under way, then close the connections; calls after it raise `StoreUnavailableError`."""
        self._engine.close()


class RedisJournal(StoreJournal[_Engine]):
    """The `Journal` of a `RedisStorage`; the contract stands at `gnl_core.journal.port.Journal`."""

    @property
    def store_id(self) -> str:
        """UUID made with the store; blocks while it is opened for the first time."""
        self._engine.open()
        return self._engine.state.store_id or ""

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Ordered, with blobs; 'durable' where the server syncs each write. Blocks while it is opened at first."""
        self._engine.open()
        if self._engine.state.durable:
            return frozenset(("ordered", "blobs", "durable"))
        return frozenset(("ordered", "blobs"))

    def begin_anew(self) -> None:
        """Take whatever store is at the server from the next call on, made if there is none: for a cache alone."""
        self._engine.state.store_id = None

    def _get_many(self, names: list[str], asked: Sequence[Key]) -> Awaitable[Read]:
        return self._engine.read(RedisSession.get_many, self._org, names, asked)

    def _scan(self, part: Span) -> Awaitable[Page]:
        return self._engine.read(RedisSession.scan, self._org, part)

    def _apply(self, steps: list[Step], batch: int) -> Awaitable[Applied | Refused]:
        return self._engine.write(RedisSession.apply, self._org, steps, batch)

    def _delete_prefix(self, part: Span) -> Awaitable[int]:
        return self._engine.write(RedisSession.delete_prefix, self._org, part)

    def _now(self) -> Awaitable[int]:
        return self._engine.read(RedisSession.now)

    def _scopes(self, after: str | None, limit: int) -> Awaitable[Sequence[str]]:
        return self._engine.read(RedisSession.scopes, after, limit)

    def _aclose(self) -> Awaitable[None]:
        return asyncio.to_thread(self._engine.close)
