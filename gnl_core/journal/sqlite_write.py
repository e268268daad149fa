"""The writing half of a SQLite store: one transaction, and the batches in it."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field

from gnl_core.journal.batches import Ruling, Span, Step, rule
from gnl_core.journal.port import Applied, JsonValue, Refused
from gnl_core.journal.sqlite_rows import JSON_TEXT, ROW_FORMAT, Row, Rows
from gnl_core.journal.state import Clock, Statistics
from gnl_core.journal.values import to_text

_INSERT = (
    "INSERT INTO gnl_rows (scope_id,key,version,batch,created_at,updated_at,format,codec,value,blob)"  # noqa: S608 - constants
    f" VALUES (?,?,?,?,?,?,{ROW_FORMAT},{JSON_TEXT},?,?)"
)
_UPDATE = (
    "UPDATE gnl_rows SET version=?,batch=?,updated_at=?,value=?,blob=?"  # noqa: S608 - constants
    f",format={ROW_FORMAT},codec={JSON_TEXT} WHERE row_id=?"
)
_UPDATE_SUM = "UPDATE gnl_rows SET version=?,batch=?,updated_at=?,value=? WHERE row_id=?"


@dataclass(slots=True)
class _Writes:
    inserts: list[Row] = field(default_factory=list)
    updates: list[Row] = field(default_factory=list)
    sums: list[Row] = field(default_factory=list)
    deletes: list[Row] = field(default_factory=list)
    size: int = 0


class WriteRows(Rows):
    """The connection that writes. Between `begin` and `commit` stand any number of batches."""

    def __init__(self, connection: sqlite3.Connection, clock: Clock, statistics: Statistics) -> None:
        super().__init__(connection, clock, statistics)
        self._sequence = 0
        self._now = 0
        self._changed = False
        self._counted = [0, 0, 0, 0]

    def begin(self) -> None:
        """Take the write lock, and read the sequence and the clock under it."""
        self.connection.execute("BEGIN IMMEDIATE")
        self._sequence, seen = self.connection.execute("SELECT sequence,clock FROM gnl_meta").fetchone()
        self._now = self._clock.read(seen)
        self._changed = False
        self._counted = [0, 0, 0, 0]

    def finish(self) -> None:
        """Write the sequence and the clock; what is left is the commit."""
        if self._changed:
            self.connection.execute("UPDATE gnl_meta SET sequence=?,clock=?", (self._sequence, self._now))

    def commit(self) -> None:
        """Commit; only after it may anything be acknowledged."""
        self.connection.execute("COMMIT")
        counted, statistics = self._counted, self._statistics
        statistics.batches += counted[0]
        statistics.refused += counted[1]
        statistics.rows_written += counted[2]
        statistics.bytes_written += counted[3]
        statistics.transactions += self._changed

    def apply(self, org: str, steps: list[Step], batch: int) -> Applied | Refused:
        """Rule on one batch and write it, within the open transaction."""
        scope = self.scope_of(org)
        found: dict[str, int] = {}
        present: dict[str, tuple[int, int]] = {}
        if scope is not None:
            names = [step.name for step in steps]
            for name, row_id, version, tag in self.by_key("key,row_id,version,batch", scope, names):
                found[name] = row_id
                present[name] = (version, tag)

        def value_of(step: Step) -> JsonValue:
            return self.entries(scope or 0, {step.name: step.key})[step.name].value

        ruling = rule(steps, present, batch, value_of)
        if ruling.refused >= 0:
            self._counted[1] += 1
            step = steps[ruling.refused]
            entry = self.entries(scope or 0, {step.name: step.key})[step.name] if step.name in present else None
            return Refused(ruling.refused, entry, self._now)
        self._counted[0] += 1
        version = ruling.resent or self._write(scope, org, self._collect(steps, ruling, found, batch))
        return Applied(version, self._now, ruling.counters(steps), ruling.kept)

    def _collect(self, steps: list[Step], ruling: Ruling, found: dict[str, int], batch: int) -> _Writes:
        version, now = self._sequence + 1, self._now
        writes = _Writes()
        for index, step in enumerate(steps):
            kind = step.kind
            if kind == "expect" or index in ruling.kept:
                continue
            row_id = found.get(step.name)
            if kind == "delete":
                if row_id is not None:
                    writes.deletes.append((row_id,))
                continue
            text = to_text(step.key, ruling.sums[step.name]) if kind == "add" and ruling.sums else step.text
            if row_id is None:
                writes.inserts.append((step.name, version, batch, now, now, text, step.blob))
            elif kind == "add":
                writes.sums.append((version, batch, now, text, row_id))
            else:
                writes.updates.append((version, batch, now, text, step.blob, row_id))
            writes.size += step.size or len(text)
        return writes

    def _write(self, scope: int | None, org: str, writes: _Writes) -> int:
        rows = len(writes.inserts) + len(writes.updates) + len(writes.sums)
        if not rows and not writes.deletes:
            return self._sequence
        self._changed = True
        self._sequence += 1
        execute = self.connection.executemany
        if writes.inserts:
            if scope is None:
                scope = self.connection.execute("INSERT INTO gnl_scopes (org) VALUES (?)", (org,)).lastrowid
            execute(_INSERT, [(scope, *row) for row in writes.inserts])
        if writes.updates:
            execute(_UPDATE, writes.updates)
        if writes.sums:
            execute(_UPDATE_SUM, writes.sums)
        if writes.deletes:
            execute("DELETE FROM gnl_rows WHERE row_id=?", writes.deletes)
        self._counted[2] += rows
        self._counted[3] += writes.size
        return self._sequence

    def delete_prefix(self, org: str, part: Span) -> int:
        """Delete the first rows of a prefix, within the open transaction."""
        scope = self.scope_of(org)
        if scope is None:
            return 0
        execute = self.connection.execute
        count = execute("DELETE FROM gnl_rows WHERE scope_id=? AND key=?", (scope, part.own)).rowcount
        if count < part.limit:
            count += execute(
                "DELETE FROM gnl_rows WHERE row_id IN"
                " (SELECT row_id FROM gnl_rows WHERE scope_id=? AND key>=? AND key<? ORDER BY key LIMIT ?)",
                (scope, part.low, part.high, part.limit - count),
            ).rowcount
        self._changed = self._changed or count > 0
        return count
