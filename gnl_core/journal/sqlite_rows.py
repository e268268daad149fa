"""What is said to SQLite: one connection, and the journal's verbs over it. Runs on the store's own threads."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, TypeAlias

from gnl_core.errors import JournalFormatError, StoreCorruptError
from gnl_core.journal.batches import Ruling, Step, rule
from gnl_core.journal.port import Applied, Entry, JsonValue, Key, Page, Read, Refused
from gnl_core.journal.values import JSON_TEXT, from_text, key_of, size_of, to_text

_ROW_FORMAT = 1
_COLUMNS = "key,version,batch,created_at,updated_at,format,codec,value"
_MOST_PARAMETERS = 32  # longer lists of keys go as one JSON array: as many statements as lengths would be too many

_Row: TypeAlias = tuple[Any, ...]


@dataclass(slots=True)
class Statistics:
    """What a storage object has done so far; counted by it alone, not by others on the same file.

    Attributes:
        batches: Batches applied.
        refused: Batches refused.
        transactions: Commits that wrote: each is one sync of the log with durability 'full'.
        reads: Calls of `get_many`.
        scans: Pages of `scan`.
        rows_read: Rows returned by either.
        rows_written: Rows created or replaced.
        bytes_written: Bytes of values and blobs in them; keys and SQLite's own are not counted.
    """

    batches: int = 0
    refused: int = 0
    transactions: int = 0
    reads: int = 0
    scans: int = 0
    rows_read: int = 0
    rows_written: int = 0
    bytes_written: int = 0

    def copy(self) -> Statistics:
        """Return the figures as they are now."""
        return Statistics(**{field.name: getattr(self, field.name) for field in fields(self)})


class Clock:
    """Milliseconds that never run backwards within one storage object, and never behind a row that it has seen."""

    def __init__(self, seconds: Callable[[], float] = time.time) -> None:
        self._seconds = seconds
        self._last = 0
        self._lock = threading.Lock()

    def read(self, seen: int = 0) -> int:
        """Return the time, at least `seen`."""
        now = int(self._seconds() * 1000)
        with self._lock:
            self._last = max(self._last, now, seen)
            return self._last

    def reset_lock(self) -> None:
        """Make the lock anew: in a child process nobody would release it."""
        self._lock = threading.Lock()


class Rows:
    """One open connection. Methods are called by one thread at a time and raise `sqlite3.Error` as it comes."""

    def __init__(self, connection: sqlite3.Connection, clock: Clock, statistics: Statistics) -> None:
        self.connection = connection
        self._clock = clock
        self._statistics = statistics
        self._scopes: dict[str, int] = {"": 0}
        self._new_scopes: dict[str, int] = {}
        self._sequence = 0
        self._now = 0
        self._changed = False
        self.store_id, seen = connection.execute("SELECT store_id,clock FROM gnl_meta").fetchone()
        clock.read(seen)

    # Transactions of the writer ------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Take the write lock, and read the sequence and the clock under it."""
        self.connection.execute("BEGIN IMMEDIATE")
        self._sequence, seen = self.connection.execute("SELECT sequence,clock FROM gnl_meta").fetchone()
        self._now = self._clock.read(seen)
        self._changed = False
        self._new_scopes.clear()

    def finish(self) -> None:
        """Write the sequence and the clock, before the commit."""
        if self._changed:
            self.connection.execute("UPDATE gnl_meta SET sequence=?,clock=?", (self._sequence, self._now))

    def commit(self) -> None:
        """Commit; only now is anything acknowledged."""
        self.connection.execute("COMMIT")
        if self._changed:
            self._statistics.transactions += 1
            self._scopes.update(self._new_scopes)

    def rollback(self) -> None:
        """Undo the open transaction, if SQLite has not done so itself."""
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")

    def apply(self, org: str, steps: list[Step], batch: int) -> Applied | Refused:
        """Write one batch within the open transaction; whatever it raises, it raises before it writes, or else the
        whole transaction is undone.
        """
        scope = self._scope(org)
        found: dict[str, int] = {}
        present: dict[str, tuple[int, int]] = {}
        if scope is not None:
            names = [step.name for step in steps]
            for name, row_id, version, tag in self._by_key("key,row_id,version,batch", scope, names):
                found[name] = row_id
                present[name] = (version, tag)
        ruling = rule(steps, present, batch, lambda name: self._value(found[name], name))
        if ruling.refused >= 0:
            self._statistics.refused += 1
            step = steps[ruling.refused]
            entry = None
            if scope is not None and step.name in present:
                ((_, entry),) = self._entries(scope, {step.name: step.key})
            return Refused(ruling.refused, entry, self._now)
        self._statistics.batches += 1
        version = ruling.resent or self._write(org, scope, steps, ruling, found, batch)
        return Applied(version, self._now, ruling.counters(steps), ruling.kept)

    def _write(
        self, org: str, scope: int | None, steps: list[Step], ruling: Ruling, found: dict[str, int], batch: int
    ) -> int:
        version, now = self._sequence + 1, self._now
        inserts: list[_Row] = []
        updates: list[_Row] = []
        sums: list[_Row] = []
        deletes: list[_Row] = []
        size = 0
        for index, step in enumerate(steps):
            kind = step.kind
            if kind == "expect" or (kind == "keep" and index in ruling.kept):
                continue
            row_id = found.get(step.name)
            if kind == "delete":
                if row_id is not None:
                    deletes.append((row_id,))
                continue
            text = step.text
            if kind == "add":
                text = to_text(step.key, (ruling.sums or {})[step.name])
            if row_id is None:
                inserts.append((step.name, version, batch, now, now, text, step.blob))
            elif kind == "add":
                sums.append((version, batch, now, text, row_id))
            else:
                updates.append((version, batch, now, text, step.blob, row_id))
            size += step.size or len(text)
        if not (inserts or updates or sums or deletes):
            return self._sequence
        execute = self.connection.executemany
        self._changed = True
        self._sequence = version
        if inserts:
            execute(_insert(self._scope_for_write(org) if scope is None else scope), inserts)
        if updates:
            execute(_UPDATE, updates)
        if sums:
            execute(_UPDATE_SUM, sums)
        if deletes:
            execute("DELETE FROM gnl_rows WHERE row_id=?", deletes)
        self._statistics.rows_written += len(inserts) + len(updates) + len(sums)
        self._statistics.bytes_written += size
        return version

    def delete_prefix(self, org: str, own: str, low: str, high: str, limit: int) -> int:
        """Delete at most `limit` rows within the open transaction."""
        scope = self._scope(org)
        if scope is None:
            return 0
        execute = self.connection.execute
        count = execute("DELETE FROM gnl_rows WHERE scope_id=? AND key=?", (scope, own)).rowcount
        if count < limit:
            count += execute(
                "DELETE FROM gnl_rows WHERE row_id IN"
                " (SELECT row_id FROM gnl_rows WHERE scope_id=? AND key>=? AND key<? ORDER BY key LIMIT ?)",
                (scope, low, high, limit - count),
            ).rowcount
        self._changed = self._changed or count > 0
        return count

    # Reads -----------------------------------------------------------------------------------------------------------

    def get_many(self, org: str, names: list[str], asked: Sequence[Key]) -> Read:
        """Read rows in the order asked, from one point in time."""
        self._statistics.reads += 1
        found: dict[str, Entry] = {}
        scope = self._scope(org)
        if scope is not None:
            found = dict(self._entries(scope, dict(zip(names, asked, strict=True))))
        self._statistics.rows_read += len(found)
        now = self._clock.read(max((entry.updated_at for entry in found.values()), default=0))
        # A key asked twice is answered twice, with two private copies.
        entries: list[Entry | None] = []
        given: set[str] = set()
        for name in names:
            entry = found.get(name)
            if entry is not None and name in given and isinstance(entry.value, list | dict):
                ((_, entry),) = self._entries(scope or 0, {name: entry.key})
            given.add(name)
            entries.append(entry)
        return Read(tuple(entries), now)

    def scan(
        self,
        org: str,
        span: tuple[str | None, str, str],
        *,
        newer_than: int,
        reverse: bool,
        limit: int,
        max_bytes: int,
        blobs: bool,
    ) -> Page:
        """Read one page from one point in time."""
        self._statistics.scans += 1
        scope = self._scope(org)
        if scope is None:
            return Page((), None, self._clock.read())
        self.connection.execute("BEGIN")
        try:
            entries, more = self._page(scope, span, newer_than, reverse, limit, max_bytes, blobs)
        finally:
            self.rollback()
        self._statistics.rows_read += len(entries)
        now = self._clock.read(max((entry.updated_at for entry in entries), default=0))
        return Page(tuple(entries), entries[-1].key if more else None, now)

    def _page(
        self,
        scope: int,
        span: tuple[str | None, str, str],
        newer_than: int,
        reverse: bool,
        limit: int,
        max_bytes: int,
        blobs: bool,
    ) -> tuple[list[Entry], bool]:
        own, low, high = span
        below = _scan(reverse, blobs), (scope, low, high, newer_than)
        parts = [below]
        if own is not None:
            at = _scan_own(blobs), (scope, own, newer_than)
            parts = [below, at] if reverse else [at, below]
        entries: list[Entry] = []
        size = 0
        for sql, parameters in parts:
            for row in self._select(sql, parameters):
                if len(entries) == limit or size >= max_bytes:
                    return entries, True
                entries.append(_entry(row, key_of(row[0])))
                size += size_of(row[7]) + len(row[8] or b"")
        return entries, False

    def scopes(self, after: str | None, limit: int) -> list[str]:
        """List organisations that have rows."""
        if after is None:
            unscoped = self.connection.execute("SELECT 1 FROM gnl_rows WHERE scope_id=0 LIMIT 1").fetchone()
            if unscoped is not None:
                return ["", *(self.scopes("", limit - 1) if limit > 1 else ())]
        return [
            org
            for (org,) in self.connection.execute(
                "SELECT org FROM gnl_scopes s WHERE org>? AND EXISTS"
                " (SELECT 1 FROM gnl_rows r WHERE r.scope_id=s.scope_id) ORDER BY org LIMIT ?",
                (after or "", limit),
            )
        ]

    def opened(self) -> str:
        """Return the store's id."""
        return str(self.store_id)

    # Small things ----------------------------------------------------------------------------------------------------

    def _scope(self, org: str) -> int | None:
        scope = self._scopes.get(org)
        if scope is None:
            scope = self._new_scopes.get(org)
        if scope is not None:
            return scope
        row = self.connection.execute("SELECT scope_id FROM gnl_scopes WHERE org=?", (org,)).fetchone()
        if row is None:
            return None
        self._scopes[org] = int(row[0])
        return self._scopes[org]

    def _scope_for_write(self, org: str) -> int:
        cursor = self.connection.execute("INSERT INTO gnl_scopes (org) VALUES (?)", (org,))
        self._new_scopes[org] = scope = cursor.lastrowid or 0
        return scope

    def _by_key(self, columns: str, scope: int, names: Sequence[str]) -> Iterator[_Row]:
        if len(names) <= _MOST_PARAMETERS:
            return self._select(_select(columns, len(names)), (scope, *names))
        return self._select(_select(columns, -1), (scope, json.dumps(list(names))))

    def _entries(self, scope: int, asked: dict[str, Key]) -> list[tuple[str, Entry]]:
        rows = self._by_key(_COLUMNS + ",blob", scope, list(asked))
        return [(row[0], _entry(row, asked[row[0]])) for row in rows]

    def _value(self, row_id: int, name: str) -> JsonValue:
        ((text,),) = self._select("SELECT value FROM gnl_rows WHERE row_id=?", (row_id,))
        return from_text(name, text)

    def _select(self, sql: str, parameters: tuple[Any, ...]) -> Iterator[_Row]:
        try:
            yield from self.connection.execute(sql, parameters)
        except sqlite3.OperationalError as error:
            if "decode" not in str(error):
                raise
            raise self._undecodable(sql, parameters) from error

    def _undecodable(self, sql: str, parameters: tuple[Any, ...]) -> StoreCorruptError:
        # SQLite keeps any bytes as text; the driver does not say in which row it met some that are no UTF-8.
        key = "?"
        self.connection.text_factory = bytes
        try:
            for row in self.connection.execute(sql, parameters):
                texts = [column for column in row if isinstance(column, bytes)]
                if any(_bad(text) for text in texts):
                    key = texts[0].decode(errors="replace")
                    break
        finally:
            self.connection.text_factory = str
        return StoreCorruptError(f"the row {key} holds text that is no UTF-8; run `gnl doctor`", key=key)


