"""Copies of vectors that were changed or lost: nothing is believed of them that does not add up."""

import numpy as np
import pytest

from gnl_core import keys
from gnl_core.journal import Add, Delete, Put, new_batch
from gnl_semantic.past import stamp_key
from gnl_semantic.vectors import VectorCache

STAMP = "m@1"
ROW = 24 + 4 * 8


def unit(angle, width=8):
    vector = np.zeros(width, np.float32)
    vector[:2] = np.cos(angle), np.sin(angle)
    return vector


def small(**options):
    return VectorCache(block=3, **options)


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
    found, pages = await desk.cold()
    assert found == list(range(1, 8))
    assert pages[-1] == ("sem", 7)


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("member", MEMBERS)
async def test_no_member_of_a_block_is_believed(kept, member, wrong):
    row = (await kept.copies())[0][0]
    value = {name: one for name, one in row.value.items() if name != member}
    await believed_not(kept, row, value if wrong is ... else {**value, member: wrong}, row.blob)


@pytest.mark.parametrize("place", [0, 1], ids=["first", "last"])
@pytest.mark.parametrize("member", [name for name in MEMBERS if name not in ("model", "template")])
async def test_no_number_of_a_block_may_be_one_more(kept, member, place):
    row = (await kept.copies())[0][place]
    await believed_not(kept, row, {**row.value, member: row.value[member] + 1}, row.blob)


@pytest.mark.parametrize("value", [None, 1, "x", [], {}], ids=repr)
async def test_a_block_that_is_no_object_is_not_believed(kept, value):
    row = (await kept.copies())[0][1]
    await believed_not(kept, row, value, row.blob)


@pytest.mark.parametrize("at", range(0, 3 * ROW, 7))
async def test_no_byte_of_a_block_may_change(kept, at):
    row = (await kept.copies())[0][0]
    blob = bytearray(row.blob)
    blob[at] ^= 1
    await believed_not(kept, row, row.value, bytes(blob))


@pytest.mark.parametrize("change", [lambda blob: None, lambda blob: b"", lambda blob: blob[:-1], lambda blob: blob * 2])
async def test_a_block_has_the_size_that_it_says(kept, change):
    row = (await kept.copies())[0][0]
    await believed_not(kept, row, row.value, change(row.blob))


def resealed(row, blob, **members):
    """Return the value of a block that holds something else, with the checksum of that."""
    from gnl_semantic.vectors.blocks import _sum  # noqa: PLC0415 - what is behind the checksum is to be tested too

    value = {**row.value, **members}
    return {**value, "sum": _sum(blob, value, STAMP)}


@pytest.mark.parametrize("factor", [0.0, 2.0, np.nan, np.inf, 1.001])
async def test_a_vector_that_is_no_unit_is_not_believed(kept, factor):
    row = (await kept.copies())[0][0]
    matrix = np.frombuffer(row.blob, "<f4", 24, 72).copy()
    with np.errstate(invalid="ignore"):
        matrix[8:16] *= np.float32(factor)
    blob = row.blob[:72] + matrix.tobytes()
    await believed_not(kept, row, resealed(row, blob), blob)


@pytest.mark.parametrize("what", ["record twice", "older than its range", "newer than its range"])
async def test_rows_that_cannot_be_in_a_block_are_not_believed(kept, what):
    row = (await kept.copies())[0][1]
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
    row = (await kept.copies())[0][1]
    await believed_not(kept, row, resealed(row, row.blob, **members), row.blob)


async def test_a_record_less_in_a_block_is_not_believed(kept):
    row = (await kept.copies())[0][1]
    parts = [row.blob[at + 8 : at + 24] for at in (0, 24, 48)]
    blob = b"".join([*parts, row.blob[72 + 32 :]])
    count = row.value["count"] - 1
    await believed_not(kept, row, resealed(row, blob, mine=2, count=count), blob)


