"""Shares whose trials come in bundles: pairs of one domain share words, answers to one pair share the pair."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from scipy.stats import bootstrap

from gnl_qualify.stats import CONFIDENCE
from gnl_reports.model import Clustered

RESAMPLES = 9_999
SEED = 1
"""Fixed, so that nobody draws until an interval pleases, and frozen with its generator, so that it can be verified."""


def clustered(parts: Iterable[tuple[int, int]]) -> Clustered:
    """Return the share over all clusters with its two-sided 95 % interval from a bootstrap of whole clusters.

    Source: A. C. Davison, D. V. Hinkley, "Bootstrap Methods and their Application" (1997), section 3.8: clusters are
    drawn with replacement and taken whole; percentile interval of `scipy.stats.bootstrap`. With few clusters the
    interval is rather too narrow (Cameron, Gelbach, Miller, Review of Economics and Statistics 90 (2008), 414-427).

    Args:
        parts: k of n of each cluster; clusters without trials are passed over. There is no interval where fewer than
            two clusters are left, nor where all trials went one way: resampling cannot show what was never seen.
    """
    rows = [(k, n) for k, n in parts if n]
    k, n = sum(k for k, _ in rows), sum(n for _, n in rows)
    if len(rows) < 2 or k in (0, n):
        return Clustered(k=k, n=n, clusters=len(rows), low=None, high=None)
    hits, trials = (np.array(column) for column in zip(*rows, strict=True))
    drawn = bootstrap(
        (hits, trials),
        _share,
        paired=True,
        vectorized=True,
        n_resamples=RESAMPLES,
        confidence_level=CONFIDENCE,
        method="percentile",
        # NumPy freezes the stream of this older generator, and of no other.
        random_state=np.random.RandomState(SEED),
    ).confidence_interval
    return Clustered(k=k, n=n, clusters=len(rows), low=float(drawn.low), high=float(drawn.high))


def _share(hits: Any, trials: Any, axis: int = -1) -> Any:
    return hits.sum(axis=axis) / trials.sum(axis=axis)
