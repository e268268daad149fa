"""Vectors of one scope in one matrix, and the one product that answers a call. Pure: rows and arrays in, hashes out.

A table holds vectors, hashes, times and versions, and nothing else of a record: what it finds is read from the journal
before anybody sees it, so that an erased record reaches no question whatever a table still says.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from gnl_core.journal.port import Entry, Key
from gnl_semantic.embedder.port import Vectors
from gnl_semantic.past import FORMAT, TEMPLATE_VERSION, VECTOR_TYPE
from gnl_semantic.recall import best_of

Hashes = NDArray[np.uint64]
Numbers = NDArray[np.int64]
Mask = NDArray[np.bool_]
_Number = TypeVar("_Number", bound=np.generic)

HASH = re.compile(r"[0-9a-f]{16}")  # of arguments: 64 bits
_UNIT = 1e-5  # how far from 1 the square of a unit vector's length may be
_LONG_AGO = -(1 << 62)
_FEW = 8


@dataclass(frozen=True, slots=True)
class Records:
    """The first `count` rows of buffers that may be longer; the rest is room for the next ones.

    Attributes:
        count: Rows.
        hashes: `args_hash` of each, as a number.
        created: When it was created, in milliseconds of the store's clock.
        versions: Version of its row.
        matrix: Its unit vector; of width 0 where none is kept.
    """

    count: int
    hashes: Hashes
    created: Numbers
    versions: Numbers
    matrix: Vectors

    @property
    def used(self) -> int:
        """Bytes of the rows."""
        return self.count * self._row

    @property
    def held(self) -> int:
        """Bytes of the buffers."""
        return len(self.hashes) * self._row

    @property
    def _row(self) -> int:
        return 24 + 4 * int(self.matrix.shape[1])

    def where(self, wanted: Hashes) -> NDArray[np.intp]:
        """Return the rows of these hashes."""
        hashes = self.hashes[: self.count]
        if len(wanted) > _FEW:
            return np.flatnonzero(np.isin(hashes, wanted))
        found = np.zeros(self.count, np.bool_)  # of one or two, which is what a call asks for, a tenth of the time
        for one in wanted:
            found |= hashes == one
        return np.flatnonzero(found)

    def without(self, rows: NDArray[np.intp]) -> Records:
        """Return a copy that lacks some rows."""
        if not len(rows):
            return self
        keep = np.ones(self.count, np.bool_)
        keep[rows] = False
        return self._only(np.flatnonzero(keep))

    def between(self, lowest: int, highest: int) -> Records:
        """Return a copy of the rows of these versions, both included."""
        versions = self.versions[: self.count]
        return self._only(np.flatnonzero((versions >= lowest) & (versions <= highest)))

    def _only(self, rows: NDArray[np.intp]) -> Records:
        return Records(len(rows), self.hashes[rows], self.created[rows], self.versions[rows], self.matrix[rows])

    def plus(self, more: Records) -> Records:
        """Return the rows of both, in the room that is left if there is some.

        Who still reads this object sees none of it: it ends at its own count. Only one object may ever be made of it
        that is kept, since a second one would write into the same room.
        """
        if not more.count:
            return self
        count = self.count + more.count
        whole = Records(count, self.hashes, self.created, self.versions, self.matrix)
        if count > len(self.hashes):
            # Twice the room each time: however many come one by one, a record is copied about once.
            room = max(count, 2 * len(self.hashes), 16)
            whole = Records(
                count,
                _grown(self.hashes, self.count, room),
                _grown(self.created, self.count, room),
                _grown(self.versions, self.count, room),
                _grown(self.matrix, self.count, room),
            )
        whole.hashes[self.count : count] = more.hashes[: more.count]
        whole.created[self.count : count] = more.created[: more.count]
        whole.versions[self.count : count] = more.versions[: more.count]
        whole.matrix[self.count : count] = more.matrix[: more.count]
        return whole


def _grown(part: NDArray[_Number], count: int, room: int) -> NDArray[_Number]:
    grown = np.empty((room, *part.shape[1:]), part.dtype)
    grown[:count] = part[:count]
    return grown


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What is asked of a table.

    Attributes:
        vector: Unit vector of the call.
        k: Most records to find by cosine.
        threshold: Least cosine, -1 to 1.
        exact: Hashes that are looked up whatever their cosine.
        dead: Hashes that are never found.
        oldest: Creation time from which records count, in milliseconds.
    """

    vector: Vectors
    k: int
    threshold: float
    exact: Hashes
    dead: Hashes
    oldest: int = _LONG_AGO


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What was found.

    Attributes:
        best: (hash, cosine), best first.
        exact: Cosine of each hash that was looked up and has a vector.
        old: Hashes that were looked up and count no more.
        dropped: Records that could not be compared.
    """

    best: tuple[tuple[int, float], ...] = ()
    exact: Mapping[int, float] = field(default_factory=dict)
    old: frozenset[int] = frozenset()
    dropped: int = 0

    def plus(self, other: Answer, k: int) -> Answer:
        """Return the answer over the records of both; equal cosines keep their order."""
        best = sorted((*self.best, *other.best), key=lambda found: -found[1])[:k]
        exact = {**self.exact, **other.exact}
        return Answer(best=tuple(best), exact=exact, old=self.old | other.old, dropped=self.dropped + other.dropped)


@dataclass(frozen=True, slots=True)
class Table:
    """The records of one scope and tool, for one stamp of vectors.

    Attributes:
        mine: Those with a vector of the stamp.
        others: Those that cannot be compared: of another stamp, without a vector, or with one that is none.
    """

    mine: Records
    others: Records

    @property
    def count(self) -> int:
        """Records."""
        return self.mine.count + self.others.count

    @property
    def used(self) -> int:
        """Bytes of the records."""
        return self.mine.used + self.others.used

    @property
    def held(self) -> int:
        """Bytes of the buffers."""
        return self.mine.held + self.others.held

    def plus(self, more: Table) -> Table:
        """Return the records of both; what `more` says of a record holds. See `Records.plus`."""
        # A replaced record moves, by a copy: who multiplies with the old matrix at this moment must not see it change.
        rest = self.without(more.hashes)
        return Table(rest.mine.plus(more.mine), rest.others.plus(more.others))

    @property
    def hashes(self) -> Hashes:
        """Hashes of all records."""
        return np.concatenate([part.hashes[: part.count] for part in (self.mine, self.others)])

    @property
    def versions(self) -> Numbers:
        """Versions of all records, in the order of the hashes."""
        return np.concatenate([part.versions[: part.count] for part in (self.mine, self.others)])

    def newer(self, version: int) -> int:
        """Return how many records were written after a version."""
        return sum(int((part.versions[: part.count] > version).sum()) for part in (self.mine, self.others))

    def between(self, lowest: int, highest: int) -> Table:
        """Return a copy of the records of these versions, both included."""
        return Table(self.mine.between(lowest, highest), self.others.between(lowest, highest))

    def without(self, hashes: Hashes) -> Table:
        """Return the records that are none of these."""
        return Table(
            self.mine.without(self.mine.where(hashes)),
            self.others.without(self.others.where(hashes)),
        )

    def is_unit(self) -> bool:
        """Whether every vector has the length 1."""
        matrix = self.mine.matrix[: self.mine.count]
        with np.errstate(over="ignore", invalid="ignore"):
            lengths = np.einsum("ij,ij->i", matrix, matrix)
        return bool((np.abs(lengths - 1) <= 2 * _UNIT).all())  # not so where it is NaN

    def answer(self, query: Query) -> Answer:
        """Return what a call finds here: one product of matrix and vector."""
        mine, others = self.mine, self.others
        exact = mine.where(query.exact) if len(query.exact) else np.empty(0, np.intp)
        alive = _alive(mine, query)
        matrix = mine.matrix[: mine.count]
        # Not by `@`: BLAS spreads the product over threads that wait for each other, which on a busy machine takes a
        # hundred times as long. And a row's cosine here hangs on the row alone, not on its place in the matrix.
        scores = np.minimum(np.einsum("ij,j->i", matrix, query.vector), np.float32(1))
        best = best_of(scores, k=query.k, threshold=query.threshold, alive=alive)
        beside = _alive(others, query)
        if len(query.exact):
            beside[others.where(query.exact)] = False
        return Answer(
            best=tuple((int(mine.hashes[row]), score) for row, score in best),
            exact=dict(zip(mine.hashes[exact].tolist(), scores[exact].tolist(), strict=True)),
            old=frozenset(_old(mine, query) + _old(others, query)),
            dropped=int(beside.sum()),
        )


def _alive(records: Records, query: Query) -> Mask:
    alive: Mask = records.created[: records.count] >= query.oldest
    if len(query.dead):
        alive[records.where(query.dead)] = False
    return alive


def _old(records: Records, query: Query) -> list[int]:
    if query.oldest == _LONG_AGO or not len(query.exact):
        return []
    rows = records.where(query.exact)
    found: list[int] = records.hashes[rows][records.created[rows] < query.oldest].tolist()
    return found


def oldest_of(now: int, ttl_ms: int | None) -> int:
    """Return the creation time from which records count, in milliseconds."""
    return _LONG_AGO if ttl_ms is None else max(now - ttl_ms, _LONG_AGO)


# Rows to arrays ----------------------------------------------------------------------------------------------------


def numbers_of(hashes: Iterable[str]) -> Hashes:
    """Return hashes as numbers; texts that no hash of arguments is spelt like are left out."""
    return np.array([int(text, 16) for text in hashes if HASH.fullmatch(text)], np.uint64)


def text_of(number: int) -> str:
    """Return the text of a hash."""
    return f"{number:016x}"


def empty(width: int) -> Table:
    """Return a table without records."""
    return Table(_records((), np.empty((0, width), np.float32)), _records((), np.empty((0, 0), np.float32)))


def read_table(entries: Sequence[Entry], prefix: Key, stamp: str, width: int) -> Table:
    """Return the records that rows hold; a row that is none of the prefix's is left out. Never raises.

    A vector counts where it has the width, is finite and not zero; one that is not of length 1 is made so.

    Args:
        entries: Rows with their blobs, each key once.
        prefix: `keys.similar_of` of the scope and tool: the key of a record is this and its hash.
        stamp: Stamp of the vectors that are kept.
        width: Their dimension.
    """
    size = width * VECTOR_TYPE.itemsize
    depth = len(prefix) + 1
    is_hash = HASH.fullmatch
    mine: list[Entry] = []
    others: list[Entry] = []
    blobs: list[bytes] = []
    for entry in entries:
        key = entry.key
        if len(key) != depth or key[:-1] != prefix or not is_hash(key[-1]):
            continue
        value, blob = entry.value, entry.blob
        if (
            blob is not None
            and len(blob) == size
            and isinstance(value, dict)
            and value.get("model") == stamp
            and value.get("template") == TEMPLATE_VERSION
            and value.get("f") == FORMAT
        ):
            mine.append(entry)
            blobs.append(blob)
        else:
            others.append(entry)
    return _table(mine, blobs, others, width)


def table_of(entries: Sequence[Entry], width: int) -> Table:
    """Return the records that copies of vectors hold: each with a vector where its blob is one of this dimension.

    Args:
        entries: Rows whose key ends with the hash of a record, each hash once.
        width: Dimension of the vectors.
    """
    size = width * VECTOR_TYPE.itemsize
    mine: list[Entry] = []
    others: list[Entry] = []
    blobs: list[bytes] = []
    for entry in entries:
        if entry.blob is not None and len(entry.blob) == size:
            mine.append(entry)
            blobs.append(entry.blob)
        else:
            others.append(entry)
    return _table(mine, blobs, others, width)


def _table(mine: list[Entry], blobs: list[bytes], others: list[Entry], width: int) -> Table:
    # One copy of all vectors, and that one is the matrix.
    matrix = np.frombuffer(b"".join(blobs), VECTOR_TYPE).astype(np.float32, copy=False).reshape(len(blobs), width)
    with np.errstate(over="ignore", invalid="ignore"):
        lengths = np.einsum("ij,ij->i", matrix, matrix)
    usable = np.isfinite(lengths) & (lengths > 0)
    if not usable.all():
        others += [entry for entry, good in zip(mine, usable, strict=True) if not good]
        mine = [entry for entry, good in zip(mine, usable, strict=True) if good]
        matrix, lengths = matrix[usable], lengths[usable]
    if (np.abs(lengths - 1) > _UNIT).any():
        matrix = matrix / np.sqrt(lengths)[:, None]
    return Table(_records(mine, matrix), _records(others, np.empty((len(others), 0), np.float32)))


def _records(entries: Sequence[Entry], matrix: Vectors) -> Records:
    count = len(entries)
    return Records(
        count,
        np.fromiter((int(entry.key[-1], 16) for entry in entries), np.uint64, count),
        np.fromiter((entry.created_at for entry in entries), np.int64, count),
        np.fromiter((entry.version for entry in entries), np.int64, count),
        matrix,
    )


def join(tables: Sequence[Table], width: int) -> Table:
    """Return the records of tables that have none in common, with vectors of this dimension."""
    if len(tables) == 1:
        return tables[0]
    whole = empty(width)
    return Table(
        _joined([whole.mine, *(table.mine for table in tables)]),
        _joined([whole.others, *(table.others for table in tables)]),
    )


def _joined(records: Sequence[Records]) -> Records:
    return Records(
        sum(one.count for one in records),
        np.concatenate([one.hashes[: one.count] for one in records]),
        np.concatenate([one.created[: one.count] for one in records]),
        np.concatenate([one.versions[: one.count] for one in records]),
        np.concatenate([one.matrix[: one.count] for one in records]),
    )
