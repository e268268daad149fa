"""The reading side of the journal for people: lists of runs, and one run as it stands.

Nothing here takes a model or a tool, so looking at a run executes nothing; and nothing here writes.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import cast

from gnl_core import keys
from gnl_core.approvals import Answer, Interrupt, read_answer
from gnl_core.errors import JournalFormatError, RunNotFoundError, StoreCorruptError
from gnl_core.journal import scan_all
from gnl_core.journal.port import Entry, Journal, JsonValue
from gnl_core.model.messages import Message, ReasoningPart, ToolCallPart, message_from_json
from gnl_core.records import CallRecord, StepRecord, read_call, read_step, stamped
from gnl_core.run_list import RunPage, count_runs_by_status, list_runs
from gnl_core.run_view import CallView, RunView, StepView
from gnl_core.summary import Driver, RunSummary, ViewStatus, driver_of, open_question, originals, parts_of, read_head
from gnl_core.workflow.view import is_workflow_row, workflow_view

__all__ = [
    "CallView",
    "RunPage",
    "RunSummary",
    "RunView",
    "StepView",
    "ViewStatus",
    "count_runs_by_status",
    "list_runs",
    "read_run",
]


_MOST_GAPS = 100
"""How many model steps that are missing are told of one by one."""


@dataclass(slots=True)
class _Rows:
    """What stands below one run's part, read row by row."""

    run_id: str
    driver: Driver
    now: int
    steps: dict[int, tuple[Entry, StepRecord]] = field(default_factory=dict)
    calls: dict[str, tuple[Entry, CallRecord]] = field(default_factory=dict)
    by_args: dict[str, tuple[Entry, CallRecord]] = field(default_factory=dict)
    messages: set[str] = field(default_factory=set)
    answers: list[tuple[str, Answer]] = field(default_factory=list)
    input: Mapping[str, JsonValue] = field(default_factory=dict)
    incidents: int = 0
    problems: list[str] = field(default_factory=list)
    children: dict[str, RunSummary] = field(default_factory=dict)
    workflow: list[Entry] = field(default_factory=list)

    def record(self, call: str) -> tuple[Entry, CallRecord] | None:
        """Return the record that answers a call: its own, or one of the same arguments."""
        return self.calls.get(call) or self.by_args.get(call)


async def read_run(journal: Journal, run_id: str, *, blobs: bool = False) -> RunView:
    """Read one run: no model, no tool, no write.

    Rows that cannot be read, and gaps, are told in `problems` and do not hide the rest. A run that is being driven
    meanwhile is shown as it stands while its rows are read; it is no snapshot.

    Args:
        journal: The journal.
        run_id: A root run's id, or a sub-agent's.
        blobs: Whether to read outputs of more than 64 KB too.

    Raises:
        RunNotFoundError: No such run.
        StoreCorruptError: Its head cannot be read.
        JournalFormatError: Its head was written by a newer release.
        JournalError: The store cannot be read.
    """
    root, part = keys.split_run_id(run_id)
    read = await journal.get_many([keys.head(root, part), keys.lock(root), keys.beat(root), keys.halt(root)])
    head, lock, beat, halt = read.entries
    if head is None:
        raise RunNotFoundError(
            f"no run {run_id!r} in this journal; `gnl runs list` shows those there are", run_id=run_id
        )
    rows = _Rows(run_id, driver="gone", now=read.now)
    try:
        rows.driver = driver_of(lock, beat, read.now)
    except (StoreCorruptError, JournalFormatError) as error:
        rows.problems.append(str(error))
    summary = read_head(head, driver=rows.driver)
    await _read_rows(rows, journal, root, part, blobs=blobs)
    rows.calls = dict(zip(rows.calls, await originals(journal, list(rows.calls.values())), strict=True))
    await _read_children(rows, journal, root)
    steps = tuple(_step(rows, number) for number in sorted(rows.steps))
    shown = {call.id for step in steps for call in step.calls}
    others = [call for call in (*rows.calls, *rows.by_args) if call not in shown]
    asked = {call.id: call for step in rows.steps.values() for call in step[1].response.tool_calls}
    for call in dict.fromkeys(others):
        _, record = rows.record(call) or (None, None)
        asked[call] = ToolCallPart(call, record.tool if record else "", dict(record.args) if record else None)
    # Nothing begins in a halted run, so nobody is asked whether it may; what is in doubt can still be settled.
    questions = tuple(one for one in _questions(rows, asked.values()) if halt is None or one.kind == "in_doubt")
    if summary.status == "interrupted":
        in_doubt = tuple(question.question for question in questions if question.kind == "in_doubt")
        summary = dataclasses.replace(summary, in_doubt=in_doubt)
    is_workflow = rows.workflow or rows.input.get("kind") == "workflow"
    workflow = workflow_view(rows.workflow, rows.problems) if is_workflow else None
    return RunView(
        run=summary,
        messages=tuple(_messages(rows)),
        system=system if isinstance(system := rows.input.get("system"), str) else None,
        steps=steps,
        calls=tuple(_call(rows, asked[call]) for call in dict.fromkeys(others)),
        questions=questions,
        answers=tuple(rows.answers),
        children=tuple(rows.children.values()),
        incidents=rows.incidents,
        halted=halt.value if halt is not None and isinstance(halt.value, dict) else None,
        workflow=workflow,
        problems=(*rows.problems, *_gaps(rows, summary)),
    )


