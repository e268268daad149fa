"""A store by its name, as programs, options and environment variables hold it: a file, or the URL of a server.

A URL may hold a password. No message here quotes one: what cannot be read is described, and never shown.
"""

from __future__ import annotations

import os
import re
import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import parse_qsl

from gnl_core.errors import ConfigError, StoreUnavailableError
from gnl_core.journal.access import Access
from gnl_core.journal.storage import Storage
from gnl_core.journal.urls import check_url

Kind = Literal["sqlite", "postgres", "redis"]

_KINDS: dict[str, Kind] = {
    "postgresql": "postgres",
    "postgres": "postgres",
    "redis": "redis",
    "rediss": "redis",
    "unix": "redis",
}
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):", re.ASCII)
_CONNINFO = re.compile(r"(^|\s)(host|hostaddr|port|dbname|user|password|passfile|service)\s*=", re.ASCII)
_NO_SCHEME = re.compile(r"(//)?[^/]*:.*@", re.DOTALL)
_FORMS = (
    "the path of a file, postgresql://user@host/database, redis://host/0, rediss://host/0 or unix:///path/of/socket"
)
_TABLES = frozenset(("gnl_meta", "gnl_rows"))
_LONGEST = 4096


@dataclass(frozen=True, slots=True)
class Place:
    """Where a store is.

    Attributes:
        kind: Which kind of store.
        text: The file's path, or the URL; it may hold a password.
        schema: Of a PostgreSQL store's tables.
        prefix: Of a Redis store's keys.
        org: The organisation whose journal is meant; '' is the store's own.
        cache: The store beside it that holds what may be lost, where `composite` spreads a journal over two.
    """

    kind: Kind
    text: str = field(repr=False)
    schema: str = "public"
    prefix: str = "gnl"
    org: str = ""
    cache: Place | None = None

    @property
    def file(self) -> Path | None:
        """The file of an SQLite store; None for a server's."""
        return Path(self.text) if self.kind == "sqlite" else None


def read_place(text: str | os.PathLike[str], *, schema: str | None = None, prefix: str | None = None) -> Place:
    """Return what a text names. Touches no disk and no network.

    Args:
        text: A path, or a URL that begins with postgresql://, postgres://, redis://, rediss:// or unix://.
        schema: Of a PostgreSQL store; None is 'public'.
        prefix: Of a Redis store; None is 'gnl'.

    Raises:
        ConfigError: It names no store, or the schema or prefix is for another kind of store.
    """
    try:
        text = os.fsdecode(text)
        length = len(os.fsencode(text))
    except TypeError:
        raise ConfigError(f"a store is named by {_FORMS}; {type(text).__name__} is no text") from None
    except UnicodeEncodeError:
        raise ConfigError(
            f"a store is named by {_FORMS}; this text holds a lone surrogate, which no name can"
        ) from None
    if not text.strip() or "\0" in text:
        raise ConfigError(f"a store is named by {_FORMS}; this text is {'not' if text else 'empty and not'} one")
    if length >= _LONGEST:
        raise ConfigError(f"a store is named by {_FORMS}; this text of {len(text):,} characters is too long for one")
    kind = _kind_of(text)
    for name, value, fits in (("schema", schema, "postgres"), ("prefix", prefix, "redis")):
        if value is not None and kind != fits:
            server = "PostgreSQL" if fits == "postgres" else "Redis"
            raise ConfigError(f"a {name} is a {server} store's, and this is none")
    if kind == "sqlite":
        # Absolute, so that no name of a file is read as an URI of SQLite's.
        return Place(kind, str(Path(text).absolute()))
    _check_url(text, kind)
    return Place(kind, text, "public" if schema is None else schema, "gnl" if prefix is None else prefix)


