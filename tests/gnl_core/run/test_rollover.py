"""The same work anew: one new run whoever asks, begun with what the old one began with, once that one is settled."""

import asyncio
import subprocess
import sys
import textwrap

import pytest

from gnl_core import (
    Context,
    Duplicates,
    Gnl,
    NotPerformedError,
    RolloverRefusedError,
    RunFollowedError,
    RunLimits,
    agent_tool,
    cancel_run,
    compensate_run,
    decide,
    fork_run,
    keys,
    list_interrupts,
    list_runs,
    purge_run,
    read_idem_ledger,
    read_run,
    resume_run,
    rollover_run,
    rollover_run_sync,
    run_durable,
    sweep_runs,
    tool,
)
from gnl_core.errors import (
    ChildRunError,
    IdInvalidError,
    ModelUnavailableError,
    RunAgentMismatchError,
    RunBusyError,
    RunFencedError,
    RunNotFoundError,
    RunOwnerMismatchError,
    RunSweptError,
    SideEffectRetryBlockedError,
)
from gnl_core.journal import Delete, get, new_batch
from gnl_core.testing.effects import EffectLog
from gnl_core.testing.faulty import Fault, FaultyJournal
from gnl_core.testing.scripted import ScriptedModel
from gnl_core.work import work_key_hash

ONE = [[("charge", {"order": 1})], "Done."]
APRIL = {"work_key": "invoice 2026-04 / 7742", "resource_id": "ann", "prompt": "Issue the April invoice."}
WORK = {name: APRIL[name] for name in ("work_key", "resource_id")}
NOBODY = [AssertionError("asked")]


def charging(effects, **options):
    @tool(**options)
    async def charge(ctx: Context, order: int) -> dict:
        """Charge an order."""
        return effects.fire("charge", f"order-{order}", {"receipt": order})

    return charge


def firm(journal, tools=(), turns=ONE, *, model=None, **options):
    return Gnl(journal, agents={"billing": {"model": model or ScriptedModel(turns), "tools": tools}}, **options)


async def done(journal, effects, run_id="r", turns=ONE, **options):
    return await run_durable(
        run_id=run_id,
        journal=journal,
        model=ScriptedModel(turns),
        tools=[charging(effects)],
        **{"prompt": "Go.", **options},
    )


async def resumed(journal, effects, run_id, turns=ONE):
    return await resume_run(run_id=run_id, journal=journal, model=ScriptedModel(turns), tools=[charging(effects)])


async def value(journal, key):
    entry = await get(journal, key)
    return entry.value if entry is not None else None


async def swept(journal, rows, run_id):
    """Sweep until a run is gone, with a tombstone."""
    async with asyncio.timeout(30):
        while await rows.all(keys.request(run_id)):  # until the store's clock has moved on
            await sweep_runs(journal, older_than_ms=0, tombstones=True)


# A new execution ---------------------------------------------------------------------------------------------------


async def test_a_new_execution_begins_with_what_the_old_one_began_with(journal, effects):
    limits = RunLimits(max_tool_calls=7)
    who = {"resource_id": "ann", "thread_id": "t", "channel": "batch", "actor": "op", "agent": "billing"}
    await done(journal, effects, prompt="Go on.", system="Be brief.", limits=limits, **who)
    assert await rollover_run(journal, "r") == "r@2"
    assert await value(journal, keys.input_of("r@2")) == await value(journal, keys.input_of("r"))
    (new,) = [run for run in (await list_runs(journal)).runs if run.run_id == "r@2"]
    assert (new.status, new.follows, new.steps, new.calls) == ("ready", "r", 0, 0)
    assert (new.resource_id, new.thread_id, new.channel, new.actor, new.agent) == ("ann", "t", "batch", "op", "billing")
    assert (await read_run(journal, "r")).run.followed_by == "r@2"
    assert effects.count() == 1

    model = ScriptedModel(ONE)
    result = await resume_run(run_id="r@2", journal=journal, model=model, tools=[charging(effects)])
    assert (result.run_id, result.text, effects.count()) == ("r@2", "Done.", 2)
    assert [message.text for message in model.requests[0].messages] == ["Go on."]
    assert model.requests[0].system == "Be brief."
    assert [(run.run_id, run.status) for run in (await list_runs(journal, agent="billing")).runs] == [
        ("r@2", "completed"),
        ("r", "completed"),
    ]