# Reading the rows --------------------------------------------------------------------------------------------------


async def _read_rows(rows: _Rows, journal: Journal, root: str, part: str, *, blobs: bool) -> None:
    async for entry in scan_all(journal, ("run", root, part), blobs=blobs):
        try:
            _sort_in(rows, entry)
        except (StoreCorruptError, JournalFormatError) as error:
            rows.problems.append(str(error))
        except ValueError:
            rows.problems.append(f"the row {'/'.join(entry.key)} is no row of a run; run `gnl doctor`")


def _sort_in(rows: _Rows, entry: Entry) -> None:
    match entry.key[3:]:
        case ("input",):
            rows.input = stamped(entry)
        case ("model", number):
            rows.steps[int(number)] = (entry, read_step(entry))
        case ("tool", step, position):
            rows.calls[keys.call_id(int(step), int(position))] = (entry, read_call(entry))
        case ("args", _, _):
            record = read_call(entry)
            for call in (record.call, *record.resolved):
                rows.by_args[call] = (entry, record)
        case ("msg", digest):
            rows.messages.add(digest)
        case ("answer", call, kind, attempt):
            answer = read_answer(entry)
            if answer is None:
                raise StoreCorruptError(
                    f"the row {'/'.join(entry.key)} holds no answer that can be read: it counts as none"
                )
            rows.answers.append((f"{rows.run_id}/{call}/{kind}/{int(attempt)}", answer))
        case ("incident", *_):
            rows.incidents += 1
        case _ if is_workflow_row(entry.key):
            rows.workflow.append(entry)
        case _:
            pass


async def _read_children(rows: _Rows, journal: Journal, root: str) -> None:
    parts = [part for part in await parts_of(journal, root) if part != keys.ROOT]
    if not parts:
        return
    read = await journal.get_many([keys.head(root, part) for part in parts])
    for entry in read.entries:
        try:
            child = read_head(entry, driver=rows.driver) if entry is not None else None
        except (StoreCorruptError, JournalFormatError) as error:
            rows.problems.append(str(error))
            continue
        parent = child.parent or {} if child is not None else {}
        if child is not None and parent.get("run") == rows.run_id:
            rows.children[str(parent.get("call"))] = child


# What they show ----------------------------------------------------------------------------------------------------


def _step(rows: _Rows, number: int) -> StepView:
    entry, record = rows.steps[number]
    response = record.response
    return StepView(
        number=number,
        model=record.model,
        stop_reason=response.stop_reason,
        usage=response.usage,
        text=response.text,
        reasoning="".join(part.text for part in response.parts if isinstance(part, ReasoningPart)),
        calls=tuple(_call(rows, call) for call in response.tool_calls),
        recorded_at=entry.updated_at,
    )


