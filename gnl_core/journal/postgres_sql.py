"""Statements of a PostgreSQL store, with the names of one schema in them; their text stands in sql/postgres/.

Names are qualified and organisations looked up in each statement: between two calls a store relies on nothing, neither
on a session's state nor on a number that it saw before.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from gnl_core.journal.postgres_target import Target

ROW_FORMAT = 1
"""What this release writes into a row's columns."""

JSON_TEXT = 0
"""The codec of a row whose value is JSON text and whose blob is plain bytes; there is no other yet."""

BEGIN = b"BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
"""Said in full: a role's or a database's own defaults are of no consequence."""

IDLE_MS = "60000"
"""How long a transaction may rest between two statements; also the longest that a large value may take to be sent."""

_COLUMNS = "r.key, r.version, r.batch, r.created_at, r.updated_at, r.format, r.codec"
_NOW = "floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
_SIZE = "octet_length(r.value)"
_PARTS = {"org", "page", "below", "own"}


@dataclass(frozen=True, slots=True)
class Statements:
    """The statements for one schema, named as in the file."""

    opened: bytes
    get_many: bytes
    get_more: bytes
    scopes: bytes
    settings: bytes
    lock: bytes
    place: bytes
    last_version: bytes
    next_version: bytes
    entry: bytes
    came: bytes
    add_scope: bytes
    insert: bytes
    inserts: bytes
    guards: bytes
    update: bytes
    updates: bytes
    delete: bytes
    delete_own: bytes
    delete_below: bytes
    pages: dict[tuple[bool, ...], bytes]

    def page(self, *, own: bool, newer: bool, reverse: bool, blobs: bool) -> bytes:
        """Return the statement of one page of a scan."""
        return self.pages[own, newer, reverse, blobs]


def statements(target: Target) -> Statements:
    """Write the statements for one schema."""
    texts = _texts()
    names = {name: target.table(f"gnl_{name}") for name in ("rows", "scopes", "meta", "versions")}
    words = {
        **names,
        "org": f"({texts['org'].format(**names)})",
        "columns": _COLUMNS,
        "now": _NOW,
        "format": str(ROW_FORMAT),
        "codec": str(JSON_TEXT),
    }

    def page(*, own: bool, newer: bool, reverse: bool, blobs: bool) -> bytes:
        options = {
            "order": "DESC" if reverse else "ASC",
            "newer": " AND r.version > %s::bigint" if newer else "",
            "blob": "r.blob" if blobs else "NULL::bytea",
            "size": f"{_SIZE} + coalesce(octet_length(r.blob), 0)" if blobs else _SIZE,
        }
        parts = [texts[name].format(**words, **options) for name in ("below", *["own"] * own)]
        found = " UNION ALL ".join(f"({part})" for part in parts)
        return texts["page"].format(**words, **options, found=found).encode()

    plain = {name: text.format(**words).encode() for name, text in texts.items() if name not in _PARTS}
    pages = {
        case: page(own=case[0], newer=case[1], reverse=case[2], blobs=case[3])
        for case in itertools.product((False, True), repeat=4)
    }
    return Statements(pages=pages, **plain)


@cache
def _texts() -> dict[str, str]:
    text = (files("gnl_core.journal") / "sql" / "postgres" / "statements.sql").read_text(encoding="utf-8")
    parts = re.split(r"(?m)^-- name: (\w+)$", text)
    return {name: re.sub(r"(?m)^--.*$", "", body).strip() for name, body in zip(parts[1::2], parts[2::2], strict=True)}