async def test_a_second_call_returns_the_same_new_run(journal, rows, effects):
    await done(journal, effects)
    assert [await rollover_run(journal, "r") for _ in range(3)] == ["r@2"] * 3
    await resumed(journal, effects, "r@2")
    before = await rows.values()
    assert await rollover_run(journal, "r") == "r@2"
    assert await rows.values() == before


async def test_two_at_once_get_one_new_run(journal, rows, effects):
    await done(journal, effects)
    assert set(await asyncio.gather(*[rollover_run(journal, "r") for _ in range(8)])) == {"r@2"}
    assert {key for key in await rows.all(("run",)) if key.endswith("/head")} == {
        "run/r/~/head",
        keys.encode(keys.head("r@2")),
    }


async def test_processes_at_once_get_one_new_run(common, effects):
    async with common.open() as storage:
        await done(storage.runs, effects)
    program = f"""
        import asyncio, gnl_core, sys
        from gnl_core import rollover_run

        async def main():
            async with {common.spelled} as storage:
                print("ready", flush=True)
                sys.stdin.readline()
                print(await rollover_run(storage.runs, "r"))

        asyncio.run(main())
    """
    children = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", textwrap.dedent(program), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for _ in range(3)
    ]
    for child in children:
        assert await child.stdout.readline() == b"ready\n"
    for child in children:
        child.stdin.write(b"\n")
    assert {(await child.communicate())[0] for child in children} == {b"r@2\n"}


async def test_executions_are_numbered_on(journal, effects):
    names = ["r"]
    for _ in range(10):
        await done(journal, effects) if names == ["r"] else await resumed(journal, effects, names[-1])
        names.append(await rollover_run(journal, names[-1]))
    assert names == ["r", *(f"r@{number}" for number in range(2, 12))]


async def test_a_name_that_ends_like_an_execution_is_a_name(journal, effects):
    await done(journal, effects, "bob@7")
    assert await rollover_run(journal, "bob@7") == "bob@7@2"
    await resumed(journal, effects, "bob@7@2")
    assert await rollover_run(journal, "bob@7@2") == "bob@7@3"


async def test_an_execution_that_was_not_driven_yet_is_the_new_one(journal, effects):
    await done(journal, effects)
    assert await rollover_run(journal, await rollover_run(journal, "r")) == "r@2"
    assert await value(journal, keys.head("r@3")) is None


async def test_a_store_that_breaks_off_makes_one_new_run_all_the_same(journal, effects):
    await done(journal, effects)
    for when in ("before", "after"):
        faulty = FaultyJournal(journal, fault=Fault(number=1, when=when, action="unknown"))
        assert await rollover_run(faulty, "r") == "r@2"
    assert await value(journal, keys.head("r@3")) is None
    assert (await resumed(journal, effects, "r@2")).text == "Done."


async def test_nothing_is_left_of_a_rollover_that_a_store_refuses(journal, rows, effects):
    await done(journal, effects)
    before = await rows.values()
    faulty = FaultyJournal(journal, fault=Fault(number=1, action="unavailable", times=9))
    with pytest.raises(Exception, match="unavailable"):
        await rollover_run(faulty, "r")
    assert await rows.values() == before


# Slots -------------------------------------------------------------------------------------------------------------


async def test_a_slot_that_is_taken_is_passed_over_and_left_as_it_is(journal, rows, effects):
    await done(journal, effects)
    await done(journal, effects, "r@2", resource_id="bob")
    await rows.put(("run", "r@3", "~", "evidence", "s0p0", "001"), {"f": 1})
    before = await rows.values(keys.request("r@2"))
    assert await rollover_run(journal, "r") == "r@4"
    assert await rows.values(keys.request("r@2")) == before


