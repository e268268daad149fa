"""What went wrong in a call, as the leaf of `JudgeError` that says so."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from gnl_semantic.errors import JudgeError, JudgeRateLimitedError, JudgeRefusedError, JudgeServerError
from gnl_semantic.judge.prompt import clean

_LONGEST = 200
"""Characters of a stranger's message that are worth repeating."""


def brief(error: object) -> str:
    """Return a stranger's message as one short line."""
    text = clean(str(error))
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def status_error(status: int, message: str, *, retry_after: str | None = None) -> JudgeError:
    """Return the error of an HTTP status; `retry_after` is that header's value."""
    if status == 429:
        return JudgeRateLimitedError(f"{message}: asked too often (429)", retry_after=seconds_to_wait(retry_after))
    if status >= 500:
        return JudgeServerError(f"{message}: the server failed ({status})")
    return JudgeRefusedError(f"{message}: the server refused the request ({status}): check key, model name and URL")


def seconds_to_wait(retry_after: str | None) -> float | None:
    """Return the seconds that a Retry-After header asks for (a number or an HTTP date), or None when it says nothing.

    >>> seconds_to_wait("1.5")
    1.5
    """
    if retry_after is None:
        return None
    try:
        seconds = float(retry_after)
    except ValueError:
        try:
            date = parsedate_to_datetime(retry_after)
        except (ValueError, OverflowError):
            return None
        # A date in zone "-0000" comes back naive; an HTTP date is always UTC.
        seconds = (date.replace(tzinfo=date.tzinfo or UTC) - datetime.now(UTC)).total_seconds()
    return max(seconds, 0.0) if math.isfinite(seconds) else None
