"""Let a run begin, or go on: everything is checked before anything is written, then one batch takes the lock.

The rows are scanned first. The lock's version changes whenever anybody acquires, takes over or releases it; the batch
that takes it expects the version seen, so what was scanned is what stands, and one scan is enough.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gnl_core import keys
from gnl_core.belonging import (
    check_belonging,
    check_door,
    check_followed,
    check_input,
    check_job,
    check_kind,
    check_swept,
    thread_owner_ops,
)
from gnl_core.decisions import load_rows
from gnl_core.door import AGENT, Door
from gnl_core.errors import (
    ChildRunError,
    CompensatedRunError,
    ConfigError,
    DivergenceError,
    RefusedError,
    RunBusyError,
    RunNotFoundError,
    StoreCorruptError,
)
from gnl_core.journal.port import Applied, Create, Entry, Journal, JsonValue, Key, Op, Put
from gnl_core.journal.send import send
from gnl_core.ledger import note_refusal
from gnl_core.limits import RunLimits, read_limits, revived
from gnl_core.lock import acquire_ops
from gnl_core.model.messages import Message, message_from_json, message_to_json
from gnl_core.options import Options
from gnl_core.outcome import changed, head_ops, new_head, read_head
from gnl_core.owner import Owner, new_owner, register, unregister
from gnl_core.passed import Approvals, read_passed
from gnl_core.records import FORMAT, stamped
from gnl_core.request import Request
from gnl_core.row_check import check_rows
from gnl_core.splice import digest_json
from gnl_core.terms import Terms

_TRIES = 5
_TERMS = Terms()


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a caller asks for.

    Attributes:
        run_id: The run.
        journal: The store.
        messages: What the run is to begin with; None: it goes on with what it began with.
        system: System prompt; None: the one it began with.
        agent: Name of the agent, for lists.
        model: 'provider/model', for lists.
        approvals: Answers passed along.
        explicit_limits: Whether the options' limits were given, and not left to what was frozen.
        lock_ttl: Seconds.
        terms: On what terms the run is entered.
        door: Whose door it is entered through.
        check: Says what the caller should read of the limits that hold, given now or frozen.
    """

    run_id: str
    journal: Journal
    messages: tuple[Message, ...] | None
    system: str | None
    agent: str | None
    model: str
    approvals: Approvals
    options: Options
    explicit_limits: bool
    lock_ttl: float
    terms: Terms = _TERMS
    door: Door = AGENT
    check: Callable[[RunLimits], Sequence[str]] = lambda _: ()


@dataclass(slots=True)
class Admitted:
    """A run that may be driven now."""

    request: Request
    messages: tuple[Message, ...]
    system: str | None
    head: dict[str, Any]


async def admit(asked: Asked, *, own_loop: bool = False) -> Admitted:
    """Check, take the lock, freeze the input of a new run, record the answers that were passed along.

    Args:
        asked: What the caller asks for.
        own_loop: Whether a loop of the caller's own drives it, which may begin with nothing.

    Raises:
        RunBusyError: Somebody else drives it.
        RunNotFoundError: It is to go on, and there is no such run.
        ChildRunError: It is a sub-agent's.
        CompensatedRunError: Its effects are being undone.
        RunFollowedError: Its work was begun anew under another id, before it was done.
        RunOwnerMismatchError, RunAgentMismatchError, RunThreadMismatchError, RunActorMismatchError: It is not this
            caller's.
        ThreadOwnerMismatchError: The conversation is another person's.
        NotAnAgentRunError: It goes on through another door.
        RunInputMismatchError: It began with other content, and the terms are strict.
        RunSweptError: It was here, and a sweep removed it.
        UnknownQuestionError, AlreadyDecidedError: An answer does not fit; nothing was written.
        StoreCorruptError, JournalFormatError: Its rows cannot be read.
    """
    root, part = keys.split_run_id(asked.run_id)
    if part != keys.ROOT:
        raise ChildRunError(
            f"run {asked.run_id!r} is a sub-agent's and is driven through its root run: resume {root!r}",
            run_id=asked.run_id,
            root=root,
        )
    try:
        check_door(asked)
        for _ in range(_TRIES):
            rows, now = await load_rows(asked.journal, root)
            admitted = await _try(asked, rows, now, own_loop=own_loop)
            if admitted is not None:
                return admitted
        raise RunBusyError(
            f"run {root!r} was taken and released by others {_TRIES} times while this call looked at it; try again",
            retry_after=1,
            run_id=root,
        )
    except RefusedError as refusal:
        if asked.terms.work is not None:  # its caller knows the work by this name, and not by the run's
            refusal.detail.setdefault("work_key", asked.terms.work.key)
        await note_refusal(asked, refusal)
        raise


