"""Stores of past work, for tests of what recalls it."""

from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from gnl_core import keys
from gnl_core.identity import SemanticIdentity
from gnl_core.journal import Put, new_batch, scan_all
from gnl_core.journal.sqlite import SqliteStorage
from gnl_core.prior import Subject
from gnl_core.testing import FaultyJournal
from gnl_semantic.past import past_ops, stamp_key
from gnl_semantic.vectors import VectorCache

STAMP = "m@1"
DECLARED = SemanticIdentity(keys=("sku",))


def hash_of(number):
    return f"{number:016x}"


def unit(angle, width=8):
    """Return a unit vector; the cosine of two is that of the angle between them."""
    vector = np.zeros(width, np.float32)
    vector[:2] = np.cos(angle), np.sin(angle)
    return vector


class Watching:
    """A journal that notes the family and the rows of each page; `hook` is awaited before a batch."""

    def __init__(self, inner, hook=None):
        self._inner, self._hook = inner, hook
        self.pages, self.batches = [], []

    async def scan(self, prefix, **options):
        page = await self._inner.scan(prefix, **options)
        self.pages.append((prefix[2], len(page.entries)))
        return page

    async def apply(self, ops, *, batch):
        if self._hook is not None:
            await self._hook()
        self.batches.append((ops, await self._inner.apply(ops, batch=batch)))
        return self.batches[-1][1]

    def __getattr__(self, name):
        return getattr(self._inner, name)


@dataclass
class Desk:
    """Records past work in a store, and asks a cache about it, as one process does."""

    journal: object
    cache: VectorCache = field(default_factory=VectorCache)
    scope: tuple = ("xthr", "t")
    tool: str = "order"
    now: int = 1_000_000
    ttl_ms: int | None = None

    @property
    def prefix(self):
        return keys.similar_of(self.scope, self.tool)

    def beside(self, **changed):
        """Return another desk: another scope or tool, another cache, another object of the store."""
        return replace(self, **changed)

    def counting(self):
        return self.beside(journal=FaultyJournal(self.journal))

    def watching(self, hook=None, **changed):
        return self.beside(journal=Watching(self.journal, hook), **changed)

    def subject(self, number=0):
        return Subject(
            journal=self.journal,
            scope=self.scope,
            root="r",
            fence=1,
            run="r",
            call="s0p1",
            tool=self.tool,
            args_hash=hash_of(number),
            identity=DECLARED.build(self.tool, {"sku": f"sku {number}"}),
            now=self.now,
            ttl_ms=self.ttl_ms,
        )

    async def record(self, number, vector, *, stamp=STAMP, known=True):
        """Record a success of the arguments of this number, as the gate does it."""
        row = keys.similar(self.scope, self.tool, hash_of(number))
        entry = (await self.journal.get_many([row])).entries[0] if known else None
        ops = past_ops(self.subject(number), stamp=stamp, vector=vector, known=entry)
        if ops:
            await self.journal.apply(ops, batch=new_batch())

    async def spoil(self, number, *, value=None, blob=None):
        """Write over a record with what no release writes."""
        await self.journal.apply(
            [Put(keys.similar(self.scope, self.tool, hash_of(number)), value, blob)], batch=new_batch()
        )

    async def purge(self, prefix=None):
        while await self.journal.delete_prefix(prefix or self.scope):
            pass

    async def generation(self):
        return (await self.journal.get_many([keys.generation(self.scope, self.tool)])).entries[0]

    async def ask(self, angle=0.0, *, generation=..., query=..., k=3, threshold=0.5, exact=(), dead=(), stamp=STAMP):
        """Recall as the gate does: the generation is read in the call's own read, which is not counted here."""
        if generation is ...:
            inner = self.beside(journal=getattr(self.journal, "_inner", self.journal))
            generation = await inner.generation()
        return await self.cache.recall(
            self.subject(),
            generation=generation,
            stamp=stamp,
            query=unit(angle) if query is ... else query,
            k=k,
            threshold=threshold,
            exact=[hash_of(number) for number in exact],
            dead=[hash_of(number) for number in dead],
        )

    async def found(self, angle=0.0, **options):
        """Return the numbers found, best first."""
        return [int(name, 16) for name, _ in (await self.ask(angle, **options)).scored]

    async def fill(self, count, start=1):
        """Record so many, each one hundredth of a radian from the one before."""
        for number in range(start, start + count):
            await self.record(number, unit(number / 100))

    async def copies(self, stamp=STAMP):
        """Return (blocks, copies in none) of a stamp."""
        prefix = keys.vectors_of(self.scope, self.tool, stamp_key(stamp))
        rows = [row async for row in scan_all(self.journal, prefix, blobs=True)]
        return [row for row in rows if row.key[-2] != "new"], [row for row in rows if row.key[-2] == "new"]

    async def cold(self, **options):
        """Ask as a process that holds nothing: (what it finds, the pages it read)."""
        one = self.watching(cache=VectorCache(block=3))
        return await one.found(**{"k": 99, **options}), one.journal.pages

    async def rows(self):
        return [entry async for entry in scan_all(self.journal, self.prefix, blobs=True)]


@pytest.fixture
async def desk(any_store):
    async with any_store.open() as storage:
        yield Desk(storage.runs)


@pytest.fixture
async def kept(desk):
    """A scope of seven records in two blocks, with one copy outside."""
    desk = desk.beside(cache=VectorCache(block=3))
    for number in range(1, 8):
        await desk.fill(1, start=number)
        await desk.ask()
    assert [len(part) for part in await desk.copies()] == [2, 1]
    return desk


@pytest.fixture
def file_desk(tmp_path):
    """Make desks over one SQLite file, each with a storage object of its own."""
    storages = []

    def make(name="runs.db", **options):
        storages.append(SqliteStorage(tmp_path / name, "normal"))
        return Desk(storages[-1].runs, **options)

    yield make
    for storage in storages:
        storage.close()


@pytest.fixture(scope="session")
def desk_type():
    """For tests that open stores of their own."""
    return Desk
