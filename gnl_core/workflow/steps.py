"""One step on its way through the engine: named with its claim, run, recorded; and what it came to.

A step is the only call of a step number of its own, 's<n>p0'. Its name's row is written in the batch of its claim, so
that names and calls never part: a name without its call is one whose harmless body was under way when a process died.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from gnl_core import keys
from gnl_core.call import Caller
from gnl_core.codec import decode
from gnl_core.decisions import question_of
from gnl_core.errors import (
    DoubtError,
    GnlError,
    JournalGapError,
    RefusedError,
    ResultNotRepresentableError,
    RunBusyError,
    SideEffectRetryBlockedError,
    StepRetryBlockedError,
    ToolError,
)
from gnl_core.journal.port import JsonValue, Op
from gnl_core.model.messages import ToolCallPart
from gnl_core.records import CallRecord
from gnl_core.results import ReplayedCall
from gnl_core.slots import Slot
from gnl_core.workflow.names import Named, StepNames

if TYPE_CHECKING:
    from gnl_core.approvals import Interrupt
    from gnl_core.request import Request
    from gnl_core.tools import Tool


@dataclass(frozen=True, slots=True)
class Waiting:
    """A step that waits for a person."""

    interrupts: tuple[Interrupt, ...]


@dataclass(frozen=True, slots=True)
class Failed:
    """A step that did not do its work."""

    error: ToolError


Ended: TypeAlias = "Waiting | Failed | object"
"""What a step came to: a wait, a failure, or what its function returned."""


class Stepper:
    """Brings steps of one workflow to their ends."""

    def __init__(self, request: Request, names: StepNames) -> None:
        self.request = request
        self.names = names
        self._walking = asyncio.Lock()
        self._begun: set[str] = set()

    def has_begun(self, name: str) -> bool:
        """Whether a step is on its way in this drive, and not only called."""
        return name in self._begun

    def recorded(self, step: int) -> CallRecord | None:
        """Return the record of a step's call; None where it has none."""
        entry = self.request.rows.get(keys.tool(self.request.root, keys.ROOT, step, 0))
        return self.request.record_of(entry) if entry is not None else None

    def _is_lost(self, step: int) -> bool:
        """Whether a side effect that has a name must have had a record: a name comes with a claim or a question.

        Or with the incident of a call that was blocked, and has begun nothing.
        """
        incidents = ("run", self.request.root, keys.ROOT, "incident", keys.call_id(step, 0))
        return self.recorded(step) is None and not any(key[:5] == incidents for key in self.request.rows)

    async def bring(self, name: str, tool: Tool, args: dict[str, Any], *, final: bool) -> Ended:
        """Bring a step as far as it goes.

        Args:
            name: Its name.
            tool: What it does.
            args: With what, as the record keeps it.
            final: Whether a failure that leaves no doubt is made final before it is returned.

        Raises:
            StepRetryBlockedError: It began and nobody knows how it ended, or it still executes elsewhere.
            GnlError: Whatever else stops a call, its record or its run.
            asyncio.CancelledError: The drive was cancelled.
        """
        async with self._walking:  # claims are made one after another
            self._begun.add(name)
            named = self.names.known.get(name)
            if named is not None and named.failed:
                record = self.recorded(named.step)
                if record is not None and record.status == "failed":
                    return Failed(self._replayed_failure(name, record))
            slot, caller = await self._begin(name, named, tool, args)
        await caller.finish(slot)
        step = self.names.known[name].step if name in self.names.known else 0
        caller.account(slot, step)
        if slot.replayed:
            self._note_replay(slot.part.id, slot.part.name, slot.status, own=slot.origin == "self")
        return await self._ended(name, slot, final=final)

    async def _begin(self, name: str, named: Named | None, tool: Tool, args: dict[str, Any]) -> tuple[Slot, Caller]:
        request = self.request
        step = named.step if named is not None else self.names.take()
        if named is not None and tool.side_effect and not tool.args_mode and self._is_lost(step):
            raise JournalGapError(
                f"step {name!r} of run {request.root} has begun as call {keys.call_id(step, 0)}, whose record is "
                "missing; it is not run in its place. Run `gnl doctor`, or restore the journal from a copy",
                run_id=request.root,
                step=name,
            )
        slot = Slot(ToolCallPart(keys.call_id(step, 0), tool.name, args))
        pending: list[Op] = [] if named is not None else [self.names.begin_op(name, step)]
        caller = Caller(request, part=keys.ROOT, tools={tool.name: tool}, pending=pending)
        try:
            await caller.begin(slot, step, 0)
            if pending and slot.error is None:
                await request.write((), pending=pending, begins=True)  # a harmless body acts under its name, too
        except BaseException:
            await caller.walker.unclaim(slot)
            raise
        if named is None and not pending:
            self.names.known[name] = Named(step)
        return slot, caller

    async def _ended(self, name: str, slot: Slot, *, final: bool) -> Ended:
        if slot.error is not None:
            raise self._typed(name, slot, slot.error)
        if slot.interrupts:
            return Waiting(slot.interrupts)
        record = slot.record
        assert record is not None
        if slot.status == "succeeded":
            if record.unrepresentable:
                raise ResultNotRepresentableError(
                    f"step {name!r} (call {slot.part.id} of run {self.request.root}) is done, but its result could "
                    f"not be stored: {record.unrepresentable}. Nothing goes on without it. Let {slot.part.name} return "
                    "plain data, and do this work in a run of its own",
                    output=None,
                    run_id=self.request.root,
                    step=name,
                )
            value: object = decode(slot.output)
            return value
        failure = _failure(name, record)
        if final:
            await self._make_final(name, record)
        elif record.status == "failed" and not self.names.known[name].failed:
            failure.args = (f"step {name!r} of run {self.request.root} failed: {failure}. {self._next(name, record)}",)
        return Failed(failure)

    def _next(self, name: str, record: CallRecord) -> str:
        """Return what the next drive does about a step that failed, for whoever reads its error."""
        question = self._question(name, record)
        if question is None:
            return "The next drive tries it again, if its max_retries lets it"
        return (
            f"Whether it took effect is not known: question {question.question!r} is open, and the next drive stops at "
            f"it, unless {record.tool} has a recover() that knows"
        )

    def _question(self, name: str, record: CallRecord) -> Interrupt | None:
        root, part = keys.split_run_id(record.run) if record.run else (self.request.root, keys.ROOT)
        entry = self.request.rows[keys.tool(self.request.root, keys.ROOT, self.names.known[name].step, 0)]
        return question_of(root, part, record, entry, self.request.now)

    async def _make_final(self, name: str, record: CallRecord) -> None:
        """Record that a failure was handed on; refuse one that leaves a doubt."""
        if not record.terminal and record.side_effect:
            raise self._doubt(name, record)
        if self.names.known[name].failed or record.status != "failed":
            return
        await self.request.write((self.names.fail_op(name),))
        self.names.known[name] = Named(self.names.known[name].step, failed=True)

    def _replayed_failure(self, name: str, record: CallRecord) -> ToolError:
        self._note_replay(record.call, record.tool, record.status, own=True)
        return _failure(name, record)

    def _note_replay(self, call: str, tool: str, status: str, *, own: bool) -> None:
        self.request.log.replayed.append(
            ReplayedCall(
                tool_call_id=call,
                tool_name=tool,
                status=status,
                origin="self" if own else "window",
                run_id=self.request.root,
            )
        )

    # What stops a workflow -----------------------------------------------------------------------------------------

    def _typed(self, name: str, slot: Slot, error: BaseException) -> BaseException:
        """Return the error of a step as a workflow's caller reads it."""
        if isinstance(error, SideEffectRetryBlockedError):
            blocked = StepRetryBlockedError(
                f"step {name!r} is in doubt: {error}", **{**error.detail, "step": name, "state": "unresolved"}
            )
            blocked.__cause__ = error
            error = blocked
        elif isinstance(error, RunBusyError):
            blocked = StepRetryBlockedError(
                f"step {name!r} is in flight: {error}", **{**error.detail, "step": name, "state": "in-flight"}
            )
            blocked.__cause__ = error
            error = blocked
        elif isinstance(error, GnlError):
            error.detail.setdefault("step", name)
        if isinstance(error, RefusedError | DoubtError):
            error.interrupts = slot.interrupts
        return error

    def _doubt(self, name: str, record: CallRecord) -> StepRetryBlockedError:
        """Return the error of a side effect that raised: whether it took effect is not known."""
        request, question = self.request, self._question(name, record)
        asked = question.question if question is not None else ""
        error = StepRetryBlockedError(
            f"step {name!r} ({record.tool}, call {record.call} of run {request.root}) raised, and nobody knows whether "
            f"it took effect: that is no outcome to go on from. Find out, then answer the question {asked!r} by "
            f"decide(…); or give {record.tool} a recover(). A function that raises NotPerformedError says that nothing "
            "has happened",
            run_id=request.root,
            step=name,
            state="unresolved",
            question=asked,
            tool_call_id=record.call,
            tool=record.tool,
        )
        error.__cause__ = _failure(name, record)
        error.interrupts = (question,) if question is not None else ()
        return error


def _failure(name: str, record: CallRecord) -> ToolError:
    """Return a recorded failure, in the same words now and whenever it is replayed."""
    error: Mapping[str, JsonValue] = record.error or {}
    kind = str(error.get("type", record.status))
    text = str(error.get("message") or record.text or kind)  # some errors have no words
    return ToolError(text, type=kind, step=name, tool=record.tool, tool_call_id=record.call, status=record.status)