async def _try(asked: Asked, rows: dict[Key, Entry], now: int, *, own_loop: bool) -> Admitted | None:
    root, journal = asked.run_id, asked.journal
    check_rows(rows, root)
    known = rows.get(keys.input_of(root))
    warnings: list[str] = []
    unswept: tuple[Op, ...] = ()
    if known is None:
        unswept = await check_swept(asked)
        frozen, messages, system, options = _begin(asked, own_loop=own_loop)
    else:
        frozen = None
        messages, system, options = _go_on(asked, known, rows, warnings)
        if not messages and not own_loop:
            raise ConfigError(
                f"run {root!r} began in a loop of its caller's own, which holds its messages; go on with it there, in "
                "durable_context"
            )
    warnings += asked.check(options.limits)
    _check_halt(rows.get(keys.halt(root)), root)
    old = read_head(rows.get(keys.head(root)))
    if old is not None and old.get("erasing"):
        raise RefusedError(
            f"run {root!r} is being erased, or its erasing was broken off; erase it once more and use another id",
            run_id=root,
        )
    if old is not None and old.get("forking"):
        raise RefusedError(
            f"run {root!r} is still being made by a fork, or that fork was broken off; fork again under another id",
            run_id=root,
        )
    check_followed(rows.get(keys.rollover(root)), old, root)
    taint, owned = await _of_thread(asked, options, begins=known is None)
    answers, held = read_passed(asked.approvals, root, asked.options.actor, rows, now)
    owner = new_owner()
    ops: list[Op] = [
        *acquire_ops(
            root,
            rows.get(keys.lock(root)),
            rows.get(keys.beat(root)),
            now=now,
            owner=owner,
            ttl_ms=max(1, int(asked.lock_ttl * 1000)),
        ),
        *unswept,
        *owned,
        *answers,
    ]
    if old is None:
        head = new_head(
            now=now,
            model=asked.model,
            agent=asked.agent,
            thread=options.thread_id,
            resource=options.resource_id,
            channel=options.channel,
            actor=options.actor,
            work_key=asked.terms.work.key if asked.terms.work is not None else None,
        )
        ops += head_ops(root, keys.ROOT, None, head)
    else:
        head = old
        if old.get("status") not in ("completed", "canceled", "running"):
            head = changed(old, "running", now)
            ops += head_ops(root, keys.ROOT, old, head)
    if frozen is not None:
        ops.append(Create(keys.input_of(root), frozen))
    if options.thread_id:
        # Who works in a conversation, and when last: what retention and erasure of conversations go by.
        ops.append(Put(keys.worked(options.thread_id, options.resource_id), {"f": FORMAT}))
    fence = await _take(journal, ops, owner, root)
    if fence is None:
        return None
    request = Request(journal=journal, root=root, fence=fence, owner=owner, options=options, now=now)
    request.load(list(rows.values()))
    for warning in warnings:
        request.warn(warning)
    request.held, request.unused = held, set(held)
    request.taint = request.taint or taint
    request.untold = asked.door.kind != "agent"
    return Admitted(request, messages, system, head)


def _check_halt(entry: Entry | None, root: str) -> None:
    """Refuse a condemned run; a canceled one may be driven, which replays what is recorded."""
    value = entry.value if entry is not None else None
    if isinstance(value, dict) and value.get("compensated"):
        raise CompensatedRunError(
            f"the effects of run {root!r} are being undone, or were; it is not driven any more. Begin a new run "
            "instead, or go on undoing with compensate_run",
            run_id=root,
        )


