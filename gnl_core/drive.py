"""Drive one run of a request, the root or a sub-agent's: model step, its calls, model step, until it ends or waits."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from gnl_core import keys
from gnl_core.approvals import MISSING, Interrupt
from gnl_core.call import Caller
from gnl_core.closing import close_child
from gnl_core.codec import decode
from gnl_core.drift import check_drift
from gnl_core.errors import ConfigError, DoubtError, JournalGapError, RefusedError, ToolError
from gnl_core.events import Event, tell
from gnl_core.journal.port import Create, JsonValue, Op
from gnl_core.model.messages import (
    Message,
    ModelResponse,
    ModelSettings,
    ReasoningPart,
    TextPart,
    message_to_json,
)
from gnl_core.model.router import resolve_model
from gnl_core.outcome import head_ops, new_head, read_head
from gnl_core.records import FORMAT, CallRecord, StepRecord, read_call, read_step
from gnl_core.render import RENDER
from gnl_core.request import Request
from gnl_core.results import FinishReason, ReplayedCall, Step, ToolOutcome
from gnl_core.slots import Slot
from gnl_core.splice import Transcript
from gnl_core.step import Bodies, Entry, ModelStep, bound, splice_of
from gnl_core.verdicts import Call

if TYPE_CHECKING:
    from gnl_core.model.router import ModelLike
    from gnl_core.tools import Tool

StopWhen: TypeAlias = Callable[[Sequence[Step]], bool | Awaitable[bool]]
"""Looks at the steps so far, replayed ones too, and says whether the run is to end here."""

_EXPLAIN = "For your information: the following work was done earlier and was not repeated now: {names}."


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """What drives a run: a model, its tools, and when to stop.

    Attributes:
        model: A model, its name, or a list of them (a fallback chain).
        tools: By name.
        system: System prompt.
        settings: How to generate.
        max_steps: Most model steps, at least 1.
        stop_when: Ends the run earlier.
    """

    model: ModelLike
    tools: Mapping[str, Tool]
    system: str | None = None
    settings: ModelSettings = field(default_factory=ModelSettings)
    max_steps: int = 12
    stop_when: StopWhen | None = None

    def __post_init__(self) -> None:
        if type(self.max_steps) is not int or self.max_steps < 1:
            raise ConfigError(f"max_steps is {self.max_steps!r}, must be an int of at least 1")


@dataclass(slots=True)
class Outcome:
    """How a drive ended: over, waiting, or stopped by an error that a gate ruled."""

    reason: FinishReason
    text: str = ""
    interrupts: tuple[Interrupt, ...] = ()


class Drive:
    """Drives one run."""

    def __init__(
        self, request: Request, agent: Agent, *, part: str, messages: Sequence[Message], mode: Entry, pending: list[Op]
    ) -> None:
        self.request = request
        self.agent = agent
        self.part = part
        self.run = keys.run_id_of(request.root, part)
        self.mode = mode
        self.pending = pending
        self.transcript = Transcript.start(messages)
        self.steps: list[Step] = []
        self.bodies = Bodies(
            system=agent.system, tools=[tool.spec for tool in agent.tools.values()], settings=agent.settings
        )
        self.model = bound(request, part, resolve_model(agent.model))
        self.caller = Caller(request, part=part, tools=agent.tools, pending=pending, drive_child=self._drive_child)
        self.asker = ModelStep(request, part=part, model=self.model, bodies=self.bodies, pending=pending, mode=mode)
        self._settled = False
        self._note = ""
        self._before = len(messages)

    async def drive(self) -> Outcome:
        """Drive the run until it ends or waits for a person.

        Raises:
            GnlError: As `run_durable` tells.
        """
        while True:
            number = len(self.steps)
            response, model, replayed = await self._model_step(number)
            self.transcript.append(response.message(), {"step": number})
            slots = await self.caller.run_step(number, response.tool_calls)
            self._log(number, response, slots, model=model, replayed=replayed)
            # Two calls that do the same work wait on one question.
            interrupts = tuple({one.question: one for slot in slots for one in slot.interrupts}.values())
            self._raise_first(slots, interrupts)
            if interrupts:
                return Outcome("suspended", interrupts=interrupts)
            for slot in slots:
                assert slot.message is not None
                self.transcript.append(slot.message, {"call": slot.part.id, "render": RENDER})
            self._explain(slots)
            if not slots:
                return Outcome(_finish_reason(response), response.text)
            if await self._stop():
                return Outcome("stop_when", response.text)
            if len(self.steps) >= self.agent.max_steps:
                return Outcome("max_steps", response.text)

    # One step ------------------------------------------------------------------------------------------------------

    async def _model_step(self, number: int) -> tuple[ModelResponse, str, bool]:
        """Return the answer of a step, which model gave it, and whether it is a recorded one."""
        listener = self.request.options.listener
        before, self._before = self._before, len(self.transcript.messages)
        record = self.asker.recorded(number)
        if record is None and number <= self.request.last_step(self.part):
            raise JournalGapError(
                f"run {self.run} has model steps up to {self.request.last_step(self.part)}, but step {number} is "
                "missing; "
                "nothing is asked in its place. Run `gnl doctor`, or fork the run before it",
                run_id=self.run,
                step=number,
            )
        if listener is not None:
            tell(listener, Event(kind="step-started", run_id=self.run, step=number, replayed=record is not None))
        if record is not None:
            response, model = self._replay(number, record), record.model
            self._note = ""  # it was told in this step, if it was told
        else:
            note, self._note = self._note, ""
            response = await self.asker.ask(
                number, self.transcript, splice=splice_of(self.transcript, before), note=note
            )
            model = self.model.spec
        self._spend(response, model)
        if listener is not None:
            tell(listener, Event(kind="step-finished", run_id=self.run, step=number, replayed=record is not None))
        return response, model, record is not None

    def _replay(self, number: int, record: StepRecord) -> ModelResponse:
        check_drift(
            self.request,
            run=self.run,
            step=number,
            record=record,
            transcript=self.transcript,
            bodies=self.bodies,
            model=self.model.spec,
            settled=self._settled,
        )
        listener = self.request.options.listener
        for part in record.response.parts if listener is not None else ():
            match part:
                case TextPart(text):
                    tell(listener, Event(kind="text-delta", run_id=self.run, step=number, replayed=True, text=text))
                case ReasoningPart(text):
                    tell(
                        listener, Event(kind="reasoning-delta", run_id=self.run, step=number, replayed=True, text=text)
                    )
        return record.response

    def _spend(self, response: ModelResponse, model: str) -> None:
        request, limits = self.request, self.request.options.limits
        request.log.usage += response.usage
        request.spent = request.spent.with_step(limits, model, response.usage)
        for warning in request.spent.warnings(limits):
            request.warn(warning)

    def _spend_recorded(self, part: str) -> None:
        """Count what a sub-agent's run used in an earlier drive, so that budgets mean the same in every drive."""
        request = self.request
        for number in range(request.last_step(part) + 1):
            entry = request.rows.get(keys.model(request.root, part, number))
            if entry is None:
                continue  # its work is settled, so nothing of it is asked again
            record = read_step(entry)
            self._spend(record.response, record.model)
            for position, call in enumerate(record.response.tool_calls):
                row = request.rows.get(keys.tool(request.root, part, number, position))
                if row is not None and _was_made(read_call(row)):
                    request.spent = request.spent.with_call()
                self._spend_recorded(keys.child_id(request.root, part, call.id))

    def _log(self, number: int, response: ModelResponse, slots: Sequence[Slot], *, model: str, replayed: bool) -> None:
        self.steps.append(
            Step(
                number=number,
                text=response.text,
                calls=tuple(_outcome(slot) for slot in slots),
                usage=response.usage,
                model=model,
                replayed=replayed,
            )
        )
        for slot in slots:
            record = slot.record
            if record is not None and (record.settled_by or record.attempts > 1):
                self._settled = True
            if slot.replayed and slot.call is not None:
                if slot.call.tool.drives_run:
                    self._spend_recorded(keys.child_id(self.request.root, self.part, slot.part.id))
                self.request.log.replayed.append(
                    ReplayedCall(
                        tool_call_id=slot.part.id,
                        tool_name=slot.part.name,
                        status=slot.status,
                        origin="self" if slot.origin == "self" else "window",
                        run_id=self.run,
                    )
                )
        error = self.request.spent.check(self.request.options.limits, calling=False)
        if error is not None and (slots or not replayed):
            error.detail.setdefault("run_id", self.request.root)
            raise error

    def _raise_first(self, slots: Sequence[Slot], interrupts: tuple[Interrupt, ...]) -> None:
        """Raise the first error of a step, now that all its calls stand, with every open question attached."""
        for slot in slots:
            if slot.error is not None:
                if isinstance(slot.error, RefusedError | DoubtError):
                    slot.error.interrupts = interrupts
                raise slot.error

    def _explain(self, slots: Sequence[Slot]) -> None:
        if self.request.options.replay_disclosure != "explain":
            return
        names = [
            slot.part.name for slot in slots if slot.replayed and slot.origin == "window" and slot.status == "succeeded"
        ]
        if names:
            self._note = _EXPLAIN.format(names=", ".join(names))

    async def _stop(self) -> bool:
        if self.agent.stop_when is None:
            return False
        answer = self.agent.stop_when(tuple(self.steps))
        return bool(await answer if inspect.isawaitable(answer) else answer)

    # Sub-agents ----------------------------------------------------------------------------------------------------

    async def _drive_child(self, call: Call) -> str | tuple[Interrupt, ...]:
        """Drive the run that a sub-agent's call stands for."""
        agent, prompt = call.tool.function(**call.arguments)
        if not isinstance(agent, Agent):
            raise ConfigError(f"{call.tool.name} is declared to drive a run, but gives no agent")
        request = self.request
        part = keys.child_id(request.root, self.part, call.id)
        messages = (Message("user", (TextPart(prompt),)),)
        parent: Mapping[str, JsonValue] = {"run": self.run, "call": call.id}
        head = read_head(request.rows.get(keys.head(request.root, part)))
        pending: list[Op] = []
        if head is None:
            options = request.options
            head = new_head(
                now=request.now,
                model=resolve_model(agent.model).spec,
                thread=options.thread_id,
                resource=options.resource_id,
                parent=parent,
            )
            pending += head_ops(request.root, part, None, head)
            frozen: JsonValue = {
                "f": FORMAT,
                "messages": [message_to_json(message) for message in messages],
                "system": agent.system,
                "parent": dict(parent),
            }
            pending.append(Create(keys.input_of(request.root, part), frozen, if_present="keep"))
        drive = Drive(request, agent, part=part, messages=messages, mode=self.mode, pending=pending)
        try:
            outcome = await drive.drive()
        except BaseException as error:
            asked = getattr(error, "interrupts", ())
            # What the model answered is recorded though the run breaks off: it is not asked for it again.
            await close_child(
                request, part, head, pending, counts=drive.counts(len(asked)), interrupts=asked, error=error
            )
            raise
        asked = outcome.interrupts
        await close_child(request, part, head, pending, counts=drive.counts(len(asked)), interrupts=asked)
        return outcome.interrupts or outcome.text

    def counts(self, questions: int) -> dict[str, JsonValue]:
        """Return what the run's head counts."""
        return {
            "steps": len(self.steps),
            "calls": sum(len(step.calls) for step in self.steps),
            "questions": questions,
        }


def _was_made(record: CallRecord) -> bool:
    done = record.status == "succeeded" or (record.status == "failed" and record.side_effect)
    return done and not record.copied_from


def _outcome(slot: Slot) -> ToolOutcome:
    error: ToolError | None = None
    record = slot.record
    output = decode(slot.output) if slot.value is MISSING else slot.value
    if record is not None and record.status == "failed" and record.error is not None:
        detail = record.error.get("detail")
        error = ToolError(str(record.error.get("message", "")), type=str(record.error.get("type", "ToolError")))
        error.detail = dict(detail) if isinstance(detail, dict) else {}
    return ToolOutcome(
        tool_call_id=slot.part.id,
        tool_name=slot.part.name,
        status=slot.status,
        output=output if slot.status == "succeeded" else None,
        error=error,
        replayed=slot.replayed,
    )


def _finish_reason(response: ModelResponse) -> FinishReason:
    match response.stop_reason:
        case "length" | "content_filter" | "other":
            return response.stop_reason
        case _:
            return "stop"
