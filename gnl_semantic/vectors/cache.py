"""The vectors of past work in memory: filled by one scan a scope, kept up by what is new, answered by one product.

A scope's generation row is read by the caller with everything else that a call needs. While it stays as it is, a call
costs the store nothing. The cache only proposes: what it names is read from the journal before anybody sees it.

Any number of tasks, event loops and threads may use one cache; no lock is held over an await.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
import weakref
from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np

from gnl_core import keys
from gnl_core.findings import Subject
from gnl_core.journal.port import Entry, Key
from gnl_semantic.embedder.port import Vectors
from gnl_semantic.vectors.held import Held, Name, Scope, scope_of, surplus_of
from gnl_semantic.vectors.idle import watch
from gnl_semantic.vectors.table import Answer, Query, Table, join, numbers_of, oldest_of, read_table, text_of

MAX_BYTES = 64 << 20
"""Most bytes that a process keeps: about 43,000 vectors of 384 dimensions."""

IDLE_SECONDS = 600.0
"""How long a scope that nobody asks about is kept: so long an erased vector may live in another process's memory."""

_PAGE_ROWS = 2_000
_PAGE_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Recall:
    """What was found of past work.

    Attributes:
        scored: (args_hash, cosine) of each record, best first. The cosine is -1 to 1, None where it could not be
            computed; such records come last.
        dropped_stamp: Records that could not be compared, though they are recent enough: of another embedder's stamp,
            without a vector, or with one that is none.
    """

    scored: tuple[tuple[str, float | None], ...] = ()
    dropped_stamp: int = 0


