"""A settled call is replayed, never run."""

from __future__ import annotations

from typing import ClassVar

from gnl_core.errors import DivergenceError
from gnl_core.verdicts import Block, CallContext, Replay, State, Verdict


class Recorded:
    """Replay what is recorded; say so where the present arguments are others."""

    name: ClassVar[str] = "recorded"
    states: ClassVar[frozenset[State]] = frozenset({State.DONE})

    async def rule(self, ctx: CallContext) -> Verdict:
        """Replay the record; with strict replay, block when it was made for another call."""
        record, call = ctx.record, ctx.call
        assert record is not None
        assert ctx.entry is not None
        if record.digest != call.digest or record.tool != call.tool.name:
            what = "arguments" if record.tool == call.tool.name else f"tool ({record.tool})"
            message = (
                f"call {call.id} of run {call.run} was recorded with another {what} than {call.tool.name} is called "
                "with now; the record is what counts"
            )
            if ctx.request.options.replay == "strict":
                return Block(
                    DivergenceError(
                        message + ". Drive it with replay='lenient' to accept that, or fork the run",
                        run_id=call.run,
                        tool_call_id=call.id,
                        recorded=record.digest,
                        present=call.digest,
                    )
                )
            ctx.request.warn(message)
        return Replay(record, ctx.entry.blob)
