"""Bands, areas and thresholds, against what can be computed another way."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from gnl_fixtures import LABELS
from gnl_qualify.calibration.bands import LEVELS, area, bin_rows, level_rows, roc_rows
from gnl_qualify.calibration.measure import FORMS, Measured
from gnl_qualify.calibration.thresholds import (
    centring_rows,
    clearly_better,
    fitted,
    fitted_interval,
    split,
    threshold_rows,
)
from gnl_qualify.stats import rate
from gnl_reports.calibration_model import CentringRow


def measured_of(room, cosines, vectors=None):
    """Return a pass over an invented set whose cosines are given by label, the same for both forms."""
    fixtures = room.set_of(**{label.replace("-", "_"): len(cosines[label]) for label in LABELS})
    labels = np.array([LABELS.index(pair.label) for pair in fixtures.pairs], np.uint8)
    values = np.concatenate([np.asarray(cosines[label], np.float32) for label in LABELS])
    n = len(labels)
    vectors = vectors or (np.ones((n, 1), np.float32), np.ones((n, 1), np.float32))
    return Measured(
        fixtures=fixtures,
        labels=labels,
        cosines=dict.fromkeys(FORMS, values),
        rungs=np.full(n, 3, np.uint8),
        alike=np.zeros(n, np.bool_),
        sample=np.arange(n),
        vectors=dict.fromkeys(FORMS, vectors),
    )


def spread(low, high, n):
    return np.linspace(low, high, n)


FLOATS = st.lists(st.floats(-1, 1, width=32), min_size=1, max_size=400)


@given(FLOATS)
def test_the_threshold_is_the_highest_that_keeps_99_of_100(values):
    cosines = np.array(values, np.float32)
    found = np.float32(fitted(cosines))
    needed = math.ceil(0.99 * len(cosines) - 1e-9)
    assert (cosines >= found).sum() >= needed
    assert (cosines >= np.nextafter(found, np.float32(2))).sum() < needed


def test_its_interval_holds_the_true_quantile_as_often_as_it_says():
    draw = np.random.default_rng(3)
    truth, held = 0.01, 0
    for _ in range(300):
        low, high = fitted_interval(draw.random(900).astype(np.float32))
        held += low <= truth <= high
    # 300 draws at 95 %: below 276 lies one in a thousand. The interval is conservative, never short.
    assert held >= 276


def test_few_pairs_have_no_lower_end():
    low, high = fitted_interval(np.linspace(0.9, 1, 75, dtype=np.float32))
    assert low is None
    assert 0.9 <= high <= 1
    assert fitted_interval(np.array([0.5], np.float32)) == (None, 0.5)


def test_the_interval_of_the_reference_size_holds_the_threshold():
    cosines = np.random.default_rng(1).normal(0.9, 0.03, 857).astype(np.float32)
    low, high = fitted_interval(cosines)
    assert low < fitted(cosines) < high


@given(FLOATS, FLOATS)
@settings(max_examples=50)
def test_the_area_is_that_of_the_library_and_lies_within_its_interval(positive, negative):
    one, other = np.array(positive, np.float32), np.array(negative, np.float32)
    value, low, high = area(one, other)
    truth = np.repeat([1, 0], [len(one), len(other)])
    assert value == pytest.approx(roc_auc_score(truth, np.concatenate([one, other])))
    assert 0 <= low <= value <= high <= 1


def test_the_interval_of_the_area_is_as_wide_as_resampling_finds_it():
    draw = np.random.default_rng(2)
    one, other = draw.normal(1, 1, 120).astype(np.float32), draw.normal(0, 1, 90).astype(np.float32)
    _, low, high = area(one, other)
    again = [area(draw.choice(one, 120), draw.choice(other, 90))[0] for _ in range(800)]
    assert high - low == pytest.approx(3.92 * np.std(again), rel=0.12)


def test_a_curve_point_never_lets_more_through_than_it_may(room):
    measured = measured_of(
        room,
        {
            "dup-exact": spread(0.99, 1, 20),
            "dup-paraphrase": spread(0.7, 0.95, 150),
            "near-miss": spread(0.8, 0.99, 130),
            "unrelated": np.repeat([0.6, 0.8], 50),
        },
    )
    rows = [row for row in roc_rows(measured) if (row.form, row.second) == ("bare", "near-miss")]
    shares = [row.second_passed.value for row in rows]
    assert shares == sorted(shares)
    assert shares[0] == 0
    assert shares[-1] == rows[-1].first_passed.value == 1
    assert next(row for row in rows if row.second_passed.value > 0.09).second_passed.k == 13


def test_bins_hold_every_pair_once_and_levels_fall(room):
    measured = measured_of(
        room,
        {
            "dup-exact": [1.0, 1.0],
            "dup-paraphrase": spread(0.71, 1, 40),
            "near-miss": spread(0.8, 0.9, 30),
            "unrelated": [0.7, 0.72, 0.9],
        },
    )
    counted = {}
    for row in bin_rows(measured):
        counted[row.form, row.label] = counted.get((row.form, row.label), 0) + row.pairs.k
    assert counted["bare", "dup-exact"] == 2
    assert counted["canonical", "dup-paraphrase"] == 40
    assert counted["canonical", "unrelated"] == 3
    levels = [row for row in level_rows(measured) if (row.form, row.label) == ("bare", "unrelated")]
    assert [row.threshold for row in levels] == list(LEVELS)
    assert [row.passed.k for row in levels if row.threshold in (0.60, 0.70, 0.75, 0.95)] == [3, 3, 1, 0]


def test_a_threshold_that_separates_nothing_is_told_from_one_that_does(room):
    cosines = {
        "dup-exact": [1.0] * 5,
        "dup-paraphrase": spread(0.5, 0.9, 200),
        "near-miss": spread(0.8, 0.9, 50),
        "unrelated": spread(0.6, 0.8, 100),
    }
    (row, _) = threshold_rows(measured_of(room, cosines), seed=1)
    assert (row.separates, row.unrelated.k, row.default.k) == (False, 100, 100)
    cosines["unrelated"] = spread(0.2, 0.55, 100)
    (row, _) = threshold_rows(measured_of(room, cosines), seed=1)
    assert row.separates
    assert row.kept.k >= 0.99 * row.kept.n
    assert row.default.k == 0
    assert row.kept_unseen.n == 200


def test_halves_are_drawn_by_the_seed_and_part_the_pairs():
    (one, other), (again, _) = split(11, 4)
    assert one.sum() == 5
    assert not (one & other).any()
    assert (one | other).all()
    assert (again == other).all()
    assert (split(11, 4)[0][0] == one).all()
    assert any((split(11, seed)[0][0] != one).any() for seed in range(5, 9))


def turned(angle, n):
    """Return n unit vectors in space about the first axis, squeezed into a narrow cone, and their partners."""
    draw = np.random.default_rng(n)
    around = draw.random(n) * 2 * np.pi
    cone = 0.2

    def on(phi):
        return np.stack([np.full(n, np.cos(cone)), np.sin(cone) * np.cos(phi), np.sin(cone) * np.sin(phi)], axis=1)

    return on(around), on(around + angle)


def test_a_mean_vector_that_only_stretches_the_scale_is_not_better(room):
    parts = [turned(angle, 150) for angle in (0.0, 0.3, 0.3, 2.5)]
    a, b = (np.concatenate([part[side] for part in parts]).astype(np.float32) for side in (0, 1))
    cosines = {label: np.einsum("ij,ij->i", *parts[place]) for place, label in enumerate(LABELS)}
    rows = centring_rows(measured_of(room, cosines, (a, b)), seed=1)
    raw, centred = (row for row in rows if row.form == "bare")
    assert raw.unrelated.k == centred.unrelated.k == 0
    assert raw.kept.n == centred.kept.n == 150
    assert not clearly_better(rows, "bare")


def test_clearly_better_means_that_the_intervals_do_not_meet():
    def rows(raw, centred, kept=99):
        return tuple(
            CentringRow(form="bare", vectors=vectors, kept=rate(k, 100), unrelated=rate(passed, 150), area=0.9)
            for vectors, passed, k in (("as they are", raw, 99), ("minus the mean", centred, kept))
        )

    assert clearly_better(rows(75, 30), "bare")
    assert not clearly_better(rows(75, 61), "bare")
    assert not clearly_better(rows(75, 30, kept=80), "bare")
