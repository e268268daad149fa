"""Mistral's chat API."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncGenerator, Iterator
from typing import Any, ClassVar

from gnl_core.errors import ModelResponseError
from gnl_core.model.messages import (
    Message,
    ModelEvent,
    ModelRequest,
    ModelResponse,
    ReasoningPart,
    ResponseDone,
    StopReason,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    Usage,
)
from gnl_core.model.providers._sdk import SdkModel
from gnl_core.model.providers._shared import Answer, CallKeys, args_object, args_text, opaque, wire_ids, wire_name

_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_STOP: dict[str, StopReason] = {
    "stop": "stop",
    "tool_calls": "tool_calls",
    "length": "length",
    "model_length": "length",
}


def nine_characters(our_id: str) -> str:
    """Return a call id of the form this API asks for, nine letters or digits, the same one for the same id."""
    number = int.from_bytes(hashlib.sha256(our_id.encode()).digest())
    characters = []
    for _ in range(9):
        number, rest = divmod(number, len(_ALPHABET))
        characters.append(_ALPHABET[rest])
    return "".join(characters)


class MistralModel(SdkModel):
    """A model behind the chat API.

    Thinking goes back as it came. The SDK bounds its retries by time: two seconds for each of `max_retries`.
    """

    name: ClassVar[str] = "mistral"
    module: ClassVar[str] = "mistralai"
    key_env: ClassVar[tuple[str, ...]] = ("MISTRAL_API_KEY",)

    def _make_client(self, api_key: str) -> Any:
        from mistralai.client import Mistral  # noqa: PLC0415 - loaded with the first request
        from mistralai.client.utils import BackoffStrategy, RetryConfig  # noqa: PLC0415 - ditto

        backoff = BackoffStrategy(500, 2_000, 1.5, 2_000 * self._max_retries)
        return Mistral(
            api_key=api_key,
            server_url=self._base_url,
            timeout_ms=max(1, int(self._timeout * 1000)),
            retry_config=RetryConfig("backoff" if self._max_retries else "none", backoff, bool(self._max_retries)),
        )

    @staticmethod
    async def _close_client(client: Any) -> None:
        await client.__aexit__(None, None, None)
        client.__exit__(None, None, None)

    def _request(self, request: ModelRequest) -> dict[str, Any]:
        settings = request.settings
        call: dict[str, Any] = {
            "model": self.model_id,
            "messages": self._messages(request),
            "temperature": settings.temperature,
            "max_tokens": settings.max_output_tokens,
            "top_p": settings.top_p,
            "stop": list(settings.stop) or None,
            "random_seed": settings.seed,
        }
        if request.tools:
            call["tools"] = [
                {
                    "type": "function",
                    "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
                }
                for tool in request.tools
            ]
            words = {None: None, "auto": "auto", "none": "none", "required": "any"}
            named = {"type": "function", "function": {"name": settings.tool_choice}}
            call["tool_choice"] = words.get(settings.tool_choice, named)
        call = {name: value for name, value in call.items() if value is not None}
        return {**call, **settings.extra}

    def _messages(self, request: ModelRequest) -> list[dict[str, Any]]:
        ids = wire_ids(request.messages, self.provider, nine_characters)
        wire: list[dict[str, Any]] = [{"role": "system", "content": request.system}] if request.system else []
        for m, message in enumerate(request.messages):
            if message.role == "assistant":
                wire.append(self._assistant(m, message, ids))
            elif message.role == "tool":
                for p, part in enumerate(message.parts):
                    if isinstance(part, ToolResultPart):
                        named = {"name": wire_name(part.name), "tool_call_id": ids[m, p]}
                        wire.append({"role": "tool", **named, "content": part.text})
            else:
                wire.append({"role": message.role, "content": message.text})
        return wire

    def _assistant(self, m: int, message: Message, ids: dict[tuple[int, int], str]) -> dict[str, Any]:
        kept = iter(opaque(message, self.provider).get("thinking") or [])
        chunks: list[Any] = []
        calls: list[dict[str, Any]] = []
        for p, part in enumerate(message.parts):
            match part:
                case TextPart(text) if text:
                    chunks.append({"type": "text", "text": text})
                case ReasoningPart():
                    chunks += [chunk for chunk in [next(kept, None)] if chunk is not None]
                case ToolCallPart():
                    function = {"name": wire_name(part.name), "arguments": json.dumps(args_object(part))}
                    calls.append({"id": ids[m, p], "type": "function", "function": function})
        thinks = any(chunk["type"] == "thinking" for chunk in chunks)
        content = chunks if thinks else message.text
        return {"role": "assistant", "content": content, **({"tool_calls": calls} if calls else {})}

    async def _send(self, client: Any, call: dict[str, Any]) -> ModelResponse:
        completion = await client.chat.complete_async(**call)
        if not completion.choices:
            raise ModelResponseError(f"the answer of {self.spec} holds no choice")
        answer, reader = Answer(), _Reader()
        answer.model, answer.usage = completion.model or "", _usage(completion.usage)
        for _ in reader.read(answer, completion.choices[0].message):
            pass
        answer.stop_reason = _STOP.get(completion.choices[0].finish_reason or "", "other")
        return answer.response(self.provider, self.model_id, reader.data)

    async def _events(self, client: Any, call: dict[str, Any]) -> AsyncGenerator[ModelEvent]:
        answer, reader = Answer(), _Reader()
        async with await client.chat.stream_async(**call) as events:
            async for event in events:
                chunk = event.data
                answer.model = chunk.model or answer.model
                if chunk.usage:
                    answer.usage = _usage(chunk.usage)
                for choice in chunk.choices[:1]:
                    for delta in reader.read(answer, choice.delta):
                        yield delta
                    if isinstance(choice.finish_reason, str):
                        answer.stop_reason = _STOP.get(choice.finish_reason, "other")
        yield ResponseDone(answer.response(self.provider, self.model_id, reader.data))


class _Reader:
    """Reads messages and deltas, which are alike, and keeps the thinking."""

    def __init__(self) -> None:
        self._thinking: list[dict[str, Any]] = []
        self._keys = CallKeys()

    @property
    def data(self) -> dict[str, Any] | None:
        """What goes into `provider_data`."""
        return {"thinking": self._thinking} if self._thinking else None

    def read(self, answer: Answer, message: Any) -> Iterator[ModelEvent]:
        """Yield the events of a message or delta."""
        content = message.content
        if isinstance(content, str):
            yield from answer.text(content)
        elif isinstance(content, list):
            for chunk in content:
                if chunk.type == "thinking":
                    yield from self._think(answer, chunk)
                elif chunk.type == "text":
                    yield from answer.text(chunk.text)
        for position, call in enumerate(message.tool_calls or []):
            given = call.id if call.id and call.id != "null" else ""  # the SDK's word for no id
            text = args_text(call.function.arguments)
            # A whole answer has no indexes; a stream's are 0 for every call with some models.
            key = self._keys.key(call.index or position, given, call.function.name, text)
            yield from answer.call(key, name=call.function.name, id=given, text=text)

    def _think(self, answer: Answer, chunk: Any) -> Iterator[ModelEvent]:
        text = "".join(piece.text for piece in chunk.thinking if piece.type == "text")
        if answer.last != "reasoning" or "signature" in self._thinking[-1]:
            self._thinking.append({"type": "thinking", "thinking": [{"type": "text", "text": ""}]})
            yield from answer.reasoning("", new=True)
        self._thinking[-1]["thinking"][0]["text"] += text
        if isinstance(chunk.signature, str) and chunk.signature:
            self._thinking[-1]["signature"] = chunk.signature
        yield from answer.reasoning(text)


def _usage(usage: Any) -> Usage:
    return Usage(usage.prompt_tokens or 0, usage.completion_tokens or 0)
