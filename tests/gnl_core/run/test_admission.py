"""Who may drive a run, with what, and that whoever is refused has written nothing."""

import asyncio
import subprocess
import sys
import textwrap

import pytest

from gnl_core import (
    Approval,
    Context,
    RunLimits,
    agent_tool,
    args_hash,
    keys,
    resume_run,
    run_durable,
    stream_durable,
    tool,
)
from gnl_core.errors import (
    AlreadyDecidedError,
    ChildRunError,
    ConfigError,
    NotCanonicalError,
    RefusedError,
    RunBusyError,
    RunFencedError,
    RunLimitExceededError,
    RunNotFoundError,
    StoreUnavailableError,
    UnknownQuestionError,
)
from gnl_core.journal import Put, get
from gnl_core.testing.scripted import ScriptedModel

ONE = [[("charge", {"order": 1})], "Done."]


def charging(effects, **options):
    @tool(**options)
    async def charge(ctx: Context, order: int) -> dict:
        """Charge an order."""
        return effects.fire("charge", f"order-{order}", {"receipt": order})

    return charge


def drive(journal, tools=(), turns=ONE, run_id="r", *, model=None, **options):
    options.setdefault("prompt", "Go.")
    return run_durable(run_id=run_id, journal=journal, model=model or ScriptedModel(turns), tools=tools, **options)


# One driver --------------------------------------------------------------------------------------------------------


async def test_s08_tasks_that_start_one_run_at_once_do_its_work_once(journal, effects):
    charge = charging(effects)
    model = ScriptedModel(ONE, gate=(gate := asyncio.Event()))
    tasks = [asyncio.ensure_future(drive(journal, [charge], model=model)) for _ in range(8)]
    await model.entered.wait()
    done, driving = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED, timeout=5)
    while len(driving) > 1:
        more, driving = await asyncio.wait(driving, return_when=asyncio.FIRST_COMPLETED, timeout=5)
        done |= more
    assert {type(task.exception()) for task in done} == {RunBusyError}
    assert all(1 <= task.exception().retry_after <= 300 for task in done)
    gate.set()
    assert [(await task).text for task in driving] == ["Done."]
    assert (effects.count(), model.calls) == (1, 2)


async def test_s08_processes_that_start_one_run_at_once_do_its_work_once(common, effects):
    program = f"""
        import asyncio, gnl_core, sys, time
        from gnl_core import run_durable, tool
        from gnl_core.errors import RunBusyError
        from gnl_core.testing.effects import EffectLog
        from gnl_core.testing.scripted import ScriptedModel

        @tool
        def charge(order: int) -> dict:
            time.sleep(0.05)
            return EffectLog({str(effects.path)!r}).fire("charge", f"order-{{order}}", {{"receipt": order}})

        async def main():
            async with {common.spelled} as storage:
                print("ready", flush=True)
                sys.stdin.readline()
                try:
                    result = await run_durable(run_id="r", journal=storage.runs, model=ScriptedModel({ONE!r}),
                                               tools=[charge], prompt="Go.")
                    print(result.text)
                except RunBusyError as busy:
                    print("busy", busy.retry_after >= 1)

        asyncio.run(main())
    """
    async with common.open() as storage:
        await storage.runs.now()
    children = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", textwrap.dedent(program), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for _ in range(4)
    ]
    for child in children:
        assert await child.stdout.readline() == b"ready\n"
    for child in children:
        child.stdin.write(b"\n")
    answers = [(await child.communicate())[0] for child in children]
    assert set(answers) <= {b"Done.\n", b"busy True\n"}
    assert b"Done.\n" in answers
    assert effects.count() == 1


async def test_s10_who_loses_the_run_in_the_middle_stops_there(journal, effects):
    """Another driver takes over a run whose driver seemed dead: the first one goes on with nothing."""
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

    turns = [[("stock", {"order": 1})], [("charge", {"order": 1})], "Done."]
    first_model = ScriptedModel(turns)
    first = asyncio.ensure_future(drive(Silent(), [stock, charging(effects)], model=first_model, lock_ttl=0.01))
    await entered.wait()
    await asyncio.sleep(0.03)
    assert (await drive(journal, [stock, charging(effects)], turns)).text == "Done."
    go_on.set()
    with pytest.raises(RunFencedError):
        await first
    assert (first_model.calls, effects.count()) == (1, 1)


