"""Opening a journal's SQLite file: pragmas, migrations, and what each of SQLite's errors means to a journal."""

from __future__ import annotations

import os
import re
import sqlite3
import uuid
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Literal

from gnl_core.errors import (
    ConfigError,
    JournalError,
    JournalFormatError,
    StoreBusyError,
    StoreCorruptError,
    StoreUnavailableError,
    StoreUnknownError,
)

Durability = Literal["full", "normal"]

SCHEMA = 1
"""Number of the last migration in sql/."""

_HANDLER_S = 0.1  # SQLite's own wait before it reports a lock; the retry around it is ours, and fairer
_MEMORY_URI = re.compile(r"file:(:memory:|[^?]*\?(.*&)?mode=memory)")


@dataclass(frozen=True, slots=True)
class Target:
    """Which file, and how it is opened.

    Attributes:
        database: Absolute path, or a 'file:' URI.
        uri: Whether it is a URI.
        durability: 'full' syncs each commit, 'normal' only checkpoints.
        read_only: Whether the URI says mode=ro or immutable.
    """

    database: str
    uri: bool
    durability: Durability
    read_only: bool


class Busy(Exception):  # noqa: N818 - a signal between two functions, no error that anybody sees
    """Somebody else holds the file's lock: nothing has happened, try again."""


def target_of(path: str | os.PathLike[str], durability: Durability) -> Target:
    """Return what a path or URI names. Touches no disk.

    Raises:
        ConfigError: It names no file, or the durability is neither of the two.
    """
    if durability not in ("full", "normal"):
        raise ConfigError(f"durability is {durability!r}, must be 'full' or 'normal'")
    text = os.fsdecode(path)
    if not text or "\0" in text:
        raise ConfigError(f"the path of a journal is {text!r}, must name a file")
    if text == ":memory:" or _MEMORY_URI.match(text):
        raise ConfigError(f"{text} would be another database for each of the store's threads: use InMemoryStorage()")
    if text.startswith("file:"):
        options = text.partition("?")[2].partition("#")[0].split("&")
        return Target(text, True, durability, "mode=ro" in options or "immutable=1" in options)
    return Target(str(Path(text).absolute()), False, durability, False)


def connect(target: Target) -> sqlite3.Connection:
    """Open the file, made if it is missing, with the journal's pragmas and schema.

    Raises:
        Busy: Others hold the lock that opening needs; nothing is left behind.
        StoreUnavailableError: The file cannot be opened, or its file system has no write-ahead log.
        StoreCorruptError: The file is no SQLite database.
        JournalFormatError: A newer release wrote its schema.
    """
    if not target.uri:
        _check_path(Path(target.database))
    try:
        # Any thread may close it: the thread that forks does, see sqlite_thread.py.
        connection = sqlite3.connect(
            target.database,
            timeout=_HANDLER_S,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
            uri=target.uri,
        )
    except sqlite3.Error as error:
        raise translate(error, target) from error
    try:
        _prepare(connection, target)
    except sqlite3.Error as error:
        connection.close()
        raise translate(error, target) from error
    except BaseException:
        connection.close()
        raise
    return connection


def _check_path(path: Path) -> None:
    if path.is_dir():
        raise StoreUnavailableError(f"{path} is a directory; name a file in it", path=str(path))
    if not path.parent.is_dir():
        raise StoreUnavailableError(
            f"the folder {path.parent} of the journal does not exist; make it first", path=str(path)
        )


def _prepare(connection: sqlite3.Connection, target: Target) -> None:
    if not target.read_only:
        # The switch to WAL and the recovery after a crash report a lock without calling SQLite's busy handler.
        (mode,) = connection.execute("PRAGMA journal_mode=WAL").fetchone()
        if mode != "wal":
            raise StoreUnavailableError(
                f"{target.database} has no write-ahead log (SQLite says {mode!r}): network file systems and in-memory "
                "databases cannot hold a journal; use a local disk, or a database server",
                path=target.database,
            )
    connection.execute(f"PRAGMA synchronous={'FULL' if target.durability == 'full' else 'NORMAL'}")
    for pragma in ("fullfsync=ON", "checkpoint_fullfsync=ON", "secure_delete=ON", "temp_store=MEMORY"):
        connection.execute(f"PRAGMA {pragma}")
    found = _schema_version(connection)
    if found < SCHEMA:
        if target.read_only:
            raise StoreUnavailableError(
                f"{target.database} holds {'no journal' if found == 0 else 'a journal of an older release'} and is "
                "opened read-only; open it once for writing",
                path=target.database,
            )
        _migrate(connection)
    elif found > SCHEMA:
        raise JournalFormatError(
            f"{target.database} has schema {found}, this release knows {SCHEMA}: update gnl-semantic",
            path=target.database,
            format=found,
        )


