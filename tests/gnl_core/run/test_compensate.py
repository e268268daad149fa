"""Undoing a run: in reverse order, once each, told honestly; and a condemned run starts nothing."""

import asyncio
import subprocess
import sys
import textwrap

import pytest

from gnl_core import (
    Context,
    agent_tool,
    cancel_run,
    compensate,
    compensate_run,
    fork_run,
    keys,
    resume_run,
    run_durable,
    stream_durable,
    tool,
)
from gnl_core.errors import (
    ChildRunError,
    CompensatedRunError,
    ForkRefusedError,
    NotPerformedError,
    RunBusyError,
    RunNotFoundError,
    StoreUnavailableError,
)
from gnl_core.journal import get
from gnl_core.testing.effects import EffectLog
from gnl_core.testing.faulty import Fault, FaultyJournal
from gnl_core.testing.scripted import ScriptedModel

TURNS = [[("charge", {"order": 1})], [("charge", {"order": 2}), ("charge", {"order": 3})], "Done."]


def charging(effects, *, broken=(), seen=None, **options):
    def undo(ctx: Context, order: int, output: dict):
        if order in broken:
            raise NotPerformedError(f"no refund of {order}")
        if seen is not None:
            seen.append((order, output, ctx.run_id, ctx.tool_call_id, ctx.idempotency_key))
        effects.fire("refund", f"order-{order}")

    @tool(compensate=undo, **options)
    async def charge(ctx: Context, order: int) -> dict:
        """Charge an order."""
        return effects.fire("charge", f"order-{order}", {"receipt": order})

    return charge


async def finished(journal, tools, turns=TURNS, run_id="r", **options):
    return await run_durable(
        run_id=run_id, journal=journal, model=ScriptedModel(turns), tools=tools, prompt="Go.", **options
    )


def told(undone):
    return [(one.tool_call_id, one.status) for one in undone]


async def test_effects_are_undone_in_reverse_order_of_success_with_their_output(journal, effects):
    seen = []
    charge = charging(effects, seen=seen)
    await finished(journal, [charge])
    undone = await compensate_run(journal, "r", [charge])
    assert {one.tool_call_id for one in undone[:2]} == {"s1p0", "s1p1"}
    assert told(undone)[-1] == ("s0p0", "undone")
    assert {one.status for one in undone} == {"undone"}
    assert sorted(seen) == [
        (1, {"receipt": 1}, "r", "s0p0", "r:comp:s0p0"),
        (2, {"receipt": 2}, "r", "s1p0", "r:comp:s1p0"),
        (3, {"receipt": 3}, "r", "s1p1", "r:comp:s1p1"),
    ]
    assert seen[-1][0] == 1
    assert effects.count("refund") == 3


async def test_nothing_is_undone_twice(journal, rows, effects):
    charge = charging(effects)
    await finished(journal, [charge])
    await compensate_run(journal, "r", [charge])
    again = await compensate_run(journal, "r", [charge])
    assert {one.status for one in again} == {"undone"}
    assert effects.count("refund") == 3


async def test_it_stops_at_the_first_that_fails_and_goes_on_from_there(journal, effects):
    turns = [[("charge", {"order": n})] for n in (1, 2, 3)] + ["Done."]
    await finished(journal, [charging(effects)], turns)
    undone = await compensate_run(journal, "r", [charging(effects, broken={2})])
    assert told(undone) == [("s2p0", "undone"), ("s1p0", "failed"), ("s0p0", "not reached")]
    assert undone[1].message == "no refund of 2"
    assert effects.count("refund") == 1
    undone = await compensate_run(journal, "r", [charging(effects)])
    assert told(undone) == [("s2p0", "undone"), ("s1p0", "undone"), ("s0p0", "undone")]
    assert [effect.key for effect in effects.read() if effect.name == "refund"] == ["order-3", "order-2", "order-1"]


