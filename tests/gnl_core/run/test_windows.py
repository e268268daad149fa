"""Work that is named by its arguments: once in its run, its conversation, or everywhere."""

import asyncio
import subprocess
import sys
import textwrap

import pytest

from gnl_core import (
    Context,
    NotPerformedError,
    RunLimits,
    args_hash,
    keys,
    run_durable,
    tool,
)
from gnl_core.errors import (
    IdempotencyOwnerMismatchError,
    ModelUnavailableError,
)
from gnl_core.journal import get
from gnl_core.testing.scripted import ScriptedModel

ONE = [[("charge", {"order": 1})], "Done."]
WINDOWS = [
    {"idempotency": "args"},
    {"idempotency": "args", "window": "thread"},
    {"idempotency": "args", "window": "cross-run"},
]
ACROSS = WINDOWS[1:]


def charging(effects, **options):
    @tool(**options)
    async def charge(ctx: Context, order: int, note: str = "") -> dict:
        """Charge an order."""
        return effects.fire("charge", f"order-{order}", {"receipt": order})

    return charge


def drive(journal, tools, turns=ONE, run_id="r", **options):
    options.setdefault("thread_id", "t")
    options.setdefault("prompt", "Go.")
    return run_durable(run_id=run_id, journal=journal, model=ScriptedModel(turns), tools=tools, **options)


def outputs(result):
    return [call.output for step in result.steps for call in step.calls]


def replayed(result):
    return [(c.tool_call_id, c.tool_name, c.status, c.origin, c.run_id) for c in result.replayed_tool_calls]


async def value(journal, key):
    entry = await get(journal, key)
    return None if entry is None else entry.value


# Once ---------------------------------------------------------------------------------------------------------------


async def test_l22_call_mode_runs_each_of_five_equal_calls(journal, effects):
    twins = [[("charge", {"order": 1})] * 5, "Done."]
    await drive(journal, [charging(effects)], twins, limits=RunLimits(side_effect_duplicates="off"))
    assert effects.count() == 5


@pytest.mark.parametrize("options", WINDOWS)
async def test_l22_twins_of_one_step_wait_and_share_the_one_result(journal, effects, options):
    turns = [[("charge", {"order": 1})] * 5, "Done."]
    result = await drive(journal, [charging(effects, **options)], turns)
    assert effects.count() == 1
    assert outputs(result) == [{"receipt": 1}] * 5
    answered = [part.tool_call_id for message in result.messages if message.role == "tool" for part in message.parts]
    assert answered == [f"s0p{n}" for n in range(5)]
    again = await drive(journal, [charging(effects, **options)], turns, replay="strict")
    assert (again.messages, again.warnings, effects.count()) == (result.messages, (), 1)


@pytest.mark.parametrize("options", WINDOWS)
async def test_l23_a_twin_waits_until_the_first_has_ended(journal, effects, options):
    entered, go_on = asyncio.Event(), asyncio.Event()

    @tool(**options)
    async def charge(ctx: Context, order: int) -> dict:
        """Charge, slowly."""
        entered.set()
        await go_on.wait()
        return effects.fire("charge", f"order-{order}", {"receipt": order})

    task = asyncio.ensure_future(drive(journal, [charge], [[("charge", {"order": 1})] * 2, "Done."]))
    await entered.wait()
    done, _ = await asyncio.wait({task}, timeout=0.05)
    assert not done
    go_on.set()
    assert outputs(await task) == [{"receipt": 1}] * 2
    assert effects.count() == 1


async def test_s18_the_order_of_keys_and_the_kind_of_number_name_the_same_work(journal, effects):
    charge = charging(effects, idempotency="args")
    turns = [
        [("charge", {"order": 1, "note": "x"})],
        [("charge", {"note": "x", "order": 1})],
        [("charge", {"order": 1.0, "note": "x"})],
        "Done.",
    ]
    await drive(journal, [charge], turns)
    assert effects.count() == 1
    other = [[("charge", {"order": 1, "note": "y"})], "Done."]
    await drive(journal, [charge], other, run_id="r2")
    assert effects.count() == 2


