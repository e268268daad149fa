"""Connections that break, at a commit above all; servers that are away, silent, or replaced by their standby."""

import asyncio
import contextlib

import psycopg
import pytest

from gnl_core.errors import (
    StoreBusyError,
    StoreUnavailableError,
    StoreUnknownError,
)
from gnl_core.journal import postgres_rows
from gnl_core.journal.port import Add, Applied, Create, Expect, Put, Refused, Replace, new_batch
from gnl_core.journal.postgres import PostgresStorage


@pytest.fixture
def schema(new_schema):
    """A schema of the test's own."""
    return new_schema()


@pytest.fixture
def sql(postgres_dsn):
    """Run one statement as somebody else."""

    def go(text, *parameters):
        with psycopg.connect(postgres_dsn, autocommit=True) as connection:
            cursor = connection.execute(text, parameters or None)
            return cursor.fetchall() if cursor.description else []

    return go


@pytest.fixture
async def proxied(postgres_proxy, new_schema):
    """A store behind a proxy, with one row; `proxied.proxy` breaks its connections."""
    async with PostgresStorage(postgres_proxy.dsn, schema=new_schema(), pool_size=2) as storage:
        await apply(storage, Create(("a",), 1))
        storage.proxy = postgres_proxy
        yield storage


async def apply(storage, *ops, batch=None):
    return await storage.runs.apply(ops, batch=new_batch() if batch is None else batch)


async def value(storage, *key):
    entry = (await storage.runs.get_many([key])).entries[0]
    return None if entry is None else entry.value


# Connections ---------------------------------------------------------------------------------------------------------

KILL = (
    "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
    " WHERE application_name = 'gnl' AND pid <> pg_backend_pid()"
)


async def test_s69_idle_connections_that_the_server_killed_are_replaced(postgres_dsn, schema, sql):
    async with PostgresStorage(postgres_dsn, schema=schema, pool_size=3) as storage:
        await asyncio.gather(*(apply(storage, Add(("n",), {"n": 1})) for _ in range(6)))
        for call in (
            lambda: apply(storage, Create(("b",), 1)),
            lambda: storage.runs.get_many([("b",)]),
            lambda: storage.runs.delete_prefix(("b",)),
            storage.runs.now,
        ):
            assert sql(KILL)
            await call()
        assert storage.statistics.losses >= 4
        assert await value(storage, "n") == {"n": 6}
        assert await value(storage, "b") is None


@pytest.mark.parametrize(("fate", "there"), [("lose", False), ("hide", True)])
async def test_s70_a_connection_lost_at_commit_leaves_it_open_what_stands_and_the_tag_tells(proxied, fate, there):
    lock = await apply(proxied, Create(("lock",), "me"))
    ops = [
        Expect(("lock",), lock.version),
        Create(("claim",), "mine"),
        Put(("a",), 2),
        Add(("n",), {"n": 1}),
    ]
    proxied.proxy.on_commit = fate
    tag = new_batch()
    with pytest.raises(StoreUnknownError, match="may or may not be there"):
        await apply(proxied, *ops, batch=tag)
    assert (await value(proxied, "claim") is not None) == there
    again = await apply(proxied, *ops, batch=tag)
    assert isinstance(again, Applied)
    assert again.counters == {("n",): {"n": 1}}
    assert await value(proxied, "n") == {"n": 1}
    assert (await proxied.runs.get_many([("claim",)])).entries[0].version == again.version
    assert isinstance(await apply(proxied, Create(("claim",), "other")), Refused)


@pytest.mark.parametrize(("fate", "there"), [("lose", False), ("hide", True)])
async def test_a_replace_lost_at_commit_is_sent_again(proxied, fate, there):
    (entry,) = (await proxied.runs.get_many([("a",)])).entries
    proxied.proxy.on_commit = fate
    tag = new_batch()
    with pytest.raises(StoreUnknownError):
        await apply(proxied, Replace(("a",), entry.version, 2), batch=tag)
    assert (await value(proxied, "a") == 2) == there
    assert isinstance(await apply(proxied, Replace(("a",), entry.version, 2), batch=tag), Applied)
    assert await value(proxied, "a") == 2


async def test_a_deletion_lost_at_commit_says_so(proxied):
    proxied.proxy.on_commit = "hide"
    with pytest.raises(StoreUnknownError):
        await proxied.runs.delete_prefix(("a",))
    assert await proxied.runs.delete_prefix(("a",)) == 0


