"""Requests and answers of the messages API, as they stand on the wire."""

import json

import pytest

from gnl_core.model.messages import (
    Message,
    ModelRequest,
    ModelSettings,
    ReasoningDelta,
    ReasoningPart,
    TextPart,
    ToolCallDelta,
    ToolCallPart,
    ToolResultPart,
)

USER = Message("user", (TextPart("pay"),))
THINKING = {"type": "thinking", "thinking": "Let me think.", "signature": "c2lnbmF0dXJl=="}
REDACTED = {"type": "redacted_thinking", "data": "ZW5jcnlwdGVk"}


def use(call_id, **args):
    return {"type": "tool_use", "id": call_id, "name": "pay", "input": args}


def say(text):
    return {"type": "text", "text": text}


async def test_a_round_trip_with_tools_and_thinking(server, anthropic_speaks, pay_tool):
    content = [THINKING, REDACTED, say("Paying."), use("toolu_a", amount=10), use("toolu_b", amount=2**70)]
    server.json({**anthropic_speaks.whole, "content": content, "stop_reason": "tool_use"})
    server.json(anthropic_speaks.whole)
    model = anthropic_speaks.model(server, provider="mine")
    settings = ModelSettings(
        temperature=0.5,
        max_output_tokens=99,
        top_p=0.9,
        stop=("END",),
        seed=7,
        tool_choice="required",
        extra={"top_k": 3},
    )
    answer = await model.generate(ModelRequest("Be brief.", (USER,), (pay_tool,), settings))
    assert answer.parts == (
        ReasoningPart("Let me think."),
        ReasoningPart(""),
        TextPart("Paying."),
        ToolCallPart("", "pay", {"amount": 10}, "", "toolu_a"),
        ToolCallPart("", "pay", {"amount": 2**70}, "", "toolu_b"),
    )
    assert (answer.stop_reason, answer.provider_data) == ("tool_calls", {"blocks": [THINKING, REDACTED]})
    assert server.requests[0].path == "/v1/messages"
    assert anthropic_speaks.key in json.dumps(server.requests[0].headers)
    assert server.requests[0].body == {
        "model": "m-1",
        "max_tokens": 99,
        "system": "Be brief.",
        "messages": [{"role": "user", "content": [say("pay")]}],
        "temperature": 0.5,
        "top_p": 0.9,
        "stop_sequences": ["END"],
        "top_k": 3,
        "tools": [{"name": "pay", "description": "Pay somebody.", "input_schema": pay_tool.parameters}],
        "tool_choice": {"type": "any"},
    }
    first, second = answer.tool_calls
    said = Message(
        "assistant",
        (
            *answer.parts[:3],
            ToolCallPart("s0p0", "pay", first.args, "", first.provider_id),
            ToolCallPart("s0p1", "pay", second.args, "", second.provider_id),
        ),
        answer.provider,
        json.loads(json.dumps(answer.provider_data)),
    )
    results = (
        Message("tool", (ToolResultPart("s0p0", "pay", "paid 10"),)),
        Message("tool", (ToolResultPart("s0p1", "pay", "too much", is_error=True),)),
    )
    history = (USER, said, *results, Message("user", (TextPart("go on"),)))
    await model.generate(ModelRequest(None, history, (pay_tool,)))
    assert server.requests[1].body["messages"] == [
        {"role": "user", "content": [say("pay")]},
        {"role": "assistant", "content": content},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_a", "content": "paid 10"},
                {"type": "tool_result", "tool_use_id": "toolu_b", "content": "too much", "is_error": True},
                say("go on"),
            ],
        },
    ]
    assert "system" not in server.requests[1].body
    assert server.requests[1].body["max_tokens"] == 8192

    await anthropic_speaks.model(server, provider="other").generate(ModelRequest(None, history))
    sent = server.requests[2].body["messages"]
    assert sent[1]["content"] == [say("Paying."), use("s0p0", amount=10), use("s0p1", amount=2**70)]
    assert [block.get("tool_use_id") for block in sent[2]["content"]] == ["s0p0", "s0p1", None]


async def test_a_stream_with_thinking_and_calls_in_pieces(server, anthropic_speaks):
    server.sse(
        anthropic_speaks.events(
            (
                {"type": "thinking", "thinking": "", "signature": ""},
                [
                    {"type": "thinking_delta", "thinking": "Let me "},
                    {"type": "thinking_delta", "thinking": "think."},
                    {"type": "signature_delta", "signature": "c2lnbmF0dXJl=="},
                ],
            ),
            (REDACTED, []),
            (say(""), [{"type": "text_delta", "text": "Paying."}]),
            (
                use("toolu_a"),
                [
                    {"type": "input_json_delta", "partial_json": ""},
                    {"type": "input_json_delta", "partial_json": '{"amo'},
                    {"type": "input_json_delta", "partial_json": 'unt": 10}'},
                ],
            ),
            (use("toolu_b"), [{"type": "input_json_delta", "partial_json": '{"amount": '}]),
            stop="max_tokens",
        )
    )
    events = [event async for event in anthropic_speaks.model(server).stream(ModelRequest(None, (USER,)))]
    response = events[-1].response
    assert events[:2] == [ReasoningDelta("Let me "), ReasoningDelta("think.")]
    assert response.parts == (
        ReasoningPart("Let me think."),
        ReasoningPart(""),
        TextPart("Paying."),
        ToolCallPart("", "pay", {"amount": 10}, "", "toolu_a"),
        ToolCallPart("", "pay", None, '{"amount": ', "toolu_b"),
    )
    assert response.provider_data == {"blocks": [THINKING, REDACTED]}
    assert response.stop_reason == "length"
    assert {event.position for event in events if isinstance(event, ToolCallDelta)} == {0, 1}


async def test_an_error_within_a_stream_is_no_answer(server, anthropic_speaks, drain):
    broken = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    server.sse([*anthropic_speaks.pieces[:4], f"event: error\ndata: {json.dumps(broken)}\n\n"])
    events, error = await drain(anthropic_speaks.model(server).stream(ModelRequest(None, (USER,))))
    assert len(events) == 1
    assert error.code == "upstream_response_invalid"
    assert "Overloaded" in str(error)


@pytest.mark.parametrize(
    ("choice", "sent"),
    [("auto", {"type": "auto"}), ("none", {"type": "none"}), ("pay", {"type": "tool", "name": "pay"}), (None, None)],
)
async def test_tool_choice(server, anthropic_speaks, pay_tool, choice, sent):
    server.json(anthropic_speaks.whole)
    request = ModelRequest(None, (USER,), (pay_tool,), ModelSettings(tool_choice=choice))
    await anthropic_speaks.model(server).generate(request)
    assert server.requests[0].body.get("tool_choice") == sent


async def test_empty_texts_are_left_out_since_the_api_refuses_them(server, anthropic_speaks):
    server.json(anthropic_speaks.whole)
    history = (USER, Message("assistant", (TextPart(""),)), Message("user", (TextPart("again"),)))
    await anthropic_speaks.model(server).generate(ModelRequest(None, history))
    assert server.requests[0].body["messages"] == [{"role": "user", "content": [say("pay"), say("again")]}]
