"""An untrusted tool taints the request when it is invoked: a failed fetch has been answered by a stranger, too."""

from __future__ import annotations

from typing import ClassVar

from gnl_core import keys
from gnl_core.journal.port import Create, JsonValue, Op
from gnl_core.verdicts import BEGINNING, PROCEED, CallContext, Proceed, State, Verdict


class TaintSource:
    """Mark the request, and the conversation where that is the scope; the first mark stays."""

    name: ClassVar[str] = "taint_source"
    states: ClassVar[frozenset[State]] = BEGINNING

    async def rule(self, ctx: CallContext) -> Verdict:
        """Add the mark to the claim."""
        call, request = ctx.call, ctx.request
        if not call.tool.untrusted or request.taint is not None:
            return PROCEED
        mark: JsonValue = {"f": 1, "tool": call.tool.name, "run": call.run, "call": call.id}
        ops: list[Op] = [Create(keys.taint(call.root), mark, if_present="keep")]
        if request.options.limits.taint_scope == "thread" and call.thread:
            ops.append(Create(keys.thread_taint(call.thread), mark, if_present="keep"))
        return Proceed(claim=tuple(ops))
