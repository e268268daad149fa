"""A loop of its own holds its run, gives it back, and survives being killed."""

import asyncio
import subprocess
import sys
import textwrap

import pytest

from gnl_core import (
    Context,
    Message,
    TextPart,
    agent_tool,
    cancel_run,
    decide,
    durable_context,
    durable_tools,
    keys,
    resume_run,
    run_durable,
    tool,
    with_durable_model,
)
from gnl_core.approvals import MISSING
from gnl_core.errors import (
    CanceledError,
    ConfigError,
    RunBusyError,
    SideEffectRetryBlockedError,
)
from gnl_core.journal import get
from gnl_core.model.messages import ModelRequest
from gnl_core.testing.scripted import ScriptedModel

ASKED = Message("user", (TextPart("Go."),))
TURNS = [[("charge", {"order": 1}), ("charge", {"order": 2})], [("charge", {"order": 3})], "Done."]


def charging(effects, **options):
    @tool(**options)
    async def charge(ctx: Context, order: int) -> dict:
        """Charge an order."""
        return effects.fire("charge", f"order-{order}", {"receipt": order})

    return charge


async def loop(journal, scripted, tools, *, compact=None, parallel=False, streamed=False, **options):
    """A loop as a user would write it: until the model calls no more tools."""
    async with durable_context(run_id="r", journal=journal, **options) as ctx:
        model = with_durable_model(scripted, ctx)
        durable = durable_tools(tools, ctx)
        messages = [ASKED]
        specs = tuple(one.tool.spec for one in durable.values())
        while True:
            request = ModelRequest("Be brief.", tuple(messages), specs)
            if streamed:
                *_, last = [event async for event in model.stream(request)]
                response = last.response
            else:
                response = await model.generate(request)
            messages.append(response.message())
            if not response.tool_calls:
                return response.text, messages, ctx.warnings
            if parallel:
                messages += await asyncio.gather(*(durable[c.name].answer(c) for c in response.tool_calls))
            else:
                messages += [await durable[call.name].answer(call) for call in response.tool_calls]
            if compact is not None:
                messages = compact(messages)


async def status(journal):
    return (await get(journal, keys.head("r"))).value["status"]


# The hold ----------------------------------------------------------------------------------------------------------


async def test_the_context_holds_the_run_and_gives_it_back_however_it_ends(journal):
    async with durable_context(run_id="r", journal=journal):
        with pytest.raises(RunBusyError):
            async with durable_context(run_id="r", journal=journal):
                pass
    assert await status(journal) == "completed"

    async def fail():
        async with durable_context(run_id="r2", journal=journal):
            raise ZeroDivisionError

    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            await fail()
    assert (await get(journal, keys.head("r2"))).value["status"] == "failed"
    assert (await get(journal, keys.lock("r2"))).value["released"] is True


async def test_what_is_used_after_its_context_says_that_it_is_over(journal, rows, effects):
    async with durable_context(run_id="r", journal=journal) as ctx:
        model = with_durable_model(ScriptedModel(["Hi."]), ctx)
        durable = durable_tools([charging(effects)], ctx)["charge"]
    before = await rows.all()
    with pytest.raises(ConfigError, match="is over"):
        await model.generate(ModelRequest(None, (ASKED,)))
    with pytest.raises(ConfigError, match="is over"):
        await durable.call({"order": 1}, tool_call_id="s0p0")
    assert (await rows.all(), effects.count()) == (before, 0)


async def test_a_canceled_run_begins_nothing_in_a_loop_of_ones_own_and_ends_as_canceled(journal, effects):
    charge = charging(effects)
    came_to_its_end = asyncio.Event()

    async def loop():
        async with durable_context(run_id="r", journal=journal) as ctx:
            model, durable = with_durable_model(ScriptedModel(["Hi."]), ctx), durable_tools([charge], ctx)["charge"]
            await durable.call({"order": 1}, tool_call_id="s0p0")
            await cancel_run(journal, "r")
            with pytest.raises(CanceledError):
                await durable.call({"order": 2}, tool_call_id="s0p1")
            with pytest.raises(CanceledError):
                await model.generate(ModelRequest(None, (ASKED,)))
            assert await durable.call({"order": 1}, tool_call_id="s0p0") == {"receipt": 1}, "what is recorded stays"
            came_to_its_end.set()

    with pytest.raises(CanceledError):
        await loop()
    assert (came_to_its_end.is_set(), effects.count()) == (True, 1)
    assert (await get(journal, keys.head("r"))).value["status"] == "canceled"


