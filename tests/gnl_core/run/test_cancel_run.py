"""Canceling a run: nothing new starts in it, whoever drives it, and what is recorded stays."""

import asyncio
import subprocess
import sys
import textwrap

import pytest

from gnl_core import (
    Context,
    agent_tool,
    cancel_run,
    decide,
    fork_run,
    keys,
    list_interrupts,
    read_run,
    resume_run,
    run_durable,
    tool,
)
from gnl_core.doctor import examine_runs
from gnl_core.errors import (
    CanceledError,
    ChildRunError,
    ForkRefusedError,
    ModelUnavailableError,
    RunBusyError,
    RunFencedError,
    RunNotFoundError,
    StoreUnavailableError,
)
from gnl_core.journal import Put, get, new_batch
from gnl_core.testing.faulty import Fault, FaultyJournal
from gnl_core.testing.scripted import ScriptedModel

TURNS = [[("charge", {"order": 1})], [("charge", {"order": 2})], "Done."]


def charging(effects, **options):
    @tool(**options)
    async def charge(ctx: Context, order: int) -> dict:
        """Charge an order."""
        return effects.fire("charge", f"order-{order}", {"receipt": order})

    return charge


async def drive(journal, tools, turns=TURNS, **options):
    return await run_durable(
        run_id="r", journal=journal, model=ScriptedModel(turns), tools=tools, prompt="Go.", **options
    )


async def status(journal):
    return (await get(journal, keys.head("r"))).value["status"]


async def statuses(rows):
    return [key.split("/")[2] for key in await rows.all(("ix", "status"))]


async def test_a_waiting_run_that_is_canceled_replays_its_past_and_begins_nothing(journal, rows, effects):
    charge = charging(effects)

    @tool(confirm=True)
    async def send(text: str) -> str:
        """Send."""
        return effects.fire("send", text, "sent")

    turns = [[("charge", {"order": 1})], [("send", {"text": "x"})], "Done."]
    await drive(journal, [charge, send], turns)
    assert await cancel_run(journal, "r", actor="ann", reason="wrong order") is True
    assert (await status(journal), await statuses(rows)) == ("canceled", ["canceled"])
    assert (await get(journal, keys.halt("r"))).value == {
        "f": 1,
        "canceled": True,
        "actor": "ann",
        "reason": "wrong order",
    }
    assert await cancel_run(journal, "r") is False
    for _ in range(2):
        with pytest.raises(CanceledError) as refused:
            await drive(journal, [charge, send], turns, approvals={"s1p0": True})
        assert refused.value.detail["run_id"] == "r"
    with pytest.raises(CanceledError):
        await resume_run(run_id="r", journal=journal, model=ScriptedModel(turns), tools=[charge, send])
    assert (effects.counts(), await status(journal)) == ({"charge order-1": 1}, "canceled")
    assert await statuses(rows) == ["canceled"]


async def test_l71_a_run_that_is_over_stays_as_it_ended(journal, rows, effects):
    charge = charging(effects)
    done = await drive(journal, [charge])
    before = await rows.all()
    assert await cancel_run(journal, "r") is False
    assert await rows.all() == before
    assert (await drive(journal, [charge])).messages == done.messages


async def test_a_canceled_run_asks_nothing_that_would_begin(journal, effects):
    await drive(journal, [charging(effects, confirm=True)])
    assert [one.question for one in await list_interrupts(journal)] == ["r/s0p0/confirm/0"]
    await cancel_run(journal, "r")
    assert await list_interrupts(journal) == []
    assert await list_interrupts(journal, "r") == []
    assert (await read_run(journal, "r")).questions == ()
    assert [one.text async for one in examine_runs(journal) if one.level == "waits"] == []
    assert effects.count() == 0


async def test_a_failed_run_can_be_canceled_and_forked_afterwards(journal, rows, effects):
    charge = charging(effects)
    with pytest.raises(Exception, match="down") as failed:
        await drive(journal, [charge], [TURNS[0], RuntimeError("down")])
    assert type(failed.value) is RuntimeError
    assert await cancel_run(journal, "r") is True
    model = ScriptedModel([TURNS[0], "Done."])
    with pytest.raises(CanceledError):
        await run_durable(run_id="r", journal=journal, model=model, tools=[charge], prompt="Go.")
    assert model.calls == 0
    await fork_run(journal=journal, run_id="r", step=1, new_run_id="f")
    result = await run_durable(run_id="f", journal=journal, model=model, tools=[charge], prompt="Go.")
    assert (result.text, effects.count()) == ("Done.", 1)


