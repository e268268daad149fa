"""Addresses, roles and settings that stand in the way; rows and schemas that are not as they should be."""

import asyncio
import subprocess
import sys
import time

import psycopg
import pytest

from gnl_core.errors import (
    ConfigError,
    JournalFormatError,
    StoreBusyError,
    StoreCorruptError,
    StoreUnavailableError,
)
from gnl_core.journal import postgres_rows, scan_all
from gnl_core.journal.port import Add, Applied, Create, Delete, Put, new_batch
from gnl_core.journal.postgres import PostgresStorage
from gnl_core.journal.postgres_wire import exchange


@pytest.fixture
def schema(new_schema):
    """A schema of the test's own."""
    return new_schema()


@pytest.fixture
async def storage(postgres_dsn, schema):
    """A store with one connection at most, and one row."""
    async with PostgresStorage(postgres_dsn, schema=schema, pool_size=1) as storage:
        await apply(storage, Create(("a",), {"n": 1}, b"blob"))
        yield storage


@pytest.fixture
def sql(postgres_dsn):
    """Run one statement as somebody else."""

    def go(text, *parameters):
        with psycopg.connect(postgres_dsn, autocommit=True) as connection:
            cursor = connection.execute(text, parameters or None)
            return cursor.fetchall() if cursor.description else []

    return go


async def apply(storage, *ops, batch=None):
    return await storage.runs.apply(ops, batch=new_batch() if batch is None else batch)


async def value(storage, *key):
    entry = (await storage.runs.get_many([key])).entries[0]
    return None if entry is None else entry.value


# What may stand in the way -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "nonsense",
        "postgresql://u:secret@h/d?nope=1",
        "a\0b",
        "host=\udce9 password=secret",
        "postgresql://u:secret/d",  # without its '@host' the password stands where a port does
        "host=h port=secret",
    ],
)
def test_a_dsn_that_is_none_is_refused_at_once_without_its_password(bad):
    with pytest.raises(ConfigError) as caught:
        PostgresStorage(bad)
    assert "secret" not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize(
    "options", [{"schema": 'x"; DROP'}, {"schema": ""}, {"pool_size": 0}, {"lock_wait": -1}, {"reconnect_wait": None}]
)
def test_options_are_checked_at_once(options):
    with pytest.raises((ConfigError, TypeError)):
        PostgresStorage("postgresql://localhost/x", **options)


async def test_a_password_stands_in_no_message(new_cluster):
    dsn = "postgresql://somebody:secret@127.0.0.1:1/somewhere"
    async with PostgresStorage(dsn) as storage:
        with pytest.raises(StoreUnavailableError) as caught:
            await storage.runs.now()
    assert "127.0.0.1:1" in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("host", ["a..b", "a" * 64 + ".example", "xn--é"])
async def test_a_host_that_no_name_can_be_cannot_be_reached(host):
    async with PostgresStorage(f"host={host} port=1", schema="s") as storage:
        with pytest.raises(StoreUnavailableError, match="cannot be reached"):
            await storage.runs.now()


async def test_without_the_driver_the_extra_is_named():
    program = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from gnl_core import MissingExtraError, PostgresStorage\n"
        "try: PostgresStorage('postgresql://x/y')\n"
        "except MissingExtraError as error: print(error)"
    )
    done = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert "[postgres]" in done.stdout


async def test_nothing_connects_before_the_first_call():
    storage = PostgresStorage("postgresql://127.0.0.1:1/nowhere")
    assert storage.runs.scoped("org").capabilities == {"ordered", "blobs", "durable"}
    await storage.aclose()


async def test_a_role_that_may_not_create_is_told_what_to_grant(postgres_dsn, schema, sql):
    role = f"r_{schema}"
    sql(f"CREATE ROLE {role} LOGIN")
    sql(f"CREATE SCHEMA {schema}")
    limited = psycopg.conninfo.make_conninfo(postgres_dsn, user=role)
    try:
        async with PostgresStorage(limited, schema=schema) as storage:
            with pytest.raises(StoreUnavailableError, match="grant it USAGE and CREATE"):
                await storage.runs.now()
            sql(f"GRANT USAGE, CREATE ON SCHEMA {schema} TO {role}")  # and not on the database
            assert isinstance(await apply(storage, Create(("a",), 1)), Applied)
    finally:
        sql(f"DROP OWNED BY {role}")
        sql(f"DROP ROLE {role}")


