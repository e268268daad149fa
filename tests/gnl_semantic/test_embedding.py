"""One text to one unit vector: every kind of function, every way it may fail, and what two gates over one share."""

import asyncio
import functools
import logging
import threading

import numpy as np
import pytest

from gnl_semantic.embedder import EmbedderProfile
from gnl_semantic.embedding import OUTAGE, Embedding
from gnl_semantic.texts import CACHED_TEXTS


class Sync:
    """A callable object that blocks."""

    def __init__(self, answer=((3.0, 4.0),)):
        self.answer, self.sent, self.threads = answer, [], []

    def __call__(self, texts):
        self.sent.append(list(texts))
        self.threads.append(threading.current_thread())
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


class Async(Sync):
    """A callable object whose call is awaited."""

    async def __call__(self, texts):
        return super().__call__(texts)


class Port:
    """An `Embedder`."""

    def __init__(self, dimension=2, answer=((3.0, 4.0),)):
        self.model_id, self.profile, self.answer, self.sent = "port@1", EmbedderProfile(dimension=dimension), answer, []

    async def embed(self, texts):
        self.sent.append(list(texts))
        return np.asarray(self.answer, np.float32)


class Slotted:
    """Nothing weak can point to it."""

    __slots__ = ("sent",)

    def __init__(self):
        self.sent = []

    def __call__(self, texts):
        self.sent.append(list(texts))
        return [[3.0, 4.0]]


class Unhashable(Sync):
    __hash__ = None


def of(embed, *, stamp="m@1", seconds=5.0):
    return Embedding(embed, stamp=stamp, seconds=seconds)


# What may embed ------------------------------------------------------------------------------------------------------


async def _async(texts):
    return [[3.0, 4.0] for _ in texts]


def _sync(texts):
    return [[3.0, 4.0] for _ in texts]


def _late(texts):
    return _async(texts)


class Bound:
    def method(self, texts):
        return _sync(texts)

    async def awaited(self, texts):
        return _sync(texts)


@pytest.mark.parametrize(
    "embed",
    [
        _sync,
        _async,
        _late,
        functools.partial(_async),
        functools.partial(_sync),
        Sync(),
        Async(),
        Slotted(),
        Unhashable(),
        Bound().method,
        Bound().awaited,
        Port(),
        lambda _: np.array([[3.0, 4.0]]),
        lambda _: [[3, 4]],
        lambda _: ((30.0, 40.0),),
    ],
    ids=lambda one: getattr(one, "__name__", type(one).__name__),
)
async def test_every_kind_of_embedder_comes_to_a_vector_of_length_one(embed):
    found = (await of(embed).embed("a text")).vector
    assert found.dtype == np.float32
    assert found.tolist() == pytest.approx([0.6, 0.8])
    assert not found.flags.writeable


async def test_a_function_that_blocks_runs_in_a_thread_of_its_own():
    embed = Sync()
    await of(embed).embed("a text")
    assert embed.sent == [["a text"]]
    assert embed.threads[0] is not threading.current_thread()


@pytest.mark.parametrize("vector", [[1e30, 1e30], [1e-30, 1e-30], [2.0, 2.0]])
async def test_a_vector_of_any_size_has_a_direction(vector):
    assert (await of(lambda _: [vector]).embed("a text")).vector.tolist() == pytest.approx([2**-0.5, 2**-0.5])


# What is no vector ---------------------------------------------------------------------------------------------------

BAD = {
    "a str": "0.1 0.2",
    "bytes": b"0.1",
    "none": None,
    "a number": 1.0,
    "one flat list": [0.1, 0.2],
    "two vectors": [[0.1, 0.2], [0.3, 0.4]],
    "no vector": [],
    "an empty vector": [[]],
    "ragged": [[0.1, 0.2], [0.3]],
    "ragged inside": [[0.1, [0.2]]],
    "words": [["a", "b"]],
    "nan": [[float("nan"), 0.2]],
    "infinite": [[float("inf"), 0.2]],
    "over float32": [[1e300, 0.2]],
    "zero": [[0.0, 0.0]],
    "objects": [[object(), object()]],
    "a dict": {"data": [[0.1, 0.2]]},
    "three axes": [[[0.1, 0.2]]],
    "nothing in it": [[None, None]],
}


@pytest.mark.parametrize("answer", BAD.values(), ids=BAD)
async def test_s86_what_is_no_vector_is_none_and_costs_nothing_else(answer):
    embedding = of(lambda _: answer)
    found = await embedding.embed("a text")
    assert (found.vector, found.cached) == (None, False)


@pytest.mark.parametrize(
    "error", [RuntimeError("x"), ValueError("x"), KeyError(), SystemExit(3), asyncio.CancelledError()]
)
@pytest.mark.parametrize("kind", [Sync, Async])
async def test_s86_an_embedder_that_raises_is_no_vector(kind, error):
    assert (await of(kind(error)).embed("a text")).vector is None


async def test_s86_another_width_than_before_is_no_vector_and_a_port_says_its_own():
    embed = Sync()
    embedding = of(embed)
    assert (await embedding.embed("one")).vector is not None
    embed.answer = [[1.0, 2.0, 3.0]]
    assert (await embedding.embed("two")).vector is None
    embed.answer = [[1.0, 2.0]]
    assert (await embedding.embed("two")).vector is not None
    assert (await of(Port(dimension=3)).embed("one")).vector is None


