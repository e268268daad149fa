"""Undo what a run did: its tools' own `compensate`, in reverse order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gnl_core import keys
from gnl_core.codec import decode
from gnl_core.context import Context
from gnl_core.crash import call_compensate, output_of
from gnl_core.decisions import load_rows
from gnl_core.errors import (
    ChildRunError,
    JournalError,
    NotPerformedError,
    RunBusyError,
    RunNotFoundError,
    ToolArgumentsError,
    describe,
)
from gnl_core.journal.port import (
    Applied,
    Create,
    Delete,
    Entry,
    Expect,
    Journal,
    JsonValue,
    Key,
    Op,
    Put,
    Refused,
    Replace,
)
from gnl_core.journal.send import BEGIN_TRIES, RECORD_TRIES, send
from gnl_core.lock import Heartbeat, acquire_ops, release_op
from gnl_core.outcome import read_head
from gnl_core.owner import Owner, is_alive, is_dead, new_owner, read_owner, register, unregister
from gnl_core.records import FORMAT, CallRecord, read_call
from gnl_core.resolve import provider_prefix
from gnl_core.tools import Tool, check_tools

logger = logging.getLogger("gnl_core.compensate")

_OPEN = ("running", "in doubt")
"""Undoings that began and whose end nobody knows."""

UndoStatus = Literal["to undo", "undone", "failed", "in doubt", "no compensate", "not reached"]

_TTL_MS = 30_000
_TAKEN = "somebody else took the run, or this undoing, just now: call again"
_DOUBT = "whether the call took effect is not known; look, and undo it by hand if it did"


@dataclass(frozen=True, slots=True, kw_only=True)
class Undone:
    """One effect of a run.

    Attributes:
        run_id: The run whose call it was: the root run, or a sub-agent's.
        tool_call_id: Our id of the call.
        tool_name: Name of the tool.
        status: 'to undo' (dry run), 'undone', 'failed' (its `compensate` raised `NotPerformedError`: it may begin
            again), 'in doubt' (it began and nobody knows how it ended, or it raised anything else; or of the call
            itself nobody knows whether it took effect, which stops no other), 'no compensate' (the tool declares none),
            'not reached' (an earlier one stopped it, or somebody else took it).
        message: What its `compensate` raised, or what is in doubt.
    """

    run_id: str
    tool_call_id: str
    tool_name: str
    status: UndoStatus
    message: str = ""


async def compensate_run(
    journal: Journal,
    run_id: str,
    tools: Sequence[Any] | Mapping[str, Any],
    *,
    dry_run: bool = False,
    settle: Mapping[str, bool] | None = None,
) -> tuple[Undone, ...]:
    """Undo the effects of a run and its sub-agents, the last one first; stop at the first that cannot be undone.

    The run is condemned first: nothing new starts in it from then on, and it can be neither resumed nor forked. Work
    that is recorded across runs, and what a fork copied, is left alone. Called again, it goes on where it stopped.
    The last one is the one that began last, however late its end was recorded.

    Args:
        journal: The store.
        run_id: A root run.
        tools: The tools that did the work, with their `compensate(…)`: it gets the call's arguments by name, `output`,
            and a `Context` whose idempotency key is the undoing's own.
        dry_run: Only say what would be undone; nothing is written.
        settle: What became of undoings in doubt, by '<run>/<call>': True where it is known to be undone, False where it
            is known not to be, so that its `compensate` may begin again. Not heeded for one that is known to run.

    Returns:
        One entry an effect, in the order in which they are undone.

    Raises:
        RunNotFoundError: No such run.
        ChildRunError: It is a sub-agent's: undo its root.
        RunBusyError: Somebody drives it.
        JournalError: The store cannot be used.
    """
    root, part = keys.split_run_id(run_id)
    if part != keys.ROOT:
        raise ChildRunError(f"run {run_id!r} is a sub-agent's; undo its root run {root!r}", run_id=run_id, root=root)
    checked = check_tools(tools)
    rows, now = await load_rows(journal, root)
    if read_head(rows.get(keys.head(root))) is None:
        raise RunNotFoundError(f"there is no run {run_id!r} in this journal", run_id=run_id)
    effects = _effects(rows, root)
    if dry_run:
        return tuple(_planned(rows, root, entry, checked) for entry in effects)
    owner = new_owner()
    register(owner)
    try:
        fence, cancelled = await _condemn(journal, rows, root, owner, now)
        beat = Heartbeat(journal, root, fence, _TTL_MS)
        try:
            if cancelled is not None:
                raise cancelled
            await beat.start()
            return await _undo_all(
                journal, rows, root, fence=fence, effects=effects, tools=checked, owner=owner, known=settle or {}
            )
        finally:
            try:
                await beat.stop()
            finally:
                await _give_back(journal, root, fence, owner)
    finally:
        unregister(owner)


async def _condemn(
    journal: Journal, rows: Mapping[Key, Entry], root: str, owner: Owner, now: int
) -> tuple[int, asyncio.CancelledError | None]:
    """Take the lock and let nothing new start; return the fence."""
    lock = acquire_ops(root, rows.get(keys.lock(root)), rows.get(keys.beat(root)), now=now, owner=owner, ttl_ms=_TTL_MS)
    halt = rows.get(keys.halt(root))
    flag: JsonValue = {
        **(halt.value if halt is not None and isinstance(halt.value, dict) else {}),
        "f": FORMAT,
        "compensated": True,
    }
    outcome, cancelled = await send(journal, (*lock, Put(keys.halt(root), flag)), run_id=root)
    if isinstance(outcome, Applied):
        return outcome.version, cancelled
    if cancelled is not None:
        raise cancelled
    raise RunBusyError(f"run {root!r} was taken by somebody else just now; try again", retry_after=1, run_id=root)


async def _give_back(journal: Journal, root: str, fence: int, owner: Owner) -> None:
    """Give the lock back; what was undone stays undone where that fails."""
    try:
        _, cancelled = await send(journal, (release_op(root, fence, owner),), run_id=root)
    except JournalError:
        logger.warning("the lock of run %s was not given back; others wait until its time is over", root, exc_info=True)
        return
    if cancelled is not None:
        raise cancelled


def _effects(rows: Mapping[Key, Entry], root: str) -> list[Entry]:
    """Return the rows of effects that happened or may have, the last one that began first."""
    found = [
        entry
        for key, entry in rows.items()
        if len(key) == 6 and key[3] in ("tool", "args") and _undoable(read_call(entry))
    ]

    def began(entry: Entry) -> tuple[int, tuple[tuple[int, int], ...]]:
        # Not by the row's version: a doubt that was settled late is still an early effect.
        record = read_call(entry)
        return record.started_at or entry.created_at, _place(rows, root, entry.key[2], record.call)

    return sorted(found, key=began, reverse=True)


def _place(rows: Mapping[Key, Entry], root: str, part: str, call: str) -> tuple[tuple[int, int], ...]:
    """Return (step, position) of a call, below that of the calls whose sub-agents made it."""
    place: tuple[tuple[int, int], ...] = (keys.parse_call_id(call) or (0, 0),)
    seen = {keys.ROOT}
    while part not in seen:
        seen.add(part)  # a row that somebody changed may name itself
        head = read_head(rows.get(keys.head(root, part))) or {}
        parent = head.get("parent")
        if not isinstance(parent, dict):
            break
        place = (keys.parse_call_id(str(parent.get("call"))) or (0, 0), *place)
        part = keys.split_run_id(str(parent.get("run")))[1]
    return place


def _undoable(record: CallRecord) -> bool:
    """Whether a call took effect, or may have: what is in doubt is told, so that nobody takes all for undone."""
    doubt = record.status in ("running", "in_doubt") or (record.status == "failed" and not record.certain)
    own = not record.mirror_of and not record.copied_from
    return (record.status == "succeeded" or doubt) and record.side_effect and own


def _planned(rows: Mapping[Key, Entry], root: str, entry: Entry, tools: Mapping[str, Tool]) -> Undone:
    record = read_call(entry)
    if record.status != "succeeded":
        return _item(root, entry.key[2], record, "in doubt", _DOUBT)
    known = rows.get(keys.compensation(root, entry.key[2], record.call))
    value: Mapping[str, Any] = known.value if known is not None and isinstance(known.value, dict) else {}
    if value.get("status") == "undone":
        return _item(root, entry.key[2], record, "undone")
    if value.get("status") in _OPEN:
        return _item(root, entry.key[2], record, "in doubt", _left_by(value))
    tool = tools.get(record.tool)
    status: UndoStatus = "to undo" if tool is not None and tool.compensate is not None else "no compensate"
    return _item(root, entry.key[2], record, status)


async def _undo_all(
    journal: Journal,
    rows: Mapping[Key, Entry],
    root: str,
    *,
    fence: int,
    effects: Sequence[Entry],
    tools: Mapping[str, Tool],
    owner: Owner,
    known: Mapping[str, bool],
) -> tuple[Undone, ...]:
    done: list[Undone] = []
    stopped = False
    for entry in effects:
        record, part = read_call(entry), entry.key[2]
        tool = tools.get(record.tool)
        if record.status != "succeeded":
            done.append(_item(root, part, record, "in doubt", _DOUBT))
        elif stopped:
            done.append(_item(root, part, record, "not reached"))
        elif tool is None or tool.compensate is None:
            done.append(_item(root, part, record, "no compensate"))
        else:
            row = rows.get(keys.compensation(root, part, record.call))
            said = known.get(f"{keys.run_id_of(root, part)}/{record.call}")
            done.append(await _undo(journal, root, fence, entry, tool=tool, known=row, owner=owner, said=said))
            stopped = done[-1].status != "undone"
    return tuple(done)


async def _undo(
    journal: Journal,
    root: str,
    fence: int,
    entry: Entry,
    *,
    tool: Tool,
    known: Entry | None,
    owner: Owner,
    said: bool | None,
) -> Undone:
    record, part = read_call(entry), entry.key[2]
    key = keys.compensation(root, part, record.call)
    value: Mapping[str, Any] = known.value if known is not None and isinstance(known.value, dict) else {}
    if value.get("status") == "undone":
        return _item(root, part, record, "undone")
    guard = Expect(keys.lock(root), fence)
    if known is not None and value.get("status") in _OPEN:
        owned = read_owner(value.get("owner"))
        if said is None or (owned is not None and is_alive(owned)):
            return _item(root, part, record, "in doubt", _left_by(value))
        if said:
            undone: JsonValue = {"f": FORMAT, "status": "undone", "tool": record.tool, "message": "settled by a person"}
            settled = await _apply(journal, root, (guard, Replace(key, known.version, undone)))
            return _item(root, part, record, *(("undone", "") if settled is not None else ("not reached", _TAKEN)))
    claim: JsonValue = {"f": FORMAT, "status": "running", "tool": record.tool, "owner": owner.to_json()}
    op: Op = Create(key, claim) if known is None else Replace(key, known.version, claim)
    claimed, cancelled = await send(journal, (guard, op), run_id=root)
    if cancelled is not None:
        if isinstance(claimed, Applied):  # it has not begun, so nobody is to take it for a doubt
            version = claimed.version
            await _apply(
                journal, root, (Delete(key, version) if known is None else Replace(key, version, known.value),)
            )
        raise cancelled
    if isinstance(claimed, Refused):
        return _item(root, part, record, "not reached", _TAKEN)
    run = keys.run_id_of(root, part)
    context = Context(
        run_id=run,
        tool_call_id=record.call,
        tool_name=record.tool,
        idempotency_key=f"{provider_prefix(journal)}{run}:comp:{record.call}",
    )
    status: UndoStatus = "undone"
    message = ""
    try:
        try:
            arguments: Mapping[str, object] = tool.validate(record.args)
        except ToolArgumentsError:
            arguments = record.args
        await call_compensate(tool, arguments, context, decode(output_of(record, entry.blob)))
    except NotPerformedError as error:
        status, message = "failed", describe(error)[1]
    except Exception as error:
        # As with any side effect: it may have acted before it raised, so nobody begins it again on a guess.
        status, message = "in doubt", f"{type(error).__name__}: {describe(error)[1]}"
    written: JsonValue = {"f": FORMAT, "status": status, "tool": record.tool, "message": message}
    # Not under the fence: it happened, whoever holds the run by now.
    ended = await _apply(journal, root, (Replace(key, claimed.version, written),), tries=RECORD_TRIES)
    if ended is None:
        came = f"failed ({message})" if message else "was done"
        return _item(root, part, record, "in doubt", f"it {came}, but somebody else began or settled it since")
    return _item(root, part, record, status, message)


async def _apply(journal: Journal, root: str, ops: Sequence[Op], tries: int = BEGIN_TRIES) -> Applied | None:
    """Write a batch; None where it was refused. A cancellation is raised once it is known that nothing is left open."""
    outcome, cancelled = await send(journal, ops, run_id=root, tries=tries)
    if cancelled is not None:
        raise cancelled
    return outcome if isinstance(outcome, Applied) else None


def _left_by(value: Mapping[str, Any]) -> str:
    if value.get("status") == "in doubt":
        return f"its compensate raised {value.get('message', '')}: say with settle= whether it is undone"
    owner = read_owner(value.get("owner"))
    if owner is not None and is_alive(owner):
        return f"its compensate is still running in process {owner.pid} of this host"
    if owner is not None and not is_dead(owner):
        where = f"process {owner.pid} of " + (f"host {owner.host[:64]!r}" if owner.host else "another host")
        return (
            f"its compensate began in {where}, and from here nobody can tell whether it still runs: once it does not, "
            "say with settle= whether it is undone"
        )
    return (
        "its compensate began in a process that is gone, or could not record its end: say with settle= whether it is "
        "undone"
    )


def _item(root: str, part: str, record: CallRecord, status: UndoStatus, message: str = "") -> Undone:
    return Undone(
        run_id=keys.run_id_of(root, part),
        tool_call_id=record.call,
        tool_name=record.tool,
        status=status,
        message=message,
    )
