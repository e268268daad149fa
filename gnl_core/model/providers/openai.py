"""OpenAI, and every server that speaks its chat completions: one's own, a gateway, another provider's."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator, Iterator
from typing import Any, ClassVar

from gnl_core.errors import ModelResponseError
from gnl_core.model.messages import (
    Message,
    ModelEvent,
    ModelRequest,
    ModelResponse,
    ResponseDone,
    StopReason,
    ToolCallPart,
    ToolResultPart,
    Usage,
)
from gnl_core.model.providers._sdk import SdkModel
from gnl_core.model.providers._shared import Answer, CallKeys, args_object, args_text, opaque, wire_ids, wire_name

_STOP: dict[str, StopReason] = {
    "stop": "stop",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "content_filter": "content_filter",
}


class OpenAIModel(SdkModel):
    """A model behind the chat completions API.

    Kept as opaque data and sent back to the same provider only: `reasoning_content` and `reasoning_details` of
    servers that give them, and `extra_content` of a call (the thought signature of Gemini behind this API).
    """

    name: ClassVar[str] = "openai"
    module: ClassVar[str] = "openai"
    key_env: ClassVar[tuple[str, ...]] = ("OPENAI_API_KEY",)
    url_env: ClassVar[str] = "OPENAI_BASE_URL"

    def _make_client(self, api_key: str) -> Any:
        import openai  # noqa: PLC0415 - loaded with the first request

        return openai.AsyncOpenAI(
            api_key=api_key, base_url=self._base_url, timeout=self._timeout, max_retries=self._max_retries
        )

    @staticmethod
    async def _close_client(client: Any) -> None:
        await client.close()

    def _request(self, request: ModelRequest) -> dict[str, Any]:
        settings = request.settings
        own_server = bool(self._base_url or os.environ.get(self.url_env))
        call: dict[str, Any] = {
            "model": self.model_id,
            "messages": self._messages(request),
            "temperature": settings.temperature,
            # OpenAI's reasoning models refuse the old name, older servers do not know the new one.
            "max_tokens" if own_server else "max_completion_tokens": settings.max_output_tokens,
            "top_p": settings.top_p,
            "stop": list(settings.stop) or None,
            "seed": settings.seed,
            "extra_body": dict(settings.extra) or None,
        }
        if request.tools:
            call["tools"] = [
                {
                    "type": "function",
                    "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
                }
                for tool in request.tools
            ]
            choice = settings.tool_choice
            if choice in (None, "auto", "none", "required"):
                call["tool_choice"] = choice
            else:
                call["tool_choice"] = {"type": "function", "function": {"name": choice}}
        return {name: value for name, value in call.items() if value is not None}

    def _messages(self, request: ModelRequest) -> list[dict[str, Any]]:
        ids = wire_ids(request.messages, self.provider)
        wire: list[dict[str, Any]] = [{"role": "system", "content": request.system}] if request.system else []
        for m, message in enumerate(request.messages):
            if message.role == "assistant":
                wire.append(self._assistant(message, {p: ids.get((m, p), "") for p in range(len(message.parts))}))
            elif message.role == "tool":
                for p, part in enumerate(message.parts):
                    if isinstance(part, ToolResultPart):
                        wire.append({"role": "tool", "tool_call_id": ids[m, p], "content": part.text})
            else:
                wire.append({"role": message.role, "content": message.text})
        return wire

    def _assistant(self, message: Message, ids: dict[int, str]) -> dict[str, Any]:
        kept = opaque(message, self.provider)
        extras = kept.get("calls") or {}
        calls: list[dict[str, Any]] = []
        for p, part in enumerate(message.parts):
            if isinstance(part, ToolCallPart):
                function = {"name": wire_name(part.name), "arguments": _json(args_object(part))}
                extra = extras.get(str(len(calls)), {})
                calls.append({"id": ids[p], "type": "function", "function": function, **extra})
        wire: dict[str, Any] = {"role": "assistant", "content": message.text or (None if calls else "")}
        if calls:
            wire["tool_calls"] = calls
        return {**wire, **{k: kept[k] for k in ("reasoning_content", "reasoning_details") if k in kept}}

    async def _send(self, client: Any, call: dict[str, Any]) -> ModelResponse:
        completion = await client.chat.completions.create(**call)
        choices = getattr(completion, "choices", None)
        if not choices:
            raise ModelResponseError(f"the answer of {self.spec} holds no choice")
        answer, kept = Answer(), _Kept()
        answer.model = completion.model or ""
        answer.usage = _usage(completion.usage)
        for _ in kept.read(answer, choices[0].message):
            pass
        answer.stop_reason = _STOP.get(choices[0].finish_reason or "stop", "other")
        return answer.response(self.provider, self.model_id, kept.data)

    async def _events(self, client: Any, call: dict[str, Any]) -> AsyncGenerator[ModelEvent]:
        answer, kept = Answer(), _Kept()
        options = {"include_usage": True}
        async with await client.chat.completions.create(**call, stream=True, stream_options=options) as chunks:
            async for chunk in chunks:
                answer.model = answer.model or chunk.model or ""
                if chunk.usage is not None:
                    answer.usage = _usage(chunk.usage)
                for choice in (chunk.choices or [])[:1]:
                    for event in kept.read(answer, choice.delta):
                        yield event
                    if choice.finish_reason:
                        answer.stop_reason = _STOP.get(choice.finish_reason, "other")
        yield ResponseDone(answer.response(self.provider, self.model_id, kept.data))


class _Kept:
    """Reads messages and deltas, which are alike, and keeps what the provider wants back."""

    def __init__(self) -> None:
        self.data: dict[str, Any] | None = None
        self._keys = CallKeys()

    def read(self, answer: Answer, message: Any) -> Iterator[ModelEvent]:
        """Yield the events of a message or delta."""
        if message is None:
            return
        thought = getattr(message, "reasoning_content", None)
        if isinstance(thought, str) and thought:
            data = self._data()
            data["reasoning_content"] = data.get("reasoning_content", "") + thought
            yield from answer.reasoning(thought)
        details = getattr(message, "reasoning_details", None)
        if isinstance(details, list):
            self._data().setdefault("reasoning_details", []).extend(details)
        yield from answer.text(message.content or "")
        if getattr(message, "refusal", None):
            yield from answer.text(message.refusal)
        for position, call in enumerate(message.tool_calls or []):
            yield from self._call(answer, call, position)

    def _call(self, answer: Answer, call: Any, position: int) -> Iterator[ModelEvent]:
        index = getattr(call, "index", None)
        function = call.function
        name, text = (function.name or "", args_text(function.arguments)) if function else ("", "")
        key = self._keys.key(position if index is None else index, call.id or "", name, text)
        yield from answer.call(key, name=name, id=call.id or "", text=text)
        extra = getattr(call, "extra_content", None)
        if extra is not None:
            self._data().setdefault("calls", {})[str(answer.place(key))] = {"extra_content": extra}

    def _data(self) -> dict[str, Any]:
        if self.data is None:
            self.data = {}
        return self.data


def _usage(usage: Any) -> Usage:
    return Usage(usage.prompt_tokens or 0, usage.completion_tokens or 0) if usage is not None else Usage()


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
