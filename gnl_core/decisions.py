"""List the questions that wait for a person, and record answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any, cast

from gnl_core import keys
from gnl_core.approvals import MISSING, Answer, Approval, Interrupt, Relation, read_answer
from gnl_core.asked import load_asked, waiting_roots
from gnl_core.canonical import args_hash
from gnl_core.codec import encode
from gnl_core.errors import (
    AlreadyDecidedError,
    CanceledError,
    ConfigError,
    IdInvalidError,
    JournalError,
    JournalFormatError,
    RefusedError,
    RunNotFoundError,
    StoreCorruptError,
    UnknownQuestionError,
)
from gnl_core.journal import get
from gnl_core.journal.port import Applied, Create, Entry, Expect, Journal, Key, Op, Replace, new_batch
from gnl_core.lock import holder
from gnl_core.look import may_still_run
from gnl_core.records import CallRecord, QuestionKind, read_call, read_provider_id

_PAGE = 10_000
"""Most rows of one page: bytes bound it sooner, so that a run of a few hundred steps is one."""

_KINDS = ("confirm", "guard", "in_doubt", "taint", "duplicate", "semantic")


def question_of(
    root: str,
    part: str,
    record: CallRecord,
    entry: Entry,
    now: int,
    *,
    provider_id: str = "",
    driven: int | None = None,
) -> Interrupt | None:
    """Return the question that a call's record has open, answered or not; None where it asks nothing.

    Args:
        root: Run id of the root run.
        part: The part of the request that the call belongs to.
        record: The call's record.
        entry: Its row.
        now: Milliseconds of the store's clock.
        provider_id: The id that the model's provider gave the call.
        driven: Fence of a driver that lives and holds the run: what it has begun is under way, and in no doubt.
    """
    if record.status == "suspended":
        question = record.question or {}
        kind, at = str(question.get("kind", "")), question.get("at")
        reason, prior = str(question.get("reason", "")), question.get("prior")
    elif record.status == "in_doubt" or (record.status == "failed" and record.side_effect and not record.certain):
        kind, at, prior = "in_doubt", record.started_at, None
        reason = "It was begun and nobody knows whether it took effect; it may have happened already. Run it once more?"
    elif (
        record.status == "running"
        and record.side_effect
        and (driven is None or record.fence != driven)
        and not may_still_run(record, entry, now)
    ):
        kind, at, prior = "in_doubt", record.started_at or entry.updated_at, None
        reason = "It was begun, and its time is over without a word; it may have happened already. Run it once more?"
    else:
        return None
    return Interrupt(
        run_id=record.run or keys.run_id_of(root, part),
        tool_call_id=record.call,
        tool_name=record.tool,
        args=record.args,
        args_digest=args_hash(record.args),
        kind=cast("QuestionKind", kind),
        attempt=record.attempts,
        reason=reason,
        asked_at=at if isinstance(at, int) else 0,
        provider_call_id=provider_id,
        prior=prior if isinstance(prior, dict) else None,
    )


def questions_in(rows: Mapping[Key, Entry], root: str, now: int) -> list[tuple[Interrupt, Answer | None]]:
    """Return the questions of a request's loaded rows with the answers they have, in the order of the calls."""
    found: list[tuple[Interrupt, Answer | None]] = []
    driven = driver_of(rows.get(keys.lock(root)), rows.get(keys.beat(root)), now)
    for key in sorted(key for key in rows if len(key) == 6 and key[3] == "tool"):
        part, entry = key[2], rows[key]
        record = read_call(entry)
        provider_id = _provider_id(rows, root, part, record.call)
        interrupt = question_of(root, part, record, entry, now, provider_id=provider_id, driven=driven)
        if interrupt is None:
            continue
        answer = read_answer(
            rows.get(keys.answer(root, part, interrupt.tool_call_id, interrupt.kind, interrupt.attempt))
        )
        if answer is not None and answer.args_digest != interrupt.args_digest:
            answer = None
        found.append((interrupt, answer))
    return found


def driver_of(lock: Entry | None, beat: Entry | None, now: int) -> int | None:
    """Return the fence of the driver that lives and holds the run, None where nobody does."""
    return lock.version if lock is not None and holder(lock, beat, now) is not None else None


