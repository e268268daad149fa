"""The calls of one model step: each walks the gates, is claimed, runs, is recorded.

Calls walk in model order, each claimed before the next one walks, so that twins, limits and taint need no luck. Bodies
run side by side. Nothing stops a sibling: questions are collected and errors raised after all of them stand. Between a
body's return and its record nothing is awaited but the record itself.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gnl_core import keys
from gnl_core.approvals import Interrupt
from gnl_core.body import GivenUp, Raised, Returned, run_body
from gnl_core.canonical import args_hash
from gnl_core.codec import encode
from gnl_core.crash import ask, context_of, output_of, succeeded
from gnl_core.errors import (
    DoubtError,
    EffectNotRecordedError,
    GnlError,
    JournalError,
    JournalGapError,
    NotCanonicalError,
    NotPerformedError,
    ResultNotRepresentableError,
    RunFencedError,
    SideEffectRetryBlockedError,
    StepTimeoutError,
    ToolArgumentsError,
)
from gnl_core.events import Event, tell
from gnl_core.gates import GATES
from gnl_core.gates.verdicts import (
    Block,
    Call,
    CallContext,
    Deny,
    Ended,
    Finish,
    Proceed,
    Question,
    Reflect,
    Replay,
    State,
    Suspend,
    Verdict,
    Wait,
)
from gnl_core.incidents import Incident, incident_op
from gnl_core.journal.port import (
    Applied,
    Create,
    Delete,
    Entry,
    Expect,
    JsonValue,
    Key,
    Op,
    Put,
    Refused,
    Replace,
    new_batch,
)
from gnl_core.look import look
from gnl_core.model.messages import Message, ToolCallPart
from gnl_core.records import CallRecord, CallStatus, read_call
from gnl_core.render import result_text, tool_message
from gnl_core.request import Request

if TYPE_CHECKING:
    from gnl_core.tools import Tool

logger = logging.getLogger("gnl_core.call")

WALKS = 5
"""How often a call walks again because somebody else wrote its record meanwhile."""

_CLAIM_TTL_S = 30.0


@dataclass(slots=True)
class Slot:
    """One call of a step on its way.

    Attributes:
        part: The call as the model made it.
        call: What it resolves to; None where there is no such tool.
        status: How it stands, for results and events.
        message: What the model reads of it, once it is settled.
        output: Its output in the codec's form.
        record: Its record, once it is settled.
        replayed: Whether it was read rather than run.
        origin: Whose work was read: this very call's, or other work's.
        interrupts: Questions that wait: its own, or those of the run it drives.
        error: Why it did not run, or what went wrong with its record.
    """

    part: ToolCallPart
    call: Call | None = None
    status: str = ""
    message: Message | None = None
    output: JsonValue = None
    record: CallRecord | None = None
    replayed: bool = False
    origin: str = "self"
    interrupts: tuple[Interrupt, ...] = ()
    error: BaseException | None = None
    claim: _Claim | None = None
    waits: bool = False


@dataclass(slots=True)
class _Claim:
    """A call that may run now: its record is 'running', or it needs no claim."""

    record: CallRecord
    entry: Entry | None  # the row to be replaced; None where there is none
    at: int
    first: bool
    finish: tuple[Finish, ...] = ()
    context: CallContext | None = field(default=None, repr=False)


DriveChild = Callable[[Call], Awaitable["str | tuple[Interrupt, ...]"]]
"""Drive the run that a sub-agent's call stands for: its text, or the questions it waits on."""


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
        self.drive_child = drive_child

    async def run_step(self, step: int, parts: Sequence[ToolCallPart]) -> list[Slot]:
        """Bring every call of a step as far as it goes; returns one slot a call, in model order.

        Raises:
            RunFencedError: The run was taken over; no body was begun after that was known.
            asyncio.CancelledError: The caller was cancelled; what was running is recorded as in doubt.
        """
        slots = [Slot(part) for part in parts]
        for position, slot in enumerate(slots):
            await self._begin(slot, step, position)
        bodies = [slot for slot in slots if slot.claim is not None or slot.waits]
        if bodies:
            if self.pending and any(slot.claim is not None for slot in bodies):
                await self._flush(slots)
            if len(bodies) == 1:
                await self._finish(bodies[0])
            else:
                results = await asyncio.gather(*(self._finish(slot) for slot in bodies), return_exceptions=True)
                for result in results:
                    if isinstance(result, BaseException):
                        raise result
        for slot in slots:
            self._account(slot, step)
        return slots

    async def _flush(self, slots: Sequence[Slot]) -> None:
        """Record the step before a harmless body acts on it."""
        try:
            await self.request.write((), pending=self.pending, begins=True)
        except (GnlError, asyncio.CancelledError):
            for slot in slots:
                await self._unclaim(slot)
            raise

    # Begin ---------------------------------------------------------------------------------------------------------

    async def _begin(self, slot: Slot, step: int, position: int) -> None:
        part, key = slot.part, keys.tool(self.request.root, self.part, step, position)
        tool = self.tools.get(part.name)
        try:
            if tool is None or part.args is None:
                self._unusable(slot, key, self._no_such_tool(part) if tool is None else self._no_object(part))
                return
            slot.call = self.resolve(part, tool, step, position)
            await self.walk(slot)
        except (ToolArgumentsError, NotCanonicalError) as error:
            self._unusable(slot, key, error)
        except (RunFencedError, asyncio.CancelledError):
            raise
        except GnlError as error:
            slot.error, slot.status = error, "blocked"

    def resolve(self, part: ToolCallPart, tool: Tool, step: int, position: int) -> Call:
        """Return what a call of the model's stands for.

        Raises:
            ToolArgumentsError, NotCanonicalError: Its arguments do not fit; the tool is not called.
        """
        assert part.args is not None
        request, options = self.request, self.request.options
        key = keys.tool(request.root, self.part, step, position)
        known = request.rows.get(key)
        arguments: Mapping[str, object] = part.args
        if known is None or tool.args_mode:
            digest = args_hash(part.args)
            arguments = tool.validate(part.args)
        else:
            # The row was made of these arguments, unless somebody changed it: then the digest tells.
            recorded = read_call(known)
            same = recorded.args == part.args and not recorded.mirror_of
            digest = recorded.digest if same else args_hash(part.args)
            if not recorded.terminal:
                try:
                    arguments = tool.validate(part.args)
                except ToolArgumentsError:
                    logger.warning("arguments of call %s of run %s fit the tool no more", part.id, self.run)
        record_digest, provider_key = digest, f"{self.run}:{part.id}"
        if tool.args_mode:
            record_digest = tool.key_of(part.args)
            key, provider_key = self._work_key(tool, record_digest)
        return Call(
            root=request.root,
            part=self.part,
            run=self.run,
            step=step,
            position=position,
            id=part.id,
            provider_id=part.provider_id,
            tool=tool,
            args=part.args,
            arguments=arguments,
            args_digest=digest,
            digest=record_digest,
            record_key=key,
            provider_key=provider_key,
            thread=options.thread_id,
            resource=options.resource_id,
            actor=options.actor,
        )

    def _work_key(self, tool: Tool, digest: str) -> tuple[Key, str]:
        thread = self.request.options.thread_id
        if tool.window == "cross-run":
            return keys.xrun_args(tool.name, digest), f"{tool.name}:{digest}"
        if tool.window == "thread":
            if thread:
                return keys.xthr_args(thread, tool.name, digest), f"thr:{thread}:{tool.name}:{digest}"
            self.request.warn(
                f"{tool.name} remembers its work within a conversation, but run {self.run} names no thread_id: it is "
                "remembered within the run only"
            )
        return keys.args(self.request.root, self.part, tool.name, digest), f"{self.run}:{tool.name}:{digest}"

    def _no_such_tool(self, part: ToolCallPart) -> ToolArgumentsError:
        names = ", ".join(sorted(self.tools)) or "none"
        return ToolArgumentsError(f"there is no tool named {part.name!r}; the tools are: {names}")

    def _no_object(self, part: ToolCallPart) -> ToolArgumentsError:
        shown = part.raw_args[:200]
        return ToolArgumentsError(f"the arguments of {part.name} are no JSON object: {shown!r}; send an object")

    def _unusable(self, slot: Slot, key: Key, error: GnlError) -> None:
        """Tell the model that its call cannot be used: no tool ran, and it is recorded with the next batch."""
        known = self.request.rows.get(key)
        if known is not None:
            record = read_call(known)
            self._settle(slot, record, output_of(record, known.blob), replayed=True)
            return
        if slot.part.id and self.request.last_step(self.part) > _step_of(slot.part.id):
            slot.error, slot.status = self._gap(slot.part.id), "blocked"
            return
        record = CallRecord(
            status="failed",
            tool=slot.part.name,
            call=slot.part.id,
            args=slot.part.args or {},
            digest="",
            side_effect=False,
            error={"type": type(error).__name__, "message": str(error)},
            certain=True,
        )
        self.pending.append(Create(key, record.to_json(), if_present="keep"))
        self._settle(slot, record, None)

    def _gap(self, call: str) -> JournalGapError:
        return JournalGapError(
            f"run {self.run} has later model steps, but no record of call {call} that they were made after; nothing is run "
            "in its place. Run `gnl doctor`, or fork the run before that step",
            run_id=self.run,
            tool_call_id=call,
        )

    # Walk ----------------------------------------------------------------------------------------------------------

    async def walk(self, slot: Slot) -> None:
        """Let one call walk the gates, and write what they ruled."""
        assert slot.call is not None
        for _ in range(WALKS):
            ctx = await look(self.request, slot.call)
            if ctx.record is None and self.request.last_step(self.part) > slot.call.step:
                raise self._gap(slot.call.id)
            proceeds: list[Proceed] = []
            verdict: Verdict | None = None
            for gate in GATES:
                if ctx.state in gate.states:
                    verdict = await gate.rule(ctx)
                    if not isinstance(verdict, Proceed):
                        break
                    proceeds.append(verdict)
                    verdict = None
            if await self._carry_out(slot, ctx, verdict, proceeds):
                return
        raise DoubtError(
            f"the record of call {slot.call.id} of run {self.run} changed {WALKS} times while it was looked at; drive the "
            "run again",
            run_id=self.run,
            tool_call_id=slot.call.id,
        )

    async def _carry_out(
        self, slot: Slot, ctx: CallContext, verdict: Verdict | None, proceeds: Sequence[Proceed]
    ) -> bool:
        """Write what a walk came to; False where somebody else wrote first and the call must walk again."""
        match verdict:
            case None:
                return await self._claim(slot, ctx, proceeds)
            case Replay(settles=False):
                self._replay(slot, ctx, verdict)
                return True
            case Replay():
                return await self._write_settled(slot, ctx, verdict.record, verdict.blob)
            case Suspend(question=None):
                slot.status = "suspended"
                slot.interrupts = (interrupt_of(ctx),)
                return True
            case Suspend():
                return await self._suspend(slot, ctx, verdict)
            case Deny():
                record = dataclasses.replace(
                    self._record(ctx, "denied"), text=verdict.text, settled_by="person" if ctx.answer else ""
                )
                return await self._write_settled(slot, ctx, record, None, verdict.incidents)
            case Reflect():
                record = dataclasses.replace(self._record(ctx, "reflected"), text=verdict.text)
                return await self._write_settled(slot, ctx, record, None, verdict.incidents, (verdict.once,))
            case Block():
                await self._block(slot, ctx, verdict)
                return True
            case Wait():
                slot.waits = True
                return True
            case _:
                raise AssertionError(verdict)

    def _replay(self, slot: Slot, ctx: CallContext, verdict: Replay) -> None:
        record = verdict.record
        slot.origin = "self" if record.call == ctx.call.id and record.run in ("", ctx.call.run) else "window"
        self._settle(slot, record, output_of(record, verdict.blob), replayed=True)
        mirror = keys.tool(ctx.call.root, self.part, ctx.call.step, ctx.call.position)
        if ctx.call.tool.args_mode and self.request.fence is not None and mirror not in self.request.rows:
            self.pending.append(self._mirror(ctx.call, record, verdict.blob))

    def _mirror(self, call: Call, record: CallRecord, blob: bytes | None) -> Put:
        """Return the operation that shows work recorded elsewhere in the run's own timeline."""
        shadow = dataclasses.replace(
            record, call=call.id, args=call.args, mirror_of=keys.encode(call.record_key), run="", resource=""
        )
        key = keys.tool(call.root, self.part, call.step, call.position)
        return Put(key, shadow.to_json(), blob)

    def _record(self, ctx: CallContext, status: CallStatus) -> CallRecord:
        """Return this call's record in another status, attempts carried on."""
        call = ctx.call
        outside = call.record_key[0] != "run"
        return CallRecord(
            status=status,
            tool=call.tool.name,
            call=call.id,
            args=call.args,
            digest=call.digest,
            side_effect=call.tool.side_effect,
            attempts=ctx.record.attempts if ctx.record is not None else 0,
            started_at=self.request.started_at(ctx) if ctx.record is not None and ctx.record.attempts else 0,
            run=call.run if outside else "",
            resource=(call.resource or "") if outside else "",
        )

    def _over(self, ctx: CallContext, record: CallRecord, blob: bytes | None = None) -> Op:
        """Return the operation that writes a record where the gates saw what they ruled on."""
        if ctx.entry is None:
            return Create(ctx.call.record_key, record.to_json(), blob)
        return Replace(ctx.call.record_key, ctx.entry.version, record.to_json(), blob)

    def _asked(self, ctx: CallContext) -> tuple[Op, ...]:
        """Return the operation that takes the call's question from the list of open ones."""
        if ctx.record is None or ctx.state not in (State.WAITING, State.ANSWERED, State.IN_DOUBT, State.FAILED):
            return ()
        question = ctx.record.question
        at = question.get("at") if question else self.request.started_at(ctx)
        return (Delete(keys.ask(int(at) if isinstance(at, int) else 0, ctx.call.root, self.part, ctx.call.id)),)

    async def _write_settled(
        self,
        slot: Slot,
        ctx: CallContext,
        record: CallRecord,
        blob: bytes | None,
        incidents: Sequence[Incident] = (),
        more: Sequence[Op] = (),
    ) -> bool:
        ops = (self._over(ctx, record, blob), *more, *self._asked(ctx), *self._noted(ctx, incidents))
        outcome = await self.request.write(ops, pending=self.pending)
        if isinstance(outcome, Refused):
            self._learn(ops[outcome.op].key, outcome)
            return False
        self._settle(slot, record, output_of(record, blob))
        return True

    async def _suspend(self, slot: Slot, ctx: CallContext, verdict: Suspend) -> bool:
        question, call = verdict.question, ctx.call
        assert isinstance(question, Question)
        asked: dict[str, JsonValue] = {"kind": question.kind, "reason": question.reason, "at": self.request.now}
        if question.prior is not None:
            asked["prior"] = dict(question.prior)
        record = dataclasses.replace(self._record(ctx, "suspended"), question=asked)
        name: JsonValue = {"question": f"{call.run}/{call.id}/{question.kind}/{record.attempts}"}
        ops = (
            self._over(ctx, record),
            Create(keys.ask(self.request.now, call.root, self.part, call.id), name, if_present="keep"),
            *self._noted(ctx, verdict.incidents),
        )
        outcome = await self.request.write(ops, pending=self.pending, begins=True)
        if isinstance(outcome, Refused):
            self._learn(ops[outcome.op].key, outcome)
            return False
        slot.status = "suspended"
        slot.interrupts = (interrupt_of(dataclasses.replace(ctx, record=record)),)
        return True

    async def _block(self, slot: Slot, ctx: CallContext, verdict: Block) -> None:
        slot.error, slot.status = verdict.error, "blocked"
        if isinstance(verdict.error, SideEffectRetryBlockedError):
            slot.interrupts = (interrupt_of(ctx),)
        if verdict.incidents:
            await self.request.write(self._noted(ctx, verdict.incidents), pending=self.pending)

    def _noted(self, ctx: CallContext, incidents: Sequence[Incident]) -> tuple[Op, ...]:
        return tuple(incident_op(ctx.call.root, self.part, ctx.call.id, incident) for incident in incidents)

    def _learn(self, key: Key, refused: Refused) -> None:
        """Take in the row that was found instead of the one expected."""
        if key[0] != "run":
            return
        if refused.found is None:
            self.request.rows.pop(key, None)
        else:
            self.request.rows[key] = refused.found

    # Claim ---------------------------------------------------------------------------------------------------------

    async def _claim(self, slot: Slot, ctx: CallContext, proceeds: Sequence[Proceed]) -> bool:
        call, tool = ctx.call, ctx.call.tool
        record = dataclasses.replace(
            self._record(ctx, "running"),
            attempts=(ctx.record.attempts if ctx.record is not None else 0) + 1,
            started_at=0,
            owner=self.request.owner.to_json(),
            fence=self.request.fence or 0,
            ttl_ms=self._ttl_ms(tool),
        )
        extra = [op for proceed in proceeds for op in proceed.claim]
        extra += [op for proceed in proceeds for op in self._noted(ctx, proceed.incidents)]
        finish = tuple(one for proceed in proceeds for one in proceed.finish)
        first = ctx.state in (State.FRESH, State.ANSWERED)
        if not tool.side_effect and not tool.args_mode:
            if extra:
                await self.request.write(extra, pending=self.pending, begins=True)
            slot.claim = _Claim(record, ctx.entry, self.request.now, first, finish, ctx)
            return True
        ops: list[Op] = [self._over(ctx, record), *self._asked(ctx)]
        if tool.args_mode and self.request.fence is not None:
            extra.append(self._mirror(call, record, None))
        if ctx.answer_entry is not None:
            # A decision that changed since it was read: the call walks again under the new one.
            ops.append(Expect(ctx.answer_entry.key, ctx.answer_entry.version))
        try:
            outcome = await self.request.write((*ops, *extra), pending=self.pending, begins=True)
        except asyncio.CancelledError:
            await self._release_claim(ctx)
            raise
        if isinstance(outcome, Refused):
            self._learn((*ops, *extra)[outcome.op].key, outcome)
            return False
        entry = Entry(call.record_key, None, None, outcome.version, 0, outcome.now, outcome.now)
        slot.claim = _Claim(record, entry, outcome.now, first, finish, ctx)
        return True

    def _ttl_ms(self, tool: Tool) -> int:
        timeouts = self.request.options.timeouts
        ttl = tool.claim_ttl or timeouts.claim_ttl
        if ttl is None:
            ttl = max(_CLAIM_TTL_S, tool.timeout or timeouts.tool or 0)
        return int(ttl * 1000)

    async def _release_claim(self, ctx: CallContext) -> None:
        """Take back a claim whose body was never entered, if it was written at all."""
        found = (await self.request.journal.get_many([ctx.call.record_key])).entries[0]
        if found is None or read_call(found).status != "running" or read_call(found).fence != self.request.fence:
            return
        await self._restore(ctx, found.version)

    async def _unclaim(self, slot: Slot) -> None:
        """Take back a claim of a step whose bodies are not going to run."""
        claim = slot.claim
        if claim is None or claim.entry is None or claim.context is None or claim.entry.value is not None:
            return
        slot.claim = None
        try:
            await self._restore(claim.context, claim.entry.version)
        except (GnlError, asyncio.CancelledError):
            logger.warning("call %s of run %s could not be released; it is in doubt", slot.part.id, self.run)

    async def _restore(self, ctx: CallContext, version: int) -> None:
        before: JsonValue
        if ctx.record is not None and ctx.entry is not None:
            before = ctx.entry.value
        else:
            before = self._record(ctx, "released").to_json()
        await self.request.write((Replace(ctx.call.record_key, version, before),))

    # Run -----------------------------------------------------------------------------------------------------------

    async def _finish(self, slot: Slot) -> None:
        """Run a claimed call, or wait for the one that does the same work."""
        try:
            if slot.waits:
                await self._wait(slot)
            if slot.claim is not None:
                await self._execute(slot, slot.claim)
        except (RunFencedError, asyncio.CancelledError):
            raise
        except GnlError as error:
            slot.error, slot.status = error, "blocked"

    async def _wait(self, slot: Slot) -> None:
        pause = 0.015
        while slot.waits:
            await asyncio.sleep(pause)
            pause = min(pause * 2, 0.2)
            slot.waits = False
            await self.walk(slot)

    async def _execute(self, slot: Slot, claim: _Claim) -> None:
        call, ctx = slot.call, claim.context
        assert call is not None and ctx is not None
        tool = call.tool
        tell(self.request.options.listener, self._event("tool-started", slot))
        if tool.drives_run:
            await self._execute_child(slot, claim)
            return
        context = context_of(ctx, claim.record.attempts)
        if tool.lookup is not None and claim.first:
            settlement = await ask(ctx, call, claim.record.attempts, "lookup")
            if settlement is not None and settlement.done:
                await self._record_success(slot, claim, settlement.output, settled_by="lookup")
                return
        timeout = tool.timeout if tool.timeout is not None else self.request.options.timeouts.tool

        async def late(ending: Returned | Raised) -> None:
            try:
                await self._keep_evidence(claim, call, ending)
            finally:
                self.request.body_ended()

        ending = await run_body(tool, call.arguments, context, timeout, late)
        match ending:
            case Returned(value):
                await self._record_success(slot, claim, value)
            case Raised(error) if isinstance(error, Exception):
                await self._record_failure(slot, claim, error)
            case Raised(error):
                await self._record_doubt(slot, claim, "interrupted", ended=True)
                raise error
            case GivenUp(cause, ended):
                if not ended:
                    self.request.body_left()
                await self._record_given_up(slot, claim, cause, ended=ended, timeout=timeout)

    async def _execute_child(self, slot: Slot, claim: _Claim) -> None:
        assert slot.call is not None
        if self.drive_child is None:
            raise ToolArgumentsError(f"{slot.call.tool.name} drives a run of its own, which only run_durable can do")
        outcome = await self.drive_child(slot.call)
        if isinstance(outcome, str):
            await self._record_success(slot, claim, outcome)
        else:
            slot.status, slot.interrupts = "suspended", outcome

    def _terminal(self, call: Call, claim: _Claim, record: CallRecord, blob: bytes | None) -> tuple[Op, ...]:
        if claim.entry is None:
            ops: tuple[Op, ...] = (Create(call.record_key, record.to_json(), blob),)
        else:
            ops = (Replace(call.record_key, claim.entry.version, record.to_json(), blob),)
        if call.tool.args_mode and self.request.fence is not None:
            ops = (*ops, self._mirror(call, record, blob))
        return ops

    async def _record_success(self, slot: Slot, claim: _Claim, value: object, settled_by: str = "") -> None:
        call = slot.call
        assert call is not None
        record, blob = succeeded(claim.record, value, started_at=claim.at, settled_by=settled_by)
        record = dataclasses.replace(record, owner=None, ttl_ms=0, fence=0)
        output = output_of(record, blob)
        finishers = [op for finish in claim.finish for op in finish(Ended(True, output))]
        ops = self._terminal(call, claim, record, blob)
        try:
            await self._write_terminal(slot, claim, ops, finishers, Returned(value))
        except JournalError as error:
            if not call.tool.side_effect:
                raise
            raise EffectNotRecordedError(
                f"{call.tool.name} (call {call.id} of run {self.run}) took effect, but the store did not take its record "
                f"({error}). The result is on this error as .output: keep it, it is the only copy. The run's next drive "
                "finds the call in doubt; settle it with that result",
                output=value,
                run_id=self.run,
                tool_call_id=call.id,
                tool=call.tool.name,
            ) from error
        self._settle(slot, record, output)
        if record.unrepresentable:
            slot.error = ResultNotRepresentableError(
                f"{call.tool.name} (call {call.id} of run {self.run}) ran and is recorded as done, but its result cannot "
                f"be stored: {record.unrepresentable}. Return plain data from the tool; the model is told that the "
                "result is missing when the run is driven again",
                output=value,
                run_id=self.run,
                tool_call_id=call.id,
                tool=call.tool.name,
            )

    async def _record_failure(self, slot: Slot, claim: _Claim, error: Exception) -> None:
        call = slot.call
        assert call is not None
        record = dataclasses.replace(
            claim.record,
            status="failed",
            started_at=claim.at,
            error=_error_json(error),
            certain=isinstance(error, NotPerformedError),
            owner=None,
            ttl_ms=0,
            fence=0,
        )
        finishers = [op for finish in claim.finish for op in finish(Ended(False, None))]
        await self._write_terminal(slot, claim, self._terminal(call, claim, record, None), finishers, Raised(error))
        self._settle(slot, record, None)

    async def _record_given_up(
        self, slot: Slot, claim: _Claim, cause: str, *, ended: bool, timeout: float | None
    ) -> None:
        call = slot.call
        assert call is not None
        if cause == "cancelled":
            if call.tool.side_effect:
                await self._record_doubt(slot, claim, cause, ended=ended)
            raise asyncio.CancelledError
        message = f"{call.tool.name} took longer than {timeout:g} s"
        if not call.tool.side_effect:
            await self._record_failure(slot, claim, StepTimeoutError(message))
            return
        record = await self._record_doubt(slot, claim, "timeout", ended=ended)
        interrupt = _interrupt(
            call, record, record.started_at, "in_doubt", f"{message}; whether it took effect is not known"
        )
        slot.interrupts = (interrupt,)
        slot.error = StepTimeoutError(
            f"{message} (call {call.id} of run {self.run}). Whether it took effect is not known, so it is neither repeated "
            f"nor skipped. Find out, then answer the question {interrupt.question!r}; or give the tool a recover()",
            run_id=self.run,
            tool_call_id=call.id,
            tool=call.tool.name,
            question=interrupt.question,
        )

    async def _record_doubt(self, slot: Slot, claim: _Claim, cause: str, *, ended: bool) -> CallRecord:
        call = slot.call
        assert call is not None
        record = dataclasses.replace(claim.record, status="in_doubt", started_at=claim.at, cause=cause, ended=ended)
        slot.status = "in_doubt"
        if claim.entry is None:
            return record
        op = Replace(call.record_key, claim.entry.version, record.to_json())
        await self.request.write((op,), pending=self.pending, terminal=True)
        return record

    async def _write_terminal(
        self, slot: Slot, claim: _Claim, ops: Sequence[Op], optional: Sequence[Op], ending: Returned | Raised
    ) -> Applied:
        call = slot.call
        assert call is not None
        try:
            try:
                outcome = await self.request.write((*ops, *optional), terminal=True)
            except ValueError:
                if not optional:
                    raise
                logger.exception("what belongs to call %s of run %s could not be written with it", call.id, self.run)
                outcome = await self.request.write(ops, terminal=True)
        except RunFencedError:
            await self._keep_evidence(claim, call, ending)
            raise
        if isinstance(outcome, Refused):
            await self._keep_evidence(claim, call, ending)
            raise self.request.fenced_error()
        return outcome

    async def _keep_evidence(self, claim: _Claim, call: Call, ending: Returned | Raised) -> None:
        """Keep what a body came to whose call is another worker's by now: it may settle the doubt."""
        if claim.entry is None:
            return
        value: dict[str, JsonValue] = {"f": 1, "ok": isinstance(ending, Returned), "tool": call.tool.name}
        blob: bytes | None = None
        if isinstance(ending, Returned):
            record, blob = succeeded(claim.record, ending.value, started_at=claim.at)
            value |= {"output": record.output, "unrepresentable": record.unrepresentable}
        else:
            value["error"] = _error_json(ending.error)
        key = keys.evidence(call.root, call.part, call.id, claim.record.attempts)
        try:
            await self.request.journal.apply((Create(key, value, blob, if_present="keep"),), batch=new_batch())
        except (JournalError, ValueError, TypeError):
            logger.exception("what call %s of run %s came to late could not be kept", call.id, self.run)

    # Settle --------------------------------------------------------------------------------------------------------

    def _settle(self, slot: Slot, record: CallRecord, output: JsonValue, *, replayed: bool = False) -> None:
        text, is_error = result_text(record, output)
        slot.record, slot.output, slot.status, slot.replayed = record, output, record.status, replayed
        slot.message = tool_message(slot.part, text, is_error)

    def _account(self, slot: Slot, step: int) -> None:
        """Count a call where it stands, in model order, and tell of it."""
        record = slot.record
        if record is not None and not record.copied_from and slot.call is not None:
            if record.status == "succeeded":
                self.request.history.append((record.tool, slot.call.args_digest))
            if record.status == "succeeded" or (record.status == "failed" and record.side_effect):
                self.request.spent = self.request.spent.with_call()
        for interrupt in slot.interrupts:
            tell(
                self.request.options.listener,
                Event(
                    kind="interrupt",
                    run_id=interrupt.run_id,
                    step=step,
                    tool_call_id=interrupt.tool_call_id,
                    tool_name=interrupt.tool_name,
                    detail=interrupt.to_json(),
                ),
            )
        if slot.message is not None:
            tell(self.request.options.listener, self._event("tool-finished", slot))

    def _event(self, kind: str, slot: Slot) -> Event:
        position = keys.parse_call_id(slot.part.id)
        return Event(
            kind=kind,  # type: ignore[arg-type] # one of two literals
            run_id=self.run,
            step=position[0] if position else 0,
            replayed=slot.replayed,
            tool_call_id=slot.part.id,
            tool_name=slot.part.name,
            detail={"status": slot.status} if slot.status else None,
        )


