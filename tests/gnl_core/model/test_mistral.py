"""Requests and answers of Mistral's chat API, as they stand on the wire."""

import json

import pytest

from gnl_core.model.messages import (
    Message,
    ModelRequest,
    ModelSettings,
    ReasoningDelta,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from gnl_core.model.providers.mistral import nine_characters

USER = Message("user", (TextPart("pay"),))
THINKING = {"type": "thinking", "thinking": [{"type": "text", "text": "Let me think."}]}


def wire_call(call_id, args, **more):
    return {"id": call_id, "type": "function", "function": {"name": "pay", "arguments": args}, **more}


def answer_with(speaks, **message):
    choice = {"index": 0, "finish_reason": "tool_calls", "message": {"role": "assistant", "content": "", **message}}
    return {**speaks.whole, "choices": [choice]}


def history_of(answer, *results):
    parts, position = [], 0
    for part in answer.parts:
        if isinstance(part, ToolCallPart):
            part = ToolCallPart(f"s0p{position}", part.name, part.args, part.raw_args, part.provider_id)  # noqa: PLW2901
            position += 1
        parts.append(part)
    said = Message("assistant", tuple(parts), answer.provider, json.loads(json.dumps(answer.provider_data)))
    return (USER, said, *(Message("tool", (result,)) for result in results))


async def test_a_round_trip_with_tools_and_thinking(server, mistral_speaks, pay_tool):
    calls = [wire_call("AbCdEfGh1", '{"amount": 10}'), wire_call("AbCdEfGh2", {"amount": 20})]
    content = [THINKING, {"type": "text", "text": "Paying."}]
    server.json(answer_with(mistral_speaks, content=content, tool_calls=calls))
    server.json(mistral_speaks.whole)
    model = mistral_speaks.model(server, provider="mine")
    settings = ModelSettings(
        temperature=0.5,
        max_output_tokens=99,
        top_p=0.9,
        stop=("END",),
        seed=7,
        tool_choice="required",
        extra={"safe_prompt": True},
    )
    answer = await model.generate(ModelRequest("Be brief.", (USER,), (pay_tool,), settings))
    assert answer.parts == (
        ReasoningPart("Let me think."),
        TextPart("Paying."),
        ToolCallPart("", "pay", {"amount": 10}, "", "AbCdEfGh1"),
        ToolCallPart("", "pay", {"amount": 20}, "", "AbCdEfGh2"),
    )
    assert server.requests[0].path == "/v1/chat/completions"
    assert server.requests[0].headers["authorization"] == f"Bearer {mistral_speaks.key}"
    body = server.requests[0].body
    function = body["tools"][0]["function"]
    assert (function["name"], function["parameters"]) == ("pay", pay_tool.parameters)
    assert body["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "pay"}]
    names = ("model", "temperature", "max_tokens", "top_p", "stop", "random_seed", "tool_choice", "safe_prompt")
    assert [body[name] for name in names] == ["m-1", 0.5, 99, 0.9, ["END"], 7, "any", True]

    done = ToolResultPart("s0p0", "pay", "paid 10")
    failed = ToolResultPart("s0p1", "pay", "too much", is_error=True)
    history = history_of(answer, done, failed)
    await model.generate(ModelRequest(None, history, (pay_tool,), ModelSettings(tool_choice="pay")))
    body = server.requests[1].body
    _, said, *results = body["messages"]
    assert said["content"] == content
    assert [one["id"] for one in said["tool_calls"]] == ["AbCdEfGh1", "AbCdEfGh2"]
    assert [json.loads(one["function"]["arguments"]) for one in said["tool_calls"]] == [{"amount": 10}, {"amount": 20}]
    assert results == [
        {"role": "tool", "name": "pay", "tool_call_id": "AbCdEfGh1", "content": "paid 10"},
        {"role": "tool", "name": "pay", "tool_call_id": "AbCdEfGh2", "content": "too much"},
    ]
    assert body["tool_choice"] == {"type": "function", "function": {"name": "pay"}}

    await mistral_speaks.model(server, provider="other").generate(ModelRequest(None, history))
    _, said, *results = server.requests[2].body["messages"]
    ours = [nine_characters("s0p0"), nine_characters("s0p1")]
    assert said["content"] == "Paying."
    assert [one["id"] for one in said["tool_calls"]] == ours
    assert [one["tool_call_id"] for one in results] == ours


async def test_s15_no_id_is_an_empty_one_and_nine_characters_on_the_wire(server, mistral_speaks):
    calls = [wire_call(None, "{}"), {"function": {"name": "pay", "arguments": "{}"}}, wire_call("null", "{}")]
    server.json(answer_with(mistral_speaks, tool_calls=calls))
    server.json(mistral_speaks.whole)
    model = mistral_speaks.model(server)
    answer = await model.generate(ModelRequest(None, (USER,)))
    assert [one.provider_id for one in answer.tool_calls] == ["", "", ""]
    await model.generate(ModelRequest(None, history_of(answer)))
    sent = [one["id"] for one in server.requests[1].body["messages"][1]["tool_calls"]]
    assert sent == [nine_characters(f"s0p{i}") for i in range(3)]


@pytest.mark.parametrize("indexes", [(0, 1), (0, 0)])
async def test_a_stream_with_thinking_and_calls(server, mistral_speaks, indexes):
    def think(text):
        return {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": text}]}]}

    first = wire_call("AbCdEfGh1", '{"amount": 10}', index=indexes[0])
    second = wire_call("AbCdEfGh2", '{"amount": 20}', index=indexes[1])
    server.sse(
        [
            mistral_speaks.chunk(think("Let me ")),
            mistral_speaks.chunk(think("think.")),
            mistral_speaks.chunk({"content": "Paying."}),
            mistral_speaks.chunk({"content": "", "tool_calls": [first]}),
            mistral_speaks.chunk({"content": "", "tool_calls": [second]}, finish="tool_calls"),
            "data: [DONE]\n\n",
        ]
    )
    events = [event async for event in mistral_speaks.model(server).stream(ModelRequest(None, (USER,)))]
    response = events[-1].response
    assert events[:2] == [ReasoningDelta("Let me "), ReasoningDelta("think.")]
    assert response.parts == (
        ReasoningPart("Let me think."),
        TextPart("Paying."),
        ToolCallPart("", "pay", {"amount": 10}, "", "AbCdEfGh1"),
        ToolCallPart("", "pay", {"amount": 20}, "", "AbCdEfGh2"),
    )
    assert response.provider_data == {"thinking": [THINKING]}
