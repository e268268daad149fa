"""A run whose events are read while it is driven."""

import asyncio
import gc

import pytest

from gnl_core import (
    Context,
    Event,
    RequireApproval,
    RunLimits,
    agent_tool,
    keys,
    resume_run,
    run_durable,
    stream_durable,
    tool,
)
from gnl_core.errors import (
    ConfigError,
    IdInvalidError,
    ModelResponseError,
    RunBusyError,
    RunLimitExceededError,
    SideEffectRetryBlockedError,
    UnknownQuestionError,
)
from gnl_core.journal import get
from gnl_core.model.messages import ReasoningPart
from gnl_core.testing.scripted import ScriptedModel

TURNS = [["I will pay.", ("charge", {"order": 1})], "All is paid."]


def charging(effects, **options):
    @tool(**options)
    def charge(ctx: Context, order: int) -> dict:
        """Charge an order."""
        return effects.fire("charge", f"order-{order}", {"receipt": order})

    return charge


def stream(journal, tools=(), turns=TURNS, *, model=None, **options):
    options.setdefault("prompt", "Go.")
    return stream_durable(
        run_id=options.pop("run_id", "r"), journal=journal, model=model or ScriptedModel(turns), tools=tools, **options
    )


async def status(journal, run_id="r"):
    return (await get(journal, keys.head(run_id))).value["status"]


async def lock_is_free(journal, run_id="r"):
    return (await get(journal, keys.lock(run_id))).value["released"]


def kinds(events):
    return [event.kind for event in events]


# Events and promises -----------------------------------------------------------------------------------------------


async def test_events_tell_what_happens_in_order_and_the_promises_hold_its_end(journal, effects):
    opened = await stream(journal, [charging(effects)])
    events = [event async for event in opened.events]
    assert kinds(events) == [
        "step-started",
        "text-delta",
        "text-delta",
        "text-delta",
        "step-finished",
        "tool-started",
        "tool-finished",
        "step-started",
        "text-delta",
        "text-delta",
        "text-delta",
        "step-finished",
        "finished",
    ]
    said = ["".join(event.text for event in events if (event.kind, event.step) == ("text-delta", n)) for n in (0, 1)]
    assert said == ["I will pay.", "All is paid."]
    assert [(e.tool_call_id, e.tool_name) for e in events if e.kind.startswith("tool-")] == [("s0p0", "charge")] * 2
    assert {event.run_id for event in events} == {"r"}
    assert not any(event.replayed for event in events)
    assert await opened.text == "All is paid."
    result = await opened.result
    assert (result.finish_reason, result.interrupts, len(result.steps)) == ("stop", (), 2)
    assert [event async for event in opened.events] == [], "a second look finds the end at once"
    assert (await status(journal), await lock_is_free(journal)) == ("completed", True)


async def test_a_run_that_nobody_reads_goes_on_and_is_not_collected(journal, effects):
    opened = await stream(journal, [charging(effects)])
    task = opened._task
    del opened
    gc.collect()
    assert (await task).text == "All is paid."
    assert (effects.count(), await status(journal)) == (1, "completed")


async def test_the_result_may_be_asked_for_before_and_without_the_events(journal, effects):
    opened = await stream(journal, [charging(effects)])
    assert await asyncio.gather(opened.text, opened.text) == ["All is paid."] * 2


async def test_a_listener_hears_the_same(journal, effects):
    heard = []
    opened = await stream(journal, [charging(effects)], on_event=heard.append)
    assert [event async for event in opened.events] == heard
    assert all(isinstance(event, Event) for event in heard)


async def test_reasoning_is_told_apart_from_text(journal):
    opened = await stream(journal, turns=[[ReasoningPart("hm"), "Yes."]])
    events = [event async for event in opened.events]
    assert [(event.kind, event.text) for event in events if event.text] == [
        ("reasoning-delta", "hm"),
        ("text-delta", "Yes."),
        ("finished", "Yes."),
    ]


async def test_events_of_a_sub_agent_name_its_own_run(journal, effects):
    worker = agent_tool(
        name="worker",
        description="d",
        model=ScriptedModel([[("charge", {"order": 7})], "paid"]),
        tools=[charging(effects)],
    )
    opened = await stream(journal, [worker], [[("worker", {"task": "pay"})], "Done."])
    events = [event async for event in opened.events]
    child = keys.child_id("r", keys.ROOT, "s0p0")
    inner = [event for event in events if event.run_id == child]
    assert [(event.tool_call_id, event.tool_name) for event in inner if event.kind == "tool-finished"] == [
        ("s0p0", "charge")
    ]
    assert kinds(events).count("finished") == 1


