"""What is bounded in time, and what it means that the bound was met."""

import asyncio
import threading

import pytest

from gnl_core import (
    Context,
    InMemoryStorage,
    Timeouts,
    agent_tool,
    body,
    decide,
    keys,
    list_interrupts,
    run_durable,
    run_durable_sync,
    stream_durable,
    tool,
)
from gnl_core.errors import (
    ConfigError,
    RunBusyError,
    SideEffectRetryBlockedError,
    StepTimeoutError,
    ToolDeclarationError,
)
from gnl_core.journal import get
from gnl_core.testing.scripted import ScriptedModel

ONE = [[("charge", {"order": 1})], "Done."]
SHORT = 0.02


@pytest.fixture
def release():
    """Lets a body in a thread end, at the latest with its test: a thread that waits keeps the process alive."""
    event = threading.Event()
    yield event
    event.set()


def drive(journal, tools, turns=ONE, run_id="r", **options):
    return run_durable(run_id=run_id, journal=journal, model=ScriptedModel(turns), tools=tools, prompt="Go.", **options)


async def record(journal, position=0):
    return (await get(journal, keys.tool("r", keys.ROOT, 0, position))).value


async def evidence(journal, call="s0p0", attempt=1):
    async with asyncio.timeout(30):
        while (entry := await get(journal, keys.evidence("r", keys.ROOT, call, attempt))) is None:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    return entry.value


# The model ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_model_step_that_takes_too_long_is_not_recorded_and_asked_again(journal, rows, streamed):
    model = ScriptedModel(["Hi."], gate=(gate := asyncio.Event()))
    options = {"run_id": "r", "journal": journal, "model": model, "prompt": "?", "timeouts": Timeouts(model_step=SHORT)}

    async def streamed_run(**options):
        return await (await stream_durable(**options)).result

    door = streamed_run if streamed else run_durable
    with pytest.raises(StepTimeoutError, match="model step 0") as late:
        await door(**options)
    assert late.value.detail == {"run_id": "r", "step": 0}
    assert not [key for key in await rows.all(keys.request("r")) if "/model/" in key]
    assert (await get(journal, keys.head("r"))).value["status"] == "failed"
    gate.set()
    assert (await run_durable(**options)).text == "Hi."
    assert model.calls == 2


async def test_a_models_own_timeout_error_is_none_of_ours(journal):
    with pytest.raises(TimeoutError, match="socket"):
        await drive(journal, [], [TimeoutError("socket")], timeouts=Timeouts(model_step=60))


async def test_the_bound_is_one_steps_and_not_the_runs(journal, effects):
    @tool(side_effect=False)
    async def wait(order: int) -> int:
        """Wait a little."""
        await asyncio.sleep(0.03)
        return order

    turns = [[("wait", {"order": n})] for n in range(4)] + ["Done."]
    result = await drive(journal, [wait], turns, timeouts=Timeouts(model_step=0.5, tool=0.5))
    assert result.text == "Done."


# Bodies ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["tool", "run"])
async def test_s61_an_async_side_effect_out_of_time_is_in_doubt_and_never_failed(journal, effects, where):
    ended = []

    @tool(timeout=SHORT if where == "tool" else None)
    async def charge(ctx: Context, order: int) -> dict:
        """Charge and hang."""
        effects.fire("charge", ctx)
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(ctx.cancelled.is_set())

    with pytest.raises(StepTimeoutError) as late:
        await drive(journal, [charge], timeouts=Timeouts(tool=SHORT if where == "run" else 60))
    assert late.value.detail["tool_call_id"] == "s0p0"
    assert [one.question for one in late.value.interrupts] == ["r/s0p0/in_doubt/1"]
    found = await record(journal)
    assert (found["status"], found["cause"], found["ended"]) == ("in_doubt", "timeout", True)
    assert ended == [True], "the body was told, and has ended"
    assert (await get(journal, keys.head("r"))).value["status"] == "suspended"
    assert [one.question for one in await list_interrupts(journal)] == ["r/s0p0/in_doubt/1"]
    assert effects.count() == 1


