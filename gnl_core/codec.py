r"""The lossless form in which values stand in the journal: plain JSON as it is, everything else under a tag.

A tag is an object of one key, {"\0gnl:<Type>": payload}. A caller's own key that starts with NUL gets one more NUL, so
that no data can pose as a tag. Nothing is pickled, no `repr` is stored, and reading imports no class that data names:
records (dataclasses, pydantic models) become dicts, an Enum becomes its value, a subclass of a type below becomes that
type. `docs/values.md` has the whole table.

`encode` is total over the types of the table and refuses everything else, by path and type. What is stored is what the
caller of a run is handed too (`decode(encode(value))`), so that a live result and a replayed one are the same.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import math
import sys
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import Path as ConcretePath
from pathlib import PurePath, PureWindowsPath
from typing import Any
from uuid import UUID

from gnl_core.errors import NotCanonicalError
from gnl_core.journal.port import JsonValue
from gnl_core.tags import TAG, decode, plain

__all__ = ["MAX_DEPTH", "NO_RECORD", "decode", "encode", "plain", "record_value", "step", "unsupported"]

MAX_DEPTH = 100
"""Most levels of the encoded form: any JSON reader and writer in any stack gets through it."""

_INT_LIMIT = 1 << 2048
"""Larger ints are written in hex: Python may be set to refuse more than 640 decimal digits."""


class _NotPlain(Exception):  # noqa: N818 - a signal within this file
    """The value is no plain JSON: it takes the way that knows types and paths."""


def encode(value: object) -> JsonValue:
    """Return the form of `value` that the journal stores; a private copy.

    Args:
        value: None, bool, int, float, str, bytes, bytearray, list, tuple, set, frozenset, dict, Decimal, Fraction,
            datetime, date, time, timedelta, UUID, path, Enum, dataclass, pydantic model, in any nesting.

    Raises:
        NotCanonicalError: Something of another type, a value that contains itself, or one nested over 100 levels; the
            message names path and type.
    """
    try:
        try:
            return _copy(value, 0)
        except _NotPlain:
            return _encode(value, "$", 0, set())
    except NotCanonicalError:
        raise
    except RecursionError:
        raise NotCanonicalError("$: the value is nested too deeply", path="$") from None
    except Exception as error:  # a property, a mapping or a serializer of the caller's
        raise NotCanonicalError(f"$: the value could not be read: {type(error).__name__}", path="$") from error


NO_RECORD: Any = object()
"""What `record_value` returns for a value that is no record."""


def record_value(value: object, path: str) -> Any:
    """Return the fields of a dataclass or a pydantic model by name (a root model's root), `NO_RECORD` for others.

    Raises:
        NotCanonicalError: The record cannot be read.
    """
    if isinstance(value, type):
        return NO_RECORD
    try:
        if dataclasses.is_dataclass(value):
            return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        model: Any = getattr(sys.modules.get("pydantic"), "BaseModel", ())  # who has a model has imported pydantic
        if isinstance(value, model):
            return value.model_dump(serialize_as_any=True, warnings=False)
    except Exception as error:
        raise _unreadable(value, path, error) from error
    return NO_RECORD


def step(path: str, key: object) -> str:
    """Return the path of a member."""
    if isinstance(key, str):
        return f"{path}.{key}" if key.isidentifier() else f"{path}[{key[:40]!r}]"
    return f"{path}[{key}]" if isinstance(key, int) else f"{path}[{type(key).__name__}]"


def unsupported(value: object, path: str) -> NotCanonicalError:
    """Return the error for a value that has no form of its own."""
    kind = type(value)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    way_out = "call its .tolist() or .item()" if hasattr(kind, "tolist") else "return plain data in its place"
    return NotCanonicalError(
        f"{path}: {name} cannot be stored without loss; {way_out} (str, numbers, lists, dicts, dates, Decimal, UUID, "
        "bytes, dataclasses, pydantic models)",
        path=path,
        type=name,
    )


def _copy(value: Any, depth: int) -> JsonValue:
    """Copy plain JSON. Each tool result comes by here, so it knows no path and asks types by identity."""
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return value  # type: ignore[no-any-return] # one of the three
    if kind is int and -_INT_LIMIT < value < _INT_LIMIT:
        return value  # type: ignore[no-any-return] # an int
    if kind is float and (value or math.copysign(1.0, value) > 0) and value - value == 0.0:
        return value  # type: ignore[no-any-return] # a finite float
    if depth < MAX_DEPTH:
        if kind is list:
            return [_copy(item, depth + 1) for item in value]
        if kind is dict:
            for key in value:
                if type(key) is not str or key[:1] == "\0":
                    raise _NotPlain
            return {key: _copy(item, depth + 1) for key, item in value.items()}
    raise _NotPlain


# Writing -----------------------------------------------------------------------------------------------------------


def _encode(value: object, path: str, depth: int, above: set[int]) -> JsonValue:
    if depth > MAX_DEPTH:
        raise NotCanonicalError(
            f"{path[:200]}: the value is nested too deeply, over {MAX_DEPTH} levels", path=path[:200]
        )
    if isinstance(value, Enum):
        return _encode(value.value, path, depth + 1, above)
    if value is None or isinstance(value, bool):
        return value
    write = _writer(value)
    if write is not None:
        try:
            return write(value)
        except Exception as error:
            raise _unreadable(value, path, error) from error
    if id(value) in above:
        raise NotCanonicalError(f"{path}: the value contains itself", path=path)
    above.add(id(value))
    try:
        return _encode_container(value, path, depth, above)
    finally:
        above.discard(id(value))


def _encode_container(value: object, path: str, depth: int, above: set[int]) -> JsonValue:
    record = record_value(value, path)
    if record is not NO_RECORD:
        return _encode(record, path, depth, above)
    match value:
        case list():
            return _encode_items(value, path, depth + 1, above)
        case tuple():
            return {TAG + "Tuple": _encode_items(value, path, depth + 2, above)}
        case set() | frozenset():
            return _encode_set(value, path, depth, above)
        case Mapping():
            return _encode_mapping(value, path, depth, above)
        case _:
            raise unsupported(value, path)


def _encode_items(value: list[Any] | tuple[Any, ...], path: str, depth: int, above: set[int]) -> list[JsonValue]:
    return [_encode(item, f"{path}[{position}]", depth, above) for position, item in enumerate(value)]


def _encode_set(value: set[Any] | frozenset[Any], path: str, depth: int, above: set[int]) -> JsonValue:
    members = [_encode(member, f"{path}{{}}", depth + 2, above) for member in value]
    by_text = {json.dumps(member, sort_keys=True): member for member in members}
    ordered = [by_text[text] for text in sorted(by_text)]
    if not all(map(_hashable, ordered)):
        return ordered  # of records, which become dicts, and those stand in no set
    return {TAG + ("Frozenset" if isinstance(value, frozenset) else "Set"): ordered}


def _encode_mapping(value: Mapping[Any, Any], path: str, depth: int, above: set[int]) -> JsonValue:
    members = list(value.items())
    keys = [key if type(key) is str else _encode(key, f"{path}{{key}}", depth + 3, above) for key, _ in members]
    texts = [key for key in keys if isinstance(key, str)]
    named = len(texts) == len(keys)
    if len(set(texts) if named else {json.dumps(key, sort_keys=True) for key in keys}) < len(keys):
        raise NotCanonicalError(f"{path}: two keys become one", path=path)
    below = depth + (1 if named else 3)
    items = [_encode(item, step(path, key), below, above) for key, item in members]
    if named:
        return {"\0" + key if key[:1] == "\0" else key: item for key, item in zip(texts, items, strict=True)}
    if not all(map(_hashable, keys)):
        raise NotCanonicalError(f"{path}: a key becomes a dict or a list, which can be no key", path=path)
    return {TAG + "Dict": [[key, item] for key, item in zip(keys, items, strict=True)]}


def _writer(value: object) -> Callable[[Any], JsonValue] | None:
    """Return how to write a value that holds no others; None for containers, records and all else."""
    write = _EXACT.get(type(value))
    if write is None and not dataclasses.is_dataclass(value):
        write = next((write for kind, write in _SCALARS if isinstance(value, kind)), None)
    return write


def _unreadable(value: object, path: str, error: Exception) -> NotCanonicalError:
    kind = type(value).__name__
    return NotCanonicalError(
        f"{path}: {kind} could not be read: {type(error).__name__}: {str(error)[:200]}", path=path, type=kind
    )


def _hashable(encoded: JsonValue) -> bool:
    try:
        hash(decode(encoded))
    except TypeError:
        return False
    return True


def _write_int(value: int) -> JsonValue:
    value = int.__index__(value)
    return value if -_INT_LIMIT < value < _INT_LIMIT else {TAG + "Int": hex(value)}


def _write_float(value: float) -> JsonValue:
    value = float.__float__(value)
    if math.isfinite(value) and (value or math.copysign(1.0, value) > 0):
        return value
    return {TAG + "Number": str(value)}


def _write_moment(value: date | time) -> JsonValue:
    """Write a datetime, a date or a time: ISO 8601, with the zone's name and the fold where it has them."""
    kind = next(kind for kind in (datetime, date, time) if isinstance(value, kind))
    text = value.isoformat()
    if kind.fromisoformat(text).isoformat() != text:  # a subclass that holds more, or nothing at all
        raise ValueError(f"{text[:40]} is finer than microseconds, or no time at all")
    zone, fold = getattr(getattr(value, "tzinfo", None), "key", None), getattr(value, "fold", 0)
    payload: JsonValue = [text, zone if isinstance(zone, str) else "", fold] if isinstance(zone, str) or fold else text
    return {TAG + kind.__name__.capitalize(): payload}


def _write_path(value: PurePath) -> JsonValue:
    flavour = "windows" if isinstance(value, PureWindowsPath) else "posix"
    return {TAG + ("Path" if isinstance(value, ConcretePath) else "PurePath"): [flavour, str(value)]}


def _base64(data: bytes | bytearray) -> str:
    return base64.b64encode(data).decode()


_SCALARS: tuple[tuple[type, Callable[[Any], JsonValue]], ...] = (
    (str, str.__str__),
    (int, _write_int),
    (float, _write_float),
    (bytes, lambda value: {TAG + "Bytes": _base64(value)}),
    (bytearray, lambda value: {TAG + "Bytearray": _base64(value)}),
    (Decimal, lambda value: {TAG + "Decimal": Decimal.__str__(value)}),
    (Fraction, lambda value: {TAG + "Fraction": [_write_int(value.numerator), _write_int(value.denominator)]}),
    (date, _write_moment),  # a datetime is a date
    (time, _write_moment),
    (timedelta, lambda value: {TAG + "Timedelta": [value.days, value.seconds, value.microseconds]}),
    (UUID, lambda value: {TAG + "Uuid": str(value)}),
    (PurePath, _write_path),
)
_EXACT = dict(_SCALARS)
