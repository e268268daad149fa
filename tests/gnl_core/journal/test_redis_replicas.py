"""Batches that wait for replicas: the write stands whatever the replicas say."""

import asyncio
import logging

import pytest

from gnl_core import Context, RedisStorage, WaitReplicas, run_durable, tool
from gnl_core.errors import ConfigError, EffectNotRecordedError, RunBusyError, StoreUnavailableError, StoreUnknownError
from gnl_core.journal import send
from gnl_core.journal.port import Add, Applied, Create, Put, new_batch
from gnl_core.testing.effects import EffectLog
from gnl_core.testing.scripted import ScriptedModel

THROW = WaitReplicas(1, timeout_ms=50, on_timeout="throw")
PATIENT = WaitReplicas(1, timeout_ms=20_000, on_timeout="throw")


def open_storage(server, wait):
    return RedisStorage(server.url, accept_async_replication=True, wait_replicas=wait)


@pytest.fixture
def pair(new_redis):
    """A primary and its replica."""
    primary = new_redis("--repl-diskless-sync-delay", "0", tcp=True)
    return primary, new_redis("--replicaof", f"127.0.0.1 {primary.port}", "--replica-read-only", "yes")


async def value(storage, *key):
    (entry,) = (await storage.runs.get_many([key])).entries
    return entry and entry.value


async def test_without_a_replica_the_error_comes_after_the_write_and_says_that_it_stands(new_redis):
    async with open_storage(new_redis(), THROW) as storage:
        tag = new_batch()
        with pytest.raises(StoreUnknownError, match=r"is written .* not known to be replicated: 0 of 1") as thrown:
            await storage.runs.apply([Create(("claim",), "mine")], batch=tag)
        assert "stands and was not undone" in str(thrown.value)
        assert thrown.value.detail["written"] is True
        assert await value(storage, "claim") == "mine"
        with pytest.raises(StoreUnknownError):
            await storage.runs.apply([Create(("claim",), "mine")], batch=tag)
        refused = await storage.runs.apply([Create(("claim",), "other")], batch=new_batch())
        assert refused.found.value == "mine", "what was refused has nothing to wait for"
        with pytest.raises(StoreUnknownError):
            await storage.runs.delete_prefix(("claim",))
        assert await value(storage, "claim") is None


async def test_without_a_replica_a_warning_goes_on(new_redis, caplog):
    async with open_storage(new_redis(), WaitReplicas(1, timeout_ms=10)) as storage:
        with caplog.at_level(logging.WARNING):
            assert isinstance(await storage.runs.apply([Create(("a",), 1)], batch=new_batch()), Applied)
        assert "0 of 1 replicas" in caplog.text


async def test_a_replica_that_has_the_batch_acknowledges_it(pair):
    primary, replica = pair
    async with open_storage(primary, PATIENT) as storage, open_storage(replica, None) as reader:
        applied = await storage.runs.apply([Create(("a",), "x"), Add(("n",), {"n": 1})], batch=new_batch())
        assert isinstance(applied, Applied)
        assert await value(reader, "a") == "x", "it was there before the answer"
        findings = {finding.setting: finding.level for finding in await storage.durability_report()}
        assert findings["replicas"] == "note"
    async with open_storage(primary, None) as storage:
        findings = {finding.setting: finding.level for finding in await storage.durability_report()}
        assert findings["replicas"] == "fault", "nothing waits for it"


async def test_a_server_that_became_a_replica_is_left_for_the_one_that_its_address_names_now(pair):
    primary, replica = pair
    address = primary.folder / "address"
    address.symlink_to(primary.socket)
    async with open_storage(primary, PATIENT) as storage:
        await storage.runs.apply([Create(("a",), 1)], batch=new_batch())
    async with RedisStorage(f"unix://{address}", accept_async_replication=True) as storage:
        await asyncio.gather(*(storage.runs.now() for _ in range(4)))  # several connections
        replica.ask("REPLICAOF", "NO", "ONE")
        primary.ask("REPLICAOF", "127.0.0.1", "1")
        address.unlink()
        address.symlink_to(replica.socket)
        with pytest.raises(StoreUnavailableError, match="is a replica"):
            await storage.runs.apply([Put(("a",), 2)], batch=new_batch())
        assert isinstance(await storage.runs.apply([Put(("a",), 3)], batch=new_batch()), Applied)
        async with open_storage(replica, None) as there:
            assert await value(there, "a") == 3
        assert [await value(storage, "a") for _ in range(8)] == [3] * 8


