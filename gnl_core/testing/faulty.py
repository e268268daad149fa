"""A journal that fails on demand: it kills the process at one write, or lets the store break off there."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from gnl_core.errors import ConfigError, StoreBusyError, StoreUnavailableError, StoreUnknownError
from gnl_core.journal.port import Applied, Capability, Journal, Key, Op, Page, Read, Refused

Action = Literal["kill", "unavailable", "busy", "unknown"]
"""'kill': the process dies without a word. 'unavailable', 'busy': the store says that nothing happened.
'unknown': the store broke off, and cannot say."""

KILLED = 9
"""Exit status of a process that a fault killed."""

WriteHook: TypeAlias = Callable[[int, Sequence[Op]], None]
"""Called with the number of a write, from 1, and its operations (none for `delete_prefix`) before it happens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault.

    Attributes:
        at: What is counted: writes of the journal, or effects.
        number: Which one is hit, from 1.
        when: 'before': it has not happened. 'after': it has, and nobody was told.
        action: What goes wrong there.
        times: How many in a row are hit, at least 1.
        match: Counts only the writes whose operations it accepts.

    Raises:
        ConfigError: The fault cannot be: a store that wrote does not say that nothing happened, and an effect of a
            tool has no store.
    """

    at: Literal["write", "effect"] = "write"
    number: int = 1
    when: Literal["before", "after"] = "before"
    action: Action = "kill"
    times: int = 1
    match: Callable[[Sequence[Op]], bool] | None = None

    def __post_init__(self) -> None:
        if self.number < 1 or self.times < 1:
            raise ConfigError(f"Fault number {self.number} and times {self.times} must be at least 1")
        if self.action in ("unavailable", "busy") and self.when == "after":
            raise ConfigError(
                f"Fault '{self.action}' after a write: that answer means that nothing happened; use 'unknown'"
            )
        if self.at == "effect" and (self.action != "kill" or self.match is not None):
            raise ConfigError(f"Fault '{self.action}' at an effect: only 'kill' without match can hit effects")

    def __str__(self) -> str:
        return f"{self.action} {self.when} {self.at} {self.number}"

    def hits(self, number: int) -> bool:
        """Return whether this is one of the numbers that are hit."""
        return self.number <= number < self.number + self.times


def die() -> None:
    """End the process as a crash would: no handler runs, nothing is flushed."""
    os._exit(KILLED)


@dataclass(slots=True)
class _Counts:
    reads: int = 0
    scans: int = 0
    applies: int = 0
    deletes: int = 0
    matched: int = 0
    hit: int = 0


@dataclass(frozen=True, slots=True)
class _Shared:
    fault: Fault | None
    on_write: WriteHook | None
    counts: _Counts = field(default_factory=_Counts)


class FaultyJournal:
    """Pass everything through to another journal, count it, and fail where the fault says.

    Organisations' views (`scoped`) share the counts and the fault.

    Args:
        inner: The journal that does the work.
        fault: What goes wrong; None only counts. A fault at an effect is not this object's matter.
        on_write: Called before each write.
    """

    def __init__(self, inner: Journal, *, fault: Fault | None = None, on_write: WriteHook | None = None) -> None:
        self._inner = inner
        self._shared = _Shared(fault if fault is not None and fault.at == "write" else None, on_write)

    @property
    def reads(self) -> int:
        """Calls of `get_many`."""
        return self._shared.counts.reads

    @property
    def scans(self) -> int:
        """Pages scanned."""
        return self._shared.counts.scans

    @property
    def applies(self) -> int:
        """Calls of `apply`, those that were refused or failed included."""
        return self._shared.counts.applies

    @property
    def writes(self) -> int:
        """Calls of `apply` and of `delete_prefix`."""
        return self._shared.counts.applies + self._shared.counts.deletes

    @property
    def hit(self) -> int:
        """How often the fault struck."""
        return self._shared.counts.hit

    @property
    def store_id(self) -> str:
        """The inner store's id."""
        return self._inner.store_id

    @property
    def org(self) -> str:
        """The inner journal's organisation."""
        return self._inner.org

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What the inner store can do."""
        return self._inner.capabilities

    async def get_many(self, keys: Sequence[Key]) -> Read:
        """Count, and read."""
        self._shared.counts.reads += 1
        return await self._inner.get_many(keys)

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
        """Count, and read one page."""
        self._shared.counts.scans += 1
        return await self._inner.scan(
            prefix,
            after=after,
            newer_than=newer_than,
            reverse=reverse,
            limit=limit,
            max_bytes=max_bytes,
            blobs=blobs,
        )

    async def apply(self, ops: Sequence[Op], *, batch: int) -> Applied | Refused:
        """Count, and write, or fail.

        Raises:
            StoreUnavailableError: The fault says so; nothing was written.
            StoreBusyError: The fault says so; nothing was written.
            StoreUnknownError: The fault says so; `when` says whether the batch was written.
        """
        self._shared.counts.applies += 1
        struck = self._struck(ops)
        self._fail(struck, "before")
        answer = await self._inner.apply(ops, batch=batch)
        self._fail(struck, "after")
        return answer

    async def delete_prefix(self, prefix: Key, *, limit: int = 1000) -> int:
        """Count, and delete, or fail as `apply` does."""
        self._shared.counts.deletes += 1
        struck = self._struck(())
        self._fail(struck, "before")
        deleted = await self._inner.delete_prefix(prefix, limit=limit)
        self._fail(struck, "after")
        return deleted

    async def now(self) -> int:
        """Return the inner store's clock."""
        return await self._inner.now()

    def scoped(self, org: str) -> FaultyJournal:
        """Return one organisation's view, under the same fault and counts."""
        view = FaultyJournal(self._inner.scoped(org))
        view._shared = self._shared
        return view

    async def scopes(self, *, after: str | None = None, limit: int = 100) -> Sequence[str]:
        """List the inner store's organisations."""
        return await self._inner.scopes(after=after, limit=limit)

    async def aclose(self) -> None:
        """Close the inner journal."""
        await self._inner.aclose()

    def _struck(self, ops: Sequence[Op]) -> Fault | None:
        """Count a write; return the fault if it is hit. The number is taken before anything is awaited."""
        shared = self._shared
        if shared.on_write is not None:
            shared.on_write(self.writes, ops)
        fault = shared.fault
        if fault is None or (fault.match is not None and not fault.match(ops)):
            return None
        shared.counts.matched += 1
        return fault if fault.hits(shared.counts.matched) else None

    def _fail(self, fault: Fault | None, when: Literal["before", "after"]) -> None:
        if fault is None or fault.when != when:
            return
        self._shared.counts.hit += 1
        match fault.action:
            case "kill":
                die()
            case "unavailable":
                raise StoreUnavailableError(f"the test's fault '{fault}': the store is away, nothing was written")
            case "busy":
                raise StoreBusyError(f"the test's fault '{fault}': the store is locked, nothing was written")
            case "unknown":
                raise StoreUnknownError(f"the test's fault '{fault}': the store broke off, the batch may be there")
