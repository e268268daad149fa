"""Repeats within a conversation: the marker, its age, and who holds it when two processes race, or one is killed."""

import asyncio
import subprocess
import sys
import textwrap

import pytest

from gnl_core import (
    Context,
    Duplicates,
    DuplicateSideEffectError,
    InMemoryStorage,
    NotPerformedError,
    RunLimits,
    args_hash,
    decide,
    fork_run,
    keys,
    read_incidents,
    run_durable,
    tool,
)
from gnl_core.errors import SideEffectRetryBlockedError
from gnl_core.journal import get
from gnl_core.testing.scripted import ScriptedModel

CHARGE = [("charge", {"amount": 1})]
ONCE = [CHARGE, "done"]
MARKER = keys.marker(keys.thread_scope("t"), "charge", args_hash({"amount": 1}))


def charging(effects, *, fails=0, error=RuntimeError, **options):
    @tool(**options)
    def charge(amount: int, ctx: Context) -> str:
        effects.fire("charge", ctx)
        if effects.fired <= fails:
            raise error("the line went dead")
        return f"receipt {effects.fired}"

    return charge


async def drive(journal, tools, turns=ONCE, *, run_id="a", action="suspend", ttl_ms=None, **options):
    options.setdefault("thread_id", "t")
    options.setdefault("prompt", "go")
    rule = Duplicates(action=action, scope="thread", ttl_ms=ttl_ms)
    return await run_durable(
        run_id=run_id,
        journal=journal,
        model=ScriptedModel(turns),
        tools=tools,
        limits=RunLimits(side_effect_duplicates=rule),
        **options,
    )


async def state(journal):
    entry = await get(journal, MARKER)
    return None if entry is None else (entry.value["run"], entry.value["call"], entry.value["state"])


# Another run of the conversation -------------------------------------------------------------------------------------


async def test_l47_a_repeat_in_another_run_of_the_conversation_is_asked(journal, effects):
    await drive(journal, [charging(effects)], channel="chat")
    assert await state(journal) == ("a", "s0p0", "done")
    (question,) = (await drive(journal, [charging(effects)], run_id="b")).interrupts
    assert (question.question, effects.count()) == ("b/s0p0/duplicate/0", 1)
    prior = question.prior
    assert (prior["origin"], prior["run_id"], prior["tool_call_id"]) == ("exact", "a", "s0p0")
    assert prior["channel"] == "chat"
    assert "via chat" in question.reason
    await decide(journal, question.question, True)
    assert (await drive(journal, [charging(effects)], run_id="b")).text == "done"
    assert (effects.count(), await state(journal)) == (2, ("a", "s0p0", "done")), "whoever was first stays first"


@pytest.mark.parametrize("other", [{"thread_id": "t2"}, {"thread_id": None}])
async def test_another_conversation_is_not_asked(journal, effects, other):
    await drive(journal, [charging(effects)])
    assert (await drive(journal, [charging(effects)], run_id="b", **other)).text == "done"
    assert effects.count() == 2


async def test_a_no_in_one_request_is_no_answer_in_the_next(journal, effects):
    await drive(journal, [charging(effects)])
    await drive(journal, [charging(effects)], run_id="b")
    await decide(journal, "b/s0p0/duplicate/0", False)
    assert (await drive(journal, [charging(effects)], run_id="b")).text == "done"
    (question,) = (await drive(journal, [charging(effects)], run_id="c")).interrupts
    assert (question.prior["run_id"], effects.count()) == ("a", 1)


async def test_block_names_the_run_that_did_it(journal, effects):
    await drive(journal, [charging(effects)])
    with pytest.raises(DuplicateSideEffectError) as blocked:
        await drive(journal, [charging(effects)], run_id="b", action="block")
    assert (blocked.value.detail["first_run"], blocked.value.detail["run_id"]) == ("a", "b")
    assert "run/b/~/tool/000000/000" not in {keys.encode(e.key) for e in (await journal.scan(("run", "b"))).entries}


