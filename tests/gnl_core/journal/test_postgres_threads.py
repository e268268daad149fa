"""Loops, threads, forks, cancellation, closing, and the end of the process."""

import asyncio
import gc
import textwrap
import threading
import weakref

import psycopg
import pytest

from gnl_core.errors import StoreUnavailableError
from gnl_core.journal.port import Applied, Create, Put, new_batch
from gnl_core.journal.postgres import PostgresStorage


@pytest.fixture
def schema(new_schema):
    """A schema of the test's own."""
    return new_schema()


@pytest.fixture
async def storage(postgres_dsn, schema):
    """A store with one row."""
    async with PostgresStorage(postgres_dsn, schema=schema) as storage:
        await storage.runs.apply([Create(("a",), 1)], batch=new_batch())
        yield storage


@pytest.fixture
def held(postgres_dsn, schema):
    """Hold the row 'a' as somebody else until `held.close()`."""
    connection = psycopg.connect(postgres_dsn)

    def hold():
        connection.execute(f"SELECT 1 FROM {schema}.gnl_rows WHERE key='a' FOR UPDATE")
        return connection

    yield hold
    connection.close()


def sessions_left(dsn, name):
    """How many sessions of this name the server keeps; it is given a while to notice that they ended."""
    with psycopg.connect(dsn, autocommit=True) as other:
        for _ in range(1000):
            query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s"
            (left,) = other.execute(query, (name,)).fetchone()
            if not left:
                break
            other.execute("SELECT pg_sleep(0.01)")
    return left


async def value(storage, *key):
    entry = (await storage.runs.get_many([key])).entries[0]
    return None if entry is None else entry.value


async def test_statistics_count_what_was_done(storage):
    before = storage.statistics
    await storage.runs.apply([Create(("b",), "xy", b"123"), Create(("c",), 1)], batch=new_batch())
    await storage.runs.apply([Create(("b",), 1)], batch=new_batch())
    await storage.runs.get_many([("b",), ("none",)])
    await storage.runs.scan(())
    found = storage.statistics
    assert (before.batches, before.transactions) == (1, 1)
    assert (found.batches, found.refused, found.transactions) == (2, 1, 2)
    assert (found.reads, found.scans, found.rows_read) == (1, 1, 4)
    assert (found.rows_written, found.bytes_written) == (3, 9)
    assert (found.retries, found.losses) == (0, 0)


def test_one_store_serves_many_loops_at_once(postgres_dsn, schema):
    with PostgresStorage(postgres_dsn, schema=schema, pool_size=2) as storage:
        barrier = threading.Barrier(4)
        failures = []

        def work(number):
            async def main():
                barrier.wait()
                for step in range(10):
                    await storage.runs.apply([Create((str(number), str(step)), step)], batch=new_batch())
                    assert await value(storage, str(number), str(step)) == step

            try:
                asyncio.run(main())
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert len(asyncio.run(storage.runs.scan((), limit=1000)).entries) == 40


async def test_a_cancelled_apply_raises_after_its_outcome(storage, held):
    other = held()
    task = asyncio.create_task(storage.runs.apply([Create(("b",), 1), _touch()], batch=new_batch()))
    await asyncio.sleep(0)
    task.cancel()
    task.cancel()
    done, _ = await asyncio.wait([task], timeout=0.1)
    assert not done
    other.rollback()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await value(storage, "b") == 1


def _touch():
    """Write the row that somebody holds."""
    return Put(("a",), 2)


async def test_a_timeout_around_apply_waits_for_its_outcome(storage, held):
    other = held()
    asyncio.get_running_loop().call_later(0.1, other.rollback)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await storage.runs.apply([Create(("b",), 1), _touch()], batch=new_batch())
    assert await value(storage, "b") == 1


async def test_a_cancelled_read_ends_at_once_and_breaks_no_connection(storage):
    for number in range(20):
        task = asyncio.create_task(storage.runs.get_many([("a",)]))
        for _ in range(number % 4):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert await value(storage, "a") == 1
    assert storage.statistics.losses == 0


async def test_a_caller_whose_loop_ends_leaves_no_transaction_open(storage, held):
    other = held()

    def abandon():
        loop = asyncio.new_event_loop()
        call = loop.create_task(storage.runs.apply([Create(("b",), 1), _touch()], batch=new_batch()))
        loop.run_until_complete(asyncio.sleep(0))
        call._log_destroy_pending = False
        loop.close()

    await asyncio.to_thread(abandon)
    other.rollback()
    await storage.runs.apply([_touch()], batch=new_batch())
    assert await value(storage, "b") == 1


async def test_a_loop_that_is_blocked_holds_no_lock(storage, postgres_dsn, schema):
    """Between a batch's two exchanges the caller's loop has no part."""
    task = asyncio.create_task(storage.runs.apply([_touch()], batch=new_batch()))
    await asyncio.sleep(0)
    with psycopg.connect(postgres_dsn) as other:  # blocks this loop until the row is free
        other.execute("SET lock_timeout = '30s'")
        other.execute(f"UPDATE {schema}.gnl_rows SET updated_at = updated_at WHERE key='a'")
        other.rollback()
    assert isinstance(await task, Applied)


