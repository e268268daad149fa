"""Our own call ids: what a provider sends as an id decides nothing."""

import re

import pytest

from gnl_core import run_durable, stream_durable, tool
from gnl_core.model.messages import ModelResponse, TextPart, ToolCallPart
from gnl_core.testing.scripted import Call, ScriptedModel


def charging(effects):
    """A side effect whose receipt names the amount."""

    @tool
    def charge(amount: int) -> str:
        effects.fire("charge", f"amount-{amount}")
        return f"receipt for {amount}"

    return charge


def results(model):
    """The tool results that the last request carried to the model, as {our id: text}."""
    return {
        part.tool_call_id: part.text
        for message in model.requests[-1].messages
        if message.role == "tool"
        for part in message.parts
    }


@pytest.mark.parametrize("call_ids", ["restart", "none"])
async def test_s13_ids_that_restart_each_turn_are_two_calls(journal, effects, call_ids):
    charge = charging(effects)
    script = [[("charge", {"amount": 10})], [("charge", {"amount": 20})], "both paid"]
    model = ScriptedModel(script, call_ids=call_ids)
    result = await run_durable(run_id="r", journal=journal, model=model, tools=[charge], prompt="pay both")

    assert effects.counts() == {"charge amount-10": 1, "charge amount-20": 1}
    assert results(model) == {"s0p0": "receipt for 10", "s1p0": "receipt for 20"}
    assert result.text == "both paid"

    again = ScriptedModel(script, call_ids=call_ids)
    replayed = await run_durable(run_id="r", journal=journal, model=again, tools=[charge], prompt="pay both")
    assert (again.calls, effects.count()) == (0, 2)
    assert [call.output for step in replayed.steps for call in step.calls] == ["receipt for 10", "receipt for 20"]


async def test_s13_one_id_twice_in_one_answer_is_two_calls(journal, effects):
    charge = charging(effects)
    turn = [Call("charge", {"amount": 10}, "same"), Call("charge", {"amount": 20}, "same")]
    model = ScriptedModel([turn, "done"])
    await run_durable(run_id="r", journal=journal, model=model, tools=[charge], prompt="pay")
    assert results(model) == {"s0p0": "receipt for 10", "s0p1": "receipt for 20"}
    assert effects.counts() == {"charge amount-10": 1, "charge amount-20": 1}


@pytest.mark.parametrize("provider_id", ["", "call_0", "functions.charge:0", "x" * 300, "toolu_Ünïcode 1"])
async def test_s15_and_s17_ids_are_ours_in_the_record_and_legal_on_every_wire(journal, rows, effects, provider_id):
    charge = charging(effects)
    model = ScriptedModel([[Call("charge", {"amount": 1}, provider_id)], "done"])
    live = await run_durable(run_id="r", journal=journal, model=model, tools=[charge], prompt="pay")

    recorded = (await rows.all())["run/r/~/model/000000"].value["response"]["parts"][0]
    assert recorded["id"] == "s0p0"
    assert recorded.get("provider_id", "") == provider_id  # kept verbatim beside it
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", recorded["id"])
    assert "run/r/~/tool/000000/000" in await rows.all()

    replayed = await run_durable(run_id="r", journal=journal, model=ScriptedModel([]), tools=[charge], prompt="pay")
    assert replayed.messages == live.messages
    assert effects.count() == 1


async def test_s15_a_streamed_step_names_its_calls_alike(journal, effects):
    charge = charging(effects)
    script = [["thinking", ("charge", {"amount": 1}), ("charge", {"amount": 2})], "done"]
    async with await stream_durable(
        run_id="r", journal=journal, model=ScriptedModel(script, call_ids="none"), tools=[charge], prompt="pay"
    ) as stream:
        told = [event.tool_call_id async for event in stream.events if event.kind == "tool-finished"]
    assert told == ["s0p0", "s0p1"]
    assert effects.count() == 2


async def test_ids_count_calls_and_not_parts(journal, effects):
    parts = (
        TextPart("first"),
        ToolCallPart("", "charge", {"amount": 1}),
        TextPart("then"),
        ToolCallPart("", "charge", {"amount": 2}),
    )
    model = ScriptedModel([ModelResponse(parts, stop_reason="tool_calls"), "done"])
    result = await run_durable(run_id="r", journal=journal, model=model, tools=[charging(effects)], prompt="pay")
    assert [call.tool_call_id for call in result.steps[0].calls] == ["s0p0", "s0p1"]


async def test_an_id_of_our_own_form_from_a_provider_is_still_the_provider_s(journal, effects):
    """A provider, or a prompt that talks it into it, cannot name another call of the run."""
    script = [[Call("charge", {"amount": 1}, "s1p0")], [Call("charge", {"amount": 2}, "s0p0")], "done"]
    model = ScriptedModel(script)
    await run_durable(run_id="r", journal=journal, model=model, tools=[charging(effects)], prompt="pay")
    assert results(model) == {"s0p0": "receipt for 1", "s1p0": "receipt for 2"}
    assert effects.count() == 2


async def test_s40_code_before_a_recorded_step_may_change(journal, effects):
    """Keys come from the recorded answer: helper calls, guards and hooks of a new deployment shift nothing."""
    charge = charging(effects)
    script = [[("charge", {"amount": 1}), ("charge", {"amount": 2})], [("charge", {"amount": 3})], "done"]
    await run_durable(
        run_id="r", journal=journal, model=ScriptedModel(script), tools=[charge], prompt="pay", max_steps=1
    )
    assert effects.count() == 2

    @tool(side_effect=False)
    def helper() -> str:
        return "new in this deployment"

    asked = []

    def guard(call):
        asked.append(call.tool_call_id)
        return {"action": "allow"}

    result = await run_durable(
        run_id="r",
        journal=journal,
        model=ScriptedModel(script),
        tools=[helper, charge],
        prompt="pay",
        guard=guard,
        replay="lenient",
    )
    assert effects.counts() == {"charge amount-1": 1, "charge amount-2": 1, "charge amount-3": 1}
    assert asked == ["s1p0"]  # what is settled is not asked about again
    assert [call.tool_call_id for call in result.replayed_tool_calls] == ["s0p0", "s0p1"]
