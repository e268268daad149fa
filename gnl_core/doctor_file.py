"""A look at a journal's SQLite file from a process of its own: `python -m gnl_core.doctor_file FILE`, JSON comes back.

The file is opened read-only, and read in one transaction: what is compared is of one moment.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from gnl_core import keys
from gnl_core.approvals import read_answer
from gnl_core.doctor import Finding
from gnl_core.errors import IdInvalidError, JournalFormatError, StoreCorruptError
from gnl_core.journal.port import Entry, Key
from gnl_core.journal.sqlite_open import SCHEMA
from gnl_core.records import read_call, read_step, stamped
from gnl_core.summary import STATUSES, read_head

_SHOWN = 20
"""Rows named of each kind of fault; the rest are counted."""

_NETWORK = frozenset(
    ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "ceph", "glusterfs", "lustre", "afs", "fuse.sshfs", "fuse.glusterfs")
)
_FORKING = "forking"
_COPY = "restore the file from a copy"
_ROWS = """
SELECT coalesce((SELECT org FROM gnl_scopes WHERE gnl_scopes.scope_id = gnl_rows.scope_id), ''),
       CAST(key AS BLOB), version, format, codec, CAST(value AS BLOB), created_at, updated_at
FROM gnl_rows ORDER BY scope_id, key
"""


def examine(path: Path) -> list[Finding]:
    """Return what there is to say about a file."""
    findings = list(_filesystem(path))
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=10)) as connection:
            connection.execute("BEGIN")
            findings += _settings(connection, path)
            findings += _integrity(connection)
            findings += _rows(connection)
    except sqlite3.Error as error:
        findings.append(
            Finding(check="file.integrity", level="fault", text=f"SQLite cannot read it: {error}", advice=_COPY)
        )
    return findings


def _settings(connection: sqlite3.Connection, path: Path) -> Iterator[Finding]:
    (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
    yield Finding(
        check="file.wal",
        level="ok" if mode == "wal" else "fault",
        text=f"journal mode {mode}",
        advice="" if mode == "wal" else "open it with SqliteStorage once: it switches to the write-ahead log",
    )
    (version,) = connection.execute("SELECT schema_version FROM gnl_meta").fetchone() or (None,)
    known = isinstance(version, int) and version <= SCHEMA
    yield Finding(
        check="file.schema",
        level="ok" if known else "fault",
        text=f"schema {version}, this release knows {SCHEMA}",
        advice="" if known else "update gnl-semantic",
    )
    yield Finding(
        check="file.durability",
        level="note",
        text=(
            "each program chooses how it syncs when it opens the journal: SqliteStorage(durability='full'), the "
            "default, survives a power cut with every acknowledged write; 'normal' may lose the last ones"
        ),
    )
    log = path.with_name(path.name + "-wal")
    size = log.stat().st_size if log.exists() else 0
    large = size > 256 << 20
    yield Finding(
        check="file.log",
        level="note" if large else "ok",
        text=f"the write-ahead log has {size / (1 << 20):.1f} MB",
        advice="a program that keeps a read open stops it from shrinking: end that program" if large else "",
    )


def _integrity(connection: sqlite3.Connection) -> Iterator[Finding]:
    faults = [str(text) for (text,) in connection.execute(f"PRAGMA integrity_check({_SHOWN})")]
    if faults == ["ok"]:
        yield Finding(check="file.integrity", level="ok", text="SQLite finds no damage")
        return
    for fault in faults:
        yield Finding(check="file.integrity", level="fault", text=fault, advice=_COPY)


def _filesystem(path: Path) -> Iterator[Finding]:
    kind = filesystem_of(path)
    if kind in _NETWORK:
        yield Finding(
            check="file.filesystem",
            level="fault",
            text=f"the file lies on a network file system ({kind}), whose locks SQLite cannot rely on",
            advice="move it to a local disk",
        )
    elif kind in ("tmpfs", "ramfs"):
        yield Finding(
            check="file.filesystem", level="note", text=f"the file lies in memory ({kind}): a reboot takes it along"
        )
    else:
        yield Finding(check="file.filesystem", level="ok", text=f"file system {kind or 'unknown'}")


def filesystem_of(path: Path, table: str = "/proc/self/mountinfo") -> str:
    """Return the type of the file system that holds a file; '' where the system does not tell."""
    place = str(path.resolve())
    best, kind = -1, ""
    try:
        lines = Path(table).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    for line in lines:
        left, _, right = line.partition(" - ")
        fields, types = left.split(), right.split()
        if len(fields) < 5 or not types:
            continue
        mount = fields[4].replace("\\040", " ")
        # Of two mounts on one place the later one covers the earlier.
        if (place == mount or place.startswith(mount.rstrip("/") + "/")) and len(mount) >= best:
            best, kind = len(mount), types[0]
    return kind


# Rows --------------------------------------------------------------------------------------------------------------


class _Found:
    """Faults of the rows: some by name, the rest by number."""

    def __init__(self) -> None:
        self._findings: list[Finding] = []
        self._counts: dict[str, int] = {}

    def add(self, check: str, text: str, key: str, org: str, advice: str) -> None:
        self._counts[check] = self._counts.get(check, 0) + 1
        if self._counts[check] <= _SHOWN:
            self._findings.append(Finding(check=check, level="fault", text=text, key=key, org=org, advice=advice))

    def all(self, rows: int) -> Iterator[Finding]:
        yield from self._findings
        for check in ("rows.keys", "rows.values", "rows.indexes"):
            count = self._counts.get(check, 0)
            if count > _SHOWN:
                yield Finding(check=check, level="fault", text=f"{count - _SHOWN} more of these", advice="see above")
            elif not count:
                yield Finding(check=check, level="ok", text=f"nothing wrong in {rows} rows")


def _rows(connection: sqlite3.Connection) -> Iterator[Finding]:
    found = _Found()
    heads: dict[tuple[str, str], str] = {}
    indexed: dict[tuple[str, str], str] = {}
    count = 0
    for org, name, version, row_format, codec, text, created_at, updated_at in connection.execute(_ROWS):
        count += 1
        shown = name.decode(errors="replace")
        try:
            key = keys.decode(name.decode())
        except (ValueError, IdInvalidError):
            found.add(
                "rows.keys", f"{shown!r} is not the spelling of a key", shown, org, "no release wrote it: delete it"
            )
            continue
        if row_format != 1 or codec != 0:
            what = f"row format {row_format} and codec {codec} are unknown to this release"
            found.add("rows.values", what, shown, org, "update gnl-semantic")
            continue
        try:
            entry = Entry(key, json.loads(text), None, version, 0, created_at, updated_at)
            _read(entry, heads, indexed, org)
        except JournalFormatError as error:
            found.add("rows.values", str(error), shown, org, "update gnl-semantic")
        except (StoreCorruptError, ValueError, RecursionError) as error:
            found.add("rows.values", f"{shown}: {error}", shown, org, "restore the row from a copy of the journal")
    for place in sorted({*heads, *indexed}):
        org, root = place
        head, index = heads.get(place), indexed.get(place)
        if head == _FORKING:
            # It is put into the indexes once it is whole.
            yield Finding(
                check="runs.forking",
                level="waits",
                text=f"run {root!r} is a fork that is still being copied, or whose copying was broken off",
                run_id=root,
                org=org,
                advice="if nobody copies it now: fork once more under another id",
            )
        elif head != index:
            what = f"run {root!r} is {head or 'missing'} by its head and {index or 'missing'} by the index of statuses"
            found.add("rows.indexes", what, "", org, "lists may leave it out: restore the journal from a copy")
    yield from found.all(count)


def _read(entry: Entry, heads: dict[tuple[str, str], str], indexed: dict[tuple[str, str], str], org: str) -> None:
    """Read one row as the runtime would.

    Raises:
        StoreCorruptError: It holds no such record.
        JournalFormatError: A newer release wrote it.
    """
    match entry.key:
        case ("ix", "status", status, _, root):
            if status not in STATUSES:
                raise StoreCorruptError(f"there is no status {status!r}")
            indexed[org, root] = status
        case ("run", root, part, "head"):
            run = read_head(entry)
            if part == keys.ROOT:
                heads[org, root] = _FORKING if run.forking else run.status
        case ("run", _, _, "model", _):
            read_step(entry)
        case ("run", _, _, "tool", _, _) | ("run", _, _, "args", _, _):
            read_call(entry)
        case ("xrun", "args", _, _) | ("xthr", _, "args", _, _):
            read_call(entry)
        case ("run", _, _, "answer", _, _, _):
            if read_answer(entry) is None:
                raise StoreCorruptError("it holds no answer that can be read: it counts as none")
        case _:
            if _is_stamped(entry.key):
                stamped(entry)


def _is_stamped(key: Key) -> bool:
    """Whether a row carries a format number: indexes and counters do not."""
    match key:
        case ("run", _, "req", "semantic") | ("xthr", _, "semgen", _):
            return False
        case ("run", _, "req", *_) | ("run", _, _, "input" | "question" | "incident", *_):
            return True
        case _:
            return key[0] in ("xthr", "xid")


def main() -> None:
    """Write the findings on the file that the command line names."""
    findings: list[dict[str, Any]] = [dict(finding.to_json()) for finding in examine(Path(sys.argv[1]))]
    sys.stdout.write(json.dumps(findings))


if __name__ == "__main__":
    main()
