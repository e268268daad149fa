"""A model that says what it was told to say: for tests and demos, without a network."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from gnl_core.errors import ConfigError, ModelResponseError
from gnl_core.model.messages import (
    ModelEvent,
    ModelRequest,
    ModelResponse,
    Part,
    ReasoningDelta,
    ReasoningPart,
    ResponseDone,
    TextDelta,
    TextPart,
    ToolCallDelta,
    ToolCallPart,
    ToolResultPart,
    Usage,
)
from gnl_core.model.providers._shared import parse_args

CallIds = Literal["unique", "restart", "none"]


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call that a scripted model makes.

    Attributes:
        name: Tool name.
        args: Arguments; a str is the text a provider would send, which may be no JSON at all.
        provider_id: The id a provider would give; None leaves it to the model's `call_ids`.
    """

    name: str
    args: Mapping[str, Any] | str = field(default_factory=dict)
    provider_id: str | None = None


@dataclass(frozen=True, slots=True)
class RaiseOnce:
    """A turn that fails the first time it is asked for; made by `raise_once`."""

    error: BaseException
    then: Turn


Item: TypeAlias = str | Call | tuple[str, Mapping[str, Any] | str] | Part
Answer: TypeAlias = str | Sequence[Item] | ModelResponse | BaseException | RaiseOnce
Turn: TypeAlias = "Answer | Callable[[ModelRequest], Turn | Awaitable[Turn]]"


def raise_once(error: BaseException, then: Turn) -> RaiseOnce:
    """Return a turn that raises `error` the first time this model is asked for it and is `then` from then on."""
    return RaiseOnce(error, then)


