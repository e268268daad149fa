"""Whatever is recorded, filled in and erased, in whatever order: recall finds what the journal holds."""

import asyncio

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gnl_core import keys
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


async def check(desk, stamp, query):
    options = {name: query[name] for name in ("k", "threshold", "exact", "dead")}
    desk.ttl_ms = query["age"]
    answer = await desk.ask(query=VECTORS[query["vector"]], stamp=stamp, **options)
    found = {int(name, 16): score for name, score in answer.scored}
    scores, old, dropped = await brute(desk, stamp, query)
    exact = set(query["exact"]) - set(query["dead"])
    assert answer.dropped_stamp == dropped
    # Every one that was looked up is there, unless it is known to be too old.
    assert exact - old <= found.keys()
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


async def play(script, storage, other, cache, make):
    desk = make(journal=storage.runs, cache=cache)
    writer = make(journal=other.runs)
    for number in range(1, 6):
        await writer.record(number, VECTORS[number])
    for event, query in script:
        await happen(event, desk, writer)
        if query is not None:
            desk.now = await desk.journal.now()
            for stamp in STAMPS:
                await check(desk, stamp, query)


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
            if await writer.journal.delete_prefix(keys.similar(desk.scope, desk.tool, f"{number:016x}")):
                desk.cache.forget(desk.subject())


BOUNDS = {"held": 1 << 20, "some are streamed": 20 * ROW, "all are streamed": 4}


@pytest.mark.parametrize("bound", BOUNDS.values(), ids=BOUNDS)
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps)
def test_recall_finds_what_the_journal_holds(desk_type, bound, script):
    ticks = iter(range(1, 10_000_000))

    async def run():
        async with InMemoryStorage(clock=lambda: next(ticks) / 1000) as storage:
            await play(script, storage, storage, VectorCache(max_bytes=bound), desk_type)

    asyncio.run(run())


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps)
def test_recall_finds_what_another_object_left_in_the_file(desk_type, tmp_path_factory, script):
    path = tmp_path_factory.mktemp("property") / "runs.db"

    async def run():
        async with SqliteStorage(path, "normal") as storage, SqliteStorage(path, "normal") as other:
            await play(script, storage, other, VectorCache(), desk_type)

    asyncio.run(run())
