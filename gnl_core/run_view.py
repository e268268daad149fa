"""What a person is shown of a run: plain frozen data, with a JSON form for programs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from gnl_core.approvals import Answer, Interrupt
from gnl_core.journal.port import JsonValue
from gnl_core.model.messages import Message, Usage, message_to_json
from gnl_core.records import CallStatus
from gnl_core.summary import RunSummary
from gnl_core.workflow.view import WorkflowView


@dataclass(frozen=True, slots=True, kw_only=True)
class CallView:
    """One tool call.

    Attributes:
        id: Our id, 's<step>p<position>'.
        tool: Tool name as the model wrote it.
        args: Arguments; None where the model wrote no JSON object.
        status: What its record says; 'missing' where there is none (yet).
        in_doubt: Whether it may have acted and nobody recorded how it ended.
        side_effect: Whether the tool acts on the world; None without a record.
        attempts: How often the body was begun.
        started_at: When the last attempt was claimed, in milliseconds of the store's clock; 0 where none was.
        updated_at: When the record was written.
        output: What the tool returned, in the codec's form; None where it returned nothing or stands in the blob.
        in_blob: Whether the output stands in the blob, and was not read.
        error: {'type', 'message', 'detail'} of a failed call.
        text: What the model read of a denied or reflected call.
        cause: Why it is in doubt, where its own process saw that.
        settled_by: Who settled a doubt.
        replayed_from: The call whose record answered this one, '<run>/<call>' where it is another run's; '' where it
            ran itself.
        copied_from: Run id of a fork's source.
        question: Name of the question that it waits for; '' where it waits for none.
        child: Run id of the sub-agent that it drives; '' where it drives none.
    """

    id: str
    tool: str
    args: Mapping[str, JsonValue] | None
    status: CallStatus | Literal["missing"]
    in_doubt: bool = False
    side_effect: bool | None = None
    attempts: int = 0
    started_at: int = 0
    updated_at: int = 0
    output: JsonValue = None
    in_blob: bool = False
    error: Mapping[str, JsonValue] | None = None
    text: str = ""
    cause: str = ""
    settled_by: str = ""
    replayed_from: str = ""
    copied_from: str = ""
    question: str = ""
    child: str = ""

    def to_json(self) -> dict[str, JsonValue]:
        """Return the call for programs; every member is there."""
        return {name: _plain(getattr(self, name)) for name in _CALL_MEMBERS}


_CALL_MEMBERS = tuple(member.name for member in dataclasses.fields(CallView))


def _plain(value: Any) -> JsonValue:
    return dict(value) if isinstance(value, Mapping) else value


@dataclass(frozen=True, slots=True, kw_only=True)
class StepView:
    """One model step: what the model answered, and what its calls came to."""

    number: int
    model: str
    stop_reason: str
    usage: Usage
    text: str
    reasoning: str
    calls: tuple[CallView, ...]
    recorded_at: int

    def to_json(self) -> dict[str, JsonValue]:
        """Return the step for programs."""
        return {
            "number": self.number,
            "model": self.model,
            "stop_reason": self.stop_reason,
            "usage": {"input_tokens": self.usage.input_tokens, "output_tokens": self.usage.output_tokens},
            "text": self.text,
            "reasoning": self.reasoning,
            "calls": [call.to_json() for call in self.calls],
            "recorded_at": self.recorded_at,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """One run as it stands.

    Attributes:
        run: Its head.
        messages: The frozen messages that it began with.
        system: The frozen system prompt, if any.
        steps: Model steps in order, each with its calls.
        questions: What waits for a person, calls in doubt included.
        answers: What persons have answered, with the name of each question.
        children: Heads of the sub-agents' runs that its calls drive.
        incidents: How many incidents are recorded in it.
        halted: {'kind', …} where nothing new starts in the request; None otherwise.
        calls: Calls without a recorded model step: those of a caller's own loop.
        workflow: Steps by name, waits and result of a workflow's run; None for any other.
        problems: Gaps, and rows that cannot be read: such a run is not resumed before `gnl doctor` has been asked.
    """

    run: RunSummary
    messages: tuple[Message, ...]
    system: str | None
    steps: tuple[StepView, ...]
    calls: tuple[CallView, ...]
    questions: tuple[Interrupt, ...]
    answers: tuple[tuple[str, Answer], ...]
    children: tuple[RunSummary, ...]
    incidents: int
    halted: Mapping[str, JsonValue] | None
    problems: tuple[str, ...]
    workflow: WorkflowView | None = None

    def to_json(self) -> dict[str, JsonValue]:
        """Return the run for programs."""
        return {
            **self.run.to_json(),
            "messages": [message_to_json(message) for message in self.messages],
            "system": self.system,
            "model_steps": [step.to_json() for step in self.steps],
            "other_calls": [call.to_json() for call in self.calls],
            "open_questions": [question.to_json() for question in self.questions],
            "answers": [{"question": name, **answer.to_json()} for name, answer in self.answers],
            "children": [child.to_json() for child in self.children],
            "incidents": self.incidents,
            "halted": dict(self.halted) if self.halted is not None else None,
            "workflow": self.workflow.to_json() if self.workflow is not None else None,
            "problems": list(self.problems),
        }
