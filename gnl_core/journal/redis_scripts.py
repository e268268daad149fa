"""The scripts of a Redis store, and the names of the keys that they work on."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Literal

from gnl_core.errors import ConfigError

SCHEMA = 1
"""Number of the layout that this release writes."""

ScriptName = Literal["open", "read", "scan", "apply", "remove", "scopes"]

_PREFIX = re.compile(r"[A-Za-z0-9._:-]{1,64}")


@dataclass(frozen=True, slots=True)
class Script:
    """One script.

    Attributes:
        text: What EVAL sends.
        digest: What EVALSHA names it by.
    """

    text: bytes
    digest: str


@lru_cache(maxsize=8)
def script(name: ScriptName) -> Script:
    """Return a script, with what all of them share before it."""
    folder = files("gnl_core.journal") / "lua"
    text = (folder / f"{name}.lua").read_bytes()
    if name != "open":  # before there is a store, nothing about it can be checked
        text = (folder / "common.lua").read_bytes() + text
    return Script(text, hashlib.sha1(text, usedforsecurity=False).hexdigest())


def check_prefix(prefix: str) -> str:
    """Return a prefix that the store's keys may have.

    Raises:
        ConfigError: It is empty, too long, or would break the hash tag.
    """
    if not _PREFIX.fullmatch(prefix):
        raise ConfigError(
            f"the prefix of a Redis store is {prefix!r}, must be 1 to 64 of the characters A-Z a-z 0-9 ._:-"
        )
    return prefix


def keys_of(prefix: str, org: str) -> Sequence[str]:
    """Return the keys that scripts declare: of the store two, of the organisation five.

    One hash tag for all: versions come from one sequence, so that every batch of a store touches one key at least, and
    a script's keys must lie in one slot of a cluster.
    """
    tag = f"{{{prefix}}}"
    # The organisation stands last, behind a letter that says what the key holds: no name of one reads as another's key.
    return (f"{tag}:store", f"{tag}:scopes", *(f"{tag}:{part}:{org}" for part in _PARTS))


_PARTS = ("names", "versions", "stamps", "values", "blobs")