@pytest.mark.parametrize("options", WINDOWS)
async def test_l24_a_key_projects_what_names_the_work_out_of_the_arguments(journal, effects, options):
    keyed = {**options, "idempotency_key": lambda args: args["order"]}
    turns = [[("charge", {"order": 1})], [("charge", {"order": 1, "note": "again"})], [("charge", {"order": 2})], "."]
    result = await drive(journal, [charging(effects, **keyed)], turns)
    assert effects.counts() == {"charge order-1": 1, "charge order-2": 1}
    assert outputs(result) == [{"receipt": 1}, {"receipt": 1}, {"receipt": 2}]
    assert replayed(result) == [("s1p0", "charge", "succeeded", "window", "r")]


async def test_the_run_window_ends_with_the_run(journal, effects):
    charge = charging(effects, idempotency="args")
    for run_id in ("a", "b"):
        await drive(journal, [charge], run_id=run_id)
    assert effects.count() == 2


@pytest.mark.parametrize(("threads", "times"), [(("t", "t"), 1), (("t", "u"), 2)])
async def test_the_thread_window_is_one_conversation(journal, effects, threads, times):
    charge = charging(effects, idempotency="args", window="thread")
    for run_id, thread in zip("ab", threads, strict=True):
        await drive(journal, [charge], run_id=run_id, thread_id=thread)
    assert effects.count() == times


async def test_l31_the_thread_window_without_a_thread_is_the_run_and_says_so(journal, effects):
    charge = charging(effects, idempotency="args", window="thread")
    turns = [[("charge", {"order": 1})] * 2, "Done."]
    for run_id in ("a", "b"):
        result = await drive(journal, [charge], turns, run_id=run_id, thread_id=None)
        assert len(result.warnings) == 1
        assert "thread_id" in result.warnings[0]
    assert effects.count() == 2


@pytest.mark.parametrize("options", ACROSS)
async def test_l25_another_run_reads_the_result_and_says_whose_it_is(journal, effects, options):
    charge = charging(effects, **options)
    await drive(journal, [charge], run_id="a")
    result = await drive(journal, [charge], run_id="b")
    assert (effects.count(), outputs(result)) == (1, [{"receipt": 1}])
    assert replayed(result) == [("s0p0", "charge", "succeeded", "window", "b")]
    shadow = await value(journal, keys.tool("b", keys.ROOT, 0, 0))
    assert (shadow["status"], shadow["call"], shadow["output"]) == ("succeeded", "s0p0", {"receipt": 1})
    work = keys.decode(shadow["mirror_of"])
    assert work[0] in ("xthr", "xrun")
    assert (await value(journal, work))["run"] == "a"
    again = await drive(journal, [charge], run_id="b")
    assert (replayed(again), effects.count()) == (replayed(result), 1)
    first = await drive(journal, [charge], run_id="a")
    assert replayed(first) == [("s0p0", "charge", "succeeded", "self", "a")]


async def test_the_disclosure_tells_the_model_of_earlier_work_once_and_leaves_no_trace(journal, rows, effects):
    charge = charging(effects, idempotency="args", window="cross-run")
    await drive(journal, [charge], run_id="a")
    model = ScriptedModel([ONE[0], [("charge", {"order": 2})], "Done."])
    options = {"run_id": "b", "journal": journal, "tools": [charge], "prompt": "Go.", "replay_disclosure": "explain"}
    result = await run_durable(model=model, **options)
    notes = [request.system for request in model.requests]
    assert [note is not None and "charge" in note for note in notes] == [False, True, False]
    assert not [key for key, (row, _) in (await rows.values(keys.request("b"))).items() if "For your inf" in str(row)]
    again = await run_durable(model=ScriptedModel([AssertionError("asked")]), replay="strict", **options)
    assert (again.messages, again.warnings) == (result.messages, ())