async def test_s45_a_replayed_stream_tells_each_thing_once_and_as_replayed(journal, effects):
    charge = charging(effects)
    first = await (await stream(journal, [charge])).result
    again = ScriptedModel([AssertionError("asked")])
    opened = await stream(journal, [charge], model=again)
    events = [event async for event in opened.events]
    assert [(event.kind, event.step, event.text) for event in events] == [
        ("step-started", 0, ""),
        ("text-delta", 0, "I will pay."),
        ("step-finished", 0, ""),
        ("tool-finished", 0, ""),
        ("step-started", 1, ""),
        ("text-delta", 1, "All is paid."),
        ("step-finished", 1, ""),
        ("finished", 0, "All is paid."),
    ]
    assert all(event.replayed for event in events)
    result = await opened.result
    assert [(c.tool_call_id, c.status, c.origin, c.run_id) for c in result.replayed_tool_calls] == [
        ("s0p0", "succeeded", "self", "r")
    ]
    assert (result.messages, again.calls, effects.count()) == (first.messages, 0, 1)


@pytest.mark.parametrize("streamed_first", [True, False])
async def test_l81_either_entry_point_goes_on_with_what_the_other_recorded(journal, effects, streamed_first):
    charge = charging(effects, confirm=True)
    plain = {"run_id": "r", "journal": journal, "tools": [charge], "prompt": "Go."}
    if streamed_first:
        waits = await (await stream(journal, [charge])).result
        done = await run_durable(model=ScriptedModel(TURNS), approvals={"s0p0": True}, **plain)
    else:
        waits = await run_durable(model=ScriptedModel(TURNS), **plain)
        done = await (await stream(journal, [charge], approvals={"s0p0": True})).result
    assert [one.question for one in waits.interrupts] == ["r/s0p0/confirm/0"]
    assert (done.text, effects.count(), done.warnings) == ("All is paid.", 1, ())


async def test_a_question_is_an_event_and_ends_the_stream_without_an_error(journal, effects):
    opened = await stream(journal, [charging(effects)], guard=lambda call: RequireApproval("big"))
    events = [event async for event in opened.events]
    assert kinds(events)[-2:] == ["interrupt", "finished"]
    assert events[-2].detail["question"] == "r/s0p0/guard/0"
    assert (await opened.text, (await opened.result).finish_reason) == ("", "suspended")
    assert await status(journal) == "suspended"


# Protections and errors --------------------------------------------------------------------------------------------


async def test_s66_a_limit_ends_the_events_with_one_blocked_event_and_rejects_the_promises(journal, effects):
    blocked = []
    limits = RunLimits(max_tool_calls=0)
    opened = await stream(journal, [charging(effects)], limits=limits, on_blocked=blocked.append)
    events = [event async for event in opened.events]
    assert kinds(events).count("blocked") == 1
    assert events[-1].kind == "blocked"
    assert events[-1].detail["code"] == "run_limit_exceeded"
    for promise in (opened.text, opened.result, opened.text):
        with pytest.raises(RunLimitExceededError):
            await promise
    (breach,) = blocked
    assert (breach["kind"], breach["code"]) == ("max_tool_calls", "run_limit_exceeded")
    assert (breach["detail"]["run_id"], breach["detail"]["tool_call_id"]) == ("r", "s0p0")
    assert breach["message"] == events[-1].text
    assert (effects.count(), await status(journal), await lock_is_free(journal)) == (0, "failed", True)


async def test_s66_a_doubt_is_a_blocked_event_too(journal, effects):
    @tool
    async def charge(ctx: Context, order: int) -> dict:
        """Charge and fail."""
        effects.fire("charge", ctx)
        raise ConnectionError("lost")

    await run_durable(run_id="r", journal=journal, model=ScriptedModel(TURNS), tools=[charge], prompt="Go.")
    blocked = []
    opened = await stream(journal, [charge], on_blocked=blocked.append)
    events = [event async for event in opened.events]
    assert events[-1].detail["code"] == "side_effect_retry_blocked"
    assert [(one["kind"], one["code"]) for one in blocked] == [("side_effect_retry_blocked",) * 2]
    with pytest.raises(SideEffectRetryBlockedError) as error:
        await opened.text
    assert [one.question for one in error.value.interrupts] == ["r/s0p0/in_doubt/1"]
    assert await status(journal) == "suspended"


