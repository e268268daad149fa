"""Requests and answers of the chat completions API, as they stand on the wire."""

import json

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
    Usage,
)
from gnl_core.model.providers.openai import OpenAIModel
from gnl_core.model.router import register_model_provider, resolve_model

USER = Message("user", (TextPart("pay"),))


def wire_call(call_id, args, **more):
    return {"id": call_id, "type": "function", "function": {"name": "pay", "arguments": args}, **more}


def answer_with(speaks, **message):
    choice = {"index": 0, "finish_reason": "tool_calls", "message": {"role": "assistant", "content": None, **message}}
    return {**speaks.whole, "choices": [choice]}


def with_results(message, *results):
    """The history one step later: the runtime has given our ids to the calls."""
    parts, position = [], 0
    for part in message.parts:
        if isinstance(part, ToolCallPart):
            part = ToolCallPart(f"s0p{position}", part.name, part.args, part.raw_args, part.provider_id)  # noqa: PLW2901
            position += 1
        parts.append(part)
    said = Message("assistant", tuple(parts), message.provider, message.provider_data)
    return (USER, said, *(Message("tool", (result,)) for result in results))


async def test_a_round_trip_with_tools(server, openai_speaks, pay_tool):
    calls = [wire_call("call_a", '{"amount": 10}'), wire_call("call_b", '{"amount": NaN}')]
    server.json(answer_with(openai_speaks, content="Paying.", tool_calls=calls))
    server.json(openai_speaks.whole)
    model = openai_speaks.model(server, provider="mine")
    settings = ModelSettings(
        temperature=0.5,
        max_output_tokens=99,
        top_p=0.9,
        stop=("END",),
        seed=7,
        tool_choice="required",
        extra={"user": "u"},
    )
    answer = await model.generate(ModelRequest("Be brief.", (USER,), (pay_tool,), settings))
    assert answer.parts == (
        TextPart("Paying."),
        ToolCallPart("", "pay", {"amount": 10}, "", "call_a"),
        ToolCallPart("", "pay", None, '{"amount": NaN}', "call_b"),
    )
    assert answer.stop_reason == "tool_calls"
    assert server.requests[0].path == "/v1/chat/completions"
    assert server.requests[0].headers["authorization"] == f"Bearer {openai_speaks.key}"
    assert server.requests[0].body == {
        "model": "m-1",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "pay"}],
        "temperature": 0.5,
        "max_tokens": 99,
        "top_p": 0.9,
        "stop": ["END"],
        "seed": 7,
        "user": "u",
        "tools": [
            {
                "type": "function",
                "function": {"name": "pay", "description": "Pay somebody.", "parameters": pay_tool.parameters},
            }
        ],
        "tool_choice": "required",
    }
    done = ToolResultPart("s0p0", "pay", "paid 10", provider_id="call_a")
    refused = ToolResultPart("s0p1", "pay", "no JSON", is_error=True, provider_id="call_b")
    history = with_results(answer.message(), done, refused)
    await model.generate(ModelRequest(None, history, (pay_tool,), ModelSettings(tool_choice="pay")))
    assert server.requests[1].body["messages"] == [
        {"role": "user", "content": "pay"},
        {
            "role": "assistant",
            "content": "Paying.",
            "tool_calls": [
                wire_call("call_a", '{"amount": 10}'),
                wire_call("call_b", '{"unreadable_arguments": "{\\"amount\\": NaN}"}'),
            ],
        },
        {"role": "tool", "tool_call_id": "call_a", "content": "paid 10"},
        {"role": "tool", "tool_call_id": "call_b", "content": "no JSON"},
    ]
    assert server.requests[1].body["tool_choice"] == {"type": "function", "function": {"name": "pay"}}


async def test_s13_s15_ids_that_name_no_call_are_ours_on_the_wire(server, openai_speaks):
    calls = [wire_call("call_0", "{}"), wire_call("call_0", "{}"), wire_call("", "{}")]
    server.json(answer_with(openai_speaks, tool_calls=calls))
    server.json(openai_speaks.whole)
    model = openai_speaks.model(server)
    answer = await model.generate(ModelRequest(None, (USER,)))
    assert [call.provider_id for call in answer.tool_calls] == ["call_0", "call_0", ""]
    history = with_results(answer.message(), *(ToolResultPart(f"s0p{i}", "pay", str(i)) for i in range(3)))
    await model.generate(ModelRequest(None, history))
    sent = server.requests[1].body["messages"]
    assert [call["id"] for call in sent[1]["tool_calls"]] == ["s0p0", "s0p1", "s0p2"]
    assert [(m["tool_call_id"], m["content"]) for m in sent[2:]] == [("s0p0", "0"), ("s0p1", "1"), ("s0p2", "2")]
    assert sent[1]["content"] is None


