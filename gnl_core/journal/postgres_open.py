"""Opening a journal's schema on a PostgreSQL server: checks, migrations, and what is asked of a fresh store."""

from __future__ import annotations

import uuid
from importlib.resources import files

import psycopg

from gnl_core.errors import ConfigError, JournalFormatError, StoreCorruptError, StoreUnavailableError
from gnl_core.journal.access import Access, missing
from gnl_core.journal.postgres_pool import Connection
from gnl_core.journal.postgres_sql import BEGIN, IDLE_MS, statements
from gnl_core.journal.postgres_target import Target

SCHEMA = 1
"""Number of the last migration in sql/postgres/."""

OLDEST_SERVER = 120000
"""Oldest server release that is known to do, as the server numbers them."""

_TABLES = """
SELECT count(*) FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = 'gnl_meta'
"""
_LOCK = 0x676E6C  # "gnl": half of the key under which processes that open one schema wait for each other


async def prepare(connection: Connection, target: Target, access: Access = "make", *, patience_ms: int) -> str:
    """Bring the schema up to date, made if it is missing and may be; return the store's id.

    Who makes or migrates it meanwhile is waited for, as long as `patience_ms` says.

    Raises:
        ConfigError: The server is too old, or its database keeps text in another encoding than UTF-8.
        JournalFormatError: A newer release wrote the schema.
        StoreUnavailableError: There is no schema, and it may not be made or the server is read-only.
        psycopg.Error: As it comes.
    """
    (encoding,) = await _row(connection, "SELECT current_setting('server_encoding')")
    if encoding != "UTF8":
        raise ConfigError(
            f"{target.name} keeps text as {encoding}; a journal needs a database made with ENCODING 'UTF8'"
        )
    if connection.info.server_version < OLDEST_SERVER:
        raise ConfigError(f"{target.name} runs PostgreSQL {connection.info.server_version // 10_000}; 12 is the oldest")
    found, store_id = await _found(connection, target)
    if found < SCHEMA:
        if access == "read" or (access == "write" and found == 0):
            raise missing(target.name, older=found > 0)
        (standby,) = await _row(connection, "SELECT pg_is_in_recovery()")
        if standby:
            raise StoreUnavailableError(
                f"{target.name} holds {'no journal' if found == 0 else 'a journal of an older release'} and is a "
                "standby, which cannot be written; open the primary once"
            )
        await _migrate(connection, target, patience_ms)
        found, store_id = await _found(connection, target)
    check_format(found, target)
    return store_id


def check_format(schema_version: object, target: Target) -> None:
    """Refuse a schema of a newer release.

    Raises:
        JournalFormatError: It is one.
    """
    if schema_version != SCHEMA:
        raise JournalFormatError(
            f"{target.name} has schema {schema_version}, this release knows {SCHEMA}: update gnl-semantic",
            format=schema_version,
        )


async def _found(connection: Connection, target: Target) -> tuple[int, str]:
    # The catalogue itself: what to_regclass() answers may be remembered from before another's migration.
    (there,) = await _row(connection, _TABLES, target.schema)
    if not there:
        return 0, ""
    found = await connection.execute(statements(target).opened)
    row = await found.fetchone()
    if row is None:
        raise StoreCorruptError(f"the table gnl_meta of {target.name} is empty; restore it from a copy")
    return int(row[1]), str(row[0])


async def _migrate(connection: Connection, target: Target, patience_ms: int) -> None:
    await connection.execute(BEGIN)
    try:
        # Who is frozen in the midst of it must not keep everybody else out.
        await connection.execute(
            "SELECT set_config('lock_timeout', %s, true), set_config('idle_in_transaction_session_timeout', %s, true)",
            (str(patience_ms), IDLE_MS),
        )
        # Of the transaction, not of the session: behind a pooler the session is somebody else's.
        await connection.execute("SELECT pg_advisory_xact_lock(%s::int, hashtext(%s))", (_LOCK, target.schema))
        found, _ = await _found(connection, target)  # another process may have been first
        (there,) = await _row(
            connection, "SELECT count(*) FROM pg_catalog.pg_namespace WHERE nspname = %s", target.schema
        )
        if not there:
            await connection.execute(f'CREATE SCHEMA "{target.schema}"'.encode())
        await connection.execute("SELECT set_config('search_path', %s, true)", (f'"{target.schema}"',))
        for number in range(found + 1, SCHEMA + 1):
            await connection.execute(migration(number).encode())
            if number == 1:
                await connection.execute("INSERT INTO gnl_meta VALUES (1, 1, %s)", (str(uuid.uuid4()),))
            else:
                await connection.execute("UPDATE gnl_meta SET schema_version = %s::int", (number,))
        await connection.execute("COMMIT")
    except psycopg.Error:
        raise  # whoever lent the connection takes it back and ends the transaction
    except BaseException:
        await connection.close()
        raise


def migration(number: int) -> str:
    """Return the statements of one migration; their names are unqualified."""
    folder = files("gnl_core.journal") / "sql" / "postgres"
    (file,) = (item for item in folder.iterdir() if item.name.startswith(f"{number:04d}_"))
    return file.read_text(encoding="utf-8")


async def _row(connection: Connection, sql: str, *parameters: object) -> tuple[object, ...]:
    row = await (await connection.execute(sql.encode(), parameters or None)).fetchone()
    return row or (None,)
