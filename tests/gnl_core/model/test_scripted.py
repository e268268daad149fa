import asyncio

import pytest

from gnl_core.errors import ConfigError, ModelRateLimitedError, ModelResponseError
from gnl_core.model.messages import (
    Message,
    ModelRequest,
    ModelResponse,
    ResponseDone,
    TextDelta,
    TextPart,
    ToolCallDelta,
    ToolCallPart,
    Usage,
)
from gnl_core.model.port import ChatModel
from gnl_core.testing.scripted import Call, ScriptedModel, raise_once


def request(*answers: ModelResponse) -> ModelRequest:
    """A conversation in which the model has given these answers."""
    messages = [Message("user", (TextPart("go"),))]
    for answer in answers:
        messages += [answer.message(), Message("user", (TextPart("and now?"),))]
    return ModelRequest(None, tuple(messages))


async def collect(stream):
    return [event async for event in stream]


async def test_the_turn_follows_from_the_request_so_another_process_goes_on():
    script = [[("pay", {"amount": 10})], "paid"]
    first = await ScriptedModel(script).generate(request())
    second = await ScriptedModel(script).generate(request(first))
    assert first.tool_calls == (ToolCallPart("", "pay", {"amount": 10}, "", "call_0_0"),)
    assert (first.stop_reason, second.stop_reason, second.text) == ("tool_calls", "stop", "paid")


async def test_the_same_request_twice_is_the_same_turn_twice_and_both_are_counted():
    model = ScriptedModel(["a", "b"])
    assert isinstance(model, ChatModel)
    assert [(await model.generate(request())).text for _ in range(2)] == ["a", "a"]
    assert model.calls == 2
    assert model.requests == [request(), request()]


async def test_a_conversation_that_began_before_the_script():
    old = ModelResponse((TextPart("hello"),))
    assert (await ScriptedModel(["new"], history=1).generate(request(old))).text == "new"


async def test_running_out_of_turns_says_how_many_there_are():
    model = ScriptedModel(["a"])
    with pytest.raises(ConfigError, match="1 turns, and a request at turn 1"):
        await model.generate(request(await model.generate(request())))
    with pytest.raises(ConfigError, match="turn -1"):
        await ScriptedModel(["a"], history=1).generate(request())


async def test_turns_of_every_kind():
    whole = ModelResponse((TextPart("whole"),), Usage(1, 2), model="m", provider="p")

    async def later(req: ModelRequest):
        return [("look", {"n": len(req.messages)})]

    model = ScriptedModel(["t", ["say", Call("do", {"x": 1}, provider_id="zz")], whole, later, lambda _: "f"])
    answers: list[ModelResponse] = []
    for _ in range(5):
        answers.append(await model.generate(request(*answers)))
    assert answers[0].parts == (TextPart("t"),)
    assert answers[1].parts == (TextPart("say"), ToolCallPart("", "do", {"x": 1}, "", "zz"))
    assert answers[2] is whole
    assert answers[3].tool_calls[0].args == {"n": 7}
    assert answers[4].text == "f"


async def test_an_exception_is_raised_each_time_and_raise_once_only_once():
    always = ScriptedModel([ModelRateLimitedError("slow", retry_after=3)])
    for _ in range(2):
        with pytest.raises(ModelRateLimitedError, match="slow"):
            await always.generate(request())
    model = ScriptedModel([raise_once(ModelRateLimitedError("1"), raise_once(ModelResponseError("2"), "fine"))])
    with pytest.raises(ModelRateLimitedError):
        await model.generate(request())
    with pytest.raises(ModelResponseError):
        await collect(model.stream(request()))
    assert (await model.generate(request())).text == "fine"
    assert (await model.generate(request())).text == "fine"


@pytest.mark.parametrize(
    ("scheme", "ids"), [("unique", ["call_0_0", "call_0_1"]), ("restart", ["call_0", "call_1"]), ("none", ["", ""])]
)
async def test_provider_ids_as_providers_give_them(scheme, ids):
    answer = await ScriptedModel([[("a", {}), ("b", {})]], call_ids=scheme).generate(request())
    assert [call.provider_id for call in answer.tool_calls] == ids


async def test_arguments_that_are_no_object_arrive_as_text():
    answer = await ScriptedModel([[("a", "[1"), ("a", {"x": float("nan")}), ("a", '{"x": 1e400}')]]).generate(request())
    assert [call.args for call in answer.tool_calls] == [None, None, None]
    assert [call.raw_args for call in answer.tool_calls] == ["[1", '{"x": NaN}', '{"x": 1e400}']


async def test_arguments_are_not_shared_with_the_script():
    args = {"x": [1]}
    model = ScriptedModel([[("a", args)]])
    first = await model.generate(request())
    first.tool_calls[0].args["x"].append(2)
    assert (await model.generate(request())).tool_calls[0].args == {"x": [1]}
    assert args == {"x": [1]}


async def test_a_stream_comes_in_pieces_and_ends_with_the_whole_answer():
    model = ScriptedModel([["one two", ("pay", {"amount": 10})]], usage=Usage(7, 8))
    *deltas, done = await collect(model.stream(request()))
    assert "".join(d.text for d in deltas if isinstance(d, TextDelta)) == "one two"
    assert sum(isinstance(d, TextDelta) for d in deltas) == 2
    assert "".join(d.args_text for d in deltas if isinstance(d, ToolCallDelta)) == '{"amount": 10}'
    assert done == ResponseDone(await model.generate(request()))
    assert done.response.usage == Usage(7, 8)


async def test_s64_a_stream_that_is_cut_gives_its_first_events_and_no_answer(drain):
    model = ScriptedModel(["one two three four"], cut_after=3)
    seen, error = await drain(model.stream(request()))
    assert isinstance(error, ModelResponseError)
    assert "broke off after 3 events" in str(error)
    assert seen == [TextDelta("one "), TextDelta("two "), TextDelta("three ")]
    model.cut_after = None
    assert isinstance((await collect(model.stream(request())))[-1], ResponseDone)


async def test_a_gate_holds_the_answer_back():
    gate = asyncio.Event()
    model = ScriptedModel(["a"], gate=gate)
    task = asyncio.create_task(model.generate(request()))
    await model.entered.wait()
    assert not task.done()
    gate.set()
    assert (await task).text == "a"


@pytest.mark.parametrize(
    "turn", [None, 3, [("pay",)], [("pay", 3)], [None], [("pay", {"x": object()})], raise_once(ValueError(), None)]
)
def test_what_is_no_turn_is_refused_when_it_is_written(turn):
    with pytest.raises(ConfigError, match=r"turns\[1\]"):
        ScriptedModel(["a", turn])


def test_a_text_is_no_script():
    with pytest.raises(ConfigError, match="list of turns"):
        ScriptedModel("hello")


async def test_what_a_function_returns_is_checked_too():
    with pytest.raises(ConfigError, match="turn 0"):
        await ScriptedModel([lambda _: 3]).generate(request())