def _provider_id(rows: Mapping[Key, Entry], root: str, part: str, call: str) -> str:
    place = keys.parse_call_id(call)
    entry = rows.get(keys.model(root, part, place[0])) if place else None
    return "" if entry is None else read_provider_id(entry, call)


async def list_interrupts(
    journal: Journal, run_id: str | None = None, *, unreadable: list[JournalError] | None = None
) -> list[Interrupt]:
    """List the questions that wait for a person and have no answer yet, oldest first.

    Args:
        journal: The store.
        run_id: A root run's id for its whole request, a sub-agent's for its own questions, None for every run: those
            that asked, and those whose driver died and left a call in doubt.
        unreadable: Given with `run_id=None`, it takes the errors of runs that cannot be read, so that one of them hides
            no other run's questions; without it the first is raised.

    Raises:
        RunNotFoundError: No such run.
        JournalError: The store cannot be read.
    """
    if run_id is not None:
        root, part = keys.split_run_id(run_id)
        rows, now = await load_rows(journal, root)
        if keys.head(root, part) not in rows:
            raise RunNotFoundError(f"there is no run {run_id!r} in this journal", run_id=run_id)
        found = await _unanswered(journal, rows, root, now)
        return [one for one in found if part in (keys.ROOT, keys.split_run_id(one.run_id)[1])]
    interrupts: list[Interrupt] = []
    async with aclosing(load_asked(journal, await waiting_roots(journal))) as chunks:
        async for roots, known in chunks:
            for root in roots:
                try:
                    rows, now = known[root] if root in known else await load_rows(journal, root)
                    interrupts += await _unanswered(journal, rows, root, now)
                except (StoreCorruptError, JournalFormatError) as error:
                    if unreadable is None:
                        raise
                    unreadable.append(error)
    return sorted(interrupts, key=lambda interrupt: interrupt.asked_at)


async def _unanswered(journal: Journal, rows: Mapping[Key, Entry], root: str, now: int) -> list[Interrupt]:
    found: list[Interrupt] = []
    halted = keys.halt(root) in rows  # nothing begins in it any more; what is in doubt can still be settled
    for interrupt, answer in questions_in(rows, root, now):
        if halted and interrupt.kind != "in_doubt":
            continue
        expired = answer is not None and answer.approved and answer.expires_at is not None and answer.expires_at <= now
        # No drive carries a yes out in a halted run: nobody knows any more than before.
        if answer is None or expired or (halted and answer.approved):
            found.append(interrupt)
    return [one for one in found if await _still_asked(journal, rows, root, one)]


async def _still_asked(journal: Journal, rows: Mapping[Key, Entry], root: str, interrupt: Interrupt) -> bool:
    """Whether work recorded outside the run has not been settled or freed since its shadow in the run was written."""
    _, part = keys.split_run_id(interrupt.run_id)
    place = keys.parse_call_id(interrupt.tool_call_id)
    entry = rows.get(keys.tool(root, part, *place)) if place else None
    # The row was read as a record a moment ago, or there would be no question.
    if entry is None or not (isinstance(entry.value, dict) and entry.value.get("mirror_of")):
        return True
    outside = await get(journal, keys.decode(read_call(entry).mirror_of))
    work = read_call(outside) if outside is not None else None
    return work is None or (not work.terminal and work.status != "released")  # it is in doubt though it was erased


async def load_rows(journal: Journal, root: str) -> tuple[dict[Key, Entry], int]:
    """Read every row of one request: its rows by key, and the store's clock."""
    rows: dict[Key, Entry] = {}
    after: Key | None = None
    while True:
        page = await journal.scan(keys.request(root), after=after, blobs=True, limit=_PAGE)
        for entry in page.entries:
            rows[entry.key] = entry
        after = page.after
        if after is None:
            return rows, page.now


