"""Copies of vectors in the journal: immutable blocks of many, and beside them one row each of what is in none yet.

A record's row holds what a question shows of it, which takes longer to read than its vector; and the rows newer than
some version are found only by walking over all of them. So each record is written with a copy of its vector beside it,
and who meets enough of these moves them into a block. All copies of a scope are then one short scan.

Nothing here is trusted. Blocks name the range of versions that each covers, without a gap; what they hold, with the
copies beside them, has to add up with the scope's generation row, which counts records and vectors filled in later.
Where any of it does not, the records themselves are read. Pure: rows and arrays in, tables and operations out.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from gnl_core import keys
from gnl_core.journal.port import Create, Delete, Entry, JsonValue, Key, Op
from gnl_semantic.embedder.port import Vectors
from gnl_semantic.past import FORMAT, TEMPLATE_VERSION, VECTOR_TYPE, stamp_key
from gnl_semantic.vectors.table import HASH, Hashes, Records, Table, empty, join, table_of, text_of

BLOCK_RECORDS = 128
"""Least records of a block. Of 384 dimensions it has 200 KB and is written in two milliseconds. Of smaller ones there
are more to read; larger ones leave more copies outside, half a block on average, and each of these is a row to read."""

MOST_BLOCKS = 8
"""Most blocks that one call writes: a scope that has none yet gets them little by little."""

_LAST_NUMBER = 999_999  # 6 digits
_NUMBERS = ("number", "width", "mine", "others", "after", "upto", "count", "born", "surplus", "filled", "whole", "sum")


class UnsoundError(Exception):
    """The copies of a scope are not what was written, or are behind: the records are read. Never leaves the room."""


@dataclass(frozen=True, slots=True)
class Chain:
    """Where the blocks of a scope end.

    Attributes:
        number: Of the last one, which is how many there are.
        upto: Highest version of a record in them; 0 without any.
        count: Rows in them; a record whose vector was filled in later has two.
    """

    number: int = 0
    upto: int = 0
    count: int = 0


@dataclass(frozen=True, slots=True)
class Counted:
    """What a generation row counts, and where it stands.

    Attributes:
        version: Of the row.
        born: When it was created, in milliseconds: after an erasure it is created again.
        records: Records that were created.
        filled: Vectors that were filled in later.
    """

    version: int
    born: int
    records: int
    filled: int


def counted(generation: Entry) -> Counted | None:
    """Return what a generation row counts; None where it says nothing sensible."""
    value = generation.value
    if not isinstance(value, dict):
        return None
    records, filled = value.get("n", 0), value.get("f", 0)
    if type(records) is not int or type(filled) is not int:
        return None
    return Counted(generation.version, generation.created_at, records, filled)


# Read --------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Copies:
    """Reads the copies of a scope page by page, newest first, and says in the end whether they add up.

    Attributes:
        prefix: `keys.vectors_of` of scope, tool and stamp.
        stamp: Stamp of the vectors.
        width: Their dimension.
        counted: What the generation row counts.
        chain: Where the blocks end; None before the first one was met.
        tail: The copies in no block.
        behind: Whether they are as they were written, and yet not all: the next blocks will mend it.
    """

    prefix: Key
    stamp: str
    width: int
    counted: Counted
    chain: Chain | None = None
    tail: Table = field(init=False)
    behind: bool = False
    _next: Chain | None = None
    _surplus: int = 0
    _filled: int = 0
    _fills: int = 0
    _whole: bool = True
    _records: int = 0
    _seen: list[Hashes] = field(default_factory=list)
    _new: list[Entry] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tail = empty(self.width)

    def take(self, entries: Sequence[Entry], *, last: bool) -> Table:
        """Return the records of a page that no page before held.

        Raises:
            UnsoundError: A row is not what is written there.
        """
        depth = len(self.prefix)
        tables: list[Table] = []
        for entry in entries:
            rest = entry.key[depth:]
            if len(rest) == 2 and rest[0] == "new" and self.chain is None:
                self._new.append(entry)
                continue
            if self.chain is None:
                self._begin(_head(entry, self.stamp))
                tables.append(self._read_new())
            tables.append(self._read_block(entry))
        if self.chain is None:
            self.chain = Chain()
            if not last:
                self.behind = True
                raise UnsoundError  # more than a page in no block: records are read as fast
            tables.append(self._read_new())
        if last and self._next not in (None, Chain()):
            raise UnsoundError
        return self._unseen(tables)

    def finish(self) -> int:
        """Return how many records there are more than the generation counts, as when the last block was written.

        Raises:
            UnsoundError: It is another number now, or another one of vectors was filled in than there are copies of.
        """
        records, filled = self.counted.records + self._surplus, self.counted.filled - self._filled
        if not self._whole or (self._records, self._fills) != (records, filled):
            self.behind = True
            raise UnsoundError
        return self._surplus

    def _begin(self, head: dict[str, int]) -> None:
        self.chain = self._next = Chain(head["number"], head["upto"], head["count"])
        self._surplus, self._filled = head["surplus"], head["filled"]
        self._whole = bool(head["whole"])

    def _read_new(self) -> Table:
        """Read the copies in no block. Blocks cover an older one; one newer than the generation waits for the next."""
        oldest = self.chain.upto if self.chain is not None else 0
        entries = [entry for entry in self._new if oldest < entry.version <= self.counted.version]
        self.tail = read_new(entries, len(self.prefix) + 1, self.width)
        self._fills = fills_of(entries)
        self._new = []
        return self.tail

    def _read_block(self, entry: Entry) -> Table:
        head = _head(entry, self.stamp)
        found = Chain(head["number"], head["upto"], head["count"])
        if found != self._next or entry.key != keys.vector_block(self.prefix, found.number):
            raise UnsoundError
        if head["born"] != self.counted.born or head["width"] != self.width or entry.version <= found.upto:
            raise UnsoundError
        table = _decode(entry.blob, head, self.stamp)
        versions = np.concatenate((table.mine.versions, table.others.versions))
        if versions.min() <= head["after"] or versions.max() > found.upto:
            raise UnsoundError
        self._next = Chain(found.number - 1, head["after"], found.count - len(versions))
        return table

    def _unseen(self, tables: Sequence[Table]) -> Table:
        """Return the records of tables, newest first; what a newer one says of a record holds."""
        hashes = np.concatenate([table.hashes for table in tables]) if tables else _NONE
        known = np.unique(hashes)
        if len(known) == len(hashes):
            whole = join(tables, self.width) if tables else empty(self.width)
        else:
            whole = empty(self.width)
            for table in reversed(tables):
                whole = whole.plus(table)
            if whole.count != len(known):
                raise UnsoundError  # one block has a record twice
        if not whole.is_unit():
            raise UnsoundError
        for seen in self._seen:
            whole = whole.without(seen)
        self._seen.append(known)
        if len(self._seen) > _MOST_SEEN:
            self._seen = [np.concatenate(self._seen)]
        self._records += whole.count
        return whole


_NONE: Hashes = np.empty(0, np.uint64)
_MOST_SEEN = 8  # arrays of what earlier pages held, before they become one


def read_new(entries: Sequence[Entry], depth: int, width: int) -> Table:
    """Return the copies that rows hold.

    Args:
        entries: Rows below `keys.new_vectors_of`.
        depth: Segments of that prefix.
        width: Dimension of the vectors.

    Raises:
        UnsoundError: A row is not what is written there.
    """
    found: list[Entry] = []
    for entry in entries:
        value = entry.value
        if not isinstance(value, dict) or type(value.get("f")) is not int or value["f"] != FORMAT:
            raise UnsoundError
        at = value.get("at", entry.created_at)
        if len(entry.key) != depth + 1 or not HASH.fullmatch(entry.key[-1]) or type(at) is not int or abs(at) > _MOST:
            raise UnsoundError
        found.append(entry if at == entry.created_at else replace(entry, created_at=at))
    return table_of(found, width)


def fills_of(entries: Iterable[Entry]) -> int:
    """Return how many copies are of vectors that were filled in later."""
    return sum(isinstance(entry.value, dict) and "at" in entry.value for entry in entries)


_MOST = 1 << 62


def _head(entry: Entry, stamp: str) -> dict[str, int]:
    """Return the numbers of a row of a stamp's block.

    Raises:
        UnsoundError: One is missing, no number, or out of its range.
    """
    value = entry.value
    if not isinstance(value, dict) or type(value.get("f")) is not int or value["f"] != FORMAT:
        raise UnsoundError
    if (value.get("model"), value.get("template")) != (stamp, TEMPLATE_VERSION):
        raise UnsoundError
    head: dict[str, int] = {}
    for name in _NUMBERS:
        number = value.get(name)
        if not isinstance(number, int) or isinstance(number, bool) or abs(number) > _MOST:
            raise UnsoundError
        if number < 0 and name not in ("surplus", "born"):
            raise UnsoundError
        head[name] = number
    return head


def chain_of(entry: Entry | None, stamp: str, before: Chain) -> Chain | None:
    """Return where blocks end with this one; None where it does not follow on `before`."""
    try:
        head = _head(entry, stamp) if entry is not None else None
    except UnsoundError:
        return None
    if head is None or (head["number"], head["after"]) != (before.number + 1, before.upto):
        return None
    found = Chain(head["number"], head["upto"], head["count"])
    return found if found.upto > before.upto and found.count > before.count else None


# Write -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """Records that stand in no block yet.

    Attributes:
        chain: Where the blocks end so far.
        tail: The records after it, up to the generation.
        complete: Whether these are all; else those of the lowest versions.
        surplus: How many more records there are than the generation counts.
        counted: What the generation counts.
    """

    chain: Chain
    tail: Table
    complete: bool
    surplus: int
    counted: Counted


def block_ops(scope: Key, tool: str, stamp: str, due: Due, *, least: int) -> tuple[Chain, list[Op]] | None:
    """Return where the chain ends with the blocks that a tail is due for, and the operations that write them.

    The tail's copies go. A block ends where a version does, and holds `least` records or more. None without any.

    Args:
        scope: The scope.
        tool: The tool.
        stamp: Stamp of the vectors.
        due: The tail, and where the blocks end so far.
        least: Least records of a block.
    """
    chain, state = due.chain, due.counted
    prefix = keys.vectors_of(scope, tool, stamp_key(stamp))
    ops: list[Op] = []
    for part, highest, last in _cut(due, least):
        if chain.number == _LAST_NUMBER:
            break
        before, rows = chain, part.count
        # The last one covers all up to the generation: also copies of records that were there before.
        chain = Chain(before.number + 1, state.version if last else highest, before.count + rows)
        head = {
            "number": chain.number,
            "width": int(part.mine.matrix.shape[1]),
            "mine": part.mine.count,
            "others": part.others.count,
            "after": before.upto,
            "upto": chain.upto,
            "count": chain.count,
            "born": state.born,
            "surplus": due.surplus,
            "filled": state.filled,
            "whole": int(last),
        }
        blob = _encode(part)
        value: dict[str, JsonValue] = {"f": FORMAT, "model": stamp, "template": TEMPLATE_VERSION, **head}
        value["sum"] = _sum(blob, head, stamp)
        ops.append(Create(keys.vector_block(prefix, chain.number), value, blob))
        ops += [Delete((*prefix, "new", text_of(number))) for number in part.hashes.tolist()]
    return (chain, ops) if ops else None


def _cut(due: Due, least: int) -> Iterator[tuple[Table, int, bool]]:
    """Cut a table by ascending version: (part, its highest version, whether it is the last one)."""
    tail = due.tail
    versions = np.sort(np.concatenate([part.versions[: part.count] for part in (tail.mine, tail.others)]))
    begin = 0
    for _ in range(MOST_BLOCKS):
        if begin + least > len(versions):
            return
        end = int(np.searchsorted(versions, versions[begin + least - 1], side="right"))
        if last := due.complete and end + least > len(versions):
            end = len(versions)  # what is left over would be too little for a block of its own
        yield tail.between(int(versions[begin]), int(versions[end - 1])), int(versions[end - 1]), last
        begin = end


def _encode(table: Table) -> bytes:
    parts: list[bytes] = []
    for one in (table.mine, table.others):
        parts += [
            one.hashes[: one.count].astype("<u8").tobytes(),
            one.created[: one.count].astype("<i8").tobytes(),
            one.versions[: one.count].astype("<i8").tobytes(),
        ]
    return b"".join([*parts, table.mine.matrix[: table.mine.count].astype(VECTOR_TYPE).tobytes()])


def _decode(blob: bytes | None, head: Mapping[str, int], stamp: str) -> Table:
    mine, others, width = head["mine"], head["others"], head["width"]
    rows = mine + others
    if blob is None or not rows or len(blob) != 24 * rows + VECTOR_TYPE.itemsize * width * mine:
        raise UnsoundError
    if _sum(blob, head, stamp) != head["sum"]:
        raise UnsoundError
    matrix = np.frombuffer(blob, VECTOR_TYPE, mine * width, 24 * rows) if mine else np.empty(0, np.float32)
    return Table(
        _part(blob, 0, mine, matrix.reshape(mine, width).astype(np.float32, copy=False)),
        _part(blob, 24 * mine, others, np.empty((others, 0), np.float32)),
    )


def _part(blob: bytes, at: int, count: int, matrix: Vectors) -> Records:
    if not count:
        return Records(0, _NONE, np.empty(0, np.int64), np.empty(0, np.int64), matrix)
    return Records(
        count,
        np.frombuffer(blob, "<u8", count, at).astype(np.uint64, copy=False),
        np.frombuffer(blob, "<i8", count, at + 8 * count).astype(np.int64, copy=False),
        np.frombuffer(blob, "<i8", count, at + 16 * count).astype(np.int64, copy=False),
        matrix,
    )


def _sum(blob: bytes, head: Mapping[str, int], stamp: str) -> int:
    """Return a checksum of a block: what one bit that flipped, or one member that was edited, does not survive."""
    text = f"{[stamp, TEMPLATE_VERSION, *[head[name] for name in _NUMBERS if name != 'sum']]}"
    # Most of it is vectors, whose words are added up: that is several times faster, and their lengths are read too.
    begin = 24 * (head["mine"] + head["others"])
    words = np.frombuffer(blob, "<u8", (len(blob) - begin) // 8, begin) if len(blob) - begin >= 8 else _NONE
    view = memoryview(blob)
    rest = zlib.crc32(view[begin + 8 * len(words) :], zlib.crc32(view[:begin], zlib.crc32(text.encode())))
    return (rest ^ int(words.sum(dtype=np.uint64))) % ((1 << 61) - 1)
