"""One call's walk through the gates, and what is written of it before its body begins."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gnl_core import keys
from gnl_core.codec import decode
from gnl_core.crash import output_of, unreadable_output
from gnl_core.errors import ConfigError, DoubtError, GnlError, NotCanonicalError, SideEffectRetryBlockedError
from gnl_core.gates import GATES
from gnl_core.gates.taint_source import marks
from gnl_core.incidents import Incident, incident_ops
from gnl_core.journal.port import Add, Create, Delete, Entry, Expect, JsonValue, Key, Op, Put, Refused, Replace
from gnl_core.look import look, owes_an_end
from gnl_core.records import FORMAT, CallRecord, CallStatus, read_call
from gnl_core.request import Request
from gnl_core.slots import Claim, Slot, gap, interrupt_of, mirror, settle
from gnl_core.verdicts import (
    Block,
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

if TYPE_CHECKING:
    from gnl_core.tools import Tool

logger = logging.getLogger("gnl_core.walk")

WALKS = 5
"""How often a call walks again because somebody else wrote its record meanwhile."""

_CLAIM_TTL_S = 30.0


def settle_recorded(slot: Slot, record: CallRecord, blob: bytes | None, key: Key) -> None:
    """Take a record that stands in the journal as the end of a call.

    Raises:
        StoreCorruptError: Its result is none that this library wrote.
    """
    output = output_of(record, blob, key)
    try:
        slot.value = decode(output)
        settle(slot, record, output, replayed=True)
    except NotCanonicalError as error:
        raise unreadable_output(record, key, str(error)) from None


class Walker:
    """Walks the calls of one run of a request."""

    def __init__(self, request: Request, part: str, pending: list[Op]) -> None:
        self.request = request
        self.part = part
        self.run = keys.run_id_of(request.root, part)
        self.pending = pending

    async def walk(self, slot: Slot) -> None:
        """Let one call walk the gates, and write what they ruled."""
        assert slot.call is not None
        for _ in range(WALKS):
            ctx = await look(self.request, slot.call)
            if ctx.record is None and self.request.last_step(self.part) > slot.call.step:
                raise gap(self.run, slot.call.id)
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
            f"the record of call {slot.call.id} of run {self.run} changed {WALKS} times while it was looked at; "
            "drive the "
            "run again",
            run_id=self.run,
            tool_call_id=slot.call.id,
        )

    async def _carry_out(
        self, slot: Slot, ctx: CallContext, verdict: Verdict | None, proceeds: Sequence[Proceed]
    ) -> bool:
        """Write what a walk came to; False where somebody else wrote first and the call must walk again."""
        ops: tuple[Op, ...]
        match verdict:
            case None:
                return await self._claim(slot, ctx, proceeds)
            case Replay(settles=False):
                if ctx.call.tool.drives_run and owes_an_end(self.request, ctx.call):
                    # Its run is over and left a call in doubt: it is driven again, as a root run would be.
                    slot.claim = Claim(verdict.record, ctx.entry, self.request.now, False, context=ctx)
                    return True
                self._replay(slot, ctx, verdict)
                return True
            case Replay():
                ended = Ended(verdict.record.status == "succeeded", output_of(verdict.record, verdict.blob))
                remembered = [op for one in proceeds for finish in one.finish for op in finish(ended)]
                ops = (self._over(ctx, verdict.record, verdict.blob),)
                if self._keyed(ctx):
                    ops = (*ops, mirror(self.part, ctx.call, verdict.record, verdict.blob))
                return await self._write_settled(slot, ctx, verdict.record, verdict.blob, ops, beside=remembered)
            case Suspend(question=None):
                slot.status = "suspended"
                slot.interrupts = (interrupt_of(ctx),)
                return True
            case Suspend():
                return await self._suspend(slot, ctx, verdict)
            case Deny():
                record = dataclasses.replace(
                    self._record(ctx, "denied"),
                    text=verdict.text,
                    settled_by="person" if verdict.by_person else "",
                    question=verdict.question,
                )
                ops = (*self._say(ctx, record), *verdict.writes, *self._noted(ctx, verdict.incidents))
                return await self._write_settled(slot, ctx, record, None, ops)
            case Reflect():
                record = dataclasses.replace(self._record(ctx, "reflected"), text=verdict.text)
                ops = (*self._say(ctx, record), verdict.once, *self._noted(ctx, verdict.incidents))
                return await self._write_settled(slot, ctx, record, None, ops)
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
        settle_recorded(slot, record, verdict.blob, ctx.call.record_key)
        if not self._keyed(ctx):
            return
        names = {*record.args, *ctx.call.args}
        differs = sorted(name for name in names if record.args.get(name) != ctx.call.args.get(name))
        if differs:
            self.request.warn(
                f"{record.tool} (call {ctx.call.id} of run {self.run}) is given the result of work recorded under the "
                f"same key with other arguments ({', '.join(differs)})"
            )
        if slot.origin == "window" and (found := marks(ctx)):
            # Another run invoked the untrusted tool; its content enters this request now.
            self.request.taint = found[0].value  # type: ignore[assignment] # an object
            self.pending += found
        own = self.request.rows.get(self._own(ctx))
        known = self.request.record_of(own) if own is not None else None
        if known is None or known.status != record.status:
            # What this call was asked has answered itself: somebody did the work meanwhile.
            self.pending += [mirror(self.part, ctx.call, record, verdict.blob), *self._unasked(known)]

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

    def _keyed(self, ctx: CallContext) -> bool:
        """Whether the call's work is named by its arguments, and the run's own row of the call only mirrors it."""
        return ctx.call.keyed and self.request.fence is not None

    def _own(self, ctx: CallContext) -> Key:
        return keys.tool(ctx.call.root, self.part, ctx.call.step, ctx.call.position)

    def _over(self, ctx: CallContext, record: CallRecord, blob: bytes | None = None) -> Op:
        """Return the operation that writes the record of the work where the gates saw what they ruled on."""
        entry = ctx.work if ctx.apart else ctx.entry
        if entry is None:
            return Create(ctx.call.record_key, record.to_json(), blob)
        return Replace(ctx.call.record_key, entry.version, record.to_json(), blob)

    def _say(self, ctx: CallContext, record: CallRecord) -> tuple[Op, ...]:
        """Return the operations that record a question or a refusal: beside the work, where none of it has begun."""
        if not self._keyed(ctx):
            return (self._over(ctx, record),)
        if ctx.state not in (State.FRESH, State.WAITING, State.ANSWERED):
            return self._over(ctx, record), mirror(self.part, ctx.call, record, None)
        before = ctx.entry if ctx.apart else self.request.rows.get(self._own(ctx))
        if before is None:
            return (Create(self._own(ctx), record.to_json()),)
        if before.key != self._own(ctx) and ctx.record is not None:
            record = dataclasses.replace(record, call=ctx.record.call)
        return (Replace(before.key, before.version, record.to_json()),)

    def _unasked(self, record: CallRecord | None) -> tuple[Op, ...]:
        at = (record.question or {}).get("at") if record is not None else None
        if record is None or not isinstance(at, int):
            return ()
        return (Delete(keys.ask(at, self.request.root, self.part, record.call)),)

    def _asked(self, ctx: CallContext) -> tuple[Op, ...]:
        """Return the operation that takes the call's question from the list of open ones."""
        if ctx.record is None or ctx.state not in (State.WAITING, State.ANSWERED, State.IN_DOUBT, State.FAILED):
            return ()
        question = ctx.record.question
        at = question.get("at") if question else self.request.started_at(ctx)
        root, part = keys.split_run_id(ctx.record.run) if ctx.record.run else (ctx.call.root, self.part)
        return (Delete(keys.ask(at if isinstance(at, int) else 0, root, part, ctx.record.call)),)

    async def _write_settled(
        self,
        slot: Slot,
        ctx: CallContext,
        record: CallRecord,
        blob: bytes | None,
        ops: tuple[Op, ...],
        *,
        beside: Sequence[Op] = (),
    ) -> bool:
        ops = (*ops, *self._asked(ctx))
        outcome = await self.request.write_beside(ops, beside, pending=self.pending)
        if isinstance(outcome, Refused):
            self._learn(ops[outcome.op].key, outcome)
            return False
        settle(slot, record, output_of(record, blob))
        return True

    async def _suspend(self, slot: Slot, ctx: CallContext, verdict: Suspend) -> bool:
        question, call = verdict.question, ctx.call
        assert isinstance(question, Question)
        asked: dict[str, JsonValue] = {"kind": question.kind, "reason": question.reason, "at": self.request.now}
        if question.plain:
            asked["plain"] = question.plain
        if question.prior is not None:
            asked["prior"] = dict(question.prior)
        record = dataclasses.replace(self._record(ctx, "suspended"), question=asked)
        name: JsonValue = {"question": f"{call.run}/{call.id}/{question.kind}/{record.attempts}"}
        ask = keys.ask(self.request.now, call.root, self.part, call.id)
        ops = (
            *self._say(ctx, record),
            *(op for op in self._asked(ctx) if op.key != ask),  # an answered question that this one follows
            Put(ask, name),
            *self._noted(ctx, verdict.incidents),
        )
        if question.prior is not None:
            shown: JsonValue = {
                "f": FORMAT,
                "tool": call.tool.name,
                "kind": question.kind,
                "prior": dict(question.prior),
            }
            key = keys.question(call.root, self.part, call.id, question.kind, record.attempts)
            ops = (*ops, Create(key, shown, if_present="keep"))
        outcome = await self.request.write(ops, pending=self.pending, begins=True)
        if isinstance(outcome, Refused):
            self._learn(ops[outcome.op].key, outcome)
            return False
        slot.status = "suspended"
        slot.interrupts = (interrupt_of(dataclasses.replace(ctx, record=record)),)
        return True

    async def _block(self, slot: Slot, ctx: CallContext, verdict: Block) -> None:
        slot.error, slot.status = verdict.error, "blocked"
        if isinstance(verdict.error, SideEffectRetryBlockedError) and verdict.error.detail.get("question"):
            slot.interrupts = (interrupt_of(ctx),)
        noted = self._noted(ctx, verdict.incidents)
        if noted:
            await self.request.write(noted, pending=self.pending)

    def _noted(self, ctx: CallContext, incidents: Sequence[Incident]) -> tuple[Op, ...]:
        """Return the operations that note what gates and finders noticed, and what it cost; once each."""
        call, found = ctx.call, ctx.findings
        ops: dict[Key, Op] = {}
        for incident in (*incidents, *found.incidents):
            new = incident_ops(call.root, self.part, call.id, incident)
            if new[0].key not in self.request.rows and new[0].key not in ops:
                ops |= {op.key: op for op in new}
        key = keys.semantic_counts(call.root)
        counts = {name: number for name, number in found.counts.items() if number}
        known = self.request.rows.get(key)
        if counts and (known is None or _is_counter(known.value)):
            return (*ops.values(), Add(key, counts))
        return tuple(ops.values())

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
        if call.unfit is not None:
            raise DoubtError(
                f"call {call.id} of run {self.run} may run again, but its recorded arguments fit {tool.name} no more "
                f"({call.unfit}). Bring the tool back to what it took, or answer the call's question with a no: for a "
                "call in doubt, with what it came to",
                run_id=self.run,
                tool_call_id=call.id,
                tool=tool.name,
            )
        outside = call.record_key[0] != "run"
        record = CallRecord(
            status="running",
            tool=tool.name,
            call=call.id,
            args=call.args,
            digest=call.digest,
            side_effect=tool.side_effect,
            attempts=(ctx.record.attempts if ctx.record is not None else 0) + 1,
            owner=self.request.owner_json,
            fence=self.request.fence or 0,
            ttl_ms=self._ttl_ms(tool),
            run=call.run if outside else "",
            resource=(call.resource or "") if outside else "",
        )
        extra = [op for proceed in proceeds for op in proceed.claim]
        extra += self._noted(ctx, [incident for proceed in proceeds for incident in proceed.incidents])
        finish = tuple(one for proceed in proceeds for one in proceed.finish)
        first = ctx.state in (State.FRESH, State.ANSWERED)
        if not tool.side_effect and not call.keyed:
            extra += self._asked(ctx)
            if extra:
                await self.request.write(extra, pending=self.pending, begins=True)
            slot.claim = Claim(record, ctx.entry, self.request.now, first, finish, ctx)
            return True
        ops: list[Op] = [self._over(ctx, record), *self._asked(ctx)]
        if call.keyed and self.request.fence is not None:
            extra.append(mirror(self.part, call, record, None))
        if ctx.answer_entry is not None:
            # A decision that changed since it was read: the call walks again under the new one.
            ops.append(Expect(ctx.answer_entry.key, ctx.answer_entry.version))
        try:
            outcome = await self.request.write((*ops, *extra), pending=self.pending, begins=True)
        except asyncio.CancelledError:
            await self.release_claim(ctx, finish)
            raise
        if isinstance(outcome, Refused):
            self._learn((*ops, *extra)[outcome.op].key, outcome)
            return False
        self.request.body_begins(call.record_key)
        entry = Entry(call.record_key, None, None, outcome.version, 0, outcome.now, outcome.now)
        slot.claim = Claim(record, entry, outcome.now, first, finish, ctx, version=outcome.version)
        return True

    def _ttl_ms(self, tool: Tool) -> int:
        """Return how long a claim must be taken for alive, in ms: longer than the body may take.

        Raises:
            ConfigError: It is declared to be no longer than that.
        """
        timeouts = self.request.options.timeouts
        timeout = tool.timeout if tool.timeout is not None else timeouts.tool
        ttl = tool.claim_ttl if tool.claim_ttl is not None else timeouts.claim_ttl
        if ttl is None:
            ttl = _CLAIM_TTL_S + (timeout or 0)
        elif timeout is not None and ttl <= timeout:
            raise ConfigError(
                f"the claim_ttl of {tool.name} is {ttl:g} s, must be above its timeout ({timeout:g} s): a body that "
                "still runs would be taken for dead",
                tool=tool.name,
            )
        return int(ttl * 1000)

    async def release_claim(self, ctx: CallContext, finish: Sequence[Finish]) -> None:
        """Take back a claim whose body was never entered, if it was written at all."""
        found = (await self.request.journal.get_many([ctx.call.record_key])).entries[0]
        if found is None or read_call(found).status != "running" or read_call(found).owner != self.request.owner_json:
            return
        await self._restore(ctx, found.version, finish)

    async def unclaim(self, slot: Slot) -> None:
        """Take back a claim of a step whose bodies are not going to run."""
        claim = slot.claim
        if claim is None or claim.entered or claim.entry is None or claim.context is None:
            return
        if claim.entry.value is not None:
            return  # nothing was claimed: a harmless tool
        slot.claim = None
        try:
            await self._restore(claim.context, claim.entry.version, claim.finish)
        except (GnlError, asyncio.CancelledError):
            logger.warning("call %s of run %s could not be released; it is in doubt", slot.part.id, self.run)
        finally:
            self.request.body_ended(self.request.body_begins(claim.context.call.record_key))

    async def _restore(self, ctx: CallContext, version: int, finish: Sequence[Finish]) -> None:
        call, entry = ctx.call, ctx.work if ctx.apart else ctx.entry
        record = self.request.record_of(entry) if entry is not None else self._record(ctx, "released")
        ops: list[Op] = [Replace(call.record_key, version, entry.value if entry is not None else record.to_json())]
        if ctx.entry is not None and ctx.entry.key == self._own(ctx) != call.record_key:
            ops.append(Put(ctx.entry.key, ctx.entry.value))
        elif self._keyed(ctx):
            ops.append(mirror(self.part, call, record, None))
        # What was begun before, and whose end nobody knows, stays marked as under way.
        freed = ctx.state in (State.FRESH, State.ANSWERED, State.FAILED)
        beside = [op for one in finish for op in one(Ended(False, None, version))] if freed else []
        await self.request.write_beside(ops, beside)


def _is_counter(value: JsonValue) -> bool:
    return isinstance(value, dict) and all(type(number) is int for number in value.values())