async def test_a_slot_that_was_swept_is_passed_over(journal, rows, effects):
    await done(journal, effects, "r@2")
    await swept(journal, rows, "r@2")
    await done(journal, effects)
    assert await rollover_run(journal, "r") == "r@3"
    assert await rows.all(keys.request("r@2")) == {}


class Meanwhile:
    """A store in which something else happens right before the first batch."""

    def __init__(self, inner, happens):
        self.inner, self.happens = inner, happens

    def __getattr__(self, name):
        return getattr(self.inner, name)

    async def apply(self, ops, *, batch):
        happens, self.happens = self.happens, None
        if happens is not None:
            await happens()
        return await self.inner.apply(ops, batch=batch)


async def test_a_slot_that_is_taken_at_the_last_moment_is_passed_over(journal, rows, effects):
    await done(journal, effects)
    assert await rollover_run(Meanwhile(journal, lambda: done(journal, effects, "r@2")), "r") == "r@3"
    await done(journal, effects, "s")
    happens = Meanwhile(journal, lambda: rows.put(keys.swept("s@2"), {"f": 1, "at": 1}))
    assert await rollover_run(happens, "s") == "s@3"


async def test_what_is_begun_at_the_last_moment_is_settled_first(journal, effects):
    with pytest.raises(ModelUnavailableError):
        await done(journal, effects, turns=[ModelUnavailableError("down")])
    charge = charging(effects, confirm=True)

    async def drive():
        await resume_run(run_id="r", journal=journal, model=ScriptedModel(ONE), tools=[charge])

    with pytest.raises(RolloverRefusedError, match="waits for a person"):
        await rollover_run(Meanwhile(journal, drive), "r")
    assert await value(journal, keys.head("r@2")) is None


async def test_an_id_that_would_be_too_long_is_refused(journal, effects):
    long = "r" * keys.MAX_ID
    await done(journal, effects, long)
    with pytest.raises(IdInvalidError):
        await rollover_run(journal, long)


# What is not settled -----------------------------------------------------------------------------------------------


async def test_a_run_that_is_driven_is_busy(journal, effects):
    model = ScriptedModel(ONE, gate=(gate := asyncio.Event()))
    drive = run_durable(run_id="r", journal=journal, model=model, tools=[charging(effects)], prompt="Go.")
    task = asyncio.ensure_future(drive)
    await model.entered.wait()
    with pytest.raises(RunBusyError):
        await rollover_run(journal, "r")
    gate.set()
    assert (await task).text == "Done."


async def test_a_run_that_waits_for_a_person_is_refused_until_it_is_over(journal, rows, effects):
    charge = charging(effects, confirm=True)
    drive = {"run_id": "r", "journal": journal, "model": ScriptedModel(ONE), "tools": [charge], "prompt": "Go."}
    (asked,) = (await run_durable(**drive)).interrupts
    before = await rows.values()
    for _ in range(2):  # an answer that nobody acted on ends nothing
        with pytest.raises(RolloverRefusedError, match="waits for a person") as refused:
            await rollover_run(journal, "r")
        assert refused.value.detail["why"] == "suspended"
        if await rows.values() == before:
            await decide(journal, asked.question, True)
    await run_durable(**drive)
    assert await rollover_run(journal, "r") == "r@2"


async def test_so_is_one_that_was_killed_while_it_was_driven_to_its_answer(journal, rows, effects):
    charge = charging(effects, confirm=True)
    await run_durable(run_id="r", journal=journal, model=ScriptedModel(ONE), tools=[charge], prompt="Go.")
    await rows.put(keys.head("r"), {**(await value(journal, keys.head("r"))), "status": "running"})
    with pytest.raises(RolloverRefusedError, match="waits for a person") as refused:
        await rollover_run(journal, "r")
    assert refused.value.detail["calls"] == ["r/s0p0 (charge)"]


