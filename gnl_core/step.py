"""One model step: read from the journal, or asked of the model and recorded whole before anything acts on it."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Literal

from gnl_core import keys
from gnl_core.errors import (
    ModelResponseError,
    RunBusyError,
    StepTimeoutError,
)
from gnl_core.events import Event, tell
from gnl_core.journal.port import Create, JsonValue, Key, Op, Put, Refused, Replace
from gnl_core.journal.values import to_text
from gnl_core.model.messages import (
    Message,
    ModelRequest,
    ModelResponse,
    ModelSettings,
    ReasoningDelta,
    ResponseDone,
    TextDelta,
    ToolCallPart,
    ToolSpec,
    check_response,
    message_to_json,
)
from gnl_core.model.port import ChatModel
from gnl_core.model.streams import opened
from gnl_core.owner import is_dead, read_owner
from gnl_core.records import FORMAT, StepRecord, read_step
from gnl_core.request import Request
from gnl_core.splice import Transcript, digest_json

MAX_CALLS = 1_000
"""Most tool calls of one answer: a position has three digits."""

Entry = Literal["generate", "stream"]


class Bodies:
    """What the requests of a run have in common from step to step: its tools, settings and system prompt, by digest."""

    def __init__(self, *, system: str | None, tools: Sequence[ToolSpec], settings: ModelSettings) -> None:
        self.system = system
        self.tools = tuple(tools)
        self.settings = settings
        self.values: dict[str, JsonValue] = {
            "system": system,
            "tools": [[spec.name, spec.description, spec.parameters] for spec in self.tools],
            "settings": settings.to_json(),
        }
        self.digests = {name: digest_json(value) if value else "" for name, value in self.values.items()}
        self.stored = False

    def ops(self, request: Request, part: str) -> list[Op]:
        """Return the operations that store what of this is not stored yet."""
        ops: list[Op] = []
        if self.stored:
            return ops
        self.stored = True
        for name, digest in self.digests.items():
            key = keys.body(request.root, part, digest) if digest else None
            if key is not None and key not in request.rows:
                ops.append(Create(key, {"f": FORMAT, name: self.values[name]}, if_present="keep"))
        return ops


def with_our_ids(response: ModelResponse, step: int) -> ModelResponse:
    """Return the response with our id on each of its tool calls; the provider's stays beside it.

    Arguments that no journal can hold (NaN, say, from a model that hands them over parsed) become text, as any others
    that are no JSON object: the model is told, and no tool runs.

    Raises:
        ModelResponseError: It is no answer, holds more calls than a step may have, or data of the provider that is no
            JSON.
    """
    try:
        check_response(response)
    except ValueError as error:
        raise ModelResponseError(f"the model's answer cannot be recorded, so no part of it counts: {error}") from None
    calls = response.tool_calls
    if response.provider_data is not None and not _is_json(response.provider_data):
        raise ModelResponseError(
            "the answer's provider_data is no JSON, so it cannot be recorded; no part of it counts"
        )
    if len(calls) > MAX_CALLS:
        raise ModelResponseError(f"the answer asks for {len(calls)} tool calls, at most {MAX_CALLS} are possible")
    if not calls:
        return response
    positions = iter(range(len(calls)))
    parts = tuple(
        _our_call(part, keys.call_id(step, next(positions))) if isinstance(part, ToolCallPart) else part
        for part in response.parts
    )
    return ModelResponse(
        parts, response.usage, response.stop_reason, response.model, response.provider, response.provider_data
    )


def _our_call(part: ToolCallPart, call: str) -> ToolCallPart:
    args, raw = part.args, part.raw_args
    if args and not _is_json(args):
        try:
            raw = json.dumps(args, default=lambda value: f"<{type(value).__name__}>", skipkeys=True)
        except (ValueError, TypeError, RecursionError):  # a cycle, too deep, a number too long to be written
            raw = "(arguments that cannot be written as text)"
        args = None
    return ToolCallPart(call, part.name, args, raw, part.provider_id)


def _is_json(value: object) -> bool:
    try:
        to_text(("response",), value)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def bound(request: Request, part: str, model: ChatModel) -> ChatModel:
    """Return a model for one run: a fallback chain is bound to the candidate that won in it before."""
    bind = getattr(model, "bind", None)
    if bind is None:
        return model
    entry = request.rows.get(keys.winner(request.root, part))
    winner = entry.value.get("winner") if entry is not None and isinstance(entry.value, dict) else None
    chosen: ChatModel = bind(winner if isinstance(winner, str) else None)
    return chosen


class ModelStep:
    """Asks the model for one step and records the answer."""

    def __init__(
        self,
        request: Request,
        *,
        part: str,
        model: ChatModel,
        bodies: Bodies,
        pending: list[Op],
        mode: Entry,
    ) -> None:
        self.request = request
        self.part = part
        self.run = keys.run_id_of(request.root, part)
        self.model = model
        self.bodies = bodies
        self.pending = pending
        self.mode = mode

    def recorded(self, step: int) -> StepRecord | None:
        """Return a step that is recorded."""
        entry = self.request.rows.get(keys.model(self.request.root, self.part, step))
        return read_step(entry) if entry is not None else None

    async def ask(self, step: int, transcript: Transcript, *, splice: Splice, note: str = "") -> ModelResponse:
        """Ask the model, live; the answer is recorded with the next batch of the run.

        Args:
            step: Number of the step.
            transcript: The messages so far.
            splice: The request as a splice on the step before.
            note: Told to the model in this step only, outside of what is recorded and fingerprinted.

        Raises:
            ModelError: No whole answer came; nothing is recorded.
            StepTimeoutError: It took too long.
            RunBusyError: Another worker is at this very step (with `exclusive_model_step`).
        """
        error = self.request.halted()
        if error is not None:
            raise error
        system = self.bodies.system
        if note:
            system = f"{system}\n\n{note}" if system else note
        asked = ModelRequest(system, tuple(transcript.messages), self.bodies.tools, self.bodies.settings)
        if self.request.options.exclusive_model_step:
            await self._claim(step)
        response = with_our_ids(await self._within_time(step, asked), step)
        record = StepRecord(
            response=response,
            keep=splice.keep,
            add=splice.add,
            chain=transcript.chain,
            system=self.bodies.digests["system"],
            tools=self.bodies.digests["tools"],
            settings=self.bodies.digests["settings"],
            entry=self.mode,
            model=self.model.spec,
        )
        self.pending += splice.ops
        self.pending += self.bodies.ops(self.request, self.part)
        self.pending.append(Create(keys.model(self.request.root, self.part, step), record.to_json()))
        self._keep_winner()
        return response

    async def _within_time(self, step: int, asked: ModelRequest) -> ModelResponse:
        answer = self._stream(step, asked) if self.mode == "stream" else self.model.generate(asked)
        seconds = self.request.options.timeouts.model_step
        if seconds is None:
            return await answer
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                return await answer
        except TimeoutError:
            if not limit.expired():
                raise
            raise StepTimeoutError(
                f"model step {step} of run {self.run} took longer than {seconds:g} s; nothing is recorded of it. Drive "
                "the run again to ask once more",
                run_id=self.run,
                step=step,
            ) from None

    async def _stream(self, step: int, asked: ModelRequest) -> ModelResponse:
        listener, done = self.request.options.listener, None
        async with opened(self.model.stream(asked)) as events:
            async for event in events:
                match event:
                    case TextDelta(text):
                        tell(listener, Event(kind="text-delta", run_id=self.run, step=step, text=text))
                    case ReasoningDelta(text):
                        tell(listener, Event(kind="reasoning-delta", run_id=self.run, step=step, text=text))
                    case ResponseDone(response):
                        done = response
                    case _:
                        pass
        if done is None:
            raise ModelResponseError(
                f"the stream of {self.model.spec} ended before the answer was whole; none of it counts. Drive run "
                f"{self.run} again to ask once more"
            )
        return done

    async def _claim(self, step: int) -> None:
        key = keys.model_claim(self.request.root, self.part, step)
        value: JsonValue = {"f": FORMAT, "owner": self.request.owner.to_json()}
        known = self.request.rows.get(key)
        for _ in range(2):
            op: Op = Create(key, value)
            if known is not None:
                owner = read_owner(known.value.get("owner")) if isinstance(known.value, dict) else None
                left = known.updated_at + _CLAIM_TTL_MS - self.request.now
                if left > 0 and owner is not None and owner.id != self.request.owner.id and not is_dead(owner):
                    raise self._busy(step, left)
                op = Replace(key, known.version, value)
            outcome = await self.request.write((op,), pending=self.pending, begins=True)
            if not isinstance(outcome, Refused):
                return
            known = outcome.found  # one of our own, where the store did not say that it was written
        raise self._busy(step, _CLAIM_TTL_MS)

    def _busy(self, step: int, left_ms: int) -> RunBusyError:
        seconds = max(1, -(-left_ms // 1000))
        return RunBusyError(
            f"another worker is asking the model for step {step} of run {self.run}; try again in {seconds} s",
            retry_after=seconds,
            run_id=self.run,
            step=step,
        )

    def _keep_winner(self) -> None:
        winner = getattr(self.model, "winner", None)
        key = keys.winner(self.request.root, self.part)
        if isinstance(winner, str) and key not in self.request.rows:
            self.pending.append(Put(key, {"f": FORMAT, "winner": winner}))


_CLAIM_TTL_MS = 30_000


@dataclasses.dataclass(frozen=True, slots=True)
class Splice:
    """A request as a splice on the step before, and the rows of messages that no other record yields."""

    keep: int
    add: tuple[Mapping[str, JsonValue], ...]
    ops: tuple[Op, ...] = ()


def splice_of(transcript: Transcript, before: int) -> Splice:
    """Return the splice of a loop that only appends: all messages before, and references to those since.

    Args:
        transcript: The messages of the step.
        before: How many of them the step before had; for step 0, how many the input has.
    """
    references = transcript.references[before:]
    return Splice(before, tuple(reference for reference in references if reference is not None))


def splice_messages(
    request: Request, part: str, transcript: Transcript, messages: Sequence[Message], known: Mapping[str, JsonValue]
) -> Splice:
    """Return the splice of a caller's own messages, and make the transcript hold them.

    Args:
        request: The request.
        part: Its part.
        transcript: The messages of the step before; changed into those of this one.
        messages: The caller's messages.
        known: References by digest, for messages that other records yield.
    """
    keep, rest = transcript.splice(messages)
    transcript.cut(keep)
    said: dict[Key, Op] = {}  # a loop may say the same twice, and a batch writes a row once
    add: list[Mapping[str, JsonValue]] = []
    for message, digest in rest:
        reference = known.get(digest)
        if not isinstance(reference, dict):
            reference = {"msg": digest}
            key = keys.message(request.root, part, digest)
            if key not in request.rows:
                said[key] = Create(key, {"f": FORMAT, "message": message_to_json(message)}, if_present="keep")
        transcript.append(message, reference)
        add.append(reference)
    return Splice(keep, tuple(add), tuple(said.values()))
