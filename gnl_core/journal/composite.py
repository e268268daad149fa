"""One journal over two stores: what a guarantee rests on in one, what can be lost and made anew in the other."""

from __future__ import annotations

import heapq
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from gnl_core.errors import ConfigError, GnlError, StoreUnavailableError
from gnl_core.journal.batches import check_limit, check_org, name_of, refuse_scope, span
from gnl_core.journal.homes import Home, by_home, home_of, homes_of
from gnl_core.journal.port import Applied, Capability, Entry, Expect, Journal, Key, Op, Page, Read, Refused
from gnl_core.journal.storage import store_of
from gnl_core.journal.values import size_of, to_text

logger = logging.getLogger(__name__)

T = TypeVar("T")


def composite(*, runs: Journal, cache: Journal) -> Journal:
    """Return a journal that keeps runs in one store, and what may be lost in another, for instance Redis.

    Everything that a guarantee rests on is in `runs`: runs, claims, markers, earlier work and its index, identities,
    answers, traces, the ledger. In `cache` are the verdicts of judges, which cost money and nothing else to be lost;
    `gnl_core.journal.homes` says why no more. Nothing is atomic over two stores: a batch has one home, and one that
    writes to both is refused, never split.

    What a lost cache does: a row of it that cannot be read, for whatever reason, is absent, and the log says so once
    until it can be read again. A pair is then judged anew, which takes its place in the request's budget of judge
    calls. Writing to it, erasing and scanning raise what its store raises, since an erasure that reaches one of two
    stores is none. How long a call waits for a cache that does not answer is for the store's own options to say. A
    Redis store that was emptied, or replaced by another, is begun anew, and the log says so.

    Each row has times and version of its own store; `now` and `store_id` are those of `runs`, and so are the
    capabilities. Only an answer that is of the cache alone carries the cache's clock. A scan over both homes merges
    them; it is two points in time, and takes no `newer_than`.

    Give each store to one composite, new: a row that stood in the wrong one before is not seen. `delete_prefix` reaches
    such rows where its prefix holds rows of the cache.

    Args:
        runs: A journal whose store keeps what it acknowledged: SQLite or PostgreSQL.
        cache: A journal of another store. Closing the composite closes both.

    Raises:
        ConfigError: They are one store, two organisations', or a composite themselves.
    """
    for name, journal in (("runs", runs), ("cache", cache)):
        if isinstance(journal, CompositeJournal):
            raise ConfigError(f"composite(): {name} is a composite itself; give it the journals of two storages")
        if not callable(getattr(journal, "get_many", None)):
            raise ConfigError(f"composite(): {name} is {journal!r}, must be a journal: a storage's `runs`")
    if store_of(runs) is store_of(cache):
        raise ConfigError("composite(): runs and cache are one store; use its journal as it is")
    if runs.org != cache.org:
        raise ConfigError(
            f"composite(): runs is scoped to {runs.org!r}, cache to {cache.org!r}; give it both unscoped, and scope "
            "the composite"
        )
    return CompositeJournal(runs, cache, _Outage())


@dataclass(slots=True)
class _Outage:
    """Whether the cache failed when it was last read, for the log; all views of one composite share it."""

    lasts: bool = False

    def failed(self, error: Exception) -> None:
        if not self.lasts:
            logger.warning("the cache beside the runs cannot be read, and counts as empty until it can be: %s", error)
        self.lasts = True

    def ended(self) -> None:
        if self.lasts:
            logger.info("the cache beside the runs can be read again")
        self.lasts = False


