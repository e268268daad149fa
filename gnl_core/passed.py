"""Answers that a caller passes along with a drive: to questions that are open, or ahead of them.

A host passes the same answers again when it retries. So an answer that stands already is taken as said, and one that
names a call rather than a question is never taken for a second yes: after a crash another question is open, whether the
work may run once more, and a yes to the first is none to that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from gnl_core import keys
from gnl_core.approvals import MISSING, Answer, Approval, Interrupt, read_answer
from gnl_core.decisions import (
    already_decided,
    answer_of,
    answer_ops,
    check_actor,
    parse_question,
    questions_in,
    unknown_question,
)
from gnl_core.errors import ConfigError, UnknownQuestionError
from gnl_core.journal.port import Entry, Key, Op
from gnl_core.look import AHEAD
from gnl_core.records import read_step

Approvals: TypeAlias = Mapping[str, bool | Approval]
"""By a question's name, or by a call: '<run>/<call>', or the call's id alone for one of the root run."""


def read_passed(
    approvals: Approvals, root: str, actor: str | None, rows: Mapping[Key, Entry], now: int
) -> tuple[list[Op], dict[str, Answer]]:
    """Return the operations that record answers to open questions, and the answers that came before theirs.

    Args:
        approvals: What was passed.
        root: The root run.
        actor: Who drives it, and so who answers where an answer does not say.
        rows: The request's rows.
        now: Milliseconds of the store's clock.

    Raises:
        UnknownQuestionError: An answer to a question that is not open, with no digest of the arguments it covers.
        AlreadyDecidedError: The question has another answer.
        ConfigError: No answer at all, one of nobody in particular for a run that names an actor, or two that differ
            for one question under two names.
        NotCanonicalError: An output that cannot be stored.
    """
    ops: list[Op] = []
    held: dict[str, Answer] = {}
    said: dict[str, tuple[str, Answer]] = {}
    questions = questions_in(rows, root, now) if approvals else []
    for name, value in approvals.items():
        approval = value if isinstance(value, Approval) else Approval(approved=value)
        if not isinstance(approval.approved, bool):
            raise ConfigError(f"approvals[{name!r}] is {value!r}, must be True, False or an Approval")
        if approval.actor is None:
            approval = replace(approval, actor=actor)
        standing = list(_standing(name, root, rows))
        interrupt = _named(name, root, [one for one, _ in questions])
        if interrupt is not None and not _said_before(name, interrupt, approval, standing):
            part = keys.split_run_id(interrupt.run_id)[1]
            place = keys.parse_call_id(interrupt.tool_call_id)
            assert place is not None
            key = keys.answer(root, part, interrupt.tool_call_id, interrupt.kind, interrupt.attempt)
            check_actor(approval.actor, rows.get(keys.head(root)), interrupt.question)
            answer = answer_of(interrupt, approval, now)
            before, same = said.setdefault(interrupt.question, (name, answer))
            if same != answer:
                raise _contradiction(before, name, f"question {interrupt.question!r}")
            if before != name:
                continue
            call = rows[keys.tool(root, part, *place)]
            ops += answer_ops(root, part, interrupt, answer, call=call, row=rows.get(key), now=now)
        elif standing and all(stored.approved is not approval.approved for _, stored in standing):
            raise already_decided(*standing[-1])
        elif standing and approval.args_digest in (None, standing[-1][1].args_digest):
            continue
        elif approval.args_digest is None or not _may_come_ahead(name):
            raise unknown_question(name, (one for one, answer in questions if answer is None))
        else:
            check_actor(approval.actor, rows.get(keys.head(root)), name)
            held[name] = _ahead(approval, approval.args_digest, now)
            _check_ahead(name, root, held)
    return ops, held


def addresses_call(approvals: Approvals, root: str, rows: Mapping[Key, Entry]) -> bool:
    """Return whether an answer names a call that this request made, whatever became of it; an invented one is none."""
    for key in rows if approvals else ():
        if len(key) != 6 or key[3] != "tool":
            continue
        call = keys.call_id(int(key[4]), int(key[5]))
        names = {f"{keys.run_id_of(root, key[2])}/{call}"}
        if key[2] == keys.ROOT:
            names |= {call, _provider_id(rows, root, call)}
        if any(name and (name in names or _call_of(name, root)[0] in names) for name in approvals):
            return True
    return False


def _said_before(name: str, interrupt: Interrupt, approval: Approval, standing: Sequence[tuple[str, Answer]]) -> bool:
    """Whether a yes that names a call was meant for an earlier question of it than the doubt that is open now."""
    if interrupt.kind != "in_doubt" or name == interrupt.question or not approval.approved:
        return False
    return approval.args_digest is not None or any(stored.approved for _, stored in standing)


def _named(name: str, root: str, interrupts: Sequence[Interrupt]) -> Interrupt | None:
    """Return the question that a name stands for: a question's own, or a call's."""
    mine = [one for one in interrupts if one.run_id == root]
    exact = [one for one in interrupts if name in (one.question, f"{one.run_id}/{one.tool_call_id}")]
    exact = exact or [one for one in mine if one.tool_call_id == name]
    if exact:
        return exact[0]
    theirs = [one for one in mine if one.provider_call_id == name]
    if len(theirs) > 1:
        raise UnknownQuestionError(
            f"the provider gave the id {name!r} to {len(theirs)} calls that wait; answer by our ids: "
            + ", ".join(one.question for one in theirs),
            question=name,
        )
    return theirs[0] if theirs else None


def _standing(name: str, root: str, rows: Mapping[Key, Entry]) -> Iterator[tuple[str, Answer]]:
    """Yield the recorded answers to the questions that a name stands for, as (question, answer)."""
    for key in sorted(key for key in rows if len(key) == 7 and key[3] == "answer"):
        part, call, answer = key[2], key[4], read_answer(rows[key])
        if answer is None:
            continue
        run = keys.run_id_of(root, part)
        question = f"{run}/{call}/{answer.kind}/{answer.attempt}"
        names = {question, f"{run}/{call}"}
        if part == keys.ROOT:
            names |= {call, _provider_id(rows, root, call)}
        if name in names:
            yield question, answer


def _provider_id(rows: Mapping[Key, Entry], root: str, call: str) -> str:
    place = keys.parse_call_id(call)
    entry = rows.get(keys.model(root, keys.ROOT, place[0])) if place else None
    calls = read_step(entry).response.tool_calls if entry is not None else ()
    return next((one.provider_id for one in calls if one.id == call), "")


def _may_come_ahead(name: str) -> bool:
    """Whether a name is a call's, or that of a question that can be foreseen."""
    try:
        _, _, kind, attempt = parse_question(name)
    except UnknownQuestionError:
        return True
    return kind in AHEAD and attempt == 0


