"""What waits for a person, read for many runs at once: the index of questions names the rows that one needs.

A run that is suspended has every question of its own in that index, since the batch that asks writes both. So a list of
ten thousand questions costs a few reads, where each run's rows would be a read of their own. Runs that ended otherwise
may hold a doubt that nobody wrote down; those are read whole, by whoever asks here.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field

from gnl_core import keys
from gnl_core.errors import JournalFormatError, StoreCorruptError
from gnl_core.journal import scan_all
from gnl_core.journal.port import Entry, Journal, Key

CHUNK = 250
"""Runs of one read."""

_PAGE = 5_000
"""Rows of one page of an index, which are short."""

_QUESTION = re.compile(r"/([a-z_]{1,20})/([0-9]{1,9})\Z")
_OPEN = ("suspended", "running", "failed", "canceled")
"""Statuses of runs that may have open questions: to cancel a run settles no doubt that a kill left in it."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Runs that may have open questions.

    Attributes:
        roots: Their root runs, each once: those that asked, oldest question first, then the others.
        needed: Of the suspended ones, which rows say what they ask.
    """

    roots: list[str]
    needed: Mapping[str, Sequence[Key]] = field(repr=False)


async def waiting_roots(journal: Journal) -> Waiting:
    """Return the runs that may have open questions: those that asked, and those that are not over."""
    asks: dict[str, list[Entry]] = {}
    async for entry in scan_all(journal, ("ix", "ask"), limit=_PAGE):
        if len(entry.key) > 3:
            asks.setdefault(entry.key[3], []).append(entry)
    roots = dict.fromkeys(asks)
    needed: dict[str, Sequence[Key]] = {}
    for status in _OPEN:
        async for entry in scan_all(journal, ("ix", "status", status), limit=_PAGE):
            root = entry.key[4] if len(entry.key) > 4 else ""
            if root:
                roots[root] = None
            if status == "suspended" and root in asks and (wanted := _needed(root, asks[root])):
                needed[root] = wanted
    return Waiting(list(roots), needed)


def _needed(root: str, asks: Sequence[Entry]) -> list[Key]:
    """Return the keys of the rows that the index rows of a run are about; none where one of them is not understood."""
    found: list[Key] = [keys.halt(root)]
    for entry in asks:
        name = entry.value.get("question") if isinstance(entry.value, dict) else None
        place = keys.parse_call_id(entry.key[5]) if len(entry.key) == 6 else None
        parsed = _QUESTION.search(name) if isinstance(name, str) else None
        if place is None or parsed is None:
            return []
        part, call = entry.key[4:]
        found += [keys.tool(root, part, *place), keys.model(root, part, place[0])]
        found.append(keys.answer(root, part, call, parsed[1], int(parsed[2])))
    return found


async def load_asked(
    journal: Journal, waiting: Waiting
) -> AsyncGenerator[tuple[list[str], dict[str, tuple[dict[Key, Entry], int]]]]:
    """Yield the runs, a chunk of them at a time, each with what `_load` knows of it.

    While the caller looks at one chunk, the next one is read.
    """
    chunks = [waiting.roots[begin : begin + CHUNK] for begin in range(0, len(waiting.roots), CHUNK)]
    reading: deque[asyncio.Task[dict[str, tuple[dict[Key, Entry], int]]]] = deque()
    try:
        for number, roots in enumerate(chunks):
            for ahead in chunks[number + len(reading) : number + 2]:
                reading.append(asyncio.create_task(_load(journal, waiting, ahead)))
            # The caller need not wait for anything, and then the loop would not come to begin it.
            await asyncio.sleep(0)
            yield roots, await reading.popleft()
    finally:
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)


async def _load(journal: Journal, waiting: Waiting, roots: Sequence[str]) -> dict[str, tuple[dict[Key, Entry], int]]:
    """Return, for those of some runs of which it is known, the rows that say what they ask, and the store's clock.

    None at all where one of these rows cannot be read: then each run is to be read by itself.
    """
    wanted = {root: waiting.needed[root] for root in roots if root in waiting.needed}
    try:
        found = await _read(journal, wanted)
        # Who drives the run matters to what was begun, and to nothing that waits; asked for at one point in time.
        begun = [root for root, (rows, _) in found.items() if not all(map(_waits, rows.values()))]
        driven = {root: [keys.lock(root), keys.beat(root), *wanted[root]] for root in begun}
        return {**found, **await _read(journal, driven)}
    except (StoreCorruptError, JournalFormatError):
        return {}


def _waits(entry: Entry) -> bool:
    """Whether a row is no call's, or one of a call that waits for its answer."""
    return entry.key[3] != "tool" or (isinstance(entry.value, dict) and entry.value.get("status") == "suspended")


async def _read(journal: Journal, wanted: Mapping[str, Sequence[Key]]) -> dict[str, tuple[dict[Key, Entry], int]]:
    if not wanted:
        return {}
    read = await journal.get_many(list(dict.fromkeys(key for each in wanted.values() for key in each)))
    there = {entry.key: entry for entry in read.entries if entry is not None}
    return {root: ({key: there[key] for key in each if key in there}, read.now) for root, each in wanted.items()}
