"""Undoing a run while others have their hands in it: order, doubts of other hosts, and a store that fails."""

import asyncio

import pytest

from gnl_core import Context, cancel_run, compensate, compensate_run, decide, keys, run_durable, tool
from gnl_core.errors import RunBusyError
from gnl_core.journal import Put, get, new_batch
from gnl_core.lock import release_op
from gnl_core.owner import new_owner, register, unregister
from gnl_core.testing.faulty import Fault, FaultyJournal
from gnl_core.testing.scripted import ScriptedModel

ELSEWHERE = {"id": "0" * 32, "boot": "other", "pid": 7, "started": "5", "namespace": "n", "host": "elsewhere"}
TURNS = [[("charge", {"order": 1})], [("charge", {"order": 2})], "Done."]


def charging(effects, *, lost=(), within=None):
    async def undo(ctx: Context, order: int):
        if within is not None:
            await within()
        effects.fire("refund", f"order-{order}")

    @tool(compensate=undo)
    async def charge(order: int) -> str:
        """Charge an order."""
        effects.fire("charge", f"order-{order}")
        if order in lost:
            raise ConnectionError("lost")
        return "ok"

    return charge


async def finished(journal, charge, turns=TURNS):
    return await run_durable(run_id="r", journal=journal, model=ScriptedModel(turns), tools=[charge], prompt="Go.")


def told(undone):
    return [(one.tool_call_id, one.status) for one in undone]


def refunds(effects):
    return [effect.key for effect in effects.read() if effect.name == "refund"]


def writes(status):
    """Return a matcher of the batch that writes an undoing of this status."""
    return lambda ops: any("comp" in op.key and getattr(op, "value", {}).get("status") == status for op in ops)


async def left_running(journal, owner):
    value = {"f": 1, "status": "running", "tool": "charge", "owner": owner}
    await journal.apply((Put(keys.compensation("r", keys.ROOT, "s1p0"), value),), batch=new_batch())


async def test_a_first_effect_that_was_settled_late_is_undone_last(journal, effects):
    charge = charging(effects, lost={1})
    await finished(journal, charge)
    await decide(journal, "r/s0p0/in_doubt/1", False, output="it was done")
    await finished(journal, charge)
    assert told(await compensate_run(journal, "r", [charge])) == [("s1p0", "undone"), ("s0p0", "undone")]
    assert refunds(effects) == ["order-2", "order-1"]


async def test_effects_that_began_in_the_same_moment_are_undone_by_their_place(journal, rows, effects):
    charge = charging(effects)
    await finished(journal, charge)
    for step in (1, 0):
        await rows.change(keys.tool("r", keys.ROOT, step, 0), started_at=5)
    assert told(await compensate_run(journal, "r", [charge])) == [("s1p0", "undone"), ("s0p0", "undone")]


@pytest.mark.parametrize(("said", "again"), [(True, []), (False, ["order-2"])])
async def test_a_person_settles_what_a_process_of_another_host_left(journal, effects, said, again):
    charge = charging(effects)
    await finished(journal, charge)
    await left_running(journal, ELSEWHERE)
    for dry_run in (True, False):
        first = (await compensate_run(journal, "r", [charge], dry_run=dry_run))[0]
        assert (first.tool_call_id, first.status) == ("s1p0", "in doubt")
        assert "'elsewhere'" in first.message
        assert "settle=" in first.message
        assert "still running" not in first.message
    settled = await compensate_run(journal, "r", [charge], settle={"r/s1p0": said})
    assert told(settled) == [("s1p0", "undone"), ("s0p0", "undone")]
    assert refunds(effects) == [*again, "order-1"]


@pytest.mark.parametrize("said", [True, False])
async def test_nobody_settles_what_is_known_to_run(journal, effects, said):
    charge = charging(effects)
    await finished(journal, charge)
    owner = new_owner()
    register(owner)
    try:
        await left_running(journal, owner.to_json())
        undone = await compensate_run(journal, "r", [charge], settle={"r/s1p0": said})
    finally:
        unregister(owner)
    assert told(undone) == [("s1p0", "in doubt"), ("s0p0", "not reached")]
    assert "still running" in undone[0].message
    assert refunds(effects) == []


@pytest.mark.parametrize("status", ["running", "undone"])
@pytest.mark.parametrize(("action", "when"), [("unavailable", "before"), ("unknown", "before"), ("unknown", "after")])
async def test_a_store_that_fails_once_costs_no_undoing(journal, effects, status, action, when):
    charge = charging(effects)
    await finished(journal, charge)
    faulty = FaultyJournal(journal, fault=Fault(action=action, when=when, match=writes(status)))
    assert told(await compensate_run(faulty, "r", [charge])) == [("s1p0", "undone"), ("s0p0", "undone")]
    assert faulty.hit == 1
    assert refunds(effects) == ["order-2", "order-1"]


