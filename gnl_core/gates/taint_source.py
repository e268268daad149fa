"""An untrusted tool taints the request when it is invoked: a failed fetch has been answered by a stranger, too."""

from __future__ import annotations

from typing import ClassVar

from gnl_core import keys
from gnl_core.journal.port import Create, JsonValue
from gnl_core.records import FORMAT
from gnl_core.verdicts import BEGINNING, PROCEED, CallContext, Proceed, State, Verdict


class TaintSource:
    """Mark the request, and the conversation where that is the scope; the first mark stays."""

    name: ClassVar[str] = "taint_source"
    states: ClassVar[frozenset[State]] = BEGINNING

    async def rule(self, ctx: CallContext) -> Verdict:
        """Add the mark to the claim."""
        ops = marks(ctx)
        return Proceed(claim=ops) if ops else PROCEED


def marks(ctx: CallContext) -> tuple[Create, ...]:
    """Return the operations that mark the request, none where the tool is trusted or the mark is there."""
    call, request = ctx.call, ctx.request
    if not call.tool.untrusted or request.taint is not None:
        return ()
    mark: JsonValue = {"f": FORMAT, "tool": call.tool.name, "run": call.run, "call": call.id}
    ops = [Create(keys.taint(call.root), mark, if_present="keep")]
    if request.options.limits.taint_scope == "thread" and call.thread:
        ops.append(Create(keys.thread_taint(call.thread), mark, if_present="keep"))
    return tuple(ops)
