"""What holds for every provider: whole answers, streams, failures, event loops."""

import asyncio
import email.utils
import gc
import json
import socket
import time

import pytest

from gnl_core.errors import (
    ConfigError,
    ModelRateLimitedError,
    ModelResponseError,
    ModelTimeoutError,
    ModelUnauthorizedError,
    ModelUnavailableError,
)
from gnl_core.model.messages import Message, ModelRequest, ModelSettings, ResponseDone, TextDelta, TextPart, Usage
from gnl_core.model.port import ChatModel
from gnl_core.model.providers._sdk import _open


async def test_a_whole_answer(server, speaks, hello):
    server.json(speaks.whole)
    model = speaks.model(server, provider="mine")
    assert isinstance(model, ChatModel)
    assert model.spec == "mine/m-1"
    answer = await model.generate(hello)
    assert answer.parts == (TextPart("hello world"),)
    assert answer.usage == Usage(11, 3)
    assert (answer.stop_reason, answer.model, answer.provider) == ("stop", "m-1-2026", "mine")
    assert answer.provider_data is None


async def test_a_stream_gives_the_same_answer_in_pieces(server, speaks, hello):
    server.json(speaks.whole)
    server.sse(speaks.pieces)
    model = speaks.model(server)
    whole = await model.generate(hello)
    events = [event async for event in model.stream(hello)]
    assert events == [TextDelta("hello "), TextDelta("world"), ResponseDone(whole)]


async def test_pieces_may_be_split_anywhere_even_within_a_character(server, speaks, hello):
    data = "".join(speaks.pieces).replace("hello ", "şö€😀 ").encode()
    server.sse([data[i : i + 1] for i in range(len(data))])
    events = [event async for event in speaks.model(server).stream(hello)]
    assert events[-1].response.text == "şö€😀 world"


@pytest.mark.parametrize("keep", [1, 2])
async def test_s64_a_connection_that_is_cut_gives_no_answer(server, speaks, hello, drain, keep):
    server.sse(speaks.pieces[:keep], then="cut")
    events, error = await drain(speaks.model(server).stream(hello))
    assert isinstance(error, ModelResponseError)
    assert "broke off" in str(error)
    assert not [event for event in events if isinstance(event, ResponseDone)]


@pytest.mark.parametrize("missing", ["all", "half", "marker"])
async def test_s64_a_stream_that_ends_without_its_finish_marker_gives_no_answer(server, speaks, hello, drain, missing):
    keep = {"all": 0, "half": 1, "marker": speaks.before_finish}[missing]
    server.sse(speaks.pieces[:keep])
    events, error = await drain(speaks.model(server).stream(hello))
    assert isinstance(error, ModelResponseError)
    assert not [event for event in events if isinstance(event, ResponseDone)]


async def test_a_body_that_is_cut_is_no_answer(server, speaks, hello):
    server.json(speaks.whole, then="cut")
    with pytest.raises(ModelResponseError, match="broke off"):
        await speaks.model(server).generate(hello)


@pytest.mark.parametrize(
    "body",
    [b"<html>busy</html>", b"{", b"[]", b"{}", b"null", b'{"choices": [], "candidates": []}', b""],
)
async def test_garbage_is_no_answer(server, speaks, hello, body):
    server.json(body)
    with pytest.raises(ModelResponseError):
        await speaks.model(server).generate(hello)


@pytest.mark.parametrize("piece", ["data: {broken\n\n", "<html>busy</html>", "data: {}\n\n", "data: []\n\n", ""])
async def test_garbage_is_no_stream(server, speaks, hello, drain, piece):
    server.sse([piece or "\n"])
    events, error = await drain(speaks.model(server).stream(hello))
    assert isinstance(error, ModelResponseError)
    assert events == []


@pytest.mark.parametrize("stream", [False, True])
async def test_429_says_how_long_to_wait(server, speaks, hello, drain, stream):
    server.json(speaks.error("too fast"), status=429, retry_after="7")
    model = speaks.model(server)
    if stream:
        _, error = await drain(model.stream(hello))
    else:
        with pytest.raises(ModelRateLimitedError) as caught:
            await model.generate(hello)
        error = caught.value
    assert isinstance(error, ModelRateLimitedError)
    assert error.retry_after == 7
    assert "too fast" in str(error)
    assert len(server.requests) == 1


