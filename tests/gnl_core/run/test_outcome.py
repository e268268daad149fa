"""A run's head says where it stands, and the indexes mirror it in every state: none is missing, none is left behind."""

import asyncio
import subprocess
import sys
import textwrap

import pytest

from gnl_core import (
    Context,
    agent_tool,
    cancel_run,
    compensate_run,
    decide,
    durable_context,
    fork_run,
    keys,
    request,
    run_durable,
    stream_durable,
    tool,
)
from gnl_core.errors import (
    CanceledError,
    DivergenceError,
    GnlError,
    ModelUnavailableError,
    RunBusyError,
    RunFencedError,
    SideEffectRetryBlockedError,
    StoreUnavailableError,
)
from gnl_core.journal import Put, get, scan_all
from gnl_core.testing.faulty import Fault, FaultyJournal
from gnl_core.testing.scripted import ScriptedModel, raise_once

ONE = [[("charge", {"order": 1})], "Done."]
WHO = {"agent": "billing", "thread_id": "t", "resource_id": "ann", "channel": "chat", "actor": "op"}


def charging(effects, **options):
    @tool(**options)
    async def charge(ctx: Context, order: int) -> dict:
        """Charge an order."""
        return effects.fire("charge", f"order-{order}", {"receipt": order})

    return charge


def drive(journal, tools=(), turns=ONE, run_id="r", *, model=None, **options):
    return run_durable(
        run_id=run_id,
        journal=journal,
        model=model or ScriptedModel(turns),
        tools=tools,
        prompt="Go.",
        **{**WHO, **options},
    )


async def head(journal, run_id="r"):
    return (await get(journal, keys.head(run_id))).value


async def mirrored(journal, run_id="r"):
    """Check that the indexes of a run are exactly what its head says; return the head's status."""
    value = await head(journal, run_id)
    found = {entry.key async for entry in scan_all(journal, ("ix",)) if entry.key[1] != "ask" and run_id in entry.key}
    wanted = {
        keys.index(name, value[member], value["changed_at"], run_id)
        for name, member in (("status", "status"), ("agent", "agent"), ("res", "resource"), ("thr", "thread"))
        if value.get(member)
    }
    assert found == wanted
    return value["status"]


async def asks(journal, run_id="r"):
    return [entry.value["question"] async for entry in scan_all(journal, ("ix", "ask")) if entry.key[3] == run_id]


async def test_from_running_to_completed(journal, effects):
    model = ScriptedModel(ONE, gate=(gate := asyncio.Event()))
    task = asyncio.ensure_future(drive(journal, [charging(effects)], model=model))
    await model.entered.wait()
    assert await mirrored(journal) == "running"
    running = await head(journal)
    assert {name: running[name] for name in ("agent", "thread", "resource", "channel", "actor", "model")} == {
        "agent": "billing",
        "thread": "t",
        "resource": "ann",
        "channel": "chat",
        "actor": "op",
        "model": "scripted/model",
    }
    gate.set()
    await task
    assert await mirrored(journal) == "completed"
    done = await head(journal)
    assert (done["steps"], done["calls"], done["questions"]) == (2, 1, 0)
    assert done["created_at"] == running["created_at"] <= done["changed_at"]
    assert "error" not in done


async def test_a_replay_of_a_run_that_is_over_changes_nothing_of_it(journal, rows, effects):
    charge = charging(effects)
    await drive(journal, [charge])
    before = await rows.values()
    for _ in range(2):
        await drive(journal, [charge])
    after = await rows.values()
    assert {key for key in before if before[key] != after[key]} <= {keys.encode(keys.lock("r"))}
    assert before.keys() == after.keys()


async def test_suspended_answered_completed(journal, effects):
    charge = charging(effects, confirm=True)
    await drive(journal, [charge])
    assert (await mirrored(journal), await asks(journal)) == ("suspended", ["r/s0p0/confirm/0"])
    assert (await head(journal))["questions"] == 1
    await drive(journal, [charge])
    assert (await mirrored(journal), await asks(journal)) == ("suspended", ["r/s0p0/confirm/0"])
    await decide(journal, "r/s0p0/confirm/0", True, actor="ann")
    await drive(journal, [charge])
    assert (await mirrored(journal), await asks(journal)) == ("completed", [])
    assert (await head(journal))["questions"] == 0