class VectorCache:
    """Vectors of past work by scope, tool and stamp.

    Args:
        max_bytes: Most bytes kept, above 0; what was not asked for the longest goes first. A scope that would take more
            than a quarter of it is read anew for each call, page by page, and not kept.
        idle_s: Seconds after which a scope that nobody asks about is dropped.
        clock: Seconds that never run backwards.
    """

    def __init__(
        self,
        *,
        max_bytes: int = MAX_BYTES,
        idle_s: float = IDLE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._held = Held(max_bytes, idle_s, clock)
        self._start_over()
        if hasattr(os, "register_at_fork"):
            reset = weakref.WeakMethod(self._start_over)
            os.register_at_fork(after_in_child=lambda: method() if (method := reset()) is not None else None)

    def _start_over(self) -> None:
        self._held.start_over()
        self._lock = threading.Lock()
        self._loads: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Name, asyncio.Event]]
        self._loads = weakref.WeakKeyDictionary()

    @property
    def held_bytes(self) -> int:
        """Bytes that it holds."""
        return self._held.bytes

    def __len__(self) -> int:
        """Return how many scopes it holds."""
        return len(self._held)

    # Asked ---------------------------------------------------------------------------------------------------------

    async def recall(
        self,
        subject: Subject,
        *,
        generation: Entry | None,
        stamp: str,
        query: Vectors | None,
        k: int,
        threshold: float,
        exact: Collection[str],
        dead: Collection[str],
    ) -> Recall:
        """Return the `k` records of the highest cosines that reach the threshold, and those found by their fold.

        A record found here may have been erased since, and one of `exact` may be too old where its age is not known
        here: who shows a record reads it first, and calls `forget` where it is gone.

        Args:
            subject: The call.
            generation: The row `keys.generation` as it was read for this call; None: there is no record, and nothing
                is read.
            stamp: Stamp of the embedder: vectors of another one are never compared.
            query: Unit vector of the call's sentence, shape (dimension,); None where embedding failed. Then nothing is
                read and only `exact` is found.
            k: Most records by cosine, 0 or more.
            threshold: Least cosine, -1 to 1.
            exact: Hashes of records whose identity folds like the call's: found whatever their cosine.
            dead: Hashes that are never found: the call's own, and those of pairs that a person let pass.

        Raises:
            StoreError: The store could not be read.
        """
        if generation is None:
            self.forget(subject)
            return _recall(Answer(), exact, dead)
        vector = _unit(query)
        if vector is None:
            return _recall(Answer(), exact, dead)
        asked = Query(
            vector=vector,
            k=k,
            threshold=threshold,
            exact=numbers_of(exact),
            dead=numbers_of(dead),
            oldest=oldest_of(subject.now, subject.ttl_ms),
        )
        name = (subject.journal.store_id, subject.journal.org, subject.scope, subject.tool, stamp, len(vector))
        table = self._held.fresh(name, generation)
        answer = table.answer(asked) if table is not None else await self._catch_up(name, subject, generation, asked)
        return _recall(answer, exact, dead)

    def forget(self, subject: Subject) -> None:
        """Drop what is held of a scope and tool: a record that was found there is gone from the journal."""
        if len(self._held):  # else there is nothing to drop, and no store needs to be asked for its id
            journal = subject.journal
            self._held.drop_all((journal.store_id, journal.org, subject.scope, subject.tool))

    def sweep(self) -> float | None:
        """Drop what has not been asked for too long; return the seconds until the next is due, None where none is.

        A thread does this by itself: an idle process forgets too.
        """
        return self._held.sweep()

    # Read ----------------------------------------------------------------------------------------------------------

    async def _catch_up(self, name: Name, subject: Subject, generation: Entry, query: Query) -> Answer:
        """Bring the table up to the generation, or answer without one. Tasks of one loop wait for the first of them."""
        if self._held.is_big(name):
            return await self._load(name, subject, generation, query)
        with self._lock:
            loads = self._loads.setdefault(asyncio.get_running_loop(), {})
        if (other := loads.get(name)) is not None:
            await other.wait()
            table = self._held.fresh(name, generation)
            # Once: where the first has failed, or found more than this one asks for, nobody queues up behind the next.
            return table.answer(query) if table is not None else await self._update(name, subject, generation, query)
        loads[name] = done = asyncio.Event()
        try:
            return await self._update(name, subject, generation, query)
        finally:
            del loads[name]
            done.set()

    async def _update(self, name: Name, subject: Subject, generation: Entry, query: Query) -> Answer:
        held = self._held.get(name)
        if held is not None and generation.version < held.version:
            # Either the caller read it before others wrote, or the store was put back to an older copy.
            (now,) = (await subject.journal.get_many([generation.key])).entries
            if now is None:
                self.forget(subject)
                return Answer()
            if held.is_at(now):
                return held.table.answer(query)
            if now.version < held.version:
                self._held.drop(name)
            generation = now
        if held is not None and held.leads_to(generation):
            table = await self._advance(name, subject, held, generation)
            if table is not None:
                return table.answer(query)
        return await self._load(name, subject, generation, query)

    async def _advance(self, name: Name, subject: Subject, held: Scope, generation: Entry) -> Table | None:
        """Return the table with what is new; None where that leads nowhere, so that all must be read."""
        found: list[Table] = []
        after: Key | None = None
        while not self._held.exceeds(sum(table.used for table in found)):
            table, after = await _page(name, subject, after, held.version)
            found.append(table)
            if after is None:
                advanced = self._held.advance(name, held, generation, join(found, name[5]))
                watch(self)
                return advanced
        return None

    async def _load(self, name: Name, subject: Subject, generation: Entry, query: Query) -> Answer:
        """Read the whole scope, and keep it unless it is too big: then only the answer grows, page by page."""
        tables: list[Table] = []
        answer = Answer() if self._held.is_big(name) else None
        used = 0
        after: Key | None = None
        while True:
            table, after = await _page(name, subject, after, 0)
            used += table.used
            tables.append(table)
            if answer is None and self._held.exceeds(used):
                answer = Answer()
            if answer is not None:
                for one in tables:
                    answer = answer.plus(one.answer(query), query.k)
                tables.clear()
            if after is None:
                break
        if answer is not None:
            self._held.big(name, used)
            return answer
        whole = join(tables, name[5])
        self._held.keep(name, scope_of(whole, generation, surplus_of(whole, generation)))
        watch(self)
        return whole.answer(query)


async def _page(name: Name, subject: Subject, after: Key | None, newer_than: int) -> tuple[Table, Key | None]:
    prefix = keys.similar_of(subject.scope, subject.tool)
    page = await subject.journal.scan(
        prefix, after=after, newer_than=newer_than, limit=_PAGE_ROWS, max_bytes=_PAGE_BYTES, blobs=True
    )
    return read_table(page.entries, prefix, name[4], name[5]), page.after


def _unit(query: Vectors | None) -> Vectors | None:
    if query is None or query.ndim != 1:
        return None
    vector = np.ascontiguousarray(query, np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        length = float(vector @ vector)
    return vector if 0 < length < np.inf else None


def _recall(answer: Answer, exact: Collection[str], dead: Collection[str]) -> Recall:
    scored: dict[str, float | None] = {text_of(number): score for number, score in answer.best}
    scores = {text_of(number): score for number, score in answer.exact.items()}
    gone = {*dead, *map(text_of, answer.old)}
    for text in exact:
        if text not in gone:
            scored.setdefault(text, scores.get(text))
    return Recall(tuple(sorted(scored.items(), key=_rank)), answer.dropped)


def _rank(found: tuple[str, float | None]) -> float:
    return 2.0 if found[1] is None else -found[1]


VECTORS = VectorCache()
"""The cache of the process."""
