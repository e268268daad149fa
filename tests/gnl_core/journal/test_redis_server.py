"""A server that refuses, breaks off, hangs, dies and comes back."""

import asyncio
import logging
import socket
import sys
import time

import pytest
import redis

from gnl_core.errors import (
    ConfigError,
    MissingExtraError,
    StoreBusyError,
    StoreCorruptError,
    StoreUnavailableError,
    StoreUnknownError,
)
from gnl_core.journal.port import Applied, Create, Delete, Put, Refused, new_batch
from gnl_core.journal.redis import RedisStorage
from gnl_core.journal.redis_errors import code_of, refusal


def open_storage(server, **options):
    return RedisStorage(getattr(server, "url", server), accept_async_replication=True, **options)


@pytest.fixture
def admin():
    """Talk to a server beside the store."""
    clients = []

    def connect(server):
        clients.append(redis.Redis.from_url(server.url))
        return clients[-1]

    yield connect
    for client in clients:
        client.close()


async def value(storage, *key):
    (entry,) = (await storage.runs.get_many([key])).entries
    return entry and entry.value


# Settings ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
async def test_a_server_that_drops_keys_is_refused_with_its_reason(new_redis, policy):
    async with open_storage(new_redis("--maxmemory-policy", policy)) as storage:
        with pytest.raises(ConfigError, match=f"{policy}.*dropped claim lets an effect happen twice"):
            await storage.runs.apply([Create(("a",), 1)], batch=new_batch())
        findings = {finding.setting: finding for finding in await storage.durability_report()}
        assert (findings["maxmemory-policy"].value, findings["maxmemory-policy"].level) == (policy, "fault")


async def test_a_server_that_does_not_tell_its_settings_is_used_with_a_warning(new_redis, admin, caplog):
    server = new_redis()
    admin(server).acl_setuser("runs", enabled=True, nopass=True, keys=["*"], commands=["+@all", "-config", "-info"])
    url = server.url.replace("unix://", "unix://runs:any@")
    async with open_storage(url) as storage:
        with caplog.at_level(logging.WARNING):
            await storage.runs.apply([Create(("a",), 1)], batch=new_batch())
            await storage.runs.apply([Create(("b",), 1)], batch=new_batch())
        assert [record.message for record in caplog.records if "CONFIG GET" in record.message] == [
            caplog.records[0].message
        ]
        assert "noeviction" in caplog.text
        assert storage.runs.capabilities == {"ordered", "blobs"}, "what is not known is not promised"
        findings = await storage.durability_report()
        assert {finding.setting for finding in findings} == {
            "server_version",
            "maxmemory-policy",
            "appendonly",
            "appendfsync",
            "role",
        }
        assert {finding.level for finding in findings} == {"note"}


@pytest.mark.parametrize(
    ("options", "durable", "levels"),
    [
        (
            (),
            True,
            {"appendonly": "ok", "appendfsync": "ok", "maxmemory-policy": "ok", "role": "ok", "replicas": "note"},
        ),
        (("--appendfsync", "everysec"), False, {"appendonly": "ok", "appendfsync": "fault"}),
        (("--appendfsync", "no"), False, {"appendfsync": "fault"}),
        (("--appendonly", "no"), False, {"appendonly": "fault", "appendfsync": "note"}),
    ],
)
async def test_the_report_says_what_each_setting_means(new_redis, options, durable, levels):
    async with open_storage(new_redis(*options)) as storage:
        findings = await storage.durability_report()
        found = {finding.setting: finding.level for finding in findings}
        assert levels.items() <= found.items()
        assert all(finding.meaning.endswith(".") for finding in findings)
        assert [finding.to_json()["setting"] for finding in findings] == list(found)
        assert ("durable" in storage.runs.capabilities) is durable


def test_without_the_client_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "redis.asyncio.connection", None)
    with pytest.raises(MissingExtraError, match=r"gnl-semantic\[redis\]"):
        open_storage("redis://localhost")


# Refusals of the server ----------------------------------------------------------------------------------------------