async def test_failed_tried_again_completed(journal, effects):
    model = ScriptedModel([ONE[0], raise_once(ModelUnavailableError("down"), "Done.")])
    charge = charging(effects)
    with pytest.raises(ModelUnavailableError):
        await drive(journal, [charge], model=model)
    assert await mirrored(journal) == "failed"
    failed = await head(journal)
    assert failed["error"] == {"code": "upstream_unavailable", "message": "down"}
    assert (failed["steps"], failed["calls"]) == (1, 1)
    await drive(journal, [charge], model=model)
    assert await mirrored(journal) == "completed"
    assert "error" not in await head(journal)


async def test_a_run_that_is_tried_again_is_running_meanwhile(journal):
    model = ScriptedModel([ModelUnavailableError("down")])
    with pytest.raises(ModelUnavailableError):
        await drive(journal, model=model)
    again = ScriptedModel(["Hi."], gate=(gate := asyncio.Event()))
    task = asyncio.ensure_future(drive(journal, model=again))
    await again.entered.wait()
    assert await mirrored(journal) == "running"
    gate.set()
    await task
    assert await mirrored(journal) == "completed"


async def test_in_doubt_is_suspended_with_its_question_until_it_is_settled(journal, effects):
    @tool
    async def charge(order: int) -> dict:
        """Charge and fail."""
        effects.fire("charge", f"order-{order}")
        raise ConnectionError("lost")

    script = [ONE[0], ModelUnavailableError("down")]
    with pytest.raises(ModelUnavailableError):
        await drive(journal, [charge], script)
    with pytest.raises(SideEffectRetryBlockedError):
        await drive(journal, [charge], script)
    assert (await mirrored(journal), await asks(journal)) == ("suspended", ["r/s0p0/in_doubt/1"])
    await decide(journal, "r/s0p0/in_doubt/1", False, output={"receipt": 1}, actor="ann")
    await drive(journal, [charge])
    assert (await mirrored(journal), await asks(journal)) == ("completed", [])


@pytest.mark.parametrize("state", ["suspended", "failed"])
async def test_canceled_from_every_state_that_is_not_over(journal, effects, state):
    charge = charging(effects, confirm=state == "suspended")
    script = ONE if state == "suspended" else [ModelUnavailableError("down")]
    task = drive(journal, [charge], script)
    if state == "failed":
        with pytest.raises(ModelUnavailableError):
            await task
    else:
        await task
    assert await mirrored(journal) == state
    await cancel_run(journal, "r")
    assert await mirrored(journal) == "canceled"
    with pytest.raises(CanceledError):
        await drive(journal, [charge], script)
    assert await mirrored(journal) == "canceled"


async def test_l71_a_drive_that_fails_over_a_run_that_is_over_leaves_it_so(journal, effects):
    charge = charging(effects)
    await drive(journal, [charge])
    with pytest.raises(DivergenceError):
        await drive(journal, [charge], system="Other.", replay="strict")
    assert await mirrored(journal) == "completed"
    assert "error" not in await head(journal)


async def test_l71_a_stale_worker_buries_no_newer_outcome(journal, rows, effects):
    entered, go_on = asyncio.Event(), asyncio.Event()

    @tool(side_effect=False)
    async def stock(order: int) -> int:
        """Read, slowly the first time."""
        if not entered.is_set():
            entered.set()
            await go_on.wait()
        return 3

    class Silent:
        """A store that loses signs of life."""

        def __getattr__(self, name):
            return getattr(journal, name)

        async def apply(self, ops, *, batch):
            if any(isinstance(op, Put) and op.key == keys.beat("r") for op in ops):
                raise StoreUnavailableError("lost")
            return await journal.apply(ops, batch=batch)

    turns = [[("stock", {"order": 1})], "Done."]
    stale = asyncio.ensure_future(drive(Silent(), [stock], turns, lock_ttl=0.01))
    await entered.wait()
    await asyncio.sleep(0.03)
    assert (await drive(journal, [stock], turns)).text == "Done."
    go_on.set()
    with pytest.raises(RunFencedError):
        await stale
    assert await mirrored(journal) == "completed"


async def test_who_is_refused_because_the_run_is_busy_is_no_failure_of_it(journal):
    model = ScriptedModel(["Hi."], gate=(gate := asyncio.Event()))
    task = asyncio.ensure_future(drive(journal, model=model))
    await model.entered.wait()
    for _ in range(3):
        with pytest.raises(RunBusyError):
            await drive(journal)
    assert await mirrored(journal) == "running"
    gate.set()
    await task
    assert await mirrored(journal) == "completed"