def _check_ahead(name: str, root: str, held: Mapping[str, Answer]) -> None:
    """Refuse an answer that contradicts one to the same call under another name; a call's own name is any question."""
    call, kind = _call_of(name, root)
    for other, answer in held.items():
        its_call, its_kind = _call_of(other, root)
        one = call == its_call and (kind == its_kind or not kind or not its_kind)
        if one and answer.args_digest == held[name].args_digest and answer != held[name]:
            raise _contradiction(other, name, f"call {call!r}")


def _call_of(name: str, root: str) -> tuple[str, str]:
    """Return the '<run>/<call>' that a name stands for, and the kind of its question, '' where it names none."""
    try:
        run, call, kind, _ = parse_question(name)
    except UnknownQuestionError:
        return name if "/" in name else f"{root}/{name}", ""
    return f"{run}/{call}", kind


def _contradiction(one: str, other: str, what: str) -> ConfigError:
    return ConfigError(f"approvals[{one!r}] and approvals[{other!r}] answer {what} differently; pass one of them")


def _ahead(approval: Approval, args_digest: str, now: int) -> Answer:
    if approval.output is not MISSING:
        raise ConfigError("an output says what a call in doubt came to; it cannot come before the doubt")
    if approval.relation is not None:
        raise ConfigError(
            "a relation is about the earlier work that a question shows beside its call; it cannot come before the "
            "question"
        )
    return Answer(
        kind="confirm",
        attempt=0,
        approved=approval.approved,
        args_digest=args_digest,
        at=now,
        actor=approval.actor,
        reason=approval.reason,
        expires_at=approval.expires_at,
    )
