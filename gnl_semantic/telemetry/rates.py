"""Shares of live counts with their intervals: pure arithmetic, so that a report of a journal needs no package."""

from __future__ import annotations

import math
from typing import Final

from gnl_core.journal.port import JsonValue
from gnl_semantic.rate import Rate

_Z: Final = 1.959963984540054
"""The 97.5 % point of the normal distribution."""


def wilson(k: int, n: int) -> Rate:
    """Return k of n with its two-sided 95 % Wilson score interval, without any package.

    Source: E. B. Wilson, "Probable inference, the law of succession, and statistical inference", JASA 22 (1927),
    209-212.

    Args:
        k: Trials that count, 0 <= k <= n.
        n: All trials; 0 gives the interval [0, 1].
    """
    if n == 0:
        return Rate(0, 0, 0.0, 1.0)
    share, square = k / n, _Z * _Z
    middle = share + square / (2 * n)
    spread = _Z * math.sqrt(share * (1 - share) / n + square / (4 * n * n))
    scale = 1 + square / n
    # Rounding can leave a bound a hair beside the share that it must enclose.
    low = 0.0 if k == 0 else max(0.0, (middle - spread) / scale)
    high = 1.0 if k == n else min(1.0, (middle + spread) / scale)
    return Rate(k, n, low, high)


def rate_json(rate: Rate) -> dict[str, JsonValue]:
    """Return a rate for programs, never without its denominator and its interval."""
    return {"k": rate.k, "n": rate.n, "value": rate.value, "low": rate.low, "high": rate.high}
