"""Recall over real stores: what is found, and when the store is asked at all."""

import asyncio
import threading

import numpy as np
import pytest

from gnl_core import keys
from gnl_core.journal import Add, Put, new_batch

pytestmark = pytest.mark.stores()


def unit(angle, width=8):
    vector = np.zeros(width, np.float32)
    vector[:2] = np.cos(angle), np.sin(angle)
    return vector


async def fill(desk, angles, start=1):
    for number, angle in enumerate(angles, start):
        await desk.record(number, unit(angle))


# What is found -----------------------------------------------------------------------------------------------------


async def test_the_best_by_cosine_come_first_with_their_scores(desk):
    await fill(desk, [0.9, 0.1, 0.5, 2.0])
    answer = await desk.ask(0.0, k=2)
    assert [(int(name, 16), round(score, 5)) for name, score in answer.scored] == [
        (2, round(float(np.cos(0.1)), 5)),
        (3, round(float(np.cos(0.5)), 5)),
    ]


async def test_the_own_hash_and_pairs_let_pass_take_no_place(desk):
    await fill(desk, [0.0, 0.1, 0.2, 0.3])
    assert await desk.found(dead=[1, 2], exact=[2], k=1) == [3]


async def test_a_record_with_the_same_fold_is_found_whatever_its_cosine(desk):
    await fill(desk, [0.1, 3.0])
    await desk.record(3, None)
    answer = await desk.ask(k=1, exact=[2, 3, 1])
    assert [int(name, 16) for name, _ in answer.scored] == [1, 2, 3]
    assert answer.scored[1][1] == pytest.approx(np.cos(3.0))
    assert answer.scored[2][1] is None


async def test_a_fold_of_a_record_that_the_scan_has_not_seen_is_kept_for_the_reader(desk):
    await fill(desk, [0.1])
    assert (await desk.ask(k=1, exact=[99])).scored[-1] == ("0000000000000063", None)


async def test_records_of_another_tool_or_thread_are_no_candidates(desk):
    # The same sentence everywhere, so that only the key tells them apart.
    for other in (desk.beside(tool="order-cancel"), desk.beside(scope=("xthr", "t:sem")), desk):
        await other.record(1, unit(0.0))
    await desk.beside(tool="order-cancel").record(2, unit(0.0))
    await desk.beside(scope=("xthr", "t:sem")).record(3, unit(0.0))
    assert await desk.found() == [1]


async def test_organisations_of_one_store_share_nothing(desk):
    one, two = (desk.beside(journal=desk.journal.scoped(org)) for org in ("one", "two"))
    await one.record(1, unit(0.0))
    await two.record(2, unit(0.0))
    assert (await one.found(), await two.found(), await one.found()) == ([1], [2], [1])


async def test_age_hides_records_and_drops_none(desk):
    await fill(desk, [0.0])
    (row,) = await desk.rows()
    aged = desk.beside(ttl_ms=10_000, now=row.created_at + 10_001)
    assert await aged.found(exact=[1]) == []
    assert await aged.beside(now=row.created_at + 10_000).found(exact=[1]) == [1]
    assert await aged.beside(ttl_ms=None).found() == [1]


async def test_vectors_of_another_stamp_are_counted_and_not_compared(desk):
    await desk.record(1, unit(0.0), stamp="old@1")
    await desk.record(2, unit(0.1))
    answer = await desk.ask()
    assert ([int(name, 16) for name, _ in answer.scored], answer.dropped_stamp) == ([2], 1)
    assert [int(name, 16) for name, _ in (await desk.ask(stamp="old@1")).scored] == [1]


async def test_what_is_found_by_its_fold_or_let_pass_or_too_old_was_not_dropped(desk):
    await desk.record(1, unit(0.0), stamp="old@1")
    assert (await desk.ask(exact=[1])).dropped_stamp == 0
    assert (await desk.ask(dead=[1])).dropped_stamp == 0
    assert (await desk.beside(ttl_ms=1, now=1 << 60).ask()).dropped_stamp == 0
    assert (await desk.ask()).dropped_stamp == 1


BROKEN = {
    "nan": np.array([np.nan] * 8, "<f4").tobytes(),
    "infinite": np.array([np.inf] + [0] * 7, "<f4").tobytes(),
    "zero": bytes(32),
    "narrow": unit(0.0, 4).tobytes(),
    "odd": b"x" * 31,
    "none": None,
    "too long to square": np.full(8, 3e38, "<f4").tobytes(),
}


@pytest.mark.parametrize("blob", BROKEN.values(), ids=BROKEN)
async def test_a_blob_that_is_no_vector_is_counted_and_skipped(desk, blob):
    await fill(desk, [0.0, 0.1])
    value = (await desk.rows())[0].value
    await desk.spoil(1, value=value, blob=blob)
    answer = await desk.ask()
    assert ([int(name, 16) for name, _ in answer.scored], answer.dropped_stamp) == ([2], 1)


