"""Files that are none, disks that are full, rows that are damaged."""

import asyncio
import sqlite3

import pytest

from gnl_core.errors import (
    ConfigError,
    JournalFormatError,
    StoreCorruptError,
    StoreUnavailableError,
)
from gnl_core.journal import scan_all
from gnl_core.journal.port import Add, Applied, Create, Delete, Put, new_batch
from gnl_core.journal.sqlite import SqliteStorage


@pytest.fixture
async def path(tmp_path):
    """A file with three rows."""
    path = tmp_path / "journal.db"
    async with SqliteStorage(path) as storage:
        await storage.runs.apply([Create(("a",), 1), Create(("b", "x"), {"n": 2}, b"blob")], batch=new_batch())
        await storage.runs.scoped("org").apply([Create(("a",), 3)], batch=new_batch())
    return path


def sql(path, *statements):
    connection = sqlite3.connect(path, isolation_level=None)
    rows = [connection.execute(statement).fetchall() for statement in statements]
    connection.close()
    return rows[-1]


async def test_nothing_touches_the_disk_before_the_first_call(tmp_path):
    storage = SqliteStorage(tmp_path / "journal.db")
    assert storage.runs.scoped("org").capabilities == {"ordered", "blobs", "durable"}
    assert SqliteStorage(tmp_path / "x.db", "normal").runs.capabilities == {"ordered", "blobs"}
    await storage.aclose()
    assert list(tmp_path.iterdir()) == []


