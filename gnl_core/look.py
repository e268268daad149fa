"""Look at one call's record: where it stands, and what a person or its own body has said of it since."""

from __future__ import annotations

import dataclasses

from gnl_core import keys
from gnl_core.approvals import Answer, read_answer
from gnl_core.canonical import args_hash
from gnl_core.findings import Findings
from gnl_core.journal.port import Entry, Key
from gnl_core.owner import is_alive, is_dead, read_owner
from gnl_core.records import CallRecord
from gnl_core.request import Request
from gnl_core.verdicts import Call, CallContext, State

AHEAD = ("confirm", "guard", "taint", "duplicate", "semantic")
"""Kinds of questions that can be answered ahead: nobody foresees that a call which has not begun will be in doubt."""

_REPEATS = ("duplicate", "semantic")


async def look(request: Request, call: Call) -> CallContext:
    """Return everything the gates may look at.

    A fresh or settled call is known from what was loaded. For one that waits, or was begun before, the rows that other
    people write are read: answers and late evidence; for work recorded outside the run, its record too.
    """
    entry = request.rows.get(call.record_key)
    if call.record_key[0] != "run":
        read = await request.journal.get_many([call.record_key])
        entry, request.now = read.entries[0], max(request.now, read.now)
    record = request.record_of(entry) if entry is not None else None
    free = record is None or record.status == "released"
    said = _said(request, call, gone=record is None)
    if said is not None:
        own = request.record_of(said)
        if own.mirror_of:  # a shadow leaves out whose work it was; of a run's own row the run knows
            own = dataclasses.replace(own, run=call.run, resource=call.resource or "")
        if own.terminal or _told(request, call, own):
            return _context(request, call, State.DONE, own, said)
        if free:
            return dataclasses.replace(await _begun(request, call, own, said), work=entry)
    if record is None or free:
        return _context(request, call, State.FRESH, record, entry, answer=_held(request, call))
    if _may_begin_anew(request, call, record):
        return _context(request, call, State.FRESH, record, entry, answer=_held(request, call))
    if record.terminal or _told(request, call, record):
        return _context(request, call, State.DONE, record, entry)
    return await _begun(request, call, record, entry)


def _said(request: Request, call: Call, *, gone: bool) -> Entry | None:
    """Return the row of what was said to this very call of keyed work: it was asked about, refused, or sent back.

    That is no work, so it stands in the run's own rows, and binds nobody else who asks for the same work. A call with
    the very arguments of an earlier one of its step shares what was said to that. Where the record of the work is gone,
    erased with its conversation for instance, what the run knows of it binds the run all the same.
    """
    if not call.keyed or request.fence is None:
        return None
    for position in (call.position, *range(call.position)):
        entry = request.rows.get(keys.tool(call.root, call.part, call.step, position))
        if entry is None:
            continue
        record = request.record_of(entry)
        same = (record.tool, record.digest, record.args) == (call.tool.name, call.digest, call.args)
        if record.mirror_of and position == call.position and record.status == "failed" and record.certain:
            # Others may have done the work since. The model was told that it failed, and went on from that.
            return None if request.untold else entry
        if record.mirror_of and position == call.position and gone and record.status != "released":
            return entry
        if not record.mirror_of and (same or position == call.position):
            return entry if record.terminal or record.status == "suspended" else None
    return None


def _may_begin_anew(request: Request, call: Call, record: CallRecord) -> bool:
    """Whether work came to nothing for certain, and its caller has not gone on from that: it is done as if never begun.

    So may a workflow's step, a batch's item and a call outside of any run, whose failure no model was told; and a call
    of another run than the one that was told.
    """
    if record.status != "failed" or not record.certain or call.unfit is not None:
        return False
    own = record.run in ("", call.run)
    if own and request.fence is not None and not (request.untold and record.call == call.id):
        return False
    if call.record_key[0] != "run" and record.resource != (call.resource or ""):
        return False  # another person's: the key tells too little apart, whatever became of theirs
    if own and request.options.replay == "strict" and (record.tool, record.digest) != (call.tool.name, call.digest):
        return False
    if record.attempts < call.tool.max_retries:
        return True
    request.warn(
        f"{call.tool.name} (call {call.id} of run {call.run}) has begun {record.attempts} times, its max_retries is "
        f"{call.tool.max_retries}: it failed for good, until that is raised or the claim released"
    )
    return False