async def test_what_on_blocked_raises_changes_nothing(journal, effects, caplog):
    def on_blocked(breach):
        raise RuntimeError("my own fault")

    opened = await stream(journal, [charging(effects)], limits=RunLimits(max_tool_calls=0), on_blocked=on_blocked)
    with pytest.raises(RunLimitExceededError):
        await opened.text
    assert "on_blocked failed for run r" in caplog.text


async def test_an_error_of_the_model_is_an_error_event_and_no_protection(journal):
    blocked = []
    opened = await stream(journal, turns=[ModelResponseError("half")], on_blocked=blocked.append)
    events = [event async for event in opened.events]
    assert (kinds(events), blocked) == (["step-started", "error"], [])
    assert events[-1].detail == {"code": "upstream_response_invalid"}
    with pytest.raises(ModelResponseError):
        await opened.result


async def test_nobody_has_to_read_an_error(journal, recwarn):
    opened = await stream(journal, turns=[ModelResponseError("half")])
    await asyncio.wait({opened._task})
    del opened
    gc.collect()
    assert list(recwarn) == []


async def test_what_is_refused_at_admission_is_raised_at_once_and_writes_nothing(journal, rows):
    with pytest.raises(IdInvalidError):
        await stream(journal, run_id="a b")
    with pytest.raises(ConfigError, match="on_blocked"):
        await stream(journal, on_blocked="call me")

    async def waits(breach): ...

    with pytest.raises(ConfigError, match="on_blocked"):
        await stream(journal, on_blocked=waits)
    with pytest.raises(UnknownQuestionError):
        await stream(journal, approvals={"s9p9": True})
    with pytest.raises(TypeError, match="'no_such'"):
        await stream(journal, no_such=1)
    assert await rows.all() == {}


async def test_a_run_that_is_streamed_is_busy_for_others_and_free_at_its_end(journal):
    model = ScriptedModel(["Hi."], gate=(gate := asyncio.Event()))
    opened = await stream(journal, model=model)
    await model.entered.wait()
    with pytest.raises(RunBusyError) as busy:
        await stream(journal)
    assert 1 <= busy.value.retry_after <= 300
    gate.set()
    assert await opened.text == "Hi."
    assert await (await stream(journal, turns=["Hi."])).text == "Hi."


# Left, closed, cut -------------------------------------------------------------------------------------------------


async def test_l70_a_consumer_that_closes_gives_the_run_back_at_once(journal, effects):
    model = ScriptedModel(TURNS, gate=asyncio.Event())
    async with await stream(journal, [charging(effects)], model=model) as opened:
        await model.entered.wait()
    assert (await status(journal), await lock_is_free(journal)) == ("failed", True)
    with pytest.raises(asyncio.CancelledError):
        await opened.result
    assert kinds([event async for event in opened.events])[-1] == "error"
    assert await (await stream(journal, [charging(effects)])).text == "All is paid."
    assert effects.count() == 1


async def test_l70_a_stream_that_is_closed_before_it_began_gives_the_run_back(journal, effects):
    # In memory the drive comes to its first wait at once: that is the model's, and not a body's in a thread.
    opened = await stream(journal, [charging(effects)], model=ScriptedModel(TURNS, gate=asyncio.Event()))
    await opened.aclose()
    assert (await status(journal), await lock_is_free(journal)) == ("failed", True)
    assert effects.count() == 0
    assert await (await stream(journal, [charging(effects)])).text == "All is paid."
    assert effects.count() == 1


async def test_l70_a_stream_whose_loop_ends_before_it_began_blocks_nobody(common, effects):
    with common.open() as storage:

        async def open_and_leave():
            await stream(storage.runs, [charging(effects)])

        await asyncio.to_thread(asyncio.run, open_and_leave())
        assert await (await stream(storage.runs, [charging(effects)])).text == "All is paid."


async def test_l70_a_consumer_that_breaks_off_reading_leaves_the_run_going_until_it_is_closed(journal, effects):
    async with await stream(journal, [charging(effects)]) as opened:
        async for event in opened.events:
            if event.kind == "text-delta":
                break
        assert await opened.text == "All is paid."
    assert await status(journal) == "completed", "closing a run that is over changes nothing"