class ScriptedModel:
    """Answer turn n of a conversation with turn n of a script.

    Which turn it is follows from the request alone: the number of assistant messages in it. So a model made anew in
    another process goes on where the conversation stands.

    Attributes:
        calls: Number of requests that came, `generate` and `stream` together.
        requests: These requests, in order.
        entered: Set when a request came in, before the gate is waited for.
        cut_after: Streams break off after so many events; may be changed at any time.
    """

    def __init__(
        self,
        turns: Sequence[Turn],
        *,
        spec: str = "scripted/model",
        usage: Usage | None = None,
        call_ids: CallIds = "unique",
        history: int = 0,
        cut_after: int | None = None,
        gate: asyncio.Event | None = None,
    ) -> None:
        """Write the script.

        Args:
            turns: What it answers. A turn is a text; a list of calls (`("tool", {…})` or `Call`), texts and parts; a
                whole `ModelResponse`; an exception, raised each time it is asked for; `raise_once(…)`; or a function
                of the request, sync or async, that returns one of these.
            spec: 'provider/model', as messages and records name it.
            usage: Tokens of every answer that does not state its own; none by default.
            call_ids: The provider's ids of calls: 'unique' in the conversation, 'restart' at call_0 with every turn,
                or 'none' (empty).
            history: Assistant messages that the conversation begins with and the script has no turn for, at least 0.
            cut_after: Break every stream off after so many events, at least 0, with a `ModelResponseError`.
            gate: Every request waits for it before it is answered.

        Raises:
            ConfigError: A turn that is none of these.
        """
        if isinstance(turns, str) or not isinstance(turns, Sequence):
            raise ConfigError(f"ScriptedModel takes a list of turns, this is {type(turns).__name__}")
        self._turns = tuple(turns)
        self._spec = spec
        self._usage = usage
        self._call_ids = call_ids
        self._history = history
        self._gate = gate
        self._asked: dict[int, int] = {}
        self.cut_after = cut_after
        self.entered = asyncio.Event()
        self.calls = 0
        self.requests: list[ModelRequest] = []
        for position, turn in enumerate(self._turns):
            _check(turn, f"turns[{position}]")

    @property
    def spec(self) -> str:
        """'provider/model', as messages and records name it."""
        return self._spec

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """Return the answer of the turn that the request is at.

        Raises:
            ConfigError: The script has no such turn.
            BaseException: What the turn says to raise.
        """
        self.calls += 1
        self.requests.append(request)
        self.entered.set()
        if self._gate is not None:
            await self._gate.wait()
        number = sum(message.role == "assistant" for message in request.messages) - self._history
        if not 0 <= number < len(self._turns):
            raise ConfigError(
                f"the script of {self._spec} has {len(self._turns)} turns, and a request at turn {number} (counted "
                f"from 0) came; give it more turns, or end the conversation with a turn that calls no tool"
            )
        asked = self._asked.get(number, 0)
        self._asked[number] = asked + 1
        return await self._answer(self._turns[number], request, number, asked)

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Yield the same answer in pieces: texts by words, arguments in two halves.

        Raises:
            ModelResponseError: After `cut_after` events.
            ConfigError: The script has no such turn.
            BaseException: What the turn says to raise, before the first event.
        """
        response = await self.generate(request)
        for number, event in enumerate(_events(response)):
            if self.cut_after is not None and number >= self.cut_after:
                raise ModelResponseError(f"the stream of {self._spec} broke off after {number} events, as told")
            yield event

    async def _answer(self, turn: Turn, request: ModelRequest, number: int, asked: int) -> ModelResponse:
        while True:
            if isinstance(turn, RaiseOnce):
                if asked == 0:
                    raise turn.error
                asked, turn = asked - 1, turn.then
            elif callable(turn):
                made = turn(request)
                turn = await made if inspect.isawaitable(made) else made
                _check(turn, f"what the function of turn {number} returned")
            elif isinstance(turn, BaseException):
                raise turn
            elif isinstance(turn, ModelResponse):
                return turn
            else:
                return self._response(turn, number)

    def _response(self, turn: str | Sequence[Item], number: int) -> ModelResponse:
        parts: list[Part] = []
        for item in [turn] if isinstance(turn, str) else turn:
            position = sum(isinstance(part, ToolCallPart) for part in parts)
            match item:
                case str():
                    parts.append(TextPart(item))
                case Call():
                    parts.append(self._call(item, number, position))
                case (name, args):
                    parts.append(self._call(Call(name, args), number, position))
                case _:
                    parts.append(item)
        calls = any(isinstance(part, ToolCallPart) for part in parts)
        provider, _, model = self._spec.partition("/")
        return ModelResponse(
            tuple(parts), self._usage or Usage(), "tool_calls" if calls else "stop", model=model, provider=provider
        )

    def _call(self, call: Call, number: int, position: int) -> ToolCallPart:
        args, raw = parse_args(_text(call.args))
        ids = {"unique": f"call_{number}_{position}", "restart": f"call_{position}", "none": ""}
        return ToolCallPart(
            "", call.name, args, raw, ids[self._call_ids] if call.provider_id is None else call.provider_id
        )


def _text(args: Mapping[str, Any] | str) -> str:
    return args if isinstance(args, str) else json.dumps(dict(args))


def _check(turn: object, where: str) -> None:
    """Refuse what is no turn while the script is written, not when it is played."""
    if isinstance(turn, RaiseOnce):
        _check(turn.then, where)
    elif isinstance(turn, list | tuple):
        for item in turn:
            match item:
                case str() | TextPart() | ReasoningPart() | ToolCallPart():
                    continue
                case Call(args=args) | (str(), args) if isinstance(args, str | Mapping):
                    try:
                        _text(args)
                    except (TypeError, ValueError) as error:
                        raise ConfigError(f"{where}: the arguments {args!r} are no JSON: {error}") from None
                case _:
                    raise ConfigError(f'{where}: {item!r} is no call; write ("tool", {{…}}), Call(…) or a text')
    elif not (isinstance(turn, str | ModelResponse | BaseException) or callable(turn)):
        raise ConfigError(
            f"{where} is {type(turn).__name__}; a turn is a text, a list of calls, a ModelResponse, an exception, "
            "raise_once(…) or a function of the request"
        )


def _events(response: ModelResponse) -> list[ModelEvent]:
    events: list[ModelEvent] = []
    position = 0
    for part in response.parts:
        match part:
            case TextPart(text):
                events += [TextDelta(piece) for piece in re.findall(r"\s*\S+\s*|\s+", text)]
            case ReasoningPart(text):
                events.append(ReasoningDelta(text))
            case ToolCallPart():
                text = part.raw_args or json.dumps(part.args)
                half = (len(text) + 1) // 2
                events.append(ToolCallDelta(position, part.name, text[:half]))
                events.append(ToolCallDelta(position, part.name, text[half:]))
                position += 1
            case ToolResultPart():
                pass
    return [*events, ResponseDone(response)]