async def test_a_relative_path_stays_where_it_was_meant(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    async with SqliteStorage("journal.db") as storage:
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        await storage.runs.apply([Create(("a",), 1)], batch=new_batch())
    assert (tmp_path / "journal.db").exists()


@pytest.mark.parametrize("bad", ["", ":memory:", "file::memory:", "file:x?mode=memory&cache=shared", "a\0b"])
def test_a_path_that_names_no_file_is_refused_at_once(bad):
    with pytest.raises(ConfigError):
        SqliteStorage(bad)


def test_options_are_checked_at_once(tmp_path):
    with pytest.raises(ConfigError, match="durability"):
        SqliteStorage(tmp_path / "x.db", "none")
    with pytest.raises(ConfigError, match="lock_wait"):
        SqliteStorage(tmp_path / "x.db", lock_wait=-1)


async def test_what_cannot_be_opened_is_named_and_left_alone(tmp_path):
    text = tmp_path / "notes.txt"
    text.write_text("no database, but something somebody wrote " * 50)
    for path, error, words in (
        (tmp_path, StoreUnavailableError, "is a directory"),
        (tmp_path / "missing" / "journal.db", StoreUnavailableError, "missing of the journal does not exist"),
        (text / "journal.db", StoreUnavailableError, "does not exist"),
        (text, StoreCorruptError, "no SQLite database"),
        (f"file:{tmp_path}/missing.db?mode=ro", StoreUnavailableError, "cannot be opened"),
    ):
        async with SqliteStorage(path) as storage:
            for _ in range(2):
                with pytest.raises(error, match=words):
                    await storage.runs.get_many([("a",)])
                with pytest.raises(error, match=words):
                    await storage.runs.apply([Create(("a",), 1)], batch=new_batch())
            with pytest.raises(error, match=words):
                _ = storage.runs.store_id
    assert text.read_text().startswith("no database")
    assert sorted(item.name for item in tmp_path.iterdir()) == ["notes.txt"]


async def test_a_store_that_failed_to_open_is_used_once_it_can_be(tmp_path):
    async with SqliteStorage(tmp_path / "later" / "journal.db") as storage:
        with pytest.raises(StoreUnavailableError):
            await storage.runs.apply([Create(("a",), 1)], batch=new_batch())
        (tmp_path / "later").mkdir()
        assert isinstance(await storage.runs.apply([Create(("a",), 1)], batch=new_batch()), Applied)


async def test_s78_a_read_only_journal_is_read_and_refuses_writes(path):
    async with SqliteStorage(f"file:{path}?mode=ro") as storage:
        assert [entry.key async for entry in scan_all(storage.runs, ())] == [("a",), ("b", "x")]
        for call in (
            lambda: storage.runs.apply([Put(("a",), 2)], batch=new_batch()),
            lambda: storage.runs.delete_prefix(("a",)),
        ):
            with pytest.raises(StoreUnavailableError, match="read-only"):
                await call()
        assert (await storage.runs.get_many([("a",)])).entries[0].value == 1


async def test_a_read_only_file_without_a_journal_says_so(tmp_path):
    sql(tmp_path / "other.db", "CREATE TABLE theirs (x)")
    async with SqliteStorage(f"file:{tmp_path}/other.db?mode=ro") as storage:
        with pytest.raises(StoreUnavailableError, match="holds no journal"):
            await storage.runs.scan(())


async def test_a_newer_schema_is_refused_and_left_alone(path):
    sql(path, "UPDATE gnl_meta SET schema_version=99")
    async with SqliteStorage(path) as storage:
        with pytest.raises(JournalFormatError, match="schema 99"):
            await storage.runs.get_many([("a",)])
        with pytest.raises(JournalFormatError, match="update gnl-semantic"):
            await storage.runs.apply([Put(("a",), 2)], batch=new_batch())
    assert sql(path, "SELECT schema_version FROM gnl_meta") == [(99,)]


async def test_a_journal_stands_beside_tables_of_others(tmp_path):
    path = tmp_path / "app.db"
    sql(path, "CREATE TABLE theirs (x)", "INSERT INTO theirs VALUES (1)")
    async with SqliteStorage(path) as storage:
        await storage.runs.apply([Create(("a",), 1)], batch=new_batch())
    assert sql(path, "SELECT x FROM theirs") == [(1,)]


async def test_the_file_is_opened_as_the_contract_says(path):
    async with SqliteStorage(path) as full, SqliteStorage(path, "normal") as normal:
        for storage, level in ((full, 2), (normal, 1)):
            await storage.runs.apply([Put(("a",), 1)], batch=new_batch())
            connection = storage._engine.writer._rows.connection
            for pragma, value in (
                ("journal_mode", "wal"),
                ("synchronous", level),
                ("secure_delete", 1),
                ("busy_timeout", 100),
            ):
                assert connection.execute(f"PRAGMA {pragma}").fetchone() == (value,), pragma


async def test_deleted_text_is_gone_from_the_file(tmp_path):
    path = tmp_path / "journal.db"
    async with SqliteStorage(path) as storage:
        await storage.runs.apply(
            [Create(("p", str(n)), f"marker-4711-{n}" * 50, b"marker-4711" * 900) for n in range(20)],
            batch=new_batch(),
        )
        await storage.runs.apply([Create(("q",), 1)], batch=new_batch())
        assert await storage.runs.delete_prefix(("p",)) == 20
    assert b"marker-4711" not in path.read_bytes()


# Damaged rows ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("value='{\"n\": '", "no JSON"),
        ("value='NaN'", "no JSON"),
        ("value='[Infinity]'", "no JSON"),
        ("value='[1e400]'", "no JSON"),
        ("value=''", "no JSON"),
        ("value=CAST(x'ff22' AS TEXT)", "no UTF-8"),
        ("value=x'7b7d'", "another type"),
        ("blob='text'", "another type"),
        ("version='one'", "no number"),
        ("updated_at='today'", "no number"),
        ("version=0", "version 0"),
        ("version=-5", "version -5"),
        ("batch=-1", "tag -1"),
    ],
)
async def test_a_damaged_row_is_named_and_the_others_are_read(path, damage, words):
    sql(path, f"UPDATE gnl_rows SET {damage} WHERE key='b/x'")
    async with SqliteStorage(path) as storage:
        for call in (
            lambda: storage.runs.get_many([("a",), ("b", "x")]),
            lambda: storage.runs.scan((), blobs=True),
            lambda: storage.runs.apply([Create(("b", "x"), 1)], batch=new_batch()),
        ):
            with pytest.raises(StoreCorruptError, match=f"row b/x.*{words}") as caught:
                await call()
            assert caught.value.detail["key"] == "b/x"
        assert (await storage.runs.get_many([("a",)])).entries[0].value == 1
        assert isinstance(await storage.runs.apply([Put(("a",), 2)], batch=new_batch()), Applied)


