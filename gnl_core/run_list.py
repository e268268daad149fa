"""Lists of runs, walked along the indexes: a page costs the same in a journal of ten runs and of a million."""

from __future__ import annotations

import base64
import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from gnl_core import keys
from gnl_core.errors import ConfigError, JournalFormatError, StoreCorruptError
from gnl_core.journal.port import Entry, Journal, JsonValue, Key, Read
from gnl_core.summary import STATUSES, RunSummary, ViewStatus, doubts_of, driver_of, read_head
from gnl_core.work import check_work_key, work_key_hash

MAX_PAGE = 1_000
"""Most runs of one page."""

_PROBE = 100
"""Rows read of each index to learn which is the narrowest."""

_MOST_WALKED = 20_000
"""Index rows walked for one page at most: a filter that few runs pass ends the page early, with a cursor."""

_UNDRIVEN: tuple[ViewStatus, ...] = ("interrupted", "ready")
"""Statuses of runs whose head says running."""

_Source: TypeAlias = tuple[keys.Index, str]
_At: TypeAlias = tuple[int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPage:
    """One page of runs.

    Attributes:
        runs: In the order asked for; may be fewer than asked, even none, while `cursor` says that more may follow.
        cursor: What to pass for the next page; None on the last.
        problems: Rows that could not be read, one sentence each; their runs are missing from `runs`.
    """

    runs: tuple[RunSummary, ...]
    cursor: str | None
    problems: tuple[str, ...] = ()

    def to_json(self) -> dict[str, JsonValue]:
        """Return the page for programs."""
        return {
            "runs": [run.to_json() for run in self.runs],
            "cursor": self.cursor,
            "problems": list(self.problems),
        }


async def list_runs(
    journal: Journal,
    *,
    status: ViewStatus | None = None,
    agent: str | None = None,
    resource_id: str | None = None,
    thread_id: str | None = None,
    work_key: str | None = None,
    limit: int = 50,
    cursor: str | None = None,
    newest_first: bool = True,
) -> RunPage:
    """List root runs by the time of their last change of status. Reading only.

    Runs that change their status between two pages may be met twice or not at all; a list is no snapshot.

    Args:
        journal: The journal.
        status: Only runs of this status.
        agent: Only runs of this agent.
        resource_id: Only runs on behalf of this person.
        thread_id: Only runs of this conversation.
        work_key: Only runs of work of this name, whoever's; the key itself is compared. Runs that a release before the
            first that notes it in lists began are not found by it: their id is (`derived_run_id`).
        limit: Runs at most, 1 to 1,000.
        cursor: The `cursor` of the page before, with the same filters and order.
        newest_first: Descend.

    Raises:
        ConfigError: An unknown status, a limit out of range, or a cursor of another list.
        IdInvalidError: A work key that cannot be one.
        JournalError: The store cannot be read.
    """
    if not 1 <= limit <= MAX_PAGE:
        raise ConfigError(f"limit is {limit}, must be 1 to {MAX_PAGE}")
    if status is not None and status not in (*STATUSES, *_UNDRIVEN):
        raise ConfigError(f"status is {status!r}, must be one of {', '.join((*STATUSES, *_UNDRIVEN))}")
    wanted = _Filter(status, agent, resource_id, thread_id, work_key)
    if cursor is None:
        sources, at = await _narrowest(journal, wanted.sources()), None
    else:
        sources, at = _read_cursor(cursor, wanted, newest_first)
    walk = _Walk(journal, sources, wanted, newest_first)
    return await walk.page(limit, at)


async def count_runs_by_status(journal: Journal) -> dict[ViewStatus, int]:
    """Count root runs of each status, 'interrupted' and 'ready' apart from 'running'.

    It reads one index row a run, and head and lock of those that say running.

    Raises:
        JournalError: The store cannot be read.
    """
    counts: dict[ViewStatus, int] = dict.fromkeys((*STATUSES, *_UNDRIVEN), 0)
    for status in STATUSES:
        after: Key | None = None
        while True:
            page = await journal.scan(("ix", "status", status), after=after, limit=5_000)
            roots = [place[1] for entry in page.entries if (place := _place(entry)) is not None]
            counts[status] += len(roots)
            if status == "running":
                await _count_undriven(journal, roots, counts)
            after = page.after
            if after is None:
                break
    return counts


async def _count_undriven(journal: Journal, roots: Sequence[str], counts: dict[ViewStatus, int]) -> None:
    """Move those of some running runs that nobody drives to where they belong."""
    if not roots:
        return
    wanted = [key for root in roots for key in (keys.head(root), keys.lock(root), keys.beat(root))]
    read = await journal.get_many(wanted)
    for number in range(0, len(wanted), 3):
        try:
            run = _summary(read.entries[number : number + 3], read.now)
        except (StoreCorruptError, JournalFormatError):
            continue
        if run is not None and run.status in _UNDRIVEN:
            counts["running"] -= 1
            counts[run.status] += 1


@dataclass(frozen=True, slots=True)
class _Filter:
    status: ViewStatus | None
    agent: str | None
    resource_id: str | None
    thread_id: str | None
    work_key: str | None

    def sources(self) -> list[list[_Source]]:
        """Return the walks that see every run asked for, first the one that tends to be short."""
        indexes: tuple[tuple[keys.Index, str | None], ...] = (
            ("work", None if self.work_key is None else work_key_hash(check_work_key(self.work_key))),
            ("thr", self.thread_id),
            ("res", self.resource_id),
            ("status", "running" if self.status in _UNDRIVEN else self.status),
            ("agent", self.agent),
        )
        return [[(name, value)] for name, value in indexes if value is not None] or [
            [("status", value) for value in STATUSES]
        ]

    def lets(self, run: RunSummary) -> bool:
        """Return whether the head passes."""
        return (
            (self.status is None or run.status == self.status)
            and (self.agent is None or run.agent == self.agent)
            and (self.resource_id is None or run.resource_id == self.resource_id)
            and (self.thread_id is None or run.thread_id == self.thread_id)
            and (self.work_key is None or run.work_key == self.work_key)
        )

    def text(self, newest_first: bool) -> list[JsonValue]:
        return [self.status, self.agent, self.resource_id, self.thread_id, self.work_key, newest_first]


async def _narrowest(journal: Journal, candidates: list[list[_Source]]) -> list[_Source]:
    """Return the walk that ends soonest, as far as a first look tells."""
    if len(candidates) == 1:
        return candidates[0]
    best, shortest = candidates[0], _PROBE + 1
    for sources in candidates:
        page = await journal.scan(("ix", *sources[0]), limit=_PROBE)
        if page.after is None and len(page.entries) < shortest:
            best, shortest = sources, len(page.entries)
    return best


class _Walk:
    """One walk along one index, or along those of every status at once, merged by time."""

    def __init__(self, journal: Journal, sources: Sequence[_Source], wanted: _Filter, newest_first: bool) -> None:
        self._journal = journal
        self._sources = sources
        self._wanted = wanted
        self._newest_first = newest_first
        self._problems: list[str] = []
        self._now = 0

    async def page(self, limit: int, at: _At | None) -> RunPage:
        runs: dict[str, RunSummary] = {}
        walked = 0
        more = True
        while more and len(runs) < limit and walked < _MOST_WALKED:
            # A list without further filters passes almost every row, so the first round asks for just a page.
            places, more = await self._places(at, limit if walked == 0 else MAX_PAGE)
            walked += len(places)
            for place, run in zip(places, await self._heads([root for _, root in places]), strict=True):
                if len(runs) == limit:
                    more = True
                    break
                at = place
                if run is not None and self._wanted.lets(run):
                    runs.setdefault(run.run_id, run)
        shown = tuple([await self._with_doubts(run) if run.status == "interrupted" else run for run in runs.values()])
        return RunPage(
            runs=shown,
            cursor=self._cursor(at) if more and at is not None else None,
            problems=tuple(self._problems),
        )

    async def _places(self, at: _At | None, size: int) -> tuple[list[_At], bool]:
        """Return the next places of the walk in order, and whether more may follow."""
        places: list[_At] = []
        more = False
        for name, value in self._sources:
            after = keys.index(name, value, *at) if at is not None else None
            page = await self._journal.scan(("ix", name, value), after=after, reverse=self._newest_first, limit=size)
            more = more or page.after is not None
            for entry in page.entries:
                place = _place(entry)
                if place is None:
                    self._problems.append(f"the row {'/'.join(entry.key)} is no index row; run `gnl doctor`")
                else:
                    places.append(place)
        places.sort(key=lambda place: (place[0], keys.encode_segment(place[1])), reverse=self._newest_first)
        return places[:size], more or len(places) > size

    async def _heads(self, roots: Sequence[str]) -> list[RunSummary | None]:
        """Return the heads, None for a run that is gone or cannot be read."""
        # Head and lock of one run must be of one moment: a run that ends between two reads would look interrupted.
        locks = self._wanted.status in (None, "running", *_UNDRIVEN)
        wanted = [
            key for root in roots for key in ((keys.head(root), keys.lock(root), keys.beat(root))[: 3 if locks else 1])
        ]
        width = 3 if locks else 1
        if not wanted:
            return []
        try:
            read: Read | None = await self._journal.get_many(wanted)
        except (StoreCorruptError, JournalFormatError):
            read = None
        found: list[RunSummary | None] = []
        for number in range(len(roots)):
            place = slice(number * width, (number + 1) * width)
            try:
                rows = read if read is not None else await self._journal.get_many(wanted[place])
                self._now = rows.now
                found.append(_summary(rows.entries[place] if rows is read else rows.entries, rows.now))
            except (StoreCorruptError, JournalFormatError) as error:
                self._problems.append(str(error))
                found.append(None)
        return found

    async def _with_doubts(self, run: RunSummary) -> RunSummary:
        try:
            return dataclasses.replace(run, in_doubt=await doubts_of(self._journal, run.run_id, self._now))
        except (StoreCorruptError, JournalFormatError) as error:
            self._problems.append(str(error))
            return run

    def _cursor(self, at: _At) -> str:
        text = json.dumps([self._wanted.text(self._newest_first), list(map(list, self._sources)), list(at)])
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _summary(entries: Sequence[Entry | None], now: int) -> RunSummary | None:
    head = entries[0]
    if head is None:
        return None
    return read_head(head, driver=driver_of(entries[1], entries[2], now) if len(entries) > 1 else "alive")


def _place(entry: Entry) -> _At | None:
    """Return (time, root) of an index row, None for a row that is none."""
    if len(entry.key) != 5 or not (entry.key[3].isascii() and entry.key[3].isdigit()):
        return None
    return int(entry.key[3]), entry.key[4]


def _read_cursor(cursor: str, wanted: _Filter, newest_first: bool) -> tuple[list[_Source], _At]:
    try:
        value: Any = json.loads(base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True))
        filters, sources, (at, root) = value
        if filters == wanted.text(newest_first) and isinstance(at, int) and isinstance(root, str):
            walk = [(name, text) for name, text in sources]
            if walk in wanted.sources():
                keys.encode(keys.index(walk[0][0], walk[0][1], at, root))
                return walk, (at, root)
    except (ValueError, TypeError, ConfigError):
        pass
    raise ConfigError("the cursor is not of this list: pass it with the filters and the order of the page it came from")
