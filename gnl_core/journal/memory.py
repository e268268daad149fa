"""A journal in memory: for tests, and for runs that may end with their process."""

from __future__ import annotations

import threading
import time
import uuid
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from gnl_core.errors import StoreUnavailableError
from gnl_core.journal.batches import (
    Ruling,
    Span,
    Step,
    check_limit,
    check_org,
    name_of,
    prepare,
    refuse_scope,
    rule,
    span,
)
from gnl_core.journal.port import Applied, Capability, Entry, Key, Op, Page, Read, Refused
from gnl_core.journal.values import from_text, size_of, to_text


@dataclass(frozen=True, slots=True)
class _Row:
    key: Key
    text: str
    blob: bytes | None
    version: int
    batch: int
    created_at: int
    updated_at: int

    def entry(self, name: str, *, blobs: bool) -> Entry:
        value = from_text(name, self.text)
        blob = self.blob if blobs else None
        return Entry(self.key, value, blob, self.version, self.batch, self.created_at, self.updated_at)


@dataclass(slots=True)
class _Scope:
    rows: dict[str, _Row] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)  # of the rows, ascending

    def write(self, name: str, row: _Row) -> None:
        if name not in self.rows:
            insort(self.names, name)
        self.rows[name] = row

    def remove(self, name: str) -> bool:
        if self.rows.pop(name, None) is None:
            return False
        del self.names[bisect_left(self.names, name)]
        return True

    def walk(self, part: Span) -> Iterator[str]:
        at = [part.own] if part.own is not None and part.own in self.rows else []
        start, end = bisect_left(self.names, part.low), bisect_left(self.names, part.high)
        if part.reverse:
            yield from (self.names[index] for index in range(end - 1, start - 1, -1))
            yield from at
        else:
            yield from at
            yield from (self.names[index] for index in range(start, end))