async def test_a_full_memory_refuses_writes_whole_and_lets_rows_be_deleted(new_redis, admin):
    server = new_redis()
    async with open_storage(server) as storage:
        rows = [Put(("old",), 1, b"x" * 1000), Put(("lock",), 1), Put(("other",), 1)]
        await storage.runs.apply(rows, batch=new_batch())
        admin(server).config_set("maxmemory", "1")
        with pytest.raises(StoreUnavailableError, match="out of memory"):
            await storage.runs.apply([Put(("old",), 2), Create(("new",), 1)], batch=new_batch())
        assert await value(storage, "old") == 1
        assert await value(storage, "new") is None
        assert await storage.runs.delete_prefix(("old",)) == 1
        version = (await storage.runs.get_many([("lock",)])).entries[0].version
        gone = [Delete(("lock",), version), Delete(("other",)), Delete(("never",))]
        applied = await storage.runs.apply(gone, batch=new_batch())
        assert applied.version > version
        assert await value(storage, "lock") is None
        assert await value(storage, "other") is None
        assert isinstance(await storage.runs.apply([Delete(("lock",), version)], batch=new_batch()), Refused)
        admin(server).config_set("maxmemory", "0")
        assert isinstance(await storage.runs.apply([Create(("new",), 1)], batch=new_batch()), Applied)


async def test_a_replica_refuses_writes(new_redis, admin):
    primary = new_redis("--repl-diskless-sync-delay", "0", tcp=True)
    async with open_storage(primary) as storage:
        await storage.runs.apply([Create(("a",), 1)], batch=new_batch())
    replica = new_redis("--replicaof", f"127.0.0.1 {primary.port}")
    for _ in range(1000):
        if admin(replica).info("replication")["master_link_status"] == "up":
            break
        await asyncio.sleep(0.01)
    async with open_storage(replica) as storage:
        assert await value(storage, "a") == 1
        with pytest.raises(StoreUnavailableError, match="is a replica, which takes no writes: nothing was written"):
            await storage.runs.apply([Create(("b",), 1)], batch=new_batch())
        findings = {finding.setting: finding.level for finding in await storage.durability_report()}
        assert findings["role"] == "fault"


async def test_too_few_replicas_for_the_server_refuse_writes_whole(new_redis, admin):
    server = new_redis()
    async with open_storage(server) as storage:
        await storage.runs.apply([Create(("a",), 1)], batch=new_batch())
        admin(server).config_set("min-replicas-to-write", "1")
        with pytest.raises(StoreUnavailableError, match="min-replicas-to-write"):
            await storage.runs.apply([Put(("a",), 2), Create(("b",), 1)], batch=new_batch())
        assert await value(storage, "a") == 1


async def test_a_wrong_password_is_told_as_one(new_redis):
    server = new_redis("--requirepass", "right")
    async with open_storage(server.url.replace("unix://", "unix://:wrong@")) as storage:
        with pytest.raises(StoreUnavailableError, match="another user name or password"):
            await storage.runs.now()
    async with open_storage(server) as storage:
        with pytest.raises(StoreUnavailableError, match="another user name or password"):
            await storage.runs.now()


async def test_a_user_without_scripts_is_told_so(new_redis, admin):
    server = new_redis()
    admin(server).acl_setuser("runs", enabled=True, nopass=True, keys=["*"], commands=["+@all", "-@scripting"])
    async with open_storage(server.url.replace("unix://", "unix://runs:any@")) as storage:
        with pytest.raises(StoreUnavailableError, match="does not allow this user"):
            await storage.runs.now()


async def test_a_server_with_too_many_clients_is_told_so(new_redis, admin):
    server = new_redis("--maxclients", "1")
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(str(server.socket))
        line.sendall(b"PING\r\n")
        assert line.recv(100) == b"+PONG\r\n"
        async with open_storage(server) as storage:
            with pytest.raises(StoreUnavailableError, match=r"maxclients|cannot be reached"):
                await storage.runs.now()


def until(condition):
    while not condition():
        time.sleep(0.001)


async def test_a_script_that_does_not_end_makes_the_store_busy(new_redis, admin):
    server = new_redis("--busy-reply-threshold", "1")
    async with open_storage(server) as storage:
        await storage.runs.apply([Create(("a",), 1)], batch=new_batch())
        client = admin(server)
        endless = asyncio.create_task(asyncio.to_thread(lambda: client.eval("while true do end", 0)))
        await asyncio.to_thread(until, lambda: server.ask("PING").startswith("-BUSY"))
        with pytest.raises(StoreBusyError, match="SCRIPT KILL"):
            await storage.runs.apply([Put(("a",), 2)], batch=new_batch())
        server.ask("SCRIPT", "KILL")
        with pytest.raises(redis.ResponseError):
            await endless
        assert await value(storage, "a") == 1


# Lost connections ----------------------------------------------------------------------------------------------------


async def test_no_server_is_unavailable_and_used_once_it_is_there(new_redis):
    server = new_redis()
    server.kill()
    async with open_storage(server) as storage:
        with pytest.raises(StoreUnavailableError, match=r"cannot be reached.*nothing was written"):
            await storage.runs.apply([Create(("a",), 1)], batch=new_batch())
        server.start()
        assert isinstance(await storage.runs.apply([Create(("a",), 1)], batch=new_batch()), Applied)


