"""What names a store: files and URLs, those that are none, and that no password is ever shown."""

import asyncio
import re
import sys

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from gnl_core import PostgresStorage, RedisStorage, SqliteStorage, keys, open_storage
from gnl_core.errors import ConfigError, MissingExtraError, StoreUnavailableError
from gnl_core.journal import Put, new_batch
from gnl_core.opening import read_place

SECRET = "Gxe4me7"
READING = [["runs", "list"], ["runs", "count"], ["runs", "show", "r"], ["approvals", "list"], ["claims", "list"]]
READING += [["incidents"], ["doctor"], ["purge", "run", "r"], ["sweep", "runs", "--older-than", "1d"]]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("runs.db", "sqlite"),
        ("./a:b/c d", "sqlite"),
        ("./a:b@c", "sqlite"),
        ("a@b:c", "sqlite"),
        ("ünïcode", "sqlite"),
        ("postgresql://u:p%40w@h:5/d?sslmode=require", "postgres"),
        ("postgres:///d", "postgres"),
        ("postgresql://u:a#b@h1:1,h2:2/d", "postgres"),
        ("redis://:p%2Fw@h:6379/1", "redis"),
        ("rediss://h", "redis"),
        ("unix:///run/redis.sock?db=2", "redis"),
    ],
)
def test_a_text_names_a_file_or_a_server(text, kind):
    assert read_place(text).kind == kind


def test_each_kind_is_opened_with_its_own_options(tmp_path):
    with open_storage(tmp_path / "runs.db") as storage:
        assert isinstance(storage, SqliteStorage)
    with open_storage("postgresql://localhost/none", schema="s") as storage:
        assert isinstance(storage, PostgresStorage)
    with open_storage("redis://localhost", prefix="p", accept_async_replication=True) as storage:
        assert isinstance(storage, RedisStorage)
    with pytest.raises(ConfigError, match="accept_async_replication"):
        open_storage("redis://localhost")
    for place, option in (
        ("runs.db", {"schema": "s"}),
        ("redis://h", {"schema": "s"}),
        ("postgres://h", {"prefix": "p"}),
    ):
        with pytest.raises(ConfigError, match=f"a {next(iter(option))} is a"):
            open_storage(place, **option)


HOSTILE = [
    "",
    " ",
    "a\0b",
    "x" * 5_000,
    "/" + "x" * 300,
    "a b ; rm -rf",
    "file:///tmp/x",
    "file:x?mode=rwc",
    "http://u:%s@h/",
    "mysql+driver://u:%s@h/d",
    "PostgreSQL://u:%s@h/d",
    " postgresql://u:%s@h/d",
    '"postgresql://u:%s@h/d"',
    "postgresql:/u:%s@h/d",
    "redis:u:%s@h",
    "host=h password=%s",
    "u:%s@h/d",
    "u:a/%s@h:5432/d",
    "//u:%s@h/d",
    ":%s@h:6379",
    "postgresql://u:a@%s@h/d",
    "postgresql://u:a/%s@h/d",
    "postgresql://u:a?%s@h/d",
    "postgresql://u:%s@h/d;drop table x",
    "postgresql://u:%s@h/d?schema=s",
    "postgresql://u:%s@h/d?nonsense=1",
    "postgresql://u:%s@[h/d",
    "postgresql://u:%%zz%s@h/d",
    "postgresql://u:%s@h/d\0",
    "redis://:a@%s@h",
    "redis://:a/%s@h",
    "redis://:a?%s@h",
    "redis://:a#%s@h",
    "redis://:%s@h:port",
    "redis://:%s@h:99999",
    "redis://:%s@[h",
    "redis://:%s@h?nonsense=1",
    "redis://:%s@h?socket_timeout=%s",
    "redis://:%s@h?retry=1",
    "redis://:%s@h\x1b[2J",
    "unix://",
    "redis://" + "x" * 5_000,
]


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: repr(text)[:40])
@pytest.mark.parametrize("command", [["runs", "list", "--json"], ["doctor"]], ids=["list", "doctor"])
def test_a_hostile_text_is_a_usage_error_that_shows_no_password(gnl, tmp_path, monkeypatch, text, command):
    monkeypatch.chdir(tmp_path)
    ended = gnl(*command, "--db", text.replace("%s", SECRET))
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("gnl: ")
    assert "Traceback" not in ended.err
    assert SECRET not in ended.err
    assert not set(ended.err) & set("\0\x1b")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", [None, 5, ["runs.db"], "\ud800", "redis://:\ud800@h", "postgresql://\udc80\ud800@h"])
def test_what_is_no_text_at_all_names_no_store(place):
    with pytest.raises(ConfigError, match="a store is named by"):
        read_place(place)


def test_schemas_and_prefixes_that_are_none_are_usage_errors(gnl):
    for place, *option in (
        ("postgresql://h/d", "--schema", 'x"; drop'),
        ("postgresql://h/d", "--schema", ""),
        ("redis://h", "--prefix", "{a}"),
        ("runs.db", "--schema", "s"),
        ("postgresql://h/d", "--prefix", "p"),
    ):
        ended = gnl("runs", "list", "--db", place, *option)
        assert (ended.code, ended.out, "Traceback" in ended.err) == (2, "", False)