async def test_a_stream_whose_calls_come_in_pieces_and_their_ids_late(server, openai_speaks, pay_tool):
    def piece(index, **more):
        function = {name: more.pop(name) for name in ("name", "arguments") if name in more}
        return openai_speaks.chunk({"tool_calls": [{"index": index, "function": function, **more}]})

    server.sse(
        [
            openai_speaks.chunk({"role": "assistant", "content": "Pay"}),
            openai_speaks.chunk({"content": "ing."}),
            piece(0, name="pay", arguments=""),
            piece(0, arguments='{"amo'),
            piece(1, id="call_b", type="function", name="pay", arguments='{"amount"'),
            piece(0, id="call_a", arguments='unt": 10}'),
            piece(1, arguments=": 20}"),
            openai_speaks.chunk({}, finish="tool_calls"),
            openai_speaks.chunk(usage={"prompt_tokens": 5, "completion_tokens": 6, "total_tokens": 11}),
            "data: [DONE]\n\n",
        ]
    )
    events = [event async for event in openai_speaks.model(server).stream(ModelRequest(None, (USER,), (pay_tool,)))]
    response = events[-1].response
    assert response.parts == (
        TextPart("Paying."),
        ToolCallPart("", "pay", {"amount": 10}, "", "call_a"),
        ToolCallPart("", "pay", {"amount": 20}, "", "call_b"),
    )
    assert (response.usage, response.stop_reason) == (Usage(5, 6), "tool_calls")
    pieces = [event for event in events if isinstance(event, ToolCallDelta)]
    assert "".join(event.args_text for event in pieces if event.position == 0) == '{"amount": 10}'
    assert "".join(event.args_text for event in pieces if event.position == 1) == '{"amount": 20}'
    assert server.requests[0].body["stream"] is True
    assert server.requests[0].body["stream_options"] == {"include_usage": True}


async def test_a_server_that_numbers_every_call_0(server, openai_speaks):
    def whole(amount):
        function = {"name": "pay", "arguments": json.dumps({"amount": amount})}
        return openai_speaks.chunk({"tool_calls": [{"index": 0, "id": "", "type": "function", "function": function}]})

    server.sse([whole(10), whole(20), openai_speaks.chunk({}, finish="stop")])
    events = [event async for event in openai_speaks.model(server).stream(ModelRequest(None, (USER,)))]
    assert [call.args for call in events[-1].response.tool_calls] == [{"amount": 10}, {"amount": 20}]
    assert events[-1].response.stop_reason == "tool_calls"


async def test_what_a_server_wants_back_goes_back_to_it_alone(server, openai_speaks):
    extra = {"google": {"thought_signature": "c2ln"}}
    calls = [wire_call("call_a", "{}", extra_content=extra), wire_call("call_b", "{}")]
    details = [{"type": "reasoning.encrypted", "data": "xyz"}]
    message = {"reasoning_content": "Let me think.", "reasoning_details": details, "tool_calls": calls}
    server.json(answer_with(openai_speaks, **message))
    server.json(openai_speaks.whole)
    model = openai_speaks.model(server, provider="mine")
    answer = await model.generate(ModelRequest(None, (USER,)))
    assert answer.parts[0] == ReasoningPart("Let me think.")
    history = with_results(answer.message(), *(ToolResultPart(f"s0p{i}", "pay", "ok") for i in range(2)))
    await model.generate(ModelRequest(None, history))
    sent = server.requests[1].body["messages"][1]
    assert sent["reasoning_content"] == "Let me think."
    assert sent["reasoning_details"] == details
    assert [call.get("extra_content") for call in sent["tool_calls"]] == [extra, None]
    await openai_speaks.model(server, provider="other").generate(ModelRequest(None, history))
    sent = json.dumps(server.requests[2].body)
    assert "think" not in sent
    assert "xyz" not in sent
    assert "call_a" not in sent


async def test_reasoning_in_a_stream(server, openai_speaks):
    pieces = [
        openai_speaks.chunk({"reasoning_content": "Let me "}),
        openai_speaks.chunk({"reasoning_content": "think."}),
    ]
    server.sse([*pieces, openai_speaks.chunk({"content": "Done."}), openai_speaks.chunk({}, finish="stop")])
    events = [event async for event in openai_speaks.model(server).stream(ModelRequest(None, (USER,)))]
    assert events[:2] == [ReasoningDelta("Let me "), ReasoningDelta("think.")]
    assert events[-1].response.parts == (ReasoningPart("Let me think."), TextPart("Done."))
    assert events[-1].response.provider_data == {"reasoning_content": "Let me think."}


async def test_the_seeds_own_provider(server, openai_speaks):
    server.json(openai_speaks.whole)
    undo = register_model_provider("nvidia", lambda m: OpenAIModel(m, base_url=f"{server.url}/v1", api_key="k-123456"))
    try:
        model = resolve_model("nvidia/meta/llama-3.1-70b-instruct")
    finally:
        undo()
    answer = await model.generate(ModelRequest(None, (USER,)))
    assert server.requests[0].body["model"] == "meta/llama-3.1-70b-instruct"
    assert (answer.provider, model.spec) == ("nvidia", "nvidia/meta/llama-3.1-70b-instruct")


async def test_another_server_may_come_from_the_environment(server, openai_speaks, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
    server.json(openai_speaks.whole)
    answer = await resolve_model("openai/local").generate(ModelRequest(None, (USER,)))
    assert answer.provider == "openai"


async def test_openai_itself_is_told_the_new_name_of_the_limit():
    settings = ModelSettings(max_output_tokens=5)
    call = OpenAIModel("gpt-x")._request(ModelRequest(None, (USER,), (), settings))
    assert (call["max_completion_tokens"], "max_tokens" in call) == (5, False)


async def test_a_refusal_is_text_and_a_filter_is_told(server, openai_speaks):
    body = answer_with(openai_speaks, refusal="I will not.")
    body["choices"][0]["finish_reason"] = "content_filter"
    server.json(body)
    answer = await openai_speaks.model(server).generate(ModelRequest(None, (USER,)))
    assert (answer.text, answer.stop_reason) == ("I will not.", "content_filter")