async def test_s69_idle_connections_that_the_server_dropped_are_made_anew(new_redis, admin):
    server = new_redis()
    async with open_storage(server) as storage:
        for round_ in range(5):
            await asyncio.gather(
                *(storage.runs.apply([Put(("a", str(n)), round_)], batch=new_batch()) for n in range(8))
            )
            admin(server).execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        assert await value(storage, "a", "7") == 4


async def test_a_server_that_hangs_leaves_a_write_unknown_and_the_same_batch_settles_it(new_redis):
    server = new_redis()
    async with open_storage(server, timeout=0.2, connect_timeout=0.2) as storage:
        await storage.runs.apply([Create(("a",), 1)], batch=new_batch())
        server.pause()
        tag = new_batch()
        try:
            with pytest.raises(StoreUnknownError, match="may or may not be there"):
                await storage.runs.apply([Create(("b",), "mine")], batch=tag)
            with pytest.raises(StoreUnavailableError):
                await storage.runs.get_many([("a",)])
        finally:
            server.resume()
        async with open_storage(server) as patient:
            assert isinstance(await patient.runs.apply([Create(("b",), "mine")], batch=tag), Applied)
            assert await value(patient, "b") == "mine"


@pytest.mark.parametrize("done", [True, False])
async def test_an_answer_that_is_cut_off_leaves_a_write_unknown_and_the_same_batch_settles_it(
    new_redis, admin, cut, done
):
    server = new_redis()
    async with open_storage(server) as direct, open_storage(await cut(server, done=done)) as storage:
        await storage.runs.apply([Create(("b",), 1)], batch=new_batch())
        cut.armed = True
        tag = new_batch()
        with pytest.raises(StoreUnknownError):
            await storage.runs.apply([Create(("a",), "mine")], batch=tag)
        assert await value(direct, "a") == ("mine" if done else None)
        answer = await storage.runs.apply([Create(("a",), "mine")], batch=tag)
        assert isinstance(answer, Applied)
        assert (await direct.runs.get_many([("a",)])).entries[0].version == answer.version == 2


async def test_a_read_that_is_cut_off_is_asked_again(new_redis, cut):
    server = new_redis()
    async with open_storage(await cut(server, done=True)) as storage:
        await storage.runs.apply([Create(("a",), 1)], batch=new_batch())
        cut.armed = True
        assert await value(storage, "a") == 1
        assert not cut.armed


@pytest.fixture
async def cut(tmp_path):
    """A proxy before a server that, once armed, cuts the connection instead of passing one answer (or question) on."""

    class Cut:
        armed = False

        async def __call__(self, server, *, done):
            async def serve(reader, writer):
                upstream, sink = await asyncio.open_unix_connection(str(server.socket))
                back = asyncio.create_task(pass_on(upstream, writer, ends=done))
                await pass_on(reader, sink, ends=not done)
                back.cancel()
                sink.close()
                writer.close()

            async def pass_on(source, sink, *, ends):
                while data := await source.read(1 << 16):
                    if ends and self.armed:
                        self.armed = False
                        sink.transport.abort()
                        source._transport.abort()
                        return
                    sink.write(data)
                    await sink.drain()

            self.server = await asyncio.start_server(serve, "127.0.0.1", 0)
            return f"redis://127.0.0.1:{self.server.sockets[0].getsockname()[1]}"

    made = Cut()
    yield made
    made.server.close()


async def test_more_calls_than_connections_wait_and_then_say_so(new_redis):
    server = new_redis()
    async with open_storage(server, connections=2, timeout=60) as storage:
        calls = [storage.runs.apply([Put(("a", str(n)), n)], batch=new_batch()) for n in range(100)]
        assert all(isinstance(answer, Applied) for answer in await asyncio.gather(*calls))
    async with open_storage(server, connections=1, timeout=0.2, connect_timeout=0.2) as storage:
        await storage.runs.now()
        server.pause()
        try:
            calls = [storage.runs.apply([Put(("b", str(n)), n)], batch=new_batch()) for n in range(3)]
            names = {type(error).__name__ for error in await asyncio.gather(*calls, return_exceptions=True)}
        finally:
            server.resume()
        assert names <= {"StoreUnknownError", "StoreBusyError", "StoreUnavailableError"}
        assert "StoreUnknownError" in names


