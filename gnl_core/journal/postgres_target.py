"""Which PostgreSQL server and schema a store lives in, and what each of the server's errors means to a journal."""

from __future__ import annotations

import re
from dataclasses import dataclass

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from gnl_core.errors import (
    ConfigError,
    JournalError,
    StoreBusyError,
    StoreCorruptError,
    StoreUnavailableError,
    StoreUnknownError,
)
from gnl_core.journal.urls import check_url

_SCHEMA = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")

_DEFAULTS = {
    # A server that vanished without a word is found out in about a minute, not in the two hours of the system's own.
    "application_name": "gnl",
    "connect_timeout": "10",
    "keepalives_idle": "20",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}

AGAIN = frozenset(("40001", "40P01"))
"""The server undid the transaction because of others: the same may be tried again at once."""

_DAMAGED = frozenset(("XX001", "XX002"))  # XX000 is anything else within the server: mostly a table that was altered

RACED = "23505"
"""Somebody else inserted the row first."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where a store lives.

    Attributes:
        conninfo: What the driver connects with.
        schema: The schema of its tables.
        name: How messages name it; no password.
    """

    conninfo: str
    schema: str
    name: str

    def table(self, name: str) -> str:
        """Return the qualified name of a table: a search path would be state of a session."""
        return f'"{self.schema}".{name}'


def target_of(dsn: str, schema: str) -> Target:
    """Return what a DSN names. Connects to nothing.

    Raises:
        ConfigError: It is none, or the schema's name is none.
    """
    if not _SCHEMA.fullmatch(schema):
        raise ConfigError(f"schema is {schema!r}, must be letters, digits and _, at most 63 characters")
    if not dsn or "\0" in dsn:
        raise ConfigError("the dsn of a journal must be a text like 'postgresql://user@host/database'")
    if dsn.startswith(("postgresql://", "postgres://")):
        check_url(dsn, "PostgreSQL")
    try:
        given = conninfo_to_dict(dsn)
    except (psycopg.Error, UnicodeEncodeError):
        # The driver quotes the text, and a password with it.
        raise ConfigError(
            "the dsn of a journal cannot be read; write 'postgresql://user@host/database' or 'host=… dbname=…', with "
            "special characters of a password percent-encoded in the first form"
        ) from None
    if not re.fullmatch(r"[0-9,]*", str(given.get("port") or "")):
        # Where the '@' was forgotten, what stands there is a password.
        raise ConfigError("the port in the dsn of a journal is no number; write 'postgresql://user@host:5432/database'")
    place = str(given.get("host") or given.get("hostaddr") or "the local server")
    if given.get("port"):
        place += f":{given['port']}"
    name = f"PostgreSQL database {given.get('dbname') or given.get('user') or '(default)'} on {place}, schema {schema}"
    conninfo = make_conninfo(dsn, **{key: value for key, value in _DEFAULTS.items() if key not in given})
    return Target(make_conninfo(conninfo, client_encoding="utf8"), schema, name)


# Errors ------------------------------------------------------------------------------------------------------------


def is_lost(error: psycopg.Error) -> bool:
    """Tell whether an error says that the connection is gone, and with it what was not committed."""
    state = error.sqlstate
    if state is None:
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return state[:2] == "08" or state in ("57P01", "57P02", "57P03", "57P05", "25P03", "25P04")


def is_poolers(error: psycopg.Error) -> bool:
    """Tell whether a lost connection's last word is a pooler's, who is there while the server behind it is away."""
    return (error.sqlstate or "").startswith("08")


def translate(error: psycopg.Error, target: Target) -> JournalError:
    """Return what an error means that left the transaction undone."""
    where, state = target.name, error.sqlstate
    facts: dict[str, object] = {"sqlstate": state or ""}
    said = _said(error)
    match state:
        case "55P03" | "57014":
            return StoreBusyError(f"{where}: rows stayed locked by others ({said}); nothing was written", **facts)
        case "25006" | "0A000":  # the second is what a standby says to BEGIN READ WRITE
            return StoreUnavailableError(
                f"{where} is read-only, as a standby is; nothing was written. Name the primary, for instance with "
                "target_session_attrs=read-write in the dsn",
                **facts,
            )
        case "42P01" | "42703":
            return StoreUnavailableError(
                f"{where}: the journal's tables are gone or not this release's ({said}); nothing was written", **facts
            )
        case "42501" | "3F000":
            return StoreUnavailableError(
                f"{where}: the role may not do this ({said}); grant it USAGE and CREATE on the schema", **facts
            )
        case "53100":
            return StoreUnavailableError(f"{where}: the server's disk is full; nothing was written", **facts)
    if state in _DAMAGED:
        return StoreCorruptError(f"{where} is damaged ({said}); restore it from a copy", **facts)
    return StoreUnavailableError(f"{where} cannot be used ({said}); nothing was written", **facts)


def unknown_error(target: Target, why: BaseException) -> StoreUnknownError:
    """Return the error of a connection that was lost while a batch was being committed."""
    return StoreUnknownError(
        f"{target.name}: the connection was lost while a batch was committed ({_said(why)}): it may or may not be "
        "there; send it again",
        sqlstate=getattr(why, "sqlstate", None) or "",
    )


def lost_error(target: Target, why: BaseException) -> StoreUnavailableError:
    """Return the error of a server that cannot be reached, or was lost before anything was committed."""
    return StoreUnavailableError(
        f"{target.name} cannot be reached ({_said(why)}); nothing was written",
        sqlstate=getattr(why, "sqlstate", None) or "",
    )


def busy_error(target: Target, seconds: float, why: str) -> StoreBusyError:
    """Return the error of having waited in vain."""
    return StoreBusyError(f"{target.name}: {why} for {seconds:g} s; nothing was written")


def _said(error: BaseException) -> str:
    # The first line: what follows quotes statements and rows.
    diag = getattr(error, "diag", None)
    text = (diag.message_primary if diag is not None else None) or str(error) or type(error).__name__
    return " ".join(text.splitlines()[0].split())
