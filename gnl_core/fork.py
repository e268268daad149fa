"""Begin another run from a step of a recorded one."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from gnl_core import keys
from gnl_core.decisions import load_rows
from gnl_core.errors import (
    ChildRunError,
    ForkRefusedError,
    IdInvalidError,
    RunBusyError,
    RunExistsError,
    RunNotFoundError,
    RunSweptError,
)
from gnl_core.journal.port import Applied, Create, Entry, Expect, Journal, JsonValue, Key, Op, Put, Refused, Replace
from gnl_core.journal.send import send
from gnl_core.lock import holder
from gnl_core.outcome import changed, head_ops, new_head, read_head
from gnl_core.records import read_call, read_step
from gnl_core.row_check import check_rows

_CHUNK = 200


async def fork_run(*, journal: Journal, run_id: str, step: int, new_run_id: str) -> str:
    """Copy a run up to a step into a new run, to be driven from there; nothing that is copied runs again.

    Steps before `step` are copied with the calls that they asked for, and with their sub-agents' runs. A call that
    waits for a person is copied without the person's answer, so that the fork asks again. What the fork does from there
    on is done for real: a side effect that the original run did after that step happens a second time if the model asks
    for it again. A fork of a run of named work is no execution of that work: a call by the work key goes to the source.

    A fork that breaks off half-way is never driven: what stands of it says so, and another one takes another id.

    Args:
        journal: The store.
        run_id: The run to fork.
        step: How many model steps are copied, at least 0.
        new_run_id: Id of the fork.

    Returns:
        `new_run_id`.

    Raises:
        RunNotFoundError: No such run.
        RunExistsError: The new id is taken.
        RunBusyError: Somebody drives the run, or did while it was copied.
        ForkRefusedError: A call is in doubt at the cut, the run has no such step, its effects are being undone, or it
            is a workflow's or does an item of a batch.
        ChildRunError: It is a sub-agent's run.
        RunSweptError: A run of the new id was swept and left a tombstone.
        IdInvalidError: The new id may not become part of a key, or is one that only a work key gives.
    """
    root, part = keys.split_run_id(run_id)
    _check_new_id(new_run_id, root)
    if part != keys.ROOT:
        raise ChildRunError(f"run {run_id!r} is a sub-agent's; fork its root run {root!r}", run_id=run_id, root=root)
    rows, now = await load_rows(journal, root)
    source = read_head(rows.get(keys.head(root)))
    if source is None or keys.input_of(root) not in rows:
        raise RunNotFoundError(f"there is no run {run_id!r} in this journal", run_id=run_id)
    check_rows(rows, root)
    unchanged = _undriven(rows, root, now)
    _check(rows, root, step)
    copies = list(_copies(rows, root, step, new_run_id))
    head = new_head(
        now=now,
        model=str(source.get("model", "")),
        agent=source.get("agent"),
        thread=source.get("thread"),
        resource=source.get("resource"),
        channel=source.get("channel"),
        actor=source.get("actor"),
        forked_from={"run": run_id, "step": step},
    )
    making = {**head, "forking": True}
    unswept = Expect(keys.swept(new_run_id), "absent")
    created = await _write(journal, (unswept, Create(keys.head(new_run_id), making)), new_run_id)
    if isinstance(created, Refused) and created.op == 0:
        raise RunSweptError(
            f"run {new_run_id!r} was here and has been removed by a retention sweep; its id is not used again: fork "
            "under another one",
            run_id=new_run_id,
        )
    if isinstance(created, Refused):
        raise RunExistsError(f"run {new_run_id!r} exists; fork under another id", run_id=new_run_id)
    try:
        await _fill(journal, copies, root=root, new=new_run_id)
        ready = changed(head, "running", now, steps=step)
        ops: list[Op] = [op for op in head_ops(new_run_id, keys.ROOT, None, ready) if not isinstance(op, Put)]
        ops = [*unchanged, Replace(keys.head(new_run_id), created.version, ready), *ops]
        done = await _write(journal, ops, new_run_id)
        if isinstance(done, Refused):
            raise RunBusyError(
                f"run {root!r} was driven, canceled or undone while it was copied; try again under another id",
                retry_after=1,
                run_id=root,
            )
    except BaseException as error:
        error.add_note(f"the fork {new_run_id!r} is broken off: it cannot be driven; fork again under another id")
        raise
    return new_run_id


def _check_new_id(new: str, source: str) -> None:
    """Refuse an id of a fork that names other work than its source's.

    Raises:
        IdInvalidError: It may not become part of a key; or it looks derived and is not '<source>#fork-<n>'.
    """
    keys.check_run_id(new)
    first = keys.derived_base(new)
    if first is not None and (first != keys.derived_base(source) or not new.startswith(f"{first}#fork-")):
        raise IdInvalidError(
            f"new_run_id {new!r} is an id that a work key gives, and is no fork's of run {source!r}; of a run of named "
            "work a fork is called by its id with #fork-1, #fork-2 …, or by an id of your own",
            run_id=source,
        )


async def _fill(journal: Journal, copies: Sequence[Op], *, root: str, new: str) -> None:
    """Write what was copied."""
    for start in range(0, len(copies), _CHUNK):
        chunk = copies[start : start + _CHUNK]
        written = await _write(journal, chunk, new)
        if isinstance(written, Refused):
            key = keys.encode(chunk[written.op].key)
            raise ForkRefusedError(
                f"run {root!r} cannot be forked to {new!r}: the row {key} is there already; fork under another id",
                run_id=root,
            )


async def _write(journal: Journal, ops: Sequence[Op], new: str) -> Applied | Refused:
    outcome, cancelled = await send(journal, ops, run_id=new)
    if cancelled is not None:
        raise cancelled
    return outcome


def _undriven(rows: Mapping[Key, Entry], root: str, now: int) -> tuple[Expect, ...]:
    """Return the conditions under which what was read is one state: nobody drove the run while its pages were read."""
    lock, beat = rows.get(keys.lock(root)), rows.get(keys.beat(root))
    driver = holder(lock, beat, now)
    if driver is not None:
        raise RunBusyError(
            f"run {root!r} is being driven (process {driver.pid}{f' of {driver.host[:64]!r}' if driver.host else ''}); "
            "fork it once that has ended",
            retry_after=1,
            run_id=root,
        )
    return tuple(
        Expect(key, entry.version if entry is not None else "absent")
        for key, entry in ((keys.lock(root), lock), (keys.beat(root), beat))
    )


def _check(rows: Mapping[Key, Entry], root: str, step: int) -> None:
    if (read_head(rows.get(keys.head(root))) or {}).get("erasing"):
        raise ForkRefusedError(f"run {root!r} is being erased, or its erasing was broken off", run_id=root)
    value = rows[keys.input_of(root)].value
    kind = value.get("kind", "agent") if isinstance(value, dict) else "agent"
    if kind != "agent":
        is_ = {"workflow": "is a workflow's", "item": "does an item of a batch"}.get(str(kind), "is no agent's")
        raise ForkRefusedError(
            f"run {root!r} {is_}, and has no model steps to be cut between; only an agent's run can be forked",
            run_id=root,
            kind=kind,
        )
    steps = sum(1 for key in rows if len(key) == 5 and key[2:4] == (keys.ROOT, "model"))
    if type(step) is not int or not 0 <= step <= steps:
        raise ForkRefusedError(
            f"run {root!r} has {steps} model steps, so it can be forked at 0 to {steps}, not at {step!r}", run_id=root
        )
    halt = rows.get(keys.halt(root))
    if halt is not None and isinstance(halt.value, dict) and halt.value.get("compensated"):
        raise ForkRefusedError(f"the effects of run {root!r} are being undone; it cannot be forked", run_id=root)


def _copies(rows: Mapping[Key, Entry], root: str, step: int, new: str) -> Iterator[Op]:
    """Yield the operations that write what the fork starts with."""
    parts = {keys.ROOT: keys.ROOT}
    _follow(rows, root, keys.ROOT, new, parts, step=step)
    yield from _taint(rows, root, step, new, parts)
    works: set[Key] = set()
    for key, entry in rows.items():
        if len(key) < 4 or key[2] not in parts:
            continue
        part, family = key[2], key[3]
        copy = ("run", new, parts[part], *key[3:])
        if family in ("head", "input") and part != keys.ROOT:
            value = entry.value if isinstance(entry.value, dict) else {}
            yield Create(copy, {**value, "parent": _moved(value.get("parent"), root, new, parts)}, if_present="keep")
        elif family == "input":
            # A fork is no execution of the work that its source is: the same work may go on there.
            value = entry.value if isinstance(entry.value, dict) else {}
            yield Create(copy, {name: value[name] for name in value if name != "work"}, entry.blob)
        elif family in ("msg", "body", "cfg"):
            yield Create(copy, entry.value, entry.blob)
        elif family == "model" and (part != keys.ROOT or int(key[4]) < step):
            read_step(entry)
            yield Create(copy, entry.value, entry.blob)
        elif family == "tool" and (part != keys.ROOT or int(key[4]) < step):
            mirror_of = read_call(entry).mirror_of
            work = keys.decode(mirror_of) if mirror_of else ()
            if work[:2] == ("run", root) and work in rows:
                # Work recorded by its arguments within the run: the fork's calls look for it under the fork's own key.
                moved = ("run", new, *copy[2:3], *work[3:])
                mirror_of = keys.encode(moved)
                if moved not in works:  # several calls may stand for it
                    works.add(moved)
                    yield from _call(rows[work], moved, root, mirror_of="")
            yield from _call(entry, copy, root, mirror_of=mirror_of)


def _call(entry: Entry, copy: Key, root: str, *, mirror_of: str) -> Iterator[Op]:
    record = read_call(entry)
    if record.status == "released":
        return
    if record.status in ("running", "in_doubt") or (
        record.status == "failed" and record.side_effect and not record.certain
    ):
        raise ForkRefusedError(
            f"call {record.call} ({record.tool}) of run {keys.run_id_of(root, entry.key[2])!r} is in doubt, and a "
            "fork would "
            "make two runs of one doubt; settle it first, or fork before its step",
            run_id=root,
            tool_call_id=record.call,
        )
    shadow = dataclasses.replace(record, mirror_of=mirror_of, copied_from=keys.run_id_of(root, entry.key[2]))
    yield Create(copy, shadow.to_json(), entry.blob)


def _follow(
    rows: Mapping[Key, Entry], root: str, part: str, new: str, parts: dict[str, str], *, step: int | None
) -> None:
    """Find the sub-agents' runs that the copied calls stand for, and what they are called below the new root."""
    for key in rows:
        if len(key) != 5 or key[2] != part or key[3] != "model" or (step is not None and int(key[4]) >= step):
            continue
        for call in read_step(rows[key]).response.tool_calls:
            child = keys.child_id(root, part, call.id)
            if keys.head(root, child) in rows and child not in parts:
                parts[child] = keys.child_id(new, parts[part], call.id)
                _follow(rows, root, child, new, parts, step=None)


def _taint(rows: Mapping[Key, Entry], root: str, step: int, new: str, parts: Mapping[str, str]) -> Iterator[Op]:
    """Copy the mark of untrusted content, unless it came in after the cut."""
    entry = rows.get(keys.taint(root))
    mark = entry.value if entry is not None else None
    if not isinstance(mark, dict):
        return
    run = str(mark.get("run", root))
    place = keys.parse_call_id(str(mark.get("call", "")))
    if run == root and place is not None and place[0] >= step:
        return
    if run != root and run not in parts:
        return
    yield Create(keys.taint(new), {**mark, "run": new if run == root else parts[run]})


def _moved(parent: object, root: str, new: str, parts: Mapping[str, str]) -> JsonValue:
    if not isinstance(parent, dict):
        return None
    run = str(parent.get("run", ""))
    moved = new if run == root else parts.get(run, run)
    return {"run": moved, "call": parent.get("call")}
