"""Requests and answers of the Gemini API, as they stand on the wire."""

import json

import pytest

from gnl_core.errors import ModelResponseError
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

USER = Message("user", (TextPart("pay"),))


def call(amount, **more):
    return {"functionCall": {"name": "pay", "args": {"amount": amount}, **more}}


def history_of(answer, *results):
    parts, position = [], 0
    for part in answer.parts:
        if isinstance(part, ToolCallPart):
            part = ToolCallPart(f"s0p{position}", part.name, part.args, part.raw_args, part.provider_id)  # noqa: PLW2901
            position += 1
        parts.append(part)
    said = Message("assistant", tuple(parts), answer.provider, json.loads(json.dumps(answer.provider_data)))
    return (USER, said, *(Message("tool", (result,)) for result in results))


async def test_a_round_trip_with_tools_and_signatures(server, google_speaks, pay_tool):
    parts = [
        {"text": "Let me think.", "thought": True},
        {"text": "Paying."},
        {**call(10), "thoughtSignature": "c2ln"},
        call(20),
    ]
    candidate = {"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}
    server.json({**google_speaks.whole, "candidates": [candidate]})
    server.json(google_speaks.whole)
    model = google_speaks.model(server, provider="mine")
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
        TextPart("Paying."),
        ToolCallPart("", "pay", {"amount": 10}),
        ToolCallPart("", "pay", {"amount": 20}),
    )
    assert (answer.stop_reason, answer.provider_data) == ("tool_calls", {"signatures": {"2": "c2ln"}})
    body = server.requests[0].body
    assert server.requests[0].path.endswith("/models/m-1:generateContent")
    assert server.requests[0].headers["x-goog-api-key"] == google_speaks.key
    assert body["contents"] == [{"role": "user", "parts": [{"text": "pay"}]}]
    assert body["systemInstruction"]["parts"] == [{"text": "Be brief."}]
    (declared,) = body["tools"][0]["functionDeclarations"]
    schema = declared.pop("parameters_json_schema", None) or declared.pop("parametersJsonSchema")  # the API takes both
    assert schema == pay_tool.parameters
    assert declared == {"name": "pay", "description": "Pay somebody."}
    assert body["toolConfig"] == {"functionCallingConfig": {"mode": "ANY"}}
    assert body["generationConfig"] == {
        "temperature": 0.5,
        "maxOutputTokens": 99,
        "topP": 0.9,
        "topK": 3,
        "stopSequences": ["END"],
        "seed": 7,
    }
    done = ToolResultPart("s0p0", "pay", "paid 10")
    failed = ToolResultPart("s0p1", "pay", "too much", is_error=True)
    history = history_of(answer, done, failed)
    await model.generate(ModelRequest(None, history, (pay_tool,), ModelSettings(tool_choice="pay")))
    body = server.requests[1].body
    assert body["contents"] == [
        {"role": "user", "parts": [{"text": "pay"}]},
        {"role": "model", "parts": [{"text": "Paying."}, {**call(10), "thoughtSignature": "c2ln"}, call(20)]},
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"name": "pay", "response": {"output": "paid 10"}}},
                {"functionResponse": {"name": "pay", "response": {"error": "too much"}}},
            ],
        },
    ]
    calling = {"mode": "ANY", "allowedFunctionNames": ["pay"]}
    assert body["toolConfig"] == {"functionCallingConfig": calling}
    assert "systemInstruction" not in body

    await google_speaks.model(server, provider="other").generate(ModelRequest(None, history))
    assert "c2ln" not in json.dumps(server.requests[2].body)


async def test_ids_go_back_where_the_provider_gave_them(server, google_speaks):
    parts = [call(1, id="call_0"), call(2, id="call_0"), call(3, id="call_1")]
    server.json(
        {**google_speaks.whole, "candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}]}
    )
    server.json(google_speaks.whole)
    model = google_speaks.model(server)
    answer = await model.generate(ModelRequest(None, (USER,)))
    assert [one.provider_id for one in answer.tool_calls] == ["call_0", "call_0", "call_1"]
    history = history_of(answer, *(ToolResultPart(f"s0p{i}", "pay", str(i)) for i in range(3)))
    await model.generate(ModelRequest(None, history))
    _, said, results = server.requests[1].body["contents"]
    assert [part["functionCall"].get("id") for part in said["parts"]] == [None, None, "call_1"]
    assert [part["functionResponse"].get("id") for part in results["parts"]] == [None, None, "call_1"]


async def test_a_stream_with_a_thought_and_calls(server, google_speaks):
    server.sse(
        [
            google_speaks.chunk({"text": "Let me ", "thought": True}),
            google_speaks.chunk({"text": "think.", "thought": True}),
            google_speaks.chunk({"text": "Pay"}),
            google_speaks.chunk({"text": "ing."}, {**call(10), "thoughtSignature": "c2ln"}),
            google_speaks.chunk(call(20)),
            google_speaks.chunk({"text": ""}, finish="MAX_TOKENS"),
        ]
    )
    events = [event async for event in google_speaks.model(server).stream(ModelRequest(None, (USER,)))]
    response = events[-1].response
    assert events[0] == ReasoningDelta("Let me ")
    assert response.parts == (
        ReasoningPart("Let me think."),
        TextPart("Paying."),
        ToolCallPart("", "pay", {"amount": 10}),
        ToolCallPart("", "pay", {"amount": 20}),
    )
    assert response.provider_data == {"signatures": {"2": "c2ln"}}
    assert response.stop_reason == "length"
    assert "streamGenerateContent" in server.requests[0].path


async def test_a_prompt_that_is_refused_says_why(server, google_speaks):
    server.json({"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 4}})
    with pytest.raises(ModelResponseError, match="refused the prompt: SAFETY"):
        await google_speaks.model(server).generate(ModelRequest(None, (USER,)))


async def test_an_answer_that_a_filter_ended(server, google_speaks):
    server.json({**google_speaks.whole, "candidates": [{"finishReason": "SAFETY"}]})
    answer = await google_speaks.model(server).generate(ModelRequest(None, (USER,)))
    assert (answer.parts, answer.stop_reason) == ((), "content_filter")


async def test_arguments_out_of_range(server, google_speaks):
    body = {**google_speaks.whole, "candidates": [{"content": {"parts": [call(0)]}, "finishReason": "STOP"}]}
    server.json(json.dumps(body).replace('"amount": 0', '"amount": 1e400').encode())
    answer = await google_speaks.model(server).generate(ModelRequest(None, (USER,)))
    assert answer.tool_calls[0].args is None
    assert "Infinity" in answer.tool_calls[0].raw_args