async def _of_thread(
    asked: Asked, options: Options, *, begins: bool
) -> tuple[Mapping[str, Any] | None, tuple[Op, ...]]:
    """Return the conversation's taint, and what must hold of its owner when the run begins.

    Read before the lock is taken: nothing is awaited between taking it and handing it on.
    """
    thread = options.thread_id
    tainted = options.limits.taint_scope == "thread"
    owns = begins and options.resource_id is not None and not asked.terms.shared_thread
    if not thread or not (tainted or owns):
        return None, ()
    taint, owner = (await asked.journal.get_many([keys.thread_taint(thread), keys.thread_owner(thread)])).entries
    ops = thread_owner_ops(asked, thread, owner) if owns else ()
    value = taint.value if tainted and taint is not None else None
    return value if isinstance(value, dict) else None, ops


async def _take(journal: Journal, ops: Sequence[Op], owner: Owner, root: str) -> int | None:
    """Return the fence of the lock that was taken, None where others were there first."""
    register(owner)
    try:
        outcome, cancelled = await send(journal, ops, run_id=root)
        if cancelled is not None:
            raise cancelled
    except BaseException:
        unregister(owner)  # whatever was written: a lock of an owner that nobody knows is free at once
        raise
    if isinstance(outcome, Applied):
        return outcome.version
    unregister(owner)
    return None


def _begin(asked: Asked, *, own_loop: bool) -> tuple[dict[str, JsonValue], tuple[Message, ...], str | None, Options]:
    job = asked.door.job
    if asked.messages is None or (asked.door.kind != "agent" and job is None):
        raise RunNotFoundError(
            f"there is no run {asked.run_id!r} in this journal to go on with; it is "
            f"begun by {'running it with a prompt' if asked.door.kind == 'agent' else 'passing its input'}",
            run_id=asked.run_id,
        )
    if not asked.messages and not own_loop:
        raise ConfigError(f"run {asked.run_id!r} is to begin with nothing: pass a prompt, or messages")
    options = asked.options
    frozen: dict[str, JsonValue] = {
        "f": FORMAT,
        "messages": [message_to_json(message) for message in asked.messages],
        "system": asked.system,
        "hash": fingerprint(asked.messages, asked.system) if job is None else digest_json(job),
        "limits": options.limits.to_json(),
        "agent": asked.agent,
        "thread": options.thread_id,
        "resource": options.resource_id,
        "actor": options.actor,
        "channel": options.channel,
    }
    if asked.door.kind != "agent":
        frozen |= {"kind": asked.door.kind, "job": job}
    if asked.terms.work is not None:
        frozen["work"] = asked.terms.work.to_json()
    return frozen, asked.messages, asked.system, options


def _go_on(
    asked: Asked, known: Entry, rows: Mapping[Key, Entry], warnings: list[str]
) -> tuple[tuple[Message, ...], str | None, Options]:
    value = stamped(known)
    check_kind(asked, value.get("kind", "agent"))
    try:
        messages = tuple(message_from_json(message) for message in value["messages"])
        system = value.get("system")
        limits = read_limits(value["limits"])
        texts = {name: value.get(name) for name in ("agent", "thread", "resource", "channel", "actor")}
        if not isinstance(system, str | None) or not all(isinstance(text, str | None) for text in texts.values()):
            raise TypeError("system, agent, thread, resource, channel or actor")
    except (KeyError, TypeError, ValueError) as error:
        key = keys.encode(known.key)
        raise StoreCorruptError(
            f"the row {key} holds no input of a run that can be read ({error}); run `gnl doctor`", key=key
        ) from None
    check_belonging(asked, texts)
    check_job(asked, value.get("job"), warnings)
    if check_input(asked, messages, system, rows):
        message = (
            f"run {asked.run_id!r} began with other messages than were passed now. One run id is one job: use another "
            "for another"
        )
        if asked.options.replay == "strict":
            raise DivergenceError(
                message + ", or drive it with replay='lenient', which goes on with those it began with",
                run_id=asked.run_id,
                differs=["messages"],
            )
        warnings.append(message + "; it goes on with those it began with")
    chosen = asked.options.limits if asked.explicit_limits else revived(limits, asked.options.limits)
    options = replace(
        asked.options,
        limits=chosen,
        thread_id=texts["thread"],
        resource_id=texts["resource"],
        channel=texts["channel"],
        actor=asked.options.actor or texts["actor"],
    )
    return messages, asked.system if asked.system is not None else system, options


def fingerprint(messages: Sequence[Message], system: str | None) -> str:
    """Return the digest of what a run was asked: 32 hex digits."""
    return digest_json({"messages": [message_to_json(message) for message in messages], "system": system})