async def test_closing_answers_what_is_in_flight(postgres_dsn, schema):
    named = psycopg.conninfo.make_conninfo(postgres_dsn, application_name=f"closing {schema}")
    storage = PostgresStorage(named, schema=schema)
    calls = [
        asyncio.create_task(storage.runs.apply([Create(("a", str(number)), 1)], batch=new_batch()))
        for number in range(30)
    ]
    await asyncio.sleep(0)
    await storage.aclose()
    assert all(isinstance(result, Applied) for result in await asyncio.gather(*calls))
    with pytest.raises(StoreUnavailableError, match="is closed") as caught:
        await storage.runs.apply([Create(("b",), 1)], batch=new_batch())
    assert caught.value.detail["closed"]
    storage.close()
    with pytest.raises(StoreUnavailableError, match="closed"):
        _ = storage.runs.store_id
    assert sessions_left(postgres_dsn, f"closing {schema}") == 0


async def test_a_storage_that_nobody_keeps_ends_its_thread(postgres_dsn, schema):
    journal = PostgresStorage(postgres_dsn, schema=schema).runs
    gc.collect()
    await journal.apply([Create(("a",), 1)], batch=new_batch())  # the journal alone keeps it going
    thread = journal._engine.thread._thread
    engine = weakref.ref(journal._engine)
    del journal
    gc.collect()
    assert engine() is None
    thread.join(10)
    assert not thread.is_alive()


async def test_the_clock_goes_back_for_nobody(storage, postgres_dsn, schema):
    """A server that took over may have a clock that is behind: what a row's time is, now is no less."""
    with psycopg.connect(postgres_dsn, autocommit=True) as other:
        other.execute(f"UPDATE {schema}.gnl_rows SET updated_at = updated_at + 1000000")
    (entry,) = (await storage.runs.get_many([("a",)])).entries
    assert await storage.runs.now() >= entry.updated_at
    applied = await storage.runs.apply([Create(("b",), 1)], batch=new_batch())
    assert applied.now >= entry.updated_at


# The process --------------------------------------------------------------------------------------------------------


PROLOGUE = """
import logging
from gnl_core import PostgresStorage
logging.getLogger("asyncio").setLevel(logging.ERROR)  # a busy machine is slow, which it would tell on stderr
schema = sys.argv[2]
"""


def test_an_unclosed_store_neither_hangs_nor_warns_at_exit(run, postgres_dsn, schema):
    program = """
    storage = PostgresStorage(path, schema=schema)
    async def main():
        await storage.runs.apply([Create(("a",), 1)], batch=new_batch())
        # Nobody awaits this one: it is written before the process ends.
        storage._engine.write(storage._engine.rows.apply, "", __import__(
            "gnl_core.journal.batches", fromlist=["prepare"]).prepare([Create(("b",), 1)], 5), 5)
    asyncio.run(main())
    print("end")
    """
    assert run(PROLOGUE + textwrap.dedent(program), postgres_dsn, schema) == "end\n"
    with PostgresStorage(postgres_dsn, schema=schema) as storage:
        assert len(asyncio.run(storage.runs.scan(())).entries) == 2


FORK = """
async def use(storage, name, count):
    for number in range(count):
        result = await storage.runs.apply([Create((name, f"{number:03d}"), number)], batch=new_batch())
        assert isinstance(result, Applied), result

storage = PostgresStorage(path, schema=schema, pool_size=2)
asyncio.run(use(storage, "before", 3))
stop = threading.Event()
failed = []
def busy():
    async def main():
        number = 0
        while not stop.is_set():
            await storage.runs.apply([Put(("busy",), number)], batch=new_batch())
            await storage.runs.scan(())
            number += 1
    try:
        asyncio.run(main())
    except BaseException as error:
        failed.append(error)
thread = threading.Thread(target=busy)
thread.start()
children = []
for number in range(4):
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            asyncio.run(use(storage, f"child-{number}", 5))
            read = asyncio.run(storage.runs.get_many([("before", "000")]))
            assert read.entries[0].value == 0
            storage.close()
            code = 0
        finally:
            os._exit(code)
    children.append(pid)
    asyncio.run(use(storage, f"parent-{number}", 5))
codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
stop.set()
thread.join()
assert failed == [], failed
assert codes == [0] * 4, codes
assert storage.statistics.losses == 0
storage.close()
print("end")
"""


def test_both_sides_of_a_fork_go_on(run, postgres_dsn, schema):
    assert run(PROLOGUE + FORK, postgres_dsn, schema) == "end\n"
    with PostgresStorage(postgres_dsn, schema=schema) as storage:
        page = asyncio.run(storage.runs.scan((), limit=1000))
    assert len(page.entries) == 3 + 1 + 4 * 5 + 4 * 5


ORPHAN = """
storage = PostgresStorage(path, schema=schema)
async def main():
    await storage.runs.apply([Create(("a",), 1)], batch=new_batch())
asyncio.run(main())
if os.fork() == 0:
    sys.stdin.readline()
    os._exit(0)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_child_keeps_no_session_of_a_parent_that_was_killed(child, postgres_dsn, schema):
    named = psycopg.conninfo.make_conninfo(postgres_dsn, application_name=f"orphan {schema}")
    parent = child(PROLOGUE + ORPHAN, named, schema)
    parent.wait(60)
    # The server ends a session when nobody holds its socket any more; the child still runs.
    assert sessions_left(postgres_dsn, f"orphan {schema}") == 0
    parent.stdin.write("go\n")
