"""What is written to a PostgreSQL store: one transaction a batch, in two exchanges with the server.

The first locks the rows that are there and reads what the batch's conditions ask; the second writes and commits. One or
two rows are a statement each, more of them one statement for all: that is what the server is fastest at. A key that is
absent cannot be locked, so a batch that counts on the absence of a row which it does not insert inserts one for
the length of the transaction: whoever creates that row meanwhile waits, and so no two batches can both be right about
each other's rows. A batch that met a row which was inserted under its eyes is tried again as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import psycopg
from psycopg.pq.abc import PGresult

from gnl_core.journal.batches import Ruling, Span, Step, rule
from gnl_core.journal.port import Applied, JsonValue, Refused
from gnl_core.journal.postgres_pool import Connection, pipelined
from gnl_core.journal.postgres_rows import MOST, Attempt, Row, Rows, entry_of
from gnl_core.journal.postgres_sql import BEGIN, IDLE_MS
from gnl_core.journal.postgres_target import unknown_error
from gnl_core.journal.postgres_wire import Call, Value, blobs, exchange, flags, integer, texts
from gnl_core.journal.values import to_text

_FEW = 2  # rows to insert or to write over that are a statement each
_MOST_BYTES = 1 << 26  # of one statement that writes several rows: no message may have a gigabyte


@dataclass(frozen=True, slots=True)
class _Written:
    name: str
    text: str
    blob: bytes | None
    adds: bool = False
    size: int = 0


@dataclass(slots=True)
class _Writes:
    inserts: list[_Written] = field(default_factory=list)
    updates: list[_Written] = field(default_factory=list)
    deletes: list[str] = field(default_factory=list)
    guards: list[str] = field(default_factory=list)

    @property
    def rows(self) -> int:
        """How many rows are written."""
        return len(self.inserts) + len(self.updates)

    @property
    def size(self) -> int:
        """Bytes of their values and blobs."""
        return sum(row.size for row in (*self.inserts, *self.updates))

    def __bool__(self) -> bool:
        return bool(self.rows or self.deletes or self.guards)


@dataclass(frozen=True, slots=True)
class _Batch:
    org: str
    steps: list[Step]
    tag: int


@dataclass(frozen=True, slots=True)
class _Locked:
    """What the first exchange found: the batch's rows that are there, the time, and the organisation's number."""

    rows: dict[str, Row]
    now: int
    scope: int | None


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
            refused = await self._refuse(connection, batch, found, ruling.refused)
            self._statistics.refused += 1
            return refused
        writes = _Writes() if ruling.resent else _collect(steps, ruling, found)
        if writes:
            version = await self._write(connection, this, batch, found, writes)
        else:
            version = ruling.resent or await self._last(connection)
            this.committing = bool(ruling.resent)
            await self._end(connection, b"COMMIT" if ruling.resent else b"ROLLBACK")
        self._statistics.batches += 1
        return Applied(version, found.now, ruling.counters(steps), ruling.kept)

    async def _lock(self, connection: Connection, this: Attempt, batch: _Batch) -> _Locked:
        asked: dict[str, Value] = {
            "org": batch.org,
            "names": texts(sorted({step.name for step in batch.steps})),
            "sums": texts([step.name for step in batch.steps if step.kind == "add"]),
        }
        with self.deadline(connection):
            _, head, found = await exchange(connection, [*self._begin(this), (self._sql.lock, asked)])
            self._check(head)
            if not found.ntuples:
                (found,) = await exchange(connection, [(self._sql.place, asked)])
                now, scope = (integer(found.get_value(0, column)) for column in (0, 1))
                return _Locked({}, self._clock.read(now or 0), scope)
        locked = [_row(found, number) for number in range(found.ntuples)]
        now = self._clock.read(max(*(row[0] for row in locked), *(row[6] for row in locked)))
        return _Locked({row[2]: row[2:] for row in locked}, now, locked[0][1])

    def _begin(self, this: Attempt) -> list[Call]:
        return [(BEGIN, {}), (self._sql.settings, {"patience": str(this.patience_ms), "idle": IDLE_MS})]

    def _check(self, head: PGresult) -> None:
        store, version = (head.get_value(0, column) for column in (0, 1)) if head.ntuples else (None, None)
        self.check_head(None if store is None else (store.decode(), integer(version)))

    async def _last(self, connection: Connection) -> int:
        """Return the version that was given last, to whomever."""
        with self.deadline(connection):
            (found,) = await exchange(connection, [(self._sql.last_version, {})])
        return integer(found.get_value(0, 0)) or 0

    async def _refuse(self, connection: Connection, batch: _Batch, found: _Locked, index: int) -> Refused:
        step, sql = batch.steps[index], self._sql
        # The locks may have been waited for, and rows have come meanwhile that nobody looked for again. What counts as
        # absent must be so beside the rows that were locked; else there was no time at which the answer was true.
        absent = [other.name for other in batch.steps[: index + 1] if other.name not in found.rows]
        with self.deadline(connection):
            async with pipelined(connection):
                came = await connection.execute(sql.came, (batch.org, " ".join(absent)))
                cursor = connection.cursor(binary=True)
                if step.name in found.rows:
                    await cursor.execute(sql.entry, (found.scope, step.name))
                await connection.execute(b"ROLLBACK")
        if (await came.fetchone()) is not None:
            raise psycopg.errors.SerializationFailure("a row came while others were locked")
        if step.name not in found.rows:
            return Refused(index, None, found.now)
        (row,) = await cursor.fetchall()  # nobody else could touch it: it was locked
        return Refused(index, entry_of(row, step.key), found.now)

    async def _end(self, connection: Connection, how: bytes) -> None:
        """End a transaction that wrote nothing.

        By COMMIT if its batch was written before: a server that was started again shows rows which no synchronous
        standby has yet, and the locks on them make this commit wait for one as the first did.
        """
        with self.deadline(connection):
            await connection.execute(how)

    async def _write(
        self, connection: Connection, this: Attempt, batch: _Batch, found: _Locked, writes: _Writes
    ) -> int:
        sql = self._sql
        scope = await self._scope(connection, batch.org) if found.scope is None else found.scope
        shared = {"scope": scope, "tag": batch.tag, "now": found.now}
        if writes.rows or writes.deletes:
            calls: list[Call] = [(sql.next_version, {}), *self._changes(writes)]
        else:
            calls = [(sql.last_version, {}), (sql.guards, {"names": texts(writes.guards)})]
        if gone := [*writes.deletes, *writes.guards]:
            calls.append((sql.delete, {"names": texts(gone)}))
        this.committing = True
        with self.deadline(connection):
            sent = [(statement, {**shared, **values}) for statement, values in calls]
            numbered, *_, commit = await exchange(connection, [*sent, (b"COMMIT", {})])
        if commit.command_status != b"COMMIT":
            raise unknown_error(self.target, RuntimeError(f"the server answered {commit.command_status!r}"))
        if writes.rows or writes.deletes:
            self._statistics.transactions += 1
            self._statistics.rows_written += writes.rows
            self._statistics.bytes_written += writes.size
        return integer(numbered.get_value(0, 0)) or 0

    def _changes(self, writes: _Writes) -> Iterator[Call]:
        """Yield what inserts rows, then what writes over others."""
        sql = self._sql
        guards = [_Written(name, "null", None) for name in writes.guards]
        for rows, single, several in (
            (sorted([*writes.inserts, *guards], key=lambda row: row.name), sql.insert, sql.inserts),
            (writes.updates, sql.update, sql.updates),
        ):
            for group in _groups(rows):
                yield (single, _one(group[0])) if len(group) == 1 else (several, _arrays(group))

    async def _scope(self, connection: Connection, org: str) -> int:
        """Return the number of an organisation that had none."""
        asked: dict[str, Value] = {"org": org}
        with self.deadline(connection):
            _, found = await exchange(connection, [(self._sql.add_scope, asked), (self._sql.place, asked)])
        scope = integer(found.get_value(0, 1))
        assert scope is not None
        return scope

    async def delete_prefix(self, org: str, part: Span) -> int:
        """Delete the first rows of a prefix."""
        return await self.again(lambda connection, this: self._delete(connection, this, org, part))

    async def _delete(self, connection: Connection, this: Attempt, org: str, part: Span) -> int:
        begin, settings = self._begin(this)
        with self.deadline(connection):
            async with pipelined(connection):
                await connection.execute(*begin)
                head = connection.cursor(binary=True)
                await head.execute(*settings)
                own = await connection.execute(self._sql.delete_own, (org, part.own))
        self.check_head(await head.fetchone())
        left = min(part.limit, MOST) - own.rowcount
        with self.deadline(connection):
            async with pipelined(connection):
                below = await connection.execute(self._sql.delete_below, (org, part.low, part.high, left))
                this.committing = True
                ended = await connection.execute(b"COMMIT")
        if ended.statusmessage != "COMMIT":
            raise unknown_error(self.target, RuntimeError(f"the server answered {ended.statusmessage!r}"))
        count = own.rowcount + below.rowcount
        self._statistics.transactions += count > 0
        return count


def _row(found: PGresult, number: int) -> Row:
    """Return a row of the statement 'lock'."""
    values = [found.get_value(number, column) for column in range(found.nfields)]
    name, text = values[2], values[9]
    assert name is not None
    return (
        *map(integer, values[:2]),
        name.decode(),
        *map(integer, values[3:9]),
        None if text is None else text.decode(),
        None,
    )


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
        row = _Written(step.name, text, step.blob, kind == "add", step.size or len(text))
        (writes.updates if present else writes.inserts).append(row)
    return writes


def _groups(rows: list[_Written]) -> Iterator[list[_Written]]:
    """Yield what one statement each writes, in the same order."""
    if len(rows) <= _FEW:
        yield from ([row] for row in rows)
        return
    group: list[_Written] = []
    size = 0
    for row in rows:
        if group and size + row.size > _MOST_BYTES:
            yield group
            group, size = [], 0
        group.append(row)
        size += row.size
    yield group


def _one(row: _Written) -> Mapping[str, Value]:
    return {"name": row.name, "text": row.text, "blob": row.blob, "adds": row.adds}


def _arrays(group: list[_Written]) -> Mapping[str, Value]:
    return {
        "names": texts([row.name for row in group]),
        "texts": texts([row.text for row in group]),
        "blobs": blobs([row.blob for row in group]),
        "adding": flags([row.adds for row in group]),
    }