def open_storage(
    place: str | os.PathLike[str] | Place,
    *,
    schema: str | None = None,
    prefix: str | None = None,
    read_only: bool = False,
    must_exist: bool = False,
    accept_async_replication: bool = False,
) -> Storage:
    """Return the storage that a text names, with its defaults; make the store's own class for anything beyond them.

    A server is not connected before the first call, which raises what is wrong with it then. Whether a file holds a
    journal is looked at now, where it must.

    Args:
        place: A path ('runs.db'), 'postgresql://user@host/database' (or postgres://, whatever else libpq reads in it),
            'redis://', 'rediss://' or 'unix://' as the client redis takes them.
        schema: Of a PostgreSQL store's tables; None is 'public'.
        prefix: Of a Redis store's keys; None is 'gnl'.
        read_only: Nothing is written, nor made: a store that is missing, or an older release's, is refused.
        must_exist: A store that is missing is refused instead of made.
        accept_async_replication: Must be True for Redis: see `RedisStorage`.

    Raises:
        ConfigError: The text names no store, or an option does not fit it.
        MissingExtraError: The store's driver is not installed; the message names the pip command.
        StoreUnavailableError: There is no such file, or it holds no journal, and it must.
    """
    if not isinstance(place, Place):
        place = read_place(place, schema=schema, prefix=prefix)
    access: Access = "read" if read_only else "write" if must_exist else "make"
    if place.kind == "postgres":
        from gnl_core.journal.postgres import PostgresStorage  # noqa: PLC0415 - loaded by who uses it

        return PostgresStorage(place.text, schema=place.schema, access=access)
    if place.kind == "redis":
        from gnl_core.journal.redis import RedisStorage  # noqa: PLC0415 - ditto

        return RedisStorage(
            place.text, prefix=place.prefix, accept_async_replication=accept_async_replication, access=access
        )
    from gnl_core.journal.sqlite import SqliteStorage  # noqa: PLC0415 - ditto

    path = Path(place.text)
    if access != "make":
        check_file(path)
    return SqliteStorage(f"{path.resolve().as_uri()}?mode=ro" if read_only else path)


def check_file(path: Path) -> None:
    """Return if a file is a journal. It is only read.

    Asked through SQLite and not by opening the file: closing a file drops every lock that this process holds on it.

    Raises:
        StoreUnavailableError: It is none; the message says why.
    """
    try:
        there, regular = path.exists(), path.is_file()
    except OSError as error:  # a name that is too long, for one
        raise StoreUnavailableError(f"{path}: cannot be looked at ({error.strerror})", missing=True) from None
    if not there:
        raise StoreUnavailableError(
            f"{path}: no such file. A journal is made by the program that runs agents, when it first opens it",
            missing=True,
        )
    if not regular:
        raise StoreUnavailableError(f"{path}: is no file", missing=True)
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=10)) as connection:
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    except sqlite3.DatabaseError as error:
        raise StoreUnavailableError(f"{path}: cannot be read as an SQLite database ({error})", missing=True) from None
    if not tables >= _TABLES:
        raise StoreUnavailableError(f"{path}: is an SQLite database that holds no journal", missing=True)


# What a text is ----------------------------------------------------------------------------------------------------


def _kind_of(text: str) -> Kind:
    found = _SCHEME.match(text)
    scheme = found[1] if found else ""
    if scheme in _KINDS:
        if text[len(scheme) :].startswith("://"):
            return _KINDS[scheme]
        raise ConfigError(f"a store's URL begins with {scheme}://, two slashes")
    if scheme == "file":
        raise ConfigError("a file is named by its path alone, without file:")
    if found and "://" in text:
        hint = f"; {scheme.lower()}:// is written small" if scheme.lower() in _KINDS else ""
        raise ConfigError(f"a store is named by {_FORMS}; none begins with {scheme[:40]}:{hint}")
    if "://" in text or (_CONNINFO.search(text) and not _exists(text)):
        raise ConfigError(f"a store is named by {_FORMS}, without quotes or spaces around it")
    if _NO_SCHEME.match(text) and not _exists(text):
        # Taken for a file it would be shown, or made, under a name that holds a password.
        raise ConfigError(f"a store is named by {_FORMS}; this text has an '@' and begins as none. A file is ./NAME")
    return "sqlite"


def _exists(text: str) -> bool:
    try:
        return Path(text).exists()
    except OSError:
        return False


def _check_url(text: str, kind: Kind) -> None:
    """Refuse a URL that cannot be read, or names what the server's library does not know.

    Raises:
        ConfigError: It is one.
    """
    check_url(text, "PostgreSQL" if kind == "postgres" else "Redis")
    if kind == "postgres" and "schema" in dict(parse_qsl(text.partition("?")[2], keep_blank_values=True)):
        raise ConfigError(
            "the server's library knows no parameter schema in a URL: name the schema with --schema or GNL_SCHEMA, or "
            "in a program with open_storage(schema=…)"
        )
