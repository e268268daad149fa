"""Delete runs whose time is over: by their last activity, never by a guess, and never what waits for a person.

How long anything is kept is the operator's to say: there is no default age anywhere here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import TypedDict

from gnl_core import keys
from gnl_core.batch.report import BatchView, read_batch
from gnl_core.decisions import questions_in
from gnl_core.eraser import Eraser, Looked
from gnl_core.errors import JournalFormatError, RunDrivenError, StoreCorruptError
from gnl_core.journal import scan_all
from gnl_core.journal.port import Create, Entry, Journal, JsonValue, Key
from gnl_core.lock import holder
from gnl_core.outcome import read_head
from gnl_core.records import FORMAT
from gnl_core.retention_threads import check_age
from gnl_core.summary import STATUSES
from gnl_core.work import work_key_hash


class SweepOptions(TypedDict, total=False):
    """Options of `sweep_runs`, for a sweeper that repeats it."""

    older_than_ms: int
    keep_suspended: bool
    suspended_ttl_ms: int | None
    tombstones: bool
    dry_run: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SweptRuns:
    """What a sweep did, or would do.

    Attributes:
        scanned: Root runs whose status last changed longer ago than the limit.
        purged: Runs deleted, each with its sub-agents.
        deleted_rows: Rows of all families deleted with them.
        kept_suspended: Runs kept since they wait for a person's answer.
        kept_in_doubt: Runs kept since a call of theirs began and nobody knows how it ended: a person is to look.
        kept_active: Runs kept since something was written to them lately, though their status is old.
        kept_driven: Runs kept since somebody drives them.
        kept_no_ts: Runs kept since how old they are cannot be measured.
        kept_unreadable: Runs kept since a row of theirs cannot be read by this release.
        skipped_ghosts: Index rows that name no run; `gnl doctor` tells of them.
        traces: Traces left for an erasure of the person.
        untraceable: Deleted runs of a conversation that named nobody: no erasure of a person finds that conversation.
        tombstones: Tombstones left.
        dry_run: Whether nothing was deleted.
    """

    scanned: int = 0
    purged: int = 0
    deleted_rows: int = 0
    kept_suspended: int = 0
    kept_in_doubt: int = 0
    kept_active: int = 0
    kept_driven: int = 0
    kept_no_ts: int = 0
    kept_unreadable: int = 0
    skipped_ghosts: int = 0
    traces: int = 0
    untraceable: int = 0
    tombstones: int = 0
    dry_run: bool = False

    @property
    def why(self) -> tuple[str, ...]:
        """Why runs were kept, one sentence a reason, with how many."""
        return tuple(f"{count} kept: {text}" for name, text in _WHY.items() if (count := getattr(self, name)))

    def to_json(self) -> dict[str, JsonValue]:
        """Return it for programs; every member is there."""
        return {name: getattr(self, name) for name in SweptRuns.__slots__} | {"why": list(self.why)}


_WHY = {
    "kept_suspended": "they wait for a person's answer, for what a workflow is to be sent, or, done, for "
    "their batch to be run to its report, and the ttl of suspended runs has not passed, or is not set",
    "kept_in_doubt": "a call of theirs began and nobody knows how it ended; `gnl approvals list` shows it",
    "kept_active": "something was written to them lately",
    "kept_driven": "somebody drives them",
    "kept_no_ts": "how old they are cannot be measured",
    "kept_unreadable": "a row of theirs cannot be read; `gnl doctor` names it",
}


async def sweep_runs(
    journal: Journal,
    *,
    older_than_ms: int,
    keep_suspended: bool = True,
    suspended_ttl_ms: int | None = None,
    tombstones: bool = False,
    dry_run: bool = False,
) -> SweptRuns:
    """Delete the runs whose last activity is older than a limit, with their sub-agents and indexes.

    What was last written to any row of a run is its last activity, an answer included. Records across runs,
    conversations, persons' jobs and the ledger stay. A run that named a person and a conversation leaves a trace, so
    that a later `purge_resource` still finds the conversation, and so does a person's item of a batch. Two sweeps at
    once do no harm.

    Args:
        journal: The store's journal, or one organisation's: the other ones' part is not looked at.
        older_than_ms: Age in milliseconds, 0 or more.
        keep_suspended: Whether runs that wait for a person are kept, whatever their age: suspended ones, and those
            with a call in doubt.
        suspended_ttl_ms: Age in milliseconds at which these are deleted all the same, those in doubt too; None: never.
        tombstones: Whether to leave `swept/<run>` behind, which holds a time and hashes: a late retry is then refused
            where the run is driven with tombstones in force, and does not run everything again.
        dry_run: Whether to count only.

    Raises:
        ConfigError: An age is below 0.
        JournalError: The store failed; call it again.
    """
    check_sweep(older_than_ms, suspended_ttl_ms)
    waiting_ms = suspended_ttl_ms if keep_suspended else older_than_ms
    sweep = _Sweep(Eraser(journal, dry_run=dry_run), older_than_ms, waiting_ms, tombstones)
    now = await journal.now()
    for status in STATUSES:
        waits = status == "suspended"
        due = _due(journal, status, now - (older_than_ms if not waits or waiting_ms is None else waiting_ms))
        if waits and waiting_ms is None:
            # They are read no further: whatever was written to them since, they wait.
            count = len([root async for _, root in due])
            sweep.counts.update(kept_suspended=count, scanned=count)
            continue
        chunk: list[tuple[int, str]] = []
        async for place in due:
            chunk.append(place)
            if len(chunk) == _CHUNK:
                await sweep.take(chunk)
                chunk = []
        await sweep.take(chunk)
    return SweptRuns(**sweep.counts, deleted_rows=sweep.eraser.counts.total(), dry_run=dry_run)


def check_sweep(older_than_ms: int, suspended_ttl_ms: int | None) -> None:
    """Refuse ages that are none.

    Raises:
        ConfigError: One is below 0, or no int.
    """
    check_age("older_than_ms", older_than_ms)
    if suspended_ttl_ms is not None:
        check_age("suspended_ttl_ms", suspended_ttl_ms)


_CHUNK = 100


async def _due(journal: Journal, status: str, before: int) -> AsyncIterator[tuple[int, str]]:
    """Yield (time, run) of each run of a status that has had it since before some time, the oldest first."""
    index: Key = ("ix", "status", status)
    after: Key | None = None
    while True:
        # The rows of a page may be deleted before the next is read: pages go by the last key.
        page = await journal.scan(index, after=after)
        for entry in page.entries:
            if len(entry.key) != 5 or not entry.key[3].isdecimal():
                continue
            if int(entry.key[3]) > before:
                return
            yield int(entry.key[3]), entry.key[4]
        after = page.after
        if after is None:
            return


class _Sweep:
    """One pass over the runs that may be due."""

    def __init__(self, eraser: Eraser, older_ms: int, waiting_ms: int | None, tombstones: bool) -> None:
        self.eraser = eraser
        self.counts: Counter[str] = Counter()
        self._older = older_ms
        self._waiting = waiting_ms
        self._tombstones = tombstones
        self._batches: dict[str, BatchView | None] = {}

    async def take(self, places: Sequence[tuple[int, str]]) -> None:
        """Delete those of some runs whose time is over."""
        if not places:
            return
        for (_, root), looked in zip(places, await self.eraser.look([root for _, root in places]), strict=True):
            self.counts["scanned"] += 1
            kept = await self._rule(root, looked)
            if kept is not None:
                self.counts[kept] += 1

    async def _rule(self, root: str, looked: Looked) -> str | None:
        """Return what a run counts as that is kept; None for one that was deleted."""
        try:
            if looked.head is None:
                return "skipped_ghosts"
            if holder(looked.lock, looked.beat, looked.now) is not None:
                return "kept_driven"
            head = read_head(looked.head)
            if head is None or head.get("status") not in STATUSES:
                return "kept_unreadable"
            rows, now = await self._rows(root)
            status = "suspended" if await self._is_untold(root, head["status"]) else head["status"]
            if not head.get("erasing") and (kept := self._judge(rows, root, status, now)) is not None:
                return kept
            marks = self._marks(root, head, rows, now)
            if not await self.eraser.run(root, looked=looked, marks=marks):
                return "skipped_ghosts"
        except RunDrivenError:
            return "kept_driven"
        except (StoreCorruptError, JournalFormatError):
            return "kept_unreadable"
        self.counts["purged"] += 1
        for op in marks:
            self.counts["tombstones" if op.key == keys.swept(root) else "traces"] += 1
        self.counts["untraceable"] += bool(head.get("thread")) and not head.get("resource")
        return None

    async def _rows(self, root: str) -> tuple[dict[Key, Entry], int]:
        rows = {entry.key: entry async for entry in scan_all(self.eraser.journal, keys.request(root))}
        return rows, await self.eraser.journal.now()

    async def _is_untold(self, root: str, status: object) -> bool:
        """Whether an item is done and its batch was broken off before its report: nothing else says that it is."""
        batch = keys.batch_of(root)
        if batch is None or status != "completed":
            return False
        if batch not in self._batches:
            self._batches[batch] = await read_batch(self.eraser.journal, batch)
        view = self._batches[batch]
        return view is not None and root.rpartition(":")[2] not in view.settled

    def _judge(self, rows: dict[Key, Entry], root: str, status: str, now: int) -> str | None:
        last = max((entry.updated_at for entry in rows.values()), default=0)
        if last <= 0 or min(entry.updated_at for entry in rows.values()) <= 0:
            return "kept_no_ts"
        waits: str | None = None
        if status != "completed":
            asked = [question.kind for question, _ in questions_in(rows, root, now)]
            if "in_doubt" in asked:
                waits = "kept_in_doubt"
            elif asked or status == "suspended":
                waits = "kept_suspended"
        if waits is not None and (self._waiting is None or now - last <= self._waiting):
            return waits
        limit = self._older if waits is None or self._waiting is None else self._waiting
        return "kept_active" if now - last <= limit else None

    def _marks(self, root: str, head: dict[str, JsonValue], rows: dict[Key, Entry], now: int) -> list[Create]:
        """Return what a run leaves behind; written before anything of it is deleted."""
        marks = []
        resource, thread = head.get("resource"), head.get("thread")
        if isinstance(resource, str) and resource and isinstance(thread, str) and thread:
            marks.append(Create(keys.trace(resource, thread), {"f": FORMAT}, if_present="keep"))
        batch = keys.batch_of(root)
        if isinstance(resource, str) and resource and batch is not None:
            trace = keys.item_trace(resource, batch, root.rpartition(":")[2])
            marks.append(Create(trace, {"f": FORMAT}, if_present="keep"))
        if self._tombstones:
            row = rows.get(keys.input_of(root))
            frozen = row.value if row is not None and isinstance(row.value, dict) else {}
            asked, work = frozen.get("hash"), frozen.get("work")
            name = work.get("key") if isinstance(work, dict) else None
            value: dict[str, JsonValue] = {"f": FORMAT, "at": now}
            if isinstance(asked, str):
                value["input"] = asked
            if isinstance(name, str):
                value["work_key_hash"] = work_key_hash(name)
            marks.append(Create(keys.swept(root), value, if_present="keep"))
        return marks