@pytest.mark.parametrize("value", [None, 3, [], "m@1", {"f": 2, "model": "m@1", "template": "1"}, {"model": "m@1"}])
async def test_a_value_that_is_no_record_is_counted_and_skipped(desk, value):
    await fill(desk, [0.0, 0.1])
    await desk.spoil(1, value=value, blob=unit(0.0).tobytes())
    answer = await desk.ask()
    assert ([int(name, 16) for name, _ in answer.scored], answer.dropped_stamp) == ([2], 1)


async def test_rows_that_stand_where_no_record_can_are_not_even_counted(desk):
    await fill(desk, [0.0])
    value = (await desk.rows())[0].value
    blob = unit(0.0).tobytes()
    await desk.journal.apply(
        [
            Put(desk.prefix, value, blob),
            Put((*desk.prefix, "00000000000000aa", "x"), value, blob),
            Put((*desk.prefix, "AAAAAAAAAAAAAAAA"), value, blob),
            Put((*desk.prefix, "aa"), value, blob),
        ],
        batch=new_batch(),
    )
    answer = await desk.ask()
    assert ([int(name, 16) for name, _ in answer.scored], answer.dropped_stamp) == ([1], 0)


async def test_a_vector_of_another_length_is_compared_by_its_direction(desk):
    await fill(desk, [0.0, 0.1])
    value = (await desk.rows())[0].value
    await desk.spoil(1, value=value, blob=(unit(0.3) * 50).tobytes())
    assert (await desk.ask()).scored[1][1] == pytest.approx(np.cos(0.3))


@pytest.mark.parametrize("query", [None, np.zeros(8, np.float32), np.full(8, np.nan, np.float32)])
async def test_without_a_vector_only_folds_are_found_and_nothing_is_read(desk, query):
    await fill(desk, [0.0, 0.1])
    counted = desk.counting()
    assert (await counted.ask(query=query, exact=[2])).scored == (("0000000000000002", None),)
    assert counted.journal.scans == 0


async def test_a_query_of_another_width_finds_no_vector(desk):
    await fill(desk, [0.0])
    answer = await desk.ask(query=unit(0.0, 4))
    assert (answer.scored, answer.dropped_stamp) == ((), 1)
    assert await desk.found() == [1]


# When the store is asked ---------------------------------------------------------------------------------------------


async def test_an_unchanged_generation_costs_no_read(desk):
    await fill(desk, [0.1, 0.2])
    counted = desk.counting()
    assert await counted.found() == [1, 2]
    scans = counted.journal.scans
    for angle in (0.0, 0.4):
        await counted.ask(angle, exact=[1], dead=[7])
    assert (counted.journal.scans, counted.journal.reads) == (scans, 0)


async def test_no_record_at_all_costs_no_read(desk):
    counted = desk.counting()
    assert (await counted.ask(exact=[4])).scored == (("0000000000000004", None),)
    assert (counted.journal.scans, counted.journal.reads) == (0, 0)


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


async def test_a_new_record_is_read_alone(desk):
    await fill(desk, [0.1, 0.2, 0.3])
    watched = desk.beside(journal=Watching(desk.journal))
    await watched.ask()
    before = await desk.generation()
    await desk.record(4, unit(0.0))
    assert await watched.found() == [4, 1, 2]
    assert watched.journal.scans == [(0, 3), (before.version, 1)]


async def test_many_records_that_come_one_by_one_are_all_found(desk):
    for number in range(1, 60):
        await desk.record(number, unit(number / 100))
        assert await desk.found(k=2) == ([1] if number == 1 else [1, 2])
    assert await desk.found(k=100) == list(range(1, 60))


async def test_a_vector_that_is_filled_in_later_is_found(desk):
    await desk.record(1, None)
    await fill(desk, [0.3], start=2)
    answer = await desk.ask()
    assert ([int(name, 16) for name, _ in answer.scored], answer.dropped_stamp) == ([2], 1)
    await desk.record(1, unit(0.0))
    watched = desk.beside(journal=Watching(desk.journal))
    answer = await watched.ask()
    assert ([int(name, 16) for name, _ in answer.scored], answer.dropped_stamp) == ([1, 2], 0)
    assert [rows for _, rows in watched.journal.scans] == [1]


async def test_two_first_successes_that_were_counted_twice_cost_one_whole_read(desk):
    await fill(desk, [0.1, 0.2])
    watched = desk.beside(journal=Watching(desk.journal))
    await watched.ask()
    await desk.record(2, unit(0.2), known=False)  # counted, and kept as it was
    assert (await desk.generation()).value == {"n": 3}
    assert await watched.found() == [1, 2]
    assert [rows for _, rows in watched.journal.scans] == [2, 0, 2]
    await desk.record(3, unit(0.0))
    assert await watched.found() == [3, 1, 2]
    assert [rows for _, rows in watched.journal.scans] == [2, 0, 2, 1]


