"""What a workflow came to, as its caller reads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from gnl_core.approvals import Interrupt
from gnl_core.errors import ToolError
from gnl_core.results import ReplayedCall

WorkflowStatus: TypeAlias = Literal["completed", "suspended", "canceled"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """A place where a workflow waits for somebody to send it something.

    Attributes:
        name: Its name: what `send=` and `send_to_workflow` call it.
        reason: What it waits for, for people.
        asked_at: Milliseconds of the store's clock at which a drive first came there.
    """

    name: str
    reason: str
    asked_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutcome:
    """What a step came to that may fail: the same in this drive and in every later one.

    Attributes:
        ok: Whether it did its work.
        output: What it returned; None where it failed.
        error: How it failed; None where it did not.
    """

    ok: bool
    output: Any = None
    error: ToolError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowResult:
    """What a workflow came to, or where it stands.

    Attributes:
        run_id: The run.
        status: 'completed', 'suspended' (it waits: see `interrupts` and `waits`), or 'canceled'.
        output: What the function returned, in the form the journal keeps (decoded); None unless completed.
        interrupts: Questions that wait for a person: `decide` answers them.
        waits: Where it waits to be sent something: `send_to_workflow` does that.
        replayed_tool_calls: Steps that were read rather than run.
        unused_approvals: Names of answers passed along that no step has met; they are not stored.
        warnings: What you should read.
    """

    run_id: str
    status: WorkflowStatus
    output: Any = None
    interrupts: tuple[Interrupt, ...] = ()
    waits: tuple[Wait, ...] = ()
    replayed_tool_calls: tuple[ReplayedCall, ...] = ()
    unused_approvals: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        # Short, and without contents: event loops and loggers write out what a task returned.
        return (
            f"WorkflowResult(run_id={self.run_id!r}, status={self.status!r}, interrupts={len(self.interrupts)}, "
            f"waits={len(self.waits)}, warnings={len(self.warnings)})"
        )
