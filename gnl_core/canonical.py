"""Canonical JSON and the hash of a call's arguments.

Two texts of one value must hash alike, on every machine and in every release: the hash decides whether a call is the
same call. What counts as one value:

==========================  =========================================================================
value                       rule
==========================  =========================================================================
dict                        keys sorted by UTF-16 code units; the order of insertion never matters
str (values and keys)       NFC-normalised; no trimming, no case folding
int, float                  integral floats are ints (1.0 is 1, -0.0 is 0); ints keep every digit
bool                        its own type: True is not 1
None                        null, and kept: {"a": None} is not {}
list, tuple                 alike
NaN, infinities             told apart by a tag; a tool's arguments refuse them before they get here
anything else               `NotCanonicalError` with the path of the value
==========================  =========================================================================
"""

from __future__ import annotations

import hashlib
import json
import math
import unicodedata
from collections.abc import Mapping

from gnl_core.errors import NotCanonicalError

_TAG = "\0gnl:Number"
"""Key of the one-member object that stands for a number JSON cannot write."""


def canonical_json(value: object) -> str:
    """Return the one JSON text of `value` (see the table above), without spaces and with non-ASCII unescaped.

    Args:
        value: Any nesting of dict, list, tuple, str, int, float, bool and None.

    Raises:
        NotCanonicalError: A value of another type, a key that is no string, a lone surrogate, a cycle, a value nested
            deeper than Python recurses, or an int of more digits than `sys.get_int_max_str_digits()`.
    """
    try:
        return json.dumps(_normal(value, "$", set()), ensure_ascii=False, separators=(",", ":"))
    except RecursionError:
        raise NotCanonicalError("$: the value is nested too deeply") from None
    except ValueError as error:
        if isinstance(error, NotCanonicalError):
            raise
        raise NotCanonicalError(f"$: a number is too long to be written: {error}") from None


def digest(value: object) -> str:
    """Return the SHA-256 of `canonical_json(value)` as 64 hex digits."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def args_hash(args: Mapping[str, object]) -> str:
    """Return the first 16 hex digits of `digest(args)`: the identity of one call's arguments within one tool.

    >>> args_hash({})
    '44136fa355b3678a'
    """
    return digest(args)[:16]


def _normal(value: object, path: str, above: set[int]) -> object:
    """Copy `value` into plain JSON types with sorted, normalised keys."""
    match value:
        case None | bool() | int():
            return value
        case str():
            return _text(value, path)
        case float():
            return _number(value)
        case Mapping() | list() | tuple():
            return _container(value, path, above)
        case _:
            kind = type(value).__name__
            raise NotCanonicalError(
                f"{path}: {kind} has no canonical JSON form; pass str, int, float, bool, None, list or dict",
                path=path,
                type=kind,
            )


def _container(
    value: Mapping[object, object] | list[object] | tuple[object, ...], path: str, above: set[int]
) -> object:
    if id(value) in above:
        raise NotCanonicalError(f"{path}: the value contains itself", path=path)
    above.add(id(value))
    try:
        if not isinstance(value, Mapping):
            return [_normal(item, f"{path}[{i}]", above) for i, item in enumerate(value)]
        members: dict[str, object] = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise NotCanonicalError(f"{path}: key {key!r} is {type(key).__name__}, must be str", path=path)
            name = _text(key, path)
            # A caller's NUL key gets one more NUL, so that no argument can pose as a tag.
            name = "\0" + name if name.startswith("\0") else name
            if name in members:
                raise NotCanonicalError(f"{path}: two keys are one in NFC: {name!r}", path=path)
            members[name] = _normal(item, f"{path}.{key}", above)
        return dict(sorted(members.items(), key=lambda member: member[0].encode("utf-16-be")))
    finally:
        above.discard(id(value))


def _text(value: str, path: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise NotCanonicalError(f"{path}: the text holds a lone surrogate at {error.start}", path=path) from None
    return unicodedata.normalize("NFC", value)


def _number(value: float) -> object:
    if math.isnan(value) or math.isinf(value):
        return {_TAG: str(value)}
    return int(value) if value.is_integer() else value
