"""What each of Redis' errors means to a journal."""

from __future__ import annotations

import re

from gnl_core.errors import (
    JournalError,
    StoreBusyError,
    StoreCorruptError,
    StoreUnavailableError,
    StoreUnknownError,
)

# The client strips the code off some errors and makes a class of it.
_CODES = {
    "OutOfMemoryError": "OOM",
    "ReadOnlyError": "READONLY",
    "BusyLoadingError": "LOADING",
    "NoPermissionError": "NOPERM",
    "AuthenticationError": "NOAUTH",
    "AuthenticationWrongNumberOfArgsError": "NOAUTH",
    "MasterDownError": "MASTERDOWN",
    "ClusterDownError": "CLUSTERDOWN",
    "MovedError": "MOVED",
    "AskError": "ASK",
    "TryAgainError": "TRYAGAIN",
    "MaxClientsError": "MAXCLIENTS",
    "NoScriptError": "NOSCRIPT",
}
_REFUSALS = {
    "OOM": "is out of memory (maxmemory): nothing was written; raise it, or purge old runs",
    "READONLY": "is a replica, which takes no writes: nothing was written; name the primary",
    "LOADING": "is loading its data: nothing was written; try again",
    "MISCONF": "takes no writes because it cannot save to its disk: nothing was written; look at the server's log",
    "NOREPLICAS": "has fewer replicas than min-replicas-to-write: nothing was written",
    "MASTERDOWN": "is a replica without its primary: nothing was written",
    "CLUSTERDOWN": "is part of a cluster that is down: nothing was written",
    "MOVED": "is a node of a cluster that does not hold the store: nothing was written; name the node that does",
    "ASK": "is moving the store to another node: nothing was written; try again",
    "TRYAGAIN": "is moving the store to another node: nothing was written; try again",
    "CROSSSLOT": "takes the store's keys for keys of several slots: nothing was written",
    "NOAUTH": "wants another user name or password: nothing was written",
    "WRONGPASS": "wants another user name or password: nothing was written",
    "NOPERM": "does not allow this user what a journal needs (EVAL, EVALSHA, and the commands of lua/*.lua): "
    "nothing was written",
    "MAXCLIENTS": "has as many clients as it takes: nothing was written; raise maxclients",
}
_TOO_MANY = "max number of clients"  # which the client takes for a lost connection
# At the start, or, where a server words an error inside a script as the script's own, behind its place.
_CODE = re.compile(rf"(?:^|: |-)({'|'.join((*_REFUSALS, 'WRONGTYPE', 'BUSY', 'NOSCRIPT'))}) ")


def is_answer(error: BaseException) -> bool:
    """Tell whether the server answered with this error; else it is the connection's."""
    known = any(kind.__name__ == "ResponseError" or kind.__name__ in _CODES for kind in type(error).__mro__)
    return known or _TOO_MANY in str(error)


def code_of(error: Exception) -> str:
    """Return the code of an error that the server answered with; '' where it has none."""
    known = next((_CODES[kind.__name__] for kind in type(error).__mro__ if kind.__name__ in _CODES), None)
    if known is not None:
        return known
    text = str(error)
    if _TOO_MANY in text:
        return "MAXCLIENTS"
    found = _CODE.search(text)
    return found[1] if found else ""


def refusal(error: Exception, where: str, *, writes: bool) -> JournalError:
    """Return what an error that the server answered with means.

    Args:
        error: What the client raised.
        where: The server.
        writes: Whether the call may have written. Only errors that are known to come before any write say that
            nothing was written.
    """
    code = code_of(error)
    facts: dict[str, object] = {"server": where, "redis": code or type(error).__name__}
    if code == "BUSY":
        return StoreBusyError(
            f"the Redis server {where} is busy with a script that does not end; nothing was written. SCRIPT KILL ends "
            "it",
            **facts,
        )
    if code == "WRONGTYPE":
        return StoreCorruptError(
            f"a key of the store at {where} holds another type than the store writes; nothing was written. Give the "
            "store a prefix, or a database, of its own",
            **facts,
        )
    if code in _REFUSALS:
        return StoreUnavailableError(f"the Redis server {where} {_REFUSALS[code]}", **facts)
    if writes:
        return StoreUnknownError(
            f"the Redis server {where} failed while it wrote ({error}): the batch may or may not be there; send it "
            "again",
            **facts,
        )
    return StoreUnavailableError(f"the Redis server {where} cannot be used ({error})", **facts)


def unreachable(error: BaseException, where: str) -> StoreUnavailableError:
    """Return the error of a server to which no connection can be made."""
    return StoreUnavailableError(
        f"the Redis server {where} cannot be reached ({str(error) or type(error).__name__}); nothing was written",
        server=where,
    )


def broken_off(error: BaseException, where: str, *, writes: bool) -> JournalError:
    """Return the error of a connection that ended between the question and its answer."""
    why = str(error) or type(error).__name__
    if writes:
        return StoreUnknownError(
            f"the Redis server {where} broke off while it wrote ({why}): the batch may or may not be there; send it "
            "again",
            server=where,
        )
    return StoreUnavailableError(
        f"the Redis server {where} broke off while it was read ({why})", server=where, broke_off=True
    )


def no_line_free(where: str, seconds: float) -> StoreBusyError:
    """Return the error of having waited for a connection in vain."""
    return StoreBusyError(
        f"all connections to the Redis server {where} stayed in use for {seconds:g} s; nothing was written. Give the "
        "storage more connections",
        server=where,
    )