async def test_what_the_model_reads_promises_no_result_that_it_was_never_given(journal, effects):
    await drive(journal, [charging(effects)])
    for action, run_id in (("reflect", "b"), ("skip", "c")):
        result = await drive(journal, [charging(effects)], run_id=run_id, action=action)
        (text,) = [part.text for message in result.messages if message.role == "tool" for part in message.parts]
        assert "did not run" in text
        assert "above" not in text
        assert "this request" not in text


async def test_warn_runs_it_in_each_run_and_notes_each_once(journal, effects):
    for run_id in ("a", "b", "c"):
        await drive(journal, [charging(effects)], run_id=run_id, action="warn")
    assert effects.count() == 3
    found = await read_incidents(journal)
    assert [(one.run_id, one.action, one.detail["first_run"]) for one in found] == [
        ("b", "warn", "a"),
        ("c", "warn", "a"),
    ]


async def test_off_leaves_no_marker(journal, effects):
    await drive(journal, [charging(effects)], action="off")
    assert await state(journal) is None


async def test_a_fork_meets_the_conversations_marker(journal, effects):
    await drive(journal, [charging(effects)])
    await fork_run(journal=journal, run_id="a", step=0, new_run_id="f")
    result = await drive(journal, [charging(effects)], run_id="f", prompt=None)
    assert ([one.question for one in result.interrupts], effects.count()) == (["f/s0p0/duplicate/0"], 1)


async def test_two_organisations_do_not_meet(journal, effects):
    for scope in (journal, journal.scoped("one"), journal.scoped("two")):
        assert (await drive(scope, [charging(effects)], action="block")).text == "done"
    assert effects.count() == 3


async def test_a_run_whose_rows_are_deleted_and_that_is_begun_anew_is_asked(journal, effects):
    await drive(journal, [charging(effects)])
    await journal.delete_prefix(keys.request("a"))
    (question,) = (await drive(journal, [charging(effects)])).interrupts
    assert (question.question, effects.count()) == ("a/s0p0/duplicate/0", 1)
    await decide(journal, question.question, True)
    assert ((await drive(journal, [charging(effects)])).text, effects.count()) == ("done", 2)


async def test_l47_where_the_conversation_is_deleted_it_runs(journal, effects):
    await drive(journal, [charging(effects)])
    await journal.delete_prefix(keys.thread_scope("t"))
    assert ((await drive(journal, [charging(effects)], run_id="b")).text, effects.count()) == ("done", 2)


async def test_a_tool_in_the_name_of_another_is_not_met(journal, effects):
    """'order' and 'order-cancel', a thread 'a' and one called 'a/dup/…': keys are whole segments."""

    @tool(name="order")
    def order(x: int) -> str:
        return "ordered"

    @tool(name="order-cancel")
    def cancel(x: int) -> str:
        return "canceled"

    turns = [[("order", {"x": 1})], [("order-cancel", {"x": 1})], "done"]
    assert (await drive(journal, [order, cancel], turns, action="block")).text == "done"
    assert (await drive(journal, [order, cancel], turns, run_id="b", thread_id="t/dup/order", action="block")).text


# Age -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("later_ms", "asked"), [(60_000, True), (60_001, False)])
async def test_earlier_work_counts_until_its_ttl_by_the_stores_clock(effects, later_ms, asked):
    seconds = [1_000_000.0]
    async with InMemoryStorage(clock=lambda: seconds[0]) as storage:
        await drive(storage.runs, [charging(effects)], ttl_ms=60_000)
        seconds[0] += later_ms / 1000
        result = await drive(storage.runs, [charging(effects)], run_id="b", ttl_ms=60_000)
        assert (bool(result.interrupts), effects.count()) == (asked, 1 if asked else 2)
        if asked:
            assert "1 min ago" in result.interrupts[0].reason
            return
        # Whoever came after it is the first now: the age counts from there.
        assert (await state(storage.runs)) == ("b", "s0p0", "done")
        (question,) = (await drive(storage.runs, [charging(effects)], run_id="c", ttl_ms=60_000)).interrupts
        assert question.prior["run_id"] == "b"


