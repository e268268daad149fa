"""A loop of one's own over the runtime's parts: recorded model steps, tools at most once, questions raised directly."""

import asyncio

import pytest

from gnl_core import (
    Context,
    Message,
    TextPart,
    decide,
    durable_context,
    durable_tools,
    keys,
    list_interrupts,
    tool,
    with_durable_model,
)
from gnl_core.errors import (
    ApprovalRequiredError,
    DivergenceError,
    IdInvalidError,
    ModelUnavailableError,
    SideEffectRetryBlockedError,
    StoreUnavailableError,
    ToolArgumentsError,
    ToolError,
)
from gnl_core.journal import get
from gnl_core.model.messages import ModelRequest, ResponseDone, TextDelta, message_from_json
from gnl_core.records import read_call, read_step
from gnl_core.render import result_text, tool_message
from gnl_core.splice import rebuild
from gnl_core.testing.faulty import Fault, FaultyJournal
from gnl_core.testing.scripted import Call, ScriptedModel, raise_once

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


async def recorded_requests(journal):
    """Rebuild the messages of every recorded step from the journal alone."""

    async def one(reference):
        if "msg" in reference:
            entry = await get(journal, keys.message("r", keys.ROOT, reference["msg"]))
            return message_from_json(entry.value["message"])
        if "step" in reference:
            entry = await get(journal, keys.model("r", keys.ROOT, reference["step"]))
            return read_step(entry).response.message()
        step, position = keys.parse_call_id(reference["call"])
        record = read_call(await get(journal, keys.tool("r", keys.ROOT, step, position)))
        asked = read_step(await get(journal, keys.model("r", keys.ROOT, step))).response.tool_calls[position]
        return tool_message(asked, *result_text(record, record.output))

    before, number, found = [], 0, []
    while (entry := await get(journal, keys.model("r", keys.ROOT, number))) is not None:
        step = read_step(entry)
        made = [await one(reference) for reference in step.add]
        at = iter(made)
        before = rebuild(before, step.keep, step.add, lambda _: next(at))  # noqa: B023 - called at once
        found.append(tuple(before))
        number += 1
    return found


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("parallel", [False, True])
async def test_a_loop_runs_once_and_replays_for_ever(journal, effects, parallel, streamed):
    charge = charging(effects)
    model = ScriptedModel(TURNS)
    text, messages, warnings = await loop(journal, model, [charge], parallel=parallel, streamed=streamed)
    assert (text, warnings, await status(journal)) == ("Done.", (), "completed")
    assert effects.counts() == {f"charge order-{n}": 1 for n in (1, 2, 3)}
    assert await recorded_requests(journal) == [request.messages for request in model.requests]

    again = ScriptedModel([AssertionError("asked")])
    assert await loop(journal, again, [charge], parallel=parallel, replay="strict") == ("Done.", messages, ())
    assert (again.calls, effects.count()) == (0, 3)
    head = (await get(journal, keys.head("r"))).value
    assert (head["steps"], head["calls"], head["questions"]) == (3, 3, 0)


async def test_calls_carry_our_ids_whatever_the_provider_sends(journal, effects):
    turns = [
        [Call("charge", {"order": 1}, "x"), Call("charge", {"order": 2}, "x")],
        [("charge", {"order": 3})],
        "Done.",
    ]
    for _ in range(2):
        _, messages, _ = await loop(journal, ScriptedModel(turns, call_ids="restart"), [charging(effects)])
        answered = [part.tool_call_id for m in messages if m.role == "tool" for part in m.parts]
        assert answered == ["s0p0", "s0p1", "s1p0"]
    assert effects.count() == 3


async def test_a_loop_that_compacts_its_history_is_recorded_and_replayed_as_it_was(journal, effects):
    def compact(messages):
        return [messages[0], Message("user", (TextPart(f"{len(messages)} messages so far"),)), *messages[-2:]]

    charge = charging(effects)
    turns = iter([[("charge", {"order": n})] for n in (1, 2, 3)])
    model = ScriptedModel([(lambda request: next(turns, "Done."))] * 9)
    text, _, _ = await loop(journal, model, [charge], compact=compact)
    assert text == "Done."
    assert await recorded_requests(journal) == [request.messages for request in model.requests]
    again = ScriptedModel([AssertionError("asked")])
    assert (await loop(journal, again, [charge], compact=compact, replay="strict"))[0] == "Done."
    assert effects.count() == 3