async def test_a_run_canceled_while_a_body_runs_records_it_and_begins_nothing_more(journal, rows, effects):
    entered, go_on = asyncio.Event(), asyncio.Event()

    @tool
    async def charge(ctx: Context, order: int) -> dict:
        """Charge, slowly."""
        entered.set()
        await go_on.wait()
        return effects.fire("charge", f"order-{order}", {"receipt": order})

    model = ScriptedModel(TURNS)
    task = asyncio.ensure_future(run_durable(run_id="r", journal=journal, model=model, tools=[charge], prompt="Go."))
    await entered.wait()
    assert await cancel_run(journal, "r") is True
    assert await status(journal) == "running", "its driver is alive, and the head is the driver's to write"
    go_on.set()
    with pytest.raises(CanceledError):
        await task
    assert (effects.counts(), await status(journal)) == ({"charge order-1": 1}, "canceled")
    assert (await get(journal, keys.tool("r", keys.ROOT, 0, 0))).value["status"] == "succeeded"
    assert await statuses(rows) == ["canceled"]
    assert await list_interrupts(journal) == []
    assert (await get(journal, keys.lock("r"))).value["released"] is True


async def test_a_run_canceled_while_the_model_answers_takes_no_answer(journal, rows, effects):
    gate = asyncio.Event()
    model = ScriptedModel(TURNS, gate=gate)
    task = asyncio.ensure_future(
        run_durable(run_id="r", journal=journal, model=model, tools=[charging(effects)], prompt="Go.")
    )
    await model.entered.wait()
    assert await cancel_run(journal, "r") is True
    gate.set()
    with pytest.raises(CanceledError):
        await task
    assert (effects.count(), await status(journal)) == (0, "canceled")
    assert not [key for key in await rows.all(keys.request("r")) if "/model/" in key]


async def test_a_run_canceled_during_its_last_answer_does_not_end_as_completed(journal, rows):
    model = ScriptedModel(["The answer."], gate=(gate := asyncio.Event()))
    task = asyncio.ensure_future(run_durable(run_id="r", journal=journal, model=model, prompt="?"))
    await model.entered.wait()
    await cancel_run(journal, "r")
    gate.set()
    with pytest.raises(CanceledError):
        await task
    assert (await status(journal), await statuses(rows)) == ("canceled", ["canceled"])


@pytest.mark.parametrize("settled", ["by a person", "by recover", "not at all", "to run again"])
async def test_what_a_canceled_run_left_in_doubt_can_be_settled_and_then_forked(journal, effects, settled):
    async def recover(order: int):
        return {"done": True, "output": 7}

    @tool(recover=recover if settled == "by recover" else None)
    async def charge(order: int) -> int:
        """Charge, and lose the answer."""
        effects.fire("charge", f"order-{order}")
        raise ConnectionError("lost")

    down = [TURNS[0], ModelUnavailableError("down")]
    with pytest.raises(ModelUnavailableError):
        await drive(journal, [charge], down)
    if settled == "to run again":
        await decide(journal, "r/s0p0/in_doubt/1", True)
    assert await cancel_run(journal, "r") is True
    assert [one.question for one in await list_interrupts(journal, "r")] == ["r/s0p0/in_doubt/1"]
    if settled == "by a person":
        await decide(journal, "r/s0p0/in_doubt/1", False, output=7)
    with pytest.raises(CanceledError):
        await drive(journal, [charge], down)
    assert (effects.count(), await status(journal)) == (1, "canceled")
    if settled in ("not at all", "to run again"):
        with pytest.raises(ForkRefusedError):
            await fork_run(journal=journal, run_id="r", step=1, new_run_id="f")
    else:
        await fork_run(journal=journal, run_id="r", step=1, new_run_id="f")
        model = ScriptedModel([TURNS[0], "Done."])
        result = await run_durable(run_id="f", journal=journal, model=model, tools=[charge], prompt="Go.")
        assert (result.text, effects.count()) == ("Done.", 1)