async def test_killed_and_started_again_a_server_that_syncs_has_all_it_acknowledged(new_redis):
    server = new_redis()
    acknowledged, progress = set(), asyncio.Event()
    async with open_storage(server) as storage:

        async def write(worker):
            for number in range(60):
                key = ("w", str(worker), str(number))
                for _ in range(2000):
                    try:
                        answer = await storage.runs.apply([Create(key, number)], batch=1000 * worker + number)
                    except StoreUnavailableError:
                        await asyncio.sleep(0.005)
                    except StoreUnknownError:
                        continue
                    else:
                        assert isinstance(answer, Applied), "its own row is nobody else's claim"
                        acknowledged.add(key)
                        progress.set()
                        break

        async def upset():
            for count in (40, 120, 200):
                while len(acknowledged) < count:
                    progress.clear()
                    await progress.wait()
                server.kill()
                await asyncio.to_thread(server.start)
                before = set(acknowledged)
                assert before <= {entry.key for entry in (await storage.runs.scan((), limit=1000)).entries}

        await asyncio.gather(upset(), *(write(worker) for worker in range(1, 6)))
        entries = (await storage.runs.scan((), limit=1000)).entries
        assert {entry.key for entry in entries} == acknowledged
        assert len(entries) == 300


async def test_a_server_that_comes_back_empty_is_not_taken_for_the_old_one(new_redis):
    server = new_redis("--appendonly", "no")
    async with open_storage(server) as storage:
        await storage.runs.apply([Create(("claim",), 1)], batch=new_batch())
        server.kill()
        server.start()
        with pytest.raises(StoreUnavailableError, match="emptied, or replaced"):
            await storage.runs.apply([Create(("claim",), 2)], batch=new_batch())
        async with open_storage(server) as other:
            assert await value(other, "claim") is None
        with pytest.raises(StoreUnavailableError, match="emptied, or replaced"):
            await storage.runs.get_many([("claim",)])


async def test_a_store_lives_in_one_slot_of_a_cluster(new_redis):
    server = new_redis("--cluster-enabled", "yes")
    server.ask("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
    await asyncio.to_thread(until, lambda: "cluster_state:ok" in server.ask("CLUSTER", "INFO"))
    async with open_storage(server) as storage:
        for journal in (storage.runs, storage.runs.scoped("org")):
            await journal.apply([Create(("p", str(n)), n, b"x") for n in range(5)], batch=new_batch())
            assert len((await journal.scan(("p",), newer_than=0, blobs=True)).entries) == 5
            assert await journal.delete_prefix(("p", "3")) == 1
        assert await storage.runs.scopes() == ["", "org"]
        slots = {server.ask("CLUSTER", "KEYSLOT", f"{{gnl}}:{name}") for name in ("store", "names:", "names:org")}
        assert len(slots) == 1
    async with open_storage(server, prefix="other") as storage:
        server.ask("CLUSTER", "DELSLOTS", server.ask("CLUSTER", "KEYSLOT", "other").removeprefix(":"))
        with pytest.raises(StoreUnavailableError, match=r"cluster that is down|not hold the store|cannot be used"):
            await storage.runs.now()


@pytest.mark.parametrize(
    ("text", "error", "code"),
    [
        ("OOM command not allowed. script: 1f, on @user_script:3.", StoreUnavailableError, "OOM"),
        ("Error running script (f_1f): @user_script:3: -OOM command not allowed", StoreUnavailableError, "OOM"),
        ("Error running script (f_1f): @user_script: 3: -READONLY You can't", StoreUnavailableError, "READONLY"),
        ("Error running script (f_1f): @user_script:9: WRONGTYPE Operation against", StoreCorruptError, "WRONGTYPE"),
        ("MISCONF Redis is configured to save RDB snapshots", StoreUnavailableError, "MISCONF"),
        ("user_script:12: Script attempted to access nonexistent global variable 'x'", StoreUnknownError, ""),
        ("Error running script (f_1f): @user_script:3: Script killed by user", StoreUnknownError, ""),
    ],
)  # fmt: skip
def test_each_servers_words_for_an_error_mean_the_same(text, error, code):
    found = refusal(redis.ResponseError(text), "here", writes=True)
    assert (type(found), code_of(redis.ResponseError(text))) == (error, code)


@pytest.mark.parametrize("schema", [None, "one"])
@pytest.mark.parametrize("access", ["make", "write", "read"])
async def test_a_head_without_a_schema_is_refused_by_every_access(new_redis, admin, access, schema):
    server = new_redis()
    async with open_storage(server) as storage:
        await storage.runs.apply([Create(("a",), 1)], batch=new_batch())
    if schema is None:
        admin(server).hdel("{gnl}:store", "schema")
    else:
        admin(server).hset("{gnl}:store", "schema", schema)
    async with open_storage(server, access=access) as storage:
        with pytest.raises(StoreCorruptError, match="names no schema"):
            await storage.runs.get_many([("a",)])
