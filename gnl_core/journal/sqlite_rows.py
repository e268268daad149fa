"""One open connection of a SQLite store, and what is read over it. Runs on the store's own threads."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, TypeAlias

from gnl_core.errors import JournalFormatError, StoreCorruptError
from gnl_core.journal.batches import MAX_TAG, Span
from gnl_core.journal.port import Entry, Key, Page, Read
from gnl_core.journal.state import Clock, Statistics
from gnl_core.journal.values import from_text, key_of, size_of, to_text

ROW_FORMAT = 1
"""What this release writes into a row's columns."""

JSON_TEXT = 0
"""The codec of a row whose value is JSON text and whose blob is plain bytes; there is no other yet."""

Row: TypeAlias = tuple[Any, ...]

_COLUMNS = "key,version,batch,created_at,updated_at,format,codec,value"
_MOST_PARAMETERS = 32  # longer lists of keys go as one JSON array: a statement for each length would be too many


class Rows:
    """One open connection. One thread at a time calls it; it raises `sqlite3.Error` as it comes.

    Attributes:
        connection: The connection.
        store_id: UUID of the file.
    """

    def __init__(self, connection: sqlite3.Connection, clock: Clock, statistics: Statistics) -> None:
        self.connection = connection
        self._clock = clock
        self._statistics = statistics
        self._scopes: dict[str, int] = {"": 0}
        self.store_id: str
        self.store_id, seen = connection.execute("SELECT store_id,clock FROM gnl_meta").fetchone()
        clock.read(seen)

    def opened(self) -> str:
        """Return the store's id."""
        return self.store_id

    def rollback(self) -> None:
        """Undo the open transaction, if SQLite has not done so itself."""
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")

    def get_many(self, org: str, names: list[str], asked: Sequence[Key]) -> Read:
        """Read rows in the order asked, from one point in time."""
        scope = self.scope_of(org)
        found = {} if scope is None else self.entries(scope, dict(zip(names, asked, strict=True)))
        self._statistics.reads += 1
        self._statistics.rows_read += len(found)
        now = self._clock.read(max((entry.updated_at for entry in found.values()), default=0))
        if len(set(names)) == len(names):
            return Read(tuple([found.get(name) for name in names]), now)
        return Read(tuple([_copy(found.get(name)) for name in names]), now)

    def scan(self, org: str, part: Span) -> Page:
        """Read one page from one point in time."""
        scope = self.scope_of(org)
        entries: list[Entry] = []
        more = False
        if scope is not None:
            self.connection.execute("BEGIN")
            try:
                more = self._page(scope, part, entries)
            finally:
                self.rollback()
        self._statistics.scans += 1
        self._statistics.rows_read += len(entries)
        now = self._clock.read(max((entry.updated_at for entry in entries), default=0))
        return Page(tuple(entries), entries[-1].key if more else None, now)

    def _page(self, scope: int, part: Span, entries: list[Entry]) -> bool:
        parts: list[tuple[str, Row]]
        newer = part.newer_than or -MAX_TAG  # who asks for all rows is told of those whose version cannot be
        below = _range(reverse=part.reverse, blobs=part.blobs), (scope, part.low, part.high, newer)
        parts = [below]
        if part.own is not None:
            own = _at(blobs=part.blobs), (scope, part.own, newer)
            parts = [below, own] if part.reverse else [own, below]
        size = 0
        for sql, parameters in parts:
            # Row by row: what lies beyond the page's bytes is not read. Closed by hand: an error's traceback would keep
            # it, and with it the statement, for as long as somebody keeps the error.
            with contextlib.closing(self.connection.execute(sql, parameters)) as cursor:
                try:
                    for row in cursor:
                        if len(entries) == part.limit or size >= part.max_bytes:
                            return True
                        entry = _entry(row, key_of(row[0]))
                        entries.append(entry)
                        size += size_of(row[7]) + len(entry.blob or b"")
                except sqlite3.OperationalError as error:
                    if "decode" not in str(error):
                        raise
                    raise self._undecodable(sql, parameters) from error
        return False

    def scopes(self, after: str | None, limit: int) -> list[str]:
        """List organisations that have rows."""
        found: list[str] = []
        if after is None and self.connection.execute("SELECT 1 FROM gnl_rows WHERE scope_id=0 LIMIT 1").fetchone():
            found.append("")
        found += [
            org
            for (org,) in self.select(
                "SELECT org FROM gnl_scopes s WHERE org>? AND EXISTS"
                " (SELECT 1 FROM gnl_rows r WHERE r.scope_id=s.scope_id) ORDER BY org LIMIT ?",
                (after or "", min(limit, 1 << 62)),
            )
        ]
        return found[:limit]

    # Beneath ---------------------------------------------------------------------------------------------------------

    def scope_of(self, org: str) -> int | None:
        """Return the number of an organisation, None where it has no rows yet."""
        scope = self._scopes.get(org)
        if scope is None:
            row = self.connection.execute("SELECT scope_id FROM gnl_scopes WHERE org=?", (org,)).fetchone()
            if row is None:
                return None
            scope = int(row[0])
            if not self.connection.in_transaction:  # else it may be of a transaction that is undone
                self._scopes[org] = scope
        return scope

    def by_key(self, columns: str, scope: int, names: Sequence[str]) -> list[Row]:
        """Select columns of the rows that are there, in no order."""
        if len(names) <= _MOST_PARAMETERS:
            return self.select(_in(columns, len(names)), (scope, *names))
        return self.select(_in(columns, -1), (scope, json.dumps(list(names))))

    def entries(self, scope: int, asked: dict[str, Key]) -> dict[str, Entry]:
        """Read whole rows by their encoded keys."""
        rows = self.by_key(_COLUMNS + ",blob", scope, list(asked))
        return {row[0]: _entry(row, asked[row[0]]) for row in rows}

    def select(self, sql: str, parameters: tuple[Any, ...]) -> list[Row]:
        """Return all rows of a statement.

        Raises:
            StoreCorruptError: A row holds text that is none.
        """
        try:
            return self.connection.execute(sql, parameters).fetchall()
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
                texts = [column for column in row[:8] if isinstance(column, bytes)]
                if not all(map(_is_utf8, texts)):
                    key = texts[0].decode(errors="replace")
                    break
        finally:
            self.connection.text_factory = str
        return StoreCorruptError(f"the row {key} holds text that is no UTF-8; run `gnl doctor`", key=key)


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _entry(row: Row, key: Key) -> Entry:
    name, version, batch, created, updated, form, codec, text, blob = row
    if form != ROW_FORMAT or codec != JSON_TEXT:
        raise JournalFormatError(
            f"the row {name} has format {form!r} and codec {codec!r}, this release reads {ROW_FORMAT} and "
            f"{JSON_TEXT}: update gnl-semantic",
            key=name,
        )
    if not (type(version) is type(batch) is type(created) is type(updated) is int):
        raise StoreCorruptError(f"the row {name} has a version or time that is no number; run `gnl doctor`", key=name)
    if version < 1 or batch < 0:  # no condition holds of it, and whoever waits for one would wait for ever
        raise StoreCorruptError(f"the row {name} has version {version} and tag {batch}; run `gnl doctor`", key=name)
    if type(text) is not str or (blob is not None and type(blob) is not bytes):
        raise StoreCorruptError(f"the value or blob of the row {name} has another type; run `gnl doctor`", key=name)
    return Entry(key, from_text(name, text), blob, version, batch, created, updated)


def _copy(entry: Entry | None) -> Entry | None:
    # A key that is asked twice is answered twice, and changing one answer changes no other.
    if entry is None:
        return None
    return replace(entry, value=from_text("", to_text(entry.key, entry.value)))


# Statements ----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=128)
def _in(columns: str, count: int) -> str:
    names = "SELECT value FROM json_each(?)" if count < 0 else ",".join("?" * count)
    return f"SELECT {columns} FROM gnl_rows WHERE scope_id=? AND key IN ({names})"  # noqa: S608 - constants


@lru_cache(maxsize=4)
def _range(*, reverse: bool, blobs: bool) -> str:
    order = "DESC" if reverse else "ASC"
    columns = f"{_COLUMNS},{'blob' if blobs else 'NULL'}"
    return f"SELECT {columns} FROM gnl_rows WHERE scope_id=? AND key>=? AND key<? AND version>? ORDER BY key {order}"  # noqa: S608 - constants


@lru_cache(maxsize=2)
def _at(*, blobs: bool) -> str:
    columns = f"{_COLUMNS},{'blob' if blobs else 'NULL'}"
    return f"SELECT {columns} FROM gnl_rows WHERE scope_id=? AND key=? AND version>?"  # noqa: S608 - constants
