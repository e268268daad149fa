"""One storage, many loops and threads; forks; cancelled callers; the end."""

import asyncio
import gc
import threading
import weakref

import pytest
import redis

from gnl_core.errors import StoreUnavailableError
from gnl_core.journal.port import Add, Applied, Create, Put, new_batch
from gnl_core.journal.redis import RedisStorage


@pytest.fixture
def server(new_redis):
    return new_redis()


@pytest.fixture
def storage(server):
    with RedisStorage(server.url, accept_async_replication=True) as storage:
        yield storage


def test_one_storage_serves_loop_after_loop_over_the_same_connections(server, storage):
    for number in range(20):
        asyncio.run(storage.runs.apply([Put(("a",), number)], batch=new_batch()))
    assert asyncio.run(storage.runs.get_many([("a",)])).entries[0].value == 19
    with redis.Redis.from_url(server.url) as client:
        assert len(client.client_list()) == 2, "one call at a time needs one connection, and this asks over another"


def test_one_storage_serves_many_loops_at_once(server, storage):
    barrier, failures = threading.Barrier(6), []

    def work(number):
        async def main():
            barrier.wait()
            for step in range(30):
                await storage.runs.apply(
                    [Create((str(number), str(step)), step), Add(("n",), {"n": 1})], batch=new_batch()
                )

        try:
            asyncio.run(main())
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert asyncio.run(storage.runs.get_many([("n",)])).entries[0].value == {"n": 180}
    with redis.Redis.from_url(server.url) as client:
        assert len(client.client_list()) <= 8 + 1


async def test_the_stores_id_can_be_asked_inside_a_loop(storage):
    assert storage.runs.store_id == storage.runs.scoped("org").store_id
    assert storage.runs.capabilities == {"ordered", "blobs", "durable"}


async def test_a_cancelled_apply_raises_after_its_outcome(server, storage):
    await storage.runs.now()
    server.pause()  # as behind a slow disk
    try:
        task = asyncio.create_task(storage.runs.apply([Create(("b",), 1)], batch=new_batch()))
        await asyncio.sleep(0)
        task.cancel()
        task.cancel()
        done, _ = await asyncio.wait([task], timeout=0.05)
        assert not done
    finally:
        server.resume()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await storage.runs.get_many([("b",)])).entries[0].value == 1


async def test_a_cancelled_read_waits_for_nothing_and_spoils_no_connection(server, storage):
    await storage.runs.apply([Create(("a",), 1), Create(("b",), 2)], batch=new_batch())
    server.pause()
    try:
        task = asyncio.create_task(storage.runs.get_many([("a",)]))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    finally:
        server.resume()
    for _ in range(20):
        assert (await storage.runs.get_many([("b",)])).entries[0].value == 2


async def test_a_loop_that_was_closed_meanwhile_stops_nobody(server, storage):
    await storage.runs.now()
    server.pause()

    def abandon():
        loop = asyncio.new_event_loop()
        call = loop.create_task(storage.runs.apply([Create(("b",), 1)], batch=new_batch()))
        loop.run_until_complete(asyncio.sleep(0))
        call._log_destroy_pending = False
        loop.close()

    try:
        await asyncio.to_thread(abandon)
    finally:
        server.resume()
    await storage.runs.apply([Create(("c",), 1)], batch=new_batch())
    storage.close()
    with RedisStorage(server.url, accept_async_replication=True) as other:
        assert len((await other.runs.scan(())).entries) == 2


async def test_closing_answers_what_is_under_way(server):
    storage = RedisStorage(server.url, accept_async_replication=True)
    calls = [
        asyncio.create_task(storage.runs.apply([Create(("a", str(number)), 1)], batch=new_batch()))
        for number in range(50)
    ]
    await asyncio.sleep(0)
    await storage.aclose()
    assert all(isinstance(result, Applied) for result in await asyncio.gather(*calls))
    with pytest.raises(StoreUnavailableError, match="closed"):
        await storage.runs.apply([Create(("b",), 1)], batch=new_batch())
    with pytest.raises(StoreUnavailableError, match="closed"):
        await storage.durability_report()
    storage.close()
    with RedisStorage(server.url, accept_async_replication=True) as unused:
        pass
    with pytest.raises(StoreUnavailableError, match="closed"):
        _ = unused.runs.store_id


async def test_a_storage_that_nobody_keeps_ends_its_thread(server):
    journal = RedisStorage(server.url, accept_async_replication=True).runs
    gc.collect()
    await journal.apply([Create(("a",), 1)], batch=new_batch())  # the journal alone keeps it going
    thread = journal._engine.thread._thread
    engine = weakref.ref(journal._engine)
    del journal
    gc.collect()
    assert engine() is None
    await asyncio.to_thread(thread.join, 10)
    assert not thread.is_alive()