def interrupt_of(ctx: CallContext) -> Interrupt:
    """Return the question that a recorded call waits on: the one asked, or whether it may run again."""
    record = ctx.record
    assert record is not None
    if record.status == "suspended":
        question = record.question or {}
        kind, at, reason = question.get("kind"), question.get("at"), question.get("reason")
        return _interrupt(ctx.call, record, int(at or 0), str(kind), str(reason), question.get("prior"))  # type: ignore[arg-type]
    reason = "It was begun and nobody knows whether it took effect; it may have happened already. Run it once more?"
    return _interrupt(ctx.call, record, ctx.request.started_at(ctx), "in_doubt", reason)


def _interrupt(
    call: Call, record: CallRecord, at: int, kind: str, reason: str, prior: Mapping[str, JsonValue] | None = None
) -> Interrupt:
    return Interrupt(
        run_id=record.run or call.run,
        tool_call_id=record.call,
        tool_name=call.tool.name,
        args=call.args,
        args_digest=call.args_digest,
        kind=kind,  # type: ignore[arg-type] # from a record
        attempt=record.attempts,
        reason=reason,
        asked_at=at,
        provider_call_id=call.provider_id,
        prior=prior,
    )


def _error_json(error: BaseException) -> dict[str, JsonValue]:
    value: dict[str, JsonValue] = {"type": type(error).__name__, "message": str(error)}
    try:
        detail = encode({str(name): member for name, member in vars(error).items() if not str(name).startswith("_")})
    except NotCanonicalError:
        detail = None
    if detail:
        value["detail"] = detail
    return value


def _step_of(call: str) -> int:
    position = keys.parse_call_id(call)
    return position[0] if position else 0
