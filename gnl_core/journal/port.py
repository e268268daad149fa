"""The journal port: what the runtime asks of a store, and nothing more.

One write verb, `apply`: a batch of conditional operations on several keys, all or nothing. Everything that must be
true together (a claim and its markers, a status and its index) is one batch.
"""

from __future__ import annotations

import os
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"
Key: TypeAlias = tuple[str, ...]
"""Segments of a key; `gnl_core.keys` alone spells and parses them. No segment is empty or holds a lone surrogate."""

Capability = Literal["ordered", "blobs", "durable"]
"""'ordered': scans ascend by the keys' bytes; 'blobs': values may carry bytes; 'durable': acknowledged = on disk."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One row.

    Attributes:
        key: Its key.
        value: A private copy of what was written.
        blob: Bytes beside the value; None where there are none or they were not asked for.
        version: Of the batch that last wrote the row. Store-wide, only grows, never reused, not even after a delete.
        batch: 63-bit tag of that batch.
        created_at: Milliseconds of the store's clock.
        updated_at: Milliseconds of the store's clock.
    """

    key: Key
    value: JsonValue
    blob: bytes | None
    version: int
    batch: int
    created_at: int
    updated_at: int


@dataclass(frozen=True, slots=True)
class Read:
    """Entries in the order of the keys asked, None where there is none; `now` is the store's clock in milliseconds."""

    entries: tuple[Entry | None, ...]
    now: int


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a scan; `after` is what to pass for the next page, None on the last."""

    entries: tuple[Entry, ...]
    after: Key | None
    now: int


@dataclass(frozen=True, slots=True)
class Applied:
    """The batch was written.

    Attributes:
        version: Version of every row it wrote.
        now: The store's clock, in milliseconds.
        counters: Values after each `Add`, by key.
        kept: Indexes of the `Create(if_present="keep")` that met a row and left it alone.
    """

    version: int
    now: int
    counters: Mapping[Key, Mapping[str, int]] = field(default_factory=dict)
    kept: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Refused:
    """Nothing was written: operation number `op`, the first in order that failed, met `found`."""

    op: int
    found: Entry | None
    now: int


@dataclass(frozen=True, slots=True)
class Create:
    """Insert; a present row refuses the batch ('abort') or is left as it is ('keep')."""

    key: Key
    value: JsonValue
    blob: bytes | None = None
    if_present: Literal["abort", "keep"] = "abort"


@dataclass(frozen=True, slots=True)
class Replace:
    """Write over the row whose version is `version`; any other state refuses the batch. `created_at` stays."""

    key: Key
    version: int
    value: JsonValue
    blob: bytes | None = None


@dataclass(frozen=True, slots=True)
class Put:
    """Write without a condition. `created_at` of a present row stays."""

    key: Key
    value: JsonValue
    blob: bytes | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove the row if it is there; with `version`, any other state refuses the batch."""

    key: Key
    version: int | None = None


@dataclass(frozen=True, slots=True)
class Add:
    """Add integers to the fields of a counter row, which starts at 0 for every field.

    The row's value is an object of integers. A row that is no such object refuses the batch.
    """

    key: Key
    by: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Expect:
    """Write nothing; refuse the batch unless the row has this version, or is absent or present."""

    key: Key
    version: int | Literal["absent", "present"]


Op: TypeAlias = Create | Replace | Put | Delete | Add | Expect


class Journal(Protocol):
    """A store of rows under keys.

    Contracts, tested by `gnl_core.testing.conformance` over every store:

    - `apply` writes all of a batch or nothing. Conditions are checked in the order given, all before any write. A key
      stands in at most one writing operation of a batch (`ValueError` otherwise); it may stand in one `Expect` beside.
      Every row written has the same version, batch tag and time. Acknowledged means durable at the level the store
      declares. Sending a batch again under the same tag after an error of unknown outcome is safe: an operation whose
      row carries this very tag counts as done, and the answer is `Applied`. (A batch of nothing but `Delete` and
      `Expect` leaves no row to tell by, so a batch that must not be asked twice writes one.)
    - `get_many` and one page of `scan` each show one point in time. Keys of a scan ascend by their encoded bytes, each
      at most once; a scan of several pages is no snapshot.
    - A value that is returned is a private copy: changing it never changes the store.
    - Errors are `StoreBusyError` (waited for in vain), `StoreUnavailableError` (nothing happened), `StoreUnknownError`
      (may have happened), `StoreCorruptError` (names the key), `JournalFormatError` (a newer store); never a driver's.
    - A call that is cancelled while it writes waits for the outcome first and then raises `CancelledError`.
    """

    @property
    def store_id(self) -> str:
        """UUID made with the schema: a re-made file is another store. Read lazily; may open the store."""
        ...

    @property
    def org(self) -> str:
        """The organisation whose rows these are; '' for the store's own, unscoped journal. Never does I/O."""
        ...

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What this store can do; what it cannot, it does not emulate."""
        ...

    async def get_many(self, keys: Sequence[Key]) -> Read:
        """Read rows, with their blobs, in the order asked."""
        ...

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
        """Read one page of the rows at and below `prefix`, whole segments; the empty prefix is every row.

        Args:
            prefix: Whole segments; the row at the prefix itself comes first.
            after: The `after` of the page before.
            newer_than: Only rows whose version is larger.
            reverse: Descend instead.
            limit: Rows at most, at least 1.
            max_bytes: The page ends after the row that reaches this many bytes of values (and blobs, if asked for).
            blobs: Whether to read blobs.
        """
        ...

    async def apply(self, ops: Sequence[Op], *, batch: int) -> Applied | Refused:
        """Write a batch, all or nothing. `batch` is a tag from `new_batch()`."""
        ...

    async def delete_prefix(self, prefix: Key, *, limit: int = 1000) -> int:
        """Delete at most `limit` rows at and below a non-empty prefix; call until it returns 0."""
        ...

    async def now(self) -> int:
        """Return the store's clock in milliseconds. It never runs backwards within one store object."""
        ...

    def scoped(self, org: str) -> Journal:
        """Return the same store seen by one organisation. Refuses a journal that is scoped already (`ConfigError`)."""
        ...

    async def scopes(self, *, after: str | None = None, limit: int = 100) -> Sequence[str]:
        """List organisations that have rows, ascending; '' is the unscoped one. Only on an unscoped journal."""
        ...

    async def aclose(self) -> None:
        """Release what is held; a second call does nothing."""
        ...


_tags = random.Random()  # noqa: S311 - tags must differ, not be secret; the operating system's source costs 15 us
if hasattr(os, "register_at_fork"):
    # A child that went on with its parent's sequence would take the parent's rows for its own.
    os.register_at_fork(after_in_child=_tags.seed)


def new_batch() -> int:
    """Return a random 63-bit tag for one batch."""
    return _tags.getrandbits(63)
