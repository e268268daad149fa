"""One question to a judge: one attempt within a deadline, and whatever goes wrong has a name."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from gnl_core.hook import LATE, within
from gnl_semantic.errors import JudgeError, JudgeTimeoutError
from gnl_semantic.judge.judged import Cause
from gnl_semantic.judge.transport import Reply
from gnl_semantic.judge.verdict import Verdict, parse_verdict

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one call of a judge's model came to.

    Attributes:
        verdict: One of the three words; None where there is none.
        cause: Why there is none.
        latency_ms: Milliseconds it took.
    """

    verdict: Verdict | None
    cause: Cause
    latency_ms: int


async def put(complete: Callable[..., object], system: str, user: str, *, model_id: str, seconds: float) -> Answer:
    """Call a judge once and read its answer. Only a cancellation of the caller's own comes out of this.

    A function that may block is called in a thread of its own; what does not stop in time is left behind.

    Args:
        complete: Called with `system` and `user` by keyword; returns text or a `Reply`, or what can be awaited for one.
        system: The system text.
        user: The user text.
        model_id: Id of the model, for the log.
        seconds: How long it may take, above 0.
    """
    begun = time.monotonic()
    verdict: Verdict | None = None
    try:
        answer = await within(seconds, _calling(complete, system, user), in_thread=not _is_async(complete))
        if answer is LATE:
            cause: Cause = "timeout"
        else:
            verdict = parse_verdict(_text(answer))
            cause = "" if verdict is not None else "parse-fail"
    except (JudgeTimeoutError, TimeoutError):
        cause = "timeout"
    except Exception as error:
        cause = "error"
        # By its type alone: a model's server may repeat in its message what it was sent.
        logger.warning("judge '%s' failed: %s", model_id, type(error).__name__)
        logger.debug("judge '%s' failed", model_id, exc_info=error)
    return Answer(verdict=verdict, cause=cause, latency_ms=round((time.monotonic() - begun) * 1000))


def _is_async(complete: Callable[..., object]) -> bool:
    return inspect.iscoroutinefunction(complete) or inspect.iscoroutinefunction(type(complete).__call__)


def _calling(complete: Callable[..., object], system: str, user: str) -> Callable[[], Any]:
    def call() -> object:
        try:
            answer = complete(system=system, user=user)
        except Exception:
            raise
        except BaseException as error:  # the exit of a judge is not the program's
            raise JudgeError(f"complete() raised {type(error).__name__}") from error
        return _heard(answer) if inspect.isawaitable(answer) else answer

    return call


async def _heard(answer: Awaitable[object]) -> object:
    try:
        return await answer
    except (Exception, asyncio.CancelledError, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:  # a task would hand SystemExit to the event loop, which ends with it
        raise JudgeError(f"complete() raised {type(error).__name__}") from error


def _text(answer: object) -> str:
    text = answer.text if isinstance(answer, Reply) else answer
    if not isinstance(text, str):
        raise JudgeError(f"complete() returned {type(text).__name__}, must return str or Reply")
    return text