async def test_a_dry_run_writes_nothing_and_condemns_nothing(journal, rows, effects):
    charge = charging(effects)
    await finished(journal, [charge])
    before = await rows.all()
    planned = await compensate_run(journal, "r", [charge], dry_run=True)
    assert {one.status for one in planned} == {"to undo"}
    assert await rows.all() == before
    assert effects.count("refund") == 0
    assert (await finished(journal, [charge])).text == "Done.", "it may still be driven"

    await compensate_run(journal, "r", [charging(effects, broken={1})])
    before = await rows.all()
    planned = await compensate_run(journal, "r", [charge], dry_run=True)
    assert told(planned)[-1] == ("s0p0", "to undo")
    assert {one.status for one in planned[:2]} == {"undone"}
    assert await rows.all() == before


async def test_a_tool_without_a_way_back_is_named_and_stops_nothing(journal, effects):
    @tool
    async def send(text: str) -> str:
        """Send a letter, which nobody takes back."""
        return effects.fire("send", text, "sent")

    charge = charging(effects)
    turns = [[("charge", {"order": 1})], [("send", {"text": "hi"})], "Done."]
    await finished(journal, [charge, send], turns)
    planned = await compensate_run(journal, "r", [charge, send], dry_run=True)
    assert told(planned) == [("s1p0", "no compensate"), ("s0p0", "to undo")]
    assert told(await compensate_run(journal, "r", [charge])) == [("s1p0", "no compensate"), ("s0p0", "undone")]


async def test_reads_refusals_shadows_and_copies_are_no_effects(journal, effects):
    @tool(side_effect=False)
    def stock(order: int) -> int:
        """Read."""
        return 3

    shared = charging(effects, idempotency="args", window="cross-run")
    await finished(journal, [shared], [[("charge", {"order": 9})], "Done."], run_id="other")
    asks = charging(effects, confirm=True)
    turns = [[("stock", {"order": 1}), ("charge", {"order": 1})], "Done."]
    await finished(journal, [stock, asks], turns)
    await finished(journal, [stock, asks], turns, approvals={"s0p1": False})
    assert await compensate_run(journal, "r", [stock, asks]) == ()

    await finished(journal, [shared], [[("charge", {"order": 9})], "Done."], run_id="mirror")
    assert await compensate_run(journal, "mirror", [shared]) == ()
    assert await compensate_run(journal, "other", [shared]) == (), "work across runs is out of scope"

    await finished(journal, [charging(effects)], [[("charge", {"order": 5})], "Done."], run_id="source")
    await fork_run(journal=journal, run_id="source", step=1, new_run_id="copy")
    assert await compensate_run(journal, "copy", [charging(effects)]) == ()
    assert effects.count("refund") == 0


async def test_work_keyed_by_its_arguments_within_the_run_is_undone_once(journal, effects):
    charge = charging(effects, idempotency="args")
    await finished(journal, [charge], [[("charge", {"order": 1}), ("charge", {"order": 1})], "Done."])
    assert told(await compensate_run(journal, "r", [charge])) == [("s0p0", "undone")]
    assert (effects.count("charge"), effects.count("refund")) == (1, 1)


async def test_a_call_in_doubt_is_told_and_stops_no_other(journal, effects):
    @tool
    async def send(text: str) -> str:
        """Send, and lose the answer."""
        effects.fire("send", text)
        raise ConnectionError("lost")

    charge = charging(effects)
    await finished(journal, [charge, send], [[("charge", {"order": 1})], [("send", {"text": "hi"})], "Sorry."])
    for dry_run in (True, False):
        undone = await compensate_run(journal, "r", [charge, send], dry_run=dry_run)
        assert told(undone) == [("s1p0", "in doubt"), ("s0p0", "to undo" if dry_run else "undone")]
        assert "not known" in undone[0].message


