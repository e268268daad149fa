"""What every store's storage object and journal do alike: closing, scopes, and the check of what was asked for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Sequence
from types import TracebackType
from typing import Generic, Self, TypeVar

from gnl_core.journal.batches import Span, Step, check_limit, check_org, name_of, prepare, refuse_scope, span
from gnl_core.journal.durability import DurabilityFinding
from gnl_core.journal.port import Applied, Capability, Journal, Key, Op, Page, Read, Refused

EngineT = TypeVar("EngineT")
"""What does a journal's work, shared by all views of one store."""


class Storage(ABC):
    """A storage object: a context manager, sync and async, that closes it.

    Attributes:
        runs: The journal.
    """

    runs: Journal

    @abstractmethod
    async def durability_report(self) -> Sequence[DurabilityFinding]:
        """Return what keeps batches that were acknowledged, setting by setting.

        Raises:
            JournalError: The store cannot be asked.
        """

    @abstractmethod
    def close(self) -> None:
        """Release what is held; calls after it raise `StoreUnavailableError`. A second close does nothing."""

    async def aclose(self) -> None:
        """Do what `close` does, without blocking the loop."""
        await self.runs.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class StoreJournal(ABC, Generic[EngineT]):
    """A `Journal` over one store; the contract stands at `gnl_core.journal.port.Journal`.

    A store writes the methods that begin with an underscore: they get what was asked for after it was checked.
    """

    def __init__(self, engine: EngineT, org: str = "") -> None:
        self._engine = engine
        self._org = org

    @property
    @abstractmethod
    def store_id(self) -> str:
        """UUID made with the store."""

    @property
    @abstractmethod
    def capabilities(self) -> frozenset[Capability]:
        """What the store can do."""

    @property
    def org(self) -> str:
        """The organisation it is scoped to; '' where it is not."""
        return self._org

    async def get_many(self, keys: Sequence[Key]) -> Read:
        """Read rows, with their blobs, in the order asked."""
        names = [name_of(key) for key in keys]
        return await self._get_many(names, tuple(keys))

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
        """Read one page of the rows at and below `prefix`."""
        part = span(
            prefix,
            after=after,
            newer_than=newer_than,
            reverse=reverse,
            limit=limit,
            max_bytes=max_bytes,
            blobs=blobs,
        )
        return await self._scan(part)

    async def apply(self, ops: Sequence[Op], *, batch: int) -> Applied | Refused:
        """Write a batch, all or nothing."""
        return await self._apply(prepare(ops, batch), batch)

    async def delete_prefix(self, prefix: Key, *, limit: int = 1000) -> int:
        """Delete at most `limit` rows at and below a non-empty prefix."""
        name_of(prefix)
        part = span(prefix, after=None, newer_than=0, reverse=False, limit=limit, max_bytes=1, blobs=False)
        return await self._delete_prefix(part)

    async def now(self) -> int:
        """Return the store's clock in milliseconds."""
        return await self._now()

    def scoped(self, org: str) -> Self:
        """Return the same store seen by one organisation."""
        if self._org:
            raise refuse_scope("scoped()")
        return type(self)(self._engine, check_org(org))

    async def scopes(self, *, after: str | None = None, limit: int = 100) -> Sequence[str]:
        """List organisations that have rows, ascending; '' is the unscoped one."""
        if self._org:
            raise refuse_scope("scopes()")
        check_limit(limit)
        return await self._scopes(after, limit)

    async def aclose(self) -> None:
        """Close the storage; on a scoped journal, which holds nothing of its own, do nothing."""
        if not self._org:
            await self._aclose()

    # A store's own ---------------------------------------------------------------------------------------------------

    @abstractmethod
    def _get_many(self, names: list[str], asked: Sequence[Key]) -> Awaitable[Read]: ...

    @abstractmethod
    def _scan(self, part: Span) -> Awaitable[Page]: ...

    @abstractmethod
    def _apply(self, steps: list[Step], batch: int) -> Awaitable[Applied | Refused]: ...

    @abstractmethod
    def _delete_prefix(self, part: Span) -> Awaitable[int]: ...

    @abstractmethod
    def _now(self) -> Awaitable[int]: ...

    @abstractmethod
    def _scopes(self, after: str | None, limit: int) -> Awaitable[Sequence[str]]: ...

    @abstractmethod
    def _aclose(self) -> Awaitable[None]: ...


def store_of(journal: Journal) -> object:
    """Return what all views of one store share, to tell whether two journals are one; of a foreign journal, itself."""
    return journal._engine if isinstance(journal, StoreJournal) else journal