class _Store:
    """The rows of all scopes, and the one clock and sequence over them."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.id = str(uuid.uuid4())
        self.lock = threading.Lock()  # held for microseconds, never over an await
        self.closed = False
        self.version = 0
        self.scopes: dict[str, _Scope] = {}
        self._clock = clock
        self._last = 0

    def now(self) -> int:
        self._last = max(self._last, int(self._clock() * 1000))
        return self._last

    def scope(self, org: str) -> _Scope:
        if self.closed:
            raise StoreUnavailableError("the in-memory store is closed; make a new one")
        found = self.scopes.get(org)
        if found is None:
            found = self.scopes[org] = _Scope()
        return found


class InMemoryStorage:
    """A store that lives as long as this object; any thread and event loop may use it.

    A context manager, sync and async, that closes it. Its rows are lost when it is closed. A fork copies it: parent and
    child then have two stores that know nothing of each other.

    Attributes:
        runs: The journal.
    """

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        """Make an empty store.

        Args:
            clock: Seconds since the epoch; the store's clock never runs backwards, whatever this returns.
        """
        self._store = _Store(clock)
        self.runs = MemoryJournal(self._store)

    def close(self) -> None:
        """Forget every row; calls after it raise `StoreUnavailableError`. A second close does nothing."""
        with self._store.lock:
            self._store.closed = True
            self._store.scopes.clear()

    async def aclose(self) -> None:
        """Do what `close` does."""
        self.close()

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
        self.close()


class MemoryJournal:
    """The `Journal` of an `InMemoryStorage`; the contract stands at `gnl_core.journal.port.Journal`."""

    def __init__(self, store: _Store, org: str = "") -> None:
        self._store = store
        self._org = org

    @property
    def store_id(self) -> str:
        """UUID of the storage object."""
        return self._store.id

    @property
    def org(self) -> str:
        """The organisation it is scoped to; '' where it is not."""
        return self._org

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Ordered, with blobs; nothing outlives the process."""
        return frozenset(("ordered", "blobs"))

    async def get_many(self, keys: Sequence[Key]) -> Read:
        """Read rows, with their blobs, in the order asked."""
        names = [name_of(key) for key in keys]
        with self._store.lock:
            rows = self._store.scope(self._org).rows
            found = [rows.get(name) for name in names]
            now = self._store.now()
        entries = tuple(
            None if row is None else row.entry(name, blobs=True) for name, row in zip(names, found, strict=True)
        )
        return Read(entries, now)

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
        found: list[tuple[str, _Row]] = []
        size = 0
        more = False
        with self._store.lock:
            scope = self._store.scope(self._org)
            for name in scope.walk(part):
                row = scope.rows[name]
                if row.version <= newer_than:
                    continue
                if len(found) == limit or size >= max_bytes:
                    more = True
                    break
                found.append((name, row))
                size += size_of(row.text) + (len(row.blob) if blobs and row.blob is not None else 0)
            now = self._store.now()
        entries = tuple(row.entry(name, blobs=blobs) for name, row in found)
        return Page(entries, entries[-1].key if more else None, now)

    async def apply(self, ops: Sequence[Op], *, batch: int) -> Applied | Refused:
        """Write a batch, all or nothing."""
        steps = prepare(ops, batch)
        with self._store.lock:
            scope = self._store.scope(self._org)
            rows = scope.rows
            now = self._store.now()
            present = {step.name: (row.version, row.batch) for step in steps if (row := rows.get(step.name))}
            ruling = rule(steps, present, batch, lambda step: from_text(step.name, rows[step.name].text))
            if ruling.refused >= 0:
                name = steps[ruling.refused].name
                row = rows.get(name)
                return Refused(ruling.refused, None if row is None else row.entry(name, blobs=True), now)
            version = ruling.resent or self._write(scope, steps, ruling, batch, now=now)
        return Applied(version, now, ruling.counters(steps), ruling.kept)

    def _write(self, scope: _Scope, steps: list[Step], ruling: Ruling, batch: int, *, now: int) -> int:
        store = self._store
        version = store.version + 1
        rows: list[tuple[str, _Row | None]] = []
        for index, step in enumerate(steps):
            old = scope.rows.get(step.name)
            if step.kind == "expect" or index in ruling.kept or (step.kind == "delete" and old is None):
                continue
            if step.kind == "delete":
                rows.append((step.name, None))
                continue
            text, blob = step.text, step.blob
            if step.kind == "add":
                text, blob = to_text(step.key, (ruling.sums or {})[step.name]), old.blob if old else None
            created = old.created_at if old else now
            rows.append((step.name, _Row(step.key, text, blob, version, batch, created, now)))
        # Nothing below can fail: all of the batch, or, by an error above, nothing.
        for name, row in rows:
            if row is None:
                scope.remove(name)
            else:
                scope.write(name, row)
            store.version = version
        return store.version

    async def delete_prefix(self, prefix: Key, *, limit: int = 1000) -> int:
        """Delete at most `limit` rows at and below a non-empty prefix."""
        name_of(prefix)
        part = span(prefix, after=None, newer_than=0, reverse=False, limit=limit, max_bytes=1, blobs=False)
        with self._store.lock:
            scope = self._store.scope(self._org)
            names = [name for name, _ in zip(scope.walk(part), range(limit), strict=False)]
            for name in names:
                scope.remove(name)
        return len(names)

    async def now(self) -> int:
        """Return the store's clock in milliseconds."""
        with self._store.lock:
            self._store.scope(self._org)
            return self._store.now()

    def scoped(self, org: str) -> MemoryJournal:
        """Return the same store seen by one organisation."""
        if self._org:
            raise refuse_scope("scoped()")
        return MemoryJournal(self._store, check_org(org))

    async def scopes(self, *, after: str | None = None, limit: int = 100) -> Sequence[str]:
        """List organisations that have rows, ascending; '' is the unscoped one."""
        if self._org:
            raise refuse_scope("scopes()")
        check_limit(limit)
        with self._store.lock:
            self._store.scope("")
            names = sorted(org for org, scope in self._store.scopes.items() if scope.rows)
        return [org for org in names if after is None or org > after][:limit]

    async def aclose(self) -> None:
        """Close the storage; on a scoped journal, which holds nothing of its own, do nothing."""
        if not self._org:
            with self._store.lock:
                self._store.closed = True
                self._store.scopes.clear()
