"""Bins for a latency histogram: few, of round widths, with the tail in one bin of its own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

_TAIL_FROM = 2.0
"""Samples beyond this many times the 95th percentile share one open bin; else one slow call flattens the rest."""
_MOST_BINS = 16


@dataclass(frozen=True, slots=True)
class Bin:
    """Samples from `low` up to but without `high`, in milliseconds; `high` is None for the open tail."""

    low: float
    high: float | None
    count: int


def bins(samples: Sequence[float]) -> tuple[Bin, ...]:
    """Return at most 18 bins that hold every sample once; none for no samples.

    Args:
        samples: Milliseconds, finite and not negative, in any order.
    """
    if not samples:
        return ()
    ordered = sorted(samples)
    p95 = ordered[min(len(ordered) - 1, math.ceil(0.95 * len(ordered)) - 1)]
    cap = min(ordered[-1], _TAIL_FROM * p95)
    width = _round_width(max(cap - ordered[0], cap / 100, 1e-3) / _MOST_BINS)
    first = math.floor(ordered[0] / width)
    count = math.floor(cap / width) - first + 1
    counts = [0] * (count + 1)
    for value in ordered:
        counts[min(math.floor(value / width) - first, count)] += 1
    edges = [(first + step) * width for step in range(count + 1)]
    closed = [Bin(low, high, n) for low, high, n in zip(edges, edges[1:], counts, strict=False)]
    if not counts[-1]:
        return tuple(closed)
    while not closed[-1].count:  # the tail may as well begin where the samples end
        closed.pop()
    return (*closed, Bin(edges[len(closed)], None, counts[-1]))


def _round_width(least: float) -> float:
    """Return the smallest of 1, 2, 5 times a power of ten that is not below `least`."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= least * (1 - 1e-9))
