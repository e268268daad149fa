"""An embedder that is down is left alone for a while, and then tried by one call."""

import asyncio
import threading
import time

import pytest

from gnl_semantic.embedding import OUTAGE, REST_SECONDS, Embedding


class Sync:
    """An embedder that blocks, and remembers what it was sent."""

    def __init__(self, answer=((3.0, 4.0),)):
        self.answer, self.sent = answer, []

    def __call__(self, texts):
        self.sent.append(list(texts))
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


def of(embed, *, seconds=5.0):
    return Embedding(embed, stamp="m@1", seconds=seconds)


class Clock:
    """This process's clock, which a test moves."""

    def __init__(self):
        self.ahead = 0.0

    def monotonic(self):
        return time.monotonic() + self.ahead


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr("gnl_semantic.embedding.time", clock)
    return clock


async def fail(embedding, times=OUTAGE):
    for number in range(times):
        assert (await embedding.embed(f"failed {number}")).vector is None


async def test_after_an_outage_it_is_left_alone_then_one_call_tries_it(clock):
    embed = Sync(RuntimeError("down"))
    embedding = of(embed)
    await fail(embedding)
    for _ in range(3):
        found = await embedding.embed("a text")
        assert (found.vector, found.called, found.cached, found.milliseconds) == (None, False, False, 0)
    assert len(embed.sent) == OUTAGE
    clock.ahead = REST_SECONDS - 1
    await embedding.embed("a text")
    assert len(embed.sent) == OUTAGE
    clock.ahead = REST_SECONDS + 1
    assert (await embedding.embed("a text")).called
    assert not (await embedding.embed("a text")).called, "it failed once more, and rests as long again"
    assert len(embed.sent) == OUTAGE + 1
    assert [embedding.take_outage(), embedding.take_outage()] == [True, False], "it is one outage"


async def test_a_success_ends_its_rest_and_the_count_begins_anew(clock):
    embed = Sync(RuntimeError("down"))
    embedding = of(embed)
    await fail(embedding)
    clock.ahead = REST_SECONDS + 1
    embed.answer = [[3.0, 4.0]]
    assert (await embedding.embed("a text")).vector is not None
    assert (await embedding.embed("another text")).called
    embed.answer = RuntimeError("down")
    await fail(embedding, OUTAGE - 1)
    assert (await embedding.embed("a third text")).called, "two failures are no outage"
    assert not (await embedding.embed("a third text")).called


async def test_what_is_known_is_known_while_it_rests(clock):
    embed = Sync()
    embedding = of(embed)
    await embedding.embed("known")
    embed.answer = RuntimeError("down")
    await fail(embedding)
    assert (await embedding.embed("known")).vector is not None


async def test_two_gates_let_one_embedder_rest_and_another_work(clock):
    embed = Sync(RuntimeError("down"))
    await fail(of(embed))
    assert not (await of(embed).embed("a text")).called
    assert (await of(Sync()).embed("a text")).vector is not None


async def test_calls_at_the_same_time_try_it_once_after_its_rest(clock):
    entered, end = asyncio.Event(), asyncio.Event()
    calls = []

    async def embed(texts):
        calls.append(texts)
        if len(calls) <= OUTAGE:
            raise RuntimeError("down")
        entered.set()
        await end.wait()
        return [[3.0, 4.0]]

    embedding = of(embed)
    await fail(embedding)
    clock.ahead = REST_SECONDS + 1
    trial = asyncio.create_task(embedding.embed("a text"))
    await entered.wait()
    assert [(await embedding.embed(str(number))).called for number in range(5)] == [False] * 5
    assert len(calls) == OUTAGE + 1
    end.set()
    assert (await trial).vector is not None
    assert (await embedding.embed("5")).vector is not None


async def test_a_trial_that_its_caller_cancels_is_none(clock):
    entered, calls = asyncio.Event(), []

    async def embed(texts):
        calls.append(texts)
        if len(calls) <= OUTAGE:
            raise RuntimeError("down")
        if len(calls) == OUTAGE + 1:
            entered.set()
            await asyncio.Event().wait()
        return [[3.0, 4.0]]

    embedding = of(embed)
    await fail(embedding)
    clock.ahead = REST_SECONDS + 1
    trial = asyncio.create_task(embedding.embed("a text"))
    await entered.wait()
    trial.cancel()
    with pytest.raises(asyncio.CancelledError):
        await trial
    assert (await embedding.embed("a text")).vector is not None


async def test_calls_that_hang_leave_no_more_threads_than_make_an_outage():
    entered, never = [], threading.Event()

    def embed(texts):
        entered.append(threading.current_thread())
        never.wait(30)
        return [[1.0]]

    embedding = of(embed, seconds=0.05)
    try:
        async with asyncio.timeout(20):
            await fail(embedding, 4 * OUTAGE)
        assert sum(thread.is_alive() for thread in entered) == len(entered) == OUTAGE
    finally:
        never.set()
