"""A value as a row keeps it: what was sent to a workflow, and what it returned."""

from __future__ import annotations

import json

from gnl_core.codec import decode, encode
from gnl_core.crash import BLOB_BYTES
from gnl_core.errors import NotCanonicalError, StoreCorruptError
from gnl_core.journal.port import Entry, JsonValue
from gnl_core.records import FORMAT, stamped


def to_row(value: object) -> tuple[dict[str, JsonValue], bytes | None]:
    """Return the row of a value and its blob, which holds the value where it needs more than 64 KiB.

    Raises:
        NotCanonicalError: It cannot be stored; the message names path and type.
    """
    data = encode(value)
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":")).encode()
    if len(text) > BLOB_BYTES:
        return {"f": FORMAT, "in_blob": True}, text
    return {"f": FORMAT, "data": data}, None


def from_row(entry: Entry) -> object:
    """Return the value of a row.

    Raises:
        StoreCorruptError: The row, or its blob, holds none.
        JournalFormatError: It was written by a newer release.
    """
    value = stamped(entry)
    try:
        return decode(json.loads(entry.blob or b"") if value.get("in_blob") else value["data"])
    except (KeyError, ValueError, RecursionError, NotCanonicalError) as error:
        text = "/".join(entry.key)
        raise StoreCorruptError(
            f"the row {text} holds no value that can be read ({error}); run `gnl doctor`", key=text
        ) from None
