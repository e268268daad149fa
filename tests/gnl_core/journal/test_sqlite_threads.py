"""Loops, threads, cancellation, closing, and the end of the process."""

import asyncio
import gc
import threading
import weakref

import pytest

from gnl_core.errors import StoreUnavailableError
from gnl_core.journal.port import Applied, Create, Put, Refused, new_batch
from gnl_core.journal.sqlite import SqliteStorage


async def test_one_batch_is_one_commit_and_a_crowd_shares_them(tmp_path):
    async with SqliteStorage(tmp_path / "journal.db") as storage:
        for number in range(10):
            await storage.runs.apply([Create(("a", str(number)), 1)], batch=new_batch())
        assert storage.statistics.transactions == 10
        await asyncio.gather(
            *(storage.runs.apply([Create(("b", str(number)), 1)], batch=new_batch()) for number in range(100))
        )
        assert storage.statistics.batches == 110
        assert storage.statistics.transactions < 20
        assert storage.statistics.rows_written == 110


async def test_statistics_count_what_was_done(tmp_path):
    async with SqliteStorage(tmp_path / "journal.db") as storage:
        await storage.runs.apply([Create(("a",), "xy", b"123"), Create(("b",), 1)], batch=new_batch())
        await storage.runs.apply([Create(("a",), 1)], batch=new_batch())
        await storage.runs.get_many([("a",), ("c",)])
        await storage.runs.scan(())
        found = storage.statistics
        assert (found.batches, found.refused, found.transactions) == (1, 1, 1)
        assert (found.reads, found.scans, found.rows_read) == (1, 1, 3)
        assert (found.rows_written, found.bytes_written) == (2, 8)


async def test_a_batch_that_fails_spoils_no_other_of_its_transaction(tmp_path):
    async with SqliteStorage(tmp_path / "journal.db") as storage:
        journal = storage.runs
        await journal.apply([Create(("old",), 1)], batch=new_batch())
        storage._engine.writer._rows.connection.execute("UPDATE gnl_rows SET value='{broken'")
        results = await asyncio.gather(
            *(journal.apply([Create(("b", str(number)), 1)], batch=new_batch()) for number in range(5)),
            journal.apply([Create(("old",), 2)], batch=new_batch()),
            journal.apply([Create(("b", "0"), 2)], batch=new_batch()),
            return_exceptions=True,
        )
        assert [type(result) for result in results[:5]] == [Applied] * 5
        assert "the row old is no JSON" in str(results[5])
        assert isinstance(results[6], Refused)


async def test_an_organisation_that_was_undone_is_made_anew(tmp_path):
    async with SqliteStorage(tmp_path / "journal.db") as storage:
        journal, scoped = storage.runs, storage.runs.scoped("org")
        await journal.apply([Create(("old",), 1)], batch=new_batch())
        storage._engine.writer._rows.connection.execute("UPDATE gnl_rows SET value='{broken'")
        gate = storage._engine.writer._gate
        gate.acquire()
        first = asyncio.create_task(journal.apply([Create(("x",), 1)], batch=new_batch()))
        await asyncio.sleep(0)
        # All of these become one transaction, which the last one spoils after the first two have been written.
        rest = asyncio.gather(
            scoped.apply([Create(("a",), 1)], batch=new_batch()),
            scoped.apply([Create(("b",), 1)], batch=new_batch()),
            journal.apply([Create(("old",), 2)], batch=new_batch()),
            return_exceptions=True,
        )
        await asyncio.sleep(0)
        gate.release()
        await first
        assert [type(result).__name__ for result in await rest] == ["Applied", "Applied", "StoreCorruptError"]
        assert await journal.scopes() == ["", "org"]
        async with SqliteStorage(tmp_path / "journal.db") as other:
            assert len((await other.runs.scoped("org").scan(())).entries) == 2


def test_one_store_serves_many_loops_at_once(tmp_path):
    with SqliteStorage(tmp_path / "journal.db") as storage:
        barrier = threading.Barrier(4)
        failures = []

        def work(number):
            async def main():
                barrier.wait()
                for step in range(30):
                    await storage.runs.apply([Create((str(number), str(step)), step)], batch=new_batch())
                    assert (await storage.runs.get_many([(str(number), str(step))])).entries[0].value == step

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
        assert len(asyncio.run(storage.runs.scan((), limit=1000)).entries) == 120