async def test_a_model_that_failed_is_asked_again_by_the_same_loop_and_recorded_right(journal, effects):
    charge = charging(effects)
    down = ModelUnavailableError("down")
    scripted = ScriptedModel([TURNS[0], raise_once(down, TURNS[1]), raise_once(down, "Done.")])
    async with durable_context(run_id="r", journal=journal) as ctx:
        model, durable = with_durable_model(scripted, ctx), durable_tools([charge], ctx)
        messages = [ASKED]
        while True:
            try:
                response = await model.generate(ModelRequest(None, tuple(messages)))
            except ModelUnavailableError:
                continue
            messages.append(response.message())
            if not response.tool_calls:
                break
            messages += [await durable[call.name].answer(call) for call in response.tool_calls]
    sent = [request.messages for request in scripted.requests]
    assert await recorded_requests(journal) == [sent[0], sent[2], sent[4]]
    assert (sent[1], sent[3]) == (sent[2], sent[4])


async def test_a_step_that_could_not_be_recorded_is_tried_again_by_the_same_loop(journal, effects):
    faulty = FaultyJournal(
        journal, fault=Fault(action="unavailable", times=4, match=lambda ops: any("model" in op.key for op in ops))
    )
    scripted = ScriptedModel(["Hi."])
    async with durable_context(run_id="r", journal=faulty) as ctx:
        model = with_durable_model(scripted, ctx)
        request = ModelRequest(None, (ASKED,))
        with pytest.raises(StoreUnavailableError):
            await model.generate(request)
        assert (await model.generate(request)).text == "Hi."
    assert await recorded_requests(journal) == [(ASKED,)]
    assert scripted.calls == 2, "what nobody recorded was not acted on"


async def test_drift_warns_and_strict_raises(journal, effects):
    charge = charging(effects)
    await loop(journal, ScriptedModel(TURNS), [charge])

    async def other(**options):
        async with durable_context(run_id="r", journal=journal, **options) as ctx:
            model = with_durable_model(ScriptedModel([AssertionError("asked")]), ctx)
            request = ModelRequest("Be brief.", (Message("user", (TextPart("Other."),)),), (charge.spec,))
            return await model.generate(request), ctx.warnings

    response, warnings = await other()
    assert (len(response.tool_calls), len(warnings)) == (2, 1)
    assert "messages" in warnings[0]
    with pytest.raises(DivergenceError) as differs:
        await other(replay="strict")
    assert differs.value.detail["differs"] == ["messages"]


async def test_streamed_answers_come_whole_once_they_are_recorded(journal):
    async with durable_context(run_id="r", journal=journal) as ctx:
        model = with_durable_model(ScriptedModel(["All is well."]), ctx)
        events = [event async for event in model.stream(ModelRequest(None, (ASKED,)))]
    assert [type(event) for event in events] == [TextDelta, ResponseDone]
    assert events[0].text == "All is well."


# Questions, doubts, refusals ---------------------------------------------------------------------------------------


async def test_a_question_is_raised_and_answered_within_the_same_context(journal, effects):
    charge = charging(effects, confirm=True)
    async with durable_context(run_id="r", journal=journal) as ctx:
        durable = durable_tools([charge], ctx)["charge"]
        with pytest.raises(ApprovalRequiredError) as asked:
            await durable.call({"order": 1}, tool_call_id="s0p0")
        (question,) = asked.value.interrupts
        assert question.question == "r/s0p0/confirm/0"
        assert effects.count() == 0
        await decide(journal, question.question, True)
        assert await durable.call({"order": 1}, tool_call_id="s0p0") == {"receipt": 1}
        assert await durable.call({"order": 1}, tool_call_id="s0p0") == {"receipt": 1}
    assert (effects.count(), await status(journal)) == (1, "completed")
    head = (await get(journal, keys.head("r"))).value
    assert (head["calls"], head["questions"]) == (1, 0)


async def test_a_question_that_leaves_the_context_suspends_the_run(journal, effects):
    charge = charging(effects, confirm=True)
    turns = [[("charge", {"order": 1})], "Done."]
    with pytest.raises(ApprovalRequiredError):
        await loop(journal, ScriptedModel(turns), [charge])
    assert await status(journal) == "suspended"
    assert [one.question for one in await list_interrupts(journal)] == ["r/s0p0/confirm/0"]
    text, _, _ = await loop(journal, ScriptedModel(turns), [charge], approvals={"s0p0": True})
    assert (text, effects.count(), await status(journal)) == ("Done.", 1, "completed")


