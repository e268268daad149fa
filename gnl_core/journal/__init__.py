"""The journal: its port, and helpers over it that are no methods of stores."""

from __future__ import annotations

from collections.abc import AsyncIterator

from gnl_core.journal.port import (
    Add,
    Applied,
    Capability,
    Create,
    Delete,
    Entry,
    Expect,
    Journal,
    JsonValue,
    Key,
    Op,
    Page,
    Put,
    Read,
    Refused,
    Replace,
    new_batch,
)

__all__ = [
    "Add",
    "Applied",
    "Capability",
    "Create",
    "Delete",
    "Entry",
    "Expect",
    "Journal",
    "JsonValue",
    "Key",
    "Op",
    "Page",
    "Put",
    "Read",
    "Refused",
    "Replace",
    "get",
    "new_batch",
    "scan_all",
]


async def get(journal: Journal, key: Key) -> Entry | None:
    """Read one row."""
    return (await journal.get_many([key])).entries[0]


async def scan_all(
    journal: Journal, prefix: Key, *, newer_than: int = 0, blobs: bool = False, limit: int = 500
) -> AsyncIterator[Entry]:
    """Yield every row at and below `prefix`, page by page; no transaction is held between pages."""
    after: Key | None = None
    while True:
        page = await journal.scan(prefix, after=after, newer_than=newer_than, blobs=blobs, limit=limit)
        for entry in page.entries:
            yield entry
        after = page.after
        if after is None:
            return
