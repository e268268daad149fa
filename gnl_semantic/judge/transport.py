"""The port to a judge model: text in, text out. The prompt is ours, the model and its bill are the caller's."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from gnl_semantic.errors import JudgeTimeoutError

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer of a judge.

    Attributes:
        text: The answer as it came, unparsed.
        tokens_in: Tokens of the prompt, where the transport tells.
        tokens_out: Tokens of the answer, where the transport tells.
    """

    text: str
    tokens_in: int | None = None
    tokens_out: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeInfo:
    """Who a judge is, as reports and certificates name it.

    Attributes:
        model_id: The id a certificate binds.
        spec: How the judge was named on the command line, without secrets.
        engine: What runs it, for instance 'openai-compatible' or 'python-file'.
        parameters: Everything that may change its answers: decoding parameters, rules, limits. JSON-representable.
    """

    model_id: str
    spec: str
    engine: str
    parameters: Mapping[str, object] = field(default_factory=dict)


class JudgeTransport(Protocol):
    """A judge's transport."""

    @property
    def info(self) -> JudgeInfo:
        """Who the judge is."""
        ...

    async def complete(self, system: str, user: str) -> Reply:
        """Return the judge's answer to one rendered prompt. One attempt: whoever calls decides about another.

        Raises:
            JudgeError: The call failed; the leaf says how.
        """
        ...

    async def aclose(self) -> None:
        """Release what the transport holds. May be called twice."""
        ...


async def within(seconds: float, answer: Awaitable[_T], *, judge: str) -> _T:
    """Await `answer` for at most `seconds`; `judge` names the model in the message.

    Raises:
        JudgeTimeoutError: The limit passed, or the judge gave up waiting by itself.
    """
    try:
        async with asyncio.timeout(seconds):
            return await answer
    except TimeoutError:
        raise JudgeTimeoutError(f"judge '{judge}': no answer within {seconds:g} s") from None
