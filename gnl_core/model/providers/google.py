"""Google's Gemini API."""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Any, ClassVar

from gnl_core.errors import ConfigError, ModelResponseError
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
from gnl_core.model.providers._shared import Answer, args_object, args_text, opaque, split_system, wire_ids, wire_name

_STOP: dict[str, StopReason] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "SAFETY": "content_filter",
    "RECITATION": "content_filter",
    "BLOCKLIST": "content_filter",
    "PROHIBITED_CONTENT": "content_filter",
    "SPII": "content_filter",
}


class GoogleModel(SdkModel):
    """A model behind the Gemini API.

    Thought signatures go back verbatim on the part they came with. Calls and results are matched by name and order;
    an id goes along only where this provider gave one.
    """

    name: ClassVar[str] = "google"
    module: ClassVar[str] = "google.genai"
    key_env: ClassVar[tuple[str, ...]] = ("GOOGLE_API_KEY", "GEMINI_API_KEY")
    url_env: ClassVar[str] = "GOOGLE_GEMINI_BASE_URL"

    def _make_client(self, api_key: str) -> Any:
        from google import genai  # noqa: PLC0415 - loaded with the first request

        return genai.Client(
            api_key=api_key,
            vertexai=False,
            http_options={
                "base_url": self._base_url,
                "timeout": max(1, int(self._timeout * 1000)),
                # Without this the SDK repeats a broken connection once by itself, after up to ten seconds.
                "retry_options": {"attempts": self._max_retries + 1},
            },
        )

    @staticmethod
    async def _close_client(client: Any) -> None:
        await client.aio.aclose()
        client.close()

    def _request(self, request: ModelRequest) -> dict[str, Any]:
        settings = request.settings
        system, messages = split_system(request)
        config: dict[str, Any] = {
            "system_instruction": system or None,
            "temperature": settings.temperature,
            "max_output_tokens": settings.max_output_tokens,
            "top_p": settings.top_p,
            "stop_sequences": list(settings.stop) or None,
            "seed": settings.seed,
            "automatic_function_calling": {"disable": True},  # calls are the runtime's to make
        }
        if request.tools:
            config["tools"] = [
                {
                    "function_declarations": [
                        {"name": tool.name, "description": tool.description, "parameters_json_schema": tool.parameters}
                        for tool in request.tools
                    ]
                }
            ]
            if settings.tool_choice is not None:
                modes = {"auto": "AUTO", "none": "NONE", "required": "ANY"}
                calling: dict[str, Any] = {"mode": modes.get(settings.tool_choice, "ANY")}
                if settings.tool_choice not in modes:
                    calling["allowed_function_names"] = [settings.tool_choice]
                config["tool_config"] = {"function_calling_config": calling}
        config = {name: value for name, value in config.items() if value is not None} | dict(settings.extra)
        self._check(config)
        contents = self._contents(messages, wire_ids(request.messages, self.provider, lambda _: ""))
        return {"model": self.model_id, "contents": contents, "config": config}

    def _check(self, config: dict[str, Any]) -> None:
        """Tell a wrong setting apart from a wrong answer; the SDK finds both in the course of one call."""
        from google.genai import types  # noqa: PLC0415 - loaded with the first request

        try:
            types.GenerateContentConfig.model_validate(config)
        except ValueError as error:
            raise ConfigError(f"the settings for {self.spec} (check settings.extra): {error}") from None

    def _contents(self, messages: list[tuple[int, Message]], ids: dict[tuple[int, int], str]) -> list[dict[str, Any]]:
        contents: list[dict[str, Any]] = []
        before = ""
        for m, message in messages:
            signatures = opaque(message, self.provider).get("signatures") or {}
            parts = [
                wire
                for p, part in enumerate(message.parts)
                if (wire := _part(part, ids.get((m, p), ""), signatures.get(str(p), ""))) is not None
            ]
            if message.role == before == "tool":  # all results of one step stand in one message
                contents[-1]["parts"] += parts
            elif parts:
                contents.append({"role": "model" if message.role == "assistant" else "user", "parts": parts})
                before = message.role
        return contents

    async def _send(self, client: Any, call: dict[str, Any]) -> ModelResponse:
        reply = await client.aio.models.generate_content(**call)
        answer, signatures = Answer(), dict[str, str]()
        for _ in self._read(answer, signatures, reply):
            pass
        return self._whole(answer, signatures)

    async def _events(self, client: Any, call: dict[str, Any]) -> AsyncGenerator[ModelEvent]:
        answer, signatures = Answer(), dict[str, str]()
        async with aclosing(await client.aio.models.generate_content_stream(**call)) as chunks:
            async for chunk in chunks:
                for event in self._read(answer, signatures, chunk):
                    yield event
        yield ResponseDone(self._whole(answer, signatures))

    def _whole(self, answer: Answer, signatures: dict[str, str]) -> ModelResponse:
        return answer.response(self.provider, self.model_id, {"signatures": dict(signatures)} if signatures else None)

    def _read(self, answer: Answer, signatures: dict[str, str], reply: Any) -> Iterator[ModelEvent]:
        """Read a reply or a piece of one, which are alike."""
        answer.model = reply.model_version or answer.model
        if reply.usage_metadata is not None:
            answer.usage = _usage(reply.usage_metadata)
        if reply.prompt_feedback is not None and reply.prompt_feedback.block_reason:
            raise ModelResponseError(f"{self.spec} refused the prompt: {_word(reply.prompt_feedback.block_reason)}")
        for candidate in (reply.candidates or [])[:1]:
            for part in (candidate.content.parts if candidate.content else None) or []:
                if part.function_call is not None:
                    called = part.function_call
                    key = answer.count
                    yield from answer.call(
                        key, name=called.name or "", id=called.id or "", text=args_text(called.args or None)
                    )
                elif part.text is not None:
                    yield from answer.reasoning(part.text) if part.thought else answer.text(part.text)
                if part.thought_signature and answer.count:
                    signatures[str(answer.count - 1)] = base64.b64encode(part.thought_signature).decode()
            if candidate.finish_reason is not None:
                answer.stop_reason = _STOP.get(_word(candidate.finish_reason), "other")


def _part(part: object, wire_id: str, signature: str) -> dict[str, Any] | None:
    wire: dict[str, Any]
    match part:
        case TextPart(text) if text:
            wire = {"text": text}
        case ReasoningPart(text) if signature:
            wire = {"text": text, "thought": True}
        case ToolCallPart():
            wire = {"function_call": {"name": wire_name(part.name), "args": args_object(part)}}
            if wire_id:
                wire["function_call"]["id"] = wire_id
        case ToolResultPart():
            said = {"error" if part.is_error else "output": part.text}
            wire = {"function_response": {"name": wire_name(part.name), "response": said}}
            if wire_id:
                wire["function_response"]["id"] = wire_id
        case _:
            return None
    return {**wire, "thought_signature": base64.b64decode(signature)} if signature else wire


def _word(value: Any) -> str:
    return str(getattr(value, "value", value))


def _usage(usage: Any) -> Usage:
    return Usage(
        (usage.prompt_token_count or 0) + (usage.tool_use_prompt_token_count or 0),
        (usage.candidates_token_count or 0) + (usage.thoughts_token_count or 0),
    )