async def test_canceling_reaches_the_sub_agents(journal, effects):
    entered, go_on = asyncio.Event(), asyncio.Event()

    @tool
    async def charge(ctx: Context, order: int) -> dict:
        """Charge, slowly."""
        entered.set()
        await go_on.wait()
        return effects.fire("charge", f"order-{order}", {"receipt": order})

    worker = agent_tool(name="worker", description="d", model=ScriptedModel(TURNS), tools=[charge])
    task = asyncio.ensure_future(drive(journal, [worker], [[("worker", {"task": "pay"})], "Done."]))
    await entered.wait()
    child = keys.child_id("r", keys.ROOT, "s0p0")
    with pytest.raises(ChildRunError, match="'r'"):
        await cancel_run(journal, child)
    await cancel_run(journal, "r")
    go_on.set()
    with pytest.raises(CanceledError):
        await task
    assert (effects.counts(), await status(journal)) == ({"charge order-1": 1}, "canceled")


async def test_a_run_that_never_stands_still_is_busy_and_not_canceled(journal, rows, effects):
    await drive(journal, [charging(effects, confirm=True)])

    class Contended(FaultyJournal):
        left = 30

        async def apply(self, ops, *, batch):
            if self.left:
                self.left -= 1
                lock = await get(journal, keys.lock("r"))
                await journal.apply([Put(lock.key, lock.value)], batch=new_batch())
            return await super().apply(ops, batch=batch)

    contended = Contended(journal)
    with pytest.raises(RunBusyError, match="was changed by others 20 times"):
        await cancel_run(contended, "r")
    assert await status(journal) == "suspended"
    assert await cancel_run(contended, "r"), "by now the others have come to an end"


async def test_there_is_no_such_run(journal, rows):
    with pytest.raises(RunNotFoundError):
        await cancel_run(journal, "nowhere")
    assert await rows.all() == {}


async def test_a_run_that_another_process_drives_is_canceled_there(common, effects):
    program = f"""
        import asyncio, gnl_core, sys
        from gnl_core import run_durable, tool
        from gnl_core.errors import CanceledError
        from gnl_core.testing.effects import EffectLog
        from gnl_core.testing.scripted import ScriptedModel

        @tool
        def charge(order: int) -> dict:
            EffectLog({str(effects.path)!r}).fire("charge", f"order-{{order}}")
            print("in", flush=True)
            sys.stdin.readline()
            return {{"receipt": order}}

        async def main():
            async with {common.spelled} as storage:
                await run_durable(run_id="r", journal=storage.runs, model=ScriptedModel({TURNS!r}),
                                  tools=[charge], prompt="Go.")

        try:
            asyncio.run(main())
        except CanceledError as error:
            print(error.code, flush=True)
    """
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", textwrap.dedent(program), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert await child.stdout.readline() == b"in\n"
        async with common.open() as storage:
            assert await cancel_run(storage.runs, "r") is True
            child.stdin.write(b"\n")
            assert await child.stdout.readline() == b"run_canceled\n"
            assert await child.wait() == 0
            assert await status(storage.runs) == "canceled"
            with pytest.raises(CanceledError):
                await drive(storage.runs, [charging(effects)])
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    assert effects.counts() == {"charge order-1": 1}


async def test_a_run_whose_driver_was_killed_is_canceled_at_once(common, effects):
    program = f"""
        import asyncio, gnl_core, os
        from gnl_core import run_durable, tool
        from gnl_core.testing.scripted import ScriptedModel

        @tool
        def charge(order: int) -> dict:
            os._exit(9)

        storage = {common.spelled}
        asyncio.run(run_durable(run_id="r", journal=storage.runs, model=ScriptedModel({TURNS!r}), tools=[charge],
                                prompt="Go."))
    """
    killed = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", textwrap.dedent(program)], check=False)
    assert killed.returncode == 9
    async with common.open() as storage:
        assert await status(storage.runs) == "running"
        assert await cancel_run(storage.runs, "r") is True
        assert await status(storage.runs) == "canceled"
        # What the kill left in doubt still waits, and for as long as nobody settled it.
        assert [one.question for one in await list_interrupts(storage.runs)] == ["r/s0p0/in_doubt/1"]
        with pytest.raises(CanceledError, match="takes no yes"):
            await decide(storage.runs, "r/s0p0/in_doubt/1", True)
        assert [one.question for one in await list_interrupts(storage.runs)] == ["r/s0p0/in_doubt/1"]
        await decide(storage.runs, "r/s0p0/in_doubt/1", False)
        assert await list_interrupts(storage.runs) == []


