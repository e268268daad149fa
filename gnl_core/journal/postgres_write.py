"""What is written to a PostgreSQL store: one transaction a batch, in two exchanges with the server.

The first locks the rows that are there and reads what the batch's conditions ask; the second writes and commits. A key
that is absent cannot be locked, so a batch that counts on the absence of a row which it does not insert inserts one for
the length of the transaction: whoever creates that row meanwhile waits, and so no two batches can both be right about
each other's rows. A batch that met a row which was inserted under its eyes is tried again as a whole.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from gnl_core.journal.batches import Ruling, Span, Step, rule
from gnl_core.journal.port import Applied, JsonValue, Refused
from gnl_core.journal.postgres_pool import Connection, pipelined
from gnl_core.journal.postgres_rows import MOST, Attempt, Row, Rows, entry_of
from gnl_core.journal.postgres_sql import BEGIN
from gnl_core.journal.postgres_target import unknown_error
from gnl_core.journal.values import to_text

_IDLE_MS = "60000"  # also the longest that a large value may take to be sent


@dataclass(slots=True)
class _Writes:
    inserts: list[tuple[str, str, bytes | None]] = field(default_factory=list)
    updates: list[tuple[str, str, bytes | None]] = field(default_factory=list)
    sums: list[tuple[str, str]] = field(default_factory=list)
    deletes: list[str] = field(default_factory=list)
    guards: list[str] = field(default_factory=list)
    size: int = 0

    @property
    def rows(self) -> int:
        """How many rows are written."""
        return len(self.inserts) + len(self.updates) + len(self.sums)

    def __bool__(self) -> bool:
        return bool(self.rows or self.deletes or self.guards)


@dataclass(frozen=True, slots=True)
class _Batch:
    org: str
    steps: list[Step]
    tag: int


@dataclass(frozen=True, slots=True)
class _Locked:
    """What the first exchange found: the batch's rows that are there, the time, and the version given last."""

    rows: dict[str, Row]
    now: int
    scope: int | None
    last: int


