"""Anthropic's messages API."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from typing import Any, ClassVar

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
from gnl_core.model.providers._shared import (
    Answer,
    args_object,
    args_text,
    opaque,
    parse_args,
    split_system,
    wire_ids,
    wire_name,
)

MAX_TOKENS = 8_192
"""Most tokens of an answer where the settings name none: this API insists on a number."""

_STOP: dict[str, StopReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}


class AnthropicModel(SdkModel):
    """A model behind the messages API.

    Thinking, redacted thinking and every other block that is neither text nor a tool call goes back verbatim, with its
    signature, at the place of the reasoning part that stands for it.
    """

    name: ClassVar[str] = "anthropic"
    module: ClassVar[str] = "anthropic"
    key_env: ClassVar[tuple[str, ...]] = ("ANTHROPIC_API_KEY",)
    url_env: ClassVar[str] = "ANTHROPIC_BASE_URL"

    def _make_client(self, api_key: str) -> Any:
        import anthropic  # noqa: PLC0415 - loaded with the first request

        return anthropic.AsyncAnthropic(
            api_key=api_key, base_url=self._base_url, timeout=self._timeout, max_retries=self._max_retries
        )

    @staticmethod
    async def _close_client(client: Any) -> None:
        await client.close()

    def _request(self, request: ModelRequest) -> dict[str, Any]:
        settings = request.settings
        system, messages = split_system(request)
        call: dict[str, Any] = {
            "model": self.model_id,
            "max_tokens": settings.max_output_tokens or MAX_TOKENS,
            "messages": self._messages(messages, wire_ids(request.messages, self.provider)),
            "system": system or None,
            "stop_sequences": list(settings.stop) or None,
        }
        # The SDK has dropped these two from its signature; the API still takes them for the models that do.
        sampling = {"temperature": settings.temperature, "top_p": settings.top_p}
        call["extra_body"] = {k: v for k, v in sampling.items() if v is not None} | dict(settings.extra)
        if request.tools:
            call["tools"] = [
                {"name": tool.name, "description": tool.description, "input_schema": tool.parameters}
                for tool in request.tools
            ]
            kinds = {None: None, "auto": "auto", "none": "none", "required": "any"}
            kind = kinds.get(settings.tool_choice, "tool")
            if kind is not None:
                call["tool_choice"] = {"type": kind, **({"name": settings.tool_choice} if kind == "tool" else {})}
        return {name: value for name, value in call.items() if value not in (None, {})}

    def _messages(self, messages: list[tuple[int, Message]], ids: dict[tuple[int, int], str]) -> list[dict[str, Any]]:
        wire: list[dict[str, Any]] = []
        for m, message in messages:
            role = "assistant" if message.role == "assistant" else "user"
            kept = iter(opaque(message, self.provider).get("blocks") or [])
            blocks: list[dict[str, Any]] = []
            for p, part in enumerate(message.parts):
                block = _block(part, ids.get((m, p), ""), kept)
                if block is not None:
                    blocks.append(block)
            if wire and wire[-1]["role"] == role:  # all results of one step stand in one message
                wire[-1]["content"] += blocks
            elif blocks:
                wire.append({"role": role, "content": blocks})
        return wire

    async def _send(self, client: Any, call: dict[str, Any]) -> ModelResponse:
        message = await client.messages.create(**call)
        answer, reader = Answer(), _Reader()
        answer.model, answer.usage = message.model, _usage(message.usage)
        for index, block in enumerate(message.content):
            for _ in reader.start(answer, index, block):
                pass
        if message.stop_reason:
            answer.stop_reason = _STOP.get(message.stop_reason, "other")
        return answer.response(self.provider, self.model_id, reader.data)

    async def _events(self, client: Any, call: dict[str, Any]) -> AsyncGenerator[ModelEvent]:
        answer, reader = Answer(), _Reader()
        stop: StopReason | None = None
        async with await client.messages.create(**call, stream=True) as events:
            async for event in events:
                match event.type:
                    case "message_start":
                        answer.model, answer.usage = event.message.model, _usage(event.message.usage)
                    case "content_block_start":
                        for delta in reader.start(answer, event.index, event.content_block):
                            yield delta
                    case "content_block_delta":
                        for delta in reader.delta(answer, event.index, event.delta):
                            yield delta
                    case "message_delta":
                        answer.usage = Usage(answer.usage.input_tokens, event.usage.output_tokens or 0)
                        stop = _STOP.get(event.delta.stop_reason or "", "other")
                    case "message_stop":  # only this says that nothing is missing
                        answer.stop_reason = stop
        yield ResponseDone(answer.response(self.provider, self.model_id, reader.data))


class _Reader:
    """Reads blocks, whole or in pieces, and keeps those that go back verbatim."""

    def __init__(self) -> None:
        self._kept: dict[int, dict[str, Any]] = {}
        self._inputs: dict[int, str] = {}

    @property
    def data(self) -> dict[str, Any] | None:
        """What goes into `provider_data`."""
        for index, text in self._inputs.items():
            self._kept[index]["input"] = parse_args(text)[0] or {}
        self._inputs = {}
        return {"blocks": list(self._kept.values())} if self._kept else None

    def start(self, answer: Answer, index: int, block: Any) -> Iterator[ModelEvent]:
        """Read a whole block, or the beginning of one."""
        if block.type == "text":
            yield from answer.text(block.text)
        elif block.type == "tool_use":
            # A stream begins with an empty input and sends the text of the real one afterwards.
            yield from answer.call(index, name=block.name, id=block.id, text=args_text(block.input or None))
        else:
            self._kept[index] = block.model_dump(mode="json", exclude_unset=True)
            yield from answer.reasoning(getattr(block, "thinking", ""), new=True)

    def delta(self, answer: Answer, index: int, delta: Any) -> Iterator[ModelEvent]:
        """Read more of a block."""
        match delta.type:
            case "text_delta":
                yield from answer.text(delta.text)
            case "input_json_delta" if index in self._kept:
                self._inputs[index] = self._inputs.get(index, "") + delta.partial_json
            case "input_json_delta":
                yield from answer.call(index, text=delta.partial_json)
            case "thinking_delta":
                self._kept[index]["thinking"] = self._kept[index].get("thinking", "") + delta.thinking
                yield from answer.reasoning(delta.thinking)
            case "signature_delta":
                self._kept[index]["signature"] = self._kept[index].get("signature", "") + delta.signature


def _block(part: object, wire_id: str, kept: Iterator[dict[str, Any]]) -> dict[str, Any] | None:
    match part:
        case TextPart(text):
            return {"type": "text", "text": text} if text else None
        case ReasoningPart():
            return next(kept, None)
        case ToolCallPart():
            return {"type": "tool_use", "id": wire_id, "name": wire_name(part.name), "input": args_object(part)}
        case ToolResultPart():
            result = {"type": "tool_result", "tool_use_id": wire_id, "content": part.text}
            return {**result, "is_error": True} if part.is_error else result
    return None


def _usage(usage: Any) -> Usage:
    cached = (usage.cache_creation_input_tokens or 0) + (usage.cache_read_input_tokens or 0)
    return Usage((usage.input_tokens or 0) + cached, usage.output_tokens or 0)
