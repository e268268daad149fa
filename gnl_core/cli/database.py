"""The store that a command works on: one that is there, and never one that looking at it has made."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import os
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from gnl_core import keys
from gnl_core.cli.terminal import complain
from gnl_core.errors import ConfigError, RunNotFoundError
from gnl_core.journal import Journal, get
from gnl_core.journal.composite import composite
from gnl_core.journal.storage import Storage
from gnl_core.opening import Place, open_storage, read_place

PLACE = "FILE|URL"
DB_HELP = "A file, or postgresql://user@host/database, redis://host/0, rediss://… or unix://…; or set GNL_DB."
SCHEMA_HELP = "Schema of a PostgreSQL store; or set GNL_SCHEMA. [default: public]"
PREFIX_HELP = "Prefix of a Redis store; or set GNL_PREFIX. [default: gnl]"
CACHE_HELP = "The cache of a program that spreads its journal with composite(); or set GNL_CACHE."

T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Named:
    """What the options before a command's name say of the store; None where they say nothing."""

    db: str | None = None
    schema: str | None = None
    prefix: str | None = None


def db_option(command: Command) -> Command:
    """Give a command the options that name a store; it is called with `db`, a `Place`."""

    @functools.wraps(command)
    def call(*args: Any, db: str | None, schema: str | None, prefix: str | None, **options: Any) -> Any:
        before = click.get_current_context().find_object(Named) or Named()
        said = Named(
            before.db if db is None else db,
            before.schema if schema is None else schema,
            before.prefix if prefix is None else prefix,
        )
        return command(*args, db=place_of(said), **options)

    for option in (
        click.option("--prefix", metavar="NAME", help=PREFIX_HELP),
        click.option("--schema", metavar="NAME", help=SCHEMA_HELP),
        click.option("--db", metavar=PLACE, help=DB_HELP),
    ):
        call = option(call)
    return call  # type: ignore[return-value] # takes what the command takes, and names its store


def org_option(command: Command) -> Command:
    """Give a command the options that name a store and an organisation in it: its `db`, a `Place`, holds both."""

    @functools.wraps(command)
    def call(*args: Any, db: Place, org: str | None, **options: Any) -> Any:
        return command(*args, db=dataclasses.replace(db, org=org or ""), **options)

    return click.option("--org", metavar="ORG", help="Of this organisation.")(db_option(call))  # type: ignore[return-value] # as above


def cache_option(command: Command) -> Command:
    """Give a command that erases the options that name the cache beside its store; its `db` then holds that place."""

    @functools.wraps(command)
    def call(*args: Any, db: Place, cache: str | None, cache_prefix: str | None, **options: Any) -> Any:
        text = cache if cache is not None else os.environ.get("GNL_CACHE") or None
        prefix = cache_prefix if cache_prefix is not None else os.environ.get("GNL_CACHE_PREFIX") or None
        try:
            if text is None and cache_prefix is not None:
                raise ConfigError("a prefix of which store? Name it with --cache, or set GNL_CACHE")
            beside = read_place(text, prefix=prefix) if text is not None else None
        except ConfigError as error:
            raise click.UsageError(f"--cache: {error}", click.get_current_context()) from None
        return command(*args, db=dataclasses.replace(db, cache=beside), **options)

    for option in (
        click.option("--cache-prefix", metavar="NAME", help="Prefix of a cache on Redis; or set GNL_CACHE_PREFIX."),
        click.option("--cache", metavar=PLACE, help=CACHE_HELP),
    ):
        call = option(call)
    return call  # type: ignore[return-value] # as above


json_option: Callable[[Command], Command] = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON for programs."
)


def place_of(named: Named) -> Place:
    """Return the store that options, or the environment in their place, name.

    A schema or prefix of the environment holds for stores that have one, and is none of the others' business.

    Raises:
        click.UsageError: They name none.
    """
    ctx = click.get_current_context(silent=True)
    text = named.db if named.db is not None else os.environ.get("GNL_DB") or None
    if text is None:
        raise click.UsageError("no store is named: pass --db FILE or a server's URL, or set GNL_DB", ctx)
    try:
        place = read_place(text, schema=named.schema, prefix=named.prefix)
        if place.kind == "postgres" and named.schema is None:
            place = dataclasses.replace(place, schema=os.environ.get("GNL_SCHEMA") or place.schema)
        if place.kind == "redis" and named.prefix is None:
            place = dataclasses.replace(place, prefix=os.environ.get("GNL_PREFIX") or place.prefix)
    except ConfigError as error:
        raise click.UsageError(f"--db: {error}", ctx) from None
    return place


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


def opened(place: Place, *, write: bool = False) -> Storage:
    """Return the storage of a store that is there; without `write` it is opened so that nothing can write.

    Raises:
        StoreUnavailableError: There is no such file, or it holds no journal. A server is asked by the first call.
        ConfigError: An option is none that can work.
    """
    # Whoever keeps runs on Redis has accepted its replication; looking at them is nothing new.
    return open_storage(place, read_only=not write, must_exist=True, accept_async_replication=True)


def with_journal(place: Place, work: Callable[[Journal], Awaitable[T]], *, write: bool = False) -> T:
    """Do some work on a store's journal, in an event loop of its own.

    Args:
        place: The store.
        work: What to do.
        write: Whether the work may write; without it the store is opened so that nothing can.

    Raises:
        GnlError: There is no journal, or what the work raised.
    """
    storage = opened(place, write=write)
    beside = opened(place.cache, write=write) if place.cache is not None else None

    async def do() -> T:
        async with AsyncExitStack() as stack:
            journal: Journal = (await stack.enter_async_context(storage)).runs
            if beside is not None:
                journal = composite(runs=journal, cache=(await stack.enter_async_context(beside)).runs)
            return await work(journal.scoped(place.org) if place.org else journal)

    return asyncio.run(do())


def checkpoint(place: Place) -> None:
    """Empty the write-ahead log of an SQLite file, so that deleted rows cannot be read in it any more.

    A program that reads just now may hold it back; that is said, and is no error. A server's logs are its own matter.
    """
    if place.cache is not None:
        checkpoint(place.cache)
    path = place.file
    if path is None:
        return
    with closing(sqlite3.connect(path, timeout=10)) as connection:
        busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if busy:
        complain(
            f"{path}: another program is reading, so deleted rows may still stand in {path.name}-wal; they go with its "
            "next checkpoint"
        )
