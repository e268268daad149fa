"""Loops and budgets."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from gnl_core import keys
from gnl_core.errors import GnlError, ToolLoopDetectedError
from gnl_core.incidents import Incident
from gnl_core.journal.port import Create
from gnl_core.limits import loop_count
from gnl_core.records import FORMAT
from gnl_core.verdicts import PROCEED, Block, CallContext, Reflect, State, Verdict


class Limits:
    """Stop a call that is repeated too often in a row, or that is one too many."""

    name: ClassVar[str] = "limits"
    states: ClassVar[frozenset[State]] = frozenset({State.FRESH, State.ANSWERED})

    async def rule(self, ctx: CallContext) -> Verdict:
        """Rule by `limits.loop_detection`, then by `limits.max_tool_calls`."""
        call, request = ctx.call, ctx.request
        limits = request.options.limits
        loop = limits.loop_detection
        if loop is not None and ctx.state is State.FRESH:
            count = loop_count(request.history, call.tool.name, call.args_digest)
            if count >= loop.max_repeats:
                return self._loop(ctx, count, loop.on_repeat)
        spent = dataclasses.replace(request.spent, tool_calls=request.spent.tool_calls + request.begun)
        error = spent.check(limits, calling=True)
        if error is None:
            return PROCEED
        error.detail |= {"run_id": call.run, "tool_call_id": call.id, "tool": call.tool.name}
        return self._block(ctx, str(error.detail.get("kind", "limit")), error)

    def _loop(self, ctx: CallContext, count: int, action: str) -> Verdict:
        call = ctx.call
        nudge = keys.nudge(call.root, call.part, call.tool.name, "loop", call.args_digest)
        if action == "reflect" and nudge not in ctx.request.rows:
            message = f"{call.tool.name} was called {count} times in a row with the same arguments"
            return Reflect(
                f"This call did not run: {message}. Its last result stands above; go on from it.",
                Create(nudge, {"f": FORMAT, "call": call.id}),
                (Incident.of(call, "limit-guard", "loop-reflect", message, ctx.now),),
            )
        return self._block(
            ctx,
            "loop",
            ToolLoopDetectedError(
                f"{call.tool.name} was called {count} times in a row with the same arguments in run {call.run}; raise "
                "limits.loop_detection and drive the run again, or fork it before the loop",
                run_id=call.run,
                tool_call_id=call.id,
                tool=call.tool.name,
                repeats=count,
            ),
        )

    def _block(self, ctx: CallContext, kind: str, error: GnlError) -> Block:
        return Block(error, (Incident.of(ctx.call, "limit-guard", kind, str(error), ctx.now),))
