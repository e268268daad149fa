"""The caller's guard. It sees approved calls too: policy may have changed since a person said yes."""

from __future__ import annotations

import copy
import inspect
from typing import ClassVar

from gnl_core.errors import GuardFailedError
from gnl_core.gates.confirm import ask_beside, held
from gnl_core.hook import LATE, seconds_for, within
from gnl_core.policy import Allow, GuardCall, GuardVerdict, RequireApproval, read_verdict
from gnl_core.verdicts import PROCEED, Block, CallContext, Deny, State, Verdict


class Policy:
    """Ask the guard, once a drive and call."""

    name: ClassVar[str] = "policy"
    states: ClassVar[frozenset[State]] = frozenset({State.FRESH, State.ANSWERED})

    async def rule(self, ctx: CallContext) -> Verdict:
        """Rule as the guard says; one that raises lets nothing run."""
        verdict = await ask_guard(ctx)
        match verdict:
            case Allow():
                return PROCEED
            case Block():
                return verdict
            case RequireApproval(reason):
                question = reason or f"Policy asks for an approval of {ctx.call.tool.name}."
                if ctx.answer is None:
                    return await ask_beside(ctx, "guard", question)
                return PROCEED if ctx.state is State.ANSWERED else held(ctx, ctx.answer, "guard", question)
            case _:
                reason = f" Reason: {verdict.reason}." if verdict.reason else ""
                return Deny(f"This call is not permitted and did not run.{reason}")


async def ask_guard(ctx: CallContext) -> GuardVerdict | Block:
    """Return what the guard says of a call, asked once a drive; one that raises, or takes too long, blocks it."""
    call, request = ctx.call, ctx.request
    guard = request.options.guard
    if guard is None:
        return Allow()
    memo = (call.run, call.id, "guard")
    try:
        if memo not in request.memo:
            seen = GuardCall(
                call.tool.name, copy.deepcopy(dict(call.args)), call.id, call.run, request.taint is not None
            )
            answer: object = guard(seen)
            if inspect.isawaitable(answer):
                seconds, awaited = seconds_for(call.tool, request.options), answer
                answer = await within(seconds, lambda: awaited)
                if answer is LATE:
                    raise TimeoutError(f"it gave no verdict within {seconds:g} s")
            request.memo[memo] = read_verdict(answer)
    except Exception as error:
        return Block(
            GuardFailedError(
                f"the guard failed on {call.tool.name} (call {call.id} of run {call.run}), so the call was not run: "
                f"{type(error).__name__}: {error}",
                run_id=call.run,
                tool_call_id=call.id,
                tool=call.tool.name,
            )
        )
    verdict: GuardVerdict = request.memo[memo]
    return verdict
