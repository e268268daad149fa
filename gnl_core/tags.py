"""Reading the journal's form of a value: back to the value (`decode`), or to what a model reads (`plain`)."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path as ConcretePath
from pathlib import PurePath, PurePosixPath, PureWindowsPath
from typing import Any
from uuid import UUID

from gnl_core.errors import NotCanonicalError
from gnl_core.journal.port import JsonValue

TAG = "\0gnl:"
"""How the key of a tag begins."""


def decode(value: JsonValue) -> Any:
    """Return the value of an encoded form; a private copy.

    Raises:
        NotCanonicalError: A tag that is unknown or whose payload is none; the data was not written by `encode`.
    """
    try:
        return _decode(value)
    except RecursionError:
        raise NotCanonicalError("a stored value is nested too deeply to be read") from None


def _decode(value: JsonValue) -> Any:
    if isinstance(value, list):
        return [_decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    for key in value:
        if key[:1] == "\0":
            break
    else:
        return {key: _decode(item) for key, item in value.items()}
    tag = tag_of(value)
    if tag is None:
        return {key[1:] if key[:1] == "\0" else key: _decode(item) for key, item in value.items()}
    name, payload = tag
    try:
        return _READERS[name](payload)
    except NotCanonicalError:
        raise
    except (TypeError, ValueError, ArithmeticError, KeyError, AttributeError) as error:
        raise NotCanonicalError(
            f"a stored value has the tag {name[:40]!r} with a payload that is none ({type(error).__name__})",
            type=name[:40],
        ) from None


def tag_of(value: Mapping[str, JsonValue]) -> tuple[str, JsonValue] | None:
    """Return (type, payload) of a tag; None for a caller's own object, whose NUL keys carry one NUL more.

    Raises:
        NotCanonicalError: Neither: an unknown tag, or a NUL key that was not written by `encode`.
    """
    own = [key for key in value if key[:1] == "\0" and key[:2] != "\0\0"]
    if not own:
        return None
    name = own[0].removeprefix(TAG)
    if len(value) != 1 or name not in _READERS:
        raise NotCanonicalError(
            f"a stored value has the unknown tag {name[:40]!r}; it was written by a newer release, or not by this "
            "library",
            type=name[:40],
        )
    return name, value[own[0]]


def _list(payload: Any) -> list[Any]:
    if not isinstance(payload, list):
        raise TypeError
    return payload


def _text(payload: Any) -> str:
    if not isinstance(payload, str):
        raise TypeError
    return payload


def _read_int(payload: Any) -> int:
    return int(_text(payload), 16)


def _read_number(payload: Any) -> float:
    return {"nan": math.nan, "inf": math.inf, "-inf": -math.inf, "-0.0": -0.0}[payload]


def _read_fraction(payload: Any) -> Fraction:
    numerator, denominator = map(_decode, _list(payload))
    return Fraction(numerator, denominator)


def _read_datetime(payload: Any) -> datetime:
    if isinstance(payload, str):
        return datetime.fromisoformat(payload)
    text, zone, fold = payload
    value = datetime.fromisoformat(text).replace(fold=fold)
    named = value.replace(tzinfo=_zone(zone)) if zone else value
    # The instant that was recorded stands, should this machine's rules for the zone (or its lack of them) differ.
    return named if named.utcoffset() == value.utcoffset() else value


def _read_time(payload: Any) -> time:
    if isinstance(payload, str):
        return time.fromisoformat(payload)
    text, zone, fold = payload
    value = time.fromisoformat(text).replace(fold=fold)
    if not zone:
        return value
    tzinfo = _zone(zone)
    if tzinfo is None:
        raise NotCanonicalError(f"a stored time is of the zone {zone[:60]!r}, unknown here; install tzdata")
    return value.replace(tzinfo=tzinfo)


def _zone(key: str) -> Any:
    from zoneinfo import ZoneInfo  # noqa: PLC0415 - rarely needed

    try:
        return ZoneInfo(key)
    except (KeyError, ValueError, OSError):  # unknown here, or no name of a zone
        return None


def _read_path(payload: Any) -> PurePath:
    flavour, text = payload
    pure = _PURE[flavour](_text(text))
    return ConcretePath(text) if isinstance(ConcretePath(), type(pure)) else pure


def _read_pure_path(payload: Any) -> PurePath:
    flavour, text = payload
    return _PURE[flavour](_text(text))


_PURE: dict[str, type[PurePath]] = {"posix": PurePosixPath, "windows": PureWindowsPath}
_READERS: dict[str, Callable[[Any], Any]] = {
    "Number": _read_number,
    "Int": _read_int,
    "Bytes": lambda payload: base64.b64decode(_text(payload), validate=True),
    "Bytearray": lambda payload: bytearray(base64.b64decode(_text(payload), validate=True)),
    "Tuple": lambda payload: tuple(map(_decode, _list(payload))),
    "Set": lambda payload: set(map(_decode, _list(payload))),
    "Frozenset": lambda payload: frozenset(map(_decode, _list(payload))),
    "Dict": lambda payload: {_decode(key): _decode(item) for key, item in _list(payload)},
    "Decimal": lambda payload: Decimal(_text(payload)),
    "Fraction": _read_fraction,
    "Datetime": _read_datetime,
    "Date": lambda payload: date.fromisoformat(_text(payload)),
    "Time": _read_time,
    "Timedelta": lambda payload: timedelta(*_list(payload)),
    "Uuid": lambda payload: UUID(_text(payload)),
    "Path": _read_path,
    "PurePath": _read_pure_path,
}


# What a model reads ------------------------------------------------------------------------------------------------


def plain(value: JsonValue) -> JsonValue:
    """Return the form of an encoded value that a model reads: JSON without tags.

    Decimal, UUID, paths, dates and times become their text, bytes base64, timedelta ISO 8601 ('P1DT2H'), tuples and
    sets lists, NaN 'NaN', infinities 'Infinity' and '-Infinity', huge ints hex. A key that is no text becomes its text.
    Lone surrogates, which no provider's wire takes, become U+FFFD.

    Raises:
        NotCanonicalError: As `decode`.
    """
    try:
        return _plain(value)
    except NotCanonicalError:
        raise
    except RecursionError:
        raise NotCanonicalError("a stored value is nested too deeply to be read") from None
    except (TypeError, ValueError) as error:
        raise NotCanonicalError(f"a stored value has a tag with a payload that is none ({error})") from None


def _plain(value: JsonValue) -> JsonValue:
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    tag = tag_of(value)
    if tag is None:
        return _plain_object([(key[1:] if key[:1] == "\0" else key, item) for key, item in value.items()])
    return _plain_tag(value, *tag)


def _plain_tag(value: JsonValue, name: str, payload: JsonValue) -> JsonValue:
    if name in ("Tuple", "Set", "Frozenset"):
        return _plain(payload)
    if name == "Dict":
        return _plain_object([(key, item) for key, item in _list(payload)])
    typed = _decode(value)  # refuses a payload that is none
    match name:
        case "Number":
            return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(str(payload), -0.0)
        case "Timedelta":
            return _duration(typed)
        case "Datetime" | "Date" | "Time":
            return str(typed.isoformat())
        case "Fraction" | "Path" | "PurePath":
            return _plain(str(typed))
        case _:
            return payload


def _plain_object(pairs: Sequence[Sequence[Any]]) -> JsonValue:
    members = [[_plain(key), _plain(item)] for key, item in pairs]
    named = {
        key if isinstance(key, str) else json.dumps(key, ensure_ascii=False, sort_keys=True): item
        for key, item in members
    }
    # Two keys may have one text (1 and "1"): then nothing is dropped, the pairs are listed.
    return named if len(named) == len(members) else members  # type: ignore[return-value] # a list of lists


def _duration(value: timedelta) -> str:
    sign, value = ("-", -value) if value < timedelta(0) else ("", value)
    minutes, seconds = divmod(value.seconds, 60)
    hours, minutes = divmod(minutes, 60)
    fraction = f"{seconds}.{value.microseconds:06d}".rstrip("0") if value.microseconds else str(seconds)
    parts = [(str(hours), "H"), (str(minutes), "M"), (fraction, "S")]
    clock = "".join(number + unit for number, unit in parts if number != "0")
    days = f"{value.days}D" if value.days else ""
    return f"{sign}P{days}T{clock}" if clock else f"{sign}P{days or '0D'}"
