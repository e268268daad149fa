"""The journal that a command works on: an existing file, and never one that looking at it has made."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import click

from gnl_core import keys
from gnl_core.cli.terminal import complain
from gnl_core.errors import RunNotFoundError
from gnl_core.journal import Journal, get

_TABLES = frozenset(("gnl_meta", "gnl_rows"))

T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., Any])


def _db(ctx: click.Context, _parameter: click.Parameter, value: Path | None) -> Path:
    path = value if value is not None else ctx.find_object(Path)
    if path is None:
        raise click.UsageError("no journal is named: pass --db FILE, or set GNL_DB", ctx)
    return path


db_option: Callable[[Command], Command] = click.option(
    "--db",
    type=click.Path(path_type=Path),
    metavar="FILE",
    callback=_db,
    help="The journal; or set GNL_DB.",
)
json_option: Callable[[Command], Command] = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON for programs."
)


def check_file(path: Path) -> None:
    """Return if a file is a journal. It is only read.

    Asked through SQLite and not by opening the file: closing a file drops every lock that this process holds on it.

    Raises:
        click.ClickException: It is none; the message says why.
    """
    if not path.exists():
        raise click.ClickException(
            f"{path}: no such file. A journal is made by the program that runs agents, never by gnl"
        )
    if not path.is_file():
        raise click.ClickException(f"{path}: is no file")
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=10)) as connection:
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    except sqlite3.DatabaseError as error:
        raise click.ClickException(f"{path}: cannot be read as an SQLite database ({error})") from None
    if not tables >= _TABLES:
        raise click.ClickException(f"{path}: is an SQLite database that holds no journal")


async def require_run(journal: Journal, run_id: str) -> None:
    """Return if there is such a run.

    Raises:
        RunNotFoundError: There is none.
    """
    root, part = keys.split_run_id(run_id)
    if await get(journal, keys.head(root, part)) is None:
        raise RunNotFoundError(
            f"no run {run_id!r} in this journal; `gnl runs list` shows those there are", run_id=run_id
        )


def with_journal(path: Path, work: Callable[[Journal], Awaitable[T]], *, write: bool = False) -> T:
    """Do some work on the journal in a file, in an event loop of its own.

    Args:
        path: The file.
        work: What to do.
        write: Whether the work may write; without it the file is opened so that nothing can.

    Raises:
        click.ClickException: The file is no journal.
        GnlError: What the work raised.
    """
    check_file(path)
    place = str(path) if write else f"{path.resolve().as_uri()}?mode=ro"

    async def do() -> T:
        from gnl_core.journal.sqlite import SqliteStorage  # noqa: PLC0415 - help must not wait for the runtime

        async with SqliteStorage(place) as storage:
            return await work(storage.runs)

    return asyncio.run(do())


def checkpoint(path: Path) -> None:
    """Empty a journal's write-ahead log, so that deleted rows cannot be read in it any more.

    A program that reads just now may hold it back; that is said, and is no error.
    """
    with closing(sqlite3.connect(path, timeout=10)) as connection:
        busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if busy:
        complain(
            f"{path}: another program is reading, so deleted rows may still stand in {path.name}-wal; they go with its "
            "next checkpoint"
        )