async def test_a_batch_sent_again_waits_for_the_replicas_again_on_any_connection(pair):
    primary, replica = pair
    ops, tag = [Create(("a",), "mine"), Add(("n",), {"n": 1})], new_batch()
    async with open_storage(primary, PATIENT) as storage:
        await storage.runs.apply([Put(("before",), 1)], batch=new_batch())
    replica.pause()
    try:
        # A new storage has a new connection, which has written nothing itself: WAIT alone would ask for nothing.
        for _ in range(2):
            async with open_storage(primary, THROW) as storage:
                with pytest.raises(StoreUnknownError, match="0 of 1"):
                    await storage.runs.apply(ops, batch=tag)
    finally:
        replica.resume()
    async with open_storage(primary, PATIENT) as storage, open_storage(replica, None) as reader:
        again = await storage.runs.apply(ops, batch=tag)
        assert again.counters == {("n",): {"n": 1}}
        assert await value(reader, "a") == "mine"


async def test_a_server_without_wait_is_used_with_one_warning(new_redis, caplog):
    async with open_storage(new_redis("--rename-command", "WAIT", ""), THROW) as storage:
        with caplog.at_level(logging.WARNING):
            for number in range(3):
                assert isinstance(await storage.runs.apply([Create(("a", str(number)), 1)], batch=new_batch()), Applied)
        (record,) = caplog.records
        assert "cannot wait for replicas" in record.message


async def test_a_claim_that_no_replica_has_starts_no_effect_and_a_record_that_none_has_is_told(
    new_redis, monkeypatch, effects
):
    monkeypatch.setattr(send, "LONGEST_PAUSE", 0.001)
    server = new_redis()
    wait = WaitReplicas(1, timeout_ms=1, on_timeout="throw")

    @tool
    async def charge(ctx: Context, amount: int) -> dict:
        """Charge a card."""
        return effects.fire("charge", ctx, {"receipt": amount})

    def drive(storage):
        model = ScriptedModel([[("charge", {"amount": 10})], "Done."])
        return run_durable(run_id="r", journal=storage.runs, model=model, tools=[charge], prompt="Do it.")

    async with open_storage(server, wait) as storage:
        with pytest.raises(StoreUnknownError, match="not known to be replicated"):
            await drive(storage)
    assert effects.count() == 0
    async with open_storage(server, None) as storage:
        apply = storage.runs.apply

        async def once_running(ops, *, batch):
            # The replica is lost between the claim and the record.
            if any(getattr(op, "value", None) and "succeeded" in str(op.value) for op in ops):
                storage._engine.state.wait = wait
            return await apply(ops, batch=batch)

        monkeypatch.setattr(storage.runs, "apply", once_running)
        storage._engine.state.wait = None
        with pytest.raises(EffectNotRecordedError) as lost:
            await until_free(drive, storage)
        assert lost.value.output == {"receipt": 10}
    assert effects.count() == 1
    async with open_storage(server, None) as storage:
        result = await until_free(drive, storage)
        assert result.text == "Done.", "the record stood all the while"
    assert effects.count() == 1


async def until_free(drive, storage):
    while True:
        try:
            return await drive(storage)
        except RunBusyError:
            await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    "options",
    [{"replicas": 0}, {"replicas": True}, {"replicas": 1, "timeout_ms": 0}, {"replicas": 1, "on_timeout": "raise"}],
)
def test_what_cannot_be_waited_for_is_refused(options):
    with pytest.raises(ConfigError):
        WaitReplicas(**options)


@pytest.fixture
def effects(tmp_path):
    return EffectLog(tmp_path / "effects.jsonl")