async def test_a_damaged_counter_is_named(path):
    sql(path, "UPDATE gnl_rows SET value='{' WHERE key='b/x'")
    async with SqliteStorage(path) as storage:
        with pytest.raises(StoreCorruptError, match="b/x"):
            await storage.runs.apply([Put(("a",), 9), Add(("b", "x"), {"n": 1})], batch=new_batch())
        assert (await storage.runs.get_many([("a",)])).entries[0].value == 1
        await storage.runs.apply([Delete(("b", "x"))], batch=new_batch())  # a way out
        assert len((await storage.runs.scan(())).entries) == 1


@pytest.mark.parametrize("key", ["b//x", "b/%7", "b/ü", "", "b/%61", "b/%ff"])
async def test_a_key_that_no_key_is_spelt_like_is_named(path, key):
    sql(path, f"UPDATE gnl_rows SET key='{key}' WHERE key='b/x'")
    async with SqliteStorage(path) as storage:
        with pytest.raises(StoreCorruptError, match="no key is spelt like"):
            await storage.runs.scan(())


@pytest.mark.parametrize("change", ["format=2", "codec=1"])
async def test_a_row_of_a_newer_release_is_refused(path, change):
    sql(path, f"UPDATE gnl_rows SET {change} WHERE key='b/x'")
    async with SqliteStorage(path) as storage:
        with pytest.raises(JournalFormatError, match="b/x"):
            await storage.runs.get_many([("b", "x")])


