"""The program beside real workers on a PostgreSQL and a Redis server: whole stories, and looks while others work."""

import contextlib
import json
import platform
import signal
import subprocess
import sys

import psycopg
import pytest
import redis

from gnl_core import keys
from gnl_core.doctor_store import examine_store
from gnl_core.journal import Put
from gnl_core.journal.postgres import PostgresStorage

WORKER = '''
import asyncio, json, os, sys
from pathlib import Path
from gnl_core import open_storage, run_durable_sync, tool, with_idempotency
from gnl_core.testing.scripted import ScriptedModel

HERE = Path(__file__).parent

@tool(confirm=True)
def ship(to: str) -> str:
    """Ship."""
    with (HERE / "effects").open("a") as file:
        file.write(f"ship {to}\\n")
    return "on its way"

@tool(side_effect=False)
def wait(name: str) -> str:
    """Wait to be told to go on."""
    print(f"in {name}", flush=True)
    return sys.stdin.readline()

@tool(idempotency_key=lambda args: args["order"], window="cross-run", side_effect=True)
def pay(order: str) -> str:
    """Pay, and be killed."""
    os.kill(os.getpid(), 9)

def agent():
    return {"model": ScriptedModel([[("ship", {"to": "Ayse"})], "all done"]), "tools": [ship]}

def waiting():
    return {"model": ScriptedModel([[("wait", {"name": "it"})], "all done"]), "tools": [wait]}

if __name__ == "__main__":
    place, options, run, work = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3], globals()[sys.argv[4]]
    with open_storage(place, accept_async_replication=True, **options) as storage:
        if work is pay:
            asyncio.run(with_idempotency(pay, storage.runs)(order=run))
        result = run_durable_sync(run_id=run, journal=storage.runs, prompt="go", resource_id="ann", **work())
    print(result.finish_reason, flush=True)
'''


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Start workers in processes of their own; `shop` is importable here too."""
    (tmp_path / "shop.py").write_text(WORKER)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "shop", raising=False)
    with contextlib.ExitStack() as started:

        def worker(book, run, work="agent"):
            arguments = [tmp_path / "shop.py", book.path, json.dumps(book.options), run, work]
            return started.enter_context(
                subprocess.Popen(
                    [sys.executable, *map(str, arguments)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
                )
            )

        yield worker


def test_a_run_waits_is_approved_goes_on_is_examined_and_erased(gnl, shelf, start, tmp_path):
    worker = start(shelf, "order")
    assert worker.communicate(timeout=60)[0] == "suspended\n"

    (question,) = gnl("approvals", "list", "--json", *shelf.db).json
    assert question["question"] == "order/s0p0/confirm/0"
    looked = gnl("doctor", "--json", *shelf.db)
    assert (looked.code, looked.json["faults"], looked.json["waits"]) == (1, 0, 1)
    assert gnl("approvals", "approve", question["question"], "--actor", "bob", *shelf.db).code == 0
    assert not (tmp_path / "effects").exists()
    resumed = gnl("runs", "resume", "order", "--agent", "shop:agent", *shelf.db)
    assert (resumed.code, resumed.out) == (0, "all done\n")
    assert (tmp_path / "effects").read_text() == "ship Ayse\n"

    (run,) = gnl("runs", "list", "--json", *shelf.db).json["runs"]
    assert (run["run_id"], run["status"]) == ("order", "completed")
    assert "answered order/s0p0/confirm/0: approved by bob" in gnl("runs", "show", "order", *shelf.db).out
    looked = gnl("doctor", *shelf.db)
    assert (looked.code, looked.err) == (0, "0 faults, 0 things that wait\n")
    assert gnl("sweep", "runs", "--older-than", "1d", "--json", *shelf.db).json["purged"] == 0

    would = gnl("purge", "person", "ann", "--json", *shelf.db).json
    done = gnl("purge", "person", "ann", "--json", "--yes", *shelf.db).json
    assert (done["rows"], done["runs"]) == (would["rows"], 1)
    assert gnl("runs", "list", "--json", *shelf.db).json["runs"] == []
    assert gnl("doctor", *shelf.db).code == 0


def test_keyed_work_in_doubt_is_listed_and_settled(gnl, server, start):
    for order in ("o-1", "o-2"):
        assert start(server, order, "pay").wait(60) == -signal.SIGKILL
    first, second = gnl("claims", "list", "--json", *server.db).json
    assert [claim["args"] for claim in (first, second)] == [{"order": "o-1"}, {"order": "o-2"}]
    assert gnl("claims", "settle", first["key"], "--result", '"paid"', *server.db).code == 0
    assert gnl("claims", "release", second["key"], *server.db).code == 0
    assert gnl("claims", "list", "--json", *server.db).json == []
    assert gnl("incidents", *server.db) == (0, "", "no incidents\n")


@pytest.fixture
def working(server, start):
    """Two workers in the midst of a call each."""
    server.write()
    workers = [start(server, run, "waiting") for run in ("one", "two")]
    for worker in workers:
        assert worker.stdout.readline() == "in it\n"
    yield server
    for worker in workers:
        said, _ = worker.communicate("go on\n", timeout=60)
        assert said == "stop\n"


def test_runs_that_others_drive_are_shown_live_and_no_lock_is_taken(gnl, working):
    def listed():
        ended = gnl("runs", "list", "--json", *working.db)
        return ended.code, sorted((run["run_id"], run["status"]) for run in ended.json["runs"])

    alive = (0, [("one", "running"), ("two", "running")])
    before = working.rows_and_versions()
    assert listed() == alive
    assert working.rows_and_versions() == before
    assert gnl("doctor", *working.db).code == 0
    refused = gnl("purge", "run", "one", "--yes", *working.db)
    assert (refused.code, "being driven" in refused.err) == (2, True)
    if working.kind == "postgres":
        with psycopg.connect(working.path) as other:
            for table in ("gnl_rows", "gnl_meta", "gnl_scopes"):
                # All but plain reads would wait for this for ever.
                other.execute(f'LOCK TABLE "{working.options["schema"]}".{table} IN EXCLUSIVE MODE')
            assert listed() == alive


# What the doctor says of servers -------------------------------------------------------------------------------------


def test_the_doctor_tells_settings_versions_and_clocks(gnl, shelf):
    shelf.write(*shelf.head("r"))
    looked = gnl("doctor", "--json", *shelf.db)
    found = {finding["check"]: finding for finding in looked.json["findings"]}
    assert found["store.schema"]["text"].endswith("schema 1")
    driver = {"sqlite": "SQLite 3.", "postgres": "psycopg 3.", "redis": "redis-py "}[shelf.kind]
    assert f"Python {platform.python_version()}, {driver}" in found["store.versions"]["text"]
    assert found["store.clock"]["level"] == "ok"
    assert found["rows.formats"]["text"] == "records: 1 of format 1; this release writes 1"
    assert found["rows.values"]["text"].startswith("nothing wrong in 2 rows")
    asked = {
        "sqlite": {"file.durability", "file.wal"},
        "postgres": {"server.fsync", "server.server-version", "server.synchronous-commit"},
        "redis": {"server.appendfsync", "server.server-version", "server.role"},
    }
    assert asked[shelf.kind] <= found.keys()


def test_a_setting_that_may_lose_writes_is_a_fault(gnl, new_redis):
    server = new_redis("--appendfsync", "no")
    assert gnl("doctor", "--db", server.url).code == 2  # no journal yet
    server.ask("HSET", "{gnl}:store", "store_id", "s", "schema", "1", "sequence", "0", "clock", "0")
    looked = gnl("doctor", "--db", server.url)
    assert looked.code == 1
    assert "FAULT  server.appendfsync: appendfsync is no. A power cut loses" in looked.out
    server.ask("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    looked = gnl("doctor", "--db", server.url)
    assert looked.code == 1
    assert "FAULT  server.maxmemory-policy" in looked.out
    assert "FAULT  store.schema" in looked.out


def test_a_newer_schema_is_told(gnl, server, postgres_dsn, redis_url):
    server.write(*server.head("r"))
    if server.kind == "postgres":
        with psycopg.connect(postgres_dsn, autocommit=True) as connection:
            connection.execute(f'UPDATE "{server.options["schema"]}".gnl_meta SET schema_version = 99')
    else:
        with redis.Redis.from_url(redis_url) as client:
            client.hset(f"{{{server.options['prefix']}}}:store", "schema", "99")
    looked = gnl("doctor", *server.db)
    assert (looked.code, "FAULT  store.schema" in looked.out, "update gnl-semantic" in looked.out) == (1, True, True)
    assert gnl("runs", "list", *server.db).code == 2


async def test_clocks_that_are_apart_are_told(postgres_dsn, new_schema):
    async with PostgresStorage(postgres_dsn, schema=new_schema()) as storage:
        now = await storage.runs.now()
        for seconds, level in ((0, "ok"), (4, "ok"), (-4, "ok"), (60, "note"), (-60, "note")):
            findings, usable = await examine_store(storage, clock=lambda s=seconds: now / 1000 + s)
            (clock,) = [finding for finding in findings if finding.check == "store.clock"]
            assert (clock.level, usable) == (level, True)
            assert ("behind" if seconds > 4 else "clock") in clock.text


BAD = ("run/r07/~/head", "run/r23/~/head")
NEWER = "run/r31/~/head"


def spoil(book):
    """Write into a store's own tables what no release writes: two values that are no JSON, and a row of a newer one."""
    if book.kind == "postgres":
        table = f'"{book.options["schema"]}".gnl_rows'
        with psycopg.connect(book.path, autocommit=True) as connection:
            connection.execute(f"UPDATE {table} SET value = '[' WHERE key = ANY(%s)", (list(BAD),))
            connection.execute(f"UPDATE {table} SET format = 9 WHERE key = %s", (NEWER,))
        return
    keys_of = f"{{{book.options['prefix']}}}:%s:"
    with redis.Redis.from_url(book.path) as client:
        for name in BAD:
            client.hset(keys_of % "values", name, "[")
        stamp = client.hget(keys_of % "stamps", NEWER)
        client.hset(keys_of % "stamps", NEWER, b"9" + stamp[1:])