@pytest.mark.parametrize("kind", ["sync", "async", "deaf"])
async def test_s86_an_embedder_that_hangs_holds_nothing_up_beyond_its_time(kind):
    entered, never = threading.Event(), threading.Event()
    woken = asyncio.Event()

    def sync(texts):
        entered.set()
        never.wait(30)
        return [[1.0]]

    async def slow(texts):
        entered.set()
        try:
            await woken.wait()
        except asyncio.CancelledError:
            if kind != "deaf":
                raise
            await woken.wait()  # it does not stop when it is told to
        return [[1.0]]

    try:
        async with asyncio.timeout(10):
            found = await of(sync if kind == "sync" else slow, seconds=0.2).embed("a text")
    finally:
        never.set()
        woken.set()
    assert found.vector is None
    assert entered.is_set()
    assert found.milliseconds > 0


async def test_the_callers_cancellation_goes_through_and_is_no_failure():
    entered = asyncio.Event()

    async def embed(texts):
        entered.set()
        await asyncio.Event().wait()

    embedding = of(embed)
    for _ in range(OUTAGE):
        entered.clear()
        task = asyncio.create_task(embedding.embed("a text"))
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert not embedding.take_outage()


# What it is remembered by --------------------------------------------------------------------------------------------


async def test_the_same_text_is_embedded_once():
    embed = Sync()
    embedding = of(embed)
    first, second = await embedding.embed("a text"), await embedding.embed("a text")
    assert (first.cached, second.cached, second.milliseconds) == (False, True, 0)
    assert second.vector is first.vector
    await embedding.embed("another text")
    assert embed.sent == [["a text"], ["another text"]]


async def test_a_failure_is_not_remembered_as_an_answer():
    embed = Sync(RuntimeError("down"))
    embedding = of(embed)
    assert (await embedding.embed("a text")).vector is None
    embed.answer = [[3.0, 4.0]]
    assert (await embedding.embed("a text")).vector is not None


@pytest.mark.parametrize("kind", [Sync, Async])
async def test_two_gates_over_one_embedder_share_what_they_know(kind):
    embed = kind()
    one, other = of(embed), of(embed, seconds=1.0)
    await one.embed("a text")
    assert (await other.embed("a text")).cached
    assert len(embed.sent) == 1
    embed.answer = RuntimeError("down")
    for embedding in (one, other, one):
        await embedding.embed("unknown")
    assert [other.take_outage(), one.take_outage()] == [True, False], "the streak is the embedder's, and is told once"


async def test_another_stamp_of_the_same_function_is_another_embedder():
    embed = Sync()
    one, other = of(embed, stamp="m@1"), of(embed, stamp="m@2")
    await one.embed("a text")
    assert not (await other.embed("a text")).cached
    embed.answer = [[1.0, 2.0, 3.0]]
    assert (await other.embed("b")).vector is None
    embed.answer = RuntimeError("down")
    for _ in range(OUTAGE):
        await one.embed("unknown")
    assert not other.take_outage()


async def test_two_functions_share_nothing():
    one, other = Sync(), Sync()
    await of(one).embed("a text")
    assert not (await of(other).embed("a text")).cached


async def test_the_text_used_longest_ago_is_forgotten_first():
    embed = Sync()
    embedding = of(embed)
    for number in range(CACHED_TEXTS):
        await embedding.embed(str(number))
    assert (await embedding.embed("0")).cached
    await embedding.embed("one more")
    assert (await embedding.embed("0")).cached
    assert not (await embedding.embed("1")).cached


# Outages -------------------------------------------------------------------------------------------------------------


async def test_s86_an_outage_is_the_third_failure_in_a_row_and_is_told_once():
    embed = Sync(RuntimeError("down"))
    embedding = of(embed)
    told = []
    for _ in range(2 * OUTAGE + 1):
        await embedding.embed("a text")
        told.append(embedding.take_outage())
    assert told == [False, False, True, False, False, False, False]


async def test_a_success_ends_the_streak_and_a_known_text_is_no_success():
    embed = Sync()
    embedding = of(embed)
    await embedding.embed("known")
    embed.answer = RuntimeError("down")
    for text in ("a", "b", "known"):
        await embedding.embed(text)
    assert not embedding.take_outage()
    embed.answer = [[3.0, 4.0]]
    await embedding.embed("c")
    embed.answer = RuntimeError("down")
    for text in ("d", "e"):
        await embedding.embed(text)
    assert not embedding.take_outage()
    await embedding.embed("f")
    assert embedding.take_outage()


async def test_an_outage_that_nobody_asked_about_is_told_later():
    embed = Sync(RuntimeError("down"))
    embedding = of(embed)
    for _ in range(OUTAGE):
        await embedding.embed("a text")
    embed.answer = [[3.0, 4.0]]
    await embedding.embed("a text")
    assert [embedding.take_outage(), embedding.take_outage()] == [True, False]


async def test_failures_at_the_same_time_are_one_outage():
    embed = Async(RuntimeError("down"))
    embedding = of(embed)
    await asyncio.gather(*(embedding.embed(str(number)) for number in range(10)))
    assert [embedding.take_outage(), embedding.take_outage()] == [True, False]


# Logs ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "embed",
    [
        Sync(RuntimeError("cannot embed 'Ayşe Yılmaz'")),
        Sync([["Ayşe Yılmaz"]]),
        Sync("Ayşe Yılmaz"),
        Sync([[1.0], [2.0]]),
    ],
    ids=["raises", "words", "a text", "two"],
)
async def test_no_log_holds_a_text(embed, caplog):
    caplog.set_level(logging.INFO)
    await of(embed).embed("Ayşe Yılmaz")
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "could not embed" in record.getMessage()
    assert "Ayşe" not in caplog.text