async def decide(
    journal: Journal,
    question: str,
    approved: bool,
    *,
    actor: str | None = None,
    reason: str | None = None,
    expires_at: int | None = None,
    output: Any = MISSING,
    relation: Relation | None = None,
) -> Answer:
    """Record a person's answer to an open question; the run's next drive carries it out.

    The first decision wins. Before the call's work starts a no replaces a yes; a yes never replaces a no.

    Args:
        journal: The store.
        question: '<run>/<call>/<kind>/<attempt>', as `Interrupt.question` gives it.
        approved: Whether the call may run; for a call in doubt: run once more.
        actor: Who answered; needed where the run names an actor of its own.
        reason: Why; the model reads it when the answer is no.
        expires_at: Milliseconds since the epoch after which a yes no longer lets the call run.
        output: For a call in doubt that is not to run again: what it is known to have come to. The call is then
            recorded as succeeded with it.
        relation: For a yes to a call that is shown beside earlier work (`Interrupt.prior`): 'different_work' or
            'deliberate_repeat'. It labels the pair and changes nothing else; it can be added to a yes that stands,
            as long as the call has not begun.

    Raises:
        UnknownQuestionError: No such question is open; the message lists those of its run.
        AlreadyDecidedError: It has another answer.
        CanceledError: It is a yes, and nothing begins in the run any more: it was canceled, or is being undone.
        NotCanonicalError: `output` cannot be stored.
        ConfigError: `output` for a question that is not about a call in doubt, or beside an approval; `relation` beside
            a no, or for a question that shows no earlier work; no `actor` for a run that has one; or a member of
            another type.
    """
    if type(approved) is not bool:
        raise ConfigError(f"approved is {approved!r}, must be True or False", question=question)
    run_id, call, kind, attempt = parse_question(question)
    root, part = keys.split_run_id(run_id)
    place = keys.parse_call_id(call)
    for _ in range(5):
        entry = await get(journal, keys.tool(root, part, *place)) if place else None
        record = read_call(entry) if entry is not None else None
        if record is not None and record.mirror_of:
            work = await get(journal, keys.decode(record.mirror_of))
            if work is not None:  # else the run's own row is all there is
                entry, record = work, read_call(work)
        key = keys.answer(root, part, call, kind, attempt)
        read = await journal.get_many([key, keys.head(root), keys.lock(root), keys.beat(root), keys.halt(root)])
        driven = driver_of(read.entries[2], read.entries[3], read.now)
        interrupt = (
            question_of(root, part, record, entry, read.now, driven=driven)
            if record is not None and entry is not None
            else None
        )
        stored = read_answer(read.entries[0])
        if interrupt is None or interrupt.question != question or entry is None:
            if stored is not None:
                raise already_decided(question, stored)
            raise await _unknown(journal, question, root)
        check_actor(actor, read.entries[1], question)
        if approved and read.entries[4] is not None:
            raise _halted(question, root)
        approval = Approval(
            approved=approved, actor=actor, reason=reason, expires_at=expires_at, output=output, relation=relation
        )
        answer = answer_of(interrupt, approval, read.now)
        ops = answer_ops(root, part, interrupt, answer, call=entry, row=read.entries[0], now=read.now)
        if not ops:
            assert stored is not None
            return stored
        outcome = await journal.apply(ops, batch=new_batch())
        if isinstance(outcome, Applied):
            written = getattr(ops[-1], "value", None)
            return answer if stored is None or written == answer.to_json() else replace(stored, relation=relation)
    raise RefusedError(f"question {question!r} changed while it was answered; look at it and answer again")


def _halted(question: str, root: str) -> CanceledError:
    return CanceledError(
        f"question {question!r} takes no yes: run {root!r} was canceled or is being undone, and nothing begins in it "
        "any more. Find out whether the call took effect, then settle it (output=…, approved=False) or deny it",
        run_id=root,
        question=question,
    )


def check_actor(actor: str | None, head: Entry | None, question: str) -> None:
    """Refuse an answer of nobody in particular where the run says who drives it.

    Raises:
        ConfigError: The run has an actor, the answer has none.
    """
    value = head.value if head is not None else None
    if not actor and isinstance(value, dict) and value.get("actor"):
        raise ConfigError(
            f"the run of question {question!r} names an actor, so its answers say who gave them: pass actor=…",
            question=question,
        )