async def test_a_stream_that_is_closed_and_a_drive_that_is_cancelled_have_failed(journal):
    model = ScriptedModel(["Hi."], gate=asyncio.Event())
    async with await stream_durable(run_id="r", journal=journal, model=model, prompt="Go.", **WHO):
        await model.entered.wait()
    assert await mirrored(journal) == "failed"
    assert (await head(journal))["error"]["code"] == "interrupted"


async def test_a_run_of_ones_own_loop_is_mirrored_too(journal):
    async with durable_context(run_id="r", journal=journal, **WHO):
        assert await mirrored(journal) == "running"
    assert await mirrored(journal) == "completed"


async def test_forks_sub_agents_and_undone_runs_are_mirrored(journal, rows, effects):
    charge = charging(effects)
    worker = agent_tool(name="worker", description="d", model=ScriptedModel(ONE), tools=[charge])
    await drive(journal, [worker], [[("worker", {"task": "pay"})], "Done."])
    assert await mirrored(journal) == "completed"
    child = await get(journal, keys.head("r", keys.child_id("r", keys.ROOT, "s0p0")))
    assert child.value["status"] == "completed"
    assert len(await rows.all(("ix",))) == 4, "a sub-agent stands in no index: its root does"
    await fork_run(journal=journal, run_id="r", step=1, new_run_id="f")
    assert (await mirrored(journal, "f"), await mirrored(journal)) == ("running", "completed")
    await drive(journal, [worker], [[("worker", {"task": "pay"})], "Done."], run_id="f")
    assert await mirrored(journal, "f") == "completed"
    await compensate_run(journal, "r", [charge])
    assert await mirrored(journal) == "completed"


async def test_a_run_without_names_stands_under_its_status_alone(journal, rows):
    await run_durable(run_id="r", journal=journal, model=ScriptedModel(["Hi."]), prompt="Go.")
    assert [key.split("/")[1] for key in await rows.all(("ix",))] == ["status"]
    assert await mirrored(journal) == "completed"


async def test_what_a_later_caller_names_is_not_what_the_run_belongs_to(journal, effects):
    charge = charging(effects, confirm=True)
    await drive(journal, [charge])
    await drive(journal, [charge], channel="batch", actor="op")
    value = await head(journal)
    assert [value[name] for name in ("thread", "resource", "agent", "channel")] == ["t", "ann", "billing", "chat"]
    assert await mirrored(journal) == "suspended"


@pytest.mark.parametrize("number", range(1, 9))
@pytest.mark.parametrize(("action", "when"), [("unavailable", "before"), ("unknown", "before"), ("unknown", "after")])
async def test_a_store_that_fails_at_any_write_leaves_head_and_indexes_as_one(
    journal, effects, monkeypatch, number, action, when
):
    monkeypatch.setattr(request, "BEGIN_TRIES", 1)
    monkeypatch.setattr(request, "RECORD_TRIES", 1)
    charge = charging(effects)
    faulty = FaultyJournal(journal, fault=Fault(number=number, action=action, when=when))
    failed = ""
    try:
        await drive(faulty, [charge])
    except GnlError as error:
        failed = error.code
    assert failed in ("", "store_unavailable", "store_unknown", "effect_not_recorded")
    if await get(journal, keys.head("r")) is not None:
        assert await mirrored(journal) in ("running", "failed", "completed", "suspended")
    try:
        await drive(journal, [charge])
    except SideEffectRetryBlockedError:
        assert failed
        assert await mirrored(journal) == "suspended"
        await decide(journal, "r/s0p0/in_doubt/1", False, output={"receipt": 1}, actor="ann")
        await drive(journal, [charge])
    assert await mirrored(journal) == "completed"
    assert effects.count() <= 1


async def test_a_killed_driver_leaves_a_running_head_that_the_next_drive_takes_over(common, effects):
    program = f"""
        import asyncio, gnl_core, os
        from gnl_core import run_durable, tool
        from gnl_core.testing.scripted import ScriptedModel

        @tool(side_effect=False)
        def charge(order: int) -> dict:
            os._exit(9)

        storage = {common.spelled}
        asyncio.run(run_durable(run_id="r", journal=storage.runs, model=ScriptedModel({ONE!r}), tools=[charge],
                                prompt="Go.", **{WHO!r}))
    """
    killed = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", textwrap.dedent(program)], check=False)
    assert killed.returncode == 9
    async with common.open() as storage:
        assert await mirrored(storage.runs) == "running"
        assert (await drive(storage.runs, [charging(effects, side_effect=False)])).text == "Done."
        assert await mirrored(storage.runs) == "completed"
