"""What a cache of vectors holds, for how long, and that what it does not hold is found all the same."""

import asyncio
import gc
import os
import threading
import weakref

import numpy as np
import pytest

from gnl_core.journal import scan_all
from gnl_semantic.vectors import MAX_BYTES, VECTORS, VectorCache
from gnl_semantic.vectors.table import empty, join, read_table

ROW = 24 + 4 * 8  # hash, time, version, and a vector of 8


def unit(angle, width=8):
    vector = np.zeros(width, np.float32)
    vector[:2] = np.cos(angle), np.sin(angle)
    return vector


class Seconds:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


async def fill(desk, angles, start=1):
    for number, angle in enumerate(angles, start):
        await desk.record(number, unit(angle))


def test_the_process_holds_43_000_vectors_of_384():
    assert 43_000 < MAX_BYTES / (24 + 4 * 384) < 43_100
    assert isinstance(VECTORS, VectorCache)


async def test_the_scope_that_nobody_asked_for_the_longest_goes_first(desk):
    cache = VectorCache(max_bytes=16 * ROW)
    desks = [desk.beside(cache=cache, scope=("xthr", str(number))).counting() for number in range(5)]
    for one in desks:
        await fill(one, [0.1, 0.2, 0.3, 0.4])
    for one in desks[:4]:
        await one.ask()
    assert (len(cache), cache.held_bytes) == (4, 16 * ROW)
    await desks[0].ask()
    await desks[4].ask()
    assert (len(cache), cache.held_bytes) == (4, 16 * ROW)
    scans = [one.journal.scans for one in desks]
    for one in (desks[0], desks[2], desks[3], desks[4]):
        assert await one.found() == [1, 2, 3]
    assert [one.journal.scans for one in desks] == scans
    await desks[1].ask()
    assert desks[1].journal.scans == scans[1] + 1


async def test_a_scope_above_a_quarter_of_the_bound_is_read_each_time_and_found_all_the_same(desk):
    cache = VectorCache(max_bytes=16 * ROW)
    big = desk.beside(cache=cache).counting()
    await fill(big, [0.5, 0.1, 2.0, 0.3, 0.2])
    await big.record(9, None)
    for _ in range(2):
        scans = big.journal.scans
        answer = await big.ask(k=2, exact=[3, 9], dead=[2])
        assert [int(name, 16) for name, _ in answer.scored] == [5, 4, 3, 9]
        assert answer.scored[2][1] == pytest.approx(np.cos(2.0))
        assert answer.dropped_stamp == 0
        assert (await big.ask()).dropped_stamp == 1
        assert big.journal.scans == scans + 2
    assert (len(cache), cache.held_bytes) == (0, 0)


async def test_a_scope_that_grows_above_the_quarter_is_held_no_more_and_again_when_it_has_shrunk(desk):
    cache = VectorCache(max_bytes=16 * ROW)
    one = desk.beside(cache=cache).counting()
    await fill(one, [0.1, 0.2, 0.3, 0.4])
    await one.ask()
    assert len(cache) == 1
    await one.record(5, unit(0.0))
    assert await one.found(k=9) == [5, 1, 2, 3, 4]
    assert len(cache) == 0
    await one.purge()
    await fill(one, [0.2, 0.1])
    assert await one.found() == [2, 1]
    assert await one.found() == [2, 1]
    assert len(cache) == 1


async def test_the_best_of_several_pages_is_the_best_of_all(desk, monkeypatch):
    monkeypatch.setattr("gnl_semantic.vectors.reading.PAGE_ROWS", 3)
    angles = np.random.default_rng(5).uniform(0, 1.2, 20)
    await fill(desk, angles)
    expected = [int(number) + 1 for number in np.argsort(angles)]
    big = desk.beside(cache=VectorCache(max_bytes=4 * ROW)).counting()
    held = desk.counting()
    for one in (big, held):
        assert await one.found(k=4, exact=[expected[10]]) == [*expected[:4], expected[10]]
        assert one.journal.scans == 7
    assert (len(big.cache), len(held.cache)) == (0, 1)


async def test_so_much_that_is_new_is_read_as_a_whole(desk):
    cache = VectorCache(max_bytes=16 * ROW)
    one = desk.beside(cache=cache)
    await fill(one, [0.1])
    await one.ask()
    await fill(one, [0.2] * 8, start=2)
    assert await one.found(k=1) == [1]
    assert len(cache) == 0


async def test_records_of_other_stamps_take_no_room_for_vectors(desk):
    for number in range(1, 5):
        await desk.record(number, unit(0.0), stamp="old@1")
    assert (await desk.ask()).dropped_stamp == 4
    assert desk.cache.held_bytes == 4 * 24


async def test_an_idle_scope_is_dropped(desk):
    clock = Seconds()
    cache = VectorCache(idle_s=600, clock=clock)
    one, two = (desk.beside(cache=cache, scope=("xthr", name)) for name in "ab")
    for each in (one, two):
        await fill(each, [0.1])
        await each.ask()
    clock.now = 400
    await two.ask()
    assert cache.sweep() == 200
    clock.now = 600
    assert cache.sweep() == 400
    assert len(cache) == 1
    clock.now = 1_000
    assert cache.sweep() is None
    assert (len(cache), cache.held_bytes) == (0, 0)
    assert await one.found() == [1]


async def test_an_idle_process_forgets_without_being_asked(desk):
    dropped = threading.Event()

    class Told(VectorCache):
        def sweep(self):
            left = super().sweep()
            if left is None:
                dropped.set()
            return left

    cache = Told(idle_s=0.05)
    one = desk.beside(cache=cache)
    await fill(one, [0.1])
    await one.ask()
    assert await asyncio.to_thread(dropped.wait, 10)
    assert (len(cache), cache.held_bytes) == (0, 0)


async def test_what_waits_to_forget_keeps_no_cache_alive(desk):
    one = desk.beside(cache=VectorCache())
    await fill(one, [0.1])
    await one.ask()
    gone = weakref.ref(one.cache)
    one.cache = None
    gc.collect()
    assert gone() is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
async def test_a_child_of_a_fork_holds_nothing_and_waits_for_no_lock(desk):
    cache = VectorCache()
    one = desk.beside(cache=cache)
    await fill(one, [0.1])
    await one.ask()
    with cache._held._lock, cache._lock:
        pid = os.fork()
        if pid == 0:
            os._exit(0 if len(cache) == 0 and cache.sweep() is None else 1)
    assert os.waitstatus_to_exitcode((await asyncio.to_thread(os.waitpid, pid, 0))[1]) == 0
    assert await one.found() == [1]


async def test_who_reads_a_table_sees_nothing_of_what_is_added_to_it(desk):
    await fill(desk, [0.1, 0.2, 0.3])
    rows = [entry async for entry in scan_all(desk.journal, desk.prefix, blobs=True)]
    one, two, three = (read_table([row], desk.prefix, "m@1", 8) for row in rows)
    first = join([empty(8), one], 8).plus(two)
    before = first.mine.matrix[: first.mine.count].copy()
    second = first.plus(three)
    assert second.mine.matrix.base is first.mine.matrix.base  # in the room behind it
    assert (first.count, second.count) == (2, 3)
    moved = second.plus(read_table([rows[0]], desk.prefix, "other@2", 8))
    assert (moved.mine.count, moved.others.count, second.mine.count) == (2, 1, 3)
    assert np.array_equal(first.mine.matrix[: first.mine.count], before)