@pytest.mark.parametrize("place", ["postgresql://u:%s@127.0.0.1:1/d", "redis://u:%s@127.0.0.1:1"])
@pytest.mark.parametrize("command", READING, ids=" ".join)
def test_a_server_that_is_away_is_told_without_the_password(gnl, command, place):
    ended = gnl(*command, "--db", place % SECRET, "--json")
    assert (ended.code, ended.out) == (2, "")
    assert "127.0.0.1" in ended.err
    assert "cannot be reached" in ended.err
    assert SECRET not in ended.err
    assert "Traceback" not in ended.err


def test_a_password_that_works_is_in_no_output(gnl, rows, new_redis):
    server = new_redis("--requirepass", SECRET, tcp=True)
    url = server.url.replace("://", f"://:{SECRET}@")
    with open_storage(url, accept_async_replication=True) as storage:
        assert storage.runs.store_id
    told = [gnl(*command, *extra, "--db", url) for command in READING for extra in ([], ["--json"])]
    told.append(gnl("runs", "list", "--db", server.url.replace("://", "://:wrong@")))
    assert {ended.code for ended in told} == {0, 2}
    assert not [
        ended for ended in told if SECRET in ended.out + ended.err or "wrong" in ended.err.replace("wrong user", "")
    ]


def test_a_missing_driver_names_the_command_that_brings_it(monkeypatch):
    for name in [name for name in sys.modules if name.startswith(("gnl_core.journal.postgres_", "psycopg"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.setitem(sys.modules, "redis.asyncio.connection", None)
    for place, extra in (("postgresql://h/d", "postgres"), ("redis://h", "redis")):
        with pytest.raises(MissingExtraError, match=re.escape(f"pip install 'gnl-semantic[{extra}]'")):
            open_storage(place, accept_async_replication=True)


# Where there is no journal -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [*READING, ["purge", "run", "r", "--yes"], ["runs", "cancel", "r", "--actor", "a"]])
def test_a_server_without_a_journal_is_told_and_left_alone(gnl, server, command):
    ended = gnl(*command, *server.db)
    assert (ended.code, ended.out) == (2, "")
    assert "holds no journal" in ended.err
    with pytest.raises(StoreUnavailableError, match="holds no journal"), server.open(read_only=True) as storage:
        assert storage.runs.store_id
    assert "holds no journal" in gnl("runs", "list", *server.db).err  # so nothing was made by looking


def test_a_schema_of_somebody_elses_tables_is_no_journal(gnl, postgres_dsn, new_schema):
    schema = new_schema()
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute(f'CREATE SCHEMA "{schema}"')
        connection.execute(f'CREATE TABLE "{schema}".t (x int)')
        assert "holds no journal" in gnl("doctor", "--db", postgres_dsn, "--schema", schema).err
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (schema,)).fetchall()
    assert tables == [("t",)]


# Reading writes nothing ----------------------------------------------------------------------------------------------


def test_commands_that_read_write_nothing(gnl, shelf):
    question = {"kind": "confirm", "reason": "w", "at": 1}
    shelf.write(
        *shelf.head("r", status="suspended"),
        shelf.call("r", "s0p0", status="suspended", question=question),
        *shelf.head("killed", status="running"),
        shelf.dead_lock("killed"),
    )
    before = shelf.rows_and_versions()
    assert len(before) > 4
    for command in (*READING, ["purge", "person", "p"], ["sweep", "threads", "--older-than", "1d"]):
        assert gnl(*command, *shelf.db).code in (0, 1)
    assert shelf.rows_and_versions() == before


async def test_a_store_that_was_opened_for_reading_takes_no_write(shelf):
    async with shelf.open() as storage:
        await storage.runs.apply([Put(keys.head("r"), {"f": 1})], batch=new_batch())
    async with shelf.open(read_only=True) as storage:
        with pytest.raises(StoreUnavailableError):
            await storage.runs.apply([Put(keys.head("r"), {"f": 2})], batch=new_batch())
        with pytest.raises(StoreUnavailableError):
            await storage.runs.delete_prefix(("run",))
        (entry,) = (await storage.runs.get_many([keys.head("r")])).entries
        assert entry.value == {"f": 1}


def test_a_role_that_may_only_select_reads_everything(gnl, rows, postgres_dsn, new_schema):
    schema = new_schema()
    role = f"reader_{schema}"
    with open_storage(postgres_dsn, schema=schema) as storage, psycopg.connect(postgres_dsn, autocommit=True) as admin:
        asyncio.run(storage.runs.apply(rows.head("r"), batch=new_batch()))
        admin.execute(f"CREATE ROLE {role} LOGIN")
        admin.execute(f"GRANT USAGE ON SCHEMA {schema} TO {role}")
        admin.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role}")
        try:
            given = conninfo_to_dict(postgres_dsn)
            place = f"postgresql://{role}@/{given['dbname']}?host={given['host']}&port={given.get('port', 5432)}"
            for command in READING:
                assert gnl(*command, "--db", place, "--schema", schema).code == 0
            refused = gnl("purge", "run", "r", "--yes", "--db", place, "--schema", schema)
            assert (refused.code, "the role may not do this" in refused.err) == (2, True)
        finally:
            admin.execute(f"DROP OWNED BY {role}")
            admin.execute(f"DROP ROLE {role}")
