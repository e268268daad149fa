"""Recall over stores that were erased, made anew, put back, or written by somebody else."""

import asyncio
import shutil
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from gnl_core import keys
from gnl_core.journal.memory import InMemoryStorage
from gnl_semantic.vectors import VectorCache

pytestmark = pytest.mark.stores()


def unit(angle, width=8):
    vector = np.zeros(width, np.float32)
    vector[:2] = np.cos(angle), np.sin(angle)
    return vector


async def fill(desk, angles, start=1):
    for number, angle in enumerate(angles, start):
        await desk.record(number, unit(angle))


class Watching:
    """A journal that notes what each scan asked for, and how many rows it got."""

    def __init__(self, inner):
        self._inner = inner
        self.scans = []

    async def scan(self, prefix, *, newer_than=0, **options):
        page = await self._inner.scan(prefix, newer_than=newer_than, **options)
        self.scans.append((newer_than, len(page.entries)))
        return page

    def __getattr__(self, name):
        return getattr(self._inner, name)


async def test_an_erased_scope_is_forgotten(desk):
    await fill(desk, [0.1, 0.2])
    assert await desk.found() == [1, 2]
    await desk.purge()
    assert await desk.found() == []
    assert (len(desk.cache), desk.cache.held_bytes) == (0, 0)


@pytest.mark.parametrize("again", [[1, 2, 3], [2], [1, 2], [7, 8, 9], [1, 7]], ids=repr)
async def test_what_was_erased_and_written_anew_is_read_anew(desk, again):
    await fill(desk, [0.1, 0.2])
    await desk.ask()
    await desk.purge()
    for number in again:
        await desk.record(number, unit(number / 10))
    assert sorted(await desk.found(k=9)) == again


async def test_a_scope_that_lost_single_rows_heals_once_the_reader_says_so(desk):
    await fill(desk, [0.1, 0.2, 0.3])
    await desk.ask()
    await desk.purge(keys.similar(desk.scope, desk.tool, "0000000000000001"))
    assert await desk.found(k=1) == [1]  # a proposal that no reader of the row will show
    desk.cache.forget(desk.subject())
    assert await desk.found(k=1) == [2]
    watched = desk.beside(journal=Watching(desk.journal))
    await desk.record(4, unit(0.0))
    assert await watched.found(k=2) == [4, 2]
    assert [rows for _, rows in watched.journal.scans] == [1]


async def test_a_store_that_was_made_anew_is_another_store(file_desk, tmp_path):
    cache = VectorCache()
    first = file_desk("a.db", cache=cache)
    await fill(first, [0.1])
    assert await first.found() == [1]
    second = file_desk("b.db", cache=cache)  # the same versions and counts
    await fill(second, [0.1], start=2)
    assert await second.found() == [2]
    async with InMemoryStorage() as one, InMemoryStorage() as two:
        for number, storage in enumerate((one, two), 3):
            await first.beside(journal=storage.runs).record(number, unit(0.0))
        assert await first.beside(journal=two.runs).found() == [4]
        assert await first.beside(journal=one.runs).found() == [3]


async def test_a_store_that_was_put_back_to_an_older_copy_is_read_anew(file_desk, tmp_path):
    cache = VectorCache()
    desk = file_desk(cache=cache)
    await fill(desk, [0.1, 0.2])
    await desk.journal.aclose()
    shutil.copytree(tmp_path, tmp_path.with_name("copy"))
    desk = file_desk(cache=cache)
    await fill(desk, [0.0, 0.0], start=3)
    assert await desk.found(k=9) == [3, 4, 1, 2]
    await desk.journal.aclose()
    shutil.rmtree(tmp_path)
    shutil.copytree(tmp_path.with_name("copy"), tmp_path)
    desk = file_desk(cache=cache)
    assert await desk.found(k=9) == [1, 2]
    await desk.record(8, unit(0.0))
    assert await desk.found(k=9) == [8, 1, 2]