async def test_earlier_work_that_is_read_in_the_last_step_is_told_on_the_result_alone(journal, effects):
    charge = charging(effects, idempotency="args", window="cross-run")
    await drive(journal, [charge], run_id="a")
    model = ScriptedModel([ONE[0]])
    options = {"tools": [charge], "prompt": "Go.", "replay_disclosure": "explain", "stop_when": lambda steps: True}
    result = await run_durable(model=model, run_id="b", journal=journal, **options)
    assert [request.system for request in model.requests] == [None]  # no later step could carry the note
    assert replayed(result) == [("s0p0", "charge", "succeeded", "window", "b")]


# Races -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", ACROSS)
async def test_runs_of_several_tasks_at_once_do_the_work_once(journal, effects, options, appears):
    all_there = asyncio.Event()

    async def slow(ctx: Context, order: int) -> dict:
        """Charge, once every run has come to its call."""
        await all_there.wait()
        return effects.fire("charge", f"order-{order}", {"receipt": order})

    charge = tool(name="charge", **options)(slow)
    tasks = [asyncio.ensure_future(drive(journal, [charge], run_id=f"r{n}")) for n in range(8)]
    for n in range(8):
        await appears(keys.model(f"r{n}", keys.ROOT, 0))
    all_there.set()
    assert [outputs(result) for result in await asyncio.gather(*tasks)] == [[{"receipt": 1}]] * 8
    assert effects.count() == 1


