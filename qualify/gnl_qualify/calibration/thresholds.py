"""The threshold that costs fewest candidates: the highest one that still keeps 99 % of the paraphrases."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.stats import quantile_test

from gnl_qualify.calibration.bands import Floats, area, share_above
from gnl_qualify.calibration.measure import FORMS, Measured
from gnl_qualify.stats import CONFIDENCE, rate
from gnl_reports.calibration_model import CentringRow, ThresholdRow
from gnl_semantic.embedder.port import Vectors
from gnl_semantic.rate import Rate
from gnl_semantic.threshold import UNKNOWN_THRESHOLD, SentenceForm

KEPT = 0.99
"""Share of the paraphrases that a threshold must keep."""

Halves = tuple[tuple[NDArray[np.bool_], NDArray[np.bool_]], ...]
"""Masks (fitted to, tried on), each half once in each part."""


def fitted(paraphrases: Floats) -> float:
    """Return the highest cosine at which at least `KEPT` of the paraphrases are at or above it.

    Args:
        paraphrases: Their cosines, at least one, in any order.
    """
    # The rounding of 1 - KEPT must not take a pair.
    return float(np.sort(paraphrases)[math.floor((1 - KEPT) * len(paraphrases) + 1e-9)])


def fitted_interval(paraphrases: Floats) -> tuple[float | None, float | None]:
    """Return the 95 % interval of that threshold; an end that so few pairs cannot give is None.

    It is the interval of the cosines' 1 % quantile between two order statistics, free of any assumption about their
    distribution. Source: W. J. Conover, "Practical nonparametric statistics", 3rd ed. (1999), 135-143, as
    `scipy.stats.quantile_test(...).confidence_interval` computes it.
    """
    interval = quantile_test(np.sort(paraphrases).astype(np.float64), p=1 - KEPT).confidence_interval(CONFIDENCE)
    low, high = (None if math.isnan(end) else float(end) for end in (interval.low, interval.high))
    return low, high


def threshold_rows(measured: Measured, *, seed: int) -> tuple[ThresholdRow, ...]:
    """Return the fitted threshold of each form, and what it lets through."""
    halves = split(len(measured.labels), seed)
    return tuple(_threshold_row(measured, form, halves) for form in FORMS)


def _threshold_row(measured: Measured, form: SentenceForm, halves: Halves) -> ThresholdRow:
    cosines, paraphrase = measured.cosines[form], measured.of("dup-paraphrase")
    unrelated = cosines[measured.of("unrelated")]
    # Rounded down: a profile that carries three decimals must not lose a pair to the rounding.
    value = math.floor(fitted(cosines[paraphrase]) * 1000) / 1000
    low, high = fitted_interval(cosines[paraphrase])
    p05 = float(np.percentile(unrelated, 5)) if len(unrelated) else None
    return ThresholdRow(
        form=form,
        value=value,
        low=low,
        high=high,
        kept=share_above(cosines[paraphrase], value),
        kept_unseen=_kept_unseen(cosines, paraphrase, halves),
        near_miss=share_above(cosines[measured.of("near-miss")], value),
        unrelated=share_above(unrelated, value),
        unrelated_p05=p05,
        separates=None if p05 is None else value > p05,
        default=share_above(unrelated, UNKNOWN_THRESHOLD),
    )


def _kept_unseen(cosines: Floats, paraphrase: NDArray[np.bool_], halves: Halves) -> Rate:
    parts = [
        share_above(cosines[tried & paraphrase], fitted(cosines[fit & paraphrase]))
        for fit, tried in halves
        if (fit & paraphrase).any()
    ]
    return _sum(parts)


def split(n: int, seed: int) -> Halves:
    """Return two halves of `n` pairs, drawn by the seed, each once to fit on and once to try on."""
    first = np.zeros(n, np.bool_)
    first[np.random.default_rng(seed).permutation(n)[: n // 2]] = True
    return ((first, ~first), (~first, first))


def centring_rows(measured: Measured, *, seed: int) -> tuple[CentringRow, ...]:
    """Return what subtracting a mean vector does for pairs that neither the mean nor the threshold was fitted to."""
    return tuple(row for form in FORMS for row in _centring(measured, form, seed))


def _centring(measured: Measured, form: SentenceForm, seed: int) -> list[CentringRow]:
    a, b = measured.vectors[form]
    paraphrase, unrelated = (measured.of(label)[measured.sample] for label in ("dup-paraphrase", "unrelated"))
    rows: list[CentringRow] = []
    for vectors in ("as they are", "minus the mean"):
        kept, passed, areas = [], [], []
        for fit, tried in split(len(measured.sample), seed):
            if not all((mask & half).any() for mask in (paraphrase, unrelated) for half in (fit, tried)):
                continue
            mean = np.concatenate([a[fit], b[fit]]).mean(axis=0) if vectors == "minus the mean" else None
            scores = _cosines(a, b, mean)
            threshold = fitted(scores[fit & paraphrase])
            kept.append(share_above(scores[tried & paraphrase], threshold))
            passed.append(share_above(scores[tried & unrelated], threshold))
            areas.append(area(scores[tried & paraphrase], scores[tried & unrelated])[0])
        rows.append(
            CentringRow(
                form=form,
                vectors=vectors,
                kept=_sum(kept),
                unrelated=_sum(passed),
                area=float(np.mean(areas)) if areas else None,
            )
        )
    return rows


def _cosines(a: Vectors, b: Vectors, mean: Vectors | None) -> Floats:
    if mean is not None:
        a, b = a - mean, b - mean
        lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
        # A text that is the mean itself has no direction left.
        products = np.einsum("ij,ij->i", a, b)
        centred: Floats = np.divide(products, lengths, out=np.zeros(len(a), np.float32), where=lengths > 0)
        return centred
    found: Floats = np.einsum("ij,ij->i", a, b)
    return found


def clearly_better(rows: tuple[CentringRow, ...], form: SentenceForm) -> bool:
    """Tell whether the mean lets clearly fewer unrelated pairs through and does not clearly lose paraphrases.

    Clearly: the two 95 % intervals do not meet.
    """
    raw, centred = (row for row in rows if row.form == form)
    return centred.unrelated.high < raw.unrelated.low and centred.kept.high >= raw.kept.low


def _sum(rates: list[Rate]) -> Rate:
    return rate(sum(one.k for one in rates), sum(one.n for one in rates))
