"""Many at once: versions in the order of commits, absence that holds, locks that nobody waits for in a circle."""

import asyncio
import random
import subprocess
import sys
import threading

import psycopg
import pytest

from gnl_core.errors import StoreBusyError
from gnl_core.journal.port import Add, Applied, Create, Delete, Expect, Put, Refused, Replace, new_batch
from gnl_core.journal.postgres import PostgresStorage


@pytest.fixture
async def open_storage(postgres_dsn, new_schema):
    """Open storages on one schema."""
    schema = new_schema()
    made = []

    def make(**options):
        made.append(PostgresStorage(postgres_dsn, schema=schema, **options))
        return made[-1]

    make.schema = schema
    yield make
    for storage in made:
        await storage.aclose()


async def apply(storage, *ops):
    return await storage.runs.apply(ops, batch=new_batch())


async def test_no_two_batches_are_both_right_about_the_others_absence(open_storage):
    one, two = open_storage(), open_storage()
    for number in range(40):
        left, right = ("left", str(number)), ("right", str(number))
        results = await asyncio.gather(
            apply(one, Expect(left, "absent"), Create(right, 1)), apply(two, Expect(right, "absent"), Create(left, 1))
        )
        assert sum(isinstance(result, Applied) for result in results) == 1, number
    assert len((await one.runs.scan(("left",))).entries) + len((await one.runs.scan(("right",))).entries) == 40


async def test_the_driver_warns_nobody_of_a_race_that_is_part_of_the_trade(open_storage, caplog):
    one, two = open_storage(), open_storage()
    spoilt = 0
    for number in range(200):
        batches = [[Create((name, str(number)), 1) for name in "abcdefgh"] for _ in range(2)]
        first, second = await asyncio.gather(apply(one, *batches[0]), apply(two, *batches[1]))
        assert sorted([isinstance(first, Applied), isinstance(second, Applied)]) == [False, True]
        spoilt = one.statistics.retries + two.statistics.retries
        if spoilt > 3:
            break
    assert [record.getMessage() for record in caplog.records] == []


async def test_what_refuses_a_batch_was_true_at_one_time(open_storage, postgres_dsn):
    """One row goes and another comes, in one transaction, while two batches wait for the first: no time has neither."""
    storage = open_storage()
    old = (await apply(storage, Create(("old",), 1))).version
    rows = f'"{open_storage.schema}".gnl_rows'
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE %s"
    async with (
        await psycopg.AsyncConnection.connect(postgres_dsn) as other,
        await psycopg.AsyncConnection.connect(postgres_dsn, autocommit=True) as watch,
    ):
        await other.execute(f"SELECT 1 FROM {rows} FOR UPDATE")
        moved = asyncio.create_task(apply(storage, Expect(("old",), "absent"), Expect(("new",), "present")))
        taken = asyncio.create_task(apply(storage, Expect(("new",), "absent"), Replace(("old",), old, 2)))
        for _ in range(10_000):
            if await (await watch.execute(waiting, (f"%{rows}%",))).fetchone() == (2,):
                break
        await other.execute(f"UPDATE {rows} SET key = 'new', version = version + 1")
        await other.commit()
        assert isinstance(await moved, Applied)
        refused = await taken
    assert (refused.op, refused.found.key) == (0, ("new",))
    refused = await apply(storage, Expect(("old",), "absent"), Expect(("new",), old))
    assert (refused.op, refused.found.version) == (1, old + 1)


async def test_a_delete_of_nothing_lets_nobody_in_between(open_storage):
    """Either the deletion came first, and the other's row stays; or the row came first, and is gone."""
    one, two = open_storage(), open_storage()
    for number in range(40):
        gone, mark = ("gone", str(number)), ("mark", str(number))
        first, second = await asyncio.gather(
            apply(one, Delete(gone), Create(mark, 1)), apply(two, Create(gone, 1), Expect(mark, "absent"))
        )
        assert isinstance(first, Applied)
        if isinstance(second, Applied):
            assert (await one.runs.get_many([gone])).entries == (None,), number
        else:
            assert second.op == 1


async def test_a_guard_leaves_no_row(open_storage, postgres_dsn):
    storage = open_storage()
    await apply(storage, Expect(("a",), "absent"), Delete(("b",)))
    await apply(storage, Expect(("a",), "absent"), Delete(("b",)), Create(("c",), 1))
    with psycopg.connect(postgres_dsn) as connection:
        assert connection.execute(f'SELECT key FROM "{open_storage.schema}".gnl_rows').fetchall() == [("c",)]


async def test_who_asks_for_newer_rows_misses_none_of_batches_that_share_a_row(open_storage):
    """Each batch writes the scope's counter: then a larger version was committed later."""
    storages = [open_storage(), open_storage()]
    done = asyncio.Event()
    seen = set()

    async def look():
        mark, last = 0, False
        while not last:
            last = done.is_set()
            page = await storages[0].runs.scan(("rec",), newer_than=mark, limit=10_000)
            seen.update(entry.key for entry in page.entries)
            mark = max([mark, *(entry.version for entry in page.entries)])

    async def write(number):
        for step in range(20):
            ops = [Create(("rec", f"{number}-{step}"), 1), Add(("gen",), {"n": 1})]
            random.Random(number * 100 + step).shuffle(ops)
            assert isinstance(await apply(storages[number % 2], *ops), Applied)

    async def all_writers():
        await asyncio.gather(*(write(number) for number in range(6)))
        done.set()

    await asyncio.gather(look(), all_writers())
    assert len(seen) == 120


