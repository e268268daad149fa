"""Connections to a Redis server: a few, each carries one call at a time, made again when they break.

The client's own pool is not used, since it does not tell a call that was never sent from one that may have been done.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gnl_core.errors import ConfigError, MissingExtraError
from gnl_core.journal.redis_errors import broken_off, code_of, is_answer, no_line_free, refusal, unreachable
from gnl_core.journal.redis_scripts import Script
from gnl_core.journal.urls import check_url


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server is, and how long it is waited for.

    Attributes:
        options: Of a connection, as the client takes them; may hold a password, so they stand in no message.
        where: Host, port and database, or the socket's path: for messages.
        connect_timeout: Seconds to wait for a connection.
        timeout: Seconds to wait for an answer, and for a free connection.
        connections: Connections at most.
    """

    options: Mapping[str, Any] = field(repr=False)
    where: str
    connect_timeout: float
    timeout: float
    connections: int


def address_of(url: str, *, connect_timeout: float, timeout: float, connections: int) -> Address:
    """Check what names a server. Touches no network.

    Raises:
        ConfigError: The URL is none, or a bound is out of range.
        MissingExtraError: The client is not installed.
    """
    if not isinstance(url, str):
        raise ConfigError(f"the address of a Redis store must be a URL, not {type(url).__name__}")
    if not url.startswith(("redis://", "rediss://", "unix://")):
        raise ConfigError("the URL of a Redis store must begin with redis://, rediss:// or unix://")
    check_url(url, "Redis")
    if not (connect_timeout > 0 and timeout > 0):
        raise ConfigError(f"connect_timeout {connect_timeout!r} and timeout {timeout!r} must be seconds above 0")
    if type(connections) is not int or connections < 1:
        raise ConfigError(f"connections is {connections!r}, must be at least 1")
    try:
        from redis.asyncio.connection import parse_url  # noqa: PLC0415 - loaded by who uses it
        from redis.exceptions import RedisError  # noqa: PLC0415 - ditto
    except ImportError:
        raise MissingExtraError("RedisStorage", "redis") from None
    try:
        options: dict[str, Any] = dict(parse_url(url))
    except ValueError:  # its text may quote a piece of a password
        raise ConfigError("the URL of the Redis store is none: write redis://host:6379/0") from None
    where = options.get("path") or f"{options.get('host', 'localhost')}:{options.get('port', 6379)}"
    # Answers are read as they come, and waited for here; the rest of what a URL may hold is the client's matter.
    options.update(protocol=2, decode_responses=False, socket_timeout=None, socket_connect_timeout=connect_timeout)
    address = Address(options, f"{where}/{options.get('db', 0)}", connect_timeout, timeout, connections)
    try:
        connection_to(address)
    except (TypeError, ValueError, AttributeError, RedisError) as error:  # an option that takes an object, and no text
        raise ConfigError(f"the URL of the Redis store has an option that is none: {error}") from None
    return address


def connection_to(address: Address) -> Any:
    """Make a connection that is not connected yet."""
    from redis.asyncio import Connection  # noqa: PLC0415

    options = dict(address.options)
    return options.pop("connection_class", Connection)(**options)


class Line:
    """One connection while one call has it.

    Attributes:
        broken: Whether it is to be closed: what it would answer next may be the answer to another question.
        demoted: Whether the server said that it is a replica. Its address may name the new primary by now, so that this
            connection and all that were made before are to be closed, too.
    """

    def __init__(self, connection: Any, address: Address) -> None:
        self.connection = connection
        self.broken = False
        self.demoted = False
        self._address = address

    async def ask(self, *command: str | bytes | int, writes: bool = False, patience: float = 0.0) -> Any:
        """Send a command and return the answer.

        Args:
            command: The command and its arguments.
            writes: Whether it may write.
            patience: Seconds to wait beyond the timeout.

        Raises:
            Exception: The server answered with an error (`redis_errors.is_answer`), which is raised as it comes.
            StoreUnknownError: No answer came, and the command may have written.
            StoreUnavailableError: No answer came to a command that only reads.
        """
        connection = self.connection
        try:
            async with asyncio.timeout(self._address.timeout + patience):
                await connection.send_packed_command(connection.pack_command(*command), check_health=False)
                return await connection.read_response()
        except Exception as error:
            if is_answer(error):
                raise
            self.broken = True
            raise broken_off(error, self._address.where, writes=writes) from error
        except BaseException:
            self.broken = True
            raise

    async def run(
        self, script: Script, keys: Sequence[str], arguments: Sequence[str | bytes | int], *, writes: bool
    ) -> Any:
        """Run a script and return its answer.

        Raises:
            JournalError: What its error, or no answer, means.
        """
        rest = (len(keys), *keys, *arguments)
        try:
            try:
                return await self.ask("EVALSHA", script.digest, *rest, writes=writes)
            except Exception as error:
                if code_of(error) != "NOSCRIPT":
                    raise
            return await self.ask("EVAL", script.text, *rest, writes=writes)
        except Exception as error:
            if is_answer(error):
                self.demoted = code_of(error) in ("READONLY", "MASTERDOWN")
                raise refusal(error, self._address.where, writes=writes) from error
            raise


class Wire:
    """The connections of one event loop."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._free: list[Any] = []
        self._places = asyncio.Semaphore(address.connections)

    @contextlib.asynccontextmanager
    async def line(self) -> AsyncIterator[Line]:
        """Lend a connection that works, as far as can be told without a round trip.

        Raises:
            StoreBusyError: All stayed in use.
            StoreUnavailableError: None can be made.
        """
        address = self.address
        try:
            async with asyncio.timeout(address.timeout):
                await self._places.acquire()
        except TimeoutError:
            raise no_line_free(address.where, address.timeout) from None
        try:
            line = Line(await self._connection(), address)
            try:
                yield line
            except BaseException:
                # Whatever happened, a connection that answered its question may be used again; one that did not, not.
                await self._give_back(line)
                raise
            await self._give_back(line)
        finally:
            self._places.release()

    async def _connection(self) -> Any:
        while self._free:
            connection = self._free.pop()
            try:
                # Something to read while nothing was asked: the end of the connection, or an answer nobody waits for.
                stale = not connection.is_connected or await _can_read(connection)
            except Exception:
                stale = True
            if not stale:
                return connection
            await _close(connection)
        connection = connection_to(self.address)
        try:
            async with asyncio.timeout(self.address.connect_timeout):
                await connection.connect()
        except BaseException as error:
            await _close(connection)
            if not isinstance(error, Exception):
                raise
            where = self.address.where
            cause = error.__cause__  # the client takes some answers for a connection that failed
            answer = next((each for each in (error, cause) if isinstance(each, Exception) and is_answer(each)), None)
            raise (unreachable(error, where) if answer is None else refusal(answer, where, writes=False)) from error
        return connection

    async def _give_back(self, line: Line) -> None:
        if line.demoted:
            await self.aclose()
        if line.broken or line.demoted:
            await _close(line.connection)
        else:
            self._free.append(line.connection)

    async def aclose(self) -> None:
        """Close every connection that nobody uses."""
        while self._free:
            await _close(self._free.pop())


async def _can_read(connection: Any) -> bool:
    # The name changed with version 8 of the client.
    ask = getattr(connection, "can_read", None) or connection.can_read_destructive
    return bool(await ask())


async def _close(connection: Any) -> None:
    with contextlib.suppress(Exception):
        await connection.disconnect(nowait=True)