async def test_s61_a_thread_out_of_time_is_told_and_its_late_end_settles_the_doubt(journal, effects, release, begun):
    seen = []

    @tool(timeout=SHORT)
    def charge(ctx: Context, order: int) -> dict:
        """Charge, late."""
        release.wait()
        seen.append(ctx.cancelled.is_set())
        return effects.fire("charge", ctx, {"receipt": order})

    with pytest.raises(StepTimeoutError):
        await drive(journal, [charge])
    found = await record(journal)
    assert (found["status"], found["cause"], found.get("ended")) == ("in_doubt", "timeout", None)
    release.set()
    assert (await evidence(journal))["output"] == {"receipt": 1}
    result = await drive(journal, [charge])
    assert result.steps[0].calls[0].output == {"receipt": 1}
    assert ((await record(journal))["settled_by"], seen, effects.count()) == ("evidence", [True], 1)


async def test_while_a_late_body_still_runs_nobody_runs_beside_it(journal, effects, release, begun):
    @tool(timeout=SHORT, recover=lambda order: {"done": False})
    def charge(ctx: Context, order: int) -> dict:
        """Charge, late."""
        if ctx.attempt == 1:
            release.wait()
        return effects.fire("charge", f"attempt-{ctx.attempt}", {"receipt": order})

    with pytest.raises(StepTimeoutError):
        await drive(journal, [charge])
    for _ in range(2):
        with pytest.raises(RunBusyError) as busy:
            await drive(journal, [charge])
        assert 1 <= busy.value.retry_after <= 30
    await decide(journal, "r/s0p0/in_doubt/1", True)
    with pytest.raises(RunBusyError):
        await drive(journal, [charge])
    release.set()
    await evidence(journal)
    assert (await drive(journal, [charge])).text == "Done."
    assert effects.counts() == {"charge attempt-1": 1}


async def test_a_late_failure_leaves_the_doubt_open(journal, effects, release, begun):
    @tool(timeout=SHORT)
    def charge(ctx: Context, order: int) -> dict:
        """Charge, late, and fail."""
        release.wait()
        effects.fire("charge", ctx)
        raise ConnectionError("lost")

    with pytest.raises(StepTimeoutError):
        await drive(journal, [charge])
    release.set()
    assert (await evidence(journal))["ok"] is False
    with pytest.raises(SideEffectRetryBlockedError):
        await drive(journal, [charge])
    assert effects.count() == 1


async def test_an_async_body_that_suppresses_its_cancellation_is_recorded_by_what_it_returns(journal, effects):
    @tool(timeout=SHORT)
    async def charge(ctx: Context, order: int) -> dict:
        """Charge, and finish what was begun."""
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            effects.fire("charge", ctx)
        return {"receipt": order}

    result = await drive(journal, [charge])
    assert (result.text, result.steps[0].calls[0].output, effects.count()) == ("Done.", {"receipt": 1}, 1)


async def test_an_async_body_that_outlives_its_grace_is_evidence_when_it_ends(journal, effects, monkeypatch):
    monkeypatch.setattr(body, "_GRACE_S", 0.01)
    go_on = asyncio.Event()

    @tool(timeout=SHORT)
    async def charge(ctx: Context, order: int) -> dict:
        """Charge, in its own time."""
        while not go_on.is_set():
            try:
                await go_on.wait()
            except asyncio.CancelledError:
                continue
        return effects.fire("charge", ctx, {"receipt": order})

    with pytest.raises(StepTimeoutError):
        await drive(journal, [charge])
    assert (await record(journal)).get("ended") is None
    with pytest.raises((RunBusyError, SideEffectRetryBlockedError)):
        await drive(journal, [charge])
    go_on.set()
    await evidence(journal)
    assert (await drive(journal, [charge])).text == "Done."
    assert effects.count() == 1