async def test_a_refused_call_is_an_error_for_the_loop_and_a_message_for_the_model(journal, effects):
    async with durable_context(run_id="r", journal=journal, guard=lambda call: {"action": "deny"}) as ctx:
        model = with_durable_model(ScriptedModel(TURNS), ctx)
        durable = durable_tools([charging(effects)], ctx)["charge"]
        with pytest.raises(ToolError, match="not permitted") as refused:
            await durable.call({"order": 1}, tool_call_id="s0p0")
        assert refused.value.type == "denied"
        (first, _) = (await model.generate(ModelRequest(None, (ASKED,)))).tool_calls
        message = await durable.answer(first)
        assert (message.role, message.parts[0].tool_call_id, message.parts[0].is_error) == ("tool", "s0p0", True)
    assert effects.count() == 0


async def test_a_failure_is_an_error_for_the_loop_with_its_type(journal, effects):
    class PaymentError(Exception):
        pass

    @tool
    async def charge(ctx: Context, order: int) -> dict:
        """Charge, and fail."""
        effects.fire("charge", ctx)
        raise PaymentError("declined")

    async with durable_context(run_id="r", journal=journal) as ctx:
        durable = durable_tools([charge], ctx)["charge"]
        with pytest.raises(ToolError, match="declined") as failed:
            await durable.call({"order": 1}, tool_call_id="s0p0")
        assert failed.value.type == "PaymentError"
        with pytest.raises(SideEffectRetryBlockedError) as blocked:
            await durable.call({"order": 1}, tool_call_id="s0p0")
        assert [one.question for one in blocked.value.interrupts] == ["r/s0p0/in_doubt/1"]
        await decide(journal, "r/s0p0/in_doubt/1", False, output={"receipt": 1})
        assert await durable.call({"order": 1}, tool_call_id="s0p0") == {"receipt": 1}
    assert (effects.count(), await status(journal)) == (1, "completed")


@pytest.mark.parametrize(
    "foreign", ["call_0", "", "toolu_01", "s0", "p0", "s01p0", "s0p0 ", "S0P0", "s0p1000", "s-1p0", "s0p0/x"]
)
async def test_a_call_by_a_foreign_id_is_refused_and_nothing_runs(journal, rows, effects, foreign):
    async with durable_context(run_id="r", journal=journal) as ctx:
        durable = durable_tools([charging(effects)], ctx)["charge"]
        before = await rows.all()
        with pytest.raises(IdInvalidError, match="s<step>p<position>"):
            await durable.call({"order": 1}, tool_call_id=foreign)
        assert await rows.all() == before
    assert effects.count() == 0


async def test_arguments_that_do_not_fit_are_told_and_nothing_runs(journal, effects):
    async with durable_context(run_id="r", journal=journal) as ctx:
        durable = durable_tools([charging(effects)], ctx)["charge"]
        with pytest.raises(ToolError, match="order") as refused:
            await durable.call({"order": "many"}, tool_call_id="s0p0")
        assert refused.value.type == ToolArgumentsError.__name__
    assert effects.count() == 0


async def test_one_id_is_one_call_whatever_it_is_called_with(journal, effects):
    async with durable_context(run_id="r", journal=journal) as ctx:
        durable = durable_tools([charging(effects)], ctx)["charge"]
        assert await durable.call({"order": 1}, tool_call_id="s0p0") == {"receipt": 1}
        assert await durable.call({"order": 2}, tool_call_id="s0p0") == {"receipt": 1}
        assert "another arguments" in ctx.warnings[0]
    with pytest.raises(DivergenceError):
        async with durable_context(run_id="r", journal=journal, replay="strict") as ctx:
            await durable_tools([charging(effects)], ctx)["charge"].call({"order": 2}, tool_call_id="s0p0")
    assert effects.counts() == {"charge order-1": 1}


async def test_parallel_calls_of_one_id_are_one_effect(journal, effects):
    async with durable_context(run_id="r", journal=journal) as ctx:
        durable = durable_tools([charging(effects)], ctx)["charge"]
        calls = [durable.call({"order": 1}, tool_call_id="s0p0") for _ in range(5)]
        assert await asyncio.gather(*calls) == [{"receipt": 1}] * 5
    assert effects.count() == 1


async def test_parallel_calls_of_one_step_run_side_by_side_each_once(journal, effects):
    inside, both = [], asyncio.Event()

    @tool
    async def charge(ctx: Context, order: int) -> int:
        """Charge when the other one is there, too."""
        inside.append(order)
        if len(inside) == 2:
            both.set()
        await both.wait()
        return effects.fire("charge", f"order-{order}", order)

    async with durable_context(run_id="r", journal=journal) as ctx:
        durable = durable_tools([charge], ctx)["charge"]
        done = await asyncio.gather(
            durable.call({"order": 1}, tool_call_id="s0p0"), durable.call({"order": 2}, tool_call_id="s0p1")
        )
    assert (done, effects.count()) == ([1, 2], 2)