async def test_a_canceled_run_is_over_though_it_waited(journal, effects):
    charge = charging(effects, confirm=True)
    await run_durable(run_id="r", journal=journal, model=ScriptedModel(ONE), tools=[charge], prompt="Go.")
    await cancel_run(journal, "r")
    assert await rollover_run(journal, "r") == "r@2"
    result = await resume_run(run_id="r@2", journal=journal, model=ScriptedModel(ONE), tools=[charge])
    assert (len(result.interrupts), effects.count()) == (1, 0)


@pytest.mark.parametrize("options", [{}, {"idempotency": "args"}, {"idempotency": "args", "window": "cross-run"}])
async def test_a_run_with_a_call_in_doubt_is_refused_until_it_is_settled(journal, effects, options):
    @tool(**options)
    async def charge(ctx: Context, order: int) -> dict:
        """Charge, and break off."""
        effects.fire("charge", f"order-{order}")
        raise ConnectionError("reset")

    drive = {"journal": journal, "model": ScriptedModel(ONE), "tools": [charge]}
    assert (await run_durable(run_id="r", **drive, prompt="Go.")).text == "Done."
    with pytest.raises(RolloverRefusedError, match="nobody knows"):  # it is over, and not settled for all that
        await rollover_run(journal, "r")
    with pytest.raises(SideEffectRetryBlockedError):
        await resume_run(run_id="r", **drive)
    with pytest.raises(RolloverRefusedError, match="nobody knows") as refused:
        await rollover_run(journal, "r")
    assert (refused.value.detail["why"], refused.value.detail["calls"]) == ("in_doubt", ["r/s0p0 (charge)"])
    (asked,) = await list_interrupts(journal, "r")
    await decide(journal, asked.question, False)
    await resume_run(run_id="r", **drive)
    assert await rollover_run(journal, "r") == "r@2"
    assert effects.count() == 1


async def test_a_call_in_doubt_of_a_sub_agent_refuses_too(journal, effects):
    @tool
    async def charge(order: int) -> dict:
        """Charge, and break off."""
        effects.fire("charge", f"order-{order}")
        raise ConnectionError("reset")

    clerk = agent_tool(name="clerk", description="Charge it.", model=ScriptedModel(ONE), tools=[charge])
    turns = [[("clerk", {"task": "Charge it."})], "Done."]
    drive = {"run_id": "r", "journal": journal, "model": ScriptedModel(turns), "tools": [clerk]}
    await run_durable(**drive, prompt="Go.")
    with pytest.raises(SideEffectRetryBlockedError):
        await resume_run(**drive)
    child = keys.child_id("r", keys.ROOT, "s0p0")
    with pytest.raises(RolloverRefusedError) as refused:
        await rollover_run(journal, "r")
    assert refused.value.detail["calls"] == [f"{child}/s0p0 (charge)"]
    with pytest.raises(ChildRunError):
        await rollover_run(journal, child)


KILLED = """
    import asyncio, gnl_core, os
    from gnl_core import run_durable, tool
    from gnl_core.testing.scripted import ScriptedModel

    @tool(side_effect={side_effect})
    async def charge(order: int) -> dict:
        "Charge."
        os._exit(9)

    async def main():
        async with {store} as storage:
            await run_durable(run_id="r", journal=storage.runs, model=ScriptedModel({turns!r}), tools=[charge],
                              prompt="Go.")

    asyncio.run(main())
"""


@pytest.mark.parametrize("side_effect", [True, False])
async def test_a_run_that_was_killed_is_refused_for_what_it_may_have_done_alone(common, place, side_effect):
    program = textwrap.dedent(KILLED.format(side_effect=side_effect, store=common.spelled, turns=ONE))
    async with common.open() as storage:
        await storage.runs.now()
        ended = await asyncio.create_subprocess_exec(sys.executable, "-c", program)
        assert await ended.wait() == 9
        if side_effect:
            with pytest.raises(RolloverRefusedError, match="nobody knows"):
                await rollover_run(storage.runs, "r")
            return
        assert await rollover_run(storage.runs, "r") == "r@2"
        assert (await resumed(storage.runs, EffectLog(place / "e.jsonl"), "r@2")).text == "Done."


