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
from gnl_core.journal.port import Entry, Key
from gnl_core.prior import Subject
from gnl_semantic.embedder.port import Vectors
from gnl_semantic.past import stamp_key
from gnl_semantic.vectors.blocks import BLOCK_RECORDS, Chain, Copies, Counted, Due, UnsoundError, counted
from gnl_semantic.vectors.copier import Copier
from gnl_semantic.vectors.held import Held, Name, Place, Scope, records_of, scope_of
from gnl_semantic.vectors.idle import watch
from gnl_semantic.vectors.reading import Call, Whole, read_copies, read_new_copies, read_records
from gnl_semantic.vectors.table import Answer, Query, Table, join, numbers_of, oldest_of, text_of

MAX_BYTES = 64 << 20
"""Most bytes that a process keeps: about 43,000 vectors of 384 dimensions."""

IDLE_SECONDS = 600.0
"""How long a scope that nobody asks about is kept: so long an erased vector may live in another process's memory."""


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
        block: Least records of a block of copies, 1 or more. A scope of fewer records is read without its copies.
    """

    def __init__(
        self,
        *,
        max_bytes: int = MAX_BYTES,
        idle_s: float = IDLE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        block: int = BLOCK_RECORDS,
    ) -> None:
        self._held = Held(max_bytes, idle_s, clock)
        self._copier = Copier(block, clock)
        self._start_over()
        if hasattr(os, "register_at_fork"):
            reset = weakref.WeakMethod(self._start_over)
            os.register_at_fork(after_in_child=lambda: method() if (method := reset()) is not None else None)

    def _start_over(self) -> None:
        self._held.start_over()
        self._copier.start_over()
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
            self._erased(subject)
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
        if table is not None:
            return _recall(table.answer(asked), exact, dead)
        call = Call(name, subject, generation, asked)
        found = _recall(await self._catch_up(call), exact, dead)
        await self._copy(call)
        return found

    def forget(self, subject: Subject) -> None:
        """Drop what is held of a scope and tool, and do without its copies from now on.

        A record that was found there is gone from the journal.
        """
        place = _place(subject)
        self._copier.doubt(place)
        self._held.drop_all(place)

    def _erased(self, subject: Subject) -> None:
        if len(self._held) or self._copier.doubts_any:  # else no store needs to be asked for its id
            place = _place(subject)
            self._copier.trust(place)
            self._held.drop_all(place)

    def sweep(self) -> float | None:
        """Drop what has not been asked for too long; return the seconds until the next is due, None where none is.

        A thread does this by itself: an idle process forgets too.
        """
        return self._held.sweep()

    # Read ----------------------------------------------------------------------------------------------------------

    async def _catch_up(self, call: Call) -> Answer:
        """Bring the table up to the generation, or answer without one. Tasks of one loop wait for the first of them."""
        name = call.name
        if self._held.is_big(name):
            return await self._load(call)
        with self._lock:
            loads = self._loads.setdefault(asyncio.get_running_loop(), {})
        if (other := loads.get(name)) is not None:
            await other.wait()
            table = self._held.fresh(name, call.generation)
            # Once: where the first has failed, or found more than this one asks for, nobody queues up behind the next.
            return table.answer(call.query) if table is not None else await self._update(call)
        loads[name] = done = asyncio.Event()
        try:
            return await self._update(call)
        finally:
            del loads[name]
            done.set()

    async def _update(self, call: Call) -> Answer:
        name, held = call.name, self._held.get(call.name)
        if held is not None and call.generation.version < held.version:
            # Either the caller read it before others wrote, or the store was put back to an older copy.
            (now,) = (await call.subject.journal.get_many([call.generation.key])).entries
            if now is None:
                self._erased(call.subject)
                return Answer()
            if held.is_at(now):
                return held.table.answer(call.query)
            if now.version < held.version:
                self._held.drop(name)
            call.generation = now
        if held is not None and held.leads_to(call.generation):
            table = await self._advance(call, held)
            if table is not None:
                return table.answer(call.query)
        return await self._load(call)

    async def _advance(self, call: Call, held: Scope) -> Table | None:
        """Return the table with what is new; None where that leads nowhere, so that all must be read."""
        counts = self._copied(call)
        copies = await read_new_copies(call, held, counts) if counts is not None else None
        if copies is not None:
            return self._advanced(call, held, copies)
        found: list[Table] = []
        after: Key | None = None
        while not self._held.exceeds(sum(table.used for table in found)):
            table, after = await read_records(call, after, held.version)
            found.append(table)
            if after is None:
                return self._advanced(call, held, join(found, call.width))
        return None

    def _advanced(self, call: Call, held: Scope, found: Table) -> Table | None:
        table = self._held.advance(call.name, held, call.generation, found)
        watch(self)
        return table

    async def _load(self, call: Call) -> Answer:
        """Read the whole scope, and keep it unless it is too big: then only the answer grows, page by page."""
        whole = self._whole(call)
        chain: Chain | None = Chain()
        counts = self._copied(call)
        if counts is not None:
            prefix = keys.vectors_of(call.subject.scope, call.subject.tool, stamp_key(call.stamp))
            copies = Copies(prefix, call.stamp, call.width, counts)
            try:
                surplus = await read_copies(call, copies, whole)
            except UnsoundError:
                whole, chain = self._whole(call), copies.chain if copies.behind else None
            else:
                whole.tail = copies.tail
                return self._keep(call, whole, surplus, copies.chain)
        elif self._copier.doubts(call.name[:4]):
            chain = None
        after: Key | None = None
        while True:
            table, after = await read_records(call, after, 0)
            whole.add(table, chain)
            if after is None:
                break
        records = records_of(call.generation)
        return self._keep(call, whole, None if records is None or whole.newer else whole.count - records, chain)

    def _whole(self, call: Call) -> Whole:
        return Whole(call, self._held.exceeds, self._copier.block, big=self._held.is_big(call.name))

    def _keep(self, call: Call, whole: Whole, surplus: int | None, chain: Chain | None) -> Answer:
        if whole.answer is None:
            table = whole.table()
            self._held.keep(call.name, scope_of(table, call.generation, surplus, chain))
            watch(self)
            return table.answer(call.query)
        self._held.big(call.name, whole.used)
        counts = counted(call.generation)
        if chain is not None and surplus is not None and counts is not None:
            call.due = Due(chain=chain, tail=whole.tail, complete=whole.complete, surplus=surplus, counted=counts)
        return whole.answer

    # Copies --------------------------------------------------------------------------------------------------------

    def _copied(self, call: Call) -> Counted | None:
        """Return what the generation counts where copies may help; None where the records are read."""
        counts = counted(call.generation)
        if counts is None or counts.records < self._copier.block or self._copier.doubts(call.name[:4]):
            return None
        return counts

    async def _copy(self, call: Call) -> None:
        """Write the blocks that a scope is due for. The call waits for it, so that no task of nobody's is left behind.

        It does so once in as many records as a block holds, and for a millisecond.
        """
        due = call.due or self._due(call)
        if due is None or due.tail.count < self._copier.block:
            return
        chain = await self._copier.write(call, due)
        if chain != due.chain:
            self._held.chained(call.name, call.generation.created_at, chain)

    def _due(self, call: Call) -> Due | None:
        held, counts = self._held.get(call.name), counted(call.generation)
        if held is None or held.chain is None or held.surplus is None or counts is None:
            return None
        if not held.is_at(call.generation) or held.table.newer(held.version):
            return None
        if held.table.newer(held.chain.upto) < self._copier.block:
            return None
        tail = held.table.between(held.chain.upto + 1, held.version)
        return Due(chain=held.chain, tail=tail, complete=True, surplus=held.surplus, counted=counts)


def _place(subject: Subject) -> Place:
    return subject.journal.store_id, subject.journal.org, subject.scope, subject.tool


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
