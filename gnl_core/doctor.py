"""What `gnl doctor` looks for in a journal, and the way out of each thing it finds. It writes nothing.

The file itself is looked at by a process of its own (`gnl_core.doctor_file`): a second look at a file in a process that
has it open may cost that process its locks.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import shlex
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gnl_core import keys
from gnl_core.claims import list_claims
from gnl_core.doctor_chain import check_chain
from gnl_core.doctor_leftovers import examine_leftovers
from gnl_core.errors import GnlError, JournalError, JournalFormatError, RunNotFoundError, StoreCorruptError
from gnl_core.journal.port import Journal, JsonValue
from gnl_core.lock import holder
from gnl_core.records import stamped
from gnl_core.run_list import list_runs
from gnl_core.summary import RunSummary
from gnl_core.views import RunView, read_run
from gnl_core.workflow.check import check_names

Level = Literal["ok", "note", "waits", "fault"]
"""'ok' and 'note' need nobody; 'waits' needs a person or another drive; 'fault' is wrong and does not mend itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        check: What was looked for, a stable name: 'file.integrity', 'runs.gaps' …
        level: How it stands.
        text: What was found, one sentence.
        advice: The way out; '' where none is needed.
        run_id: The run it is about; '' for the whole journal.
        key: The encoded key of the row it is about.
        org: The organisation it is about; '' for the unscoped rows.
    """

    check: str
    level: Level
    text: str
    advice: str = ""
    run_id: str = ""
    key: str = ""
    org: str = ""

    def to_json(self) -> dict[str, JsonValue]:
        """Return the finding for programs; every member is there."""
        return {
            "check": self.check,
            "level": self.level,
            "text": self.text,
            "advice": self.advice,
            "run_id": self.run_id,
            "key": self.key,
            "org": self.org,
        }


async def examine_file(path: Path) -> list[Finding]:
    """Look at a journal's SQLite file: its soundness, its settings, and every row by itself.

    Raises:
        JournalError: The looking process came to no end; the message says how it ended.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "gnl_core.doctor_file",
        str(path),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        answer, talk = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    try:
        return [Finding(**finding) for finding in json.loads(answer)]
    except (ValueError, TypeError):
        end = talk.decode(errors="replace").strip().rpartition("\n")[2]
        raise JournalError(f"looking at {path} ended with status {process.returncode}: {end}") from None


async def examine_runs(journal: Journal) -> AsyncIterator[Finding]:
    """Look at every run of every organisation: gaps, questions and how old they are, killed drivers, their locks.

    A store that fails half-way is told as a finding of its own.
    """
    try:
        scopes = await journal.scopes(limit=1_000_000)
    except JournalError as error:
        yield Finding(check="store", level="fault", text=str(error))
        return
    for org in scopes or ("",):
        scope = journal.scoped(org) if org else journal
        try:
            async for finding in _examine_scope(scope, org):
                yield _addressed(finding)
        except JournalError as error:
            yield Finding(check="store", level="fault", text=str(error), org=org)


def _addressed(finding: Finding) -> Finding:
    """Return a finding whose advice names the organisation: without it the commands would look for nobody's runs."""
    if not finding.org or "gnl " not in finding.advice or "gnl purge" in finding.advice:  # whose commands name it
        return finding
    return dataclasses.replace(finding, advice=f"{finding.advice}; each with --org {shlex.quote(finding.org)}")


async def _examine_scope(journal: Journal, org: str) -> AsyncIterator[Finding]:
    cursor: str | None = None
    count = 0
    while True:
        page = await list_runs(journal, limit=500, cursor=cursor, newest_first=False)
        for problem in page.problems:
            yield Finding(check="rows.values", level="fault", text=problem, org=org, advice=_RESTORE)
        for run in page.runs:
            count += 1
            async for finding in _examine_run(journal, run, org):
                yield finding
        cursor = page.cursor
        if cursor is None:
            break
    yield Finding(check="runs", level="ok", text=f"{count} runs looked at", org=org)
    for check, look in (("claims.open", _examine_claims), ("erasure.leftovers", examine_leftovers)):
        try:
            for finding in await look(journal, org):
                yield finding
        except (StoreCorruptError, JournalFormatError) as error:
            # The row is a fault of its own, told where each row is looked at; here it hides what this would have told.
            yield Finding(check=check, level="note", text=f"not looked for to the end: {error}", org=org)