class Between:
    """A store in which somebody else writes right before one of our batches."""

    def __init__(self, inner, match, *ops):
        self.inner, self.match, self.ops = inner, match, ops

    def __getattr__(self, name):
        return getattr(self.inner, name)

    async def apply(self, ops, *, batch):
        if self.ops and self.match(ops):
            others, self.ops = self.ops, ()
            await self.inner.apply(others, batch=new_batch())
        return await self.inner.apply(ops, batch=batch)


async def test_who_lost_the_run_begins_no_undoing(journal, effects):
    charge = charging(effects)
    await finished(journal, charge)
    taken = Between(journal, writes("running"), Put(keys.lock("r"), release_op("r", 0).value))
    undone = await compensate_run(taken, "r", [charge])
    assert told(undone) == [("s1p0", "not reached"), ("s0p0", "not reached")]
    assert "somebody else" in undone[0].message
    assert refunds(effects) == []
    assert told(await compensate_run(journal, "r", [charge])) == [("s1p0", "undone"), ("s0p0", "undone")]


async def test_a_settlement_that_is_not_written_is_not_told_as_one(journal, effects):
    charge = charging(effects)
    await finished(journal, charge)
    await left_running(journal, ELSEWHERE)
    key = keys.compensation("r", keys.ROOT, "s1p0")
    value = (await get(journal, key)).value
    taken = Between(journal, writes("undone"), Put(key, value))
    undone = await compensate_run(taken, "r", [charge], settle={"r/s1p0": True})
    assert told(undone) == [("s1p0", "not reached"), ("s0p0", "not reached")]
    assert (await get(journal, key)).value == value


async def test_an_end_that_is_not_written_since_somebody_took_the_undoing_is_a_doubt(journal, effects):
    charge = charging(effects)
    await finished(journal, charge)
    key = keys.compensation("r", keys.ROOT, "s1p0")
    taken = Between(journal, writes("undone"), Put(key, {"f": 1, "status": "running", "owner": ELSEWHERE}))
    undone = await compensate_run(taken, "r", [charge])
    assert told(undone) == [("s1p0", "in doubt"), ("s0p0", "not reached")]
    assert "was done, but somebody else" in undone[0].message


async def test_a_long_compensate_keeps_the_run(journal, effects, monkeypatch):
    monkeypatch.setattr(compensate, "_TTL_MS", 60)
    beaten = asyncio.Event()

    def beats(_, ops):
        if any(op.key == keys.beat("r") and isinstance(op, Put) for op in ops):
            beaten.set()

    async def long():
        beaten.clear()
        await beaten.wait()
        with pytest.raises(RunBusyError):
            await compensate_run(journal, "r", [charge])

    charge = charging(effects, within=long)
    await finished(journal, charge)
    heard = FaultyJournal(journal, on_write=beats)
    assert told(await compensate_run(heard, "r", [charge])) == [("s1p0", "undone"), ("s0p0", "undone")]
    assert (await get(journal, keys.lock("r"))).value["released"] is True


async def test_a_caller_that_is_cancelled_while_it_claims_leaves_no_doubt(journal, effects):
    charge = charging(effects)
    await finished(journal, charge)

    class Cancelling(Between):
        async def apply(self, ops, *, batch):
            if self.ops and self.match(ops):
                self.ops = ()
                asyncio.current_task().cancel()
            outcome = await self.inner.apply(ops, batch=batch)
            await asyncio.sleep(0)
            return outcome

    with pytest.raises(asyncio.CancelledError):
        await compensate_run(Cancelling(journal, writes("running"), "once"), "r", [charge])
    assert refunds(effects) == []
    assert (await get(journal, keys.lock("r"))).value["released"] is True
    assert told(await compensate_run(journal, "r", [charge])) == [("s1p0", "undone"), ("s0p0", "undone")]


async def test_a_lock_that_cannot_be_given_back_hides_no_outcome(journal, effects, caplog):
    charge = charging(effects)
    await finished(journal, charge)
    gives_back = Fault(
        action="unavailable",
        times=9,
        match=lambda ops: any(op.key == keys.lock("r") and getattr(op, "value", {}).get("released") for op in ops),
    )
    undone = await compensate_run(FaultyJournal(journal, fault=gives_back), "r", [charge])
    assert told(undone) == [("s1p0", "undone"), ("s0p0", "undone")]
    assert "run r was not given back" in caplog.text
    assert await cancel_run(journal, "r") is False