async def test_without_a_ttl_it_counts_for_ever(effects):
    seconds = [1_000_000.0]
    async with InMemoryStorage(clock=lambda: seconds[0]) as storage:
        await drive(storage.runs, [charging(effects)])
        seconds[0] += 400 * 86_400
        (question,) = (await drive(storage.runs, [charging(effects)], run_id="b")).interrupts
        assert "400 days ago" in question.reason


async def test_the_ttl_holds_within_a_request_too(effects):
    seconds = [1_000_000.0]

    def later(request):
        seconds[0] += 120
        return CHARGE

    async with InMemoryStorage(clock=lambda: seconds[0]) as storage:
        charge, model = charging(effects), ScriptedModel([CHARGE, later, "done"])
        for ttl, run_id in ((60_000, "a"), (None, "b")):
            result = await run_durable(
                run_id=run_id,
                journal=storage.runs,
                model=model,
                tools=[charge],
                prompt="go",
                limits=RunLimits(side_effect_duplicates=Duplicates(ttl_ms=ttl)),
            )
            if ttl is not None:
                assert (result.text, effects.count()) == ("done", 2)
    assert "2 min ago" in result.interrupts[0].reason, "by the clock as it is, and not as it was before the model spoke"


# What becomes of the marker ------------------------------------------------------------------------------------------


async def test_l41_a_failure_releases_it_and_a_retry_of_the_conversation_runs(journal, effects):
    charge = charging(effects, fails=1)
    await drive(journal, [charge], max_steps=1)
    assert await state(journal) == ("a", "s0p0", "released")
    assert (await drive(journal, [charge], run_id="b", action="block")).text == "done"
    assert await state(journal) == ("b", "s0p0", "done")
    assert effects.count() == 2


async def test_work_that_did_not_happen_for_certain_is_tried_again_within_the_request(journal, effects):
    charge = charging(effects, fails=1, error=NotPerformedError)
    result = await drive(journal, [charge], [CHARGE, CHARGE, "done"], action="block")
    assert (result.text, await state(journal)) == ("done", ("a", "s1p0", "done"))


async def test_a_second_attempt_holds_it_again_while_it_is_under_way(journal, effects):
    seen = []

    @tool
    async def charge(amount: int, ctx: Context) -> str:
        seen.append(await state(journal))
        if len(seen) == 1:
            raise RuntimeError("the line went dead")
        return "ok"

    await drive(journal, [charge], max_steps=1)
    await decide(journal, "a/s0p0/in_doubt/1", True)
    await drive(journal, [charge])
    assert seen == [("a", "s0p0", "in_flight")] * 2
    assert await state(journal) == ("a", "s0p0", "done")


async def test_a_claim_whose_body_never_began_releases_it(journal, effects):
    """A step is cancelled between its claims and its bodies."""

    class Stops:
        def __getattr__(self, name):
            return getattr(journal, name)

        async def apply(self, ops, *, batch):
            outcome = await journal.apply(ops, batch=batch)
            if any(op.key == keys.tool("a", keys.ROOT, 0, 1) for op in ops):
                task.cancel()
                await asyncio.sleep(0)
            return outcome

    turns = [[*CHARGE, ("charge", {"amount": 2})], "done"]
    task = asyncio.create_task(drive(Stops(), [charging(effects)], turns))
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (effects.count(), await state(journal)) == (0, ("a", "s0p0", "released"))
    result = await drive(journal, [charging(effects)], run_id="b", action="block")
    assert (result.text, effects.count()) == ("done", 1)


async def test_a_timeout_leaves_it_under_way(journal, effects):
    never = asyncio.Event()

    @tool(timeout=0.05)
    async def charge(amount: int, ctx: Context) -> str:
        effects.fire("charge", ctx)
        await never.wait()
        return "never"

    with pytest.raises(Exception, match="longer than"):
        await drive(journal, [charge])
    assert await state(journal) == ("a", "s0p0", "in_flight")
    (question,) = (await drive(journal, [charge], run_id="b")).interrupts
    assert (question.prior["in_flight"], effects.count()) == (True, 1)
    assert "had not ended when this was asked" in question.reason