async def test_a_damaged_file_is_told_from_a_missing_one(tmp_path):
    path = tmp_path / "journal.db"
    async with SqliteStorage(path) as storage:
        rows = [Create(("a", f"{n:04d}"), "x" * 500) for n in range(400)]
        await storage.runs.apply(rows, batch=new_batch())
    data = bytearray(path.read_bytes())
    for page in range(4, len(data) // 4096):
        data[page * 4096 : page * 4096 + 4096] = b"\xa5" * 4096
    path.write_bytes(data)
    async with SqliteStorage(path) as storage:
        with pytest.raises(StoreCorruptError, match="damaged"):
            await storage.runs.scan((), limit=1000)
        with pytest.raises(StoreCorruptError):
            await storage.runs.apply([Put(("a", f"{n:04d}"), 1) for n in range(400)], batch=new_batch())


async def test_a_file_removed_under_a_running_store_is_noticed(path):
    async with SqliteStorage(path) as storage:
        await storage.runs.apply([Put(("a",), 1)], batch=new_batch())
        away = path.with_name("moved.db")
        path.rename(away)
        for _ in range(2):
            with pytest.raises(StoreUnavailableError, match="was removed"):
                await storage.runs.apply([Put(("a",), 2)], batch=new_batch())
        assert not path.exists()
        async with SqliteStorage(path) as other:
            await other.runs.apply([Put(("a",), 3)], batch=new_batch())
        with pytest.raises(StoreUnavailableError, match="replaced by another store"):
            await storage.runs.apply([Put(("a",), 2)], batch=new_batch())
        path.unlink()
        away.rename(path)
        assert isinstance(await storage.runs.apply([Put(("a",), 2)], batch=new_batch()), Applied)


# Full disks --------------------------------------------------------------------------------------------------------


async def test_s78_a_full_database_refuses_a_batch_whole_and_goes_on(path):
    async with SqliteStorage(path) as storage:
        await storage.runs.apply([Put(("a",), 1)], batch=new_batch())
        connection = storage._engine.writer._rows.connection
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count={pages + 4}")
        results = await asyncio.gather(
            storage.runs.apply([Put(("a",), 2), Create(("large",), "x" * 200_000)], batch=new_batch()),
            storage.runs.apply([Create(("small",), 1)], batch=new_batch()),
            return_exceptions=True,
        )
        assert isinstance(results[0], StoreUnavailableError)
        assert "disk is full" in str(results[0])
        assert isinstance(results[1], Applied)  # the small one of the same transaction does not suffer
        assert (await storage.runs.get_many([("a",), ("large",)])).entries[1] is None
        assert (await storage.runs.get_many([("a",)])).entries[0].value == 1
        assert isinstance(await storage.runs.apply([Put(("a",), 3)], batch=new_batch()), Applied)


FULL = """
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
async def main():
    async with SqliteStorage(path) as storage:
        await storage.runs.apply([Create(("a",), 1)], batch=new_batch())
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
        for _ in range(3):
            try:
                await storage.runs.apply([Put(("a",), 2), Create(("large",), "x" * 500_000)], batch=new_batch())
                raise SystemExit("written")
            except StoreUnavailableError as error:
                assert "the disk is full" in str(error), error
        read = await storage.runs.get_many([("a",), ("large",)])
        assert [entry and entry.value for entry in read.entries] == [1, None]
        assert isinstance(await storage.runs.apply([Create(("small",), 1)], batch=new_batch()), Applied)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        result = await storage.runs.apply([Put(("a",), 2), Create(("large",), "x" * 500_000)], batch=new_batch())
        assert isinstance(result, Applied)
asyncio.run(main())
"""


async def test_s78_a_file_that_may_not_grow_refuses_a_batch_whole_and_goes_on(run, tmp_path):
    path = tmp_path / "journal.db"
    run(FULL, path)
    async with SqliteStorage(path) as storage:
        assert [entry.key for entry in (await storage.runs.scan(())).entries] == [("a",), ("large",), ("small",)]


FSYNC_FAILS = """
import ctypes, platform, struct
numbers = {"x86_64": (0xC000003E, 317, (74, 75)), "aarch64": (0xC00000B7, 277, (82, 83))}.get(platform.machine())
libc = ctypes.CDLL(None, use_errno=True)
def no_more_syncs():
    # A seccomp filter over all threads: fsync and fdatasync answer EIO from here on.
    _, seccomp, (fsync, fdatasync) = numbers
    code = [(0x20, 0, 0, 0), (0x15, 1, 0, fsync), (0x15, 0, 1, fdatasync), (0x06, 0, 0, 0x00050005),
            (0x06, 0, 0, 0x7FFF0000)]
    filter = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in code))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(code), ctypes.addressof(filter)))
    if libc.prctl(38, 1, 0, 0, 0) or libc.syscall(seccomp, 1, 1, program):
        print("no seccomp")
        os._exit(0)
async def main():
    storage = SqliteStorage(path)
    await storage.runs.apply([Create(("a",), 1)], batch=new_batch())
    no_more_syncs()
    try:
        await storage.runs.apply([Create(("b",), 1), Put(("a",), 2)], batch=4711)
        print("written")
    except StoreUnknownError as error:
        assert "may or may not" in str(error)
        print("unknown")
    sys.stdout.flush()
    os._exit(0)
if numbers is None:
    print("no seccomp")
else:
    asyncio.run(main())
"""


async def test_a_sync_that_fails_leaves_the_outcome_unknown_and_the_batch_may_be_sent_again(run, tmp_path):
    path = tmp_path / "journal.db"
    out = run(FSYNC_FAILS, path).strip()
    if out == "no seccomp":
        pytest.skip("this kernel lets no process filter its own system calls")
    assert out == "unknown"
    async with SqliteStorage(path) as storage:
        for _ in range(2):
            again = await storage.runs.apply([Create(("b",), 1), Put(("a",), 2)], batch=4711)
            assert isinstance(again, Applied)
        entries = (await storage.runs.scan(())).entries
        assert [(entry.key, entry.value) for entry in entries] == [(("a",), 2), (("b",), 1)]
        assert {entry.version for entry in entries} == {again.version}