async def test_two_that_race_for_the_lock_are_one(journal):
    """Both read the run as free, and the second finds that somebody was faster."""
    waiting, go_on = asyncio.Event(), asyncio.Event()

    class Late:
        def __getattr__(self, name):
            return getattr(journal, name)

        async def apply(self, ops, *, batch):
            if not waiting.is_set():
                waiting.set()
                await go_on.wait()
            return await journal.apply(ops, batch=batch)

    slow = asyncio.ensure_future(drive(Late(), turns=["Hi."]))
    await waiting.wait()
    model = ScriptedModel(["Hi."], gate=(gate := asyncio.Event()))
    fast = asyncio.ensure_future(drive(journal, model=model))
    await model.entered.wait()
    go_on.set()
    with pytest.raises(RunBusyError):
        await slow
    gate.set()
    assert (await fast).text == "Hi."


# What a run begins with --------------------------------------------------------------------------------------------


async def test_s12_other_content_under_the_same_id_replays_and_warns(journal, effects):
    charge = charging(effects)
    await drive(journal, [charge])
    model = ScriptedModel([AssertionError("asked")])
    result = await drive(journal, [charge], model=model, prompt="Something else.")
    assert (result.text, model.calls) == ("Done.", 0)
    assert "other messages" in result.warnings[0]
    assert result.messages[0].parts[0].text == "Go."
    assert (await drive(journal, [charge])).warnings == ()


async def test_messages_and_prompt_make_one_conversation(journal):
    model = ScriptedModel(["Hi."], history=1)
    messages = [{"role": "user", "content": "One."}, {"role": "assistant", "content": "Two."}]
    result = await drive(journal, model=model, messages=messages, prompt="Three.", system="Be brief.")
    asked = model.requests[0]
    assert [(m.role, m.parts[0].text) for m in asked.messages] == [
        ("user", "One."),
        ("assistant", "Two."),
        ("user", "Three."),
    ]
    assert asked.system == "Be brief."
    again = await drive(
        journal, model=ScriptedModel([AssertionError("asked")]), messages=messages, prompt="Three.", system="Be brief."
    )
    assert (again.messages, again.warnings) == (result.messages, ())


async def test_a_run_that_goes_on_keeps_its_system_prompt(journal, effects):
    charge = charging(effects, confirm=True)
    await drive(journal, [charge], system="Be brief.")
    model = ScriptedModel(ONE)
    result = await resume_run(
        run_id="r", journal=journal, model=model, tools=[charge], approvals={"s0p0": True}, replay="strict"
    )
    assert (model.requests[0].system, result.warnings) == ("Be brief.", ())


async def test_l58_a_resume_runs_under_the_frozen_limits_and_a_callers_own_win(journal, effects):
    charge = charging(effects, confirm=True)
    turns = [[("charge", {"order": 1})], [("charge", {"order": 2})], "Done."]
    await drive(journal, [charge], turns, limits=RunLimits(max_tool_calls=1))
    options = {"run_id": "r", "journal": journal, "model": ScriptedModel(turns), "tools": [charging(effects)]}
    with pytest.raises(RunLimitExceededError):
        await resume_run(approvals={"s0p0": True}, **options)
    assert effects.count() == 1
    with pytest.raises(RunLimitExceededError):
        await run_durable(prompt="Go.", **options)
    result = await resume_run(limits=RunLimits(max_tool_calls=2), **options)
    assert (result.text, effects.count()) == ("Done.", 2)


async def test_what_a_run_belongs_to_is_frozen_and_reaches_its_tools(journal):
    seen = []

    @tool(confirm=True)
    async def charge(ctx: Context, order: int) -> str:
        """Charge."""
        seen.append((ctx.thread_id, ctx.resource_id, ctx.channel, ctx.actor, ctx.deps))
        return "ok"

    begun = {"thread_id": "t", "resource_id": "ann", "channel": "chat"}
    await drive(journal, [charge], **begun)
    later = {"channel": "batch", "actor": "op", "context": {"db": 1}}
    await drive(journal, [charge], approvals={"s0p0": True}, **later)
    assert seen == [("t", "ann", "chat", "op", {"db": 1})]


# Refused -----------------------------------------------------------------------------------------------------------


async def unwritten(rows, attempt, error, match=None):
    """Whoever is refused has changed no row."""
    before = await rows.all()
    with pytest.raises(error, match=match) as refused:
        await attempt
    assert await rows.all() == before
    return refused.value


async def test_l67_a_run_that_is_not_there(journal, rows):
    await unwritten(rows, resume_run(run_id="r", journal=journal, model=ScriptedModel(["Hi."])), RunNotFoundError)
    await unwritten(rows, run_durable(run_id="r", journal=journal, model=ScriptedModel(["Hi."])), RunNotFoundError)


async def test_l67_a_run_that_begins_with_nothing(journal, rows):
    await unwritten(rows, drive(journal, prompt=None, messages=[]), ConfigError, "begin with nothing")