async def test_effects_that_are_being_undone_are_refused_while_one_undoing_is_in_doubt(journal, effects):
    broken = [True]

    def undo(order: int, output: dict):
        if broken:
            raise (ConnectionError if broken == [True] else NotPerformedError)("reset")
        effects.fire("refund", "order-1")

    charge = charging(effects, compensate=undo)
    await run_durable(run_id="r", journal=journal, model=ScriptedModel(ONE), tools=[charge], prompt="Go.")
    await compensate_run(journal=journal, run_id="r", tools=[charge])
    with pytest.raises(RolloverRefusedError) as refused:
        await rollover_run(journal, "r")
    assert refused.value.detail["why"] == "undoing"
    broken.clear()
    await compensate_run(journal=journal, run_id="r", tools=[charge], settle={"r/s0p0": False})
    assert effects.counts() == {"charge order-1": 1, "refund order-1": 1}
    assert await rollover_run(journal, "r") == "r@2"
    result = await resume_run(run_id="r@2", journal=journal, model=ScriptedModel(ONE), tools=[charge])
    assert (result.text, effects.count()) == ("Done.", 3)


@pytest.mark.parametrize("member", ["erasing", "forking"])
async def test_a_run_that_is_half_gone_or_half_made_is_refused(journal, rows, effects, member):
    await done(journal, effects)
    key = keys.head("r")
    await rows.put(key, {**(await value(journal, key)), member: True})
    with pytest.raises(RolloverRefusedError) as refused:
        await rollover_run(journal, "r")
    assert refused.value.detail["why"] == member


async def test_what_is_no_run_is_told_apart(journal, rows, effects):
    with pytest.raises(RunNotFoundError):
        await rollover_run(journal, "r")
    for nothing in (None, 5, b"r"):
        with pytest.raises(IdInvalidError, match="run_id"):
            await rollover_run(journal, nothing)
    await done(journal, effects)
    await swept(journal, rows, "r")
    with pytest.raises(RunSweptError):
        await rollover_run(journal, "r")
    item = keys.item_run_id("b", "i")
    await rows.put(keys.head(item), {"f": 1, "status": "completed"})
    await rows.put(
        keys.input_of(item), {"f": 1, "kind": "item", "job": {}, "messages": [], "system": None, "limits": {}}
    )
    with pytest.raises(RolloverRefusedError) as refused:
        await rollover_run(journal, item)
    assert refused.value.detail["why"] == "item"


# The old run -------------------------------------------------------------------------------------------------------


async def test_the_old_run_is_replayed_if_it_was_done(journal, effects):
    await done(journal, effects)
    await rollover_run(journal, "r")
    assert (await done(journal, effects, turns=NOBODY)).text == "Done."
    assert (await read_run(journal, "r")).run.followed_by == "r@2"
    assert effects.count() == 1


async def test_the_old_run_does_not_go_on_beside_the_new_one(journal, rows, effects):
    with pytest.raises(ModelUnavailableError):
        await done(journal, effects, turns=[ONE[0], ModelUnavailableError("down")])
    await rollover_run(journal, "r")
    before = await rows.values()
    with pytest.raises(RunFollowedError, match="'r@2'") as refused:
        await done(journal, effects, turns=NOBODY)
    assert refused.value.detail["next"] == "r@2"
    assert await rows.values() == before


async def test_a_driver_that_seemed_dead_writes_nothing_after_the_rollover(journal, effects):
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

        def __init__(self, inner):
            self.inner = inner

        def __getattr__(self, name):
            return getattr(self.inner, name)

        async def apply(self, ops, *, batch):
            if any(op.key == keys.beat("r") for op in ops):
                ops = [op for op in ops if op.key != keys.beat("r")]
            return await self.inner.apply(ops, batch=batch)

    turns = [[("stock", {"order": 1})], *ONE]
    tools = [stock, charging(effects)]
    drive = run_durable(
        run_id="r", journal=Silent(journal), model=ScriptedModel(turns), tools=tools, prompt="Go.", lock_ttl=0.001
    )
    task = asyncio.ensure_future(drive)
    await entered.wait()
    async with asyncio.timeout(30):
        while True:
            try:
                assert await rollover_run(journal, "r") == "r@2"
                break
            except RunBusyError:  # until the store's clock has moved on
                continue
    go_on.set()
    with pytest.raises(RunFencedError):
        await task
    assert effects.count() == 0


