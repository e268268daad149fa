"""A request that was canceled, or whose effects are being undone, starts nothing new."""

from __future__ import annotations

from typing import ClassVar

from gnl_core.verdicts import BEGINNING, PROCEED, Block, CallContext, State, Verdict


class Halted:
    """Block what would begin. To settle what began before begins nothing; to begin it again, the crash gate blocks."""

    name: ClassVar[str] = "halted"
    states: ClassVar[frozenset[State]] = BEGINNING

    async def rule(self, ctx: CallContext) -> Verdict:
        """Block with the error that says which of both it is."""
        if ctx.state in (State.IN_DOUBT, State.FAILED):
            return PROCEED
        error = ctx.request.halted()
        return PROCEED if error is None else Block(error)
