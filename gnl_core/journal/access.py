"""How a storage object may touch its store: make it, write into one that is there, or only read it."""

from __future__ import annotations

from typing import Literal

from gnl_core.errors import ConfigError, StoreUnavailableError

Access = Literal["make", "write", "read"]
"""'make': a store that is missing is made. 'write': it must be there. 'read': it must be there and is left as it is."""


def check_access(access: str) -> None:
    """Return if an access is one.

    Raises:
        ConfigError: It is none.
    """
    if access not in ("make", "write", "read"):
        raise ConfigError(f"access is {access!r}, must be 'make', 'write' or 'read'")


def refuse_write(access: Access, where: str) -> None:
    """Return if a store may be written.

    Raises:
        StoreUnavailableError: It was opened for reading. Nothing has been sent.
    """
    if access == "read":
        raise StoreUnavailableError(f"{where} was opened for reading; nothing was written. Open it for writing")


def missing(where: str, *, older: bool = False) -> StoreUnavailableError:
    """Return the error of a store that is not there, or is an older release's, and may not be made or changed."""
    if older:
        return StoreUnavailableError(
            f"{where} holds a journal of an older release, and is only read; open it once for writing", missing=False
        )
    return StoreUnavailableError(
        f"{where} holds no journal. A journal is made by the program that runs agents, when it first opens it",
        missing=True,
    )