def _bad(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return True
    return False


def _entry(row: _Row, key: Key) -> Entry:
    name, version, batch, created, updated, form, codec, text, blob = row
    if form != _ROW_FORMAT or codec != JSON_TEXT:
        raise JournalFormatError(
            f"the row {name} has format {form!r} and codec {codec!r}, this release reads {_ROW_FORMAT} and {JSON_TEXT}: "
            "update gnl-semantic",
            key=name,
        )
    if not (type(version) is type(batch) is type(created) is type(updated) is int):
        raise StoreCorruptError(f"the row {name} has a version or time that is no number; run `gnl doctor`", key=name)
    if blob is not None and type(blob) is not bytes:
        raise StoreCorruptError(f"the blob of the row {name} is {type(blob).__name__}; run `gnl doctor`", key=name)
    return Entry(key, from_text(name, text), blob, version, batch, created, updated)


# Statements ----------------------------------------------------------------------------------------------------------

_UPDATE = (
    f"UPDATE gnl_rows SET version=?,batch=?,updated_at=?,format={_ROW_FORMAT},codec={JSON_TEXT},value=?,blob=?"  # noqa: S608 - constants
    " WHERE row_id=?"
)
_UPDATE_SUM = "UPDATE gnl_rows SET version=?,batch=?,updated_at=?,value=? WHERE row_id=?"


@lru_cache(maxsize=256)
def _insert(scope: int) -> str:
    return (
        "INSERT INTO gnl_rows (scope_id,key,version,batch,created_at,updated_at,format,codec,value,blob)"
        f" VALUES ({int(scope)},?,?,?,?,?,{_ROW_FORMAT},{JSON_TEXT},?,?)"
    )


@lru_cache(maxsize=128)
def _select(columns: str, count: int) -> str:
    names = "SELECT value FROM json_each(?)" if count < 0 else ",".join("?" * count)
    return f"SELECT {columns} FROM gnl_rows WHERE scope_id=? AND key IN ({names})"  # noqa: S608 - constants


@lru_cache(maxsize=8)
def _scan(reverse: bool, blobs: bool) -> str:
    return (
        f"SELECT {_COLUMNS},{'blob' if blobs else 'NULL'} FROM gnl_rows"  # noqa: S608 - constants
        f" WHERE scope_id=? AND key>=? AND key<? AND version>? ORDER BY key {'DESC' if reverse else 'ASC'}"
    )


@lru_cache(maxsize=2)
def _scan_own(blobs: bool) -> str:
    return (
        f"SELECT {_COLUMNS},{'blob' if blobs else 'NULL'} FROM gnl_rows"  # noqa: S608 - constants
        " WHERE scope_id=? AND key=? AND version>?"
    )
