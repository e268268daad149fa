"""The calls of one model step: each walks the gates, is claimed, runs, is recorded.

Calls walk in model order, each claimed before the next one walks, so that twins, limits and taint need no luck. Bodies
run side by side. Nothing stops a sibling: questions are collected and errors raised after all of them stand. Between a
body's return and its record nothing is awaited but the record itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gnl_core import keys
from gnl_core.decisions import question_of
from gnl_core.errors import (
    DoubtError,
    GnlError,
    NotCanonicalError,
    RefusedError,
    RunFencedError,
    ToolArgumentsError,
)
from gnl_core.events import Event, tell
from gnl_core.execute import Executor
from gnl_core.journal.port import Create, Entry, JsonValue, Key, Op
from gnl_core.journal.values import to_text
from gnl_core.model.messages import ToolCallPart
from gnl_core.records import CallRecord, read_call
from gnl_core.request import Request
from gnl_core.resolve import resolve
from gnl_core.slots import DriveChild, Slot, event_of, gap, settle, step_of
from gnl_core.walk import Walker, settle_recorded

if TYPE_CHECKING:
    from gnl_core.tools import Tool


class Caller:
    """Runs the calls of one run of a request."""

    def __init__(
        self,
        request: Request,
        *,
        part: str,
        tools: Mapping[str, Tool],
        pending: list[Op],
        drive_child: DriveChild | None = None,
    ) -> None:
        self.request = request
        self.part = part
        self.run = keys.run_id_of(request.root, part)
        self.tools = tools
        self.pending = pending
        self.walker = Walker(request, part, pending)
        self.executor = Executor(request, part, pending, drive_child)

    async def run_step(self, step: int, parts: Sequence[ToolCallPart]) -> list[Slot]:
        """Bring every call of a step as far as it goes; returns one slot a call, in model order.

        Raises:
            RunFencedError: The run was taken over; no body was begun after that was known.
            asyncio.CancelledError: The caller was cancelled; what was running is recorded as in doubt.
        """
        slots = [Slot(part) for part in parts]
        try:
            for position, slot in enumerate(slots):
                await self.begin(slot, step, position)
            bodies = [slot for slot in slots if slot.claim is not None or slot.waits]
            if bodies and self.pending:
                # The step is recorded before a harmless body acts on it.
                await self.request.write((), pending=self.pending, begins=True)
            await self._finish_all(bodies)
        except BaseException:
            for slot in slots:
                await self.walker.unclaim(slot)  # what was claimed and whose body was never entered
            raise
        for slot in slots:
            self.account(slot, step)
        return slots

    async def _finish_all(self, bodies: Sequence[Slot]) -> None:
        if len(bodies) == 1:
            await self.finish(bodies[0])
        elif bodies:
            results = await asyncio.gather(*(self.finish(slot) for slot in bodies), return_exceptions=True)
            for result in results:
                if isinstance(result, BaseException):
                    raise result

    # Begin ---------------------------------------------------------------------------------------------------------

    async def begin(self, slot: Slot, step: int, position: int) -> None:
        """Bring a call to where its body may run, or to where it stands; what stops it is on the slot.

        Raises:
            RunFencedError: The run was taken over.
        """
        part, key = slot.part, keys.tool(self.request.root, self.part, step, position)
        tool = self.tools.get(part.name)
        try:
            if tool is None or part.args is None:
                self._unusable(slot, key, self._no_such_tool(part) if tool is None else self._no_object(part))
                return
            slot.call = resolve(self.request, self.part, part, tool, (step, position))
            await self._walk(slot)
        except (ToolArgumentsError, NotCanonicalError) as error:
            self._unusable(slot, key, error)
        except (RunFencedError, asyncio.CancelledError):
            raise
        except GnlError as error:
            slot.error, slot.status = error, "blocked"
            slot.interrupts = (*slot.interrupts, *getattr(error, "interrupts", ()))

    async def _walk(self, slot: Slot) -> None:
        """Walk a call and count it as begun before any other walks, so that parallel ones pass no limit together."""
        async with self.request.walking:
            await self.walker.walk(slot)
            if not slot.counted and (slot.claim is not None or _counts(slot)):
                slot.counted = True
                self.request.begun += 1

    def _no_such_tool(self, part: ToolCallPart) -> ToolArgumentsError:
        names = ", ".join(sorted(self.tools)) or "none"
        return ToolArgumentsError(f"there is no tool named {part.name!r}; the tools are: {names}")

    def _no_object(self, part: ToolCallPart) -> ToolArgumentsError:
        shown = part.raw_args[:200]
        return ToolArgumentsError(f"the arguments of {part.name} are no JSON object: {shown!r}; send an object")

    def _unusable(self, slot: Slot, key: Key, error: GnlError) -> None:
        """Tell the model that its call cannot be used: no tool ran, and it is recorded with the next batch."""
        known = self.request.rows.get(key)
        record = read_call(known) if known is not None else None
        if known is not None and record is not None:
            if record.terminal or (record.status == "failed" and not record.side_effect):
                settle_recorded(slot, record, known.blob, key)
            else:
                self._strand(slot, record, known, error)
            return
        child = keys.child_id(self.request.root, self.part, slot.part.id)
        if keys.head(self.request.root, child) in self.request.rows:
            self._strand(slot, None, None, error)
            return
        if slot.part.id and self.request.last_step(self.part) > step_of(slot.part.id):
            slot.error, slot.status = gap(self.run, slot.part.id), "blocked"
            return
        record = CallRecord(
            status="failed",
            tool=slot.part.name,
            call=slot.part.id,
            args=_kept(slot.part.args),
            digest="",
            side_effect=False,
            error={"type": type(error).__name__, "message": str(error)},
            certain=True,
        )
        self.pending.append(Create(key, record.to_json(), if_present="keep"))
        settle(slot, record, None)

    def _strand(self, slot: Slot, record: CallRecord | None, entry: Entry | None, error: GnlError) -> None:
        """Stop at a call that waits, or was begun, and whose tool is gone or takes other arguments by now."""
        slot.status = "blocked"
        if record is not None and entry is not None:
            question = question_of(self.request.root, self.part, record, entry, self.request.now)
            slot.interrupts = (question,) if question is not None else ()
        waits = record is None or record.status in ("suspended", "released")
        kind, state = (RefusedError, "waits") if waits else (DoubtError, "was begun and nobody knows how it ended")
        slot.error = kind(
            f"call {slot.part.id} of run {self.run} {state}, and cannot go on: {error}. Give the run the tool that it "
            "had, or fork the run before this step",
            run_id=self.run,
            tool_call_id=slot.part.id,
            tool=slot.part.name,
        )

    # Run -----------------------------------------------------------------------------------------------------------

    async def finish(self, slot: Slot) -> None:
        """Run a claimed call, or wait for the one that does the same work."""
        try:
            if slot.waits:
                await self._wait(slot)
            if slot.claim is not None:
                await self.executor.execute(slot, slot.claim)
        except (RunFencedError, asyncio.CancelledError):
            await self.walker.unclaim(slot)
            raise
        except GnlError as error:
            await self.walker.unclaim(slot)
            slot.error, slot.status = error, "blocked"
            # A sub-agent's questions travel on its error: they are this request's, too.
            slot.interrupts = (*slot.interrupts, *getattr(error, "interrupts", ()))

    async def _wait(self, slot: Slot) -> None:
        pause = 0.015
        while slot.waits:
            await asyncio.sleep(pause)
            pause = min(pause * 2, 0.2)
            slot.waits = False
            await self._walk(slot)

    def account(self, slot: Slot, step: int) -> None:
        """Count a call where it stands, in model order, and tell of it."""
        record, listener = slot.record, self.request.options.listener
        if slot.counted:
            slot.counted = False
            self.request.begun -= 1
        if _counts(slot):
            self.request.spent = self.request.spent.with_call()
            if record is not None and slot.call is not None and record.status == "succeeded":
                self.request.history.append((record.tool, slot.call.args_digest))
        for interrupt in slot.interrupts:
            tell(
                listener,
                Event(
                    kind="interrupt",
                    run_id=interrupt.run_id,
                    step=step,
                    tool_call_id=interrupt.tool_call_id,
                    tool_name=interrupt.tool_name,
                    detail=interrupt.to_json(),
                ),
            )
        if slot.message is not None and listener is not None:
            tell(listener, event_of(slot, self.run, "tool-finished"))


def _counts(slot: Slot) -> bool:
    """Whether a settled call is one that the run has made."""
    record = slot.record
    if record is None or record.copied_from or slot.call is None:
        return False
    return record.status == "succeeded" or (record.status == "failed" and record.side_effect)


def _kept(args: Mapping[str, JsonValue] | None) -> Mapping[str, JsonValue]:
    """Return what the record keeps of arguments that cannot be used; nothing where no journal can hold them."""
    try:
        to_text(("args",), args)
    except (TypeError, ValueError):
        return {}
    return args or {}
