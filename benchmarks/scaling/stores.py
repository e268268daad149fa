"""Stores that are measured, and rows that the engine wrote once, copied under other names."""

from __future__ import annotations

import asyncio
import secrets
import sqlite3
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gnl_core import keys, open_storage
from gnl_core.journal import Journal, new_batch
from gnl_core.journal.port import Create, Key
from gnl_core.journal.storage import Storage

_COLUMNS = "version, batch, created_at, updated_at, format, codec, value, blob"
_AT_ONCE = 2_000  # rows of a batch


def is_server(place: str) -> bool:
    """Return whether a place is a PostgreSQL server's."""
    return place.startswith("postgresql:")


def storage_of(place: str) -> Storage:
    """Return a storage with the defaults of its kind."""
    return open_storage(place)


async def copy_all(source: Journal, target: Journal) -> int:
    """Write every row of one journal into another one, and return how many there were."""
    after: Key | None = None
    count = 0
    while True:
        page = await source.scan((), after=after, limit=_AT_ONCE, blobs=True)
        if page.entries:
            rows = [Create(entry.key, entry.value, entry.blob) for entry in page.entries]
            await target.apply(rows, batch=new_batch())
        count += len(page.entries)
        after = page.after
        if after is None:
            return count


def multiply(place: str, prefix: Key, rows: int) -> int:
    """Copy the rows below a prefix under other names, by SQL, until there are so many; return the number of copies."""
    (low, high), name = keys.prefix_range(prefix)[1:], keys.encode(prefix)
    marks = f"(r.key >= '{low}' AND r.key < '{high}')"
    if is_server(place):
        import psycopg  # noqa: PLC0415 - not needed for a file

        with psycopg.connect(place, autocommit=True) as connection:
            row = connection.execute(f"SELECT count(*) FROM gnl_rows r WHERE {marks}".encode()).fetchone()  # noqa: S608
            assert row is not None
            copies = -(-rows // row[0])
            numbers = f"generate_series(1, {copies}) AS n(i)"
            connection.execute(_insert(name, numbers, marks, "").encode())
            connection.execute("VACUUM ANALYZE gnl_rows")  # as autovacuum does a minute later
            return int(copies)
    with closing(sqlite3.connect(place)) as file, file:
        (there,) = file.execute(f"SELECT count(*) FROM gnl_rows r WHERE {marks}").fetchone()  # noqa: S608
        copies = -(-rows // there)
        counted = f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {copies})"  # noqa: S608
        file.execute(_insert(name, "n", marks, counted))
    return int(copies)


def _insert(name: str, numbers: str, marks: str, before: str) -> str:
    copied = ", ".join(f"r.{column}" for column in _COLUMNS.split(", "))
    return (
        f"{before} INSERT INTO gnl_rows (scope_id, key, {_COLUMNS}) "  # noqa: S608 - names of our own
        f"SELECT r.scope_id, '{name}-' || n.i || substr(r.key, {len(name) + 1}), {copied} "
        f"FROM {numbers}, gnl_rows r WHERE r.scope_id = 0 AND {marks}"
    )


@contextmanager
def twin(place: str) -> Iterator[str]:
    """Yield a copy of a store that nobody has open; it is removed afterwards."""
    if not is_server(place):
        copied = Path(f"{place}.twin")
        # By a connection: a part of it may still stand in the write-ahead log.
        with closing(sqlite3.connect(place)) as source, closing(sqlite3.connect(copied)) as target:
            source.backup(target)
        try:
            yield str(copied)
        finally:
            copied.unlink()
        return
    import psycopg  # noqa: PLC0415 - not needed for a file

    parts = urlsplit(place)
    name = f"gnl_bench_{secrets.token_hex(6)}"
    with psycopg.connect(parts._replace(path="/template1").geturl(), autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{parts.path[1:]}"'.encode())
    with psycopg.connect(place, autocommit=True) as connection:
        try:
            yield parts._replace(path=f"/{name}").geturl()
        finally:
            connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)'.encode())


def count_rows(place: str) -> int:
    """Return how many rows a store has."""
    if is_server(place):
        import psycopg  # noqa: PLC0415 - not needed for a file

        with psycopg.connect(place) as connection:
            row = connection.execute("SELECT count(*) FROM gnl_rows").fetchone()
            assert row is not None
            return int(row[0])
    with closing(sqlite3.connect(place)) as connection:
        return int(connection.execute("SELECT count(*) FROM gnl_rows").fetchone()[0])


async def timed(call: Callable[[], Awaitable[Any]]) -> tuple[float, Any]:
    """Return milliseconds and the result."""
    began = time.perf_counter()
    result = await call()
    return 1e3 * (time.perf_counter() - began), result


async def bounded(calls: list[Callable[[], Awaitable[Any]]], at_once: int) -> None:
    """Do so many calls at a time."""
    permits = asyncio.Semaphore(at_once)

    async def one(call: Callable[[], Awaitable[Any]]) -> None:
        async with permits:
            await call()

    await asyncio.gather(*(one(call) for call in calls))