async def test_batches_over_the_same_rows_in_any_order_wait_in_no_circle(open_storage, postgres_dsn):
    def deadlocks():
        # What a session counted is told when it ends.
        with psycopg.connect(postgres_dsn, autocommit=True) as other:
            query = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
            return other.execute(query).fetchone()[0]

    before = deadlocks()
    one, two = open_storage(pool_size=4), open_storage(pool_size=4)
    keys = [("k", str(number)) for number in range(6)]

    async def work(number):
        rng = random.Random(number)
        for _ in range(15):
            mine = rng.sample(keys, 4)
            ops = [rng.choice([Put(key, number), Delete(key), Expect(key, "absent")]) for key in mine]
            assert isinstance(await apply((one, two)[number % 2], *ops), Applied | Refused)

    await asyncio.gather(*(work(number) for number in range(8)))
    for storage in (one, two):
        await storage.aclose()
    assert deadlocks() == before


async def test_one_of_two_racing_inserts_is_tried_again_and_refused(open_storage):
    storages = [open_storage() for _ in range(3)]
    for number in range(20):
        results = await asyncio.gather(*(apply(one, Create(("claim", str(number)), 1)) for one in storages * 2))
        winners = [result for result in results if isinstance(result, Applied)]
        losers = [result for result in results if isinstance(result, Refused)]
        assert (len(winners), len(losers)) == (1, 5)
        assert {loser.found.version for loser in losers} == {winners[0].version}


async def test_rows_that_others_hold_are_waited_for_and_given_up(open_storage, postgres_dsn):
    storage, hasty = open_storage(), open_storage(lock_wait=0.05)
    await apply(storage, Create(("a",), 1), Create(("b",), 1))
    with psycopg.connect(postgres_dsn) as other:
        other.execute(f"SELECT 1 FROM \"{open_storage.schema}\".gnl_rows WHERE key='a' FOR UPDATE")
        with pytest.raises(StoreBusyError, match="stayed locked"):
            await apply(hasty, Put(("a",), 2))
        assert isinstance(await apply(hasty, Put(("b",), 2)), Applied)
        assert len((await hasty.runs.scan(())).entries) == 2  # readers wait for no writer
        waiting = asyncio.create_task(apply(storage, Put(("a",), 3)))
        await asyncio.wait([waiting], timeout=0.05)
        assert not waiting.done()
    assert isinstance(await waiting, Applied)


async def test_s71_a_pool_of_two_serves_fifty(open_storage):
    storage = open_storage(pool_size=2)
    await asyncio.gather(*(apply(storage, Put(("p", str(number)), 1), Add(("n",), {"n": 1})) for number in range(50)))
    assert (await storage.runs.get_many([("n",)])).entries[0].value == {"n": 50}
    assert storage._engine.thread._served._pool.made == 2


async def test_s71_who_waits_for_a_connection_in_vain_is_told(open_storage, postgres_dsn):
    storage, hasty = open_storage(), open_storage(pool_size=1, lock_wait=0.3)
    await apply(storage, Create(("a",), 1))
    with psycopg.connect(postgres_dsn) as other:
        other.execute(f"SELECT 1 FROM \"{open_storage.schema}\".gnl_rows WHERE key='a' FOR UPDATE")
        calls = [apply(hasty, Put(("a",), number)) for number in range(3)]
        results = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(result) for result in results} == {StoreBusyError}
    assert "all connections of the pool" in " ".join(map(str, results))
    assert isinstance(await apply(hasty, Put(("a",), 2)), Applied)


OPENER = """
import asyncio, sys
from gnl_core import PostgresStorage
from gnl_core.journal import Add, Create, new_batch
async def main():
    async with PostgresStorage(sys.argv[1], schema=sys.argv[2]) as storage:
        sys.stdin.readline()
        await storage.runs.apply([Add(("n",), {"n": 1}), Create(("by", sys.argv[3]), 1)], batch=new_batch())
        print(storage.runs.store_id)
asyncio.run(main())
"""


def test_s67_processes_that_open_a_fresh_schema_at_once_make_one_store(postgres_dsn, new_schema):
    schema = new_schema()
    started = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-c", OPENER, postgres_dsn, schema, str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(5)
    ]
    ended = []
    threads = [threading.Thread(target=lambda one=one: ended.append(one.communicate("go\n"))) for one in started]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {err for _, err in ended} == {""}
    assert len({out for out, _ in ended}) == 1
    with PostgresStorage(postgres_dsn, schema=schema) as storage:
        assert asyncio.run(storage.runs.get_many([("n",)])).entries[0].value == {"n": 5}