class WriteRows(Rows):
    """The server, for one who writes as well."""

    async def apply(self, org: str, steps: list[Step], batch: int) -> Applied | Refused:
        """Rule on one batch and write it."""
        whole = _Batch(org, steps, batch)
        return await self.again(lambda connection, this: self._batch(connection, this, whole))

    async def _batch(self, connection: Connection, this: Attempt, batch: _Batch) -> Applied | Refused:
        steps = batch.steps
        found = await self._lock(connection, this, batch)
        present = {name: (row[1], row[2]) for name, row in found.rows.items()}

        def value_of(step: Step) -> JsonValue:
            return entry_of(found.rows[step.name], step.key).value

        ruling = rule(steps, present, batch.tag, value_of)
        if ruling.refused >= 0:
            self._statistics.refused += 1
            return await self._refuse(connection, found, steps[ruling.refused], ruling.refused)
        version = ruling.resent or found.last
        writes = _Writes() if ruling.resent else _collect(steps, ruling, found)
        if writes:
            version = await self._write(connection, this, batch, found, writes)
        else:
            await connection.execute(b"ROLLBACK")
        self._statistics.batches += 1
        return Applied(version, found.now, ruling.counters(steps), ruling.kept)

    async def _lock(self, connection: Connection, this: Attempt, batch: _Batch) -> _Locked:
        names = sorted({step.name for step in batch.steps})
        sums = [step.name for step in batch.steps if step.kind == "add"]
        with self.deadline(connection):
            async with pipelined(connection):
                await self._begin(connection, this)
                locked = connection.cursor(binary=True)
                await locked.execute(self._sql.lock, (sums, batch.org, names))
                head = connection.cursor(binary=True)
                await head.execute(self._sql.head, (batch.org,))
        rows = {row[0]: row for row in await locked.fetchall()}
        top = await head.fetchone()
        self.check_head(top)
        assert top is not None
        now = self._clock.read(max([top[2], *(row[4] for row in rows.values())]))
        return _Locked(rows, now, top[3], top[4])

    async def _begin(self, connection: Connection, this: Attempt) -> None:
        left = max(1, int((this.until - time.monotonic()) * 1000))
        await connection.execute(BEGIN)
        await connection.execute(self._sql.settings, (str(left), _IDLE_MS))

    async def _refuse(self, connection: Connection, found: _Locked, step: Step, index: int) -> Refused:
        if step.name not in found.rows:
            await connection.execute(b"ROLLBACK")
            return Refused(index, None, found.now)
        with self.deadline(connection):
            async with pipelined(connection):
                cursor = connection.cursor(binary=True)
                await cursor.execute(self._sql.entry, (found.scope, step.name))
                await connection.execute(b"ROLLBACK")
        (row,) = await cursor.fetchall()  # nobody else could touch it: it was locked
        return Refused(index, entry_of(row, step.key), found.now)

    async def _write(
        self, connection: Connection, this: Attempt, batch: _Batch, found: _Locked, writes: _Writes
    ) -> int:
        sql, now, tag = self._sql, found.now, batch.tag
        scope = found.scope
        if scope is None:
            await connection.execute(sql.add_scope, (batch.org,))
            row = await (await connection.execute(sql.head, (batch.org,))).fetchone()
            assert row is not None
            scope = row[3]
        inserts = [(name, sql.insert, (scope, name, tag, now, now, text, blob)) for name, text, blob in writes.inserts]
        guards = [(name, sql.guard, (scope, name)) for name in writes.guards]
        with self.deadline(connection):
            async with pipelined(connection):
                execute = connection.execute
                numbered = await execute(sql.next_version) if writes.rows or writes.deletes else None
                for _, statement, parameters in sorted([*inserts, *guards], key=_first):
                    await execute(statement, parameters)
                for name, text, blob in writes.updates:
                    await execute(sql.update, (tag, now, text, blob, scope, name))
                for name, text in writes.sums:
                    await execute(sql.update_sum, (tag, now, text, scope, name))
                if writes.deletes or guards:
                    await execute(sql.delete, (scope, [*writes.deletes, *writes.guards]))
                this.committing = True
                commit = await execute(b"COMMIT")
        if commit.statusmessage != "COMMIT":
            raise unknown_error(self.target, RuntimeError(f"the server answered {commit.statusmessage}"))
        if numbered is None:
            return found.last
        self._statistics.transactions += 1
        self._statistics.rows_written += writes.rows
        self._statistics.bytes_written += writes.size
        row = await numbered.fetchone()
        assert row is not None
        return int(row[0])

    async def delete_prefix(self, org: str, part: Span) -> int:
        """Delete the first rows of a prefix."""
        return await self.again(lambda connection, this: self._delete(connection, this, org, part))

    async def _delete(self, connection: Connection, this: Attempt, org: str, part: Span) -> int:
        with self.deadline(connection):
            async with pipelined(connection):
                await self._begin(connection, this)
                opened = connection.cursor(binary=True)
                await opened.execute(self._sql.opened)
                own = await connection.execute(self._sql.delete_own, (org, part.own))
        self.check_head(await opened.fetchone())
        left = min(part.limit, MOST) - own.rowcount
        with self.deadline(connection):
            async with pipelined(connection):
                below = await connection.execute(self._sql.delete_below, (org, part.low, part.high, left))
                this.committing = True
                await connection.execute(b"COMMIT")
        count = own.rowcount + below.rowcount
        self._statistics.transactions += count > 0
        return count


def _collect(steps: list[Step], ruling: Ruling, found: _Locked) -> _Writes:
    writes = _Writes()
    written = {step.name for step in steps if step.kind not in ("expect", "delete")}
    for index, step in enumerate(steps):
        kind, present = step.kind, step.name in found.rows
        if kind in ("expect", "delete"):
            if kind == "delete" and present:
                writes.deletes.append(step.name)
            elif not present and step.name not in written and step.name not in writes.guards:
                writes.guards.append(step.name)
            continue
        if index in ruling.kept:
            continue
        text = to_text(step.key, ruling.sums[step.name]) if kind == "add" and ruling.sums else step.text
        if not present:
            writes.inserts.append((step.name, text, step.blob))
        elif kind == "add":
            writes.sums.append((step.name, text))
        else:
            writes.updates.append((step.name, text, step.blob))
        writes.size += step.size or len(text)
    return writes


def _first(row: tuple[Any, ...]) -> str:
    return str(row[0])
