"""A tool consequential enough that a person is asked before every fresh call."""

from __future__ import annotations

import copy
import dataclasses
import json
import logging
from collections.abc import Mapping
from typing import ClassVar

from gnl_core.approvals import Answer
from gnl_core.gates.answered import asked_plainly, refusal
from gnl_core.journal.port import JsonValue
from gnl_core.prior import Prior
from gnl_core.records import QuestionKind
from gnl_core.repeats import incident_of, warning_of
from gnl_core.verdicts import PROCEED, CallContext, Deny, Proceed, Question, State, Suspend, Verdict

logger = logging.getLogger("gnl_core.gates.confirm")


class Confirm:
    """Ask before a fresh call. One that was begun before is the crash gate's: it may have happened already."""

    name: ClassVar[str] = "confirm"
    states: ClassVar[frozenset[State]] = frozenset({State.FRESH})

    async def rule(self, ctx: CallContext) -> Verdict:
        """Suspend, unless an answer for these very arguments was passed along."""
        if not ctx.call.tool.confirm:
            return PROCEED
        if ctx.answer is None:
            return await ask_beside(ctx, "confirm", self._reason(ctx))
        return held(ctx, ctx.answer, "confirm", self._reason(ctx))

    def _reason(self, ctx: CallContext) -> str:
        confirm, call = ctx.call.tool.confirm, ctx.call
        plain = f"Run {call.tool.name}({json.dumps(dict(call.args), ensure_ascii=False)})?"
        if not callable(confirm):
            return plain
        try:
            reason: object = confirm(copy.deepcopy(dict(call.arguments)))  # its to look at, not to change
        except Exception:  # a reason that cannot be worded does not let the call pass unasked
            logger.exception("confirm of tool %s raised on call %s of run %s", call.tool.name, call.id, call.run)
            return plain
        return reason if isinstance(reason, str) and reason else plain


async def ask_beside(ctx: CallContext, kind: QuestionKind, reason: str) -> Suspend:
    """Ask, and show beside the call what earlier work it may repeat: a yes to the call is a yes to the repeat.

    The question is asked whatever fails there.
    """
    try:
        prior, detail = await _prior(ctx)
    except Exception:
        logger.exception("earlier work could not be looked up for call %s of run %s", ctx.call.id, ctx.call.run)
        return Suspend(Question(kind, reason))
    if prior is None:
        return Suspend(Question(kind, reason))
    message = f"the question about {ctx.call.tool.name} shows call {prior.tool_call_id} of run {prior.run_id}"
    noted = incident_of(ctx, prior, "suspend", message, asked_by=kind, **detail)
    text = f"{reason} \u26a0 {warning_of(prior, ctx.call.tool, ctx.request.now)}"
    return Suspend(Question(kind, text, prior.to_json(), plain=reason), (noted,))


async def _prior(ctx: CallContext) -> tuple[Prior | None, Mapping[str, JsonValue]]:
    found = ctx.findings
    prior = await found.exact() or await found.other_channel()
    if prior is not None:
        return prior, {}
    similar = await found.similar(judge=False)
    return similar.prior, similar.detail


def held(ctx: CallContext, answer: Answer, kind: QuestionKind, question: str) -> Proceed | Deny:
    """Rule by an answer that came before its question, and record it under the question that it answers."""
    attempt = ctx.record.attempts if ctx.record is not None else 0
    writes = (ctx.request.answer_op(ctx.call, dataclasses.replace(answer, kind=kind, attempt=attempt)),)
    if not answer.approved:
        asked: dict[str, JsonValue] = {"kind": kind, "reason": question}
        return Deny(refusal(answer, asked_plainly(asked)), writes=writes, by_person=True, question=asked)
    return Proceed(claim=writes)
