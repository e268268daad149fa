"""Run claimed calls and record how they ended. Between a body's return and its record nothing else is awaited."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Sequence

from gnl_core import keys
from gnl_core.body import Ending, GivenUp, Raised, Returned, run_body
from gnl_core.crash import ask, context_of, output_of, succeeded
from gnl_core.errors import (
    ConfigError,
    DoubtError,
    EffectNotRecordedError,
    GnlError,
    JournalError,
    NotCanonicalError,
    NotPerformedError,
    RefusedError,
    ResultNotRepresentableError,
    RunFencedError,
    SideEffectRetryBlockedError,
    StepTimeoutError,
    ToolError,
)
from gnl_core.events import tell
from gnl_core.journal.port import Applied, Create, Expect, JsonValue, Op, Refused, Replace
from gnl_core.records import FORMAT, CallRecord
from gnl_core.request import Body, Request
from gnl_core.slots import Claim, DriveChild, Slot, error_json, event_of, interrupt, mirror, settle
from gnl_core.verdicts import Call, Ended

logger = logging.getLogger("gnl_core.execute")


class Executor:
    """Runs the bodies of one run's calls."""

    def __init__(self, request: Request, part: str, pending: list[Op], drive_child: DriveChild | None) -> None:
        self.request = request
        self.part = part
        self.run = keys.run_id_of(request.root, part)
        self.pending = pending
        self.drive_child = drive_child

    async def execute(self, slot: Slot, claim: Claim) -> None:
        """Run the body of a claimed call and record its end.

        Raises:
            RunFencedError: The run was taken over; what the body returned is kept as evidence.
            EffectNotRecordedError: The effect happened and its record could not be written.
            asyncio.CancelledError: The caller was cancelled; the call is recorded as in doubt.
        """
        assert slot.call is not None
        body = self.request.body_begins(slot.call.record_key)
        try:
            await self._execute(slot, claim, body)
        finally:
            if not body.left:
                self.request.body_ended(body)

    async def _execute(self, slot: Slot, claim: Claim, body: Body) -> None:
        call, ctx = slot.call, claim.context
        assert call is not None
        assert ctx is not None
        tool, task = call.tool, asyncio.current_task()
        cancels = task.cancelling() if task is not None else 0
        listener = self.request.options.listener
        if listener is not None:
            tell(listener, event_of(slot, self.run, "tool-started"))
        if tool.drives_run:
            await self._execute_child(slot, claim)
            return
        await self._renew(call, claim)
        context = context_of(ctx, claim.record.attempts)
        if tool.lookup is not None and claim.first:
            settlement = await ask(ctx, call, claim.record.attempts, "lookup")
            if settlement is not None and settlement.done:
                await self._record_success(slot, claim, settlement.output, settled_by="lookup")
                return
        timeout = tool.timeout if tool.timeout is not None else self.request.options.timeouts.tool

        async def late(ending: Returned | Raised | None) -> None:
            try:
                if ending is None:
                    self.request.may_act_for(claim.record.ttl_ms)
                else:
                    await self._keep_evidence(claim, call, ending)
            finally:
                self.request.body_ended(body)

        claim.entered = True
        try:
            ending = await run_body(tool, call.arguments, context, timeout, late)
        except GeneratorExit:  # the drive is closed; what the body waited for may go on
            self.request.may_act_for(claim.record.ttl_ms)
            raise
        cancelled = task is not None and task.cancelling() > cancels
        if tool.side_effect and (cancelled or context.cancelled.is_set()) and _is_guess(ending):
            ending = GivenUp("cancelled" if cancelled else "timeout", ended=True)
        if isinstance(ending, GivenUp):
            body.left = not ending.ended
            if tool.side_effect and ending.ended and ending.began:
                # It was stopped where it waited. What it waited for may go on, a thread for one, and come to an
                # effect: it has until its claim is over.
                self.request.may_act_for(claim.record.ttl_ms)
        await self._record(slot, claim, ending, timeout)
        if cancelled or (task is not None and task.cancelling() > cancels):
            # The body went on in spite of it, or ended in the same moment: its end is recorded, and the run stops.
            raise asyncio.CancelledError

    async def _renew(self, call: Call, claim: Claim) -> None:
        """Begin a claim's time anew where what its siblings were asked has taken much of it.

        Raises:
            RefusedError: Somebody else has claimed the work meanwhile; the body has not begun here.
        """
        if claim.entry is None or not claim.version or claim.age_ms() * 2 < claim.record.ttl_ms:
            return
        op = Replace(call.record_key, claim.entry.version, claim.record.to_json())
        outcome = await self.request.write((op,), begins=True)
        if isinstance(outcome, Refused):
            raise RefusedError(
                f"{call.tool.name} (call {call.id} of run {self.run}) did not begin: somebody else claimed the same "
                "work while this call waited for the others of its step. Drive the run again",
                run_id=self.run,
                tool_call_id=call.id,
                tool=call.tool.name,
            )
        claim.entry = dataclasses.replace(claim.entry, version=outcome.version, updated_at=outcome.now)
        claim.at = outcome.now

    async def _record(self, slot: Slot, claim: Claim, ending: Ending, seconds: float | None) -> None:
        match ending:
            case GivenUp(began=False):
                claim.entered = False
                await self._never_began(slot, ending.cause, seconds)
            case Returned(value):
                await self._record_success(slot, claim, value)
            case Raised(error) if isinstance(error, Exception):
                await self._record_failure(slot, claim, error)
            case Raised(asyncio.CancelledError()):
                await self._record_own_cancellation(slot, claim)
            case Raised(error):
                self.request.may_act_for(claim.record.ttl_ms)
                await self._note_doubt(slot, claim, "interrupted", ended=True)
                raise error
            case GivenUp(cause, ended):
                await self._record_given_up(slot, claim, cause, ended=ended, seconds=seconds)

    async def _never_began(self, slot: Slot, cause: str, seconds: float | None) -> None:
        if cause == "cancelled":
            raise asyncio.CancelledError
        if cause == "no thread":
            raise RefusedError(
                f"{slot.part.name} (call {slot.part.id} of run {self.run}) did not begin, since no thread can be "
                "started, or the process is ending; it has not run. Drive the run again",
                run_id=self.run,
                tool_call_id=slot.part.id,
                tool=slot.part.name,
            )
        raise StepTimeoutError(
            f"{slot.part.name} (call {slot.part.id} of run {self.run}) did not begin within {seconds or 0:g} s, since "
            "every thread was taken; it has not run. Drive the run again",
            run_id=self.run,
            tool_call_id=slot.part.id,
            tool=slot.part.name,
        )

    async def _execute_child(self, slot: Slot, claim: Claim) -> None:
        assert slot.call is not None
        if self.drive_child is None:
            raise ConfigError(f"{slot.call.tool.name} drives a run of its own, which only run_durable can do")
        outcome = await self.drive_child(slot.call)
        if isinstance(outcome, str):
            await self._record_success(slot, claim, outcome)
        else:
            slot.status, slot.interrupts = "suspended", outcome

    def _terminal(self, call: Call, claim: Claim, record: CallRecord, blob: bytes | None) -> tuple[Op, ...]:
        if claim.entry is None:
            ops: tuple[Op, ...] = (Create(call.record_key, record.to_json(), blob),)
        else:
            ops = (Replace(call.record_key, claim.entry.version, record.to_json(), blob),)
        if call.keyed and self.request.fence is not None:
            ops = (*ops, mirror(self.part, call, record, blob))
        return ops

    async def _record_success(self, slot: Slot, claim: Claim, value: object, settled_by: str = "") -> None:
        call = slot.call
        assert call is not None
        record, blob = succeeded(claim.record, value, started_at=claim.at, settled_by=settled_by)
        output = output_of(record, blob)
        finishers = [op for finish in claim.finish for op in finish(Ended(True, output, claim.version))]
        ops = self._terminal(call, claim, record, blob)
        try:
            await self._write_terminal(slot, claim, ops, finishers, Returned(value))
        except JournalError as error:
            if not call.tool.side_effect:
                raise
            raise EffectNotRecordedError(
                f"{call.tool.name} (call {call.id} of run {self.run}) took effect, but the store did not take its "
                f"record ({error}). The result is on this error as .output: keep it, it is the only copy. The run's "
                "next drive "
                "finds the call in doubt; settle it with that result",
                output=value,
                run_id=self.run,
                tool_call_id=call.id,
                tool=call.tool.name,
            ) from error
        settle(slot, record, output)
        if record.unrepresentable:
            slot.error = ResultNotRepresentableError(
                f"{call.tool.name} (call {call.id} of run {self.run}) ran and is recorded as done, but its result "
                f"cannot be stored: {record.unrepresentable}. Return plain data from the tool; the model is told that "
                "the "
                "result is missing when the run is driven again",
                output=value,
                run_id=self.run,
                tool_call_id=call.id,
                tool=call.tool.name,
            )

    async def _record_failure(self, slot: Slot, claim: Claim, error: Exception) -> None:
        call = slot.call
        assert call is not None
        record = dataclasses.replace(
            claim.record,
            status="failed",
            started_at=claim.at,
            error=error_json(error),
            certain=isinstance(error, NotPerformedError),
            owner=None,
            ttl_ms=0,
            fence=0,
        )
        finishers = [op for finish in claim.finish for op in finish(Ended(False, None, claim.version))]
        ops = self._terminal(call, claim, record, None)
        question = ""
        if record.side_effect and not record.certain and self.request.fence is not None:
            # The model is told that it failed; whether it took effect is a question all the same.
            question = f"{self.run}/{call.id}/in_doubt/{record.attempts}"
            ask_key = keys.ask(record.started_at, call.root, self.part, call.id)
            ops = (*ops, Create(ask_key, {"question": question}, if_present="keep"))
        await self._write_terminal(slot, claim, ops, finishers, Raised(error))
        if question:
            told = "" if self.request.untold else "the model was told so, but "
            self.request.warn(
                f"{call.tool.name} (call {call.id} of run {self.run}) raised {type(error).__name__}; {told}whether it "
                f"took effect is not known: question {question} is open, and the run's next "
                "drive stops at it. A tool that raises NotPerformedError says that nothing has happened"
            )
        settle(slot, record, None)

    async def _record_given_up(
        self, slot: Slot, claim: Claim, cause: str, *, ended: bool, seconds: float | None
    ) -> None:
        call = slot.call
        assert call is not None
        if cause == "cancelled":
            if call.tool.side_effect:
                await self._note_doubt(slot, claim, cause, ended=ended)
            raise asyncio.CancelledError
        message = f"{call.tool.name} took longer than {seconds or 0:g} s"
        if not call.tool.side_effect:
            await self._record_failure(slot, claim, StepTimeoutError(message))
            return
        record = await self._record_doubt(slot, claim, "timeout", ended=ended)
        question = interrupt(
            call, record, record.started_at, "in_doubt", f"{message}; whether it took effect is not known"
        )
        slot.interrupts = (question,)
        slot.error = StepTimeoutError(
            f"{message} (call {call.id} of run {self.run}). Whether it took effect is not known, so it is neither "
            "repeated "
            f"nor skipped. Find out, then answer the question {question.question!r}; or give the tool a recover()",
            run_id=self.run,
            tool_call_id=call.id,
            tool=call.tool.name,
            question=question.question,
        )

    async def _record_own_cancellation(self, slot: Slot, claim: Claim) -> None:
        """Record a body that came to a `CancelledError` although nobody cancelled it: the run goes on without it."""
        call = slot.call
        assert call is not None
        message = f"{call.tool.name} raised CancelledError, and nobody had cancelled it"
        if not call.tool.side_effect:
            await self._record_failure(slot, claim, ToolError(message, type="CancelledError"))
            return
        self.request.may_act_for(claim.record.ttl_ms)
        record = await self._record_doubt(slot, claim, "cancelled", ended=True)
        question = interrupt(
            call, record, record.started_at, "in_doubt", f"{message}; whether it took effect is not known"
        )
        slot.interrupts = (question,)
        slot.error = SideEffectRetryBlockedError(
            f"{message} (call {call.id} of run {self.run}). Whether it took effect is not known, so it is neither "
            f"repeated nor skipped. Find out, then answer the question {question.question!r}; or give the tool a "
            "recover()",
            run_id=self.run,
            tool_call_id=call.id,
            tool=call.tool.name,
            attempts=record.attempts,
            started_at=record.started_at,
            question=question.question,
        )

    async def _note_doubt(self, slot: Slot, claim: Claim, cause: str, *, ended: bool) -> None:
        """Record a doubt beside what is raised anyway; unrecorded, the call is left 'running' by a dead owner."""
        try:
            await self._record_doubt(slot, claim, cause, ended=ended)
        except GnlError:
            logger.exception("that call %s of run %s is in doubt could not be recorded", slot.part.id, self.run)

    async def _record_doubt(self, slot: Slot, claim: Claim, cause: str, *, ended: bool) -> CallRecord:
        call = slot.call
        assert call is not None
        record = dataclasses.replace(claim.record, status="in_doubt", started_at=claim.at, cause=cause, ended=ended)
        slot.status = "in_doubt"
        if claim.entry is None:
            return record
        ops: list[Op] = [Replace(call.record_key, claim.entry.version, record.to_json())]
        if call.keyed and self.request.fence is not None:
            ops.append(mirror(self.part, call, record, None))
        await self.request.write(ops, pending=self.pending, terminal=True)
        return record

    async def _write_terminal(
        self, slot: Slot, claim: Claim, ops: Sequence[Op], optional: Sequence[Op], ending: Returned | Raised
    ) -> Applied:
        call = slot.call
        assert call is not None
        try:
            outcome = await self.request.write_beside(ops, optional, terminal=True)
        except RunFencedError:
            await self._keep_evidence(claim, call, ending)
            raise
        if isinstance(outcome, Refused):
            await self._keep_evidence(claim, call, ending)
            raise self._overtaken(call, ending)
        return outcome

    def _overtaken(self, call: Call, ending: Returned | Raised) -> DoubtError:
        """Return the error of work that somebody else claimed or settled while its body ran; the run is still ours."""
        who = f"{call.tool.name} (call {call.id} of run {self.run})"
        why = (
            "somebody else claimed the same work, or settled it, while it ran: its claim was over, or was freed. What "
            "it came to is kept as evidence"
        )
        detail = {"run_id": self.run, "tool_call_id": call.id, "tool": call.tool.name}
        if isinstance(ending, Raised):
            return DoubtError(f"{who} raised {type(ending.error).__name__}, and {why}. Drive the run again", **detail)
        if not call.tool.side_effect:
            return DoubtError(f"{who} ended, and {why}. Drive the run again", **detail)
        return EffectNotRecordedError(
            f"{who} took effect, but is not recorded as done: {why}, and on this error as .output. Find out whether "
            "the other one took effect as well, then drive the run again",
            output=ending.value,
            **detail,
        )

    async def _keep_evidence(self, claim: Claim, call: Call, ending: Returned | Raised) -> None:
        """Keep what a body came to whose call is another worker's by now: it may settle the doubt."""
        if claim.entry is None:
            return
        value: dict[str, JsonValue] = {"f": FORMAT, "ok": isinstance(ending, Returned), "tool": call.tool.name}
        blob: bytes | None = None
        if isinstance(ending, Returned):
            record, blob = succeeded(claim.record, ending.value, started_at=claim.at)
            value |= {"output": record.output, "unrepresentable": record.unrepresentable}
        else:
            value["error"] = error_json(ending.error)
        key = keys.evidence(call.root, call.part, call.id, claim.record.attempts)
        try:
            # Of a call whose record was erased nothing is kept: nobody would find it to erase it.
            still = Expect(claim.entry.key, "present")
            await self.request.write_apart((still, Create(key, value, blob, if_present="keep")))
        except (JournalError, NotCanonicalError):
            logger.exception("what call %s of run %s came to late could not be kept", call.id, self.run)


def _is_guess(ending: Ending) -> bool:
    """Whether a body that was stopped only says that it was: it raised, in place of the cancellation, what it likes."""
    return (
        isinstance(ending, Raised)
        and isinstance(ending.error, Exception)
        and not isinstance(ending.error, NotPerformedError)
    )