# What still looks across runs --------------------------------------------------------------------------------------


async def test_effects_of_the_old_run_are_done_again_unless_something_looks_across_runs(journal, effects):
    await done(journal, effects)
    await resumed(journal, effects, await rollover_run(journal, "r"))
    assert effects.count() == 2

    shared = {
        "thread_id": "t",
        "limits": RunLimits(side_effect_duplicates=Duplicates(action="suspend", scope="thread")),
    }
    await done(journal, effects, "s", [[("charge", {"order": 2})], "Done."], **shared)
    new = await rollover_run(journal, "s")
    (asked,) = (await resumed(journal, effects, new, [[("charge", {"order": 2})], "Done."])).interrupts
    assert (asked.kind, asked.run_id) == ("duplicate", "s@2")
    assert effects.counts() == {"charge order-1": 2, "charge order-2": 1}


async def test_work_that_is_recorded_across_runs_is_replayed_in_the_new_one(journal, effects):
    charge = charging(effects, idempotency="args", window="cross-run")
    drive = {"journal": journal, "model": ScriptedModel(ONE), "tools": [charge]}
    await run_durable(run_id="r", **drive, prompt="Go.")
    result = await resume_run(run_id=await rollover_run(journal, "r"), **drive)
    assert ([one.origin for one in result.replayed_tool_calls], effects.count()) == (["window"], 1)


# Named work --------------------------------------------------------------------------------------------------------


async def test_the_work_key_goes_to_the_newest_execution_and_a_run_id_to_that_run(journal, effects):
    gnl = firm(journal, [charging(effects)])
    first = (await gnl.run("billing", **APRIL)).run_id
    for number in (2, 3):
        new = await gnl.rollover("billing", **WORK)
        assert new == f"{first}#{number}"
        assert await gnl.rollover("billing", **WORK) == new  # not driven yet: there is nothing to begin anew
        result = await gnl.run("billing", **APRIL)
        assert (result.run_id, effects.count()) == (new, number)
    again = firm(journal, [charging(effects)], NOBODY)
    assert (await again.run("billing", **APRIL)).run_id == f"{first}#3"
    assert (await again.resume("billing", **WORK)).run_id == f"{first}#3"
    async with await again.stream("billing", **APRIL) as stream:
        assert (stream.run_id, await stream.text) == (f"{first}#3", "Done.")
    for run_id in (first, f"{first}#2", f"{first}#3"):
        assert (await again.run("billing", run_id=run_id, prompt=APRIL["prompt"])).run_id == run_id
    assert gnl.run_id_of("billing", APRIL["work_key"], resource_id="ann") == first
    assert effects.count() == 3


async def test_the_newest_execution_is_found_though_the_earlier_ones_are_gone(journal, rows, effects):
    gnl = firm(journal, [charging(effects)])
    first = (await gnl.run("billing", **APRIL)).run_id
    for _ in range(2):
        await gnl.rollover("billing", **WORK)
        newest = (await gnl.run("billing", **APRIL)).run_id
    await purge_run(journal, first)
    await purge_run(journal, f"{first}#2")
    result = await firm(journal, [charging(effects)], NOBODY).run("billing", **APRIL)
    assert (result.run_id, effects.count()) == (newest, 3)
    assert await gnl.rollover("billing", **WORK) == f"{first}#4"


