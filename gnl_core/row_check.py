"""What must hold of a request's rows before it is driven: each can be read by this release, and none is missing.

Rows come from disk. Whatever is wrong with them is said before anything is written, by an error that names the row.
"""

from __future__ import annotations

from collections.abc import Mapping

from gnl_core import keys
from gnl_core.errors import JournalGapError, StoreCorruptError
from gnl_core.journal.port import Entry, Key
from gnl_core.records import FORMAT, stamped

_ADVISORY = frozenset(("incident", "evidence", "comp", "beat", "question", "semantic"))
"""Families whose unreadable rows stop nobody; a newer format among them still does."""


def check_rows(rows: Mapping[Key, Entry], root: str) -> None:
    """Check the rows of one request.

    Answers are left out: one that cannot be read is no answer, and its question stays open.

    Args:
        rows: All of them, by key.
        root: Id of the root run.

    Raises:
        StoreCorruptError: A row holds no record, or stands where none may stand.
        JournalFormatError: A newer release wrote one.
        JournalGapError: The run has records, but not the input that it began with.
    """
    for key, entry in rows.items():
        family = key[3] if len(key) > 3 else ""
        if family == "answer":
            continue
        number = entry.value.get("f") if isinstance(entry.value, dict) else None
        if type(number) is int and 1 <= number <= FORMAT:
            if family == "model" and not (
                len(key) == 5 and len(key[4]) == 6 and key[4].isascii() and key[4].isdecimal()
            ):
                text = keys.encode(key)
                raise StoreCorruptError(f"the row {text} stands where no model step can; run `gnl doctor`", key=text)
        elif family not in _ADVISORY or (type(number) is int and number > FORMAT):
            stamped(entry)
    head = rows.get(keys.head(root))
    if keys.input_of(root) in rows or (head is not None and stamped(head).get("forking")):
        return
    if head is not None or any(len(key) > 3 and key[2] == keys.ROOT and key[3] in ("model", "tool") for key in rows):
        raise JournalGapError(
            f"run {root} has records, but the input that it began with is missing; nothing is begun in its place. "
            "Run `gnl doctor`, or restore the journal from a copy",
            run_id=root,
        )