async def _examine_claims(journal: Journal, org: str) -> list[Finding]:
    """Tell of keyed work whose end nobody knows and that no run is asked about: no list of questions shows it."""
    now = await journal.now()
    findings = []
    # Rows that cannot be read are told where each row is looked at.
    for claim in await list_claims(journal, unreadable=[]):
        if claim.question:
            continue
        how = (
            "failed, which says nothing of what it did" if claim.status == "failed" else "nobody recorded how it ended"
        )
        who = f"run {claim.run_id!r}, which is gone" if claim.run_id else "a program without a run"
        findings.append(
            Finding(
                check="claims.open",
                level="waits",
                text=(
                    f"{claim.tool} was begun {_hours(claim.began_at, now)} ago by {who}; {how}. Its next call is "
                    "refused"
                ),
                key=claim.key,
                org=org,
                advice=(
                    f"look whether it happened; then gnl claims settle {claim.key} --result JSON (it did) or "
                    f"gnl claims release {claim.key} (it did not)"
                ),
            )
        )
    return findings


_RESTORE = "restore the row from a copy of the journal, or update gnl-semantic if a newer release wrote it"


async def _examine_run(journal: Journal, run: RunSummary, org: str) -> AsyncIterator[Finding]:
    wanted = [run.run_id]
    while wanted:
        run_id = wanted.pop(0)
        try:
            view = await read_run(journal, run_id)
        except RunNotFoundError:
            continue  # erased meanwhile
        except GnlError as error:
            yield Finding(check="rows.values", level="fault", text=str(error), run_id=run_id, org=org, advice=_RESTORE)
            continue
        now = await journal.now()
        found = (*_problems(view, org), *_waiting(view, now, org), *_workflow(view, now, org))
        for finding in (*found, *await _chain(journal, run_id, org)):
            yield finding
        wanted += [child.run_id for child in view.children]
    async for finding in _locks(journal, run, org):
        yield finding


def _problems(view: RunView, org: str) -> Iterator[Finding]:
    run_id = view.run.run_id
    for problem in view.problems:
        gap = "has a gap" in problem
        yield Finding(
            check="runs.gaps" if gap else "rows.values",
            level="fault",
            text=problem,
            run_id=run_id,
            org=org,
            advice=_before_gap(run_id) if gap else _RESTORE,
        )


async def _chain(journal: Journal, run_id: str, org: str) -> list[Finding]:
    """Tell of each step that was asked something else than the rows before it say."""
    findings = []
    for one in await check_chain(journal, run_id):
        since = ", ".join(one.since) or "what it began with"
        if one.settled:
            what = f"step {one.step} of run {run_id!r} was asked before {', '.join(one.settled)} ended as recorded now"
            findings.append(Finding(check="runs.chain", level="note", text=what, run_id=run_id, org=org))
            continue
        what = (
            f"step {one.step} of run {run_id!r} was asked something else than its rows hold now; what they add there: "
            f"{since}"
        )
        findings.append(
            Finding(check="runs.chain", level="fault", text=what, run_id=run_id, org=org, advice=_other_words(run_id))
        )
    return findings


def _other_words(run_id: str) -> str:
    root, _ = keys.split_run_id(run_id)
    return (
        "restore these rows from a copy of the journal; or, if the agent was changed and driven on with "
        f"replay='lenient', gnl runs fork {root} --step N --new-id ID goes on from before"
    )