async def test_a_cancelled_apply_raises_after_its_outcome(tmp_path):
    async with SqliteStorage(tmp_path / "journal.db") as storage:
        await storage.runs.apply([Create(("a",), 1)], batch=new_batch())
        gate = storage._engine.writer._gate
        gate.acquire()  # the writer stands still, as behind a slow disk
        task = asyncio.create_task(storage.runs.apply([Create(("b",), 1)], batch=new_batch()))
        await asyncio.sleep(0)
        task.cancel()
        task.cancel()
        done, _ = await asyncio.wait([task], timeout=0.05)
        assert not done
        gate.release()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await storage.runs.get_many([("b",)])).entries[0].value == 1


async def test_a_timeout_around_apply_waits_for_its_outcome(tmp_path):
    async with SqliteStorage(tmp_path / "journal.db") as storage:
        await storage.runs.apply([Create(("a",), 1)], batch=new_batch())
        gate = storage._engine.writer._gate
        gate.acquire()
        asyncio.get_running_loop().call_later(0.05, gate.release)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await storage.runs.apply([Create(("b",), 1)], batch=new_batch())
        assert (await storage.runs.get_many([("b",)])).entries[0].value == 1


async def test_a_loop_that_was_closed_meanwhile_stops_nobody(tmp_path):
    async with SqliteStorage(tmp_path / "journal.db") as storage:
        await storage.runs.apply([Create(("a",), 1)], batch=new_batch())
        gate = storage._engine.writer._gate
        gate.acquire()

        def abandon():
            loop = asyncio.new_event_loop()
            coroutine = storage.runs.apply([Create(("b",), 1)], batch=new_batch())
            call = loop.create_task(coroutine)
            loop.run_until_complete(asyncio.sleep(0))
            call._log_destroy_pending = False
            loop.close()

        await asyncio.to_thread(abandon)
        gate.release()
        await storage.runs.apply([Create(("c",), 1)], batch=new_batch())
        assert len((await storage.runs.scan(())).entries) == 3


async def test_closing_answers_what_is_in_flight(tmp_path):
    storage = SqliteStorage(tmp_path / "journal.db")
    calls = [
        asyncio.create_task(storage.runs.apply([Create(("a", str(number)), 1)], batch=new_batch()))
        for number in range(50)
    ]
    await asyncio.sleep(0)
    await storage.aclose()
    assert all(isinstance(result, Applied) for result in await asyncio.gather(*calls))
    with pytest.raises(StoreUnavailableError, match=r"journal\.db is closed"):
        await storage.runs.apply([Create(("b",), 1)], batch=new_batch())
    storage.close()
    with pytest.raises(StoreUnavailableError, match="closed"):
        _ = SqliteStorage(tmp_path / "x.db").runs.store_id, storage.runs.store_id


async def test_a_storage_that_nobody_keeps_ends_its_threads(tmp_path):
    journal = SqliteStorage(tmp_path / "journal.db").runs
    gc.collect()
    await journal.apply([Create(("a",), 1)], batch=new_batch())  # the journal alone keeps it going
    await journal.get_many([("a",)])
    threads = [journal._engine.writer._thread, journal._engine.reader._thread]
    engine = weakref.ref(journal._engine)
    del journal
    gc.collect()
    assert engine() is None
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()


def test_an_unclosed_store_neither_hangs_nor_warns_at_exit(run, tmp_path):
    program = """
    storage = SqliteStorage(path)
    async def main():
        await storage.runs.apply([Create(("a",), 1)], batch=new_batch())
        # Nobody awaits this one: it is written before the process ends.
        storage._engine.write(type(storage._engine.writer).rows_type.apply, "", __import__(
            "gnl_core.journal.batches", fromlist=["prepare"]).prepare([Create(("b",), 1)], 5), 5)
    asyncio.run(main())
    print("end")
    """
    assert run(program, tmp_path / "journal.db") == "end\n"
    with SqliteStorage(tmp_path / "journal.db") as storage:
        assert len(asyncio.run(storage.runs.scan(())).entries) == 2


async def test_now_never_runs_backwards_when_the_clock_does(tmp_path):
    seconds = [1_000.0]
    path = tmp_path / "journal.db"
    async with SqliteStorage(path, clock=lambda: seconds[0]) as storage:
        await storage.runs.apply([Create(("a",), 1)], batch=new_batch())
        for seconds[0] in (2_000.0, 500.0, 1_999.0, 2_001.0):
            applied = await storage.runs.apply([Put(("a",), 1)], batch=new_batch())
            (entry,) = (await storage.runs.get_many([("a",)])).entries
            assert applied.now == entry.updated_at <= await storage.runs.now()
        assert entry.updated_at == 2_001_000
    # Another process, whose clock was set back: ages are never negative there either.
    async with SqliteStorage(path, clock=lambda: 5.0) as storage:
        assert await storage.runs.now() == 2_001_000
        applied = await storage.runs.apply([Put(("b",), 1)], batch=new_batch())
        assert applied.now == 2_001_000
