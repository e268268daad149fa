"""Copies of vectors in blocks: what they spare, and that nothing is believed of them that does not add up."""

import asyncio
import shutil

import numpy as np
import pytest

from gnl_core import keys
from gnl_core.doctor_file import examine
from gnl_core.errors import StoreUnavailableError
from gnl_core.journal import Add, Create, Delete, Put, Refused, new_batch, scan_all
from gnl_core.testing import Fault, FaultyJournal
from gnl_semantic.past import stamp_key
from gnl_semantic.vectors import VectorCache
from gnl_semantic.vectors.blocks import BLOCK_RECORDS

STAMP = "m@1"
ROW = 24 + 4 * 8


def unit(angle, width=8):
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


def small(**options):
    return VectorCache(block=3, **options)


async def fill(desk, count, start=1):
    for number in range(start, start + count):
        await desk.record(number, unit(number / 100))


async def copies(desk, stamp=STAMP):
    """Return (blocks, copies in none) of a scope."""
    prefix = keys.vectors_of(desk.scope, desk.tool, stamp_key(stamp))
    rows = [row async for row in scan_all(desk.journal, prefix, blobs=True)]
    return [row for row in rows if row.key[-2] != "new"], [row for row in rows if row.key[-2] == "new"]


async def cold(desk, **options):
    """Ask as a process that holds nothing: (what it finds, the pages it read)."""
    one = desk.beside(cache=small(), journal=Watching(desk.journal))
    return await one.found(**{"k": 99, **options}), one.journal.pages


@pytest.fixture
async def kept(desk):
    """A scope of seven records in two blocks, with one copy outside."""
    desk = desk.beside(cache=small())
    for number in range(1, 8):
        await fill(desk, 1, start=number)
        await desk.ask()
    assert [len(part) for part in await copies(desk)] == [2, 1]
    return desk


# What they spare ---------------------------------------------------------------------------------------------------