def _schema_version(connection: sqlite3.Connection) -> int:
    if connection.execute("SELECT 1 FROM sqlite_schema WHERE type='table' AND name='gnl_meta'").fetchone() is None:
        return 0
    row = connection.execute("SELECT schema_version FROM gnl_meta").fetchone()
    if row is None or not isinstance(row[0], int):
        raise StoreCorruptError("the journal's table gnl_meta is empty; restore the file from a copy")
    return row[0]


def _migrate(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        found = _schema_version(connection)  # another process may have been first
        for number in range(found + 1, SCHEMA + 1):
            for statement in statements(number):
                connection.execute(statement)
            if number == 1:
                connection.execute("INSERT INTO gnl_meta VALUES (1, 1, ?, 0, 0)", (str(uuid.uuid4()),))
            else:
                connection.execute("UPDATE gnl_meta SET schema_version=?", (number,))
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def statements(number: int) -> list[str]:
    """Return the statements of one migration, in order."""
    folder = files("gnl_core.journal") / "sql"
    (file,) = (item for item in folder.iterdir() if item.name.startswith(f"{number:04d}_"))
    found: list[str] = []
    text = ""
    for line in file.read_text(encoding="utf-8").splitlines(keepends=True):
        text += line
        if sqlite3.complete_statement(text):
            found.append(text)
            text = ""
    return found


# Errors ------------------------------------------------------------------------------------------------------------


def is_busy(error: sqlite3.Error) -> bool:
    """Tell whether an error only says that somebody else holds a lock."""
    return _primary(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL)


def _primary(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def translate(error: sqlite3.Error, target: Target, *, committing: bool = False) -> JournalError | Busy:
    """Return what an error of SQLite means.

    Args:
        error: What the driver raised.
        target: The file.
        committing: Whether it was raised by COMMIT. Only then may the batch be on disk: where the sync failed. A frame
            that could not be written leaves no mark of a commit.
    """
    where = target.database
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    facts: dict[str, object] = {"path": where, "sqlite": name}
    if is_busy(error):
        return Busy(where)
    match _primary(error):
        case sqlite3.SQLITE_FULL:
            return StoreUnavailableError(f"the disk is full: {where} takes no more; nothing was written", **facts)
        case sqlite3.SQLITE_READONLY:
            return StoreUnavailableError(f"{where} is read-only: nothing was written; open it for writing", **facts)
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return StoreCorruptError(
                f"{where} is no SQLite database, or a damaged one ({error}); restore it from a copy", **facts
            )
        case sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM | sqlite3.SQLITE_AUTH:
            return StoreUnavailableError(
                f"{where} cannot be opened ({error}); check that it exists and may be read", **facts
            )
        case sqlite3.SQLITE_IOERR if name == "SQLITE_IOERR_WRITE":
            return StoreUnavailableError(
                f"{where} could not be written: the disk is full, a limit on file sizes is reached, or the disk fails; "
                "nothing was written",
                **facts,
            )
        case sqlite3.SQLITE_IOERR if not committing:
            return StoreUnavailableError(f"{where} could not be read or written ({name}); nothing was written", **facts)
    if committing:
        return StoreUnknownError(
            f"{where} broke off while it wrote ({name}): the batch may or may not be there; send it again", **facts
        )
    return StoreUnavailableError(f"{where} cannot be used ({name}: {error}); nothing was written", **facts)


def busy_error(target: Target, seconds: float) -> StoreBusyError:
    """Return the error of having waited in vain."""
    return StoreBusyError(
        f"{target.database} stayed locked by another process for {seconds:g} s; nothing was written. End the program "
        "that holds a transaction open in it",
        path=target.database,
    )
