"""What all adapters share: arguments, texts, call ids, and answers whose pieces arrive."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

from gnl_core.errors import ModelResponseError
from gnl_core.journal.port import JsonValue
from gnl_core.model.messages import (
    Message,
    ModelEvent,
    ModelRequest,
    ModelResponse,
    Part,
    ReasoningDelta,
    ReasoningPart,
    StopReason,
    TextDelta,
    TextPart,
    ToolCallDelta,
    ToolCallPart,
    ToolResultPart,
    Usage,
)

# Texts and arguments -----------------------------------------------------------------------------------------------


def clean(text: str) -> str:
    """Return the text with every lone surrogate replaced by U+FFFD: it has no UTF-8, so no record could hold it."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def parse_args(text: str) -> tuple[dict[str, JsonValue] | None, str]:
    """Return (args, '') of the text of a tool call's arguments, or (None, text) where that is no JSON object.

    No object are also: NaN and infinities, spelt out or as 1e400 (no JSON value stands for them), lone surrogates, and
    what is nested too deeply to read. An empty text is an empty object: that is how some providers write no arguments.
    Integers keep every digit; of a repeated name the last one counts.
    """
    if not text.strip():
        return {}, ""
    try:
        value = json.loads(text, parse_float=_finite, parse_constant=_no_number)
        if isinstance(value, dict):
            json.dumps(value, ensure_ascii=False).encode()
            return value, ""
    except (ValueError, RecursionError):
        pass
    return None, clean(text)


def args_text(value: Any) -> str:
    """Return the text of arguments, which some SDKs have parsed already."""
    if value is None or isinstance(value, str):
        return value or ""
    try:
        return json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return repr(value)


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text} is out of range")
    return value


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON")


def args_object(call: ToolCallPart) -> dict[str, JsonValue]:
    """Return what goes back as the arguments of a call in the history; unreadable ones as an object that shows them.

    Providers ask for an object there, and several servers fail on a text that is no JSON.
    """
    return {"unreadable_arguments": call.raw_args} if call.args is None else call.args


