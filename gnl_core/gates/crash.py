"""A call that was begun before and whose end is not known: it is settled, or asked about, never guessed."""

from __future__ import annotations

from typing import ClassVar

from gnl_core import keys, policy
from gnl_core.approvals import read_answer
from gnl_core.crash import settle_by_answer, settle_by_evidence, settle_by_recover
from gnl_core.errors import RetryLimitExceededError, RunBusyError, SideEffectRetryBlockedError
from gnl_core.gates.policy import ask_guard
from gnl_core.owner import read_owner
from gnl_core.verdicts import PROCEED, Block, CallContext, Deny, Replay, State, Verdict, Wait

_DENIED = "A person decided that this call is not run again. Whether its first attempt took effect is not known."


class Crash:
    """Walk the crash ladder: evidence, a person, harmless tools, the tool's own `recover`, and else a question."""

    name: ClassVar[str] = "crash"
    states: ClassVar[frozenset[State]] = frozenset({State.RUNNING, State.IN_DOUBT, State.FAILED})

    async def rule(self, ctx: CallContext) -> Verdict:
        """Settle the call, let it begin again, or block."""
        record, call = ctx.record, ctx.call
        assert record is not None
        if ctx.state is State.RUNNING and (call.keyed or record.fence == ctx.request.fence):
            return Wait(call.record_key)
        settled = settle_by_evidence(ctx)
        if settled is not None:
            return Replay(*settled, settles=True)
        if ctx.answer is not None and not ctx.answer.approved:
            settled = settle_by_answer(ctx, ctx.answer)
            if settled is not None:
                return Replay(*settled, settles=True)
            reason = f" Reason: {ctx.answer.reason}." if ctx.answer.reason else ""
            return Deny(_DENIED + reason, by_person=True)
        again = ctx.answer is not None or not record.side_effect or call.tool.idempotent
        if not again and call.tool.recover is not None:
            found, settled = await settle_by_recover(ctx)
            if settled is not None:
                return Replay(*settled, settles=True)
            again = found == "not done"
        halted = ctx.request.halted()
        if halted is not None:
            return Block(halted)
        return await self._begin(ctx) if again else self._ask(ctx)

    async def _begin(self, ctx: CallContext) -> Verdict:
        record, call = ctx.record, ctx.call
        assert record is not None
        if ctx.may_still_run and not (call.tool.idempotent and record.ended):
            return self._busy(ctx)
        if record.attempts >= call.tool.max_retries:
            way_out = "raise it"
            if record.status != "failed" or (record.side_effect and not record.certain):  # else nothing is asked
                question = f"{record.run or call.run}/{record.call}/in_doubt/{record.attempts}"
                way_out += f", or answer {question!r} with what is known of it: gnl approvals deny | settle takes the "
                way_out += "place of a yes"
            return Block(
                RetryLimitExceededError(
                    f"{call.tool.name} (call {call.id} of run {call.run}) has begun {record.attempts} times, its "
                    f"max_retries is {call.tool.max_retries}; {way_out}",
                    run_id=call.run,
                    tool_call_id=call.id,
                    tool=call.tool.name,
                    attempts=record.attempts,
                    max_retries=call.tool.max_retries,
                )
            )
        # What was permitted when the call began may be so no more. It stays in doubt, for a refusal settles nothing.
        match await ask_guard(ctx):
            case Block() as failed:
                return failed
            case policy.Deny(reason):
                return self._ask(ctx, f"The guard does not permit it to run again{f' ({reason})' if reason else ''}. ")
            case policy.RequireApproval() if ctx.answer is None and not _approved_before(ctx):
                return self._ask(ctx, "The guard asks for an approval before it runs again. ")
            case _:
                return PROCEED

    def _ask(self, ctx: CallContext, why: str = "") -> Verdict:
        record, call = ctx.record, ctx.call
        assert record is not None
        own = ctx.request.fence is not None and (not record.run or (record.run, record.call) == (call.run, call.id))
        if ctx.state is State.RUNNING or (ctx.may_still_run and record.status == "running" and not own):
            return self._busy(ctx)
        if _is_over(ctx) and ctx.may_still_run:
            why += f"It was {_who(ctx)} that began it, and it is alive, or stopped: a yes waits until it has ended. "
        if ctx.request.fence is None or ctx.orphan:
            # Nobody can be asked outside of a run, nor in a run that is gone.
            return Block(
                self._blocked(
                    ctx,
                    "release_failed_claim(…) says that it did not happen, with output=… what it came to. On the "
                    f"command line: gnl claims release | settle {keys.encode(call.record_key)}",
                    "",
                    why,
                )
            )
        question = f"{record.run or call.run}/{record.call}/in_doubt/{record.attempts}"
        ways = (
            f"decide(journal, {question!r}, True) runs it once more, False never runs it again, False with output=… "
            "records what it came to. On the command line: gnl approvals approve | deny | settle"
        )
        if record.run and record.run != call.run:
            ways += f". It was run {record.run} that began it: a yes is carried out by driving that run"
        return Block(self._blocked(ctx, ways, question, why))

    def _blocked(self, ctx: CallContext, ways: str, question: str, why: str = "") -> SideEffectRetryBlockedError:
        record, call = ctx.record, ctx.call
        assert record is not None
        return SideEffectRetryBlockedError(
            f"{call.tool.name} (call {call.id} of run {call.run}) was begun {ctx.request.when(ctx)} and nobody knows "
            f"whether it took effect. {why}Find out, then: {ways}; or give the tool a recover()",
            run_id=call.run,
            tool_call_id=call.id,
            tool=call.tool.name,
            attempts=record.attempts,
            started_at=ctx.request.started_at(ctx),
            question=question,
        )

    def _busy(self, ctx: CallContext) -> Verdict:
        record, call = ctx.record, ctx.call
        assert record is not None
        left = max(1, -(-(ctx.request.started_at(ctx) + record.ttl_ms - ctx.now) // 1000))
        owner = read_owner(record.owner)
        what = f"{call.tool.name} (call {call.id} of run {call.run})"
        if _is_over(ctx):
            message = (
                f"{what} was begun {ctx.request.when(ctx)} by {_who(ctx)}, which is alive, or stopped, and may still "
                "come to an end with it: nothing is run beside it, however long that takes. Wait for it, or end that "
                "process, and try again"
            )
        else:
            message = f"{what} may still be executing in {_who(ctx)}; try again in {left} s, when its claim has ended"
        return Block(
            RunBusyError(
                message,
                retry_after=left,
                run_id=call.run,
                tool_call_id=call.id,
                tool=call.tool.name,
                **({"pid": owner.pid, "host": owner.host} if owner is not None else {}),
            )
        )


def _is_over(ctx: CallContext) -> bool:
    """Whether the time of a call's claim is over."""
    assert ctx.record is not None
    return ctx.now - ctx.request.started_at(ctx) >= ctx.record.ttl_ms


def _who(ctx: CallContext) -> str:
    owner = read_owner(ctx.record.owner) if ctx.record is not None else None
    if owner is None:
        return "another process"
    here = ctx.request.owner
    if (owner.boot, owner.namespace) == (here.boot, here.namespace):
        same = (owner.pid, owner.started) == (here.pid, here.started)
        return f"this very process (pid {owner.pid})" if same else f"process {owner.pid} of this host"
    return f"process {owner.pid} of " + (f"host {owner.host[:64]!r}" if owner.host else "another host")


def _approved_before(ctx: CallContext) -> bool:
    """Whether a person let this call, with these very arguments, run before."""
    call = ctx.call
    for kind in ("confirm", "guard", "taint", "duplicate", "semantic"):
        answer = read_answer(ctx.request.rows.get(keys.answer(call.root, call.part, call.id, kind, 0)))
        if answer is not None and answer.approved and answer.args_digest == call.args_digest:
            return True
    return False