# Processes -----------------------------------------------------------------------------------------------------------

PROGRAM = """
    import asyncio, gnl_core, os, sys
    from pathlib import Path
    from gnl_core import Context, Duplicates, RunLimits, run_durable, tool
    from gnl_core.testing.effects import EffectLog
    from gnl_core.testing.scripted import ScriptedModel

    place, store, run_id, mode = Path(sys.argv[1]), *sys.argv[2:]
    effects = EffectLog(place / "effects.jsonl")

    @tool
    async def charge(amount: int, ctx: Context) -> str:
        effects.fire("charge", ctx)
        if mode == "dies":
            os._exit(9)
        while not (place / "go").exists():
            await asyncio.sleep(0.002)
        return "receipt"

    async def main():
        rule = Duplicates(action="suspend", scope="thread")
        async with eval(store) as storage:
            print("ready", flush=True)
            if mode == "races":
                sys.stdin.readline()
            result = await run_durable(
                run_id=run_id, journal=storage.runs, model=ScriptedModel([[("charge", {"amount": 1})], "done"]),
                tools=[charge], prompt="go", thread_id="t", limits=RunLimits(side_effect_duplicates=rule),
            )
            if result.interrupts:
                (place / "go").touch()
            print(result.text or result.interrupts[0].question, flush=True)

    asyncio.run(main())
"""


async def start(place, common, run_id, mode):
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        textwrap.dedent(PROGRAM),
        str(place),
        common.spelled,
        run_id,
        mode,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


async def test_two_processes_race_for_one_call_and_one_of_them_is_asked(place, common, effects):
    """Neither body ends before the other process was asked: the marker is in flight when it is met."""
    async with common.open() as storage:
        await storage.runs.now()
    children = [await start(place, common, run_id, "races") for run_id in ("a", "b")]
    async with asyncio.timeout(60):
        for child in children:
            assert await child.stdout.readline() == b"ready\n"
        for child in children:
            child.stdin.write(b"\n")
        said = sorted([(await child.stdout.readline()).decode().strip() for child in children])
        assert [await child.wait() for child in children] == [0, 0]
    assert said[1] == "done"
    assert said[0] in ("a/s0p0/duplicate/0", "b/s0p0/duplicate/0")
    assert effects.count() == 1


@pytest.mark.parametrize("action", ["suspend", "block"])
async def test_a_killed_call_is_asked_about_in_another_run_or_blocked_and_never_run_silently(
    place, common, effects, action
):
    child = await start(place, common, "a", "dies")
    assert await child.wait() == 9
    assert effects.count() == 1
    async with common.open() as storage:
        journal = storage.runs
        if action == "block":
            with pytest.raises(DuplicateSideEffectError) as blocked:
                await drive(journal, [charging(effects)], run_id="b", action="block")
            assert blocked.value.detail["first_run"] == "a"
        else:
            (question,) = (await drive(journal, [charging(effects)], run_id="b")).interrupts
            assert (question.prior["run_id"], question.prior["in_flight"]) == ("a", True)
        assert effects.count() == 1


@pytest.mark.parametrize("settled_by", ["recover", "person"])
async def test_what_settles_a_killed_call_settles_its_marker(place, common, effects, settled_by):
    child = await start(place, common, "a", "dies")
    assert await child.wait() == 9

    def recover(ctx: Context):
        return {"done": True, "output": "receipt"}

    async with common.open() as storage:
        journal = storage.runs
        charge = charging(effects, recover=recover if settled_by == "recover" else None)
        assert await state(journal) == ("a", "s0p0", "in_flight")
        if settled_by == "person":
            with pytest.raises(SideEffectRetryBlockedError):
                await drive(journal, [charge])
            await decide(journal, "a/s0p0/in_doubt/1", False, output="receipt")
        assert (await drive(journal, [charge])).text == "done"
        assert (await state(journal), effects.count()) == (("a", "s0p0", "done"), 1)
        (question,) = (await drive(journal, [charging(effects)], run_id="b")).interrupts
        assert "already completed" in question.reason
        assert "in_flight" not in question.prior