class CompositeJournal:
    """The `Journal` that `composite` returns; the contract stands at `gnl_core.journal.port.Journal`."""

    def __init__(self, runs: Journal, cache: Journal, outage: _Outage) -> None:
        self._runs = runs
        self._cache = cache
        self._outage = outage

    def __repr__(self) -> str:
        return f"composite(runs={self._runs!r}, cache={self._cache!r})"

    @property
    def store_id(self) -> str:
        """The id of the store that keeps runs."""
        return self._runs.store_id

    @property
    def org(self) -> str:
        """The organisation it is scoped to; '' where it is not."""
        return self._runs.org

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What the store that keeps runs can do; of a row in the cache nothing is promised."""
        return self._runs.capabilities

    async def _of(self, home: Home, ask: Callable[[Journal], Awaitable[T]]) -> T:
        """Ask the store of a home; a cache in whose place there is another, or none, lost nothing that counts."""
        if home == "runs":
            return await ask(self._runs)
        try:
            return await ask(self._cache)
        except StoreUnavailableError as error:
            begin_anew = getattr(self._cache, "begin_anew", None)
            if begin_anew is None or not error.detail.get("replaced"):
                raise
            logger.warning("the cache beside the runs was emptied, or replaced by another; it is begun anew")
            begin_anew()
        return await ask(self._cache)

    async def get_many(self, keys: Sequence[Key]) -> Read:
        """Read rows, with their blobs, in the order asked; rows of a cache that cannot be read are absent."""
        kept, cached = by_home(keys)
        if not cached:
            return await self._runs.get_many(keys)
        for key in cached:
            name_of(key)  # a key that cannot be is the caller's fault, not an outage
        found = await self._read_cache(cached)
        if not kept:
            return found if found is not None else Read((None,) * len(keys), await self._runs.now())
        read = await self._runs.get_many(kept)
        rows = {"runs": iter(read.entries), "cache": iter(found.entries if found is not None else ())}
        return Read(tuple(next(rows[home_of(key)], None) for key in keys), read.now)

    async def _read_cache(self, keys: Sequence[Key]) -> Read | None:
        try:
            read = await self._of("cache", lambda cache: cache.get_many(keys))
        except GnlError as error:  # nobody's call waits for, or fails of, what can be made anew
            self._outage.failed(error)
            return None
        self._outage.ended()
        return read

    async def scan(
        self,
        prefix: Key,
        *,
        after: Key | None = None,
        newer_than: int = 0,
        reverse: bool = False,
        limit: int = 500,
        max_bytes: int = 4 << 20,
        blobs: bool = False,
    ) -> Page:
        """Read one page of the rows at and below `prefix`, of both homes if it has both.

        Raises:
            ConfigError: `newer_than` is asked of a prefix that has both: two stores' versions are not comparable.
        """
        pages = _Pages(prefix, newer_than=newer_than, reverse=reverse, limit=limit, max_bytes=max_bytes, blobs=blobs)
        homes = homes_of(prefix)
        if len(homes) == 1:
            return await self._of(homes[0], lambda journal: pages.read(journal, after))
        pages.check(after)
        if newer_than > 0:
            raise ConfigError(
                f"newer_than over {'/'.join(prefix) or 'all rows'}: they have two stores, whose versions are not "
                "comparable; scan a longer prefix, which has one",
                prefix="/".join(prefix),
            )
        runs = await self._of("runs", lambda journal: pages.own(journal, "runs", after))
        return pages.merged(runs, await self._of("cache", lambda journal: pages.own(journal, "cache", after)))

    async def apply(self, ops: Sequence[Op], *, batch: int) -> Applied | Refused:
        """Write a batch, all or nothing.

        What is written has one home. A batch that writes to the cache may expect something of the runs before it
        writes: that is looked at first, and may have changed by the time of the write.

        Raises:
            ConfigError: It writes rows of both homes, or names them in another order. Nothing was asked of either.
        """
        split = next((place for place, op in enumerate(ops) if home_of(getattr(op, "key", ())) == "cache"), 0)
        before = ops[:split]
        if before and all(isinstance(op, Expect) and home_of(op.key) == "runs" for op in before):
            held = await self._runs.apply(before, batch=batch)
            if isinstance(held, Refused):
                return held
            outcome = await self._one_home(ops[split:], batch)
            if isinstance(outcome, Refused):
                return replace(outcome, op=outcome.op + split)
            return replace(outcome, kept=tuple(place + split for place in outcome.kept))
        return await self._one_home(ops, batch)

    async def _one_home(self, ops: Sequence[Op], batch: int) -> Applied | Refused:
        first: dict[Home, Key] = {}
        for op in ops:
            key = getattr(op, "key", ())  # what is no operation is refused by the store
            first.setdefault(home_of(key), key)
        if len(first) > 1:
            runs, cache = name_of(first["runs"]), name_of(first["cache"])
            raise ConfigError(
                f"one batch names {runs}, kept with the runs, and {cache}, kept in the cache: nothing is atomic over "
                "two stores, and nothing was written. Write two batches",
                runs=runs,
                cache=cache,
            )
        return await self._of(next(iter(first), "runs"), lambda journal: journal.apply(ops, batch=batch))

    async def delete_prefix(self, prefix: Key, *, limit: int = 1000) -> int:
        """Delete at most `limit` rows at and below a non-empty prefix; in both stores if it holds rows of the cache."""
        name_of(prefix)
        check_limit(limit)
        deleted = await self._runs.delete_prefix(prefix, limit=limit)
        if "cache" in homes_of(prefix) and deleted < limit:
            left = limit - deleted
            deleted += await self._of("cache", lambda cache: cache.delete_prefix(prefix, limit=left))
        return deleted

    async def now(self) -> int:
        """Return the clock of the store that keeps runs, in milliseconds."""
        return await self._runs.now()

    def scoped(self, org: str) -> CompositeJournal:
        """Return the same stores seen by one organisation."""
        if self.org:
            raise refuse_scope("scoped()")
        check_org(org)
        return CompositeJournal(self._runs.scoped(org), self._cache.scoped(org), self._outage)

    async def scopes(self, *, after: str | None = None, limit: int = 100) -> Sequence[str]:
        """List organisations that have rows in either store, ascending; '' is the unscoped one."""
        if self.org:
            raise refuse_scope("scopes()")
        found = {
            *await self._runs.scopes(after=after, limit=limit),
            *await self._of("cache", lambda cache: cache.scopes(after=after, limit=limit)),
        }
        return sorted(found)[:limit]

    async def aclose(self) -> None:
        """Close both storages; on a scoped journal, which holds nothing of its own, do nothing."""
        try:
            await self._runs.aclose()
        finally:
            await self._cache.aclose()


@dataclass(frozen=True, slots=True)
class _Pages:
    """Reads the pages of one scan, from one store or of two."""

    prefix: Key
    newer_than: int
    reverse: bool
    limit: int
    max_bytes: int
    blobs: bool

    def check(self, after: Key | None) -> None:
        """Raise what a store would, before either is asked."""
        span(
            self.prefix,
            after=after,
            newer_than=self.newer_than,
            reverse=self.reverse,
            limit=self.limit,
            max_bytes=self.max_bytes,
            blobs=self.blobs,
        )

    async def read(self, journal: Journal, after: Key | None) -> Page:
        return await journal.scan(
            self.prefix,
            after=after,
            newer_than=self.newer_than,
            reverse=self.reverse,
            limit=self.limit,
            max_bytes=self.max_bytes,
            blobs=self.blobs,
        )

    async def own(self, journal: Journal, home: Home, after: Key | None) -> Page:
        """Read a page without the rows that belong to the other store, whose keys would come twice."""
        while True:
            page = await self.read(journal, after)
            entries = tuple(entry for entry in page.entries if home_of(entry.key) == home)
            after = page.after
            if entries or after is None:
                return Page(entries, after, page.now)

    def merged(self, runs: Page, cache: Page) -> Page:
        """Return the page that one store of both would have returned."""
        rows = [map(_named, page.entries) for page in (runs, cache)]
        # Behind the last row of a page that has another one there may be rows that were not read.
        ends = [name_of(page.after) for page in (runs, cache) if page.after is not None]
        end = (max if self.reverse else min)(ends) if ends else None
        entries: list[Entry] = []
        size = 0
        for name, entry in heapq.merge(*rows, key=_name, reverse=self.reverse):
            beyond = end is not None and (name < end if self.reverse else name > end)
            if beyond or len(entries) == self.limit or size >= self.max_bytes:
                return Page(tuple(entries), entries[-1].key, runs.now)
            entries.append(entry)
            size += size_of(to_text(entry.key, entry.value)) + len(entry.blob or b"")
        return Page(tuple(entries), entries[-1].key if end is not None else None, runs.now)


def _named(entry: Entry) -> tuple[str, Entry]:
    return name_of(entry.key), entry


def _name(named: tuple[str, Entry]) -> str:
    return named[0]
