"""One exchange with a PostgreSQL server: several statements sent at once, their results read in one go.

The driver's own cursors wait for the socket after each statement of a pipeline, which costs more than the statement
does. Here libpq's pipeline mode is used as it is. No statement has a name, and nothing of a session is relied upon.
"""

from __future__ import annotations

import asyncio
import re
import struct
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TypeAlias

import psycopg
from psycopg import pq

from gnl_core.journal.postgres_pool import Connection

Value: TypeAlias = "str | int | bytes | None"
"""A parameter; bytes are sent as they are, so that an array is one that was packed before."""

Call: TypeAlias = tuple[bytes, Mapping[str, Value]]
"""A statement with parameters like %(name)s, or %(name)b for bytes, and their values; more of them do no harm."""

_PARAMETER = re.compile(rb"%\((\w+)\)([sb])")
_TEXT, _BYTEA, _BOOL = 25, 17, 16  # numbers of the server's types
_DONE = (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK)


async def exchange(connection: Connection, calls: Sequence[Call]) -> list[pq.abc.PGresult]:
    """Send statements and return their results, whose values are binary.

    Whoever leaves it halfway, by whatever error, leaves a closed connection.

    Raises:
        psycopg.Error: The first error of a statement; the server left out what follows it.
        psycopg.OperationalError: The connection was lost.
    """
    line = connection.pgconn
    results: list[pq.abc.PGresult] = []
    try:
        line.enter_pipeline_mode()
        for statement, values in calls:
            text, names, formats = _numbered(statement)
            given = [_packed(values[name]) for name in names]
            line.send_query_params(text, given, param_formats=formats, result_format=pq.Format.BINARY)
        line.pipeline_sync()
        while line.flush():
            await _ready(line.socket, writing=True)
            line.consume_input()  # who waits for the server to read must not let it wait to be read from
        await _receive(line, results)
        line.exit_pipeline_mode()
    except psycopg.Error:
        line.finish()
        _raise_first(results)
        raise
    except BaseException:
        line.finish()
        raise
    _raise_first(results)
    return results


async def _receive(line: pq.abc.PGconn, results: list[pq.abc.PGresult]) -> None:
    while True:
        while line.is_busy():
            await _ready(line.socket)
            line.consume_input()
        result = line.get_result()
        if result is not None:
            if result.status == pq.ExecStatus.PIPELINE_SYNC:
                return
            results.append(result)
        elif line.status == pq.ConnStatus.BAD:
            raise psycopg.OperationalError("the connection is lost")


def _raise_first(results: Sequence[pq.abc.PGresult]) -> None:
    for result in results:
        if result.status not in _DONE:
            raise _error(result)


def texts(items: Sequence[str]) -> bytes:
    """Return an array of texts as the server reads it."""
    return _array(_TEXT, [item.encode() for item in items])


def blobs(items: Sequence[bytes | None]) -> bytes:
    """Return an array of bytes, or of nothing in their place, as the server reads it."""
    return _array(_BYTEA, items)


def flags(items: Sequence[bool]) -> bytes:
    """Return an array of booleans as the server reads it."""
    return _array(_BOOL, [b"\1" if item else b"\0" for item in items])


def integer(value: bytes | None) -> int | None:
    """Return an integer of any width as the server wrote it."""
    return None if value is None else int.from_bytes(value, "big", signed=True)


def _array(kind: int, items: Sequence[bytes | None]) -> bytes:
    if not items:
        return struct.pack("!iii", 0, 0, kind)
    parts = [struct.pack("!iiiii", 1, 1, kind, len(items), 1)]
    for item in items:
        parts += (b"\xff\xff\xff\xff",) if item is None else (len(item).to_bytes(4, "big"), item)
    return b"".join(parts)


def _packed(value: Value) -> bytes | None:
    return value if value is None or isinstance(value, bytes) else str(value).encode()  # str(True) is one of its too


@cache
def _numbered(statement: bytes) -> tuple[bytes, tuple[str, ...], tuple[pq.Format, ...]]:
    """Return a statement as the server reads it, the names of its parameters in order, and their formats."""
    found: dict[bytes, tuple[int, bytes]] = {}

    def place(match: re.Match[bytes]) -> bytes:
        order, _ = found.setdefault(match[1], (len(found) + 1, match[2]))
        return b"$%d" % order

    text = _PARAMETER.sub(place, statement)
    formats = tuple(pq.Format.BINARY if kind == b"b" else pq.Format.TEXT for _, kind in found.values())
    return text, tuple(name.decode() for name in found), formats


def _error(result: pq.abc.PGresult) -> psycopg.Error:
    state = (result.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode()
    message = (result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or result.error_message).decode(errors="replace")
    if not state:  # not the server's: libpq's own, when the connection is lost
        return psycopg.OperationalError(message)
    try:
        return psycopg.errors.lookup(state)(message)
    except KeyError:
        error = psycopg.DatabaseError(message)
        error.sqlstate = state
        return error


async def _ready(socket: int, *, writing: bool = False) -> None:
    """Wait until a socket can be read, or written if that is what is wanted."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def tell() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(socket, tell)
    if writing:
        loop.add_writer(socket, tell)
    try:
        await ready
    finally:
        loop.remove_reader(socket)
        if writing:
            loop.remove_writer(socket)
