"""One file, many processes: cold starts, races, kills, forks."""

import signal
import sqlite3

import pytest

from gnl_core.errors import StoreBusyError
from gnl_core.journal.port import Applied, Create, Put, new_batch
from gnl_core.journal.sqlite import SqliteStorage

# Each process claims the same 50 keys as all others, adds to one counter, and writes rows of its own.
RACER = """
me = sys.argv[2]
async def main():
    async with SqliteStorage(path) as storage:
        sys.stdin.readline()
        won = 0
        for step in range(50):
            claim = await storage.runs.apply(
                [Create(("claim", f"{step:03d}"), me), Add(("sum",), {"n": 1})], batch=new_batch())
            won += isinstance(claim, Applied)
            own = await storage.runs.apply([Create(("own", me, f"{step:03d}"), step)], batch=new_batch())
            assert isinstance(own, Applied)
        print(won)
asyncio.run(main())
"""


async def test_s67_eight_processes_start_cold_on_one_fresh_file(child, tmp_path):
    path = tmp_path / "journal.db"
    racers = [child(RACER, path, number) for number in range(8)]
    for racer in racers:  # each has imported everything by the time its line is read
        racer.stdin.write("go\n")
        racer.stdin.flush()
    won = []
    for racer in racers:
        out, err = racer.communicate(timeout=60)
        # A debugging loop tells of every slow callback; how slow it was is not what this is about.
        told = [line for line in err.splitlines() if not line.startswith("Executing ")]
        assert (racer.returncode, told) == (0, [])
        won.append(int(out))
    assert sum(won) == 50
    async with SqliteStorage(path) as storage:
        claims = await storage.runs.scan(("claim",))
        assert len(claims.entries) == 50
        assert [sum(entry.value == str(number) for entry in claims.entries) for number in range(8)] == won
        (total,) = (await storage.runs.get_many([("sum",)])).entries
        assert total.value == {"n": 50}
        own = await storage.runs.scan(("own",), limit=1000)
        assert len(own.entries) == 400
        versions = [entry.version for entry in own.entries]
        assert len(set(versions)) == 400
    check = sqlite3.connect(path)
    assert check.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    check.close()


KILLED = """
async def main():
    journal = SqliteStorage(path).runs
    number = 0
    async def worker(name):
        nonlocal number
        while True:
            number += 1
            mine = number
            await journal.apply([Create(("a", f"{mine:06d}"), mine), Create(("b", f"{mine:06d}"), "x" * 5000),
                                 Add(("sum",), {"n": 1})], batch=new_batch())
            os.write(1, f"{mine:06d}\\n".encode())
    await asyncio.gather(*(worker(name) for name in range(5)))
asyncio.run(main())
"""


async def test_what_was_acknowledged_survives_a_kill_and_nothing_is_half(child, tmp_path):
    for attempt in range(3):
        path = tmp_path / f"{attempt}.db"
        process = child(KILLED, path)
        mine = {process.stdout.readline().strip() for _ in range(40)}
        process.send_signal(signal.SIGKILL)
        rest, _ = process.communicate()
        mine |= {line for line in rest.split("\n") if len(line) == 6}
        async with SqliteStorage(path) as storage:
            left = (await storage.runs.scan(("a",), limit=100_000)).entries
            right = (await storage.runs.scan(("b",), limit=100_000, max_bytes=1 << 30)).entries
            (total,) = (await storage.runs.get_many([("sum",)])).entries
            there = {entry.key[1] for entry in left}
            assert mine <= there
            assert there == {entry.key[1] for entry in right}
            assert total.value == {"n": len(there)}
            assert isinstance(await storage.runs.apply([Create(("after",), 1)], batch=new_batch()), Applied)