async def test_a_process_that_holds_nothing_reads_2000_records_in_one_page_and_then_none(desk):
    width = 384
    drawn = np.random.default_rng(1).standard_normal((2_000, width)).astype(np.float32)
    drawn /= np.linalg.norm(drawn, axis=1)[:, None]
    for number, vector in enumerate(drawn, 1):
        await desk.record(number, vector, known=False)
        if number % BLOCK_RECORDS == 0:
            await desk.ask(query=drawn[0])
    watched = desk.beside(cache=VectorCache(), journal=Watching(desk.journal)).counting()
    assert await watched.found(query=drawn[0], k=1) == [1]
    outside = 2_000 % BLOCK_RECORDS
    assert watched.journal._inner.pages == [("semvec", 2_000 // BLOCK_RECORDS + outside)]
    assert await watched.found(query=drawn[1_999], k=1) == [2_000]
    assert (watched.journal.scans, watched.journal.reads, watched.journal.applies) == (1, 0, 0)


async def test_blocks_are_written_once_in_as_many_records_and_what_is_in_none_stands_beside(desk):
    watched = desk.beside(cache=small(), journal=Watching(desk.journal))
    sizes = []
    for number in range(1, 11):
        await fill(desk, 1, start=number)
        await watched.ask()
        sizes.append(tuple(len(part) for part in await copies(desk)))
    assert sizes == [(0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2), (3, 0), (3, 1)]
    assert len(watched.journal.batches) == 3


async def test_a_scope_without_blocks_gets_them_little_by_little(desk):
    await fill(desk, 40)
    counts = []
    for _ in range(3):
        assert (await cold(desk))[0] == list(range(1, 41))
        counts.append([len(part) for part in await copies(desk)])
    assert counts == [[8, 16], [13, 0], [13, 0]]
    assert (await cold(desk))[1] == [("semvec", 13)]


async def test_what_is_newer_than_the_generation_that_was_read_is_left_to_the_next_call(kept):
    early = await kept.generation()
    await kept.record(8, unit(0.0))
    one = kept.beside(cache=small(), journal=Watching(kept.journal))
    assert await one.found(generation=early, k=99) == [1, 2, 3, 4, 5, 6, 7]
    assert await one.found(k=99) == [8, 1, 2, 3, 4, 5, 6, 7]
    assert one.journal.pages == [("semvec", 4), ("semvec", 1)]


async def test_a_new_record_is_read_by_its_copy_alone(kept):
    one = kept.beside(cache=small(), journal=Watching(kept.journal))
    await one.ask()
    await kept.record(8, unit(0.0))
    assert (await one.found())[0] == 8
    assert one.journal.pages[1:] == [("semvec", 1)]


async def test_a_vector_that_is_filled_in_later_stands_in_a_later_block_and_holds(desk):
    desk = desk.beside(cache=small())
    await desk.record(1, None)
    await fill(desk, 2, start=2)
    await desk.ask()
    assert [block.value["others"] for block in (await copies(desk))[0]] == [1]
    await desk.record(1, unit(0.0))
    assert await cold(desk) == ([1, 2, 3], [("semvec", 2)])
    await fill(desk, 2, start=4)
    await desk.ask()
    assert [len(part) for part in await copies(desk)] == [2, 0]
    assert await cold(desk) == ([1, 2, 3, 4, 5], [("semvec", 2)])
    aged = desk.beside(ttl_ms=1, now=(await desk.rows())[0].created_at + 2)
    first = next(row for row in await desk.rows() if int(row.key[-1], 16) == 1)
    assert 1 not in (await cold(aged.beside(now=first.created_at + 2)))[0], "it is as old as its record"


async def test_stamps_have_blocks_of_their_own(desk):
    for number in range(1, 7):
        await desk.record(number, unit(number / 100), stamp=STAMP if number % 2 else "old@1")
    for stamp in (STAMP, "old@1"):
        await desk.beside(cache=small()).ask(stamp=stamp)
        assert len((await copies(desk, stamp))[0]) == 2
    assert await cold(desk) == ([1, 3, 5], [("semvec", 2)])
    assert (await desk.beside(cache=small()).ask()).dropped_stamp == 3
    assert (await cold(desk, stamp="old@1"))[0] == [2, 4, 6]


async def test_a_scope_too_big_to_be_held_is_read_by_its_copies_and_gets_blocks(desk):
    big = desk.beside(cache=small(max_bytes=16 * ROW), journal=Watching(desk.journal))
    await fill(desk, 5)
    assert await big.found(k=2, exact=[5]) == [1, 2, 5]
    for number in range(6, 12):
        await desk.record(number, unit(number / 100))
        assert await big.found(k=2, exact=[5]) == [1, 2, 5]
    assert (len(big.cache), [len(part) for part in await copies(desk)]) == (0, [3, 0])
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
    found, pages = await cold(desk)
    assert (found, {family for family, _ in pages}, len(pages) > 1) == (expected, {"semvec"}, True)
    streamed = desk.beside(cache=small(max_bytes=4), journal=Watching(desk.journal))
    assert await streamed.found(k=99) == expected
    assert {family for family, _ in streamed.journal.pages} == {"semvec"}
    assert (await streamed.ask()).dropped_stamp == 2


# What is not believed ------------------------------------------------------------------------------------------------

MEMBERS = ("f", "model", "template", "width", "number", "mine", "others", "after", "upto", "count", "born")
MEMBERS += ("surplus", "filled", "whole", "sum")
WRONG = {
    "none": None,
    "text": "x",
    "list": [],
    "bool": True,
    "huge": 1 << 63,
    "negative": -1,
    "float": 1.5,
    "gone": ...,
}


async def believed_not(desk, row, value, blob):
    """Whether a scope with such a row is read from its records, and right."""
    await desk.journal.apply([Put(row.key, value, blob)], batch=new_batch())
    found, pages = await cold(desk)
    assert found == list(range(1, 8))
    assert pages[-1] == ("sem", 7)


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("member", MEMBERS)
async def test_no_member_of_a_block_is_believed(kept, member, wrong):
    row = (await copies(kept))[0][0]
    value = {name: one for name, one in row.value.items() if name != member}
    await believed_not(kept, row, value if wrong is ... else {**value, member: wrong}, row.blob)


@pytest.mark.parametrize("place", [0, 1], ids=["first", "last"])
@pytest.mark.parametrize("member", [name for name in MEMBERS if name not in ("model", "template")])
async def test_no_number_of_a_block_may_be_one_more(kept, member, place):
    row = (await copies(kept))[0][place]
    await believed_not(kept, row, {**row.value, member: row.value[member] + 1}, row.blob)


@pytest.mark.parametrize("value", [None, 1, "x", [], {}], ids=repr)
async def test_a_block_that_is_no_object_is_not_believed(kept, value):
    row = (await copies(kept))[0][1]
    await believed_not(kept, row, value, row.blob)


@pytest.mark.parametrize("at", range(0, 3 * ROW, 7))
async def test_no_byte_of_a_block_may_change(kept, at):
    row = (await copies(kept))[0][0]
    blob = bytearray(row.blob)
    blob[at] ^= 1
    await believed_not(kept, row, row.value, bytes(blob))


@pytest.mark.parametrize("change", [lambda blob: None, lambda blob: b"", lambda blob: blob[:-1], lambda blob: blob * 2])
async def test_a_block_has_the_size_that_it_says(kept, change):
    row = (await copies(kept))[0][0]
    await believed_not(kept, row, row.value, change(row.blob))


def resealed(row, blob, **members):
    """Return the value of a block that holds something else, with the checksum of that."""
    from gnl_semantic.vectors.blocks import _sum  # noqa: PLC0415 - what is behind the checksum is to be tested too

    value = {**row.value, **members}
    return {**value, "sum": _sum(blob, value, STAMP)}


@pytest.mark.parametrize("factor", [0.0, 2.0, np.nan, np.inf, 1.001])
async def test_a_vector_that_is_no_unit_is_not_believed(kept, factor):
    row = (await copies(kept))[0][0]
    matrix = np.frombuffer(row.blob, "<f4", 24, 72).copy()
    with np.errstate(invalid="ignore"):
        matrix[8:16] *= np.float32(factor)
    blob = row.blob[:72] + matrix.tobytes()
    await believed_not(kept, row, resealed(row, blob), blob)


@pytest.mark.parametrize("what", ["record twice", "older than its range", "newer than its range"])
async def test_rows_that_cannot_be_in_a_block_are_not_believed(kept, what):
    row = (await copies(kept))[0][1]
    words = np.frombuffer(row.blob[:72], "<i8").copy()
    match what:
        case "record twice":
            words[1] = words[0]
        case "older than its range":
            words[6] = row.value["after"]
        case "newer than its range":
            words[8] = row.value["upto"] + 1
    blob = words.tobytes() + row.blob[72:]
    await believed_not(kept, row, resealed(row, blob), blob)


@pytest.mark.parametrize(
    "members", [{"born": 5}, {"surplus": 1}, {"filled": 1}, {"whole": 0}, {"upto": 1 << 40}], ids=repr
)
async def test_a_block_that_does_not_fit_the_generation_is_not_believed(kept, members):
    row = (await copies(kept))[0][1]
    await believed_not(kept, row, resealed(row, row.blob, **members), row.blob)


async def test_a_record_less_in_a_block_is_not_believed(kept):
    row = (await copies(kept))[0][1]
    parts = [row.blob[at + 8 : at + 24] for at in (0, 24, 48)]
    blob = b"".join([*parts, row.blob[72 + 32 :]])
    count = row.value["count"] - 1
    await believed_not(kept, row, resealed(row, blob, mine=2, count=count), blob)


@pytest.mark.parametrize("lost", [0, 1, 2], ids=["first", "last", "copy outside"])
async def test_a_row_that_is_missing_is_not_made_up_for(kept, lost):
    blocks, outside = await copies(kept)
    await kept.journal.apply([Delete([*blocks, *outside][lost].key)], batch=new_batch())
    found, pages = await cold(kept)
    assert (found, pages[-1]) == (list(range(1, 8)), ("sem", 7))


async def test_a_block_in_the_middle_that_is_missing_is_not_made_up_for(kept):
    await fill(kept, 3, start=8)
    await kept.ask()
    blocks, _ = await copies(kept)
    assert len(blocks) == 3
    await kept.journal.apply([Delete(blocks[1].key)], batch=new_batch())
    assert await cold(kept) == (list(range(1, 11)), [("semvec", 2), ("sem", 10)])


async def test_blocks_that_changed_places_are_not_believed(kept):
    one, two = (await copies(kept))[0]
    ops = [Put(one.key, two.value, two.blob), Put(two.key, one.value, one.blob)]
    await kept.journal.apply(ops, batch=new_batch())
    found, pages = await cold(kept)
    assert (found, pages[-1]) == (list(range(1, 8)), ("sem", 7))


@pytest.mark.parametrize(
    "rest", [("x",), ("new",), ("new", "x"), ("new", "0" * 16, "x"), ("000009",), ("zzz", "x")], ids=repr
)
async def test_a_row_that_nobody_writes_there_makes_all_suspect(kept, rest):
    value = (await copies(kept))[0][0].value
    place = (*keys.vectors_of(kept.scope, kept.tool, stamp_key(STAMP)), *rest)
    # Of a version that the generation covers, as the reader sees it.
    await kept.journal.apply(
        [Put(place, value, None), Add(keys.generation(kept.scope, kept.tool), {"n": 0})], batch=new_batch()
    )
    found, pages = await cold(kept)
    assert (found, pages[-1]) == (list(range(1, 8)), ("sem", 7))


@pytest.mark.parametrize(
    "value", [None, 3, {}, {"f": 2}, {"f": True}, {"f": 1, "at": "x"}, {"f": 1, "at": 1 << 63}], ids=repr
)
async def test_a_copy_outside_that_is_none_is_not_believed(kept, value):
    (row,) = (await copies(kept))[1]
    ops = [Put(row.key, value, row.blob), Add(keys.generation(kept.scope, kept.tool), {"n": 0})]
    await kept.journal.apply(ops, batch=new_batch())
    found, pages = await cold(kept)
    assert (found, pages[-1]) == (list(range(1, 8)), ("sem", 7))


async def test_two_first_successes_that_were_counted_twice_are_mended_by_the_next_block(kept):
    await kept.record(2, unit(0.5), known=False)
    assert await cold(kept) == (list(range(1, 8)), [("semvec", 4), ("sem", 7)])
    await fill(kept, 3, start=8)
    assert (await kept.found(k=99))[:3] == [1, 2, 3]
    found, pages = await cold(kept)
    assert (found, {family for family, _ in pages}) == (list(range(1, 11)), {"semvec"})


async def test_who_finds_a_record_gone_does_without_copies_until_all_is_erased(kept):
    await kept.purge(keys.similar(kept.scope, kept.tool, f"{2:016x}"))
    one = kept.beside(cache=small(), journal=Watching(kept.journal))
    assert 2 in await one.found(k=99), "proposed, and nobody will show it"
    one.cache.forget(one.subject())
    one.journal.pages.clear()
    assert await one.found(k=99) == [1, 3, 4, 5, 6, 7]
    await fill(kept, 4, start=8)
    assert await one.found(k=99) == [1, 3, 4, 5, 6, 7, 8, 9, 10, 11]
    assert {family for family, _ in one.journal.pages} == {"sem"}
    assert one.journal.batches == []
    await kept.purge()
    assert await one.found() == []
    await fill(kept, 3)
    await one.ask()
    assert len((await copies(kept))[0]) == 1


# Erased, put back, another process -----------------------------------------------------------------------------------


async def test_an_erasure_leaves_no_copy_wherever_it_is_cut(desk):
    for limit in range(1, 20):
        one = desk.beside(cache=small(), scope=("xthr", f"t{limit}"))
        await fill(one, 5)
        await one.ask()
        await fill(one, 3, start=6)  # so that a block is due
        generation = await one.generation()
        while await one.journal.delete_prefix(one.scope, limit=limit):
            await one.ask(generation=generation)
            await one.beside(cache=small()).ask(generation=generation)
        assert await copies(one) == ([], [])
        assert [row async for row in scan_all(one.journal, one.scope)] == []


@pytest.mark.parametrize("again", [0, 9], ids=["erased", "written anew"])
async def test_a_block_that_comes_after_an_erasure_is_refused(desk, again):
    async def erase():
        await desk.purge()
        await fill(desk, again)

    late = desk.beside(cache=small(), journal=Watching(desk.journal, erase))
    await fill(desk, 3)
    assert await late.found() == [1, 2, 3]
    ((_, answer),) = late.journal.batches
    assert isinstance(answer, Refused)
    assert (await copies(desk))[0] == []


async def test_a_block_written_between_two_steps_of_an_erasure_goes_with_a_later_one(desk):
    await fill(desk, 6)
    generation = await desk.generation()
    late = desk.beside(cache=small())
    held = late.beside(journal=Watching(desk.journal))
    assert await held.found(k=9) == [1, 2, 3, 4, 5, 6]
    await fill(desk, 3, start=7)
    generation = await desk.generation()
    new = [row async for row in scan_all(desk.journal, keys.similar_of(desk.scope, desk.tool))]
    # All but the last record: the erasure has not come as far as the generation.
    assert await desk.journal.delete_prefix(desk.scope, limit=len(new) - 1) == len(new) - 1
    before = len((await copies(desk))[0])
    await held.ask(generation=generation)
    assert len((await copies(desk))[0]) > before, "nothing tells it yet"
    await desk.purge()
    assert await copies(desk) == ([], [])


async def test_blocks_of_an_earlier_life_are_not_believed(desk):
    writer = desk.beside(cache=small())
    await fill(desk, 6)
    await writer.ask()
    blocks, _ = await copies(desk)
    await desk.purge()
    await asyncio.sleep(0.002)  # the row that is made anew has a later time
    await fill(desk, 6)
    ops = [Put(block.key, block.value, block.blob) for block in blocks]
    await desk.journal.apply([*ops, Add(keys.generation(desk.scope, desk.tool), {"n": 0})], batch=new_batch())
    found, pages = await cold(desk)
    assert (found, pages[-1][0]) == ([1, 2, 3, 4, 5, 6], "sem")


async def test_a_store_put_back_to_an_older_copy_is_read_by_the_blocks_that_it_has(file_desk, tmp_path):
    cache = small()
    desk = file_desk(cache=cache)
    await fill(desk, 4)
    await desk.ask()
    await desk.journal.aclose()
    shutil.copytree(tmp_path, tmp_path.with_name("copy-of-blocks"))
    desk = file_desk(cache=cache)
    await fill(desk, 5, start=11)
    assert await desk.found(k=99) == [1, 2, 3, 4, 11, 12, 13, 14, 15]
    await desk.journal.aclose()
    shutil.rmtree(tmp_path)
    shutil.copytree(tmp_path.with_name("copy-of-blocks"), tmp_path)
    desk = file_desk(cache=cache)
    await fill(desk, 5, start=21)  # as many, of the same versions
    assert await desk.found(k=99) == [1, 2, 3, 4, 21, 22, 23, 24, 25]
    assert (await cold(desk))[0] == [1, 2, 3, 4, 21, 22, 23, 24, 25]


async def test_two_processes_write_one_chain(file_desk):
    here, there = file_desk(cache=small()), file_desk(cache=small())
    for number in range(1, 30):
        one = here if number % 2 else there
        await fill(one, 1, start=number)
        assert await one.found(k=99) == list(range(1, number + 1))
        if number % 7 == 0:
            await here.ask()
    blocks, outside = await copies(here)
    assert sum(block.value["mine"] for block in blocks) + len(outside) == 29
    assert await cold(there) == (list(range(1, 30)), [("semvec", len(blocks) + len(outside))])


async def test_who_is_late_with_a_block_goes_on_behind_the_one_that_is_there(file_desk):
    first, second = file_desk(cache=small()), file_desk(cache=small())
    for each in (first, second):
        await fill(each, 1, start=1 if each is first else 2)
        await each.ask()
    await first.ask()
    await fill(first, 1, start=3)
    generation = await first.generation()
    await asyncio.gather(first.ask(generation=generation), second.ask(generation=generation))
    assert len((await copies(first))[0]) == 1
    await fill(second, 3, start=4)
    await second.ask()
    await fill(second, 3, start=7)
    await second.ask()
    blocks, outside = await copies(first)
    assert (sum(block.value["mine"] for block in blocks), len(outside)) == (9, 0)


async def test_the_doctor_finds_nothing_odd_about_copies(file_desk, tmp_path):
    desk = file_desk(cache=small())
    await fill(desk, 4)
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
    await fill(desk, 3)
    sick = FaultyJournal(desk.journal, fault=Fault(action="unavailable", times=99))
    one = desk.beside(cache=small(clock=clock), journal=sick)
    for number in range(4, 8):
        assert await one.found(k=1) == [1]
        await fill(desk, 1, start=number)
    assert sick.applies == 1
    clock.now = 61.0
    assert await one.found(k=1) == [1]
    assert sick.applies == 2


async def test_a_store_that_does_not_answer_holds_a_call_up_for_no_more_than_a_moment(desk, monkeypatch):
    monkeypatch.setattr("gnl_semantic.vectors.copier.WRITE_SECONDS", 0.02)
    forever = asyncio.Event()
    one = desk.beside(cache=small(), journal=Watching(desk.journal, forever.wait))
    await fill(desk, 3)
    assert await asyncio.wait_for(one.found(), 10) == [1, 2, 3]
    assert await one.found() == [1, 2, 3]


async def test_tasks_that_come_at_once_write_a_block_once(desk):
    await fill(desk, 3)
    one = desk.beside(cache=small(), journal=Watching(desk.journal))
    generation = await desk.generation()
    assert await asyncio.gather(*(one.found(generation=generation) for _ in range(9))) == [[1, 2, 3]] * 9
    (((_, create, *_), _),) = one.journal.batches
    assert isinstance(create, Create)


async def test_a_call_that_is_canceled_while_it_writes_leaves_the_next_one_to_do_it(desk):
    writing, forever = asyncio.Event(), asyncio.Event()

    async def stuck():
        writing.set()
        await forever.wait()

    await fill(desk, 3)
    one = desk.beside(cache=small(), journal=Watching(desk.journal, stuck))
    asked = asyncio.create_task(one.ask())
    await writing.wait()
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    forever.set()
    await fill(desk, 1, start=4)
    assert await one.found() == [1, 2, 3]
    assert len((await copies(desk))[0]) == 1


async def test_errors_of_a_store_are_not_told_as_those_of_the_call(desk):
    async def broken():
        raise StoreUnavailableError("gone")

    await fill(desk, 3)
    assert await desk.beside(cache=small(), journal=Watching(desk.journal, broken)).found() == [1, 2, 3]
