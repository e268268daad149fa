"""The last of two thousand steps costs what the first did; run/test_growth.py drives a run of ten thousand."""

import asyncio

from gnl_core.journal.port import Create, Expect, Put, Replace, new_batch
from gnl_core.journal.sqlite import SqliteStorage

RECORD = {"f": 1, "status": "running", "tool": "send_invoice", "args": {"customer": "c-17", "amount": 120}}


async def steps(journal, fence, numbers):
    """Write what a step of a run writes: a model step with its claims, then the results."""

    async def one(number):
        call = ("run", "r", "~", "tool", f"{number:06d}", "000")
        claimed = await journal.apply(
            [
                Expect(("run", "r", "req", "lock"), fence),
                Create(call, RECORD),
                Put(("run", "r", "req", "beat"), number),
            ],
            batch=new_batch(),
        )
        await journal.apply(
            [
                Expect(("run", "r", "req", "lock"), fence),
                Replace(call, claimed.version, {**RECORD, "status": "succeeded", "output": "x" * 200}),
                Create(("run", "r", "~", "model", f"{number:06d}"), {"response": "y" * 500}),
            ],
            batch=new_batch(),
        )

    for start in range(numbers.start, numbers.stop, 64):
        await asyncio.gather(*(one(number) for number in range(start, min(start + 64, numbers.stop))))


def work_of(storage, call):
    """Count what SQLite's machine does for one call, in units of 20 instructions."""
    counted = 0

    def tick():
        nonlocal counted
        counted += 1
        return 0

    connections = [worker._rows.connection for worker in (storage._engine.writer, storage._engine.reader)]

    async def measure():
        for connection in connections:
            connection.set_progress_handler(tick, 20)
        await call
        for connection in connections:
            connection.set_progress_handler(None, 0)
        return counted

    return measure()


async def test_the_growth_of_2_000_steps_is_linear(tmp_path):
    path = tmp_path / "journal.db"
    async with SqliteStorage(path, "normal") as storage:
        lock = await storage.runs.apply([Create(("run", "r", "req", "lock"), "me")], batch=new_batch())
        await storage.runs.scan(())
        sizes, written, work = [], [], []
        for start in (0, 500, 1_000, 1_500):
            await steps(storage.runs, lock.version, range(start, start + 500))
            storage._engine.writer._rows.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            sizes.append(path.stat().st_size)
            written.append(storage.statistics.bytes_written)
            last = range(20_000 + start, 20_001 + start)
            work.append(await work_of(storage, steps(storage.runs, lock.version, last)))
            work[-1] += await work_of(storage, storage.runs.scan(("run", "r"), limit=100))
        assert sizes[3] / sizes[0] < 4.2
        assert written[3] / written[0] < 4.01
        assert 0 < work[3] < 1.5 * work[0]