def answer_of(interrupt: Interrupt, approval: Approval, now: int) -> Answer:
    """Return the answer that a person gives to a question.

    Raises:
        ConfigError: An output beside an approval, or for a question that is not about a call in doubt; a relation
            beside a no, or for a question that shows no earlier work.
        NotCanonicalError: The output cannot be stored.
    """
    has_output = approval.output is not MISSING
    if has_output and (approval.approved or interrupt.kind != "in_doubt"):
        raise ConfigError(
            "an output says what a call in doubt is known to have come to: pass it with approved=False to a question "
            f"of kind 'in_doubt', not to {interrupt.question!r}"
        )
    if approval.relation is not None and (not approval.approved or interrupt.prior is None):
        raise ConfigError(
            "a relation says what a call that runs after all has to do with the earlier work it was shown beside: pass "
            f"it with approved=True to a question that shows some, not to {interrupt.question!r}"
        )
    if approval.args_digest is not None and approval.args_digest != interrupt.args_digest:
        raise UnknownQuestionError(
            f"the answer covers arguments with digest {approval.args_digest}, but {interrupt.question!r} asks about "
            f"{interrupt.args_digest}; look at the question again",
            question=interrupt.question,
        )
    return Answer(
        kind=interrupt.kind,
        attempt=interrupt.attempt,
        approved=approval.approved,
        args_digest=interrupt.args_digest,
        at=now,
        actor=approval.actor,
        reason=approval.reason,
        expires_at=approval.expires_at,
        output=encode(approval.output) if has_output else None,
        has_output=has_output,
        relation=approval.relation,
    )


def answer_ops(
    root: str, part: str, interrupt: Interrupt, answer: Answer, *, call: Entry, row: Entry | None, now: int
) -> tuple[Op, ...]:
    """Return the operations that record an answer; none where that very answer stands already.

    Raises:
        AlreadyDecidedError: Another answer stands that this one may not replace.
    """
    key = keys.answer(root, part, interrupt.tool_call_id, interrupt.kind, interrupt.attempt)
    unchanged = Expect(call.key, call.version)
    if row is None:
        return (unchanged, Create(key, answer.to_json()))
    stored = read_answer(row)
    expired = stored is not None and stored.approved and stored.expires_at is not None and stored.expires_at <= now
    if stored is None or expired or stored.args_digest != interrupt.args_digest:
        return (unchanged, Replace(key, row.version, answer.to_json()))
    if stored.approved and answer.approved and answer.relation not in (None, stored.relation):
        # A label: who decided, when and until when stays as it is.
        return (unchanged, Replace(key, row.version, replace(stored, relation=answer.relation).to_json()))
    if stored.approved == answer.approved and stored.has_output == answer.has_output and stored.output == answer.output:
        return ()
    if stored.approved and not answer.approved:
        return (unchanged, Replace(key, row.version, answer.to_json()))
    raise already_decided(interrupt.question, stored)


def verb(answer: Answer) -> str:
    """Return what an answer did, in the word that the command line has for it."""
    return "approved" if answer.approved else "settled" if answer.has_output else "denied"


def already_decided(question: str, stored: Answer) -> AlreadyDecidedError:
    """Return the error of a question that has another answer."""
    who = f" by {stored.actor}" if stored.actor else ""
    return AlreadyDecidedError(
        f"question {question!r} was {verb(stored)}{who} already; that decision stands",
        question=question,
        approved=stored.approved,
        actor=stored.actor,
        at=stored.at,
        reason=stored.reason,
    )


def parse_question(question: str) -> tuple[str, str, str, int]:
    """Return (run, call, kind, attempt) of a question's name.

    Raises:
        UnknownQuestionError: No question is named like this.
    """
    run_id, *rest = str(question).rsplit("/", 3)
    try:
        call, kind, attempt = rest
        keys.check_id("run_id", run_id)
        if keys.parse_call_id(call) is None or kind not in _KINDS or not attempt.isascii() or not attempt.isdigit():
            raise ValueError(question)
        return run_id, call, kind, int(attempt)
    except (ValueError, IdInvalidError):
        raise UnknownQuestionError(
            f"{question!r} names no question; a question is named '<run>/<call>/<kind>/<attempt>', for instance "
            "'order-1/s0p0/confirm/0'",
            question=question,
        ) from None


async def _unknown(journal: Journal, question: str, root: str) -> UnknownQuestionError:
    rows, now = await load_rows(journal, root)
    return unknown_question(question, (one for one, answer in questions_in(rows, root, now) if answer is None))


def unknown_question(question: str, open_ones: Iterable[Interrupt]) -> UnknownQuestionError:
    """Return the error of an answer to a question that is not open; it lists those that are."""
    names = [interrupt.question for interrupt in open_ones]
    return UnknownQuestionError(
        f"no question {question!r} is open; open ones of this run: {', '.join(names) or 'none'}",
        question=question,
        open=names,
    )
