"""Which scopes' tables are held, within a bound in bytes, and what generation each is as good as.

Every method takes the lock for what takes microseconds. Tables are read without it: none of their rows ever changes.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace

from gnl_core.journal.port import Entry, Key
from gnl_semantic.vectors.blocks import Chain
from gnl_semantic.vectors.table import Table

Place = tuple[str, str, Key, str]
"""(store id, organisation, scope, tool)."""

Name = tuple[str, str, Key, str, str, int]
"""A place, the stamp of the vectors and their dimension."""

_MOST_BIG = 1_024  # scopes that are remembered as too big to be held


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """One table, and the generation row it is as good as.

    Attributes:
        table: The records.
        version: Of the generation row.
        batch: Tag of the batch that wrote it: a store that was put back to an older copy reaches a version twice.
        born: When the row was created: after a purge it is created again.
        records: How many records it says were created; None where it does not say.
        filled: How many vectors it says were filled in later; None where it does not say.
        surplus: How many more there are than that, less than 0 for fewer; None while that is not known. Two writers of
            one record count it twice, so this is no sign of damage; a change of it is.
        chain: Where the blocks of copies end; None where none are to be written.
        used: When it was last asked, by the holder's clock.
    """

    table: Table
    version: int
    batch: int
    born: int
    records: int | None
    filled: int | None
    surplus: int | None
    chain: Chain | None
    used: float = 0.0

    def is_at(self, generation: Entry) -> bool:
        """Whether nothing was written since."""
        return self.version == generation.version and self.batch == generation.batch

    def is_past(self, generation: Entry) -> bool:
        """Whether it is as good as a later state of the same row."""
        return self.version > generation.version and self.born == generation.created_at

    def leads_to(self, generation: Entry) -> bool:
        """Whether a later state of the same row can be reached by what is new."""
        records = records_of(generation)
        lost = self.records is not None and records is not None and records < self.records
        return generation.version > self.version and generation.created_at == self.born and not lost


def scope_of(table: Table, generation: Entry, surplus: int | None, chain: Chain | None) -> Scope:
    """Return the scope of a table that holds all that the generation counts."""
    return Scope(
        table=table,
        version=generation.version,
        batch=generation.batch,
        born=generation.created_at,
        records=records_of(generation),
        filled=_count_of(generation, "f"),
        surplus=surplus,
        chain=chain,
    )


def records_of(generation: Entry) -> int | None:
    """Return how many records were created, None where the row does not say."""
    return _count_of(generation, "n")


def _count_of(generation: Entry, name: str) -> int | None:
    count = generation.value.get(name, 0) if isinstance(generation.value, dict) else None
    return count if type(count) is int else None


def surplus_of(table: Table, generation: Entry) -> int | None:
    """Return how many records there are more than the generation says; None where it cannot be told.

    Of a record that was written after the generation was read nobody knows whether it is counted there already.
    """
    records = records_of(generation)
    return None if records is None or table.newer(generation.version) else table.count - records


class Held:
    """Scopes by name, within a bound; what was not asked for the longest goes first.

    Args:
        max_bytes: Most bytes held.
        idle_s: Seconds after which a scope that nobody asks about is dropped.
        clock: Seconds that never run backwards.
    """

    def __init__(self, max_bytes: int, idle_s: float, clock: Callable[[], float]) -> None:
        self._max_bytes = max_bytes
        self._idle_s = idle_s
        self._clock = clock
        self.start_over()

    def start_over(self) -> None:
        """Hold nothing. Made for a forked child, which may have inherited a lock that nobody there will release."""
        self._lock = threading.Lock()
        self._scopes: OrderedDict[Name, Scope] = OrderedDict()  # least recently asked first
        self._names: dict[Place, set[Name]] = {}
        self._big: OrderedDict[Name, None] = OrderedDict()
        self._bytes = 0

    @property
    def bytes(self) -> int:
        """Bytes of what is held."""
        return self._bytes

    def __len__(self) -> int:
        """Return how many scopes are held."""
        return len(self._scopes)

    def is_big(self, name: Name) -> bool:
        """Whether a scope was too big to be held when it was last read."""
        return name in self._big

    def exceeds(self, used: int) -> bool:
        """Whether a scope of so many bytes is too big to be held: it would take more than a quarter of the bound."""
        return 4 * used > self._max_bytes

    def get(self, name: Name) -> Scope | None:
        """Return a scope, in whatever state it is."""
        return self._scopes.get(name)

    def fresh(self, name: Name, generation: Entry) -> Table | None:
        """Return the table of a scope that is as good as the generation; None where it is not held, or is not."""
        with self._lock:
            self._sweep()
            scope = self._scopes.get(name)
            if scope is None or not scope.is_at(generation):
                return None
            self._scopes[name] = replace(scope, used=self._clock())
            self._scopes.move_to_end(name)
            return scope.table

    def keep(self, name: Name, scope: Scope) -> None:
        """Hold a scope that was read whole, unless it is too big or a later state of it is held."""
        with self._lock:
            now = self._scopes.get(name)
            if now is None or not (now.version > scope.version and now.born == scope.born):
                self._keep(name, scope)

    def advance(self, name: Name, held: Scope, generation: Entry, found: Table) -> Table | None:
        """Add to a scope what is new in it, and return its table.

        None where that is not what the generation counts, or the scope is not held any more: then all must be read.
        """
        with self._lock:
            now = self._scopes.get(name)
            # The table is the one to be added to only while it is the one held: see `Records.plus`.
            if now is None or now.table is not held.table:
                return now.table if now is not None and (now.is_at(generation) or now.is_past(generation)) else None
            table = held.table.plus(found)
            surplus = surplus_of(table, generation)
            if surplus is None:
                surplus = held.surplus
            elif held.surplus not in (None, surplus):
                self._drop(name)
                return None
            self._keep(name, scope_of(table, generation, surplus, now.chain))
            return table

    def chained(self, name: Name, born: int, chain: Chain | None) -> None:
        """Note where the blocks of a scope end now."""
        with self._lock:
            now = self._scopes.get(name)
            if now is not None and now.born == born:
                self._scopes[name] = replace(now, chain=chain)

    def big(self, name: Name, used: int) -> None:
        """Note what a scope that is not held would take."""
        with self._lock:
            self._drop(name)
            if self.exceeds(used):
                self._mark_big(name)
            else:
                self._big.pop(name, None)  # it has shrunk, and may be held from now on

    def drop(self, name: Name) -> None:
        """Drop a scope."""
        with self._lock:
            self._drop(name)

    def drop_all(self, place: Place) -> None:
        """Drop the scopes of a place, of whatever stamp."""
        with self._lock:
            for name in tuple(self._names.get(place, ())):
                self._drop(name)

    def sweep(self) -> float | None:
        """Drop what has not been asked for too long; return the seconds until the next is due, None where none is."""
        with self._lock:
            return self._sweep()

    # With the lock -------------------------------------------------------------------------------------------------

    def _sweep(self) -> float | None:
        now = self._clock()
        while self._scopes:
            name, scope = next(iter(self._scopes.items()))
            left = scope.used + self._idle_s - now
            if left > 0:
                return left
            self._drop(name)
        return None

    def _keep(self, name: Name, scope: Scope) -> None:
        self._drop(name)
        if self.exceeds(scope.table.used):
            self._mark_big(name)
            return
        self._big.pop(name, None)
        self._scopes[name] = replace(scope, used=self._clock())
        self._names.setdefault(name[:4], set()).add(name)
        self._bytes += scope.table.held
        while self._bytes > self._max_bytes and len(self._scopes) > 1:
            self._drop(next(iter(self._scopes)))

    def _drop(self, name: Name) -> None:
        scope = self._scopes.pop(name, None)
        if scope is None:
            return
        self._bytes -= scope.table.held
        names = self._names[name[:4]]
        names.discard(name)
        if not names:
            del self._names[name[:4]]

    def _mark_big(self, name: Name) -> None:
        self._big[name] = None
        self._big.move_to_end(name)
        if len(self._big) > _MOST_BIG:
            self._big.popitem(last=False)