async def put_back(file_desk, tmp_path, cache, later):
    """Return a desk whose store was put back to two records, after a cache has seen later ones too."""
    desk = file_desk(cache=cache)
    await fill(desk, [0.1, 0.2])
    await desk.journal.aclose()
    shutil.copytree(tmp_path, tmp_path.with_name(f"{tmp_path.name}-older"))
    desk = file_desk(cache=cache)
    await fill(desk, later, start=3)
    assert len(await desk.found(k=9)) == 2 + len(later)
    await desk.journal.aclose()
    shutil.rmtree(tmp_path)
    shutil.copytree(tmp_path.with_name(f"{tmp_path.name}-older"), tmp_path)
    return file_desk(cache=cache)


async def test_a_version_that_a_put_back_store_reaches_again_is_another_state(file_desk, tmp_path):
    desk = await put_back(file_desk, tmp_path, VectorCache(), [0.0])
    await desk.record(7, unit(0.0))  # the same version and count as before, of another batch
    assert await desk.found(k=9) == [7, 1, 2]


async def test_what_is_held_of_a_store_that_was_put_back_makes_room_for_what_is_there(file_desk, tmp_path):
    desk = await put_back(file_desk, tmp_path, VectorCache(), [0.0, 0.0])
    assert await desk.found(k=9) == [1, 2]
    counted = desk.counting()
    assert await counted.found(k=9) == [1, 2]
    assert (counted.journal.scans, counted.journal.reads) == (0, 0), "it is held as it is now"


async def test_a_record_written_after_the_generation_was_read_is_no_sign_of_damage(desk):
    await fill(desk, [0.1, 0.2])
    early = await desk.generation()
    await desk.record(3, unit(0.0))
    watched = desk.beside(journal=Watching(desk.journal))
    assert await watched.found(generation=early) == [3, 1, 2]
    await desk.record(4, unit(0.05))
    assert await watched.found() == [3, 4, 1]
    assert watched.journal.scans == [(0, 3), (early.version, 2)], "what is new, and not all of it once more"


async def test_nor_is_one_that_was_written_after_it_was_read_beside_what_is_held(desk):
    await fill(desk, [0.1, 0.2])
    watched = desk.beside(journal=Watching(desk.journal))
    await watched.ask()
    before = await desk.generation()
    await desk.record(3, unit(0.0))
    early = await desk.generation()
    await desk.record(4, unit(0.05))
    assert await watched.found(generation=early) == [3, 4, 1]
    assert watched.journal.scans == [(0, 2), (before.version, 2)]


async def test_another_storage_object_writes_fills_in_and_erases(file_desk):
    here, there = file_desk(), file_desk()
    await there.record(1, None)
    assert (await here.ask()).dropped_stamp == 1
    await there.record(1, unit(0.1))
    assert await here.found() == [1]
    await there.record(2, unit(0.0))
    assert await here.found() == [2, 1]
    await there.purge()
    await there.record(3, unit(0.0))
    assert await here.found() == [3]


OTHER_PROCESS = """
import asyncio, sys
import numpy as np
from gnl_core.prior import Subject
from gnl_core.identity import SemanticIdentity
from gnl_core.journal import new_batch
from gnl_core.journal.sqlite import SqliteStorage
from gnl_semantic.past import past_ops

async def main(path):
    async with SqliteStorage(path) as storage:
        scope, journal = ("xthr", "t"), storage.runs
        while await journal.delete_prefix(scope):
            pass
        for number in (7, 8):
            identity = SemanticIdentity(keys=("sku",)).build("order", {"sku": str(number)})
            subject = Subject(journal=journal, scope=scope, root="r", fence=1, run="r", call="s0p1", tool="order",
                              args_hash=f"{number:016x}", identity=identity, now=0)
            vector = np.eye(8, dtype=np.float32)[number - 7]
            await journal.apply(past_ops(subject, stamp="m@1", vector=vector, known=None), batch=new_batch())

asyncio.run(main(sys.argv[1]))
"""


async def test_another_process_erases_and_writes(file_desk, tmp_path):
    desk = file_desk()
    await fill(desk, [0.1, 0.2])
    assert await desk.found() == [1, 2]
    program = [sys.executable, "-c", textwrap.dedent(OTHER_PROCESS), str(tmp_path / "runs.db")]
    await asyncio.to_thread(subprocess.run, program, check=True)
    assert await desk.found() == [7]
