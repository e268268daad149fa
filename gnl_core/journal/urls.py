"""A URL that a store is named by: refused where a piece of its password would be taken, and later shown, for a name."""

from __future__ import annotations

from typing import Literal
from urllib.parse import urlsplit

from gnl_core.errors import ConfigError


def check_url(text: str, server: Literal["PostgreSQL", "Redis"]) -> None:
    """Refuse a URL whose parts cannot be told apart for certain. The message quotes nothing of it.

    Raises:
        ConfigError: It is one.
    """
    rest = text.partition("://")[2]
    head, _, query = rest.partition("?")
    authority, _, path = head.partition("/")
    sound = text.isprintable() and " " not in text
    if server == "Redis":
        sound = sound and "#" not in text and _has_port(text)
    if not text.startswith("unix:"):
        # An '@' elsewhere stands behind a '/' or '?' that is a password's, or in front of its second half.
        sound = sound and authority.count("@") <= 1 and "@" not in path and not ("@" in query and "@" not in authority)
    if not sound:
        raise ConfigError(
            f"the URL of the {server} store cannot be read. A user name, password, host or database in it is "
            "percent-encoded: @ is %40, : is %3A, / is %2F, ? is %3F, # is %23, a space is %20"
        )


def _has_port(text: str) -> bool:
    try:
        port = urlsplit(text).port
    except ValueError:  # its text would show a password that holds a '/'
        return False
    return port is None or port > 0
