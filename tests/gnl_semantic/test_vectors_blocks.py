"""Copies of vectors in blocks: what they spare, when they are written, and how they are erased."""

import asyncio
import shutil

import numpy as np
import pytest

from gnl_core import keys
from gnl_core.doctor_file import examine
from gnl_core.errors import StoreUnavailableError
from gnl_core.journal import Add, Create, Put, Refused, new_batch, scan_all
from gnl_core.testing import Fault, FaultyJournal
from gnl_semantic.vectors import VectorCache
from gnl_semantic.vectors.blocks import BLOCK_RECORDS

pytestmark = pytest.mark.stores()

STAMP = "m@1"
ROW = 24 + 4 * 8


def unit(angle, width=8):
    vector = np.zeros(width, np.float32)
    vector[:2] = np.cos(angle), np.sin(angle)
    return vector


def small(**options):
    return VectorCache(block=3, **options)


# What they spare ---------------------------------------------------------------------------------------------------


@pytest.mark.stores("memory", "sqlite")
async def test_a_process_that_holds_nothing_reads_2000_records_in_one_page_and_then_none(desk):
    width = 384
    drawn = np.random.default_rng(1).standard_normal((2_000, width)).astype(np.float32)
    drawn /= np.linalg.norm(drawn, axis=1)[:, None]
    for number, vector in enumerate(drawn, 1):
        await desk.record(number, vector, known=False)
        if number % BLOCK_RECORDS == 0:
            await desk.ask(query=drawn[0])
    watched = desk.watching(cache=VectorCache()).counting()
    assert await watched.found(query=drawn[0], k=1) == [1]
    outside = 2_000 % BLOCK_RECORDS
    assert watched.journal._inner.pages == [("semvec", 2_000 // BLOCK_RECORDS + outside)]
    assert await watched.found(query=drawn[1_999], k=1) == [2_000]
    assert (watched.journal.scans, watched.journal.reads, watched.journal.applies) == (1, 0, 0)


async def test_blocks_are_written_once_in_as_many_records_and_what_is_in_none_stands_beside(desk):
    watched = desk.watching(cache=small())
    sizes = []
    for number in range(1, 11):
        await desk.fill(1, start=number)
        await watched.ask()
        sizes.append(tuple(len(part) for part in await desk.copies()))
    assert sizes == [(0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2), (3, 0), (3, 1)]
    assert len(watched.journal.batches) == 3


async def test_a_scope_without_blocks_gets_them_little_by_little(desk):
    await desk.fill(40)
    counts = []
    for _ in range(3):
        assert (await desk.cold())[0] == list(range(1, 41))
        counts.append([len(part) for part in await desk.copies()])
    assert counts == [[8, 16], [13, 0], [13, 0]]
    assert (await desk.cold())[1] == [("semvec", 13)]


async def test_what_is_newer_than_the_generation_that_was_read_is_left_to_the_next_call(kept):
    early = await kept.generation()
    await kept.record(8, unit(0.0))
    one = kept.watching(cache=small())
    assert await one.found(generation=early, k=99) == [1, 2, 3, 4, 5, 6, 7]
    assert await one.found(k=99) == [8, 1, 2, 3, 4, 5, 6, 7]
    assert one.journal.pages == [("semvec", 4), ("semvec", 1)]


async def test_a_new_record_is_read_by_its_copy_alone(kept):
    one = kept.watching(cache=small())
    await one.ask()
    await kept.record(8, unit(0.0))
    assert (await one.found())[0] == 8
    assert one.journal.pages[1:] == [("semvec", 1)]


async def test_a_vector_that_is_filled_in_later_stands_in_a_later_block_and_holds(desk):
    desk = desk.beside(cache=small())
    await desk.record(1, None)
    await desk.fill(2, start=2)
    await desk.ask()
    assert [block.value["others"] for block in (await desk.copies())[0]] == [1]
    await desk.record(1, unit(0.0))
    assert await desk.cold() == ([1, 2, 3], [("semvec", 2)])
    await desk.fill(2, start=4)
    await desk.ask()
    assert [len(part) for part in await desk.copies()] == [2, 0]
    assert await desk.cold() == ([1, 2, 3, 4, 5], [("semvec", 2)])
    aged = desk.beside(ttl_ms=1, now=(await desk.rows())[0].created_at + 2)
    first = next(row for row in await desk.rows() if int(row.key[-1], 16) == 1)
    assert 1 not in (await aged.beside(now=first.created_at + 2).cold())[0], "it is as old as its record"


async def test_stamps_have_blocks_of_their_own(desk):
    for number in range(1, 7):
        await desk.record(number, unit(number / 100), stamp=STAMP if number % 2 else "old@1")
    for stamp in (STAMP, "old@1"):
        await desk.beside(cache=small()).ask(stamp=stamp)
        assert len((await desk.copies(stamp))[0]) == 2
    assert await desk.cold() == ([1, 3, 5], [("semvec", 2)])
    assert (await desk.beside(cache=small()).ask()).dropped_stamp == 3
    assert (await desk.cold(stamp="old@1"))[0] == [2, 4, 6]


async def test_a_scope_too_big_to_be_held_is_read_by_its_copies_and_gets_blocks(desk):
    big = desk.watching(cache=small(max_bytes=16 * ROW))
    await desk.fill(5)
    assert await big.found(k=2, exact=[5]) == [1, 2, 5]
    for number in range(6, 12):
        await desk.record(number, unit(number / 100))
        assert await big.found(k=2, exact=[5]) == [1, 2, 5]
    assert (len(big.cache), [len(part) for part in await desk.copies()]) == (0, [3, 0])
    await desk.record(12, None)
    await desk.record(13, unit(0.0))
    await desk.record(12, unit(0.005))
    big.journal.pages.clear()
    assert await big.found(k=3) == [13, 12, 1]
    assert {family for family, _ in big.journal.pages} == {"semvec"}


async def test_pages_of_blocks_are_put_together(desk, monkeypatch):
    writer = desk.beside(cache=small())
    for number in range(1, 21):
        await desk.record(number, None if number % 5 == 0 else unit(number / 100))
        await writer.ask()
    for number in (5, 15):
        await desk.record(number, unit(number / 100))
    monkeypatch.setattr("gnl_semantic.vectors.reading.PAGE_ROWS", 5)
    expected = [number for number in range(1, 21) if number not in (10, 20)]
    found, pages = await desk.cold()
    assert (found, {family for family, _ in pages}, len(pages) > 1) == (expected, {"semvec"}, True)
    streamed = desk.watching(cache=small(max_bytes=4))
    assert await streamed.found(k=99) == expected
    assert {family for family, _ in streamed.journal.pages} == {"semvec"}
    assert (await streamed.ask()).dropped_stamp == 2


# Erased, put back, another process -----------------------------------------------------------------------------------


async def test_an_erasure_leaves_no_copy_wherever_it_is_cut(desk):
    for limit in range(1, 20):
        one = desk.beside(cache=small(), scope=("xthr", f"t{limit}"))
        await one.fill(5)
        await one.ask()
        await one.fill(3, start=6)  # so that a block is due
        generation = await one.generation()
        while await one.journal.delete_prefix(one.scope, limit=limit):
            await one.ask(generation=generation)
            await one.beside(cache=small()).ask(generation=generation)
        assert await one.copies() == ([], [])
        assert [row async for row in scan_all(one.journal, one.scope)] == []


@pytest.mark.parametrize("again", [0, 9], ids=["erased", "written anew"])
async def test_a_block_that_comes_after_an_erasure_is_refused(desk, again):
    async def erase():
        await desk.purge()
        await desk.fill(again)

    late = desk.watching(erase, cache=small())
    await desk.fill(3)
    assert await late.found() == [1, 2, 3]
    ((_, answer),) = late.journal.batches
    assert isinstance(answer, Refused)
    assert (await desk.copies())[0] == []


async def test_a_block_written_between_two_steps_of_an_erasure_goes_with_a_later_one(desk):
    await desk.fill(6)
    generation = await desk.generation()
    late = desk.beside(cache=small())
    held = late.watching()
    assert await held.found(k=9) == [1, 2, 3, 4, 5, 6]
    await desk.fill(3, start=7)
    generation = await desk.generation()
    new = [row async for row in scan_all(desk.journal, keys.similar_of(desk.scope, desk.tool))]
    # All but the last record: the erasure has not come as far as the generation.
    assert await desk.journal.delete_prefix(desk.scope, limit=len(new) - 1) == len(new) - 1
    before = len((await desk.copies())[0])
    await held.ask(generation=generation)
    assert len((await desk.copies())[0]) > before, "nothing tells it yet"
    await desk.purge()
    assert await desk.copies() == ([], [])


async def test_blocks_of_an_earlier_life_are_not_believed(desk):
    writer = desk.beside(cache=small())
    await desk.fill(6)
    await writer.ask()
    blocks, _ = await desk.copies()
    await desk.purge()
    await asyncio.sleep(0.002)  # the row that is made anew has a later time
    await desk.fill(6)
    ops = [Put(block.key, block.value, block.blob) for block in blocks]
    await desk.journal.apply([*ops, Add(keys.generation(desk.scope, desk.tool), {"n": 0})], batch=new_batch())
    found, pages = await desk.cold()
    assert (found, pages[-1][0]) == ([1, 2, 3, 4, 5, 6], "sem")


async def test_a_store_put_back_to_an_older_copy_is_read_by_the_blocks_that_it_has(file_desk, tmp_path):
    cache = small()
    desk = file_desk(cache=cache)
    await desk.fill(4)
    await desk.ask()
    await desk.journal.aclose()
    shutil.copytree(tmp_path, tmp_path.with_name("copy-of-blocks"))
    desk = file_desk(cache=cache)
    await desk.fill(5, start=11)
    assert await desk.found(k=99) == [1, 2, 3, 4, 11, 12, 13, 14, 15]
    await desk.journal.aclose()
    shutil.rmtree(tmp_path)
    shutil.copytree(tmp_path.with_name("copy-of-blocks"), tmp_path)
    desk = file_desk(cache=cache)
    await desk.fill(5, start=21)  # as many, of the same versions
    assert await desk.found(k=99) == [1, 2, 3, 4, 21, 22, 23, 24, 25]
    assert (await desk.cold())[0] == [1, 2, 3, 4, 21, 22, 23, 24, 25]


async def test_two_processes_write_one_chain(file_desk):
    here, there = file_desk(cache=small()), file_desk(cache=small())
    for number in range(1, 30):
        one = here if number % 2 else there
        await one.fill(1, start=number)
        assert await one.found(k=99) == list(range(1, number + 1))
        if number % 7 == 0:
            await here.ask()
    blocks, outside = await here.copies()
    assert sum(block.value["mine"] for block in blocks) + len(outside) == 29
    assert await there.cold() == (list(range(1, 30)), [("semvec", len(blocks) + len(outside))])


async def test_who_is_late_with_a_block_goes_on_behind_the_one_that_is_there(file_desk):
    first, second = file_desk(cache=small()), file_desk(cache=small())
    for each in (first, second):
        await each.fill(1, start=1 if each is first else 2)
        await each.ask()
    await first.ask()
    await first.fill(1, start=3)
    generation = await first.generation()
    await asyncio.gather(first.ask(generation=generation), second.ask(generation=generation))
    assert len((await first.copies())[0]) == 1
    await second.fill(3, start=4)
    await second.ask()
    await second.fill(3, start=7)
    await second.ask()
    blocks, outside = await first.copies()
    assert (sum(block.value["mine"] for block in blocks), len(outside)) == (9, 0)


async def test_the_doctor_finds_nothing_odd_about_copies(file_desk, tmp_path):
    desk = file_desk(cache=small())
    await desk.fill(4)
    await desk.ask()
    await desk.journal.aclose()
    assert [one for one in examine(tmp_path / "runs.db") if one.level == "fault"] == []


# Where they cannot be written ----------------------------------------------------------------------------------------


async def test_a_store_that_takes_no_block_costs_no_answer_and_is_left_alone_for_a_while(desk):
    class Seconds:
        now = 0.0

        def __call__(self):
            return self.now

    clock = Seconds()
    await desk.fill(3)
    sick = FaultyJournal(desk.journal, fault=Fault(action="unavailable", times=99))
    one = desk.beside(cache=small(clock=clock), journal=sick)
    for number in range(4, 8):
        assert await one.found(k=1) == [1]
        await desk.fill(1, start=number)
    assert sick.applies == 1
    clock.now = 61.0
    assert await one.found(k=1) == [1]
    assert sick.applies == 2


async def test_a_store_that_does_not_answer_holds_a_call_up_for_no_more_than_a_moment(desk, monkeypatch):
    monkeypatch.setattr("gnl_semantic.vectors.copier.WRITE_SECONDS", 0.02)
    forever = asyncio.Event()
    one = desk.watching(forever.wait, cache=small())
    await desk.fill(3)
    assert await asyncio.wait_for(one.found(), 10) == [1, 2, 3]
    assert await one.found() == [1, 2, 3]


async def test_tasks_that_come_at_once_write_a_block_once(desk):
    await desk.fill(3)
    one = desk.watching(cache=small())
    generation = await desk.generation()
    assert await asyncio.gather(*(one.found(generation=generation) for _ in range(9))) == [[1, 2, 3]] * 9
    (((_, create, *_), _),) = one.journal.batches
    assert isinstance(create, Create)


async def test_a_call_that_is_canceled_while_it_writes_leaves_the_next_one_to_do_it(desk):
    writing, forever = asyncio.Event(), asyncio.Event()

    async def stuck():
        writing.set()
        await forever.wait()

    await desk.fill(3)
    one = desk.watching(stuck, cache=small())
    asked = asyncio.create_task(one.ask())
    await writing.wait()
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    forever.set()
    await desk.fill(1, start=4)
    assert await one.found() == [1, 2, 3]
    assert len((await desk.copies())[0]) == 1


async def test_errors_of_a_store_are_not_told_as_those_of_the_call(desk):
    async def broken():
        raise StoreUnavailableError("gone")

    await desk.fill(3)
    assert await desk.watching(broken, cache=small()).found() == [1, 2, 3]