async def test_a_call_cancelled_while_others_claim_never_began(journal, effects):
    entered = asyncio.Event()

    class Slow:
        def __getattr__(self, name):
            return getattr(journal, name)

        async def apply(self, ops, *, batch):
            if any("tool" in op.key for op in ops):
                entered.set()
                await asyncio.sleep(0)
            return await journal.apply(ops, batch=batch)

    async with durable_context(run_id="r", journal=Slow()) as ctx:
        durable = durable_tools([charging(effects)], ctx)["charge"]
        task = asyncio.ensure_future(durable.call({"order": 1}, tool_call_id="s0p0"))
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert effects.count() == 0
        assert await durable.call({"order": 1}, tool_call_id="s0p0") == {"receipt": 1}
    assert effects.count() == 1


async def test_run_durable_does_not_take_over_a_run_whose_messages_it_does_not_have(journal, rows, effects):
    await loop(journal, ScriptedModel(TURNS), [charging(effects)])
    before = await rows.all()
    options = {"run_id": "r", "journal": journal, "model": ScriptedModel(["Hi."])}
    with pytest.raises(ConfigError, match="durable_context"):
        await resume_run(**options)
    with pytest.raises(ConfigError, match="durable_context"):
        await run_durable(prompt="Go.", **options)
    assert await rows.all() == before


async def test_a_sub_agent_is_no_tool_for_a_loop_of_ones_own(journal):
    worker = agent_tool(name="worker", description="d", model=ScriptedModel(["Hi."]))
    async with durable_context(run_id="r", journal=journal) as ctx:
        with pytest.raises(ConfigError, match="worker drives a run"):
            await durable_tools([worker], ctx)["worker"].call({"task": "x"}, tool_call_id="s0p0")


# Crashes -----------------------------------------------------------------------------------------------------------

PROGRAM = """
    import asyncio, gnl_core, os, sys
    from gnl_core import *
    from gnl_core.model.messages import ModelRequest
    from gnl_core.testing.effects import EffectLog
    from gnl_core.testing.scripted import ScriptedModel

    effects = EffectLog({effects!r})

    @tool
    async def charge(order: int) -> dict:
        if order == {dies} and {before}:
            os._exit(9)
        effects.fire("charge", f"order-{{order}}")
        if order == {dies}:
            os._exit(9)
        return {{"receipt": order}}

    async def main():
        storage = {store}
        async with durable_context(run_id="r", journal=storage.runs) as ctx:
            model = with_durable_model(ScriptedModel({turns!r}), ctx)
            durable = durable_tools([charge], ctx)
            messages = [Message("user", (TextPart("Go."),))]
            while True:
                request = ModelRequest("Be brief.", tuple(messages), (charge.spec,))
                response = await model.generate(request)
                messages.append(response.message())
                messages += [await durable[call.name].answer(call) for call in response.tool_calls]

    asyncio.run(main())
"""


@pytest.mark.parametrize("dies", [1, 2, 3])
@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
async def test_l56_a_loop_killed_inside_a_tool_resumes_in_doubt_and_runs_nothing_twice(common, effects, dies, before):
    program = textwrap.dedent(PROGRAM).format(
        effects=str(effects.path), store=common.spelled, turns=TURNS, dies=dies, before=before
    )
    killed = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", program], check=False)
    assert killed.returncode == 9
    call = {1: "s0p0", 2: "s0p1", 3: "s1p0"}[dies]
    charge = charging(effects)
    async with common.open() as storage:
        for _ in range(2):
            with pytest.raises(SideEffectRetryBlockedError) as blocked:
                await loop(storage.runs, ScriptedModel(TURNS), [charge])
            assert [one.question for one in blocked.value.interrupts] == [f"r/{call}/in_doubt/1"]
        await decide(storage.runs, f"r/{call}/in_doubt/1", before, output=MISSING if before else {"receipt": dies})
        model = ScriptedModel(TURNS)
        assert (await loop(storage.runs, model, [charge]))[0] == "Done."
    assert effects.counts() == {f"charge order-{n}": 1 for n in (1, 2, 3)}
