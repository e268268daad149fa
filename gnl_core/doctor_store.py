"""What `gnl doctor` says of a store as a whole: its server's settings, the versions on both sides, and its clock."""

from __future__ import annotations

import asyncio
import platform
import sqlite3
import time
from collections.abc import Callable
from importlib.metadata import version

from gnl_core.doctor import Finding
from gnl_core.errors import ConfigError, JournalError, StoreUnavailableError
from gnl_core.journal import redis_scripts, sqlite_open
from gnl_core.journal.postgres import PostgresStorage
from gnl_core.journal.redis import RedisStorage
from gnl_core.journal.storage import Storage

APART_MS = 5_000
"""How far a server's clock and this machine's may be apart before it is told."""


async def examine_store(storage: Storage, *, clock: Callable[[], float] = time.time) -> tuple[list[Finding], bool]:
    """Look at a store as a whole.

    Args:
        storage: The store.
        clock: Seconds of this machine's time.

    Returns:
        The findings, and whether the store can be opened, so that its rows can be looked at.

    Raises:
        StoreUnavailableError: It cannot be reached, or holds no journal.
    """
    found: list[Finding] = [Finding(check="store.versions", level="ok", text=_versions(storage))]
    unsaid = "empty" if isinstance(storage, PostgresStorage) else "not told"
    try:
        if _has_server(storage):  # how each program syncs a file is its own choice, and told with the file
            found += [
                Finding(
                    check=f"server.{one.setting.replace('_', '-')}",
                    level=one.level,
                    text=f"{one.setting} is {one.value or unsaid}. {one.meaning}",
                )
                for one in await storage.durability_report()
            ]
        store_id = await asyncio.to_thread(lambda: storage.runs.store_id)
        found.append(Finding(check="store.schema", level="ok", text=f"store {store_id}, schema {_schema(storage)}"))
        found.append(await _clock(storage, clock))
    except StoreUnavailableError:
        raise
    except (JournalError, ConfigError) as error:
        found.append(Finding(check="store.schema", level="fault", text=str(error)))
        return found, False
    return found, True


def _versions(storage: Storage) -> str:
    """Return the releases of this side; those of a server are told with its settings."""
    if isinstance(storage, PostgresStorage):
        import psycopg  # noqa: PLC0415 - the driver comes with an extra

        driver = f"psycopg {psycopg.__version__}, libpq {psycopg.pq.version_pretty(psycopg.pq.version())}"
    elif isinstance(storage, RedisStorage):
        driver = f"redis-py {version('redis')}"
    else:
        driver = f"SQLite {sqlite3.sqlite_version}"
    return f"gnl-semantic {version('gnl-semantic')}, Python {platform.python_version()}, {driver}"


def _has_server(storage: Storage) -> bool:
    return isinstance(storage, PostgresStorage | RedisStorage)


def _schema(storage: Storage) -> int:
    """Return the number of the schema that an opened store has: opening refuses every other."""
    if isinstance(storage, PostgresStorage):
        from gnl_core.journal.postgres_open import SCHEMA  # noqa: PLC0415 - the driver comes with an extra

        return SCHEMA
    return redis_scripts.SCHEMA if isinstance(storage, RedisStorage) else sqlite_open.SCHEMA


async def _clock(storage: Storage, clock: Callable[[], float]) -> Finding:
    if not _has_server(storage):
        return Finding(check="store.clock", level="ok", text="the store's clock is this machine's")
    before = clock()
    theirs = await storage.runs.now()
    # The answer was made somewhere between: the middle errs by half the journey at most.
    apart = theirs - (before + clock()) / 2 * 1000
    text = f"the server's clock is {abs(apart) / 1000:.1f} s {'ahead of' if apart > 0 else 'behind'} this machine's"
    if abs(apart) <= APART_MS:
        return Finding(check="store.clock", level="ok", text=text)
    return Finding(
        check="store.clock",
        level="note",
        text=text,
        advice="every time in the journal is the server's; let both machines ask a time server",
    )