def test_rows_that_cannot_be_read_are_named_and_the_rest_is_looked_at(gnl, server):
    server.write(*[op for number in range(40) for op in server.head(f"r{number:02}")], Put(keys.head("odd"), {"f": 1}))
    spoil(server)
    looked = gnl("doctor", "--json", *server.db)
    assert looked.code == 1
    found = [finding for finding in looked.json["findings"] if finding["key"].startswith("run/")]
    restore = "restore the row from a copy of the journal"
    assert {(finding["check"], finding["key"], finding["advice"]) for finding in found} == {
        *(("rows.values", key, restore) for key in (*BAD, "run/odd/~/head")),
        ("rows.values", NEWER, "update gnl-semantic"),
    }


def misspell(book, *names):
    """Write rows under keys that no release spells, past the checks of a journal."""
    if book.kind == "postgres":
        with psycopg.connect(book.path, autocommit=True) as connection:
            for name in names:
                table = f'"{book.options["schema"]}".gnl_rows'
                connection.execute(f"INSERT INTO {table} VALUES (0, %s, 1, 1, 1, 1, 1, 0, %s)", (name, "{}"))
        return
    keys_of = f"{{{book.options['prefix']}}}:%s:"
    with redis.Redis.from_url(book.path) as client:
        for name in names:
            client.zadd(keys_of % "names", {name: 0})
            client.hset(keys_of % "stamps", name, "1 0 1 1 1 1")
            client.hset(keys_of % "values", name, "{}")