async def test_429_may_name_a_date_or_nothing(server, speaks, hello):
    server.json(speaks.error("x"), status=429, retry_after=email.utils.formatdate(time.time() + 3600, usegmt=True))
    server.json(speaks.error("x"), status=429, retry_after="soon")
    server.json(speaks.error("x"), status=429)
    waits = []
    for _ in range(3):
        with pytest.raises(ModelRateLimitedError) as caught:
            await speaks.model(server).generate(hello)
        waits.append(caught.value.retry_after)
    assert 3500 < waits[0] <= 3600
    assert waits[1:] == [None, None]


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, ModelUnauthorizedError),
        (403, ModelUnauthorizedError),
        (400, ModelUnavailableError),
        (404, ModelUnavailableError),
        (422, ModelUnavailableError),
        (500, ModelUnavailableError),
        (503, ModelUnavailableError),
        (529, ModelUnavailableError),
        (408, ModelTimeoutError),
    ],
)
async def test_a_refusal_is_told_in_the_providers_words_without_the_key(server, speaks, hello, status, kind):
    server.json(speaks.error(f"no good: {speaks.key}"), status=status)
    with pytest.raises(kind, match=f"{status}.*no good") as caught:
        await speaks.model(server).generate(hello)
    shown = "".join(
        str(e) + repr(e.args) for e in (caught.value, caught.value.__cause__, caught.value.__context__) if e
    )
    assert speaks.key not in shown
    assert caught.value.__context__ is None
    assert speaks.key not in repr(speaks.model(server))
    assert len(server.requests) == 1


async def test_a_refusal_that_is_no_json(server, speaks, hello):
    server.json(b"<html>Bad Gateway</html>", status=502)
    with pytest.raises(ModelUnavailableError, match="502"):
        await speaks.model(server).generate(hello)


async def test_nobody_listens(speaks, hello, drain, server):
    model = speaks.model(server)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        model._base_url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ModelUnavailableError, match="cannot be reached"):
            await model.generate(hello)
        _, error = await drain(model.stream(hello))
    assert isinstance(error, ModelUnavailableError)


@pytest.mark.parametrize("stream", [False, True])
async def test_silence_is_a_timeout(server, speaks, hello, drain, stream):
    server.silence()
    model = speaks.model(server, timeout=0.1)
    if stream:
        _, error = await drain(model.stream(hello))
        assert isinstance(error, ModelTimeoutError)
    else:
        with pytest.raises(ModelTimeoutError, match=r"within 0\.1 s"):
            await model.generate(hello)
    assert await asyncio.to_thread(server.hung_up.wait, 10)


async def test_a_stream_that_falls_silent_is_a_timeout(server, speaks, hello, drain):
    server.sse(speaks.pieces[:2], then="wait")
    events, error = await drain(speaks.model(server, timeout=0.2).stream(hello))
    assert isinstance(error, ModelTimeoutError)
    assert not [event for event in events if isinstance(event, ResponseDone)]