def test_an_async_body_that_outlives_its_grace_is_evidence_though_its_loop_is_closed(effects, monkeypatch):
    monkeypatch.setattr(body, "_GRACE_S", 0.01)
    journal = InMemoryStorage().runs

    @tool(timeout=SHORT)
    async def charge(ctx: Context, order: int) -> dict:
        """Charge, when its loop is being closed."""
        for _ in range(2):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                continue
        return effects.fire("charge", ctx, {"receipt": order})

    options = {"run_id": "r", "journal": journal, "tools": [charge], "prompt": "Go."}
    with pytest.raises(StepTimeoutError):
        run_durable_sync(model=ScriptedModel(ONE), **options)
    assert run_durable_sync(model=ScriptedModel(ONE), **options).text == "Done."
    assert effects.count() == 1


async def test_a_body_that_was_left_behind_and_ends_by_its_cancellation_is_dead_at_once(journal, effects, monkeypatch):
    monkeypatch.setattr(body, "_GRACE_S", 0.01)
    go_on, ended = asyncio.Event(), asyncio.Event()

    @tool(timeout=SHORT)
    async def charge(ctx: Context, order: int) -> dict:
        """Charge, and end late by the cancellation."""
        effects.fire("charge", ctx)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await go_on.wait()
            ended.set()
            raise

    with pytest.raises(StepTimeoutError):
        await drive(journal, [charge])
    go_on.set()
    await ended.wait()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    with pytest.raises(SideEffectRetryBlockedError):
        await drive(journal, [charge])


@pytest.mark.parametrize("threaded", [False, True])
async def test_a_read_out_of_time_is_told_to_the_model_and_the_run_goes_on(journal, effects, release, threaded, begun):
    def thread(order: int) -> int:
        """Read, slowly."""
        release.wait()
        return 3

    async def task(order: int) -> int:
        """Read, slowly."""
        await asyncio.Event().wait()

    stock = tool(name="stock", side_effect=False, timeout=SHORT)(thread if threaded else task)
    turns = [[("stock", {"order": 1})], "I could not look."]
    result = await drive(journal, [stock], turns)
    (call,) = result.steps[0].calls
    assert (result.text, call.status, call.error.type) == ("I could not look.", "failed", "StepTimeoutError")
    assert result.interrupts == ()
    again = await drive(journal, [stock], turns)
    assert again.messages == result.messages


async def test_s62_a_timeout_is_no_reason_to_begin_again(journal, effects):
    @tool(timeout=SHORT, max_retries=5)
    async def charge(ctx: Context, order: int) -> dict:
        """Charge and hang."""
        effects.fire("charge", ctx)
        await asyncio.Event().wait()

    with pytest.raises(StepTimeoutError):
        await drive(journal, [charge])
    for _ in range(3):
        with pytest.raises(SideEffectRetryBlockedError):
            await drive(journal, [charge])
    assert ((await record(journal))["attempts"], effects.count()) == (1, 1)


async def test_a_finished_sibling_of_a_body_out_of_time_keeps_its_record(journal, effects):
    @tool(timeout=0.05)
    async def charge(ctx: Context, order: int) -> dict:
        """Charge; the second hangs."""
        effects.fire("charge", f"order-{order}")
        if order == 2:
            await asyncio.Event().wait()
        return {"receipt": order}

    turns = [[("charge", {"order": 1}), ("charge", {"order": 2})], "Done."]
    with pytest.raises(StepTimeoutError) as late:
        await drive(journal, [charge], turns)
    assert [one.tool_call_id for one in late.value.interrupts] == ["s0p1"]
    assert [(await record(journal, n))["status"] for n in (0, 1)] == ["succeeded", "in_doubt"]
    await decide(journal, "r/s0p1/in_doubt/1", False, output={"receipt": 2})
    result = await drive(journal, [charge], turns)
    assert [call.output for call in result.steps[0].calls] == [{"receipt": 1}, {"receipt": 2}]
    assert effects.count() == 2


