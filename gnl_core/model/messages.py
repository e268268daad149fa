"""What is said to a model and what it answers: messages, requests, responses. Plain frozen data, JSON in and out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

from gnl_core.journal.port import JsonValue

Role = Literal["system", "user", "assistant", "tool"]
StopReason = Literal["stop", "tool_calls", "length", "content_filter", "other"]


@dataclass(frozen=True, slots=True)
class TextPart:
    """Text."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningPart:
    """What the model says of its thinking. Signatures and encrypted contents stay in `ModelResponse.provider_data`."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallPart:
    """The model asks for a tool.

    Attributes:
        id: Our id, 's<step>p<position>'; '' in a response that a provider just gave.
        name: Tool name as the model wrote it: untrusted.
        args: Arguments as the model wrote them; None where they are no JSON object.
        raw_args: The text of arguments that are no JSON object, for the error that goes back to the model.
        provider_id: The provider's id, verbatim; '' where it gave none.
    """

    id: str
    name: str
    args: dict[str, JsonValue] | None
    raw_args: str = ""
    provider_id: str = ""


@dataclass(frozen=True, slots=True)
class ToolResultPart:
    """What a tool call came to, as the model reads it.

    Attributes:
        tool_call_id: Our id of the call.
        name: Tool name.
        text: The text the model reads.
        is_error: Whether it tells of a failure, a refusal or a denial.
        provider_id: The provider's id of the call.
    """

    tool_call_id: str
    name: str
    text: str
    is_error: bool = False
    provider_id: str = ""


Part: TypeAlias = TextPart | ReasoningPart | ToolCallPart | ToolResultPart


@dataclass(frozen=True, slots=True)
class Message:
    """One message.

    Attributes:
        role: Who speaks.
        parts: What is said, in order.
        provider: Name of the provider that wrote an assistant message, for instance 'openai'; '' for all others.
        provider_data: What that provider wants back verbatim (reasoning signatures, item ids). Only an adapter of the
            same provider reads it.
    """

    role: Role
    parts: tuple[Part, ...]
    provider: str = ""
    provider_data: JsonValue = None

    @property
    def text(self) -> str:
        """All text parts, joined."""
        return "".join(part.text for part in self.parts if isinstance(part, TextPart))

    @property
    def tool_calls(self) -> tuple[ToolCallPart, ...]:
        """The tool calls, in order."""
        return tuple(part for part in self.parts if isinstance(part, ToolCallPart))


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one or more model calls."""

    input_tokens: int = 0
    output_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        """Both together."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(self.input_tokens + other.input_tokens, self.output_tokens + other.output_tokens)


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as a model is told of it; `parameters` is a JSON schema of an object."""

    name: str
    description: str
    parameters: dict[str, JsonValue]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """How to generate; None leaves it to the provider.

    Attributes:
        temperature: 0 to 2.
        max_output_tokens: Most tokens of one answer.
        top_p: 0 to 1.
        stop: Texts that end an answer.
        seed: For providers that take one.
        tool_choice: 'auto', 'none', 'required', or a tool's name.
        extra: Passed to the provider's SDK as it stands, and part of the fingerprint.
    """

    temperature: float | None = None
    max_output_tokens: int | None = None
    top_p: float | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    tool_choice: str | None = None
    extra: Mapping[str, JsonValue] = field(default_factory=dict)

    def to_json(self) -> dict[str, JsonValue]:
        """Return the settings that are set."""
        pairs: dict[str, JsonValue] = {
            "temperature": self.temperature,
            "max_output_tokens": self.max_output_tokens,
            "top_p": self.top_p,
            "stop": list(self.stop),
            "seed": self.seed,
            "tool_choice": self.tool_choice,
            "extra": dict(self.extra),
        }
        return {name: value for name, value in pairs.items() if value not in (None, [], {})}


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One call of a model: messages hold no system prompt, it stands apart."""

    system: str | None
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    settings: ModelSettings = field(default_factory=ModelSettings)


@dataclass(frozen=True, slots=True)
class ModelResponse:
    """One whole answer.

    Attributes:
        parts: Text, reasoning and tool calls in the order the provider gave them.
        usage: Tokens of this call.
        stop_reason: Why the answer ended.
        model: The model's name as the provider states it.
        provider: Name of the provider, for instance 'openai'.
        provider_data: What the provider wants back verbatim with this message.
    """

    parts: tuple[Part, ...]
    usage: Usage = field(default_factory=Usage)
    stop_reason: StopReason = "stop"
    model: str = ""
    provider: str = ""
    provider_data: JsonValue = None

    @property
    def tool_calls(self) -> tuple[ToolCallPart, ...]:
        """The tool calls, in order."""
        return tuple(part for part in self.parts if isinstance(part, ToolCallPart))

    @property
    def text(self) -> str:
        """All text parts, joined."""
        return "".join(part.text for part in self.parts if isinstance(part, TextPart))

    def message(self) -> Message:
        """Return the answer as the assistant message that the next request carries."""
        return Message("assistant", self.parts, self.provider, self.provider_data)


# Stream ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More text."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """More reasoning."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """More of the arguments of tool call number `position` of this answer; `name` may come late."""

    position: int
    name: str
    args_text: str


@dataclass(frozen=True, slots=True)
class ResponseDone:
    """The answer is whole. A stream that ends without it was cut off, and none of it counts."""

    response: ModelResponse


ModelEvent: TypeAlias = TextDelta | ReasoningDelta | ToolCallDelta | ResponseDone


# JSON --------------------------------------------------------------------------------------------------------------


def part_to_json(part: Part) -> dict[str, JsonValue]:
    """Return the JSON form of a part; members at their default are left out."""
    match part:
        case TextPart(text):
            return {"type": "text", "text": text}
        case ReasoningPart(text):
            return {"type": "reasoning", "text": text}
        case ToolCallPart():
            call: dict[str, JsonValue] = {"type": "tool_call", "id": part.id, "name": part.name, "args": part.args}
            if part.raw_args:
                call["raw_args"] = part.raw_args
            if part.provider_id:
                call["provider_id"] = part.provider_id
            return call
        case ToolResultPart():
            result: dict[str, JsonValue] = {
                "type": "tool_result",
                "tool_call_id": part.tool_call_id,
                "name": part.name,
                "text": part.text,
            }
            if part.is_error:
                result["is_error"] = True
            if part.provider_id:
                result["provider_id"] = part.provider_id
            return result


def part_from_json(value: Any) -> Part:
    """Return the part of its JSON form.

    Raises:
        ValueError: The value is no part.
    """
    try:
        match value["type"]:
            case "text":
                return TextPart(_text(value["text"]))
            case "reasoning":
                return ReasoningPart(_text(value["text"]))
            case "tool_call":
                args = value["args"]
                if args is not None and not isinstance(args, dict):
                    raise ValueError(f"args of a tool call are {type(args).__name__}, must be an object or null")
                return ToolCallPart(
                    _text(value["id"]),
                    _text(value["name"]),
                    args,
                    _text(value.get("raw_args", "")),
                    _text(value.get("provider_id", "")),
                )
            case "tool_result":
                return ToolResultPart(
                    _text(value["tool_call_id"]),
                    _text(value["name"]),
                    _text(value["text"]),
                    value.get("is_error", False) is True,
                    _text(value.get("provider_id", "")),
                )
            case kind:
                raise ValueError(f"unknown kind of part {kind!r}")
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a part of a message: {error!r}") from None


def message_to_json(message: Message) -> dict[str, JsonValue]:
    """Return the JSON form of a message."""
    value: dict[str, JsonValue] = {"role": message.role, "parts": [part_to_json(part) for part in message.parts]}
    if message.provider:
        value["provider"] = message.provider
    if message.provider_data is not None:
        value["provider_data"] = message.provider_data
    return value


def message_from_json(value: Any) -> Message:
    """Return the message of its JSON form, or of {'role': …, 'content': text}.

    Raises:
        ValueError: The value is no message; the text says what is wrong.
    """
    if not isinstance(value, dict):
        raise ValueError(  # noqa: TRY004 - one kind of error for all that is no message
            f"a message is {type(value).__name__}, must be an object with 'role' and 'parts' or 'content'"
        )
    role = value.get("role")
    if role not in ("system", "user", "assistant", "tool"):
        raise ValueError(f"role {role!r} must be 'system', 'user', 'assistant' or 'tool'")
    if "parts" not in value:
        content = value.get("content")
        if not isinstance(content, str):
            raise ValueError("a message needs 'content' (a text) or 'parts' (a list)")
        return Message(role, (TextPart(content),))
    if not isinstance(value["parts"], list):
        raise ValueError(f"parts of a message are {type(value['parts']).__name__}, must be a list")  # noqa: TRY004
    return Message(
        role,
        tuple(part_from_json(part) for part in value["parts"]),
        _text(value.get("provider", "")),
        value.get("provider_data"),
    )


def response_to_json(response: ModelResponse) -> dict[str, JsonValue]:
    """Return the JSON form of a response."""
    value: dict[str, JsonValue] = {
        "parts": [part_to_json(part) for part in response.parts],
        "usage": [response.usage.input_tokens, response.usage.output_tokens],
        "stop_reason": response.stop_reason,
        "model": response.model,
        "provider": response.provider,
    }
    if response.provider_data is not None:
        value["provider_data"] = response.provider_data
    return value


def response_from_json(value: Any) -> ModelResponse:
    """Return the response of its JSON form.

    Raises:
        ValueError: The value is no response.
    """
    try:
        tokens_in, tokens_out = value["usage"]
        stop_reason = value["stop_reason"]
        if stop_reason not in ("stop", "tool_calls", "length", "content_filter", "other"):
            raise ValueError(f"unknown stop_reason {stop_reason!r}")
        return ModelResponse(
            tuple(part_from_json(part) for part in value["parts"]),
            Usage(int(tokens_in), int(tokens_out)),
            stop_reason,
            _text(value["model"]),
            _text(value["provider"]),
            value.get("provider_data"),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a model's response: {error!r}") from None


def check_response(response: object) -> ModelResponse:
    """Return an answer whose every member is what it should be, so that what is recorded of it can be read again.

    Raises:
        ValueError: It is no answer; the text says what is wrong. A model of one's own may answer anything.
    """
    if not isinstance(response, ModelResponse):
        raise ValueError(f"the model answered {type(response).__name__}, must answer a ModelResponse")  # noqa: TRY004
    members: tuple[object, object] = (response.parts, response.usage)
    if not isinstance(members[0], tuple | list) or not isinstance(members[1], Usage):
        raise ValueError("the answer's parts are no tuple, or its usage no Usage")  # noqa: TRY004
    texts: list[object] = [response.model, response.provider]
    tokens = (response.usage.input_tokens, response.usage.output_tokens)
    if response.stop_reason not in get_args(StopReason):
        raise ValueError(f"unknown stop_reason {response.stop_reason!r}")
    for part in response.parts:
        match part:
            case TextPart(text) | ReasoningPart(text):
                texts.append(text)
            case ToolCallPart() if part.args is None or type(part.args) is dict:
                texts += [part.name, part.raw_args, part.provider_id]
            case _:
                raise ValueError(f"{part!r:.200} is no part of an answer")
    if not all(isinstance(text, str) for text in texts) or not all(type(number) is int for number in tokens):
        raise ValueError("a text of the answer is no str, or a count of tokens no int")
    return response


def as_messages(prompt: str | None, messages: Sequence[Message | Mapping[str, Any]] | None) -> tuple[Message, ...]:
    """Return a caller's prompt and messages as messages: the messages first, the prompt as the last user message.

    Raises:
        ValueError: A message that is none; the text names its position.
    """
    result: list[Message] = []
    for position, item in enumerate(messages or ()):
        try:
            result.append(item if isinstance(item, Message) else message_from_json(dict(item)))
        except (ValueError, TypeError) as error:
            raise ValueError(f"messages[{position}]: {error}") from None
    if prompt is not None:
        result.append(Message("user", (TextPart(prompt),)))
    return tuple(result)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value
