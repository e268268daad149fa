"""Where cosines lie: percentiles, bins, bands, and the area under the ROC curve with its interval."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm, rankdata
from sklearn.metrics import roc_auc_score

from gnl_fixtures import LABELS, Label
from gnl_qualify.calibration.measure import FORMS, Measured
from gnl_qualify.stats import CONFIDENCE, rate
from gnl_reports.calibration_model import AreaRow, BandRow, BinRow, CosineRow, LevelRow, RocRow
from gnl_semantic.rate import Rate
from gnl_semantic.threshold import SentenceForm

Floats = NDArray[np.float32]

LEVELS = (*(n / 100 for n in range(30, 80, 5)), *(n / 100 for n in range(80, 100)))
"""Thresholds at which shares are given; the seed's 0.60 is among them, and not 1, where rounding decides."""
CONTRASTS: tuple[tuple[str, tuple[Label, ...], str, tuple[Label, ...]], ...] = (
    ("dup-paraphrase", ("dup-paraphrase",), "near-miss", ("near-miss",)),
    ("same job", ("dup-exact", "dup-paraphrase"), "unrelated", ("unrelated",)),
    ("dup-paraphrase", ("dup-paraphrase",), "unrelated", ("unrelated",)),
)
_ROC_AT = (0, 0.01, 0.02, 0.05, *(n / 10 for n in range(1, 11)))
_BINS = 20
_BAND = (5, 95)
_OVERLAPS: tuple[tuple[Label, Label], ...] = (("dup-paraphrase", "near-miss"), ("near-miss", "dup-paraphrase"))


def share_above(values: Floats, threshold: float) -> Rate:
    """Return how many cosines are at or above a threshold."""
    return rate(int((values >= np.float32(threshold)).sum()), len(values))


def cosine_rows(measured: Measured) -> tuple[CosineRow, ...]:
    """Return one row a form and label."""
    return tuple(_cosine_row(form, label, values) for form, label, values in _groups(measured))


def level_rows(measured: Measured) -> tuple[LevelRow, ...]:
    """Return the share of each label's pairs above each of `LEVELS`."""
    return tuple(
        LevelRow(form=form, label=label, threshold=level, passed=share_above(values, level))
        for form, label, values in _groups(measured)
        for level in LEVELS
    )


def bin_rows(measured: Measured) -> tuple[BinRow, ...]:
    """Return a histogram a form and label, with the same edges for all labels of a form."""
    rows: list[BinRow] = []
    for form in FORMS:
        edges = _edges(measured.cosines[form])
        for label, values in _labels(measured, form):
            counts, _ = np.histogram(values, edges)
            rows += [
                BinRow(form=form, label=label, low=low, high=high, pairs=rate(int(count), len(values)))
                for (low, high), count in zip(pairwise(edges), counts, strict=True)
            ]
    return tuple(rows)


def band_rows(measured: Measured) -> tuple[BandRow, ...]:
    """Return how far paraphrases and near-misses lie in each other's middle 90 %."""
    rows: list[BandRow] = []
    for form in FORMS:
        for label, other in _OVERLAPS:
            values, theirs = (measured.cosines[form][measured.of(one)] for one in (label, other))
            low, high = np.percentile(theirs, _BAND)
            inside = rate(int(((values >= low) & (values <= high)).sum()), len(values))
            rows.append(BandRow(form=form, label=label, other=other, low=float(low), high=float(high), inside=inside))
    return tuple(rows)


def area_rows(measured: Measured) -> tuple[AreaRow, ...]:
    """Return the area under the ROC curve of each of `CONTRASTS`."""
    rows: list[AreaRow] = []
    for form, first, one, second, other in _contrasts(measured):
        value, low, high = area(one, other) if len(one) and len(other) else (None, None, None)
        rows.append(
            AreaRow(
                form=form,
                first=first,
                second=second,
                n_first=len(one),
                n_second=len(other),
                area=value,
                low=low,
                high=high,
            )
        )
    return tuple(rows)


def area(positive: Floats, negative: Floats) -> tuple[float, float, float]:
    """Return the area under the ROC curve with its 95 % interval; one that separates fully has an interval of no width.

    Source of the interval: E. R. DeLong, D. M. DeLong, D. L. Clarke-Pearson, "Comparing the areas under two or more
    correlated receiver operating characteristic curves", Biometrics 44 (1988), 837-845, computed from mid-ranks as in
    X. Sun, W. Xu, IEEE Signal Processing Letters 21 (2014), 1389-1393. Of less than two values on a side: [0, 1].
    """
    m, n = len(positive), len(negative)
    both = np.concatenate([positive, negative])
    value = float(roc_auc_score(np.repeat([1, 0], [m, n]), both))
    if min(m, n) < 2:
        return value, 0.0, 1.0
    ranks = rankdata(both)
    beaten = (ranks[:m] - rankdata(positive)) / n
    beating = 1 - (ranks[m:] - rankdata(negative)) / m
    spread = float(norm.ppf((1 + CONFIDENCE) / 2)) * math.sqrt(beaten.var(ddof=1) / m + beating.var(ddof=1) / n)
    return value, max(0.0, value - spread), min(1.0, value + spread)


def roc_rows(measured: Measured) -> tuple[RocRow, ...]:
    """Return points of the ROC curve of each of `CONTRASTS`: the most of the first at a bounded share of the second.

    A contrast with a group that has no pairs has no points.
    """
    rows: list[RocRow] = []
    for form, first, one, second, other in _contrasts(measured):
        if not len(one) or not len(other):
            continue
        falling = np.sort(other)[::-1]
        for share in _ROC_AT:
            # The lowest threshold that lets no more than this share of the second group pass.
            most = math.floor(share * len(falling) + 1e-9)
            threshold = float(np.nextafter(falling[most], np.float32(2))) if most < len(falling) else -1.0
            rows.append(
                RocRow(
                    form=form,
                    first=first,
                    second=second,
                    threshold=threshold,
                    first_passed=share_above(one, threshold),
                    second_passed=share_above(other, threshold),
                )
            )
    return tuple(rows)


def _contrasts(measured: Measured) -> Iterator[tuple[SentenceForm, str, Floats, str, Floats]]:
    for form in FORMS:
        for first, ones, second, others in CONTRASTS:
            cosines = measured.cosines[form]
            yield form, first, cosines[measured.of(*ones)], second, cosines[measured.of(*others)]


def _groups(measured: Measured) -> Iterator[tuple[SentenceForm, Label, Floats]]:
    for form in FORMS:
        for label, values in _labels(measured, form):
            yield form, label, values


def _labels(measured: Measured, form: SentenceForm) -> Iterator[tuple[Label, Floats]]:
    for label in LABELS:
        yield label, measured.cosines[form][measured.of(label)]


def _cosine_row(form: SentenceForm, label: Label, values: Floats) -> CosineRow:
    if not len(values):
        return CosineRow(form=form, label=label, n=0)
    least, p05, median, p95, most = (float(value) for value in np.percentile(values, (0, 5, 50, 95, 100)))
    mean = float(np.mean(values, dtype=np.float64))
    return CosineRow(
        form=form, label=label, n=len(values), least=least, p05=p05, median=median, mean=mean, p95=p95, most=most
    )


def _edges(values: Floats) -> list[float]:
    """Return round edges from the least cosine up to 1, about `_BINS` of them."""
    least = float(values.min())
    width = next(width for width in (0.01, 0.02, 0.05, 0.1) if (1 - least) / width <= _BINS or width == 0.1)
    first = math.floor(least / width + 1e-9)
    return [round(step * width, 2) for step in range(first, round(1 / width) + 1)]
