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
from gnl_core.doctor import Finding
from gnl_core.doctor_rows import DELETE, RESTORE, UPDATE, RowCheck
from gnl_core.errors import IdInvalidError
from gnl_core.journal.port import Entry
from gnl_core.journal.sqlite_open import SCHEMA

_SHOWN = 20
"""Faults of the file that are named."""

_NETWORK = frozenset(
    ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "ceph", "glusterfs", "lustre", "afs", "fuse.sshfs", "fuse.glusterfs")
)
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


def _rows(connection: sqlite3.Connection) -> Iterator[Finding]:
    check = RowCheck()
    for org, name, version, row_format, codec, text, created_at, updated_at in connection.execute(_ROWS):
        shown = name.decode(errors="replace")
        try:
            key = keys.decode(name.decode())
        except (ValueError, IdInvalidError):
            check.fault("rows.keys", f"{shown!r} is not the spelling of a key", shown, org, DELETE)
            continue
        if row_format != 1 or codec != 0:
            what = f"row format {row_format} and codec {codec} are unknown to this release"
            check.fault("rows.values", what, shown, org, UPDATE)
            continue
        try:
            entry = Entry(key, json.loads(text), None, version, 0, created_at, updated_at)
        except (ValueError, RecursionError) as error:
            check.fault("rows.values", f"{shown}: {error}", shown, org, RESTORE)
        else:
            check.add(entry, org)
    yield from check.findings()


def main() -> None:
    """Write the findings on the file that the command line names."""
    findings: list[dict[str, Any]] = [dict(finding.to_json()) for finding in examine(Path(sys.argv[1]))]
    sys.stdout.write(json.dumps(findings))


if __name__ == "__main__":
    main()