async def test_a_network_that_loses_its_connections_is_not_noticed(proxied):
    await asyncio.gather(*(proxied.runs.now() for _ in range(4)))
    for number in range(3):
        proxied.proxy.cut_all()
        assert isinstance(await apply(proxied, Put(("a",), number)), Applied)
    assert await value(proxied, "a") == 2


async def test_a_server_that_says_nothing_is_given_up(proxied, monkeypatch):
    monkeypatch.setattr(postgres_rows, "GRACE_S", -59.9)
    proxied.proxy.silent = True
    with pytest.raises(StoreUnavailableError, match="does not answer"):
        await proxied.runs.get_many([("a",)])


@pytest.mark.parametrize("ops", [[Expect(("a",), "present")], [Expect(("b",), "present")], [Replace(("a",), 99, 1)]])
async def test_a_server_that_says_nothing_to_the_end_of_a_batch_that_writes_nothing_is_given_up(
    proxied, monkeypatch, ops
):
    monkeypatch.setattr(postgres_rows, "GRACE_S", -59.5)
    proxied.proxy.silent_at = b"ROLLBACK"
    with pytest.raises(StoreUnavailableError, match="does not answer"):
        await apply(proxied, *ops)
    assert proxied.proxy.silent


@pytest.mark.parametrize("statement", [b"server_encoding", b"gnl_meta", b"pg_advisory_xact_lock", b"COMMIT\0"])
async def test_a_server_that_says_nothing_while_a_store_is_opened_is_given_up(
    postgres_proxy, schema, monkeypatch, statement
):
    monkeypatch.setattr(postgres_rows, "GRACE_S", -0.5)
    postgres_proxy.silent_at = statement
    async with PostgresStorage(postgres_proxy.dsn, schema=schema, lock_wait=1.0) as storage:
        with pytest.raises(StoreUnavailableError, match="does not answer"):
            await storage.runs.now()
        assert postgres_proxy.silent
        postgres_proxy.silent, postgres_proxy.silent_at = False, None
        assert isinstance(await apply(storage, Create(("a",), 1)), Applied)


async def test_who_is_stuck_while_making_a_store_is_not_waited_for_for_ever(postgres_dsn, schema):
    with psycopg.connect(postgres_dsn) as other:
        other.execute("SELECT pg_advisory_xact_lock(%s::int, hashtext(%s))", (0x676E6C, schema))
        async with PostgresStorage(postgres_dsn, schema=schema, lock_wait=0.1) as storage:
            with pytest.raises(StoreBusyError):
                await storage.runs.now()
            other.rollback()
            assert isinstance(await apply(storage, Create(("a",), 1)), Applied)


async def test_a_server_that_says_nothing_to_a_commit_leaves_it_open(proxied, monkeypatch):
    real = postgres_rows.Attempt.__setattr__

    def go_silent(self, name, value):
        real(self, name, value)
        if name == "committing" and value:
            proxied.proxy.silent = True

    monkeypatch.setattr(postgres_rows.Attempt, "__setattr__", go_silent)
    monkeypatch.setattr(postgres_rows, "GRACE_S", -59.5)
    with pytest.raises(StoreUnknownError, match="does not answer"):
        await apply(proxied, Put(("a",), 2))


def test_a_server_that_was_never_there_is_told_at_once_and_one_that_was_is_waited_for(new_cluster):
    cluster = new_cluster()
    with PostgresStorage(cluster.tcp, schema="s", reconnect_wait=30.0) as storage, asyncio.Runner() as runner:
        with pytest.raises(StoreUnavailableError, match=r"cannot be reached .*nothing was written"):
            runner.run(apply(storage, Create(("a",), 1)))
        with pytest.raises(StoreUnavailableError, match="cannot be reached"):
            _ = storage.runs.store_id
        cluster.start()
        assert isinstance(runner.run(apply(storage, Create(("a",), 1))), Applied)
        cluster.kill()

        async def write_while_it_starts():
            writing = asyncio.create_task(apply(storage, Create(("b",), 1)))
            await asyncio.to_thread(cluster.start)
            return await writing

        assert isinstance(runner.run(write_while_it_starts()), Applied)
        assert runner.run(value(storage, "a")) == {"n": 1} or runner.run(value(storage, "a")) == 1
    with (
        PostgresStorage(cluster.tcp, schema="s", reconnect_wait=0.05) as storage,
        asyncio.Runner() as runner,
    ):
        assert runner.run(value(storage, "b")) == 1
        cluster.stop()
        with pytest.raises(StoreUnavailableError, match="cannot be reached"):
            runner.run(apply(storage, Create(("c",), 1)))
        cluster.start()
        assert isinstance(runner.run(apply(storage, Create(("c",), 1))), Applied)


