"""Vectors of texts that were embedded before: by hashes alone, for a while, and so many."""

import gc
import time

import numpy as np
import pytest

from gnl_semantic.embedding import Embedding
from gnl_semantic.texts import CACHED_TEXTS, Texts
from gnl_semantic.vectors.cache import IDLE_SECONDS


class Clock:
    """This process's clock, which a test moves."""

    def __init__(self):
        self.ahead = 0.0

    def monotonic(self):
        return time.monotonic() + self.ahead


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr("gnl_semantic.texts.time", clock)
    return clock


def vector(number=0):
    return np.array([1.0, float(number)], dtype=np.float32)


def held_by(owner):
    """Every object of built-in kinds that can be reached from one."""
    seen, left = {}, [owner]
    while left:
        one = left.pop()
        if id(one) in seen or isinstance(one, type) or type(one).__name__ in ("module", "function", "method"):
            continue
        seen[id(one)] = one
        left += gc.get_referents(one)
    return [one for one in seen.values() if isinstance(one, str | bytes)]


async def test_no_text_is_kept():
    secret = "createProduct: ayşe yılmaz's order, number 4711"

    async def embed(texts):
        return [[3.0, 4.0]]

    embedding = Embedding(embed, stamp="m@1", seconds=5.0)
    await embedding.embed(secret)
    assert (await embedding.embed(secret)).cached, "it is known all the same"
    words = held_by(embedding)
    assert words
    assert not [one for one in words if isinstance(one, str) and "yılmaz" in one]
    assert not [one for one in words if isinstance(one, bytes) and "yılmaz".encode() in one]


def test_what_was_kept_is_found_by_its_very_text():
    texts = Texts()
    texts.put("a text", vector(1))
    texts.put("another text", vector(2))
    assert texts.get("a text").tolist() == [1.0, 1.0]
    assert texts.get("another text").tolist() == [1.0, 2.0]
    assert texts.get("A text") is None
    texts.put("a text", vector(3))
    assert (texts.get("a text").tolist(), len(texts)) == ([1.0, 3.0], 2)


@pytest.mark.parametrize("text", ["", "\ud800", "\x00", "ş" * 100_000])
def test_any_text_has_a_name(text):
    texts = Texts()
    assert texts.get(text) is None
    texts.put(text, vector())
    assert texts.get(text) is not None
    assert texts.get(text + " ") is None


def test_the_one_used_longest_ago_goes_first():
    texts = Texts()
    for number in range(CACHED_TEXTS):
        texts.put(str(number), vector(number))
    assert texts.get("0") is not None
    texts.put("2", vector())
    texts.put("one more", vector())
    texts.put("and one more", vector())
    assert len(texts) == CACHED_TEXTS
    assert [name for name in ("0", "1", "2", "3", "4") if texts.get(name) is None] == ["1", "3"]


def test_what_is_idle_is_dropped_and_what_is_used_stays(clock):
    texts = Texts()
    texts.put("idle", vector())
    texts.put("used", vector())
    clock.ahead = IDLE_SECONDS * 0.75
    assert texts.get("used") is not None
    texts.put("new", vector())
    assert texts.sweep() == pytest.approx(IDLE_SECONDS * 0.25, abs=30)
    assert len(texts) == 3, "nothing is due"
    clock.ahead = IDLE_SECONDS * 1.25
    assert texts.sweep() == pytest.approx(IDLE_SECONDS * 0.5, abs=30)
    assert [name for name in ("idle", "used", "new") if texts.get(name) is not None] == ["used", "new"]
    clock.ahead = IDLE_SECONDS * 2.5
    assert (texts.sweep(), len(texts)) == (None, 0)


def test_it_is_swept_without_being_asked(monkeypatch):
    watched = []
    monkeypatch.setattr("gnl_semantic.texts.watch", watched.append)
    texts = Texts()
    assert watched == [], "an empty one is not watched"
    texts.put("a text", vector())
    assert watched == [texts]