async def test_runs_of_several_processes_at_once_do_the_work_once(place, common, effects):
    program = f"""
        import asyncio, gnl_core, pathlib, sys, time
        from gnl_core import run_durable, tool
        from gnl_core.testing.effects import EffectLog
        from gnl_core.testing.scripted import ScriptedModel

        @tool(idempotency_key=lambda args: args["order"], window="cross-run")
        def charge(order: int, note: str) -> dict:
            while not pathlib.Path({str(place / "go")!r}).exists():
                time.sleep(0.002)
            return EffectLog({str(effects.path)!r}).fire("charge", f"order-{{order}}", {{"receipt": order}})

        async def main(name):
            async with {common.spelled} as storage:
                turns = [[("charge", {{"order": n, "note": name}}) for n in range(4)], "Done."]
                print("ready", flush=True)
                sys.stdin.readline()
                result = await run_durable(run_id=name, journal=storage.runs, model=ScriptedModel(turns),
                                           tools=[charge], prompt="Go.")
                assert [call.output for call in result.steps[0].calls] == [{{"receipt": n}} for n in range(4)]

        asyncio.run(main(sys.argv[1]))
    """
    async with common.open() as storage:
        await storage.runs.now()
        children = [
            await asyncio.create_subprocess_exec(
                sys.executable, "-c", textwrap.dedent(program), f"r{n}", stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            for n in range(3)
        ]
        for child in children:
            assert await child.stdout.readline() == b"ready\n"
        for child in children:
            child.stdin.write(b"\n")
        async with asyncio.timeout(30):
            for n in range(3):  # each has come to its calls before the first of them may end
                while await get(storage.runs, keys.model(f"r{n}", keys.ROOT, 0)) is None:  # noqa: ASYNC110
                    await asyncio.sleep(0.002)
        (place / "go").touch()
        assert [await child.wait() for child in children] == [0, 0, 0]
    assert effects.counts() == {f"charge order-{n}": 1 for n in range(4)}


# Whose it is -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", ACROSS)
@pytest.mark.parametrize(("first", "second"), [("ann", "bob"), ("ann", None), (None, "bob")])
async def test_l30_another_persons_record_is_refused(journal, rows, effects, options, first, second):
    charge = charging(effects, **options)
    await drive(journal, [charge], run_id="a", resource_id=first, shared_thread=True)
    with pytest.raises(IdempotencyOwnerMismatchError) as refused:
        await drive(journal, [charge], run_id="b", resource_id=second, shared_thread=True)
    assert refused.value.detail["run_id"] == "b"
    assert "ann" not in str(refused.value)
    assert str(refused.value.detail).count("ann") == 0
    await drive(journal, [charge], run_id="c", resource_id=first, shared_thread=True)
    assert effects.count() == 1


async def test_the_key_handed_to_the_provider_is_the_works_and_not_the_calls(journal):
    seen = []

    async def charge(ctx: Context, order: int) -> str:
        """Charge."""
        seen.append(ctx.idempotency_key)
        return "ok"

    for options in ({}, *WINDOWS):
        made = tool(name="charge", **options)(charge)
        await drive(journal, [made], run_id=f"r-{options.get('window', 'call' if not options else 'run')}")
    hashed = args_hash({"order": 1})
    assert seen == ["r-call:s0p0", f"r-run:charge:{hashed}", f"thr:t:charge:{hashed}", f"charge:{hashed}"]


@pytest.mark.parametrize("options", [{}, *WINDOWS], ids=str)
async def test_the_key_is_the_same_for_every_attempt_and_for_recover_and_lookup(journal, options):
    seen = []

    async def look_up(ctx: Context) -> dict:
        seen.append(("lookup", ctx.idempotency_key))
        return {"done": False}

    async def recover(ctx: Context) -> dict:
        seen.append(("recover", ctx.idempotency_key))
        return {"done": False}

    @tool(lookup=look_up, recover=recover, **options)
    async def charge(ctx: Context, order: int) -> str:
        """Charge."""
        seen.append((ctx.attempt, ctx.idempotency_key))
        if ctx.attempt == 1:
            raise RuntimeError("the line went dead")
        return "ok"

    await drive(journal, [charge], max_steps=1)
    await drive(journal, [charge])
    assert [what for what, _ in seen] == ["lookup", 1, "recover", 2]
    assert len({key for _, key in seen}) == 1


async def test_the_key_of_the_thread_window_without_a_thread_is_the_runs(journal):
    seen = []

    @tool(idempotency="args", window="thread")
    async def charge(ctx: Context, order: int) -> str:
        """Charge."""
        seen.append(ctx.idempotency_key)
        return "ok"

    await drive(journal, [charge], thread_id=None)
    assert seen == [f"r:charge:{args_hash({'order': 1})}"]


@pytest.mark.parametrize("options", WINDOWS, ids=str)
async def test_l26_work_whose_row_in_the_run_is_lost_is_answered_from_its_own_record(journal, rows, effects, options):
    charge = charging(effects, **options)
    await drive(journal, [charge], max_steps=1)
    await rows.delete(keys.tool("r", keys.ROOT, 0, 0))
    assert (await drive(journal, [charge])).text == "Done."
    assert effects.count() == 1


async def test_work_that_came_to_nothing_in_one_run_is_begun_by_another_and_the_first_keeps_what_it_was_told(
    journal, effects
):
    closed = True

    @tool(idempotency="args", window="cross-run")
    def charge(order: int, ctx: Context) -> str:
        """Charge."""
        if closed:
            raise NotPerformedError("the bank is closed")
        return effects.fire("charge", ctx, "paid")

    async def drive(run_id, last):
        model = ScriptedModel([[("charge", {"order": 1})], last])
        result = await run_durable(run_id=run_id, journal=journal, model=model, tools=[charge], prompt="go")
        return [call.status for step in result.steps for call in step.calls]

    with pytest.raises(ModelUnavailableError):
        await drive("first", ModelUnavailableError("down"))
    closed = False
    assert await drive("second", "Done.") == ["succeeded"]
    assert await drive("first", "It failed.") == ["failed"]
    assert await drive("third", "Done.") == ["succeeded"]
    assert effects.count() == 1
