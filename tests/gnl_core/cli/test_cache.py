"""Erasing from the command line where a program spreads its journal with `composite`: the cache is a place, too."""

import asyncio

import pytest

from gnl_core import composite, keys, run_durable, tool
from gnl_core.journal import Put, new_batch, scan_all
from gnl_core.opening import open_storage
from gnl_core.testing.scripted import ScriptedModel

ERASING = {
    "thread": (("purge", "thread", "t"), ""),
    "person": (("purge", "person", "ann"), ""),
    "sweep": (("sweep", "threads", "--older-than", "0ms"), ""),
    "org": (("purge", "org", "acme"), "acme"),
    "person of an organisation": (("purge", "person", "ann", "--org", "acme"), "acme"),
}


@tool(side_effect=False)
def look(order: str) -> str:
    """Look."""
    return order


@pytest.fixture
def places(tmp_path, redis_url, new_prefix):
    """The options that name a file of runs, and those of its cache on a server."""
    return ["--db", tmp_path / "runs.db"], ["--cache", redis_url, "--cache-prefix", new_prefix()]


@pytest.fixture
def fill(places):
    """Make ann's conversation, in which a judge has spoken once."""
    (_, file), (_, url, _, prefix) = places

    async def do(org):
        async with (
            open_storage(file) as runs,
            open_storage(url, prefix=prefix, accept_async_replication=True) as cache,
        ):
            both = composite(runs=runs.runs, cache=cache.runs)
            journal = both.scoped(org) if org else both
            model = ScriptedModel([[("look", {"order": "7"})], "done"])
            await run_durable(
                run_id="r", journal=journal, model=model, tools=[look], prompt="go", thread_id="t", resource_id="ann"
            )
            verdict = keys.judged(keys.thread_scope("t"), "look", "a" * 64, "b" * 64)
            await journal.apply([Put(verdict, {"f": 1, "verdict": "same"})], batch=new_batch())

    return lambda org="": asyncio.run(do(org))


def verdicts(places, org=""):
    """Count the rows that stand in the cache."""
    _, (_, url, _, prefix) = places

    async def count():
        async with open_storage(url, prefix=prefix, accept_async_replication=True) as cache:
            journal = cache.runs.scoped(org) if org else cache.runs
            return len([entry async for entry in scan_all(journal, ("xthr",))])

    return asyncio.run(count())


@pytest.mark.parametrize("way", ERASING)
def test_what_is_erased_is_erased_in_the_cache_that_is_named(gnl, places, fill, way):
    command, org = ERASING[way]
    fill(org)
    db, cache = places
    assert verdicts(places, org) == 1
    told = gnl(*command, *db, *cache)
    assert (told.code, verdicts(places, org)) == (0, 1), told
    done = gnl(*command, *db, *cache, "--yes")
    assert (done.code, verdicts(places, org)) == (0, 0), done


def test_the_environment_names_it_too_and_the_counts_tell_of_it(gnl, places, fill, monkeypatch):
    fill()
    db, (_, url, _, prefix) = places
    without = gnl("purge", "person", "ann", "--json", *db).json["deleted"]
    monkeypatch.setenv("GNL_CACHE", url)
    monkeypatch.setenv("GNL_CACHE_PREFIX", prefix)
    assert gnl("purge", "person", "ann", "--json", *db).json["deleted"] == without + 1
    assert gnl("purge", "person", "ann", "--json", "--yes", *db).code == 0
    assert verdicts(places) == 0


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--cache", "redis:/half"], "two slashes"),
        (["--cache-prefix", "gnl"], "a prefix of which store?"),
        (["--cache", "cache.db", "--cache-prefix", "gnl"], "a prefix is a Redis store's"),
    ],
)
def test_a_cache_that_is_none_is_an_error_of_the_options(gnl, places, fill, options, complaint):
    fill()
    told = gnl("purge", "person", "ann", "--yes", *places[0], *options)
    assert (told.code, complaint in told.err) == (2, True), told
    assert gnl("runs", "list", "--json", *places[0]).json["runs"], "nothing was erased"


def test_a_cache_that_is_not_there_stops_the_erasure_before_it_begins(gnl, places, fill, tmp_path):
    fill()
    told = gnl("purge", "person", "ann", "--yes", *places[0], "--cache", tmp_path / "none.db")
    assert (told.code, "no such file" in told.err) == (2, True), told
    assert gnl("runs", "list", "--json", *places[0]).json["runs"]