async def test_a_newest_execution_that_was_swept_is_refused_though_an_earlier_one_is_there(journal, rows, effects):
    gnl = firm(journal, [charging(effects)])
    first = (await gnl.run("billing", **APRIL)).run_id
    new = await gnl.rollover("billing", **WORK)
    await gnl.run("billing", **APRIL)
    kept = await rows.all(keys.request(first))
    await swept(journal, rows, new)
    for key, entry in kept.items():
        await rows.put(key, entry.value, entry.blob)
    with pytest.raises(RunSweptError) as refused:
        await gnl.run("billing", **APRIL)
    assert refused.value.detail["work_key"] == APRIL["work_key"]
    assert effects.count() == 2


@pytest.mark.parametrize("gone", [1, 2])
async def test_a_newest_execution_that_was_swept_is_refused_though_the_earlier_ones_left_no_word(
    journal, rows, effects, gone
):
    gnl = firm(journal, [charging(effects)])
    first = (await gnl.run("billing", **APRIL)).run_id
    for _ in range(gone):
        new = await gnl.rollover("billing", **WORK)
        await gnl.run("billing", **APRIL)
    fork = f"{first}#fork-1"
    await rows.put(keys.swept(fork), {"f": 1, "at": 1})  # stands among them, and is no execution
    await rows.put(keys.swept("run1_" + "f" * 32), {"f": 1, "at": 1})
    for earlier in (first, f"{first}#2")[:gone]:
        await purge_run(journal, earlier)
    await swept(journal, rows, new)
    with pytest.raises(RunSweptError):
        await gnl.run("billing", **APRIL)
    assert effects.count() == gone + 1
    await purge_run(journal, new)
    await journal.apply([Delete(keys.swept(new))], batch=new_batch())
    assert (await gnl.run("billing", **APRIL)).run_id == first, "a fork's tombstone says nothing of the work"


async def test_a_newest_execution_that_was_purged_is_begun_again_in_its_place(journal, effects):
    gnl = firm(journal, [charging(effects)])
    first = (await gnl.run("billing", **APRIL)).run_id
    new = await gnl.rollover("billing", **WORK)
    await gnl.run("billing", **APRIL)
    await purge_run(journal, new)
    assert (await gnl.run("billing", **APRIL)).run_id == new
    await purge_run(journal, first)
    assert (await gnl.run("billing", **APRIL)).run_id == new
    assert effects.count() == 3


async def test_markers_that_lead_in_a_circle_end(journal, rows, effects):
    gnl = firm(journal, [charging(effects)])
    first = (await gnl.run("billing", **APRIL)).run_id
    new = await gnl.rollover("billing", **WORK)
    await gnl.run("billing", **APRIL)
    await rows.put(keys.rollover(new), {"f": 1, "next": first})
    assert (await gnl.run("billing", **APRIL)).run_id == new


async def test_new_content_under_the_old_name_is_refused_as_ever(journal, effects):
    gnl = firm(journal, [charging(effects)])
    await gnl.run("billing", **APRIL)
    await gnl.rollover("billing", **WORK)
    with pytest.raises(Exception, match="other content") as refused:
        await gnl.run("billing", **{**APRIL, "prompt": "Issue the May invoice."})
    assert refused.value.code == "run_input_mismatch"
    assert effects.count() == 1


async def test_failed_work_is_begun_anew_where_it_would_have_gone_on(journal, effects):
    broken = [ONE[0], ModelUnavailableError("down")]
    with pytest.raises(ModelUnavailableError):
        await firm(journal, [charging(effects)], broken).run("billing", **APRIL)
    gnl = firm(journal, [charging(effects)])
    new = await gnl.rollover("billing", **WORK)
    assert ((await gnl.run("billing", **APRIL)).run_id, effects.count()) == (new, 2)


