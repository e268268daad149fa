"""Statistics of the exam: counts in, rates with intervals and bounds out."""

from __future__ import annotations

from collections.abc import Sequence

from gnl_core.errors import MissingExtraError
from gnl_semantic.rate import Rate

try:
    import numpy as np
    from scipy.stats import beta, binomtest
except ImportError:
    # Raised when the exam is set up, not after it was sat.
    raise MissingExtraError("scoring an exam", "qualify") from None

CONFIDENCE = 0.95


def rate(k: int, n: int) -> Rate:
    """Return k of n with its two-sided 95 % Wilson score interval.

    Source: E. B. Wilson, "Probable inference, the law of succession, and statistical inference", JASA 22 (1927),
    209-212, as `scipy.stats.binomtest(...).proportion_ci(method="wilson")` computes it.

    Args:
        k: Trials that count, 0 <= k <= n.
        n: All trials; 0 gives the interval [0, 1].
    """
    if n == 0:
        return Rate(0, 0, 0.0, 1.0)
    interval = binomtest(k, n).proportion_ci(CONFIDENCE, method="wilson")
    # The formula's rounding can leave 0 and 1 by one part in 10^17.
    return Rate(k, n, max(0.0, float(interval.low)), min(1.0, float(interval.high)))


def lower_bound(k: int, n: int) -> float | None:
    """Return the one-sided 95 % Clopper-Pearson lower bound of k of n, or None where n is 0.

    Source: C. J. Clopper, E. S. Pearson, "The use of confidence or fiducial limits illustrated in the case of the
    binomial", Biometrika 26 (1934), 404-413, in its beta-quantile form.
    """
    if n == 0:
        return None
    return 0.0 if k == 0 else float(beta.ppf(1 - CONFIDENCE, k, n - k + 1))


def upper_bound(k: int, n: int) -> float | None:
    """Return the one-sided 95 % Clopper-Pearson upper bound of k of n, or None where n is 0.

    Source: see `lower_bound`.
    """
    if n == 0:
        return None
    return 1.0 if k == n else float(beta.ppf(CONFIDENCE, k + 1, n - k))


def percentile(values: Sequence[float], percent: float) -> float | None:
    """Return a percentile (0 to 100, linear between neighbours, as `numpy.percentile`), None of no values."""
    return float(np.percentile(values, percent)) if values else None
