"""Deleting rows for good, counted, in an order that a broken-off erasure can be taken up in again.

What leads to other rows is deleted after them: a run's head and indexes in its last batch, a trace after its
conversation. Whatever was broken off is thus found again by the same call, and by `gnl doctor`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gnl_core import keys
from gnl_core.errors import RunDrivenError
from gnl_core.journal import scan_all
from gnl_core.journal.homes import by_home
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
    Replace,
    new_batch,
)
from gnl_core.lock import holder
from gnl_core.outcome import index_keys, read_head
from gnl_core.owner import Owner, new_owner, register, unregister
from gnl_core.records import FORMAT

_CHUNK = 500
"""Rows of one batch, so that nobody's write waits long behind it."""

_PAGE_BYTES = 1 << 20
_LOCK_MS = 60_000
"""How long an eraser on another host, that died, keeps a run."""

_SLACK_MS = 60_000
"""How far two processes' clocks may be apart when a run's questions and incidents are looked for by their time."""


@dataclass(frozen=True, slots=True)
class Looked:
    """The rows that say whether a run may be erased, as read at one moment."""

    lock: Entry | None
    beat: Entry | None
    head: Entry | None
    now: int


class Eraser:
    """Deletes in one journal, and counts by family what it deletes.

    Args:
        journal: The store.
        force: Whether to take runs from drivers that are alive.
        dry_run: Whether to count only, and write nothing.

    Attributes:
        counts: Rows by family, those of a conversation by what they are: 'run', 'ix', 'xthr/dup', 'xid' …
        runs: Root runs.
        threads: Conversations.
    """

    def __init__(self, journal: Journal, *, force: bool = False, dry_run: bool = False) -> None:
        self.journal = journal
        self.force = force
        self.dry_run = dry_run
        self.counts: Counter[str] = Counter()
        self.runs = 0
        self.threads = 0

    # Rows ----------------------------------------------------------------------------------------------------------

    async def under(self, prefix: Key) -> None:
        """Delete everything at and below a prefix of whole segments."""
        if self.dry_run:
            async for entry in scan_all(self.journal, prefix, limit=1_000):
                self.counts[family(entry.key)] += 1
            return
        while deleted := await self.journal.delete_prefix(prefix):
            self.counts[family(prefix)] += deleted

    async def rows(self, wanted: Iterable[Key], *, guard: Sequence[Op] = (), about: str = "") -> None:
        """Delete rows, some hundred a batch; those that are not there count as well.

        Args:
            wanted: Their keys.
            guard: Conditions of each batch.
            about: What is being erased, for the error.

        Raises:
            RunDrivenError: A condition does not hold any more.
        """
        for found in by_home(dict.fromkeys(wanted)):  # a batch has one home
            for start in range(0, len(found), _CHUNK):
                chunk = found[start : start + _CHUNK]
                if not self.dry_run:
                    await self.apply((*guard, *map(Delete, chunk)), about)
                self.counts.update(map(family, chunk))

    async def apply(self, ops: Sequence[Op], about: str) -> int:
        """Write one batch; return its version.

        Raises:
            RunDrivenError: It was refused: somebody else works on it.
        """
        outcome = await self.journal.apply(ops, batch=new_batch())
        if isinstance(outcome, Applied):
            return outcome.version
        raise RunDrivenError(
            f"{about or 'what was to be erased'} was taken by somebody else, or changed, while it was erased; what is "
            "gone is gone: erase it once more"
        )

    async def note(self, journal: Journal, *ops: Op) -> None:
        """Write something that cannot be refused, into whatever journal."""
        await journal.apply(ops, batch=new_batch())

    # Runs ----------------------------------------------------------------------------------------------------------

    async def look(self, roots: Sequence[str]) -> list[Looked]:
        """Read what says whether runs may be erased."""
        found: list[Looked] = []
        for start in range(0, len(roots), 100):
            chunk = roots[start : start + 100]
            read = await self.journal.get_many(
                [key for root in chunk for key in (keys.lock(root), keys.beat(root), keys.head(root))]
            )
            rows = read.entries
            found += [
                Looked(rows[place], rows[place + 1], rows[place + 2], read.now) for place in range(0, len(rows), 3)
            ]
        return found

    async def refuse_driven(self, roots: Sequence[str], what: str) -> None:
        """Raise if somebody drives one of the runs.

        Raises:
            RunDrivenError: The error names them.
        """
        if self.force:
            return
        driven = [
            root
            for root, looked in zip(roots, await self.look(roots), strict=True)
            if holder(looked.lock, looked.beat, looked.now) is not None
        ]
        if driven:
            raise driven_error(what, driven)

    async def run(self, root: str, *, looked: Looked | None = None, marks: Sequence[Op] = ()) -> bool:
        """Delete one run with its indexes; return whether there was anything.

        Args:
            root: The root run.
            looked: Its rows as they were when it was decided to erase it; what was driven since is not erased.
            marks: What is written before anything is deleted.

        Raises:
            RunDrivenError: It is driven.
        """
        page = await self.journal.scan(keys.request(root), limit=1)
        if not page.entries:
            return False
        looked = looked or (await self.look([root]))[0]
        if not self.force and holder(looked.lock, looked.beat, looked.now) is not None:
            raise driven_error(f"run {root!r}", [root])
        head = read_head(looked.head)
        if self.dry_run:
            await self.under(keys.request(root))
            await self.rows(await self._named(root, head, looked.now))
            self.runs += 1
            return True
        owner = new_owner()
        register(owner)
        try:
            fence = await self.apply((*_take(root, looked, owner, force=self.force), *marks), f"run {root!r}")
            await self._erase(root, head, fence, looked)
        finally:
            unregister(owner)
        self.runs += 1
        return True

    async def _erase(self, root: str, head: Mapping[str, JsonValue] | None, fence: int, looked: Looked) -> None:
        guard, about = (Expect(keys.lock(root), fence),), f"run {root!r}"
        indexes = await self._named(root, head, looked.now)
        last = set(index_keys(root, head)) if head is not None else set()
        await self.rows((key for key in indexes if key not in last), guard=guard, about=about)
        kept = (keys.lock(root), keys.head(root), keys.input_of(root), keys.beat(root))
        there: list[Key] = []
        after: Key | None = None
        while True:
            page = await self.journal.scan(keys.request(root), after=after, limit=_CHUNK, max_bytes=_PAGE_BYTES)
            found = [entry.key for entry in page.entries]
            there += [key for key in found if key in kept]
            await self.rows((key for key in found if key not in kept), guard=guard, about=about)
            after = page.after
            if after is None:
                break
        await self.apply((*map(Delete, (*kept[1:], *last)), Delete(keys.lock(root), fence)), about)
        self.counts.update(map(family, (*there, *last)))
        self.counts["run"] -= looked.lock is None  # it was made for this

    async def _named(self, root: str, head: Mapping[str, JsonValue] | None, now: int) -> list[Key]:
        """Return the index rows that name a run."""
        if head is None:  # nothing says when it was, or whose: all of them are read
            return [entry.key async for entry in scan_all(self.journal, ("ix",)) if names(entry.key, root)]
        begun = head.get("created_at")
        # A fork brings questions that are older than it is.
        low = begun - _SLACK_MS if isinstance(begun, int) and "forked_from" not in head else 0
        found = index_keys(root, head)
        for index in keys.TIMED:
            found += [key async for key in self._timed(index, max(0, low), now + _SLACK_MS) if names(key, root)]
        return found

    async def _timed(self, index: Key, low: int, high: int) -> AsyncIterator[Key]:
        after: Key | None = (*index, f"{low:013d}")
        while after is not None:
            page = await self.journal.scan(index, after=after)
            for entry in page.entries:
                if entry.key[2] > f"{high:013d}":
                    return
                yield entry.key
            after = page.after

    # Conversations -------------------------------------------------------------------------------------------------

    async def thread(self, thread: str) -> None:
        """Delete what was remembered in a conversation; the generations first, so that no cache believes the rest."""
        scope = keys.thread_scope(thread)
        before = self.counts.total()
        await self.beside((*scope, "args"))
        for part in keys.THREAD_PARTS:
            await self.under((*scope, part))
        if not self.dry_run:
            await self.under(scope)  # what a later release added
        await self.under(keys.thread_of(thread))
        await self.under(keys.workers_of(thread))
        self.threads += self.counts.total() > before

    async def beside(self, prefix: Key) -> None:
        """Delete what bodies that no run began returned late, of the records at and below a prefix."""
        async for entry in scan_all(self.journal, prefix):
            await self.late(entry)

    async def late(self, record: Entry) -> None:
        """Delete what the body of a record returned late, where no run began it: else it goes with its run."""
        run = record.value.get("run") if isinstance(record.value, dict) else None
        if isinstance(run, str) and run.startswith("__"):
            await self.under(keys.request(run))

    async def runs_in(self, thread: str) -> list[str]:
        """Return the root runs of a conversation."""
        return await self.indexed("thr", thread)

    async def indexed(self, name: keys.Index, value: str) -> list[str]:
        """Return the root runs under one value of an index."""
        return [entry.key[4] async for entry in scan_all(self.journal, ("ix", name, value)) if len(entry.key) == 5]


