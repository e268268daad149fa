"""Whatever is recorded, filled in and erased, in whatever order: recall finds what the journal holds."""

import asyncio

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gnl_core import keys
from gnl_core.journal import Put, new_batch, scan_all
from gnl_core.journal.memory import InMemoryStorage
from gnl_core.journal.sqlite import SqliteStorage
from gnl_semantic.past import read_past
from gnl_semantic.vectors import VectorCache

WIDTH = 8
ROW = 24 + 4 * WIDTH
STAMPS = ("m@1", "old@1")
VECTORS = np.random.default_rng(11).standard_normal((12, WIDTH)).astype(np.float32)
VECTORS /= np.linalg.norm(VECTORS, axis=1)[:, None]

numbers = st.integers(1, 9)
queries = st.fixed_dictionaries(
    {
        "vector": st.integers(0, 11),
        "k": st.integers(0, 4),
        "threshold": st.sampled_from([-1.0, 0.0, 0.3]),
        "exact": st.lists(numbers, max_size=3),
        "dead": st.lists(numbers, max_size=3),
        "age": st.none() | st.integers(0, 150),
    }
)
records = st.tuples(st.just("record"), numbers, st.integers(0, 11) | st.none(), st.sampled_from(STAMPS))
events = st.one_of(
    records,
    st.tuples(st.just("race"), numbers, st.integers(0, 11), st.sampled_from(STAMPS)),
    st.tuples(st.just("purge"), st.lists(numbers, max_size=6)),
    st.tuples(st.just("lose"), numbers),
    st.tuples(st.just("chop"), st.integers(1, 12)),
    st.tuples(st.just("spoil"), st.integers(0, 5), st.sampled_from([None, 0, "x", {"f": 1}, {}])),
)
# What is asked after an event, if anything is.
steps = st.lists(st.tuples(events, queries | st.none()), min_size=3, max_size=20)


async def brute(desk, stamp, query):
    """Answer from the journal's rows alone, one by one: (cosines of all that may be found, exact, dropped)."""
    oldest = -1 if query["age"] is None else desk.now - query["age"]
    scores, dropped = {}, 0
    old = set()
    for entry in await desk.rows():
        number = int(entry.key[-1], 16)
        past = read_past(entry, desk.scope, desk.tool)
        if number in query["dead"]:
            continue
        if entry.created_at < oldest:
            old.add(number)
        elif past.model == stamp and entry.blob is not None:
            scores[number] = float(np.frombuffer(entry.blob, "<f4") @ VECTORS[query["vector"]])
        elif number not in query["exact"]:
            dropped += 1
    return scores, old, dropped


async def ask(desk, stamp, query):
    """Ask as the gate does, which reads what is proposed: (what it holds in the end, whether some of it was gone)."""
    options = {name: query[name] for name in ("k", "threshold", "exact", "dead")}
    there = {int(row.key[-1], 16) for row in await desk.rows()}
    answer = await desk.ask(query=VECTORS[query["vector"]], stamp=stamp, **options)
    if all(score is None or int(name, 16) in there for name, score in answer.scored):
        return answer, False
    desk.cache.forget(desk.subject())
    return await desk.ask(query=VECTORS[query["vector"]], stamp=stamp, **options), True