# A debugging loop tells of slow callbacks; how slow one was is not what this is about.
STORE = """
import logging
from gnl_core import RedisStorage
logging.getLogger("asyncio").setLevel(logging.ERROR)
from gnl_core.journal.port import Applied
def store():
    return RedisStorage(path, accept_async_replication=True)
"""


def program(text):
    return STORE + text


def test_an_unclosed_store_neither_hangs_nor_warns_at_exit(run, server, storage):
    text = """
storage = store()
async def main():
    await storage.runs.apply([Create(("a",), 1)], batch=new_batch())
    asyncio.ensure_future(storage.runs.apply([Create(("b",), 1)], batch=new_batch()))
    await asyncio.sleep(0)  # it is sent, and nobody waits for it
try:
    asyncio.run(main())
finally:
    print("end")
"""
    assert run(program(text), server.url) == "end\n"
    assert len(asyncio.run(storage.runs.scan(())).entries) == 2


def test_after_a_fork_both_sides_go_on(run, server, storage):
    text = """
async def many(storage, name):
    for number in range(40):
        await storage.runs.apply([Create((name, str(number)), 1), Add(("n",), {"n": 1})], batch=new_batch())
storage = store()
asyncio.run(many(storage, "before"))
pids = []
for child in range(3):
    pid = os.fork()
    if pid == 0:
        try:
            asyncio.run(many(storage, f"child {child}"))
            storage.close()
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    pids.append(pid)
    asyncio.run(many(storage, f"parent {child}"))
print([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids])
storage.close()
"""
    assert run(program(text), server.url) == "[0, 0, 0]\n"
    assert asyncio.run(storage.runs.get_many([("n",)])).entries[0].value == {"n": 40 * 7}


def test_a_child_makes_no_store_where_its_parents_is_gone(run, new_redis):
    server = new_redis()
    text = """
storage = store()
asyncio.run(storage.runs.apply([Create(("a",), 1)], batch=new_batch()))
import redis
client = redis.Redis.from_url(path)
client.flushall()
client.close()
pid = os.fork()
if pid == 0:
    try:
        asyncio.run(storage.runs.apply([Create(("a",), 1)], batch=new_batch()))
    except StoreUnavailableError as error:
        print(error.code, "emptied" in str(error), flush=True)
    os._exit(0)
os.waitpid(pid, 0)
storage.close()
"""
    assert run(program(text), server.url) == "store_unavailable True\n"
    assert server.ask("DBSIZE") == ":0"


def test_a_fork_beside_calls_under_way_loses_none_and_answers_each_once(run, server, storage):
    text = """
storage = store()
async def many(name):
    for number in range(150):
        answer = await storage.runs.apply([Create((name, str(number)), 1), Add(("n",), {"n": 1})], batch=new_batch())
        assert isinstance(answer, Applied), answer
threads = [threading.Thread(target=lambda n=n: asyncio.run(many(f"t{n}"))) for n in range(4)]
for thread in threads:
    thread.start()
codes = []
while any(thread.is_alive() for thread in threads) and len(codes) < 12:
    pid = os.fork()
    if pid == 0:
        os._exit(0 if asyncio.run(storage.runs.get_many([("n",)])).entries is not None else 1)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
for thread in threads:
    thread.join()
assert codes and set(codes) == {0}, codes
storage.close()
"""
    assert run(program(text), server.url) == ""
    assert asyncio.run(storage.runs.get_many([("n",)])).entries[0].value == {"n": 600}


def test_processes_that_start_cold_race_for_claims_and_lose_no_addition(child, server, storage):
    text = """
me = sys.argv[2]
async def main():
    async with store() as storage:
        sys.stdin.readline()
        won = 0
        for step in range(50):
            claim = await storage.runs.apply(
                [Create(("claim", f"{step:03d}"), me), Add(("sum",), {"n": 1})], batch=new_batch())
            won += isinstance(claim, Applied)
            await storage.runs.apply([Add(("all",), {"n": 1, me: 1})], batch=new_batch())
        print(won)
asyncio.run(main())
"""
    racers = [child(program(text), server.url, f"r{number}") for number in range(4)]
    for racer in racers:
        racer.stdin.write("go\n")
        racer.stdin.flush()
    outs = [racer.communicate(timeout=60) for racer in racers]
    assert [racer.returncode for racer in racers] == [0] * 4, outs
    assert sum(int(out) for out, _ in outs) == 50
    read = asyncio.run(storage.runs.get_many([("sum",), ("all",)]))
    assert read.entries[0].value == {"n": 50}
    assert read.entries[1].value == {"n": 200, **{f"r{number}": 50 for number in range(4)}}
    assert len({entry.version for entry in asyncio.run(storage.runs.scan(("claim",))).entries}) == 50
