"""What a semantic gate remembers is erased with its person, from the rows, from the files and from caches."""

import asyncio
import subprocess
import sys

import pytest

from gnl_core import SqliteStorage, keys, purge_resource, purge_thread, sweep_runs
from gnl_core.errors import StoreUnavailableError
from gnl_core.testing import Fault, FaultyJournal
from gnl_semantic.vectors import VectorCache

MARK = "ibantr55marker"
GREP = (
    "import pathlib, sqlite3, sys\n"
    "path = pathlib.Path(sys.argv[1])\n"
    "if sys.argv[3] == 'checkpoint':\n"
    "    connection = sqlite3.connect(path)\n"
    "    assert connection.execute('PRAGMA wal_checkpoint(TRUNCATE)').fetchone()[0] == 0\n"
    "    connection.close()\n"
    "print(*(one.name for one in sorted(path.parent.iterdir()) if sys.argv[2].encode() in one.read_bytes()))\n"
)


async def raw(path, text, *, checkpoint=False):
    """Return which files beside a journal hold a text, byte by byte; read in a process of its own."""
    command = [sys.executable, "-c", GREP, str(path), text, "checkpoint" if checkpoint else ""]
    ended = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.split()


async def remember(shop, judge_that, person="ann", thread="t", mark=MARK):
    """Fill a conversation with all that a gate writes of it: records, a verdict, a pair let pass, incidents."""
    shop.gate = shop.gated(rules=True, judge=judge_that("SAME"))
    declared = {
        "keys": ("sku",),
        "amount_fields": ("price",),
        "describe": lambda args: f"made {args['sku']} for {mark}",
    }
    tools = [shop.tool(declared=declared)]
    options = {"tools": tools, "thread_id": thread, "resource_id": person}
    await shop.run({"sku": f"Samsung 42 {mark} TV", "note": mark}, run=f"{person}-1", prompt=mark, **options)
    await shop.run({"sku": f"SMSNG TV42 {mark}", "note": mark}, run=f"{person}-2", prompt=mark, **options)


@pytest.mark.parametrize("order", ["purge alone", "retention first"])
async def test_s74_nothing_of_a_person_is_left_to_grep(tmp_path, effects, embed, shop_of, judge_that, clock, order):
    path = tmp_path / "j.db"
    async with SqliteStorage(path, clock=clock) as storage:
        shop = shop_of(storage.runs)
        await remember(shop, judge_that)
        await remember(shop, judge_that, "bob", "t2", "othermarker")
        families = {key[2] for key in await shop.rows(*keys.thread_scope("t"))}
        assert families >= {"sem", "semfold", "semgen", "semjudge", "semvec", "dup"}
        assert await raw(path, MARK), "a marker that nobody could find would prove nothing"
        if order == "retention first":
            clock.ahead = 10 * 86_400
            swept = await sweep_runs(storage.runs, older_than_ms=86_400_000, keep_suspended=False)
            assert swept.purged == 4
        await purge_resource(storage.runs, "ann")
        rows = await shop.rows()
        assert not [key for key, row in rows.items() if MARK in f"{key} {row.value}" or "ann" in key]
        assert await raw(path, MARK, checkpoint=True) == []
        assert await raw(path, "othermarker") == ["j.db"], "another person's rows stay"
    assert await raw(path, MARK) == []


async def test_a_cache_forgets_a_purged_conversation_at_its_next_call(shop, asked):
    cache = VectorCache()
    shop.gate = shop.gated(cache=cache)
    await shop.run({"sku": "one"})
    assert asked(await shop.run({"sku": "ONE"})).kind == "semantic"
    assert (len(cache), cache.held_bytes > 0) == (1, True)
    done = await purge_thread(shop.journal, "t")
    assert done.rows["xthr/sem"] == 1
    assert any("looks like them" in sentence for sentence in done.windows)
    result = await shop.run({"sku": "One"})
    assert (result.interrupts, result.text) == ((), "done")
    assert len(cache) == 0, "its generation is gone, and with it what was held"
    assert len(await shop.records()) == 1
    assert asked(await shop.run({"sku": "oNE"})).prior["run_id"] == "r3"


async def test_the_generation_goes_first_so_that_no_cache_believes_what_is_half_gone(shop):
    """Broken off before any of its writes, only records that still stand are asked about."""
    shop.gate = shop.gated(cache=VectorCache())
    broken = 0
    for number in range(1, 20):
        await shop.run({"sku": "one"}, run=f"first-{number}")
        faulty = FaultyJournal(shop.journal, fault=Fault(number=number, action="unavailable"))
        try:
            await purge_thread(faulty, "t")
        except StoreUnavailableError:
            broken += 1
            left = {key[2] for key in await shop.rows(*keys.thread_scope("t"))}
            assert "semgen" not in left or number == 1
            standing = await shop.records()
            result = await shop.run({"sku": "ONE"}, run=f"second-{number}")
            assert bool(result.interrupts) == bool(standing), "asked about what still stands whole, and nothing else"
        await purge_thread(shop.journal, "t")
        assert await shop.rows(*keys.thread_scope("t")) == {}
    assert broken > 8


async def test_in_a_shared_conversation_the_others_records_stay_and_are_found(shop, asked):
    cache = VectorCache()
    shop.gate = shop.gated(cache=cache)
    await shop.run({"sku": "one"}, run="a", resource_id="ann")
    await shop.run({"sku": "two"}, run="b", resource_id="bob")
    assert asked(await shop.run({"sku": "ONE"}, run="c", resource_id="cem")).prior["run_id"] == "a"
    await purge_resource(shop.journal, "ann")
    (record,) = await shop.records()
    generation = await shop.get(keys.generation(keys.thread_scope("t"), "createProduct"))
    assert (record["run"], generation.value["n"]) == ("b", 1)
    assert len(await shop.rows("xthr", "t", "semfold")) == 1
    assert asked(await shop.run({"sku": "TWO"}, run="d", resource_id="cem")).prior["run_id"] == "b"
    free = await shop.run({"sku": "One"}, run="e", resource_id="cem")
    assert free.interrupts == (), "what the erased one did is no earlier work any more"