async def test_a_sub_agents_effects_are_undone_with_the_rest(journal, effects):
    seen = []
    charge = charging(effects, seen=seen)
    worker = agent_tool(
        name="worker", description="d", model=ScriptedModel([[("charge", {"order": 7})], "paid"]), tools=[charge]
    )
    turns = [[("charge", {"order": 1})], [("worker", {"task": "pay"})], "Done."]
    await finished(journal, [charge, worker], turns)
    child = keys.child_id("r", keys.ROOT, "s1p0")
    undone = await compensate_run(journal, "r", [charge])
    assert [(one.run_id, one.tool_call_id, one.status) for one in undone] == [
        (child, "s0p0", "undone"),
        ("r", "s0p0", "undone"),
    ]
    assert [(order, run) for order, _, run, _, _ in seen] == [(7, child), (1, "r")]
    with pytest.raises(ChildRunError, match="'r'"):
        await compensate_run(journal, child, [charge])


@pytest.mark.parametrize("door", [run_durable, resume_run, stream_durable])
async def test_a_condemned_run_is_driven_by_no_door(journal, rows, effects, door):
    charge = charging(effects)
    await finished(journal, [charge])
    await compensate_run(journal, "r", [charge])
    before = await rows.all()
    options = {} if door is resume_run else {"prompt": "Go."}
    with pytest.raises(CompensatedRunError, match="undone"):
        await door(run_id="r", journal=journal, model=ScriptedModel(TURNS), tools=[charge], **options)
    with pytest.raises(ForkRefusedError):
        await fork_run(journal=journal, run_id="r", step=1, new_run_id="f")
    assert await rows.all() == before
    assert await cancel_run(journal, "r") is False


async def test_a_condemned_unfinished_run_begins_nothing_new(journal, effects):
    charge = charging(effects, confirm=True)
    await finished(journal, [charge], [[("charge", {"order": 1})], "Done."])
    assert await compensate_run(journal, "r", [charge]) == ()
    with pytest.raises(CompensatedRunError):
        await finished(journal, [charge], approvals={"s0p0": True})
    assert effects.count() == 0


async def test_a_canceled_run_can_be_undone(journal, effects):
    asks = charging(effects)

    @tool(confirm=True)
    async def send(text: str) -> str:
        """Send."""
        return "sent"

    await finished(journal, [asks, send], [[("charge", {"order": 1})], [("send", {"text": "x"})], "Done."])
    assert await cancel_run(journal, "r", actor="ann") is True
    assert told(await compensate_run(journal, "r", [asks, send])) == [("s0p0", "undone")]
    assert (await get(journal, keys.halt("r"))).value["actor"] == "ann"


async def test_a_run_that_is_driven_is_busy_and_not_condemned(journal, effects):
    gate = asyncio.Event()
    model = ScriptedModel(TURNS, gate=gate)
    charge = charging(effects)
    task = asyncio.ensure_future(run_durable(run_id="r", journal=journal, model=model, tools=[charge], prompt="Go."))
    await model.entered.wait()
    with pytest.raises(RunBusyError):
        await compensate_run(journal, "r", [charge])
    gate.set()
    assert (await task).text == "Done."


async def test_there_is_no_such_run(journal, rows, effects):
    with pytest.raises(RunNotFoundError):
        await compensate_run(journal, "nowhere", [charging(effects)])
    assert await rows.all() == {}


@pytest.mark.parametrize("after", [True, False], ids=["refunded", "not yet"])
async def test_a_crash_inside_a_compensate_is_in_doubt_and_not_repeated(common, effects, after):
    charge = charging(effects)
    async with common.open() as storage:
        await finished(storage.runs, [charge], [[("charge", {"order": 1})], [("charge", {"order": 2})], "Done."])
    program = f"""
        import asyncio, gnl_core, os
        from gnl_core import compensate_run, tool
        from gnl_core.testing.effects import EffectLog

        def undo(order: int):
            if {after}:
                EffectLog({str(effects.path)!r}).fire("refund", f"order-{{order}}")
            os._exit(9)

        @tool(compensate=undo)
        def charge(order: int) -> dict:
            return {{}}

        storage = {common.spelled}
        asyncio.run(compensate_run(storage.runs, "r", [charge]))
    """
    killed = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", textwrap.dedent(program)], check=False)
    assert killed.returncode == 9
    async with common.open() as storage:
        for dry_run in (True, False, False):
            undone = await compensate_run(storage.runs, "r", [charge], dry_run=dry_run)
            assert told(undone) == [("s1p0", "in doubt"), ("s0p0", "to undo" if dry_run else "not reached")]
            assert "process that is gone" in undone[0].message
    assert EffectLog(effects.path).count("refund") == int(after)


