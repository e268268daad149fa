"""Begin the same work anew under a new id, once what the earlier execution did is settled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gnl_core import keys
from gnl_core.decisions import load_rows
from gnl_core.errors import (
    ChildRunError,
    RolloverRefusedError,
    RunAgentMismatchError,
    RunBusyError,
    RunNotFoundError,
    RunOwnerMismatchError,
    RunSweptError,
    StoreCorruptError,
)
from gnl_core.journal import get, scan_all
from gnl_core.journal.port import Applied, Create, Entry, Expect, Journal, JsonValue, Key, Op, Put, Replace
from gnl_core.journal.send import send
from gnl_core.lock import holder, release_op
from gnl_core.outcome import head_ops, new_head, read_head
from gnl_core.records import FORMAT, CallRecord, read_call
from gnl_core.row_check import check_rows
from gnl_core.summary import originals

_TRIES = 5
_MOST_SLOTS = 1_000
"""How many taken ids are passed over at most."""


async def rollover_run(
    journal: Journal, run_id: str, *, agent: str | None = None, resource_id: str | None = None
) -> str:
    """Make a new execution of a run's work, to be driven from its beginning; return the new run's id.

    The new run has the next free id, '<id>#2' of one that a work key gave and '<id>@2' of any other, and begins with
    what the old one began with: messages, person, conversation, limits, work. Nothing is driven now; `resume_run` does,
    or `Gnl.run` with the work key, which goes to the newest execution. An id that names a run, or one that was swept,
    is passed over.

    **What the old run did is done again.** Its records protect no call of the new one. Whatever looks across runs still
    does: windows beyond the run, markers of the conversation, the person's jobs from other channels.

    Called again with the same old run it returns the same new id, and so it does for whoever calls at the same time. Of
    a run that was made so and has not been driven yet it returns that run's own id: there is nothing to begin anew. A
    new run that was purged since is named all the same: a prompt under its id begins it. An old run that was not done
    is not gone on with any more (`RunFollowedError`); one that was is replayed as ever.

    Args:
        journal: The store.
        run_id: A root run.
        agent: Whose run it must be; None: anyone's.
        resource_id: On behalf of which person it must be; None: anyone's.

    Raises:
        RunNotFoundError: No such run.
        RunOwnerMismatchError, RunAgentMismatchError: It is another person's, or another agent's; neither is named.
        RunSweptError: It was removed by a sweep, and with it what it began with.
        ChildRunError: It is a sub-agent's.
        RunBusyError: Somebody drives it.
        RolloverRefusedError: It waits for a person, a call or an undoing of it is in doubt, or it is none that can be
            begun anew: a batch's item, a fork or a replay of named work.
        StoreCorruptError, JournalFormatError, JournalGapError: Its rows cannot be read.
    """
    root, part = keys.split_run_id(run_id)
    if part != keys.ROOT:
        raise ChildRunError(
            f"run {run_id!r} is a sub-agent's; roll over its root run {root!r}", run_id=run_id, root=root
        )
    for _ in range(_TRIES):
        rows, now = await load_rows(journal, root)
        _check_whose(rows, root, agent, resource_id)
        known = await _known(journal, rows, root)
        if known is not None:
            return known
        _refuse_driven(rows, root, now)
        await _check_settled(journal, rows, root)
        new, free = await _next_slot(journal, root, rows)
        outcome, cancelled = await send(journal, (*free, *_seed(rows, root, new, now)), run_id=root)
        if cancelled is not None:
            raise cancelled
        if isinstance(outcome, Applied):
            return new
    raise RunBusyError(
        f"run {root!r} was changed by others {_TRIES} times while this call looked at it; try again",
        retry_after=1,
        run_id=root,
    )


async def newest_execution(journal: Journal, run_id: str) -> str:
    """Return the id of the newest execution of named work, whoever rolled it over.

    It is looked up in an index, and not by following one run to the next: the earlier ones may have been swept. Where
    the newest one was swept itself and an earlier one was not, that one still names it.

    Args:
        journal: The store.
        run_id: What `derived_run_id` gave; returned where there is no later execution.

    Raises:
        JournalError: The store cannot be read.
    """
    newest, number = run_id, 1
    async for entry in scan_all(journal, ("ix", "exec", run_id)):
        first, other = keys.execution_of(entry.key[4]) if len(entry.key) == 5 else ("", 0)
        if first == run_id and other > number:
            newest, number = entry.key[4], other
    while True:
        marker = await get(journal, keys.rollover(newest))
        follower = marker.value.get("next") if marker is not None and isinstance(marker.value, dict) else None
        if not isinstance(follower, str) or keys.execution_of(follower)[0] != run_id:
            return newest
        if keys.execution_of(follower)[1] <= number:  # each leads to a later one, so that this ends
            return newest
        newest, number = follower, keys.execution_of(follower)[1]


def _check_whose(rows: Mapping[Key, Entry], root: str, agent: str | None, resource_id: str | None) -> None:
    known = rows.get(keys.input_of(root))
    began = known.value if known is not None and isinstance(known.value, dict) else None
    if began is None:
        return
    if resource_id is not None and began.get("resource") != resource_id:
        raise RunOwnerMismatchError(
            f"run {root!r} does not belong to the resource_id that was passed; pass the one it began with", run_id=root
        )
    if agent is not None and began.get("agent") not in (None, agent):
        raise RunAgentMismatchError(f"run {root!r} is another agent's; roll it over with that agent", run_id=root)


async def _known(journal: Journal, rows: Mapping[Key, Entry], root: str) -> str | None:
    """Return the id that needs no making, None where one is to be made."""
    head = read_head(rows.get(keys.head(root)))
    if head is None or keys.input_of(root) not in rows:
        if await get(journal, keys.swept(root)) is not None:
            raise RunSweptError(
                f"run {root!r} was here and has been removed by a retention sweep, with what it began with; begin the "
                "work under another name",
                run_id=root,
            )
        raise RunNotFoundError(f"there is no run {root!r} in this journal", run_id=root)
    marker = rows.get(keys.rollover(root))
    if marker is not None:
        follower = marker.value.get("next") if isinstance(marker.value, dict) else None
        if not isinstance(follower, str):
            key = keys.encode(marker.key)
            raise StoreCorruptError(f"the row {key} does not say what run follows; run `gnl doctor`", key=key)
        return follower
    for member, is_ in (("erasing", "being erased"), ("forking", "being made by a fork")):
        if head.get(member):
            raise RolloverRefusedError(f"run {root!r} is {is_}, or that was broken off", run_id=root, why=member)
    return root if head.get("follows") and keys.lock(root) not in rows else None


def _refuse_driven(rows: Mapping[Key, Entry], root: str, now: int) -> None:
    driver = holder(rows.get(keys.lock(root)), rows.get(keys.beat(root)), now)
    if driver is not None:
        raise RunBusyError(
            f"run {root!r} is being driven (process {driver.pid}{f' of {driver.host[:64]!r}' if driver.host else ''}); "
            "its work is begun anew once that has ended",
            retry_after=1,
            run_id=root,
        )


# Whether it is settled ---------------------------------------------------------------------------------------------


async def _check_settled(journal: Journal, rows: Mapping[Key, Entry], root: str) -> None:
    """Refuse a run whose effects are not known, or that is not over since a person is to answer."""
    check_rows(rows, root)
    if keys.batch_of(root) is not None:
        raise RolloverRefusedError(
            f"run {root!r} does an item of a batch; run the item again in another batch", run_id=root, why="item"
        )
    calls = [
        (entry, read_call(entry))
        for key, entry in sorted(rows.items(), key=lambda row: row[0])
        if len(key) == 6 and key[3] in ("tool", "args")
    ]
    doubts, waits = list[str](), list[str]()
    halted = keys.halt(root) in rows
    for (row, shown), (_, record) in zip(calls, await originals(journal, calls), strict=True):
        name = f"{keys.run_id_of(root, row.key[2])}/{shown.call} ({shown.tool})"
        if _in_doubt(record):
            doubts.append(name)
        elif record.status == "suspended" and not halted:
            waits.append(name)
    if doubts:
        raise RolloverRefusedError(
            f"run {root!r} has calls that began and whose end nobody knows: {_some(doubts)}. A new execution would "
            "repeat what may have happened; settle them first (`gnl approvals list`), then roll over",
            run_id=root,
            why="in_doubt",
            calls=list(dict.fromkeys(doubts)),
        )
    undoing = [key[4] for key, entry in rows.items() if len(key) == 5 and key[3] == "comp" and _open(entry)]
    if undoing:
        raise RolloverRefusedError(
            f"the effects of run {root!r} are being undone, and of {_some(undoing)} nobody knows whether that is done; "
            "go on with compensate_run first",
            run_id=root,
            why="undoing",
            calls=undoing,
        )
    if waits or (read_head(rows.get(keys.head(root))) or {}).get("status") == "suspended":
        raise RolloverRefusedError(
            f"run {root!r} waits for a person{': ' + _some(waits) if waits else ''}; it is not over. Answer and go on "
            "with it, or cancel it",
            run_id=root,
            why="suspended",
            calls=list(dict.fromkeys(waits)),
        )


def _in_doubt(record: CallRecord) -> bool:
    ended = record.status not in ("running", "in_doubt") and not (record.status == "failed" and not record.certain)
    return record.side_effect and not ended


def _open(undoing: Entry) -> bool:
    return isinstance(undoing.value, dict) and undoing.value.get("status") in ("running", "in doubt")


def _some(names: list[str]) -> str:
    found = list(dict.fromkeys(names))
    return ", ".join(found[:5]) + (" …" if len(found) > 5 else "")


# What it becomes ---------------------------------------------------------------------------------------------------


async def _next_slot(journal: Journal, root: str, rows: Mapping[Key, Entry]) -> tuple[str, tuple[Op, ...]]:
    """Return the next id that names nothing, and what must still hold of it."""
    derived = keys.derived_base(root)
    head = read_head(rows.get(keys.head(root))) or {}
    first, number = keys.execution_of(root) if derived is not None or head.get("follows") else (root, 1)
    if derived is not None and first != derived:
        raise RolloverRefusedError(
            f"run {root!r} is a fork or a replay of named work, and no execution of it: roll over {derived!r}, or fork "
            "this one under an id of your own",
            run_id=root,
            why="suffix",
        )
    if derived is not None and derived != root and not (head.get("follows") or head.get("work_key")):
        # What follows it would become the newest execution of that work, whose own earlier ones nobody looked at.
        raise RolloverRefusedError(
            f"run {root!r} has the id of a later execution of named work, and was begun under it as a run of its own: "
            f"roll over {derived!r}, or do this one's work under another id",
            run_id=root,
            why="suffix",
        )
    for later in range(number + 1, number + 1 + _MOST_SLOTS):
        new = keys.check_run_id(keys.execution_id(first, later))
        page = await journal.scan(keys.request(new), limit=1)
        if not page.entries and await get(journal, keys.swept(new)) is None:
            return new, (Expect(keys.swept(new), "absent"),)
    raise RolloverRefusedError(
        f"the {_MOST_SLOTS:,} ids that follow {root!r} are taken; begin the work under another name",
        run_id=root,
        why="suffix",
    )


def _seed(rows: Mapping[Key, Entry], root: str, new: str, now: int) -> list[Op]:
    """Return what begins the new run, all of it in one batch with the mark on the old one."""
    known, old = rows[keys.input_of(root)], rows[keys.head(root)]
    begun: dict[str, Any] = read_head(old) or {}
    work = known.value.get("work") if isinstance(known.value, dict) else None
    work_key = work.get("key") if isinstance(work, dict) else None
    head = new_head(
        now=now,
        model=str(begun.get("model", "")),
        agent=begun.get("agent"),
        thread=begun.get("thread"),
        resource=begun.get("resource"),
        channel=begun.get("channel"),
        actor=begun.get("actor"),
        work_key=work_key if isinstance(work_key, str) else None,
        follows=root,
    )
    marker: dict[str, JsonValue] = {"f": FORMAT, "next": new}
    return [
        *_hold(root, rows),
        Create(keys.rollover(root), marker),
        Replace(old.key, old.version, {**begun, "followed_by": new}),
        Create(keys.head(new), head),
        *(op for op in head_ops(new, keys.ROOT, None, head) if not isinstance(op, Put)),
        Create(keys.input_of(new), known.value, known.blob),
    ]


def _hold(root: str, rows: Mapping[Key, Entry]) -> tuple[Op, ...]:
    """Return what refuses the batch if somebody drove the run since it was read."""
    lock, beat = rows.get(keys.lock(root)), rows.get(keys.beat(root))
    if lock is None:
        return (Expect(keys.lock(root), "absent"),)
    if isinstance(lock.value, dict) and lock.value.get("released") is True:
        return (Expect(keys.lock(root), lock.version),)
    # Its holder is only taken for dead: the release fences it off, unless it gave a sign of life since.
    return Expect(keys.beat(root), beat.version if beat is not None else "absent"), release_op(root, lock.version)