async def test_a_body_that_raises_a_timeout_error_of_its_own_failed(journal, effects):
    @tool(timeout=60)
    async def charge(ctx: Context, order: int) -> dict:
        """Charge over a socket that times out."""
        effects.fire("charge", ctx)
        raise TimeoutError("socket")

    result = await drive(journal, [charge])
    (call,) = result.steps[0].calls
    assert (call.status, call.error.type, str(call.error)) == ("failed", "TimeoutError", "socket")


async def test_a_plain_function_that_returns_an_awaitable_is_bounded_too(journal, effects):
    async def inner(order):
        effects.fire("charge", f"order-{order}")
        await asyncio.Event().wait()

    @tool(timeout=SHORT)
    def charge(order: int) -> object:
        """Charge by a coroutine that hangs."""
        return inner(order)

    with pytest.raises(StepTimeoutError):
        await drive(journal, [charge])
    assert ((await record(journal))["status"], effects.count()) == ("in_doubt", 1)


async def test_a_sub_agents_tools_keep_the_runs_bound_and_the_sub_agent_has_none(journal, effects):
    @tool
    async def charge(ctx: Context, order: int) -> dict:
        """Charge and hang."""
        effects.fire("charge", ctx)
        await asyncio.Event().wait()

    worker = agent_tool(name="worker", description="d", model=ScriptedModel(ONE), tools=[charge])
    with pytest.raises(StepTimeoutError) as late:
        await drive(journal, [worker], [[("worker", {"task": "pay"})], "."], timeouts=Timeouts(tool=SHORT))
    child = keys.child_id("r", keys.ROOT, "s0p0")
    assert [one.question for one in late.value.interrupts] == [f"{child}/s0p0/in_doubt/1"]
    assert effects.count() == 1


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), True, "5"])
@pytest.mark.parametrize("name", ["model_step", "tool", "claim_ttl"])
def test_bounds_are_seconds_above_nothing(name, value):
    with pytest.raises(ConfigError, match=name):
        Timeouts(**{name: value})


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), True, "5"])
def test_a_tools_own_bounds_too(value):
    for name in ("timeout", "claim_ttl"):
        with pytest.raises(ToolDeclarationError, match=name):
            tool(name="charge", **{name: value})(lambda: None)


@pytest.mark.parametrize("bound", [{"tool": 120}, {"run": 120}, {"tool": 120, "run": 7}])
async def test_a_claim_outlives_the_time_its_body_may_take(journal, effects, bound):
    release, entered = asyncio.Event(), asyncio.Event()

    @tool(timeout=bound.get("tool"))
    async def charge(ctx: Context, order: int) -> dict:
        """Charge."""
        entered.set()
        await release.wait()
        return {"receipt": order}

    task = asyncio.ensure_future(drive(journal, [charge], timeouts=Timeouts(tool=bound.get("run"))))
    await entered.wait()
    assert (await record(journal))["ttl_ms"] == 150_000
    release.set()
    await task


@pytest.mark.parametrize(
    ("declared", "timeouts"),
    [
        ({"timeout": 2, "claim_ttl": 2}, Timeouts()),
        ({"claim_ttl": 1}, Timeouts(tool=2)),
        ({"timeout": 2}, Timeouts(claim_ttl=1)),
    ],
)
async def test_a_claim_that_would_end_before_its_body_must_is_refused(journal, effects, declared, timeouts):
    @tool(**declared)
    def charge(ctx: Context, order: int) -> dict:
        """Charge."""
        return effects.fire("charge", ctx, {"receipt": order})

    with pytest.raises(ConfigError, match=r"claim_ttl of charge is . s, must be above its timeout \(2 s\)"):
        await drive(journal, [charge], timeouts=timeouts)
    assert effects.count() == 0