async def test_l70_an_exception_of_the_consumer_closes_the_run(journal):
    model = ScriptedModel(TURNS, gate=asyncio.Event())

    async def consume():
        async with await stream(journal, model=model):
            await model.entered.wait()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await consume()
    assert (await status(journal), await lock_is_free(journal)) == ("failed", True)


async def test_who_stops_waiting_for_the_text_does_not_stop_the_run(journal):
    model = ScriptedModel(["Hi."], gate=(gate := asyncio.Event()))
    opened = await stream(journal, model=model)
    await model.entered.wait()
    waiting = asyncio.ensure_future(asyncio.wait_for(opened.result, 60))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    gate.set()
    assert await opened.text == "Hi."


async def test_closing_twice_and_at_once(journal):
    model = ScriptedModel(TURNS, gate=asyncio.Event())
    opened = await stream(journal, model=model)
    await asyncio.gather(opened.aclose(), opened.aclose())
    await opened.aclose()
    assert await lock_is_free(journal)


@pytest.mark.parametrize("begun", [True, False])
async def test_who_is_cancelled_while_closing_is_cancelled_once_the_run_has_stopped(journal, begun):
    entered, stopping, go_on = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @tool(side_effect=False)
    async def slow(order: int) -> str:
        """Take a while to stop."""
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopping.set()
            await go_on.wait()

    opened = await stream(journal, [slow], [[("slow", {"order": 1})], "Hi."])
    if begun:
        await entered.wait()
    went_on = False

    async def close():
        nonlocal went_on
        await opened.aclose()
        went_on = True

    closing = asyncio.ensure_future(close())
    await (stopping.wait() if begun else asyncio.sleep(0))
    closing.cancel()
    for _ in range(3):
        await asyncio.sleep(0)
    assert not begun or not closing.done(), "it waits for the run"
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert (went_on, await lock_is_free(journal)) == (False, True)


async def test_a_stream_that_is_being_closed_when_its_loop_ends_before_it_began_holds_up_nobody(common):
    with common.open() as storage:
        closing = []

        async def open_and_leave():
            opened = await stream(storage.runs, turns=["Hi."])
            closing.append(asyncio.ensure_future(opened.aclose()))

        await asyncio.to_thread(asyncio.run, open_and_leave())
        assert closing[0].done()
        assert await (await stream(storage.runs, turns=["Hi."])).text == "Hi."


@pytest.mark.parametrize("cut", range(4))
async def test_s64_a_stream_cut_after_any_piece_is_no_answer_and_the_model_is_asked_again(journal, rows, effects, cut):
    model = ScriptedModel(TURNS, cut_after=cut)
    opened = await stream(journal, [charging(effects)], model=model)
    events = [event async for event in opened.events]
    assert kinds(events) == ["step-started", *["text-delta"] * min(cut, 3), "error"]
    with pytest.raises(ModelResponseError):
        await opened.text
    assert not [key for key in await rows.all(keys.request("r")) if "/model/" in key or "/tool/" in key]
    assert (await status(journal), effects.count()) == ("failed", 0)
    model.cut_after = None
    assert await (await stream(journal, [charging(effects)], model=model)).text == "All is paid."
    assert (model.calls, effects.count()) == (3, 1)


async def test_s64_a_stream_without_an_end_is_no_answer(journal, rows):
    class Endless:
        spec = "scripted/endless"

        async def generate(self, request):
            raise AssertionError("asked to generate")

        async def stream(self, request):
            return
            yield

    opened = await stream(journal, model=Endless())
    with pytest.raises(ModelResponseError, match="none of it counts"):
        await opened.text


async def test_the_models_own_stream_is_closed_when_the_run_is(journal):
    closed, entered = [], asyncio.Event()

    class Slow:
        spec = "scripted/slow"

        async def generate(self, request):
            raise AssertionError("asked to generate")

        async def stream(self, request):
            try:
                entered.set()
                await asyncio.Event().wait()
                yield
            finally:
                closed.append(True)

    opened = await stream(journal, model=Slow())
    await entered.wait()
    await opened.aclose()
    assert closed == [True]


async def test_a_streamed_run_is_resumed_by_resume_run(journal, effects):
    charge = charging(effects, confirm=True)
    await (await stream(journal, [charge])).result
    result = await resume_run(
        run_id="r", journal=journal, model=ScriptedModel(TURNS), tools=[charge], approvals={"s0p0": True}
    )
    assert (result.text, effects.count()) == ("All is paid.", 1)
