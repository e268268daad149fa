"""The run as lists show it: its head row, and whether anybody still drives it. Reading only."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from gnl_core import keys
from gnl_core.approvals import Interrupt
from gnl_core.decisions import question_of
from gnl_core.errors import StoreCorruptError
from gnl_core.journal.port import Entry, Journal, JsonValue
from gnl_core.lock import holder
from gnl_core.records import CallRecord, RunStatus, read_call, stamped

ViewStatus: TypeAlias = RunStatus | Literal["interrupted", "ready"]
"""A run's status as people read it. Of runs whose head says running, 'interrupted' are those whose driver is dead, and
'ready' the forks, and new executions of earlier work, that nobody has driven yet."""

Driver: TypeAlias = Literal["alive", "gone", "never"]
"""Who drives a request: somebody who may be alive, nobody any more, or nobody yet."""

STATUSES: tuple[RunStatus, ...] = ("running", "suspended", "completed", "failed", "canceled")
"""Every status that a head may hold."""

_TEXTS = ("agent", "thread", "resource", "channel", "actor", "model", "work_key", "follows", "followed_by")
_NUMBERS = ("created_at", "changed_at", "steps", "calls", "questions", "waits")
_OBJECTS = ("error", "parent", "forked_from")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """One run, from its head row.

    Attributes:
        run_id: The root's id, or a sub-agent's.
        status: Where it stands.
        agent: Name of the agent; '' where the caller gave none. So with the texts below.
        thread_id: Conversation it belongs to.
        resource_id: Person on whose behalf it runs.
        channel: How it was asked for.
        actor: Who asked for it.
        model: 'provider/model'.
        steps: Model steps recorded when the last drive ended; of a run that is running or interrupted, there are more.
        calls: Tool calls recorded then.
        questions: Questions open then, whatever has been answered since.
        waits: Waits of a workflow that were open then, whatever has been sent since.
        created_at: Milliseconds of the store's clock.
        changed_at: Milliseconds of the store's clock at the last change of status.
        error: {'code', 'message'} of a failed run.
        parent: {'run', 'call'} of a sub-agent's run.
        forked_from: {'run', 'step'} of a fork.
        work_key: The caller's name for its work; '' where the caller named none, and where an earlier release began it.
        follows: The run whose work this one does anew.
        followed_by: The run that does its work anew.
        forking: Whether the fork is still being copied.
        in_doubt: Questions ('<run>/<call>/in_doubt/<attempt>') about calls that began and whose end nobody recorded;
            filled for interrupted runs.
    """

    run_id: str
    status: ViewStatus
    agent: str = ""
    thread_id: str = ""
    resource_id: str = ""
    channel: str = ""
    actor: str = ""
    model: str = ""
    steps: int = 0
    calls: int = 0
    questions: int = 0
    waits: int = 0
    created_at: int = 0
    changed_at: int = 0
    error: Mapping[str, JsonValue] | None = None
    parent: Mapping[str, JsonValue] | None = None
    forked_from: Mapping[str, JsonValue] | None = None
    work_key: str = ""
    follows: str = ""
    followed_by: str = ""
    forking: bool = False
    in_doubt: tuple[str, ...] = ()

    def to_json(self) -> dict[str, JsonValue]:
        """Return the summary for programs; every member is there."""
        return {
            "run_id": self.run_id,
            "status": self.status,
            "agent": self.agent,
            "thread_id": self.thread_id,
            "resource_id": self.resource_id,
            "channel": self.channel,
            "actor": self.actor,
            "model": self.model,
            "steps": self.steps,
            "calls": self.calls,
            "questions": self.questions,
            "waits": self.waits,
            "created_at": self.created_at,
            "changed_at": self.changed_at,
            "error": dict(self.error) if self.error is not None else None,
            "parent": dict(self.parent) if self.parent is not None else None,
            "forked_from": dict(self.forked_from) if self.forked_from is not None else None,
            "work_key": self.work_key,
            "follows": self.follows,
            "followed_by": self.followed_by,
            "forking": self.forking,
            "in_doubt": list(self.in_doubt),
        }


def driver_of(lock: Entry | None, beat: Entry | None, now: int) -> Driver:
    """Return who drives a request.

    Args:
        lock: The row `keys.lock(root)`.
        beat: The row `keys.beat(root)`, of the same moment.
        now: The store's clock of that moment, in milliseconds.

    Raises:
        StoreCorruptError: The lock row cannot be read.
        JournalFormatError: It was written by a newer release.
    """
    if lock is None:
        return "never"
    return "gone" if holder(lock, beat, now) is None else "alive"


def read_head(entry: Entry, *, driver: Driver = "alive") -> RunSummary:
    """Return the summary of a head row.

    Args:
        entry: The row at `keys.head(root, part)`.
        driver: Who drives the request.

    Raises:
        StoreCorruptError: The row holds no head.
        JournalFormatError: It was written by a newer release.
    """
    value = stamped(entry)
    status: Any = value.get("status")
    try:
        if status not in STATUSES:
            raise ValueError("status")
        texts = _members(value, _TEXTS, str, "")
        numbers = _members(value, _NUMBERS, int, 0)
        objects = _members(value, _OBJECTS, dict, None)
    except ValueError as error:
        where = "/".join(entry.key)
        raise StoreCorruptError(
            f"the row {where} holds no head of a run that can be read ({error}); run `gnl doctor`", key=where
        ) from None
    if status == "running" and driver != "alive":
        made = objects["forked_from"] is not None or texts["follows"]
        status = "ready" if driver == "never" and made else "interrupted"
    return RunSummary(
        run_id=keys.run_id_of(entry.key[1], entry.key[2]),
        status=status,
        thread_id=texts.pop("thread"),
        resource_id=texts.pop("resource"),
        forking=value.get("forking") is True,
        **texts,
        **numbers,
        **objects,
    )


def _members(value: Mapping[str, Any], names: Sequence[str], kind: type, default: Any) -> dict[str, Any]:
    found = {}
    for name in names:
        member = value.get(name)
        if member is None:
            member = default
        elif type(member) is not kind:  # read from JSON, so of no subclass; and a bool is no number
            raise ValueError(name)
        found[name] = member
    return found


async def parts_of(journal: Journal, root: str) -> list[str]:
    """Return the parts of a request that hold rows, the root run '~' first: two reads a part, none of its values.

    Rows of one part lie together, so the next part is the first row after the last possible one of this part.
    """
    found: list[str] = []
    after = None
    while True:
        page = await journal.scan(keys.request(root), after=after, limit=1)
        part = page.entries[0].key[2] if page.entries and len(page.entries[0].key) > 2 else None
        if part is None or part in found:
            return sorted((part for part in found if part != "req"), key=lambda part: (part != keys.ROOT, part))
        found.append(part)
        # Every family is a lower-case word, which '~' follows.
        after = (*keys.request(root), part, "~")


async def call_rows(journal: Journal, root: str, part: str, *, blobs: bool = False) -> AsyncIterator[Entry]:
    """Yield the rows of a run's tool calls: those by position, then those by arguments."""
    for family in ("tool", "args"):
        after = None
        while True:
            page = await journal.scan(("run", root, part, family), after=after, blobs=blobs)
            for entry in page.entries:
                yield entry
            after = page.after
            if after is None:
                break


