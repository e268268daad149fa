"""One text to one unit vector, within a deadline, and without ever failing the call that it is for."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np

from gnl_core.hook import LATE, call_in_thread, within
from gnl_semantic.embedder.port import Embedder, Vectors
from gnl_semantic.texts import Texts

EmbedFunction: TypeAlias = Callable[[Sequence[str]], Any | Awaitable[Any]]
"""Texts in, one vector a text out: lists of numbers or an array; sync (then in a thread) or async."""

OUTAGE = 3
"""Failures in a row that are an outage."""

REST_SECONDS = 30.0
"""How long an embedder that is down is left alone before one call tries it again: each try may hold a call up for its
whole time, and leave a thread behind."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedded:
    """What one text came to.

    Attributes:
        vector: float32 of length 1, shape (dimension,); None where the embedder failed, or was too late.
        cached: Whether it was known.
        called: Whether the embedder was called: neither where it was known, nor where it has just failed too often.
        milliseconds: How long the call took.
    """

    vector: Vectors | None
    cached: bool = False
    called: bool = False
    milliseconds: int = 0


class _NoVectorError(ValueError):
    """An answer that is no vector. Its message holds shapes and figures, nothing of a text."""


@dataclass(slots=True)
class _Memory:
    """What is known of one embedder in this process, whichever gate uses it."""

    texts: Texts = field(default_factory=Texts)
    lock: threading.Lock = field(default_factory=threading.Lock)
    dimension: int | None = None
    failures: int = 0
    untold: bool = False
    rests_until: float = 0.0


_memories: WeakKeyDictionary[Any, dict[str, _Memory]] = WeakKeyDictionary()
_memories_lock = threading.Lock()


class Embedding:
    """An embedder as the gate uses it.

    Args:
        embed: An `Embedder`, or a function.
        stamp: What its vectors are stamped with.
        seconds: How long one call may take.
    """

    def __init__(self, embed: Embedder | EmbedFunction, *, stamp: str, seconds: float) -> None:
        self.stamp = stamp
        self.seconds = seconds
        self._embed = embed
        self._memory = _memory_of(embed, stamp)
        if isinstance(embed, Embedder):
            self._memory.dimension = embed.profile.dimension

    async def embed(self, text: str) -> Embedded:
        """Return the vector of a text; the same text is embedded once. Raises nothing but the caller's cancellation."""
        memory = self._memory
        known = memory.texts.get(text)
        if known is not None:
            return Embedded(vector=known, cached=True)
        started = time.monotonic()
        with memory.lock:
            if started < memory.rests_until:
                return Embedded(vector=None)
            tries = memory.failures >= OUTAGE
            if tries:  # one call at a time: the others go on without it
                memory.rests_until = started + REST_SECONDS
        try:
            vector = self._checked(await self._call(text))
        except asyncio.CancelledError:
            if tries:
                with memory.lock:
                    memory.rests_until = started  # it has not been tried
            raise
        except Exception as error:  # whatever somebody's embedder raises
            # By its type alone: an embedder may repeat in its message what it was sent.
            told = str(error) if isinstance(error, _NoVectorError) else type(error).__name__
            logger.warning("%s could not embed a text: %s", self.stamp, told)
            logger.debug("%s could not embed a text", self.stamp, exc_info=error)
            vector = None
        took = round((time.monotonic() - started) * 1000)
        with memory.lock:
            if vector is None:
                memory.failures += 1
                memory.untold |= memory.failures == OUTAGE
                if memory.failures >= OUTAGE:
                    memory.rests_until = time.monotonic() + REST_SECONDS
                return Embedded(vector=None, called=True, milliseconds=took)
            memory.failures, memory.rests_until = 0, 0.0
            memory.dimension = len(vector)
        memory.texts.put(text, vector)
        return Embedded(vector=vector, called=True, milliseconds=took)

    def take_outage(self) -> bool:
        """Whether an outage has begun that nobody was told of yet: each is told once, whichever gate asks first."""
        with self._memory.lock:
            untold, self._memory.untold = self._memory.untold, False
        return untold

    async def _call(self, text: str) -> object:
        embed = self._embed.embed if isinstance(self._embed, Embedder) else self._embed
        answer = await within(self.seconds, lambda: _called(embed, [text]))
        if answer is LATE:
            raise _NoVectorError(f"none came within {self.seconds:g} s")
        return answer

    def _checked(self, answer: object) -> Vectors:
        """Return the one vector of an answer, at length 1.

        Raises:
            _NoVectorError: It is none: of another shape or width, not finite, or of length 0.
        """
        with np.errstate(over="ignore"):
            rows = np.asarray(answer, dtype=np.float32)
        if rows.ndim != 2 or len(rows) != 1 or not rows.shape[1]:
            raise _NoVectorError(f"one text came to vectors of shape {rows.shape}")
        row = rows[0].astype(np.float64)  # the square of a float32 may be none
        expected = self._memory.dimension
        if expected is not None and len(row) != expected:
            raise _NoVectorError(f"a vector of {len(row)} dimensions, where this embedder has {expected}")
        length = float(np.linalg.norm(row))
        if not np.isfinite(length) or not length:
            raise _NoVectorError("a vector that is not finite, or has no length")
        unit = np.ascontiguousarray(row / length, dtype=np.float32)
        unit.flags.writeable = False
        return unit


async def _called(embed: EmbedFunction, texts: Sequence[str]) -> object:
    """Call an embedder. The exit of one is not the program's: it is an error like any other."""
    try:
        if inspect.iscoroutinefunction(embed):
            return await embed(texts)
        answer = await call_in_thread(lambda: embed(texts))  # it may block, or give something to await
        return await answer if inspect.isawaitable(answer) else answer
    except (Exception, asyncio.CancelledError, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:
        raise RuntimeError(f"the embedder raised {type(error).__name__}") from error


def _memory_of(embed: object, stamp: str) -> _Memory:
    with _memories_lock:
        try:
            stamps = _memories.setdefault(embed, {})
        except TypeError:  # an object that nothing weak can point to: its gate alone remembers
            stamps = {}
        return stamps.setdefault(stamp, _Memory())
