"""Work recorded outside a run's own prefix belongs to the person who had it done."""

from __future__ import annotations

from typing import ClassVar

from gnl_core.errors import IdempotencyOwnerMismatchError
from gnl_core.verdicts import PROCEED, Block, CallContext, State, Verdict


class OwnerGate:
    """Refuse another person's record under the same key."""

    name: ClassVar[str] = "owner"
    states: ClassVar[frozenset[State]] = frozenset(State) - {State.FRESH}

    async def rule(self, ctx: CallContext) -> Verdict:
        """Block when the record names another person than this call does."""
        record, call = ctx.record, ctx.call
        if record is None or call.record_key[0] == "run" or record.resource == (call.resource or ""):
            return PROCEED
        return Block(
            IdempotencyOwnerMismatchError(
                f"the work that {call.tool.name} would do is recorded for another person under the same key; let its "
                "idempotency_key include what tells them apart",
                run_id=call.run,
                tool_call_id=call.id,
                tool=call.tool.name,
            )
        )
