"""Two judges on the same pairs: what differs between them, and whether chance alone would explain it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import sqrt

from scipy.stats import binomtest

from gnl_qualify.stats import rate
from gnl_reports.model import Paired


def mcnemar_p(first_only: int, second_only: int) -> float:
    """Return the exact two-sided p value of McNemar's test, 1 where no pair is discordant.

    Source: Q. McNemar, "Note on the sampling error of the difference between correlated proportions or percentages",
    Psychometrika 12 (1947), 153-157, in its exact form: a binomial test of the discordant pairs against one half, as
    `scipy.stats.binomtest` computes it.

    Args:
        first_only: Pairs for which only the first counts, at least 0.
        second_only: Pairs for which only the second counts, at least 0.
    """
    discordant = first_only + second_only
    return float(binomtest(first_only, discordant).pvalue) if discordant else 1.0


def paired(first: Sequence[bool], second: Sequence[bool]) -> Paired:
    """Return the paired comparison of two sequences of hits over the same pairs in the same order.

    The interval is two-sided, 95 %. Source: R. G. Newcombe, "Improved confidence intervals for the difference between
    binomial proportions based on paired data", Statistics in Medicine 17 (1998), 2635-2650, method 10, over the Wilson
    intervals of `scipy.stats.binomtest`.

    Raises:
        ValueError: The sequences differ in length.
    """
    cells = Counter(zip(first, second, strict=True))
    both, one, other, none = (cells[key] for key in ((True, True), (True, False), (False, True), (False, False)))
    n = both + one + other + none
    low, high = _interval(both, one, other, none) if n else (-1.0, 1.0)
    return Paired(
        n=n,
        both=both,
        first_only=one,
        second_only=other,
        neither=none,
        difference=(one - other) / n if n else None,
        low=low,
        high=high,
        p=mcnemar_p(one, other),
    )


def _interval(both: int, one: int, other: int, none: int) -> tuple[float, float]:
    n = both + one + other + none
    first, second = rate(both + one, n), rate(both + other, n)
    p1, p2 = first.k / n, second.k / n
    phi = _correlation(both, one, other, none)
    below = _joined(p1 - first.low, second.high - p2, phi)
    above = _joined(first.high - p1, p2 - second.low, phi)
    # Rounding, as in `rate`, can leave the range by one part in 10^16.
    return max(-1.0, p1 - p2 - below), min(1.0, p1 - p2 + above)


def _joined(one: float, other: float, phi: float) -> float:
    return sqrt(max(0.0, one * one - 2 * phi * one * other + other * other))


def _correlation(both: int, one: int, other: int, none: int) -> float:
    """Return Newcombe's phi, whose numerator is corrected for continuity where it is positive."""
    scale = (both + one) * (other + none) * (both + other) * (one + none)
    if scale == 0:
        return 0.0
    excess = both * none - one * other
    corrected = max(excess - (both + one + other + none) / 2, 0.0) if excess > 0 else float(excess)
    return corrected / sqrt(scale)
