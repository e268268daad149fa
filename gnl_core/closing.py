"""End a drive: record how it ended and give the lock back, in one batch."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gnl_core import keys
from gnl_core.errors import CanceledError, CompensatedRunError, JournalError, RefusedError, RunFencedError
from gnl_core.journal.port import Create, JsonValue, Op, Refused
from gnl_core.lock import Heartbeat, release_op
from gnl_core.outcome import changed, head_ops
from gnl_core.records import RunStatus

if TYPE_CHECKING:
    from gnl_core.admission import Admitted
    from gnl_core.approvals import Interrupt


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
            await _write(admitted, pending, counts, (), halted)
            raise
    except (RunFencedError, JournalError):
        if error is None:
            raise
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
    # What a halted run was about to begin is neither recorded nor counted.
    members: dict[str, JsonValue] = {} if halted else _counted(head, counts, interrupts, error)
    if error is not None:
        members["error"] = {"code": getattr(error, "code", "interrupted"), "message": str(error)[:500]}
    if halted:
        pending.clear()
    status = _status(head, interrupts, error)
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
    outcome = await request.write(ops, pending=pending, begins=error is None and bool(pending))
    if isinstance(outcome, Refused):
        raise request.fenced_error()


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


def _status(head: Mapping[str, Any], interrupts: Sequence[Interrupt], error: BaseException | None) -> RunStatus:
    refused = isinstance(error, RefusedError) and not isinstance(error, CanceledError)
    if interrupts or (refused and head.get("questions")):
        return "suspended"  # a drive that was refused before it came there leaves the questions open
    if error is None or head.get("status") == "completed":
        return "completed"
    return "canceled" if isinstance(error, CanceledError) else "failed"