@pytest.mark.parametrize("lost", [0, 1, 2], ids=["first", "last", "copy outside"])
async def test_a_row_that_is_missing_is_not_made_up_for(kept, lost):
    blocks, outside = await kept.copies()
    await kept.journal.apply([Delete([*blocks, *outside][lost].key)], batch=new_batch())
    found, pages = await kept.cold()
    assert (found, pages[-1]) == (list(range(1, 8)), ("sem", 7))


async def test_a_block_in_the_middle_that_is_missing_is_not_made_up_for(kept):
    await kept.fill(3, start=8)
    await kept.ask()
    blocks, _ = await kept.copies()
    assert len(blocks) == 3
    await kept.journal.apply([Delete(blocks[1].key)], batch=new_batch())
    assert await kept.cold() == (list(range(1, 11)), [("semvec", 2), ("sem", 10)])


async def test_blocks_that_changed_places_are_not_believed(kept):
    one, two = (await kept.copies())[0]
    ops = [Put(one.key, two.value, two.blob), Put(two.key, one.value, one.blob)]
    await kept.journal.apply(ops, batch=new_batch())
    found, pages = await kept.cold()
    assert (found, pages[-1]) == (list(range(1, 8)), ("sem", 7))


@pytest.mark.parametrize(
    "rest", [("x",), ("new",), ("new", "x"), ("new", "0" * 16, "x"), ("000009",), ("zzz", "x")], ids=repr
)
async def test_a_row_that_nobody_writes_there_makes_all_suspect(kept, rest):
    value = (await kept.copies())[0][0].value
    place = (*keys.vectors_of(kept.scope, kept.tool, stamp_key(STAMP)), *rest)
    # Of a version that the generation covers, as the reader sees it.
    await kept.journal.apply(
        [Put(place, value, None), Add(keys.generation(kept.scope, kept.tool), {"n": 0})], batch=new_batch()
    )
    found, pages = await kept.cold()
    assert (found, pages[-1]) == (list(range(1, 8)), ("sem", 7))


@pytest.mark.parametrize(
    "value", [None, 3, {}, {"f": 2}, {"f": True}, {"f": 1, "at": "x"}, {"f": 1, "at": 1 << 63}], ids=repr
)
async def test_a_copy_outside_that_is_none_is_not_believed(kept, value):
    (row,) = (await kept.copies())[1]
    ops = [Put(row.key, value, row.blob), Add(keys.generation(kept.scope, kept.tool), {"n": 0})]
    await kept.journal.apply(ops, batch=new_batch())
    found, pages = await kept.cold()
    assert (found, pages[-1]) == (list(range(1, 8)), ("sem", 7))


async def test_two_first_successes_that_were_counted_twice_are_mended_by_the_next_block(kept):
    await kept.record(2, unit(0.5), known=False)
    assert await kept.cold() == (list(range(1, 8)), [("semvec", 4), ("sem", 7)])
    await kept.fill(3, start=8)
    assert (await kept.found(k=99))[:3] == [1, 2, 3]
    found, pages = await kept.cold()
    assert (found, {family for family, _ in pages}) == (list(range(1, 11)), {"semvec"})


async def test_who_finds_a_record_gone_does_without_copies_until_all_is_erased(kept):
    await kept.purge(keys.similar(kept.scope, kept.tool, f"{2:016x}"))
    one = kept.watching(cache=small())
    assert 2 in await one.found(k=99), "proposed, and nobody will show it"
    one.cache.forget(one.subject())
    one.journal.pages.clear()
    assert await one.found(k=99) == [1, 3, 4, 5, 6, 7]
    await kept.fill(4, start=8)
    assert await one.found(k=99) == [1, 3, 4, 5, 6, 7, 8, 9, 10, 11]
    assert {family for family, _ in one.journal.pages} == {"sem"}
    assert one.journal.batches == []
    await kept.purge()
    assert await one.found() == []
    await kept.fill(3)
    await one.ask()
    assert len((await kept.copies())[0]) == 1