def _call(rows: _Rows, call: ToolCallPart) -> CallView:
    found = rows.record(call.id)
    child = rows.children[call.id].run_id if call.id in rows.children else ""
    if found is None:
        return CallView(id=call.id, tool=call.name, args=call.args, status="missing", child=child)
    entry, record = found
    asked = _question(rows, call, entry, record)
    return CallView(
        id=call.id,
        tool=call.name,
        args=call.args,
        status=record.status,
        in_doubt=asked is not None and asked.kind == "in_doubt",
        side_effect=record.side_effect,
        attempts=record.attempts,
        # A running record holds no time of its own: its row was written at that very time.
        started_at=record.started_at or (entry.updated_at if record.status == "running" else 0),
        updated_at=entry.updated_at,
        output=_output(rows, entry, record),
        in_blob=record.in_blob and entry.blob is None,
        error=record.error,
        text=record.text,
        cause=record.cause,
        settled_by=record.settled_by,
        replayed_from=_source(rows, record, call),
        copied_from=record.copied_from,
        question=asked.question if asked is not None else "",
        child=child,
    )


def _source(rows: _Rows, record: CallRecord, call: ToolCallPart) -> str:
    """Return the call whose work this one replays; '' where it is its own."""
    if record.run not in ("", rows.run_id):
        return f"{record.run}/{record.call}"
    return record.call if record.call != call.id else ""


def _messages(rows: _Rows) -> Iterable[Message]:
    messages = rows.input.get("messages", [])
    for message in messages if isinstance(messages, list) else []:
        try:
            yield message_from_json(message)
        except (ValueError, TypeError) as error:
            rows.problems.append(f"the input of run {rows.run_id!r} holds a message that cannot be read ({error})")


def _output(rows: _Rows, entry: Entry, record: CallRecord) -> JsonValue:
    if not record.in_blob or entry.blob is None:
        return record.output
    try:
        return cast("JsonValue", json.loads(entry.blob))
    except (ValueError, RecursionError):
        rows.problems.append(f"the blob of the row {'/'.join(entry.key)} is no JSON; run `gnl doctor`")
        return None


def _questions(rows: _Rows, calls: Iterable[ToolCallPart]) -> Iterable[Interrupt]:
    names: set[str] = set()
    for call in calls:
        found = rows.record(call.id)
        asked = _question(rows, call, *found) if found is not None else None
        if asked is not None and asked.question not in names:
            names.add(asked.question)
            yield asked


def _question(rows: _Rows, call: ToolCallPart, entry: Entry, record: CallRecord) -> Interrupt | None:
    """Return what a call asks; nothing where a person has answered and no drive has read it yet."""
    root, part = keys.split_run_id(rows.run_id)
    asked = open_question(
        root, part, record, entry, alive=rows.driver == "alive", now=rows.now, provider_id=call.provider_id
    )
    if asked is None:
        return None
    for name, answer in rows.answers:
        expired = answer.approved and answer.expires_at is not None and answer.expires_at <= rows.now
        if name == asked.question and answer.args_digest == asked.args_digest and not expired:
            return None
    return asked


def _gaps(rows: _Rows, summary: RunSummary) -> Iterable[str]:
    """Yield what is missing between the records: a live call must never fill such a hole."""
    start = f"run {rows.run_id!r} has a gap: "
    fork = "; nothing is run in its place. Fork the run at step"
    # Only of a run that came to rest do the head's counts hold.
    told = summary.steps if summary.status in ("completed", "suspended") else 0
    count = max((*rows.steps, told - 1), default=-1) + 1
    missing = (number for number in range(count) if number not in rows.steps)
    for number in itertools.islice(missing, _MOST_GAPS):
        yield f"{start}model step {number} of {count} is missing{fork} {number}"
    if (gone := count - len(rows.steps)) > _MOST_GAPS:  # a count comes from disk, and may be any number
        yield f"{start}{gone} model steps of {count} are missing; the first {_MOST_GAPS} are named"
    for number in sorted(rows.steps):
        for reference in rows.steps[number][1].add:
            call, step, message = reference.get("call"), reference.get("step"), reference.get("msg")
            if isinstance(call, str) and rows.record(call) is None:
                made, _ = keys.parse_call_id(call) or (number, 0)
                yield f"{start}step {number} builds on call {call}, whose record is missing{fork} {made}"
            if isinstance(step, int) and step not in rows.steps:
                yield f"{start}step {number} builds on step {step}, which is missing{fork} {step}"
            if isinstance(message, str) and message not in rows.messages:
                yield f"{start}step {number} builds on a message that is missing{fork} {number}"