async def test_cancelling_passes_through_and_closes_the_connection(server, speaks, hello):
    server.silence()
    model = speaks.model(server)
    task = asyncio.create_task(model.generate(hello))
    assert await asyncio.to_thread(server.asked.wait, 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(server.hung_up.wait, 10)


async def test_abandoning_a_stream_closes_the_connection(server, speaks, hello):
    server.sse(speaks.pieces[:-1] if len(speaks.pieces) < 4 else speaks.pieces[:4], then="wait")
    stream = speaks.model(server).stream(hello)
    assert await anext(stream) == TextDelta("hello ")
    assert not server.hung_up.is_set()
    await stream.aclose()
    assert await asyncio.to_thread(server.hung_up.wait, 10)


def test_one_model_serves_one_event_loop_after_another(server, speaks, hello):
    server.json(speaks.whole)
    model = speaks.model(server)
    assert [asyncio.run(model.generate(hello)).text for _ in range(3)] == ["hello world"] * 3
    assert not model._clients  # closed with their loops


async def test_a_forgotten_model_closes_its_connection(server, speaks, hello):
    server.json(speaks.whole)

    async def call():
        model = speaks.model(server)
        loop_of_references = [model]  # a cycle, so that the garbage collector finds it and not a counter
        loop_of_references.append(loop_of_references)
        await model.generate(hello)

    before = len(_open)
    await call()
    gc.collect()
    for _ in range(100):  # turns of the loop, in which it is closed
        await asyncio.sleep(0)
    assert len(_open) == before


async def test_a_client_is_kept_within_a_loop_and_can_be_closed_early(server, speaks, hello):
    server.json(speaks.whole)
    model = speaks.model(server)
    await model.generate(hello)
    first = await model._client()
    await model.generate(hello)
    assert await model._client() is first
    await model.aclose()
    assert (await model.generate(hello)).text == "hello world"
    assert await model._client() is not first


async def test_retries_are_the_owners_choice(server, speaks, hello):
    server.json(speaks.error("busy"), status=503, retry_after_ms="1", retry_after="0")
    server.json(speaks.whole)
    assert (await speaks.model(server, max_retries=1).generate(hello)).text == "hello world"
    assert len(server.requests) == 2


async def test_without_a_key_nothing_is_sent(speaks, hello):
    with pytest.raises(ModelUnauthorizedError, match=f"set {speaks.kind.key_env[0]}"):
        await speaks.kind("m-1").generate(hello)


async def test_a_server_of_ones_own_may_need_no_key(server, speaks, hello):
    server.json(speaks.whole)
    assert (await speaks.model(server, api_key="").generate(hello)).text == "hello world"


async def test_the_key_is_read_from_the_environment(server, speaks, hello, monkeypatch):
    monkeypatch.setenv(speaks.kind.key_env[0], "sk-from-environment")
    server.json(speaks.whole)
    await speaks.model(server, api_key=None).generate(hello)
    assert "sk-from-environment" in json.dumps(server.requests[0].headers)


async def test_another_server_is_another_provider_unless_it_is_named(server, speaks, hello):
    port = server.url.rpartition(":")[2]
    assert speaks.kind("m").provider == speaks.kind.name
    assert speaks.model(server).provider == f"127.0.0.1-{port}"
    assert speaks.model(server).named("nvidia").spec == "nvidia/m-1"
    assert speaks.model(server, provider="own").named("nvidia").spec == "own/m-1"
    assert speaks.kind("m", base_url="https://user:pw@api.example.com/v1").provider == "api.example.com"


async def test_lone_surrogates_never_reach_a_record(server, speaks, hello):
    server.json(json.dumps(speaks.whole).replace("hello world", "hi \\ud800!").encode())
    if speaks.kind.name == "mistral":  # its SDK reads no such answer
        with pytest.raises(ModelResponseError):
            await speaks.model(server).generate(hello)
        return
    answer = await speaks.model(server).generate(hello)
    assert answer.text == "hi \ufffd!"


async def test_a_system_message_within_the_history_is_taken_along(server, speaks):
    server.json(speaks.whole)
    messages = (Message("user", (TextPart("hi"),)), Message("system", (TextPart("It is late."),)))
    await speaks.model(server).generate(ModelRequest("Be kind.", messages))
    sent = json.dumps(server.requests[0].body)
    assert sent.count("Be kind.") == 1
    assert sent.count("It is late.") == 1


async def test_settings_that_a_provider_does_not_take_are_no_failure_of_the_model(server, speaks, hello):
    server.json(speaks.whole)
    request = ModelRequest(None, hello.messages, (), ModelSettings(extra={"no_such_setting": 1}))
    if speaks.kind.name in ("openai", "anthropic"):  # these pass it on, and the server decides
        await speaks.model(server).generate(request)
        assert server.requests[0].body["no_such_setting"] == 1
    else:
        with pytest.raises(ConfigError, match="no_such_setting"):
            await speaks.model(server).generate(request)
