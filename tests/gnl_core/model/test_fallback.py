import asyncio

import pytest

from gnl_core.errors import (
    ConfigError,
    ModelRateLimitedError,
    ModelResponseError,
    ModelSpecError,
    ModelUnauthorizedError,
    ModelUnavailableError,
)
from gnl_core.model.fallback import FallbackModel
from gnl_core.model.messages import Message, ModelRequest, ResponseDone, TextDelta, TextPart
from gnl_core.model.port import ChatModel
from gnl_core.model.router import register_model_provider
from gnl_core.testing.scripted import ScriptedModel, raise_once

REQUEST = ModelRequest(None, (Message("user", (TextPart("hi"),)),))
DOWN = ModelUnavailableError("down")


def says(text, **kw):
    return ScriptedModel([text], **kw)


@pytest.fixture
def mine():
    models = {"a": says(DOWN, spec="mine/a"), "b": says("from b", spec="mine/b")}
    undo = register_model_provider("mine", models.__getitem__)
    yield models
    undo()


async def test_the_first_that_answers_wins_and_stays(mine):
    chain = FallbackModel(["mine/a", "mine/b", says("never")])
    assert isinstance(chain, ChatModel)
    assert (chain.candidates, chain.winner, chain.spec) == (("mine/a", "mine/b", "#2"), None, "mine/a")
    assert (await chain.generate(REQUEST)).text == "from b"
    assert (chain.winner, chain.spec) == ("mine/b", "mine/b")
    assert chain.errors == (("mine/a", DOWN),)
    await chain.generate(REQUEST)
    assert (mine["a"].calls, mine["b"].calls) == (1, 2)
    assert chain.errors == ()


async def test_a_model_given_as_an_object_wins_by_its_place():
    chain = FallbackModel([says(DOWN), says("second")])
    await chain.generate(REQUEST)
    assert chain.winner == "#1"


async def test_a_winner_that_fails_later_is_not_left():
    first = ScriptedModel([raise_once(DOWN, "one"), "never"])
    second = ScriptedModel([raise_once(ModelRateLimitedError("slow"), "two")])
    chain = FallbackModel([first, second])
    bound = chain.bind("#1")
    with pytest.raises(ModelRateLimitedError, match="slow"):
        await bound.generate(REQUEST)
    assert (await bound.generate(REQUEST)).text == "two"
    assert first.calls == 0


async def test_runs_bound_to_one_chain_have_winners_of_their_own():
    chain = FallbackModel([ScriptedModel([raise_once(DOWN, "one")]), says("two")])
    early, late = chain.bind(), chain.bind()
    assert (await early.generate(REQUEST)).text == "two"
    assert (await late.generate(REQUEST)).text == "one"
    assert (early.winner, late.winner, chain.winner) == ("#1", "#0", None)


async def test_a_recorded_winner_is_found_in_a_chain_that_changed(mine):
    assert (await FallbackModel([says("new")]).bind("mine/b").generate(REQUEST)).text == "from b"
    with pytest.raises(ModelSpecError, match="candidate #3 of its fallback chain"):
        FallbackModel([says("new")]).bind("#3")


async def test_when_none_answers_each_ones_words_are_told():
    errors = [ModelRateLimitedError("slow", retry_after=9), ModelUnauthorizedError("no key")]
    chain = FallbackModel([says(error) for error in errors])
    with pytest.raises(ModelUnavailableError, match="#0: slow; #1: no key") as caught:
        await chain.generate(REQUEST)
    assert caught.value.retry_after == 9
    assert caught.value.detail["candidates"] == {"#0": "upstream_rate_limited", "#1": "upstream_unauthorized"}
    assert chain.errors == (("#0", errors[0]), ("#1", errors[1]))
    assert chain.winner is None


async def test_when_all_fail_alike_the_error_is_of_their_kind():
    slow = [ModelRateLimitedError("a", retry_after=9), ModelRateLimitedError("b", retry_after=4)]
    with pytest.raises(ModelRateLimitedError, match="no model") as caught:
        await FallbackModel([says(error) for error in slow]).generate(REQUEST)
    assert caught.value.retry_after == 4
    with pytest.raises(ModelUnavailableError) as alone:
        await FallbackModel([says(DOWN)]).generate(REQUEST)
    assert alone.value is DOWN


@pytest.mark.parametrize("error", [ConfigError("bug"), ValueError("bug"), KeyError("bug"), asyncio.CancelledError()])
async def test_only_a_models_error_moves_on(error):
    second = says("two")
    chain = FallbackModel([says(error), second])
    with pytest.raises(type(error)):
        await chain.generate(REQUEST)
    with pytest.raises(type(error)):
        await anext(chain.stream(REQUEST))
    assert second.calls == 0


async def test_a_stream_moves_on_before_its_first_event():
    chain = FallbackModel([says(DOWN), says("one two")])
    events = [event async for event in chain.stream(REQUEST)]
    assert events[0] == TextDelta("one ")
    assert isinstance(events[-1], ResponseDone)
    assert chain.winner == "#1"
    assert chain.errors == (("#0", DOWN),)


async def test_s64_a_stream_never_moves_on_after_its_first_event(drain):
    second = says("other words")
    chain = FallbackModel([says("one two three", cut_after=1), second])
    events, error = await drain(chain.stream(REQUEST))
    assert events == [TextDelta("one ")]
    assert isinstance(error, ModelResponseError)
    assert second.calls == 0
    assert chain.winner is None


async def test_a_stream_that_ends_before_its_first_event_has_not_answered(drain):
    class Empty:
        spec = "x/empty"

        async def generate(self, request):
            raise AssertionError

        async def stream(self, request):
            return
            yield

    chain = FallbackModel([Empty(), says("two")])
    events = [event async for event in chain.stream(REQUEST)]
    assert events[-1].response.text == "two"
    _, error = await drain(FallbackModel([Empty(), Empty()]).stream(REQUEST))
    assert isinstance(error, ModelResponseError)


async def test_abandoning_a_chains_stream_closes_the_candidates():
    closed = []

    class Endless:
        spec = "x/endless"

        async def generate(self, request):
            raise AssertionError

        async def stream(self, request):
            try:
                while True:
                    yield TextDelta("more")
            finally:
                closed.append(True)

    chain = FallbackModel([Endless()])
    stream = chain.stream(REQUEST)
    await anext(stream)
    await stream.aclose()
    assert closed == [True]
    assert chain.winner is None


@pytest.mark.parametrize("models", [[], ["nowhere/x"], [["mine/a"]], [None]])
def test_what_is_no_chain(models):
    with pytest.raises(ConfigError):
        FallbackModel(models)