def names(key: Key, root: str) -> bool:
    """Return whether an index row is of this run."""
    return (key[3:4] if key[1] in ("ask", "inc") else key[4:5]) == (root,)


def family(key: Key) -> str:
    """Return what a row is counted as."""
    return f"xthr/{key[2]}" if key[0] == "xthr" and len(key) > 2 else key[0]


def driven_error(what: str, roots: Sequence[str]) -> RunDrivenError:
    """Return the error of an erasure that would take runs from their drivers."""
    shown = ", ".join(repr(root) for root in roots[:5]) + (" …" if len(roots) > 5 else "")
    are = "is" if len(roots) == 1 else "are"
    return RunDrivenError(
        f"{what} is not erased: {shown} {are} being driven. Wait until they have ended, or "
        "cancel them; with force they are taken from their drivers, and an effect that is under way is not recorded",
        runs=list(roots),
    )


def _take(root: str, looked: Looked, owner: Owner, *, force: bool) -> list[Op]:
    """Return the operations that take a run to erase it: nobody drives it again, even if the erasure is broken off."""
    value: dict[str, JsonValue] = {"f": FORMAT, "owner": owner.to_json(), "ttl_ms": _LOCK_MS, "released": False}
    lock, ops = looked.lock, list[Op]()
    if not force:
        ops.append(Expect(keys.beat(root), looked.beat.version if looked.beat is not None else "absent"))
    ops.append(Create(keys.lock(root), value) if lock is None else Replace(keys.lock(root), lock.version, value))
    head: Any = read_head(looked.head)
    if head is not None and looked.head is not None:
        ops.append(Replace(looked.head.key, looked.head.version, {**head, "erasing": True}))
    return ops
