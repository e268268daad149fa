"""Walk the distinct next segments of a prefix: one short read each, however many rows stand below."""

from __future__ import annotations

from collections.abc import AsyncIterator

from gnl_core import keys
from gnl_core.journal.port import Journal, Key


async def segments_of(journal: Journal, prefix: Key) -> AsyncIterator[str]:
    """Yield each segment that follows the prefix in some key, in the order of the keys.

    Raises:
        JournalError: The store cannot be read.
    """
    after: Key | None = prefix
    while after is not None:
        page = await journal.scan(prefix, after=after, limit=1)
        if not page.entries:
            return
        segment = page.entries[0].key[len(prefix)]
        yield segment
        after = keys.beyond((*prefix, segment))