def _told(request: Request, call: Call, record: CallRecord) -> bool:
    """Whether a harmless tool's failure has been told to the model: running it again would change what it was told."""
    return record.status == "failed" and not record.side_effect and request.last_step(call.part) > call.step


async def _begun(request: Request, call: Call, record: CallRecord, entry: Entry | None) -> CallContext:
    assert entry is not None
    suspended = record.status == "suspended"
    kind = str((record.question or {}).get("kind", "")) if suspended else "in_doubt"
    attempt = record.attempts
    root, part = keys.split_run_id(record.run) if record.run else (call.root, call.part)
    foreign = bool(record.run) and (record.run, record.call) != (call.run, call.id)
    # Looked at before the rows are read: whoever is dead by now has written nothing since, and a record that is
    # unchanged then is what they left. The other way round, work that ends in between would pass for a doubt.
    timely = may_still_run(record, entry, request.now)
    alive = timely or is_at_it(request, record, entry)
    executing = request.executes(entry.key)
    wanted: list[Key] = [
        keys.answer(root, part, record.call, kind, attempt),
        keys.evidence(root, part, record.call, attempt),
        entry.key,
        *([keys.tool(root, part, *(keys.parse_call_id(record.call) or (0, 0)))] if foreign else []),
        *_other_answers(request, call, attempt),
    ]
    read = await request.journal.get_many(wanted)
    request.now = max(request.now, read.now)
    answer_entry, evidence, present, *others = read.entries
    if entry.key[0] != "run" and (present is None or present.version != entry.version):
        return await look(request, call)  # others write this record, too
    orphan = foreign and others.pop(0) is None
    # Whoever answers for another call's work was shown the arguments of that call.
    covered = args_hash(record.args) if foreign else call.args_digest
    answer = _valid(read_answer(answer_entry), covered, read.now)
    if answer is not None and answer.approved and covered != call.args_digest:
        answer = None  # a yes lets the bytes run that were shown: the call they belong to carries it out
    if answer is None and request.options.approval_scope == "call":
        for other in others:
            standing = _covering(read_answer(other), call, read.now)
            # A yes to the call is none to the repeat that it turned out to be: that had not been shown.
            if standing is not None and standing.approved and (kind not in _REPEATS or standing.kind in _REPEATS):
                answer, answer_entry = standing, other
    if answer is None:
        answer_entry = None
    if suspended:
        state = State.WAITING if answer is None else State.ANSWERED
        return _context(request, call, state, record, entry, answer=answer, answer_entry=answer_entry)
    alive = alive and evidence is None
    if record.status == "running":
        under_way = (timely and alive) or executing or request.executes(entry.key)
        state = State.RUNNING if under_way else State.IN_DOUBT
    else:
        state = State.FAILED if record.status == "failed" else State.IN_DOUBT
    return _context(
        request,
        call,
        state,
        record,
        entry,
        answer=answer,
        answer_entry=answer_entry,
        evidence=evidence,
        may_still_run=alive,
        orphan=orphan,
    )


def may_still_run(record: CallRecord, entry: Entry, now: int) -> bool:
    """Whether a call that was begun is in no doubt yet: its owner may live, and its time is not over.

    The body of one whose time is over may be executing all the same, see `is_at_it`: a person may say what became of
    it, but nothing begins beside it.
    """
    if record.status == "failed":
        return False
    owner = read_owner(record.owner)
    if owner is not None and is_dead(owner):
        return False
    return now - (record.started_at or entry.updated_at) < record.ttl_ms