def open_question(
    root: str, part: str, record: CallRecord, entry: Entry, *, alive: bool, now: int, provider_id: str = ""
) -> Interrupt | None:
    """Return what a call asks a person, answered or not; None where it asks nothing.

    Args:
        root: The root run's id.
        part: The part of the request that the call belongs to.
        record: The call's record.
        entry: Its row.
        alive: Whether the request's driver may be alive: then a call that runs is just running.
        now: The store's clock, in milliseconds.
        provider_id: The id that the model's provider gave the call.
    """
    if record.status == "running" and alive:
        return None
    return question_of(root, part, record, entry, now, provider_id=provider_id)


async def doubts_of(journal: Journal, root: str, now: int) -> tuple[str, ...]:
    """Return the questions about calls in doubt of a request whose driver is dead, in the order of its parts and calls.

    Args:
        journal: The journal.
        root: The root run's id.
        now: The store's clock, in milliseconds.

    Raises:
        StoreCorruptError: A row is no call record.
        JournalFormatError: A row was written by a newer release.
    """
    found: dict[str, None] = {}
    for part in await parts_of(journal, root):
        rows = [(entry, read_call(entry)) async for entry in call_rows(journal, root, part)]
        for entry, record in await originals(journal, rows):
            asked = open_question(root, part, record, entry, alive=False, now=now)
            if asked is not None and asked.kind == "in_doubt":
                found[asked.question] = None
    return tuple(found)


async def originals(journal: Journal, rows: Sequence[tuple[Entry, CallRecord]]) -> list[tuple[Entry, CallRecord]]:
    """Return the rows with what is recorded outside of the run filled in.

    A shadow that is not settled is replaced by the record it shadows, since another run may have settled that one; a
    settled shadow keeps what its run was told, and gets `run` and `call` of the work that it replays.

    Raises:
        StoreCorruptError: An original is no call record.
        JournalFormatError: An original was written by a newer release.
    """
    found = list(rows)
    shadows = {number: keys.decode(record.mirror_of) for number, (_, record) in enumerate(rows) if record.mirror_of}
    if not shadows:
        return found
    read = await journal.get_many(list(shadows.values()))
    for number, original in zip(shadows, read.entries, strict=True):
        if original is None:
            continue
        entry, record = rows[number]
        source = read_call(original)
        found[number] = (
            (entry, dataclasses.replace(record, run=source.run, call=source.call))
            if record.terminal
            else (original, source)
        )
    return found
