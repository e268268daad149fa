"""The ladder for a side effect with the arguments, or the identity, of an earlier one."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from gnl_core import keys
from gnl_core.errors import DuplicateSideEffectError
from gnl_core.gates.confirm import held
from gnl_core.journal.port import Create
from gnl_core.prior import Prior
from gnl_core.records import FORMAT
from gnl_core.repeats import NUDGE, REFUSED, SKIPPED, incident_of, question_about
from gnl_core.verdicts import (
    PROCEED,
    Block,
    CallContext,
    Deny,
    Proceed,
    Question,
    Reflect,
    State,
    Suspend,
    Verdict,
)


class Duplicate:
    """Rule on a fresh side effect by `limits.side_effect_duplicates`; work that is named by a key never gets here."""

    name: ClassVar[str] = "duplicate"
    states: ClassVar[frozenset[State]] = frozenset({State.FRESH, State.ANSWERED})

    async def rule(self, ctx: CallContext) -> Verdict:
        """Walk the ladder; a person's earlier no to this very call comes first."""
        found = ctx.findings
        action = found.rule.action
        if action == "off" or _was_shown(ctx):
            return PROCEED
        allowed = ctx.answer is not None and ctx.answer.approved
        if allowed and ctx.state is State.FRESH and ctx.call.tool.confirm:
            return PROCEED  # the confirm gate took the answer, as it does where the question was asked
        if not allowed and found.refused_before():
            return Deny(REFUSED)
        if not found.covered:
            return PROCEED
        prior = await found.exact() or await found.other_channel()
        return PROCEED if prior is None else self._climb(ctx, prior, action)

    def _climb(self, ctx: CallContext, prior: Prior, action: str) -> Verdict:
        call = ctx.call
        message = f"{call.tool.name} repeats call {prior.tool_call_id} of run {prior.run_id}"
        match action:
            case "suspend":
                question = question_about(prior, call.tool, ctx.request.now)
                noted = (incident_of(ctx, prior, "suspend", f"{message}; a person was asked"),)
                if ctx.answer is not None and ctx.state is State.FRESH:
                    noted = (incident_of(ctx, prior, "answered-ahead", f"{message}; a person had answered ahead"),)
                    return dataclasses.replace(held(ctx, ctx.answer, "duplicate", question), incidents=noted)
                return Suspend(Question("duplicate", question, prior.to_json()), noted)
            case "warn":
                return Proceed(incidents=(incident_of(ctx, prior, "warn", f"{message}; it was run again"),))
            case "skip":
                return Deny(SKIPPED, (incident_of(ctx, prior, "skip", f"{message}; it was left out"),))
            case "reflect":
                nudge = keys.nudge(call.root, keys.ROOT, call.tool.name, "duplicate", call.args_digest)
                if nudge not in ctx.request.rows:
                    noted = (incident_of(ctx, prior, "reflect", f"{message}; the model was asked to reconsider"),)
                    return Reflect(NUDGE, Create(nudge, {"f": FORMAT, "call": call.id}), noted)
        error = DuplicateSideEffectError(
            f"{call.tool.name} (call {call.id} of run {call.run}) was not run: it repeats call {prior.tool_call_id} of "
            f"run {prior.run_id}. To let a person decide instead, drive the run with "
            "RunLimits(side_effect_duplicates='suspend')",
            run_id=call.run,
            tool_call_id=call.id,
            tool=call.tool.name,
            args_hash=call.args_digest,
            first_run=prior.run_id,
            first_tool_call_id=prior.tool_call_id,
        )
        return Block(error, (incident_of(ctx, prior, "block", f"{message}; it was not run"),))


def _was_shown(ctx: CallContext) -> bool:
    """Whether a person has answered with the earlier work before them.

    A yes that came without it is none to a repeat: two calls may have been asked about before either of them ran.
    """
    if ctx.state is not State.ANSWERED or ctx.record is None:
        return False
    question = ctx.record.question or {}
    return question.get("prior") is not None or question.get("kind") in ("duplicate", "semantic")
