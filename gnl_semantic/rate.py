"""A measured share that never travels without its denominator and its interval."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rate:
    """A share of `n` trials.

    Attributes:
        k: Trials that count, 0 <= k <= n.
        n: All trials. 0 means that nothing was measured: then `value` is None and the interval [0, 1].
        low: Lower end of the two-sided 95 % interval.
        high: Upper end of the two-sided 95 % interval.
    """

    k: int
    n: int
    low: float
    high: float

    @property
    def value(self) -> float | None:
        """The share k / n, or None where nothing was measured."""
        return self.k / self.n if self.n else None

    def __str__(self) -> str:
        if not self.n:
            return "not measured (0 of 0)"
        return f"{self.k / self.n:.3f} ({self.k}/{self.n}, 95 % [{self.low:.3f}, {self.high:.3f}])"