def is_at_it(request: Request, record: CallRecord, entry: Entry) -> bool:
    """Whether the body of a call that was begun must be taken for alive however old it is: its owner certainly lives.

    A clock may jump, a process may be stopped and wake up, a body may take longer than anybody thought. Where the owner
    cannot be seen, on another host, time decides alone; so it does where the body's own code has ended, and only what
    it left behind in other threads may go on.
    """
    if record.status == "failed" or record.ended:
        return False
    owner = read_owner(record.owner)
    if owner is not None and owner.id == request.owner.id:
        return request.executes(entry.key, left=True)
    return owner is not None and is_alive(owner)


def owes_an_end(request: Request, call: Call) -> bool:
    """Whether the run that a sub-agent's call drove, or one below it, holds a call whose end nobody knows."""
    child = keys.child_id(call.root, call.part, call.id)
    doubtful = {key[2] for key, entry in request.rows.items() if _is_doubt(request, key, entry)} - {keys.ROOT}
    for part in doubtful:
        run, seen = part, set[str]()
        while run not in (child, call.root, *seen):
            seen.add(run)
            head = request.rows.get(keys.head(call.root, run))
            parent = head.value.get("parent") if head is not None and isinstance(head.value, dict) else None
            run = str(parent.get("run")) if isinstance(parent, dict) else call.root
        if run == child:
            return True
    return False


def _is_doubt(request: Request, key: Key, entry: Entry) -> bool:
    if len(key) != 6 or key[3] != "tool" or key[2] == keys.ROOT:
        return False
    record = request.record_of(entry)
    failed = record.status == "failed" and not record.certain
    return record.side_effect and (failed or record.status in ("running", "in_doubt"))


def _other_answers(request: Request, call: Call, attempts: int) -> list[Key]:
    if request.options.approval_scope != "call":
        return []
    questions = [*((kind, 0) for kind in AHEAD), *(("in_doubt", n) for n in range(1, attempts + 1))]
    return [keys.answer(call.root, call.part, call.id, kind, attempt) for kind, attempt in questions]


def _held(request: Request, call: Call) -> Answer | None:
    """Return an answer that was passed before this call's question, if it covers these very arguments."""
    if not request.held:
        return None
    ours = f"{call.run}/{call.id}"
    ids = (call.id, call.provider_id) if call.provider_id else (call.id,)
    names = [*(f"{call.run}/{name}" for name in ids), *(f"{ours}/{kind}/0" for kind in AHEAD)]
    if call.part == keys.ROOT:
        names += ids
    for name in names:
        answer = request.held.get(name)
        if _covering(answer, call, request.now) is None:
            continue
        # A provider gives one id to many calls; one answer is for one of them.
        if request.memo.setdefault((call.run, name, "held"), ours) == ours:
            request.unused.discard(name)
            return answer
    return None


def _covering(answer: Answer | None, call: Call, now: int) -> Answer | None:
    """Return the answer if it covers these very arguments, and an approval has not expired."""
    return _valid(answer, call.args_digest, now)


def _valid(answer: Answer | None, args_digest: str, now: int) -> Answer | None:
    if answer is None or answer.args_digest != args_digest:
        return None
    if answer.approved and answer.expires_at is not None and answer.expires_at <= now:
        return None
    return answer


def _context(
    request: Request,
    call: Call,
    state: State,
    record: CallRecord | None,
    entry: Entry | None,
    *,
    answer: Answer | None = None,
    answer_entry: Entry | None = None,
    evidence: Entry | None = None,
    may_still_run: bool = False,
    orphan: bool = False,
) -> CallContext:
    return CallContext(
        call=call,
        state=state,
        record=record,
        entry=entry,
        answer=answer,
        answer_entry=answer_entry,
        evidence=evidence,
        may_still_run=may_still_run,
        orphan=orphan,
        request=request,
        now=request.now,
        findings=Findings(request, call),
    )