def wire_name(name: str) -> str:
    """Return a tool name that every provider takes in a history: what a model made up may hold anything."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64] or "unnamed"


# Call ids ----------------------------------------------------------------------------------------------------------


def wire_ids(
    messages: Sequence[Message], provider: str, ours: Callable[[str], str] = lambda our_id: our_id
) -> dict[tuple[int, int], str]:
    """Return the id of every call and result on the wire, by (position of the message, position of the part).

    A call has the provider's id where this provider wrote the message and gave an id that is unique in it; else ours,
    made by `ours` of the runtime's. Ours are unique in the whole history: a second 's0p0' of an earlier run becomes
    's0p0_2'. A result has the id of its call.
    """
    ids: dict[tuple[int, int], str] = {}
    taken: dict[str, int] = {}
    open_calls: list[tuple[ToolCallPart, str]] = []
    answered = 0
    for m, message in enumerate(messages):
        if message.role == "assistant":
            theirs = Counter(call.provider_id for call in message.tool_calls)
            open_calls, answered = [], 0
            for p, part in enumerate(message.parts):
                if isinstance(part, ToolCallPart):
                    if message.provider == provider and part.provider_id and theirs[part.provider_id] == 1:
                        wire = part.provider_id
                    else:
                        our_id = part.id or f"m{m}p{p}"
                        taken[our_id] = nth = taken.get(our_id, 0) + 1
                        wire = ours(our_id if nth == 1 else f"{our_id}_{nth}")
                    ids[m, p] = wire
                    open_calls.append((part, wire))
        for p, part in enumerate(message.parts):
            if isinstance(part, ToolResultPart):
                ids[m, p] = _id_of_result(part, open_calls, answered, ours)
                answered += 1
    return ids


def _id_of_result(
    result: ToolResultPart, calls: list[tuple[ToolCallPart, str]], answered: int, ours: Callable[[str], str]
) -> str:
    """Find the call by our id, else by the provider's, else by its place: a caller's own history may have either."""
    for call, wire in calls:
        if result.tool_call_id and call.id == result.tool_call_id:
            return wire
    for call, wire in calls:
        if result.provider_id and call.provider_id == result.provider_id:
            return wire
    if not result.tool_call_id and answered < len(calls):
        return calls[answered][1]
    return ours(result.tool_call_id or f"r{answered}")


# Histories ---------------------------------------------------------------------------------------------------------


def split_system(request: ModelRequest) -> tuple[str, list[tuple[int, Message]]]:
    """Return the system prompt with every system message of the history at its end, and the other messages.

    For providers that know no system message inside a conversation. Messages keep the position that `wire_ids` uses.
    """
    texts = [request.system or "", *(m.text for m in request.messages if m.role == "system")]
    rest = [(i, m) for i, m in enumerate(request.messages) if m.role != "system"]
    return "\n\n".join(text for text in texts if text), rest


def opaque(message: Message, provider: str) -> dict[str, Any]:
    """Return what this provider left in the message to have back; empty where another one wrote it."""
    data = message.provider_data if message.provider == provider else None
    return data if isinstance(data, dict) else {}


# Answers -----------------------------------------------------------------------------------------------------------


class CallKeys:
    """Tell the calls of a stream apart: by index, and for servers that send index 0 always, by what begins anew."""

    def __init__(self) -> None:
        self._ids: dict[int, str] = {}
        self._texts: dict[int, str] = {}
        self._turns: dict[int, int] = {}

    def key(self, index: int, call_id: str, name: str, text: str) -> tuple[int, int]:
        """Return the key of the call that a piece belongs to.

        A piece with a name begins a call where its id is another one than before, or where it has no id, brings
        arguments, and those of the call before are whole.
        """
        known, before = self._ids.get(index, ""), self._texts.get(index, "")
        another = call_id != known if call_id and known else bool(not call_id and text and _is_object(before))
        if name and another:
            self._turns[index] = self._turns.get(index, 0) + 1
            known, before = "", ""
        self._ids[index], self._texts[index] = known or call_id, before + text
        return index, self._turns.get(index, 0)


def _is_object(text: str) -> bool:
    return text.rstrip().endswith("}") and parse_args(text)[0] is not None


class Answer:
    """An answer while its pieces arrive, whole or streamed: the same code reads both."""

    def __init__(self) -> None:
        self._pieces: list[tuple[str, list[str]]] = []
        self._calls: list[dict[str, Any]] = []
        self._by_key: dict[object, int] = {}
        self.usage = Usage()
        self.model = ""
        self.stop_reason: StopReason | None = None
        """None as long as the provider has not said why the answer ended: without that it is not whole."""

    def text(self, text: str) -> Iterator[ModelEvent]:
        """Add text."""
        if text:
            self._piece("text").append(text)
            yield TextDelta(clean(text))

    def reasoning(self, text: str, *, new: bool = False) -> Iterator[ModelEvent]:
        """Add reasoning; `new` begins a part of its own even where the text is empty."""
        if text or new:
            self._piece("reasoning", new=new).append(text)
        if text:
            yield ReasoningDelta(clean(text))

    def call(self, key: object, *, name: str = "", id: str = "", text: str = "") -> Iterator[ModelEvent]:  # noqa: A002
        """Add to the call of this key; the first mention of a key begins a call, and name and id may come late."""
        if key not in self._by_key:
            self._by_key[key] = len(self._calls)
            self._calls.append({"name": "", "id": "", "text": []})
            self._pieces.append(("call", []))
        position = self._by_key[key]
        call = self._calls[position]
        if name and name != call["name"]:  # some servers repeat the name with every piece
            call["name"] += name
        call["id"] = call["id"] or id
        call["text"].append(text)
        yield ToolCallDelta(position, clean(call["name"]), clean(text))

    def place(self, key: object) -> int:
        """Return which call of the answer this key is, from 0."""
        return self._by_key[key]

    @property
    def count(self) -> int:
        """Number of parts so far."""
        return len(self._pieces)

    @property
    def last(self) -> str:
        """Kind of the last part: 'text', 'reasoning' or 'call'; '' before the first."""
        return self._pieces[-1][0] if self._pieces else ""

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts so far, in the order in which each began."""
        parts: list[Part] = []
        calls = iter(self._calls)
        for kind, texts in self._pieces:
            if kind == "call":
                call = next(calls)
                args, raw = parse_args("".join(call["text"]))
                parts.append(ToolCallPart("", clean(call["name"]), args, raw, clean(call["id"])))
            else:
                text = clean("".join(texts))
                parts.append(TextPart(text) if kind == "text" else ReasoningPart(text))
        return tuple(parts)

    def response(self, provider: str, model_id: str, provider_data: JsonValue = None) -> ModelResponse:
        """Return the whole answer.

        Raises:
            ModelResponseError: The provider has not said that it is whole.
        """
        if self.stop_reason is None:
            raise ModelResponseError(f"the answer of {provider}/{model_id} broke off before its end")
        stop = "tool_calls" if self._calls and self.stop_reason == "stop" else self.stop_reason
        return ModelResponse(self.parts, self.usage, stop, clean(self.model) or model_id, provider, provider_data)

    def _piece(self, kind: str, *, new: bool = False) -> list[str]:
        if new or not self._pieces or self._pieces[-1][0] != kind:
            self._pieces.append((kind, []))
        return self._pieces[-1][1]
