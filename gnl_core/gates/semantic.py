"""Work that looks the same: a finder proposes, a person decides."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from gnl_core.gates.confirm import held
from gnl_core.repeats import incident_of, question_about
from gnl_core.verdicts import PROCEED, CallContext, Question, State, Suspend, Verdict


class Semantic:
    """Ask about what the finder found. It never skips or blocks, and tells the model nothing."""

    name: ClassVar[str] = "semantic"
    states: ClassVar[frozenset[State]] = frozenset({State.FRESH})

    async def rule(self, ctx: CallContext) -> Verdict:
        """Suspend with the earlier work beside the call, or go on as if there were no such layer."""
        if ctx.answer is not None and ctx.answer.approved:
            return PROCEED  # a person has looked at this very call
        found = await ctx.findings.similar(judge=True)
        if found.prior is None:
            return PROCEED
        message = f"{ctx.call.tool.name} looks like call {found.prior.tool_call_id} of run {found.prior.run_id}"
        noted = (incident_of(ctx, found.prior, "suspend", f"{message}; a person was asked", **found.detail),)
        question = question_about(found.prior, ctx.call.tool, ctx.request.now)
        if ctx.answer is not None:
            noted = (incident_of(ctx, found.prior, "answered-ahead", f"{message}; a person had answered ahead"),)
            return dataclasses.replace(held(ctx, ctx.answer, "semantic", question), incidents=noted)
        return Suspend(Question("semantic", question, found.prior.to_json()), noted)