async def test_a_store_that_counted_wrong_from_the_start_is_not_read_again_and_again(desk):
    await fill(desk, [0.1, 0.2])
    await desk.journal.apply([Add(keys.generation(desk.scope, desk.tool), {"n": 5})], batch=new_batch())
    watched = desk.beside(journal=Watching(desk.journal))
    assert await watched.found() == [1, 2]
    await desk.record(3, unit(0.0))
    assert await watched.found() == [3, 1, 2]
    assert [rows for _, rows in watched.journal.scans] == [2, 1]


@pytest.mark.parametrize("value", [None, "n", {"n": "5"}, {"n": None}, {}])
async def test_a_generation_row_that_says_nothing_sensible_does_no_harm(desk, value):
    await fill(desk, [0.1])
    await desk.journal.apply([Put(keys.generation(desk.scope, desk.tool), value)], batch=new_batch())
    assert await desk.found() == [1]
    assert await desk.found() == [1]


async def test_a_caller_who_read_the_generation_earlier_is_served_what_is_held(desk):
    await fill(desk, [0.1])
    early = await desk.generation()
    await desk.record(2, unit(0.0))
    counted = desk.counting()
    assert await counted.found() == [2, 1]
    scans = counted.journal.scans
    assert await counted.found(generation=early) == [2, 1]
    assert (counted.journal.scans, counted.journal.reads) == (scans, 1)
    await desk.purge()
    assert await counted.found(generation=early) == []


# Many at once --------------------------------------------------------------------------------------------------------


async def test_tasks_that_come_at_once_read_a_scope_once(desk):
    await fill(desk, [0.1, 0.2])
    counted = desk.counting()
    generation = await desk.generation()
    answers = await asyncio.gather(*(counted.found(generation=generation) for _ in range(20)))
    assert answers == [[1, 2]] * 20
    assert counted.journal.scans == 1


class Stuck:
    """A journal whose first scan waits until it is let go, or fails."""

    def __init__(self, inner, error=None):
        self._inner, self._error = inner, error
        self.waiting, self.go = asyncio.Event(), asyncio.Event()
        self.scans = 0

    async def scan(self, prefix, **options):
        self.scans += 1
        if self.scans == 1:
            self.waiting.set()
            await self.go.wait()
            if self._error is not None:
                raise self._error
        return await self._inner.scan(prefix, **options)

    def __getattr__(self, name):
        return getattr(self._inner, name)


async def test_who_waits_for_a_read_that_is_cancelled_reads_by_itself(desk):
    await fill(desk, [0.1])
    stuck = desk.beside(journal=Stuck(desk.journal))
    generation = await desk.generation()
    first = asyncio.create_task(stuck.found(generation=generation))
    await stuck.journal.waiting.wait()
    others = [asyncio.create_task(stuck.found(generation=generation)) for _ in range(3)]
    await asyncio.sleep(0)
    first.cancel()
    assert await asyncio.gather(*others) == [[1]] * 3
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_who_waits_for_a_read_that_fails_reads_by_itself(desk):
    await fill(desk, [0.1])
    stuck = desk.beside(journal=Stuck(desk.journal, error=OSError("gone")))
    generation = await desk.generation()
    first = asyncio.create_task(stuck.found(generation=generation))
    await stuck.journal.waiting.wait()
    other = asyncio.create_task(stuck.found(generation=generation))
    await asyncio.sleep(0)
    stuck.journal.go.set()
    assert await other == [1]
    with pytest.raises(OSError, match="gone"):
        await first


async def test_what_is_written_during_a_read_is_found_by_the_next(desk):
    await fill(desk, [0.1, 0.2])
    stuck = desk.beside(journal=Stuck(desk.journal))
    asked = asyncio.create_task(stuck.found(generation=await desk.generation(), k=9))
    await stuck.journal.waiting.wait()
    await desk.record(3, unit(0.0))
    stuck.journal.go.set()
    assert set(await asked) >= {1, 2}
    assert await desk.found(k=9) == [3, 1, 2]
    await desk.record(4, unit(0.05))
    watched = desk.beside(journal=Watching(desk.journal))
    assert await watched.found(k=9) == [3, 4, 1, 2]
    assert all(newer_than for newer_than, _ in watched.journal.scans)


async def test_loops_in_threads_share_one_cache(desk):
    await fill(desk, [0.1, 0.2])
    wrong = []

    def serve(number):
        async def work():
            for step in range(15):
                await desk.record(10 + number * 100 + step, unit(3.0))
                if (found := await desk.found()) != [1, 2]:
                    wrong.append(found)

        asyncio.run(work())

    threads = [threading.Thread(target=serve, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    await asyncio.to_thread(lambda: [thread.join() for thread in threads])
    assert wrong == []
    assert len(await desk.found(3.0, k=100)) == 60