async def check(desk, stamp, query, *, lost):
    desk.ttl_ms = query["age"]
    answer, gone = await ask(desk, stamp, query)
    assert lost or not gone
    found = {int(name, 16): score for name, score in answer.scored}
    scores, old, dropped = await brute(desk, stamp, query)
    exact = set(query["exact"]) - set(query["dead"])
    # Where records were lost behind the generation's back, nobody reads again how many have no vector: that count may
    # be off by the lost ones, either way. What is found may not.
    assert answer.dropped_stamp == dropped or (lost and not gone and answer.dropped_stamp >= 0)
    # Every one that was looked up is there, unless it is known to be too old; a lost one may have been known as that.
    there = {int(row.key[-1], 16) for row in await desk.rows()}
    assert (exact & there if lost and not gone else exact) - old <= found.keys()
    assert not found.keys() & (old | set(query["dead"]))
    for number, score in found.items():
        assert score == (pytest.approx(scores[number], abs=1e-5) if number in scores else None)
    ranks = [2 if score is None else -score for _, score in answer.scored]
    assert ranks == sorted(ranks)
    # The best k, whichever of two that are equally good.
    best = sorted((score for score in scores.values() if score >= query["threshold"]), reverse=True)[: query["k"]]
    mine = sorted((score for number, score in found.items() if number not in exact), reverse=True)
    beside = sorted((score for number, score in found.items() if number in exact and score is not None), reverse=True)
    merged = sorted((*mine, *(score for score in beside if score >= query["threshold"])), reverse=True)
    assert merged[: len(best)] == pytest.approx(best, abs=1e-5)
    assert len(mine) <= len(best)


async def play(script, storage, other, make, bound=1 << 20):
    """Ask one process that holds what it found, and each time a second one that holds nothing."""
    desk = make(journal=storage.runs, cache=VectorCache(max_bytes=bound, block=3))
    writer = make(journal=other.runs)
    for number in range(1, 6):
        await writer.record(number, VECTORS[number])
    lost = False
    for event, query in script:
        lost = event[0] != "purge" and (lost or event[0] in ("lose", "chop"))
        await happen(event, desk, writer)
        if query is not None:
            desk.now = await desk.journal.now()
            for stamp in STAMPS:
                await check(desk, stamp, query, lost=lost)
                fresh = desk.beside(journal=other.runs, cache=VectorCache(max_bytes=bound, block=3))
                await check(fresh, stamp, query, lost=lost)


async def happen(event, desk, writer):
    match event:
        case ("record", number, vector, stamp):
            await writer.record(number, None if vector is None else VECTORS[vector], stamp=stamp)
        case ("race", number, vector, stamp):  # two who both think they are the first
            await writer.record(number, VECTORS[vector], stamp=stamp, known=False)
        case ("purge", again):
            await writer.purge()
            for number in again:
                await writer.record(number, VECTORS[number])
        case ("lose", number):  # the generation says nothing of it: who reads what is proposed does
            await writer.journal.delete_prefix(keys.similar(desk.scope, desk.tool, f"{number:016x}"))
        case ("chop", limit):  # an erasure that did not get far
            await writer.journal.delete_prefix(desk.scope, limit=limit)
        case ("spoil", number, value):  # one of the copies
            rows = [entry async for entry in scan_all(desk.journal, (*desk.scope, "semvec"), blobs=True)]
            if blocks := [row for row in rows if row.key[-2] != "new"]:
                row = blocks[number % len(blocks)]
                ops = [Put(row.key, value, row.blob) if number % 2 else Put(row.key, row.value, row.blob[:-1] + b"x")]
                await desk.journal.apply(ops, batch=new_batch())


BOUNDS = {"held": 1 << 20, "some are streamed": 20 * ROW, "all are streamed": 4}


@pytest.mark.parametrize("bound", BOUNDS.values(), ids=BOUNDS)
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps)
def test_recall_finds_what_the_journal_holds(desk_type, bound, script):
    ticks = iter(range(1, 10_000_000))

    async def run():
        async with InMemoryStorage(clock=lambda: next(ticks) / 1000) as storage:
            await play(script, storage, storage, desk_type, bound)

    asyncio.run(run())


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps)
def test_recall_finds_what_another_object_left_in_the_file(desk_type, tmp_path_factory, script):
    path = tmp_path_factory.mktemp("property") / "runs.db"

    async def run():
        async with SqliteStorage(path, "normal") as storage, SqliteStorage(path, "normal") as other:
            await play(script, storage, other, desk_type)

    asyncio.run(run())