async def test_a_server_that_takes_fewer_connections_than_the_pool_would_have_serves_all_calls(new_cluster, schema):
    cluster = new_cluster(max_connections=3, superuser_reserved_connections=0, max_wal_senders=0).start()
    async with PostgresStorage(cluster.dsn, schema=schema, pool_size=8, reconnect_wait=30.0) as storage:
        await storage.runs.now()
        results = await asyncio.gather(
            *(apply(storage, Add(("n",), {"n": 1}), Create(("r", str(number)), 1)) for number in range(40))
        )
        assert all(isinstance(result, Applied) for result in results)
        assert await value(storage, "n") == {"n": 40}
    cluster.close()


# A failover ----------------------------------------------------------------------------------------------------------


async def test_what_a_synchronous_standby_has_acknowledged_survives_a_failover(new_cluster, schema):
    primary = new_cluster().start()
    standby = new_cluster(of=primary).start()
    primary.sql("ALTER SYSTEM SET synchronous_standby_names = 'standby'")
    primary.sql("SELECT pg_reload_conf()")
    while primary.sql("SELECT sync_state FROM pg_stat_replication") != [("sync",)]:
        primary.sql("SELECT pg_sleep(0.01)")
    async with PostgresStorage(standby.dsn, schema=schema) as storage:
        with pytest.raises(StoreUnavailableError, match="is a standby"):
            await storage.runs.now()
    both = (
        f"postgresql://postgres@127.0.0.1:{primary.port},127.0.0.1:{standby.port}/postgres"
        "?target_session_attrs=read-write"
    )
    async with PostgresStorage(both, schema=schema, reconnect_wait=30.0) as storage:
        versions = [(await apply(storage, Create(("before", str(number)), number))).version for number in range(20)]
        report = {finding.setting: finding.level for finding in await storage.durability_report()}
        assert (report["synchronous_commit"], report["synchronous_standby_names"]) == ("ok", "ok")
        ((written,),) = primary.sql("SELECT pg_current_wal_lsn()::text")
        while standby.sql(f"SELECT pg_last_wal_replay_lsn() >= '{written}'") != [(True,)]:
            standby.sql("SELECT pg_sleep(0.01)")  # it has the log on its disk, and may not have read it yet
        async with PostgresStorage(standby.dsn, schema=schema) as reader:
            with pytest.raises(StoreUnavailableError, match="read-only, as a standby is"):
                await apply(reader, Put(("a",), 1))
            report = {finding.setting: finding.level for finding in await reader.durability_report()}
            assert report["in_recovery"] == "fault"
        primary.kill()
        tag = new_batch()

        async def write_until_it_is_known():
            while True:
                with contextlib.suppress(StoreUnknownError):  # a session may have outlived its server to the commit
                    return await apply(storage, Create(("after",), 1), batch=tag)

        writing = asyncio.create_task(write_until_it_is_known())
        await asyncio.to_thread(standby.promote)
        after = await writing
        assert isinstance(after, Applied)
        assert after.version > max(versions)
        page = await storage.runs.scan(("before",))
        assert [entry.version for entry in sorted(page.entries, key=lambda entry: entry.version)] == versions
    standby.close()


async def test_a_batch_sent_again_is_acknowledged_only_once_a_synchronous_standby_has_it(
    new_cluster, schema, monkeypatch
):
    monkeypatch.setattr(postgres_rows, "GRACE_S", 0.0)
    cluster = new_cluster().start()
    tag, ops = new_batch(), [Create(("claim",), "mine")]
    async with PostgresStorage(cluster.dsn, schema=schema, lock_wait=1.0, reconnect_wait=30.0) as storage:
        await storage.runs.now()
        cluster.sql("ALTER SYSTEM SET synchronous_standby_names = 'away'")
        cluster.sql("SELECT pg_reload_conf()")
        while cluster.sql("SHOW synchronous_standby_names") != [("away",)]:
            cluster.sql("SELECT pg_sleep(0.01)")
        with pytest.raises(StoreUnknownError):
            await apply(storage, *ops, batch=tag)
        cluster.kill()
        cluster.start()
        assert await value(storage, "claim") == "mine"
        with pytest.raises(StoreUnknownError):
            await apply(storage, *ops, batch=tag)
        cluster.kill()
        cluster.start(synchronous_standby_names="")  # who waits there is served
        assert isinstance(await apply(storage, *ops, batch=tag), Applied)
    cluster.close()
