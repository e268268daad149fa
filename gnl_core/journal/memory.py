"""A journal in memory: for tests, and for runs that may end with their process."""

from __future__ import annotations

import threading
import time
import uuid
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from gnl_core.errors import StoreUnavailableError
from gnl_core.journal.batches import Ruling, Span, Step, rule
from gnl_core.journal.durability import DurabilityFinding
from gnl_core.journal.port import Applied, Capability, Entry, Key, Page, Read, Refused
from gnl_core.journal.storage import Storage, StoreJournal
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

    def close(self) -> None:
        with self.lock:
            self.closed = True
            self.scopes.clear()

    def scope(self, org: str) -> _Scope:
        if self.closed:
            raise StoreUnavailableError("the in-memory store is closed; make a new one")
        found = self.scopes.get(org)
        if found is None:
            found = self.scopes[org] = _Scope()
        return found


class InMemoryStorage(Storage):
    """A store that lives as long as this object; any thread and event loop may use it.

    A context manager, sync and async, that closes it. Its rows are lost when it is closed. A fork copies it: parent and
    child then have two stores that know nothing of each other.

    Attributes:
        runs: The journal.
    """

    runs: MemoryJournal

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        """Make an empty store.

        Args:
            clock: Seconds since the epoch; the store's clock never runs backwards, whatever this returns.
        """
        self._store = _Store(clock)
        self.runs = MemoryJournal(self._store)

    async def durability_report(self) -> tuple[DurabilityFinding, ...]:
        """Return that nothing outlives the process."""
        return (DurabilityFinding(setting="memory", value="", level="note", meaning="Nothing outlives the process."),)

    def close(self) -> None:
        """Forget every row; calls after it raise `StoreUnavailableError`. A second close does nothing."""
        self._store.close()


class MemoryJournal(StoreJournal[_Store]):
    """The `Journal` of an `InMemoryStorage`; the contract stands at `gnl_core.journal.port.Journal`."""

    @property
    def store_id(self) -> str:
        """UUID of the storage object."""
        return self._engine.id

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Ordered, with blobs; nothing outlives the process."""
        return frozenset(("ordered", "blobs"))

    async def _get_many(self, names: list[str], asked: Sequence[Key]) -> Read:  # noqa: ARG002 - rows know their keys
        with self._engine.lock:
            rows = self._engine.scope(self._org).rows
            found = [rows.get(name) for name in names]
            now = self._engine.now()
        entries = tuple(
            None if row is None else row.entry(name, blobs=True) for name, row in zip(names, found, strict=True)
        )
        return Read(entries, now)

    async def _scan(self, part: Span) -> Page:
        found: list[tuple[str, _Row]] = []
        size = 0
        more = False
        with self._engine.lock:
            scope = self._engine.scope(self._org)
            for name in scope.walk(part):
                row = scope.rows[name]
                if row.version <= part.newer_than:
                    continue
                if len(found) == part.limit or size >= part.max_bytes:
                    more = True
                    break
                found.append((name, row))
                size += size_of(row.text) + (len(row.blob) if part.blobs and row.blob is not None else 0)
            now = self._engine.now()
        entries = tuple(row.entry(name, blobs=part.blobs) for name, row in found)
        return Page(entries, entries[-1].key if more else None, now)

    async def _apply(self, steps: list[Step], batch: int) -> Applied | Refused:
        with self._engine.lock:
            scope = self._engine.scope(self._org)
            rows = scope.rows
            now = self._engine.now()
            present = {step.name: (row.version, row.batch) for step in steps if (row := rows.get(step.name))}
            ruling = rule(steps, present, batch, lambda step: from_text(step.name, rows[step.name].text))
            if ruling.refused >= 0:
                name = steps[ruling.refused].name
                row = rows.get(name)
                return Refused(ruling.refused, None if row is None else row.entry(name, blobs=True), now)
            version = ruling.resent or self._write(scope, steps, ruling, batch, now=now)
        return Applied(version, now, ruling.counters(steps), ruling.kept)

    def _write(self, scope: _Scope, steps: list[Step], ruling: Ruling, batch: int, *, now: int) -> int:
        store = self._engine
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

    async def _delete_prefix(self, part: Span) -> int:
        with self._engine.lock:
            scope = self._engine.scope(self._org)
            names = [name for name, _ in zip(scope.walk(part), range(part.limit), strict=False)]
            for name in names:
                scope.remove(name)
        return len(names)

    async def _now(self) -> int:
        with self._engine.lock:
            self._engine.scope(self._org)
            return self._engine.now()

    async def _scopes(self, after: str | None, limit: int) -> Sequence[str]:
        with self._engine.lock:
            self._engine.scope("")
            names = sorted(org for org, scope in self._engine.scopes.items() if scope.rows)
        return [org for org in names if after is None or org > after][:limit]

    async def _aclose(self) -> None:
        self._engine.close()
