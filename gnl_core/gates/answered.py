"""What a person said to the question that a call waits on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from gnl_core.approvals import Answer
from gnl_core.journal.port import JsonValue
from gnl_core.verdicts import PROCEED, Block, CallContext, Deny, State, Suspend, Verdict


class Answered:
    """Go on where a person said yes, end the call where they said no, wait where they said nothing."""

    name: ClassVar[str] = "answered"
    states: ClassVar[frozenset[State]] = frozenset({State.WAITING, State.ANSWERED})

    async def rule(self, ctx: CallContext) -> Verdict:
        """Rule by the answer."""
        if ctx.answer is None:
            halted = ctx.request.halted()  # a request that begins nothing more waits for nothing more
            return Suspend() if halted is None else Block(halted)
        if ctx.answer.approved:
            return PROCEED
        assert ctx.record is not None
        question = ctx.record.question or {}
        text = refusal(ctx.answer, asked_plainly(question))
        return Deny(text, by_person=True, question=question)


def asked_plainly(question: Mapping[str, JsonValue]) -> str:
    """Return what the model may read of a question: never what a person was shown of earlier work."""
    if question.get("kind") in ("duplicate", "semantic"):
        return ""
    return str(question.get("plain") or question.get("reason") or "")


def refusal(answer: Answer, question: str) -> str:
    """Return what the model reads of a call that a person refused."""
    reason = f" Reason: {answer.reason}." if answer.reason else ""
    asked = f" The question was: {question}" if question else ""
    return f"A person refused this call and it did not run.{reason}{asked}"