async def test_l67_a_sub_agents_run_is_driven_through_its_root(journal, rows, effects):
    worker = agent_tool(name="worker", description="d", model=ScriptedModel(ONE), tools=[charging(effects)])
    await drive(journal, [worker], [[("worker", {"task": "pay"})], "Done."])
    child = keys.child_id("r", keys.ROOT, "s0p0")
    for attempt in (
        drive(journal, run_id=child),
        resume_run(run_id=child, journal=journal, model=ScriptedModel(["Hi."])),
        stream_durable(run_id=child, journal=journal, model=ScriptedModel(["Hi."]), prompt="Go."),
    ):
        refused = await unwritten(rows, attempt, ChildRunError, "'r'")
        assert refused.detail == {"run_id": child, "root": "r"}


async def test_l67_answers_that_fit_no_question(journal, rows, effects):
    charge = charging(effects, confirm=True)
    await unwritten(rows, drive(journal, [charge], approvals={"s0p0": True}), UnknownQuestionError)
    await drive(journal, [charge])
    for name in ("s0p1", "s9p9", "nonsense", "r/s0p0/in_doubt/1", "other/s0p0/confirm/0", "r/s0p0/confirm/7"):
        refused = await unwritten(
            rows, drive(journal, [charge], approvals={"s0p0": True, name: True}), UnknownQuestionError
        )
        assert refused.detail["open"] == ["r/s0p0/confirm/0"]
    wrong = Approval(approved=True, args_digest=args_hash({"order": 2}))
    await unwritten(rows, drive(journal, [charge], approvals={"r/s0p0/confirm/0": wrong}), UnknownQuestionError)
    assert effects.count() == 0


async def test_l67_an_answer_that_was_given_otherwise(journal, rows, effects):
    charge = charging(effects, confirm=True)
    await drive(journal, [charge])
    await drive(journal, [charge], approvals={"s0p0": False})
    await unwritten(rows, drive(journal, [charge], approvals={"r/s0p0/confirm/0": True}), AlreadyDecidedError)
    assert effects.count() == 0


async def test_l67_an_output_that_cannot_be_stored_or_has_no_place(journal, rows, effects):
    charge = charging(effects, confirm=True)
    await drive(journal, [charge])
    answered = Approval(approved=False, output={"receipt": 1})
    await unwritten(rows, drive(journal, [charge], approvals={"s0p0": answered}), ConfigError, "in_doubt")

    @tool
    async def broken(order: int) -> dict:
        """Charge and fail."""
        raise ConnectionError("lost")

    await drive(journal, [broken], [[("broken", {"order": 1})], "Done."], run_id="d")
    unkept = Approval(approved=False, output=object())
    await unwritten(rows, drive(journal, [broken], run_id="d", approvals={"s0p0": unkept}), NotCanonicalError)


async def test_l67_a_busy_run(journal, rows):
    model = ScriptedModel(["Hi."], gate=(gate := asyncio.Event()))
    task = asyncio.ensure_future(drive(journal, model=model))
    await model.entered.wait()
    refused = await unwritten(rows, drive(journal, approvals={}), RunBusyError)
    assert refused.detail["run_id"] == "r"
    gate.set()
    await task


async def test_l67_a_run_that_a_fork_is_still_making(journal, rows):
    await rows.put(keys.head("r"), {"f": 1, "status": "running", "forking": True})
    await unwritten(rows, drive(journal), RefusedError, "fork")


async def test_a_refused_drive_holds_nothing(journal, effects):
    charge = charging(effects, confirm=True)
    await drive(journal, [charge])
    for _ in range(3):
        with pytest.raises(UnknownQuestionError):
            await drive(journal, [charge], approvals={"s5p5": True})
    assert (await drive(journal, [charge], approvals={"s0p0": True})).text == "Done."
    assert (await get(journal, keys.lock("r"))).value["released"] is True


async def test_a_store_that_fails_right_after_the_lock_was_taken_leaves_the_run_free(journal):
    class Broken:
        def __getattr__(self, name):
            return getattr(journal, name)

        async def apply(self, ops, *, batch):
            await journal.apply(ops, batch=batch)
            raise StoreUnavailableError("gone after the write")

    with pytest.raises(StoreUnavailableError):
        await drive(Broken(), turns=["Hi."])
    assert (await drive(journal, turns=["Hi."])).text == "Hi.", "nobody of this process holds it"


async def test_a_conversations_taint_is_read_before_the_lock_is_taken(journal, rows):
    class Broken:
        def __getattr__(self, name):
            return getattr(journal, name)

        async def get_many(self, wanted):
            if keys.thread_taint("t") in wanted:
                raise StoreUnavailableError("gone")
            return await journal.get_many(wanted)

    limits = RunLimits(taint_scope="thread")
    await unwritten(rows, drive(Broken(), turns=["Hi."], thread_id="t", limits=limits), StoreUnavailableError)