async def test_whose_work_is_rolled_over(journal, effects):
    gnl = firm(journal, [charging(effects)])
    first = (await gnl.run("billing", **APRIL)).run_id
    with pytest.raises(RunOwnerMismatchError) as refused:
        await gnl.rollover("billing", run_id=first, resource_id="bob")
    assert "ann" not in str(refused.value)
    with pytest.raises(RunNotFoundError) as missing:
        await gnl.rollover("billing", work_key=APRIL["work_key"], resource_id="bob")
    assert missing.value.detail["work_key"] == APRIL["work_key"]
    with pytest.raises(RunAgentMismatchError):
        await rollover_run(journal, first, agent="support")
    with pytest.raises(Exception, match="resource_id"):
        await gnl.rollover("billing", work_key=APRIL["work_key"])
    with pytest.raises(Exception, match="never by both"):
        await gnl.rollover("billing", **WORK, run_id=first)
    assert await gnl.rollover("billing", run_id=first, resource_id="ann") == f"{first}#2"


async def test_a_refused_rollover_is_noted_like_a_refused_drive(journal, effects):
    gnl = firm(journal, [charging(effects)], conflict_ledger=True)
    first = (await gnl.run("billing", **APRIL)).run_id
    await gnl.run("billing", run_id="mine", resource_id="ann", prompt="Go.")
    for run_id in (first, "mine"):
        with pytest.raises(RunOwnerMismatchError):
            await gnl.rollover("billing", run_id=run_id, resource_id="bob")
    model = ScriptedModel(ONE, gate=(gate := asyncio.Event()))
    task = asyncio.ensure_future(firm(journal, model=model).run("billing", **{**APRIL, "work_key": "May"}))
    await model.entered.wait()
    with pytest.raises(RunBusyError):
        await gnl.rollover("billing", **{**WORK, "work_key": "May"})
    task.cancel()
    await asyncio.wait({task})
    noted = {(one.run_id, one.code, one.work_key_hash) for one in await read_idem_ledger(journal)}
    assert noted == {
        (first, "run_owner_mismatch", None),
        ("mine", "run_owner_mismatch", None),
        (gnl.run_id_of("billing", "May", resource_id="ann"), "run_busy", work_key_hash("May")),
    }
    gate.set()


async def test_a_fork_of_named_work_is_no_execution_of_it(journal, effects):
    gnl = firm(journal, [charging(effects)])
    first = (await gnl.run("billing", **APRIL)).run_id
    fork = await fork_run(journal=journal, run_id=first, step=0, new_run_id=f"{first}#fork-1")
    await resumed(journal, effects, fork)
    with pytest.raises(RolloverRefusedError) as refused:
        await rollover_run(journal, fork)
    assert refused.value.detail["why"] == "suffix"
    assert (await firm(journal, (), NOBODY).run("billing", **APRIL)).run_id == first


async def test_a_run_under_a_later_execution_s_id_is_none_and_takes_no_work_over(journal, effects):
    gnl = firm(journal, [charging(effects)])
    first = (await gnl.run("billing", **APRIL)).run_id
    await gnl.run("billing", run_id=f"{first}#7", prompt="Something else.", resource_id="ann")
    with pytest.raises(RolloverRefusedError) as refused:
        await rollover_run(journal, f"{first}#7")
    assert refused.value.detail["why"] == "suffix"
    assert (await firm(journal, (), NOBODY).run("billing", **APRIL)).run_id == first
    assert await gnl.rollover("billing", **WORK) == f"{first}#2"


async def test_nothing_of_an_execution_is_left_once_it_is_purged(journal, rows, effects):
    gnl = firm(journal, [charging(effects)])
    first = (await gnl.run("billing", **APRIL)).run_id
    new = await gnl.rollover("billing", **WORK)
    assert {keys.decode(key)[1] for key in await rows.all(("ix",))} == {"status", "agent", "res", "work", "exec"}
    await gnl.run("billing", **APRIL)
    for run_id in (first, new):
        await purge_run(journal, run_id)
    assert await rows.all(("ix",)) == {}
    assert await rows.all(("run",)) == {}


def test_without_await(new_store, effects):
    where = new_store("sqlite")
    with where.open() as storage:
        gnl = firm(storage.runs, [charging(effects)])
        first = gnl.run_sync("billing", **APRIL).run_id
        assert gnl.rollover_sync("billing", **WORK) == f"{first}#2"
        assert rollover_run_sync(storage.runs, first) == f"{first}#2"
