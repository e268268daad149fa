"""What all adapters share: arguments, texts and call ids, the error table, clients per event loop."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

from gnl_core.journal.port import JsonValue

# Texts and arguments -----------------------------------------------------------------------------------------------


def clean(text: str) -> str:
    """Return the text with every lone surrogate replaced by U+FFFD: it has no UTF-8, so no record could hold it."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def parse_args(text: str) -> tuple[dict[str, JsonValue] | None, str]:
    """Return (args, '') of the text of a tool call's arguments, or (None, text) where that is no JSON object.

    No object are also: NaN and infinities, spelt out or as 1e400 (no JSON value stands for them), lone surrogates, and
    what is nested too deeply to read. An empty text is an empty object: that is how some providers write no arguments.
    Integers keep every digit; of a repeated name the last one counts.
    """
    if not text.strip():
        return {}, ""
    try:
        value = json.loads(text, parse_float=_finite, parse_constant=_no_number)
        if isinstance(value, dict):
            json.dumps(value, ensure_ascii=False).encode()
            return value, ""
    except (ValueError, RecursionError):
        pass
    return None, clean(text)


def args_of(value: Any) -> tuple[dict[str, JsonValue] | None, str]:
    """Return what `parse_args` does, of arguments that an SDK has parsed already (or left as text)."""
    if value is None or isinstance(value, str):
        return parse_args(value or "")
    try:
        return parse_args(json.dumps(value))
    except (TypeError, ValueError, RecursionError):
        return None, clean(repr(value))


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text} is out of range")
    return value


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON")
