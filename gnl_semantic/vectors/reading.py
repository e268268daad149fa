"""Reads a scope's vectors from a journal: from the copies that are made for it, or from the records themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gnl_core import keys
from gnl_core.journal.port import Entry, Key
from gnl_core.prior import Subject
from gnl_semantic.past import stamp_key
from gnl_semantic.vectors.blocks import MOST_BLOCKS, Chain, Copies, Counted, Due, UnsoundError, fills_of, read_new
from gnl_semantic.vectors.held import Name, Scope
from gnl_semantic.vectors.table import Answer, Query, Table, empty, join, read_table

PAGE_ROWS = 2_000
PAGE_BYTES = 4 << 20


@dataclass(slots=True)
class Call:
    """One call that what is held does not answer.

    Attributes:
        name: The table's.
        subject: The call.
        generation: The row that it is to be as good as.
        query: What is asked.
        due: What could be copied, of a scope that is too big to be held.
    """

    name: Name
    subject: Subject
    generation: Entry
    query: Query
    due: Due | None = None

    @property
    def stamp(self) -> str:
        """Stamp of the vectors."""
        return self.name[4]

    @property
    def width(self) -> int:
        """Their dimension."""
        return self.name[5]


class Whole:
    """What was read of a scope: kept as it comes, or only answered from once it is too big to be held.

    Attributes:
        used: Bytes of it.
        count: Records.
        newer: Records that were written after the generation was read.
        answer: What was found; None while the tables are kept.
        tail: The records after a chain, of the lowest versions, where they were not kept.
        complete: Whether the tail lacks none.
    """

    def __init__(self, call: Call, exceeds: Callable[[int], bool], block: int, *, big: bool) -> None:
        self._call = call
        self._exceeds = exceeds
        self._most = block * (MOST_BLOCKS + 1)
        self._tables: list[Table] = []
        self.used = self.count = self.newer = 0
        self.answer = Answer() if big else None
        self.tail = empty(call.width)
        self.complete = True

    def add(self, table: Table, chain: Chain | None) -> None:
        """Add records that were in no table before; those after the chain may be copied later."""
        self.used += table.used
        self.count += table.count
        self.newer += table.newer(self._call.generation.version)
        self._tables.append(table)
        if self.answer is None and self._exceeds(self.used):
            self.answer = Answer()
        if self.answer is not None:
            for one in self._tables:
                self.answer = self.answer.plus(one.answer(self._call.query), self._call.query.k)
                if chain is not None:
                    self._extend(one.between(chain.upto + 1, self._call.generation.version))
            self._tables.clear()

    def table(self) -> Table:
        """Return all records as one table."""
        return join(self._tables, self._call.width) if self._tables else empty(self._call.width)

    def _extend(self, more: Table) -> None:
        if not more.count:
            return
        tail = join([self.tail, more], self._call.width)
        if tail.count > self._most:
            versions = np.sort(tail.versions)
            tail = tail.between(0, int(versions[self._most]) - 1)
            self.complete = False
        self.tail = tail


async def read_records(call: Call, after: Key | None, newer_than: int) -> tuple[Table, Key | None]:
    """Read one page of records, and where the next one begins."""
    prefix = keys.similar_of(call.subject.scope, call.subject.tool)
    page = await call.subject.journal.scan(
        prefix, after=after, newer_than=newer_than, limit=PAGE_ROWS, max_bytes=PAGE_BYTES, blobs=True
    )
    return read_table(page.entries, prefix, call.stamp, call.width), page.after


async def read_copies(call: Call, copies: Copies, whole: Whole) -> int:
    """Read all copies; return how many more records there are than the generation counts.

    Raises:
        UnsoundError: They are not what was written, or not all.
    """
    after: Key | None = None
    while True:
        page = await call.subject.journal.scan(
            copies.prefix, after=after, reverse=True, limit=PAGE_ROWS, max_bytes=PAGE_BYTES, blobs=True
        )
        after = page.after
        # What stands in no block is copied from `copies.tail`: no need to look for it in the table.
        whole.add(copies.take(page.entries, last=after is None), None)
        if after is None:
            return copies.finish()


async def read_new_copies(call: Call, held: Scope, counted: Counted) -> Table | None:
    """Return what is new in a scope by its copies; None where these do not add up, and the records have to be read."""
    if held.surplus is None or held.filled is None:
        return None
    prefix = keys.new_vectors_of(call.subject.scope, call.subject.tool, stamp_key(call.stamp))
    page = await call.subject.journal.scan(
        prefix, newer_than=held.version, limit=PAGE_ROWS, max_bytes=PAGE_BYTES, blobs=True
    )
    if page.after is not None or any(entry.version > counted.version for entry in page.entries):
        return None
    try:
        found = read_new(page.entries, len(prefix), call.width)
    except UnsoundError:
        return None
    known = int(np.isin(found.hashes, held.table.hashes).sum())
    if held.table.count + found.count - known - counted.records != held.surplus:
        return None
    return found if fills_of(page.entries) == counted.filled - held.filled else None
