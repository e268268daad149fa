"""What a run came to, as its caller reads it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from gnl_core.approvals import Interrupt
from gnl_core.errors import ToolError
from gnl_core.model.messages import Message, Usage

FinishReason = Literal["stop", "suspended", "max_steps", "stop_when", "length", "content_filter", "other"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOutcome:
    """What one call came to.

    Attributes:
        tool_call_id: Our id of the call.
        tool_name: Name of the tool as the model wrote it.
        status: 'succeeded', 'failed', 'denied', 'reflected', 'suspended', 'blocked' or 'in_doubt'.
        output: What the tool returned, in the form the journal keeps (decoded); None where there is none.
        error: What it raised, with the type's name and message it had when it was raised.
        replayed: Whether it was read from the journal rather than run.
    """

    tool_call_id: str
    tool_name: str
    status: str
    output: object = None
    error: ToolError | None = None
    replayed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One model step and its calls.

    Attributes:
        number: From 0.
        text: What the model said.
        calls: What its tool calls came to, in model order.
        usage: Tokens of the model call.
        model: 'provider/model' that answered.
        replayed: Whether the model's answer was read from the journal.
    """

    number: int
    text: str
    calls: tuple[ToolOutcome, ...]
    usage: Usage
    model: str
    replayed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedCall:
    """A call that was read rather than run.

    Attributes:
        tool_call_id: Our id of the call.
        tool_name: Name of the tool.
        status: Status of the record.
        origin: 'self': this very call, recorded by an earlier drive. 'window': other work under the same key.
        run_id: The run whose call it is.
    """

    tool_call_id: str
    tool_name: str
    status: str
    origin: Literal["self", "window"]
    run_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DurableResult:
    """What a run came to, or where it waits.

    Attributes:
        run_id: The run.
        text: What the model said last; '' while the run waits.
        messages: The whole conversation: what was asked, answers, tool results.
        steps: Every model step, recorded or live.
        usage: Tokens of all steps, sub-agents included.
        interrupts: Questions that wait for a person, the sub-agents' too. Empty: the run is over.
        replayed_tool_calls: Calls that were read rather than run.
        unused_approvals: Names of answers passed along that no call has met; they are not stored.
        warnings: What you should read: replay drift, fall-backs, hooks that failed.
        finish_reason: Why it ended.
    """

    run_id: str
    text: str
    messages: Sequence[Message]
    steps: Sequence[Step]
    usage: Usage
    interrupts: Sequence[Interrupt] = ()
    replayed_tool_calls: Sequence[ReplayedCall] = ()
    unused_approvals: Sequence[str] = ()
    warnings: Sequence[str] = ()
    finish_reason: FinishReason = "stop"

    def __repr__(self) -> str:
        # Short, and without contents: event loops and loggers write out what a task returned.
        return (
            f"DurableResult(run_id={self.run_id!r}, finish_reason={self.finish_reason!r}, steps={len(self.steps)}, "
            f"interrupts={len(self.interrupts)}, warnings={len(self.warnings)})"
        )


@dataclass(slots=True)
class Log:
    """What happened in a request while it was driven, its sub-agents included."""

    usage: Usage = field(default_factory=Usage)
    replayed: list[ReplayedCall] = field(default_factory=list)
