"""JSON text of a row's value: what every store writes, and what it refuses to write.

A store keeps text, never objects, so that what it returns is a private copy by construction.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, Never, cast

from gnl_core import keys
from gnl_core.errors import IdInvalidError, StoreCorruptError
from gnl_core.journal.port import JsonValue, Key

MAX_DEPTH = 500
"""Most levels of objects and arrays in a value: what is written must be readable from any stack."""

PLAIN_KEY = re.compile(r"[A-Za-z0-9._~:-]+(?:/[A-Za-z0-9._~:-]+)*")
"""A key of which no segment needs escapes: the most of them, and told apart faster whole than by segments."""

_LEAVES = frozenset((str, int, float, bool, type(None)))


def _as_object(value: object) -> dict[Any, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is no JSON type")


def _no_literal(name: str) -> Never:
    raise ValueError(f"{name} is no JSON")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):  # it could be read, and never be written again
        raise ValueError(text[:20])
    return number


def _encoder(*, ascii_only: bool) -> json.JSONEncoder:
    # The walk below bounds the depth, which also ends a cycle: the encoder need not remember where it has been.
    return json.JSONEncoder(
        ensure_ascii=ascii_only,
        check_circular=False,
        allow_nan=False,
        separators=(",", ":"),
        default=_as_object,
    )


_to_text = _encoder(ascii_only=False).encode
_to_ascii = _encoder(ascii_only=True).encode
_decoder = json.JSONDecoder(parse_constant=_no_literal, parse_float=_finite)


def to_text(key: Key, value: object) -> str:
    """Return the JSON text of a value, valid UTF-8.

    Two lone surrogates that follow each other spell one character in JSON, and come back as it.

    Args:
        key: The row it is for, named by the errors.
        value: dict, list, tuple (as a list), other mappings (as objects), str, int, float, bool, None.

    Raises:
        TypeError: It holds another type, or a member's name that is no str.
        ValueError: It holds NaN, an infinity or an int of more digits than Python prints, or is nested more than
            `MAX_DEPTH` levels deep.
    """
    try:
        if type(value) not in _LEAVES:
            _walk(value, 1)
        text = _to_text(value)
        if not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError:
                return _to_ascii(value)
    except RecursionError:
        raise ValueError(f"the value for {'/'.join(key)} is nested deeper than this stack can write") from None
    except TypeError as error:
        raise TypeError(f"the value for {'/'.join(key)} is not JSON: {error}") from None
    except ValueError as error:
        raise ValueError(f"the value for {'/'.join(key)} is not JSON: {error}") from None
    return text


def _walk(value: object, depth: int) -> None:
    # The encoder turns names like 1 or None into text without a word; the depth is found here before it recurses.
    if depth > MAX_DEPTH:
        raise ValueError(f"more than {MAX_DEPTH} levels")
    if type(value) is dict or isinstance(value, Mapping):
        for name, member in value.items():
            if not isinstance(name, str):
                raise TypeError(f"the member's name {name!r} is no str")
            if type(member) not in _LEAVES:
                _walk(member, depth + 1)
    elif isinstance(value, list | tuple):
        for member in value:
            if type(member) not in _LEAVES:
                _walk(member, depth + 1)


def from_text(key: str, text: object) -> JsonValue:
    """Return the value of a row's text.

    Raises:
        StoreCorruptError: The text is no JSON.
    """
    try:
        # No white space stands around what a store wrote, and to look for some takes longer than to read most rows.
        value, end = _decoder.raw_decode(text)  # type: ignore[arg-type] # a row may hold anything
        if end != len(text):  # type: ignore[arg-type] # it was text
            raise ValueError("something follows")
    except (ValueError, TypeError, RecursionError) as error:
        raise StoreCorruptError(
            f"the value of the row {key} is no JSON ({type(error).__name__}); run `gnl doctor`", key=key
        ) from None
    return cast("JsonValue", value)


def key_of(text: str) -> Key:
    """Return the key of a row's encoded key.

    Raises:
        StoreCorruptError: No key is spelt like this.
    """
    try:
        if PLAIN_KEY.fullmatch(text):
            return tuple(text.split("/"))
        return keys.decode(text)
    except (ValueError, TypeError, AttributeError, IdInvalidError) as error:
        raise StoreCorruptError(
            f"the row {text!r} has a key that no key is spelt like; run `gnl doctor`", key=text
        ) from error


def size_of(text: str) -> int:
    """Return how many bytes a text takes in UTF-8."""
    return len(text) if text.isascii() else len(text.encode())
