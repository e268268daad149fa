"""Read a journal's rows without trusting one of them: what cannot be read is counted, and nothing else is lost.

Faults of the store itself (busy, gone) are raised as ever: a report that left out half of a journal without a word
would be worse than none.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from gnl_core import keys
from gnl_core.errors import IdInvalidError, JournalFormatError, StoreCorruptError
from gnl_core.journal.port import Entry, Journal, Key, Page
from gnl_core.records import stamped

PAGE = 500
"""Rows of one page, and most keys of one `get_many`."""

_UNREADABLE = (StoreCorruptError, JournalFormatError)


class Reader:
    """A journal as a report reads it.

    Attributes:
        journal: The store; a tenant's own view of it shows that tenant's rows alone.
        unreadable: Rows met so far that could not be read.
        now: The store's clock, as last seen, in milliseconds.
    """

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.unreadable = 0
        self.now = 0

    async def pages(self, prefix: Key, *, after: Key | None = None) -> AsyncIterator[tuple[Entry, ...]]:
        """Yield the rows below a prefix, a page at a time, in order."""
        while True:
            try:
                page = await self.journal.scan(prefix, after=after, limit=PAGE)
            except _UNREADABLE as error:
                self.unreadable += 1
                broken = _key_of(error)
                if broken is None or broken[: len(prefix)] != prefix:
                    return  # nobody can say where to go on
                async for entries in self._before(prefix, after, broken):
                    yield entries
                after = broken
                continue
            self.now = max(self.now, page.now)
            if page.entries:
                yield page.entries
            after = page.after
            if after is None:
                return

    async def _before(self, prefix: Key, after: Key | None, broken: Key) -> AsyncIterator[tuple[Entry, ...]]:
        """Yield the rows that stand between the last one read and a broken one."""
        for _ in range(PAGE):
            try:
                page: Page = await self.journal.scan(prefix, after=after, limit=1)
            except _UNREADABLE:
                return
            if not page.entries or keys.encode(page.entries[0].key) >= keys.encode(broken):
                return
            yield page.entries
            after = page.entries[0].key

    async def get_many(self, wanted: Sequence[Key]) -> list[Entry | None]:
        """Return rows in the order asked; None for one that is not there or cannot be read."""
        found: list[Entry | None] = []
        for start in range(0, len(wanted), PAGE):
            found += await self._get(wanted[start : start + PAGE])
        return found

    async def _get(self, wanted: Sequence[Key]) -> list[Entry | None]:
        try:
            read = await self.journal.get_many(wanted)
        except (*_UNREADABLE, IdInvalidError):  # a key that was made of a broken one may be longer than any can be
            if len(wanted) == 1:
                self.unreadable += 1
                return [None]
            # One broken row among many: halves find it in few reads.
            middle = len(wanted) // 2
            return [*await self._get(wanted[:middle]), *await self._get(wanted[middle:])]
        self.now = max(self.now, read.now)
        return list(read.entries)

    def object_of(self, entry: Entry) -> dict[str, object] | None:
        """Return the object of a row that says its format; None where it holds none, which is counted."""
        try:
            return stamped(entry)
        except _UNREADABLE:
            self.unreadable += 1
            return None


def _key_of(error: StoreCorruptError | JournalFormatError) -> Key | None:
    text = error.detail.get("key")
    try:
        return keys.decode(text) if isinstance(text, str) else None
    except (ValueError, IdInvalidError):
        return None


def time_of(key: Key, place: int) -> int | None:
    """Return the milliseconds that a segment of an index key spells; None where it spells none."""
    text = key[place] if len(key) > place else ""
    return int(text) if len(text) == _DIGITS and text.isascii() and text.isdigit() else None


_DIGITS = 13


def start_of(prefix: Key, since: int | None) -> Key | None:
    """Return the place in a time index after which rows of `since` and later stand; None: all of them."""
    # The key of the bare time stands before every row of that time.
    return None if since is None else (*prefix, f"{max(0, since):0{_DIGITS}d}")
