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
Decimal                     by value: '0.10' is '0.1'; never the float 0.1, nor the text
datetime                    with a zone: the instant; without: its wall clock, never one with a zone
set, frozenset              alike, members in the order of their texts
dict with other keys        pairs in the order of the keys' texts: {1: …} is not {"1": …}
Enum, dataclass, pydantic   the value of the Enum, the dict of the fields
bytes, bytearray            alike; UUID, date, time, timedelta, Fraction, paths: each its own type
anything else               `NotCanonicalError` with the path of the value
==========================  =========================================================================

Two keys of one dict that are equal in NFC are refused rather than resolved: either choice would leave an argument out
of the identity of a call, and a call that differs in it would be taken for done.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import unicodedata
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import PurePath
from typing import Any
from uuid import UUID

from gnl_core.codec import NO_RECORD, record_value, unsupported
from gnl_core.errors import NotCanonicalError
from gnl_core.tags import TAG

_DIGITS_LIMIT = 10**4_300
"""From here on ints have more decimal digits than Python writes by default: they are hashed in hex."""


def canonical_json(value: object) -> str:
    """Return the one JSON text of `value` (see the table above), without spaces and with non-ASCII unescaped.

    Args:
        value: Any nesting of the types in the table.

    Raises:
        NotCanonicalError: A value of another type, a lone surrogate, two keys that are one, a cycle, a value nested
            deeper than Python recurses, or an int of more digits than Python is set to write.
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
    text = _flat_text(args)
    return hashlib.sha256(text.encode()).hexdigest()[:16] if text is not None else digest(args)[:16]


_ATOMS = frozenset((str, int, bool, type(None)))
_FLAT_LENGTH = 4_000  # characters: no int in so short a text is hashed in hex
_sorted = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode


def _flat_text(value: Mapping[str, object]) -> str | None:
    """Return the canonical text of arguments that need no rule but the order of keys, as most do; None for all others.

    It takes a third of the time, for every call of a run. ASCII is its own NFC, and sorts by UTF-16 as it stands.
    """
    if type(value) is not dict:
        return None
    for name, item in value.items():
        if type(name) is not str or type(item) not in _ATOMS:
            return None
    try:
        text = _sorted(value)
    except ValueError:  # an int of too many digits; the long way says so
        return None
    return text if len(text) <= _FLAT_LENGTH and text.isascii() and "\\u0000" not in text else None


def _normal(value: object, path: str, above: set[int]) -> object:
    """Copy `value` into plain JSON types with sorted, normalised keys."""
    if isinstance(value, Enum):
        return _normal(value.value, path, above)
    record = NO_RECORD if type(value) in _BUILT_IN else record_value(value, path)
    if record is not NO_RECORD:
        return _within(value, record, path, above)
    match value:
        case None | bool():
            return value
        case int():
            return _int(value)
        case str():
            return _text(value, path)
        case float():
            return _number(value)
        case Mapping() | list() | tuple() | set() | frozenset():
            return _within(value, value, path, above)
        case _:
            return _tagged(value, path)


def _within(value: object, members: Any, path: str, above: set[int]) -> object:
    if id(value) in above:
        raise NotCanonicalError(f"{path}: the value contains itself", path=path)
    above.add(id(value))
    try:
        match members:
            case Mapping():
                return _mapping(members, path, above)
            case list() | tuple():
                return [_normal(item, f"{path}[{i}]", above) for i, item in enumerate(members)]
            case set() | frozenset():
                by_text = {_order(member): member for member in (_normal(item, path, above) for item in members)}
                return {TAG + "Set": [by_text[text] for text in sorted(by_text)]}
            case _:
                return _normal(members, path, above)  # the root of a root model
    finally:
        above.discard(id(value))


def _mapping(value: Mapping[Any, Any], path: str, above: set[int]) -> object:
    members: dict[str, object] = {}
    pairs: dict[bytes, list[object]] = {}
    for key, item in value.items():
        name = _normal(key, path, above)
        if isinstance(name, str):
            # A caller's NUL key gets one more NUL, so that no argument can pose as a tag.
            text = "\0" + name if name.startswith("\0") else name
            if text in members:
                raise NotCanonicalError(f"{path}: two keys are one in NFC: {text!r}", path=path)
            members[text] = _normal(item, f"{path}.{key}", above)
        else:
            order = _order(name)
            if order in pairs:
                raise NotCanonicalError(f"{path}: two keys are one", path=path)
            pairs[order] = [name, _normal(item, f"{path}[…]", above)]
    if not pairs:
        return {name: members[name] for name in sorted(members, key=_utf16)}
    for text, item in members.items():
        name = text[1:] if text.startswith("\0") else text
        pairs[_order(name)] = [name, item]
    return {TAG + "Dict": [pairs[order] for order in sorted(pairs)]}


def _order(normal: object) -> bytes:
    """Return what members of a set are sorted by."""
    return _utf16(json.dumps(normal, ensure_ascii=False, separators=(",", ":")))


def _utf16(text: str) -> bytes:
    return text.encode("utf-16-be")


def _text(value: str, path: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise NotCanonicalError(f"{path}: the text holds a lone surrogate at {error.start}", path=path) from None
    return unicodedata.normalize("NFC", value)


def _int(value: int) -> object:
    return value if -_DIGITS_LIMIT < value < _DIGITS_LIMIT else {TAG + "Int": hex(value)}


def _number(value: float) -> object:
    if math.isnan(value) or math.isinf(value):
        return {TAG + "Number": str(value)}
    return int(value) if value.is_integer() else value


# Types that JSON has not -------------------------------------------------------------------------------------------


def _tagged(value: object, path: str) -> object:
    for kind, name, form in _FORMS:
        if isinstance(value, kind):
            return {TAG + name(value) if callable(name) else TAG + name: form(value)}
    raise unsupported(value, path)


def _decimal(value: Decimal) -> str:
    if not value.is_finite():
        return str(value)
    sign, digits, exponent = value.as_tuple()
    text = "".join(map(str, digits)).lstrip("0")
    short = text.rstrip("0")
    # An exponent is never written out: Decimal('1E+999999999') must not fill the memory.
    return f"{'-' if sign else ''}{short}E{int(exponent) + len(text) - len(short)}" if short else "0"


def _moment(value: datetime) -> object:
    offset = value.utcoffset()
    if offset is None:
        return value.replace(tzinfo=None, fold=0).isoformat()
    # Not by astimezone(): the first and the last day there is fall out of UTC's range.
    return (value.replace(tzinfo=None) - datetime.min - offset) // timedelta(microseconds=1)


_FORMS: tuple[tuple[type | tuple[type, ...], Any, Callable[[Any], object]], ...] = (
    ((bytes, bytearray), "Bytes", lambda value: base64.b64encode(value).decode()),
    (Decimal, "Decimal", _decimal),
    (Fraction, "Fraction", lambda value: [_int(value.numerator), _int(value.denominator)]),
    (datetime, lambda value: "Datetime" if value.utcoffset() is None else "Instant", _moment),
    (date, "Date", date.isoformat),
    (time, "Time", lambda value: [value.isoformat(), getattr(value.tzinfo, "key", "")]),
    (timedelta, "Timedelta", lambda value: [value.days, value.seconds, value.microseconds]),
    (UUID, "Uuid", str),
    (PurePath, "Path", lambda value: unicodedata.normalize("NFC", str(value))),
)
_BUILT_IN = frozenset((type(None), bool, int, float, str, list, dict, tuple, set, frozenset))