async def test_two_storages_on_one_path_are_one_store(tmp_path):
    path = tmp_path / "journal.db"
    async with SqliteStorage(path) as one, SqliteStorage(path) as two:
        first = await one.runs.apply([Create(("a",), 1)], batch=new_batch())
        (seen,) = (await two.runs.get_many([("a",)])).entries
        assert (seen.value, seen.version) == (1, first.version)
        second = await two.runs.apply([Put(("a",), 2)], batch=new_batch())
        assert second.version > first.version
        assert one.runs.store_id == two.runs.store_id
        await one.aclose()
        assert isinstance(await two.runs.apply([Create(("b",), 1)], batch=new_batch()), Applied)


async def test_a_lock_that_others_hold_is_waited_out(tmp_path):
    path = tmp_path / "journal.db"
    async with SqliteStorage(path) as storage, SqliteStorage(path, lock_wait=0.05) as hasty:
        await storage.runs.apply([Create(("a",), 1)], batch=new_batch())
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreBusyError, match="stayed locked"):
            await hasty.runs.apply([Create(("b",), 1)], batch=new_batch())
        assert len((await hasty.runs.scan(())).entries) == 1  # readers wait for no writer
        other.execute("COMMIT")
        other.close()
        assert isinstance(await hasty.runs.apply([Create(("b",), 1)], batch=new_batch()), Applied)


FORK = """
async def use(storage, name, count):
    for number in range(count):
        result = await storage.runs.apply([Create((name, f"{number:03d}"), number)], batch=new_batch())
        assert isinstance(result, Applied), result

storage = SqliteStorage(path)
asyncio.run(use(storage, "before", 5))
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
for number in range(6):
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            asyncio.run(use(storage, f"child-{number}", 20))
            read = asyncio.run(storage.runs.get_many([("before", "000")]))
            assert read.entries[0].value == 0
            storage.close()
            code = 0
        finally:
            os._exit(code)
    children.append(pid)
    asyncio.run(use(storage, f"parent-{number}", 20))
codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
stop.set()
thread.join()
assert failed == [], failed
assert codes == [0] * 6, codes
print(len(asyncio.run(storage.runs.scan((), limit=10_000)).entries))
storage.close()
"""


def test_parent_and_children_go_on_after_forks(run, tmp_path):
    path = tmp_path / "journal.db"
    assert run(FORK, path).strip() == str(5 + 1 + 6 * 20 + 6 * 20)
    check = sqlite3.connect(path)
    assert check.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert check.execute("SELECT count(*) FROM gnl_rows").fetchone() == (246,)
    check.close()


ORPHAN = """
storage = SqliteStorage(path)
asyncio.run(storage.runs.apply([Create(("parent",), 1)], batch=new_batch()))
if os.fork() == 0:
    # The parent ends first, as the last one that has the file open; the child's rows must not go with it.
    sys.stdin.readline()
    asyncio.run(storage.runs.apply([Create(("child",), 1)], batch=new_batch()))
    sys.stdin.readline()
    asyncio.run(storage.runs.apply([Create(("child", "late"), 1)], batch=new_batch()))
    print("written", flush=True)
    os._exit(0)
asyncio.run(storage.runs.apply([Create(("parent", "after"), 1)], batch=new_batch()))
print("forked", flush=True)
"""


async def test_a_child_that_outlives_its_parent_loses_nothing(child, tmp_path):
    path = tmp_path / "journal.db"
    process = child(ORPHAN, path)
    assert process.stdout.readline() == "forked\n"
    process.wait(timeout=30)
    process.stdin.write("go\n")
    process.stdin.flush()
    async with SqliteStorage(path) as other:
        await other.runs.apply([Create(("other",), 1)], batch=new_batch())
    process.stdin.write("go\n")
    process.stdin.flush()
    assert process.stdout.readline() == "written\n"
    async with SqliteStorage(path) as storage:
        keys = [entry.key for entry in (await storage.runs.scan(())).entries]
        assert keys == [("child",), ("child", "late"), ("other",), ("parent",), ("parent", "after")]