async def test_an_undoing_that_could_not_be_recorded_is_in_doubt(journal, effects, monkeypatch):
    monkeypatch.setattr(compensate, "RECORD_TRIES", 2)
    charge = charging(effects)
    await finished(journal, [charge], [[("charge", {"order": 1})], "Done."])

    def records_the_end(ops):
        return any("comp" in op.key and getattr(op, "value", {}).get("status") == "undone" for op in ops)

    faulty = FaultyJournal(journal, fault=Fault(action="unavailable", times=2, match=records_the_end))
    with pytest.raises(StoreUnavailableError):
        await compensate_run(faulty, "r", [charge])
    (left,) = await compensate_run(journal, "r", [charge])
    assert (left.tool_call_id, left.status) == ("s0p0", "in doubt")
    assert "settle=" in left.message
    assert effects.count("refund") == 1
    assert (await get(journal, keys.lock("r"))).value["released"] is True


@pytest.mark.parametrize(("undone", "refunds"), [(True, 1), (False, 2)])
async def test_a_person_settles_an_undoing_in_doubt(journal, effects, monkeypatch, undone, refunds):
    monkeypatch.setattr(compensate, "RECORD_TRIES", 2)
    charge = charging(effects)
    await finished(journal, [charge], [[("charge", {"order": 1})], "Done."])

    def records_the_end(ops):
        return any("comp" in op.key and getattr(op, "value", {}).get("status") == "undone" for op in ops)

    faulty = FaultyJournal(journal, fault=Fault(action="unavailable", times=2, match=records_the_end))
    with pytest.raises(StoreUnavailableError):
        await compensate_run(faulty, "r", [charge])
    settled = await compensate_run(journal, "r", [charge], settle={"r/s0p0": undone})
    assert told(settled) == [("s0p0", "undone")]
    assert effects.count("refund") == refunds
    assert told(await compensate_run(journal, "r", [charge])) == [("s0p0", "undone")]
    assert effects.count("refund") == refunds


async def test_a_compensate_that_takes_only_what_it_names(journal, effects):
    async def undo(order: int):
        effects.fire("refund", f"order-{order}")

    @tool(compensate=undo)
    async def charge(order: int, note: str = "") -> str:
        """Charge."""
        return "ok"

    await finished(journal, [charge], [[("charge", {"order": 4, "note": "x"})], "Done."])
    assert told(await compensate_run(journal, "r", [charge])) == [("s0p0", "undone")]
    assert effects.count("refund", "order-4") == 1


async def test_an_undoing_that_raised_may_have_acted_and_is_not_begun_again(journal, effects):
    async def refund(order: int):
        effects.fire("refund", f"order-{order}")
        raise TimeoutError("the answer of the bank did not come")

    @tool(compensate=refund)
    async def charge(order: int) -> str:
        """Charge."""
        return "ok"

    await finished(journal, [charge], [[("charge", {"order": 1})], "Done."])
    for _ in range(3):
        (left,) = await compensate_run(journal, "r", [charge])
        assert (left.tool_call_id, left.status) == ("s0p0", "in doubt")
        assert "TimeoutError: the answer of the bank did not come" in left.message
    assert effects.count("refund") == 1
    assert told(await compensate_run(journal, "r", [charge], settle={"r/s0p0": True})) == [("s0p0", "undone")]
    assert effects.count("refund") == 1


async def test_a_plain_undoing_that_finds_nothing_ends(journal):
    def refund(order: int):
        return next(one for one in [] if one == order)

    @tool(compensate=refund)
    async def charge(order: int) -> str:
        """Charge."""
        return "ok"

    await finished(journal, [charge], [[("charge", {"order": 1})], "Done."])
    async with asyncio.timeout(10):
        assert told(await compensate_run(journal, "r", [charge])) == [("s0p0", "in doubt")]