@pytest.mark.parametrize(
    ("misspelt", "between"),
    [(("run/r05//head",), ""), (("run/r05//head", "run/r07/%2f"), "rows between it and 'run/r07/%2f'")],
)
def test_a_misspelt_key_hides_no_row_before_or_behind_it(gnl, server, misspelt, between):
    bad = [Put(keys.head(run), {"f": 1}) for run in ("r01", "r09")]
    server.write(*[op for number in range(3, 9) for op in server.head(f"r{number:02}")], *bad)
    misspell(server, *misspelt)
    looked = gnl("doctor", "--json", *server.db)
    assert looked.code == 1
    found = [finding for finding in looked.json["findings"] if finding["key"].startswith("run/")]
    assert sorted((finding["check"], finding["key"]) for finding in found) == sorted(
        [
            *(("rows.keys", name) for name in misspelt),
            ("rows.values", "run/r01/~/head"),
            ("rows.values", "run/r09/~/head"),
        ]
    )
    (first,) = [finding for finding in found if finding["key"] == misspelt[0]]
    assert first["advice"] == "no release wrote it: delete it"
    assert between in first["text"]
    assert ("not looked at" in first["text"]) is bool(between)


def test_what_a_misspelt_key_hides_is_said(gnl, server):
    server.write(Put(keys.swept("gone"), {"f": 1, "at": 1, "prompt": "words"}))
    misspell(server, "swept//x", "xrun/args//x")
    looked = gnl("doctor", *server.db)
    assert looked.code == 1
    for check in ("claims.open", "erasure.leftovers"):
        assert f"note   {check}: not looked for to the end: the row " in looked.out