async def test_a_driver_that_was_taken_for_dead_and_wakes_leaves_no_stale_index(journal, rows, effects):
    entered, go_on = asyncio.Event(), asyncio.Event()

    @tool
    async def charge(ctx: Context, order: int) -> dict:
        """Charge, slowly."""
        entered.set()
        await go_on.wait()
        return effects.fire("charge", f"order-{order}", {"receipt": order})

    class Silent:
        """A store that loses signs of life."""

        def __getattr__(self, name):
            return getattr(journal, name)

        async def apply(self, ops, *, batch):
            if any(op.key == keys.beat("r") for op in ops if isinstance(op, Put)):
                raise StoreUnavailableError("lost")
            return await journal.apply(ops, batch=batch)

    task = asyncio.ensure_future(drive(Silent(), [charge], TURNS, lock_ttl=0.01))
    await entered.wait()
    await asyncio.sleep(0.03)
    assert await cancel_run(journal, "r") is True
    go_on.set()
    with pytest.raises(RunFencedError):
        await task
    assert await statuses(rows) == ["canceled"]
    assert await status(journal) == "canceled"


@pytest.mark.parametrize("end", ["max_steps", "stop_when", "waits", "fails"])
async def test_a_run_canceled_while_its_last_body_runs_ends_canceled_however_it_ends(journal, rows, effects, end):
    @tool
    async def charge(ctx: Context, order: int) -> dict:
        """Charge, while somebody cancels."""
        assert await cancel_run(journal, "r") is True
        return effects.fire("charge", f"order-{order}", {"receipt": order})

    @tool(confirm=True)
    async def send(text: str) -> str:
        """Send."""
        return effects.fire("send", text, "sent")

    def stop(steps):
        if end == "fails":
            raise ConnectionError("no answer")
        return end == "stop_when"

    options = {"max_steps": 1} if end == "max_steps" else {"stop_when": stop}
    turns = [[("charge", {"order": 1}), *([("send", {"text": "x"})] if end == "waits" else [])], "Done."]
    with pytest.raises(ConnectionError if end == "fails" else CanceledError):
        await drive(journal, [charge, send], turns, **options)
    assert (await status(journal), await statuses(rows)) == ("canceled", ["canceled"])
    assert (await get(journal, keys.lock("r"))).value["released"] is True
    assert await cancel_run(journal, "r") is False
    for again in (options, {}):
        with pytest.raises(ConnectionError if end == "fails" and again else CanceledError):
            await drive(journal, [charge, send], turns, **again)
        assert (await status(journal), await statuses(rows)) == ("canceled", ["canceled"])
    assert effects.counts() == {"charge order-1": 1}


@pytest.mark.parametrize("first", ["the cancel", "the end"])
async def test_a_cancel_and_an_end_in_the_same_moment_agree_on_what_happened(journal, rows, effects, first):
    said = []

    class Racing:
        """A store in which somebody cancels right before, or right after, the run's last batch."""

        def __getattr__(self, name):
            return getattr(journal, name)

        async def apply(self, ops, *, batch):
            last = any(op.key == keys.lock("r") and getattr(op, "value", {}).get("released") for op in ops)
            if last and first == "the cancel" and not said:
                said.append(await cancel_run(journal, "r"))
            outcome = await journal.apply(ops, batch=batch)
            if last and first == "the end":
                said.append(await cancel_run(journal, "r"))
            return outcome

    charge = charging(effects)
    if first == "the cancel":
        with pytest.raises(CanceledError):
            await drive(Racing(), [charge], max_steps=2)
    else:
        assert (await drive(Racing(), [charge], max_steps=2)).finish_reason == "max_steps"
    assert said == [first == "the cancel"]
    ends = "canceled" if said[0] else "completed"
    assert (await status(journal), await statuses(rows)) == (ends, [ends])
    if said[0]:
        with pytest.raises(CanceledError):
            await drive(journal, [charge], max_steps=2)
    else:
        assert (await drive(journal, [charge], max_steps=2)).finish_reason == "max_steps"
    assert effects.count() == 2


async def test_an_end_that_cannot_be_recorded_beside_another_error_is_logged(journal, effects, caplog):
    def ends(ops):
        return any(op.key == keys.lock("r") and getattr(op, "value", {}).get("released") for op in ops)

    faulty = FaultyJournal(journal, fault=Fault(action="unavailable", times=9, match=ends))
    with pytest.raises(ModelUnavailableError):
        await drive(faulty, [charging(effects)], [ModelUnavailableError("down")])
    assert "the end of run r could not be recorded" in caplog.text
