"""End a drive: record how it ended and give the lock back, in one batch."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gnl_core import keys
from gnl_core.errors import (
    CanceledError,
    CompensatedRunError,
    GnlError,
    JournalError,
    RefusedError,
    RunFencedError,
    describe,
)
from gnl_core.journal.port import Create, JsonValue, Op, Refused
from gnl_core.lock import Heartbeat, release_op
from gnl_core.outcome import changed, head_ops
from gnl_core.records import RunStatus

if TYPE_CHECKING:
    from gnl_core.admission import Admitted
    from gnl_core.approvals import Interrupt
    from gnl_core.request import Request

logger = logging.getLogger("gnl_core.closing")


async def close(
    admitted: Admitted,
    beat: Heartbeat,
    pending: list[Op],
    *,
    counts: Mapping[str, JsonValue],
    interrupts: Sequence[Interrupt] = (),
    error: BaseException | None = None,
) -> None:
    """End a drive, well or not.

    Args:
        admitted: The run.
        beat: Its heartbeat, stopped first.
        pending: What the run has not written yet; written with the end.
        counts: What the head counts.
        interrupts: Open questions.
        error: What stopped the drive, if anything did; it is the caller's to raise.

    Raises:
        CanceledError, CompensatedRunError: The run was halted while its last answer was under way, which is not taken.
        RunFencedError, JournalError: A drive without an error could not be recorded as ended.
        asyncio.CancelledError: The caller was cancelled meanwhile; the end was written all the same.
    """
    ending = asyncio.ensure_future(_close(admitted, beat, pending, counts=counts, interrupts=interrupts, error=error))
    cancelled: asyncio.CancelledError | None = None
    while not ending.done():
        try:
            await asyncio.wait({ending})
        except asyncio.CancelledError as one:
            cancelled = one
    if cancelled is not None:
        if not ending.cancelled():
            ending.exception()  # read, so that nobody warns of it
        raise cancelled
    ending.result()


async def _close(
    admitted: Admitted,
    beat: Heartbeat,
    pending: list[Op],
    *,
    counts: Mapping[str, JsonValue],
    interrupts: Sequence[Interrupt],
    error: BaseException | None,
) -> None:
    request = admitted.request
    try:
        await beat.stop()
        # A fence that is lost is lost: whoever took the run over writes its end.
        if isinstance(error, RunFencedError):
            return
        try:
            await _write(admitted, pending, counts, interrupts, error)
        except (CanceledError, CompensatedRunError) as halted:
            await _write(admitted, pending, counts, interrupts, halted)
            if error is None:
                raise
    except (RunFencedError, JournalError):
        if error is None:
            raise
        # What is under way is the caller's; why the run's end is not recorded would be told nowhere.
        logger.exception(
            "the end of run %s could not be recorded; its next drive goes on from its records", request.root
        )
    finally:
        request.release()


async def _write(
    admitted: Admitted,
    pending: list[Op],
    counts: Mapping[str, JsonValue],
    interrupts: Sequence[Interrupt],
    error: BaseException | None,
) -> None:
    request, head = admitted.request, admitted.head
    halted = isinstance(error, CanceledError | CompensatedRunError)
    if halted:
        pending.clear()
    status, members = _ended(head, counts, interrupts, error)
    if error is not None and not pending and head.get("status") == status == "completed":
        members = {}  # the run is over and nothing came to it: its head stays as it is
    ops: list[Op] = []
    unchanged = head.get("status") == status and all(head.get(name) == value for name, value in members.items())
    if pending or not unchanged:
        ops += head_ops(request.root, keys.ROOT, head, changed(head, status, request.now, **members))
    asked = {
        keys.ask(one.asked_at, request.root, keys.split_run_id(one.run_id)[1], one.tool_call_id): one.question
        for one in interrupts
        if one.kind == "in_doubt" and keys.split_run_id(one.run_id)[0] == request.root
    }
    ops += [Create(key, {"question": question}, if_present="keep") for key, question in asked.items()]
    ops.append(release_op(request.root, request.fence or 0, request.owner))
    # A run that was canceled meanwhile ends as canceled, however its drive ended and whether or not anything is left to
    # write: who canceled it was told so.
    outcome = await request.write(ops, pending=pending, begins=not halted)
    if isinstance(outcome, Refused):
        raise request.fenced_error()


async def close_child(
    request: Request,
    part: str,
    head: Mapping[str, JsonValue],
    pending: list[Op],
    *,
    counts: Mapping[str, JsonValue],
    interrupts: Sequence[Interrupt] = (),
    error: BaseException | None = None,
) -> None:
    """Record how the drive of a sub-agent's run ended, with what it has not written yet.

    Args:
        request: The request.
        part: The sub-agent's run.
        head: Its head.
        pending: What it has not written yet.
        counts: What its head counts.
        interrupts: Its open questions.
        error: What stopped it, if anything did; it is the caller's to raise. What cannot be written is logged then.

    Raises:
        RunFencedError, JournalError: A drive without an error could not be recorded.
    """
    if isinstance(error, RunFencedError | CanceledError | CompensatedRunError):
        return
    status, members = _ended(head, counts, interrupts, error)
    stands = head.get("status") == status and (error is None or head.get("error") == members["error"])
    if not pending and stands:
        return
    new = changed(head, status, request.now, **members)
    pending[:] = [op for op in pending if op.key != keys.head(request.root, part)]
    try:
        await request.write(head_ops(request.root, part, head, new), pending=pending, begins=error is not None)
    except GnlError:
        if error is None:
            raise
        logger.warning("the end of run %s could not be recorded", keys.run_id_of(request.root, part), exc_info=True)


def _ended(
    head: Mapping[str, Any],
    counts: Mapping[str, JsonValue],
    interrupts: Sequence[Interrupt],
    error: BaseException | None,
) -> tuple[RunStatus, dict[str, JsonValue]]:
    """Return the status of a run whose drive ended, and what its head is to hold."""
    # What a halted run was about to begin is neither recorded nor counted.
    halted = isinstance(error, CanceledError | CompensatedRunError)
    members: dict[str, JsonValue] = {} if halted else _counted(head, counts, interrupts, error)
    if error is not None:
        code, message = describe(error)
        members["error"] = {"code": code if isinstance(error, GnlError) else "interrupted", "message": message[:500]}
    return _status(head, counts, interrupts, error), members


def _counted(
    head: Mapping[str, Any],
    counts: Mapping[str, JsonValue],
    interrupts: Sequence[Interrupt],
    error: BaseException | None,
) -> dict[str, JsonValue]:
    """Return what the head counts; a drive that broke off early has not seen all that is recorded."""
    if error is None:
        return dict(counts)
    return {
        name: max(count, head[name]) if type(count) is int and type(head.get(name)) is int else count
        for name, count in counts.items()
    } | {"questions": len(interrupts) or (head.get("questions", 0) if isinstance(error, RefusedError) else 0)}


def _status(
    head: Mapping[str, Any],
    counts: Mapping[str, JsonValue],
    interrupts: Sequence[Interrupt],
    error: BaseException | None,
) -> RunStatus:
    over = head.get("status") == "completed"
    if isinstance(error, CanceledError):
        return "completed" if over else "canceled"
    open_ones = (head.get("questions") or head.get("waits")) if isinstance(error, RefusedError) else False
    if interrupts or open_ones or (error is None and counts.get("waits")):
        return "suspended"  # a drive that was refused before it came there leaves the questions open
    return "completed" if error is None or over else "failed"
