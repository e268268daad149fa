"""Drive the run of one item: held, asked about, claimed and recorded as any call of a run, and ended as what it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnl_core import keys
from gnl_core.admission import Admitted, admit
from gnl_core.batch.preflight import CALL
from gnl_core.batch.report import ItemReport, Outcome
from gnl_core.call import Caller
from gnl_core.closing import close
from gnl_core.codec import decode
from gnl_core.decisions import question_of
from gnl_core.errors import (
    NotPerformedError,
    RefusedError,
    RunFencedError,
    ToolArgumentsError,
    ToolError,
    describe,
)
from gnl_core.journal.port import JsonValue, Op
from gnl_core.lock import Heartbeat
from gnl_core.model.messages import ToolCallPart
from gnl_core.repeats import SKIPPED
from gnl_core.slots import Slot

if TYPE_CHECKING:
    from gnl_core.approvals import Interrupt
    from gnl_core.batch.items import Job
    from gnl_core.run import Plan
    from gnl_core.tools import Tool

_ENDINGS: dict[str, Outcome] = {"succeeded": "done", "denied": "denied", "failed": "failed", "suspended": "suspended"}
_FAILURES: dict[str, type[ToolError]] = {error.__name__: error for error in (ToolArgumentsError, NotPerformedError)}


async def drive_item(job: Job, plan: Plan, tool: Tool) -> ItemReport:
    """Bring one item as far as it goes; what stops it is on its report.

    Raises:
        asyncio.CancelledError: The caller was cancelled; what was running is recorded as in doubt.
    """
    slot = Slot(ToolCallPart(CALL, tool.name, dict(job.args)))
    try:
        admitted = await admit(plan.asked, own_loop=True)
    except Exception as error:
        return _stopped(job, "not-run", error)
    warnings = admitted.request.warnings
    try:
        await _hold(admitted, plan, slot, tool)
    except Exception as error:
        # The call may be over, and only the end of its run not be recorded.
        outcome = _outcome(slot) if slot.record is not None else "failed"
        return _stopped(job, outcome, error, slot=slot, warnings=warnings)
    return _report(job, slot, _questions(admitted, slot), warnings)


async def _hold(admitted: Admitted, plan: Plan, slot: Slot, tool: Tool) -> None:
    """Make the call while the run is held, which is given back however it ends."""
    request, pending = admitted.request, list[Op]()
    beat = Heartbeat(request.journal, request.root, request.fence or 0, max(1, int(plan.asked.lock_ttl * 1000)))
    counts: dict[str, JsonValue] = {"steps": 0, "calls": 1, "questions": 0}
    try:
        await beat.start()
        caller = Caller(request, part=keys.ROOT, tools={tool.name: tool}, pending=pending)
        try:
            await caller.begin(slot, 0, 0)
            if pending and slot.claim is not None:
                await request.write((), pending=pending, begins=True)
        except BaseException:
            await caller.walker.unclaim(slot)
            raise
        await caller.finish(slot)
        caller.account(slot, 0)
    except GeneratorExit:
        request.release()  # its loop is gone: nothing can be awaited, and the hold of no task is no hold
        raise
    except BaseException as error:
        await close(admitted, beat, pending, counts=counts, error=error)
        raise
    counts["questions"] = len(slot.interrupts)
    ended = slot.error if slot.error is not None else _failure(slot)
    await close(admitted, beat, pending, counts=counts, interrupts=slot.interrupts, error=ended)


def _failure(slot: Slot) -> ToolError | None:
    """Return the error of a tool that raised: a run that came to that is no completed one."""
    if slot.status != "failed" or slot.record is None:
        return None
    error = slot.record.error or {}
    name = str(error.get("type", "ToolError"))
    return _FAILURES.get(name, ToolError)(str(error.get("message", "")), type=name)


def _questions(admitted: Admitted, slot: Slot) -> tuple[Interrupt, ...]:
    """Return what is asked of a person: of a tool that raised, whether it took effect."""
    request, record = admitted.request, slot.record
    if slot.interrupts or record is None or record.status != "failed" or slot.call is None:
        return slot.interrupts
    entry = request.rows.get(slot.call.own_key)
    question = question_of(request.root, keys.ROOT, record, entry, request.now) if entry is not None else None
    return (question,) if question is not None else ()


def _outcome(slot: Slot) -> Outcome:
    if slot.record is not None and slot.status == "denied" and slot.record.text == SKIPPED:
        return "skipped"
    if slot.status == "succeeded" and slot.replayed:
        return "replayed"
    return _ENDINGS.get(slot.status, "failed")


def _report(job: Job, slot: Slot, interrupts: tuple[Interrupt, ...], warnings: list[str]) -> ItemReport:
    error = slot.error
    if error is not None:
        stopped = _stopped_outcome(slot, error)
        return _stopped(job, stopped, error, slot=slot, interrupts=interrupts, warnings=warnings)
    outcome, failure = _outcome(slot), _failure(slot)
    return ItemReport(
        key=job.key,
        run_id=job.run_id,
        outcome=outcome,
        code=failure.code if failure is not None else "",
        message="" if outcome in ("done", "replayed") else _text(slot),
        output=decode(slot.output) if slot.status == "succeeded" else None,
        interrupts=interrupts,
        warnings=tuple(warnings),
    )


def _stopped_outcome(slot: Slot, error: BaseException) -> Outcome:
    if slot.record is not None and slot.record.status == "succeeded":
        return _outcome(slot)  # its effect is recorded; what it returned could not be
    if slot.interrupts:
        return "suspended"
    return "not-run" if isinstance(error, RefusedError) and not isinstance(error, RunFencedError) else "failed"


def _stopped(
    job: Job,
    outcome: Outcome,
    error: BaseException,
    *,
    slot: Slot | None = None,
    interrupts: tuple[Interrupt, ...] = (),
    warnings: list[str] | None = None,
) -> ItemReport:
    code, message = describe(error)
    given = slot is not None and slot.record is not None and slot.record.status == "succeeded"
    return ItemReport(
        key=job.key,
        run_id=job.run_id,
        outcome=outcome,
        code=code,
        message=message,
        output=getattr(error, "output", decode(slot.output) if given and slot is not None else None),
        interrupts=interrupts,
        warnings=tuple(warnings or ()),
    )


def _text(slot: Slot) -> str:
    part = slot.message.parts[0] if slot.message is not None else None
    if part is None and slot.interrupts:
        return slot.interrupts[0].reason
    return str(getattr(part, "text", slot.status))