def _before_gap(run_id: str) -> str:
    root, _ = keys.split_run_id(run_id)
    return (
        f"look outside what the run did there; then gnl runs fork {root} --step N --new-id ID goes on from before the "
        "gap. Only if rows were lost, with a disk or by hand, a copy of the journal has them"
    )


def _waiting(view: RunView, now: int, org: str) -> Iterator[Finding]:
    run = view.run
    if run.status == "interrupted" and run.parent is None:
        yield Finding(
            check="runs.interrupted",
            level="waits",
            text=f"run {run.run_id!r} has said running for {_hours(run.changed_at, now)}, and nobody drives it",
            run_id=run.run_id,
            org=org,
            advice=_drive_on(view),
        )
    waits = view.workflow is not None and any(wait.open for wait in view.workflow.waits)
    if run.status == "suspended" and run.parent is None and not (view.questions or view.children or waits):
        yield Finding(
            check="runs.answered",
            level="waits",
            text=f"every question of run {run.run_id!r} is answered, and nobody has driven it since",
            run_id=run.run_id,
            org=org,
            advice=_drive_on(view),
        )
    for question in view.questions:
        in_doubt = question.kind == "in_doubt"
        yield Finding(
            check="runs.in_doubt" if in_doubt else "runs.waiting",
            level="waits",
            text=(
                f"{question.question}: {question.tool_name} began {_hours(question.asked_at, now)} ago, and nobody "
                "recorded how it ended"
                if in_doubt
                else f"{question.question}: {question.tool_name} has waited for a person for "
                f"{_hours(question.asked_at, now)}"
            ),
            run_id=run.run_id,
            org=org,
            advice=(
                "look whether it happened; then gnl approvals settle (it did, with what result), approve (run it again)"
                " or deny"
                if in_doubt
                else "gnl approvals approve, or deny"
            ),
        )


def _drive_on(view: RunView) -> str:
    if view.workflow is not None:
        return (
            "drive it on: run_workflow, by the program that began it, or gnl runs resume with a function that calls it"
        )
    return f"drive it on: gnl runs resume {view.run.run_id} --agent MODULE:FUNCTION"


def _workflow(view: RunView, now: int, org: str) -> Iterator[Finding]:
    """Tell where a workflow waits to be sent something, and of names and calls that have parted."""
    run_id = view.run.run_id
    ends = view.workflow is None or view.workflow.over or view.halted is not None
    for wait in () if ends or view.workflow is None else view.workflow.waits:
        if wait.open:
            text = f"run {run_id!r} has waited for {wait.name!r} for {_hours(wait.asked_at, now)}"
            advice = f"gnl workflow send {run_id} {wait.name} --json DATA"
            yield Finding(check="runs.waiting", level="waits", text=text, run_id=run_id, org=org, advice=advice)
    for level, text in check_names(view):
        yield Finding(check="runs.names", level=level, text=text, run_id=run_id, org=org, advice=_RESTORE)


async def _locks(journal: Journal, run: RunSummary, org: str) -> AsyncIterator[Finding]:
    read = await journal.get_many([keys.lock(run.run_id), keys.beat(run.run_id)])
    lock, beat = read.entries
    if lock is None:
        return
    try:
        dead = stamped(lock).get("released") is False and holder(lock, beat, read.now) is None
    except JournalError:
        return  # an unreadable lock is told by the run's view
    if dead:
        yield Finding(
            check="locks.dead",
            level="note",
            text=f"the lock of run {run.run_id!r} belongs to a program that is dead, or silent for longer than its ttl",
            run_id=run.run_id,
            org=org,
            advice="nothing to do: the next drive takes it over",
        )


def _hours(since: int, now: int) -> str:
    """Return how long ago a time in milliseconds was."""
    if since <= 0:
        return "an unknown time"
    seconds: Any = max(0, now - since) / 1000
    for unit, size in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} seconds"