async def test_a_database_that_keeps_other_text_is_refused(postgres_dsn, schema, sql):
    sql(f"CREATE DATABASE {schema} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    try:
        async with PostgresStorage(psycopg.conninfo.make_conninfo(postgres_dsn, dbname=schema)) as storage:
            with pytest.raises(ConfigError, match="LATIN1"):
                await storage.runs.now()
    finally:
        sql(f"DROP DATABASE {schema}")


async def test_a_role_whose_defaults_are_strange_is_served(postgres_dsn, schema, sql):
    """Read-only, serializable, short of patience, and with an encoding and a search path of its own."""
    role = f"r_{schema}"
    sql(f"CREATE ROLE {role} SUPERUSER LOGIN")
    for name, setting in (
        ("default_transaction_isolation", "serializable"),
        ("default_transaction_read_only", "on"),
        ("synchronous_commit", "off"),
        ("search_path", "nowhere"),
        ("client_encoding", "LATIN1"),
        ("bytea_output", "escape"),
        ("lock_timeout", "1"),
    ):
        sql(f"ALTER ROLE {role} SET {name} = '{setting}'")
    try:
        async with PostgresStorage(psycopg.conninfo.make_conninfo(postgres_dsn, user=role), schema=schema) as storage:
            await apply(storage, Create(("a",), "日本 💸", b"\x00\xff"))
            (entry,) = (await storage.runs.get_many([("a",)])).entries
            assert (entry.value, entry.blob) == ("日本 💸", b"\x00\xff")
            report = {finding.setting: finding for finding in await storage.durability_report()}
            assert report["synchronous_commit"].value == "off"
            assert report["synchronous_commit"].level == "note"
    finally:
        sql(f"DROP OWNED BY {role}")
        sql(f"DROP ROLE {role}")


async def test_what_is_acknowledged_waits_for_the_disk_whatever_the_default_is(postgres_dsn, schema):
    dsn = psycopg.conninfo.make_conninfo(postgres_dsn, options="-c synchronous_commit=off")
    async with PostgresStorage(dsn, schema=schema, pool_size=1) as storage:
        await storage.runs.now()
        rows = storage._engine.thread._served
        seen = []

        async def look(*_):
            for within in (True, False):
                async with rows._pool.connection(time.monotonic() + 5) as connection:
                    if within:
                        await exchange(connection, rows._begin(postgres_rows.Attempt(time.monotonic() + 5)))
                    seen.append((await (await connection.execute("SHOW synchronous_commit")).fetchone())[0])

        await storage._engine.write(look)
        assert seen == ["on", "off"]


# What lies in the tables ---------------------------------------------------------------------------------------------


async def test_a_row_that_somebody_damaged_is_named(storage, sql, schema):
    for column, damage, error in (
        ("value", "'{broken'", StoreCorruptError),
        ("version", "-5", StoreCorruptError),
        ("format", "9", JournalFormatError),
        ("codec", "7", JournalFormatError),
    ):
        await apply(storage, Put(("b", "x"), {"n": 1}))
        sql(f"UPDATE {schema}.gnl_rows SET {column} = {damage} WHERE key = 'b/x'")
        for call in (
            lambda: storage.runs.get_many([("a",), ("b", "x")]),
            lambda: storage.runs.scan(("b",)),
            lambda: apply(storage, Create(("b", "x"), 1)),
            lambda: apply(storage, Add(("b", "x"), {"n": 1})),
        ):
            with pytest.raises(error, match="b/x"):
                await call()
        assert await value(storage, "a") == {"n": 1}
        assert isinstance(await apply(storage, Delete(("b", "x"))), Applied)


async def test_a_key_that_none_is_spelt_like_is_named(storage, sql, schema):
    sql(f"UPDATE {schema}.gnl_rows SET key = 'not a key'")
    with pytest.raises(StoreCorruptError, match="not a key"):
        await storage.runs.scan(())


async def test_a_schema_of_a_newer_release_is_refused_also_when_it_comes_while_one_works(
    postgres_dsn, storage, sql, schema
):
    sql(f"UPDATE {schema}.gnl_meta SET schema_version = 99")
    async with PostgresStorage(postgres_dsn, schema=schema) as fresh:
        for one in (fresh, storage):
            for call in (lambda one=one: apply(one, Put(("b",), 1)), lambda one=one: one.runs.scan(())):
                with pytest.raises(JournalFormatError, match="schema 99, this release knows 1"):
                    await call()
    assert sql(f"SELECT count(*) FROM {schema}.gnl_rows") == [(1,)]


async def test_a_store_that_was_replaced_is_noticed_before_anything_is_written(postgres_dsn, storage, sql, schema):
    sql(f"DROP SCHEMA {schema} CASCADE")
    with pytest.raises(StoreUnavailableError, match="tables are gone"):
        await apply(storage, Put(("b",), 1))
    async with PostgresStorage(postgres_dsn, schema=schema) as other:
        await apply(other, Create(("theirs",), 1))
        for call in (
            lambda: apply(storage, Put(("b",), 1)),
            lambda: storage.runs.get_many([("theirs",)]),
            lambda: storage.runs.scan(()),
            storage.runs.now,
            lambda: storage.runs.delete_prefix(("theirs",)),
        ):
            with pytest.raises(StoreUnavailableError, match="replaced by another store"):
                await call()
        assert [entry.key async for entry in scan_all(other.runs, ())] == [("theirs",)]


async def test_an_emptied_store_is_corrupt(postgres_dsn, storage, sql, schema):
    sql(f"DELETE FROM {schema}.gnl_meta")
    with pytest.raises(StoreUnavailableError):
        await storage.runs.now()
    async with PostgresStorage(postgres_dsn, schema=schema) as fresh:
        with pytest.raises(StoreCorruptError, match="gnl_meta"):
            await fresh.runs.now()


async def test_two_schemas_and_two_tenants_with_one_id_never_meet(postgres_dsn, new_schema, storage):
    async with PostgresStorage(postgres_dsn, schema=new_schema()) as other:
        assert other.runs.store_id != storage.runs.store_id
        journals = [storage.runs, storage.runs.scoped("one"), storage.runs.scoped("two"), other.runs]
        for number, journal in enumerate(journals):
            await journal.apply([Put(("run", "r"), number, bytes([number]))], batch=7)
        for number, journal in enumerate(journals):
            (entry,) = (await journal.get_many([("run", "r")])).entries
            assert (entry.value, entry.blob) == (number, bytes([number]))
            assert [each.value for each in (await journal.scan(("run",), newer_than=0)).entries] == [number]
        assert await journals[1].delete_prefix(("run",)) == 1
        assert [(await journal.get_many([("run", "r")])).entries[0] is None for journal in journals] == [
            False,
            True,
            False,
            False,
        ]
        assert await storage.runs.scopes() == ["", "two"]


async def test_a_query_that_the_server_cancels_did_nothing(postgres_dsn, schema, storage, sql):
    async with PostgresStorage(
        psycopg.conninfo.make_conninfo(postgres_dsn, options="-c statement_timeout=50"), schema=schema
    ) as hurried:
        await hurried.runs.now()
        with psycopg.connect(postgres_dsn) as other:
            other.execute(f"SELECT 1 FROM {schema}.gnl_rows FOR UPDATE")
            with pytest.raises(StoreBusyError):
                await apply(hurried, Put(("a",), 2))
        assert await value(hurried, "a") == {"n": 1}
        assert isinstance(await apply(hurried, Put(("a",), 2)), Applied)


@pytest.mark.parametrize(
    ("state", "error"),
    [
        ("XX001", StoreCorruptError),
        ("XX002", StoreCorruptError),
        ("XX000", StoreUnavailableError),  # said of tables that are altered, too: asked again, not taken for damage
        ("P0001", StoreUnavailableError),
        ("55P03", StoreBusyError),
    ],
)
async def test_what_the_server_says_keeps_its_state(storage, sql, schema, state, error):
    sql(
        f"CREATE FUNCTION {schema}.refuse() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$BEGIN RAISE EXCEPTION 'the reason' USING ERRCODE = '{state}'; END$$"
    )
    sql(f"CREATE TRIGGER refuse BEFORE UPDATE ON {schema}.gnl_rows EXECUTE FUNCTION {schema}.refuse()")
    with pytest.raises(error, match="the reason") as caught:
        await apply(storage, Put(("a",), 2))
    assert caught.value.detail["sqlstate"] == state
    assert await value(storage, "a") == {"n": 1}
    sql(f"DROP TRIGGER refuse ON {schema}.gnl_rows")
    assert isinstance(await apply(storage, Put(("a",), 2)), Applied)


async def test_a_report_says_what_the_servers_settings_mean(new_cluster, schema):
    cluster = new_cluster().start(fsync="off", full_page_writes="off")
    async with PostgresStorage(cluster.dsn, schema=schema) as storage:
        report = {finding.setting: finding for finding in await storage.durability_report()}
    assert {name: report[name].level for name in ("fsync", "full_page_writes", "in_recovery")} == {
        "fsync": "fault",
        "full_page_writes": "fault",
        "in_recovery": "ok",
    }
    assert (report["synchronous_commit"].level, report["synchronous_standby_names"].level) == ("ok", "note")
    assert report["server_version"].value[:2].isdigit()
    cluster.stop()
    cluster.start(synchronous_commit="remote_write", synchronous_standby_names="s1")
    async with PostgresStorage(
        psycopg.conninfo.make_conninfo(cluster.dsn, options="-c synchronous_commit=local"), schema=schema
    ) as storage:
        report = {finding.setting: finding for finding in await storage.durability_report()}
    assert (report["fsync"].level, report["synchronous_standby_names"].level) == ("ok", "ok")
    assert report["synchronous_commit"].level == "fault"
    assert "failover" in report["synchronous_commit"].meaning
    cluster.close()
