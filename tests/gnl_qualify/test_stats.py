"""The statistics against values that anyone can look up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnl_qualify.stats import lower_bound, percentile, rate, upper_bound

COUNTS = st.integers(1, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


@pytest.mark.parametrize(
    ("alarms", "least"),
    [(0, 59), (1, 93), (2, 124), (3, 153), (4, 181), (5, 208), (6, 234), (7, 260), (8, 286), (10, 336)],
)
def test_so_many_near_misses_establish_at_most_five_percent(alarms, least):
    assert upper_bound(alarms, least) <= 0.05 < upper_bound(alarms, least - 1)


@pytest.mark.parametrize(("same", "n"), [(60, 75), (115, 150), (224, 300)])
def test_so_many_paraphrases_establish_at_least_seventy_percent(same, n):
    assert lower_bound(same - 1, n) < 0.70 <= lower_bound(same, n)


def test_the_wilson_interval_of_published_examples():
    # Newcombe, Statistics in Medicine 17 (1998) 857-872, table I: 81 of 263, 15 of 148, 0 of 20, 1 of 29.
    assert (rate(81, 263).low, rate(81, 263).high) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert (rate(15, 148).low, rate(15, 148).high) == pytest.approx((0.0624, 0.1605), abs=5e-5)
    assert (rate(0, 20).low, rate(0, 20).high) == pytest.approx((0.0, 0.1611), abs=5e-5)
    assert (rate(1, 29).low, rate(1, 29).high) == pytest.approx((0.0061, 0.1718), abs=5e-5)


def test_nothing_measured_is_no_rate():
    assert rate(0, 0).value is None
    assert (rate(0, 0).low, rate(0, 0).high) == (0.0, 1.0)
    assert lower_bound(0, 0) is upper_bound(0, 0) is None


def test_the_ends_are_exact():
    assert lower_bound(0, 9) == rate(0, 9).low == 0.0
    assert upper_bound(9, 9) == rate(9, 9).high == 1.0


@given(COUNTS)
def test_intervals_and_bounds_hold_the_rate_and_stay_within_zero_and_one(counts):
    k, n = counts
    measured = rate(k, n)
    assert 0 <= measured.low <= k / n <= measured.high <= 1
    assert 0 <= lower_bound(k, n) <= k / n <= upper_bound(k, n) <= 1


@given(COUNTS)
def test_the_bounds_mirror_each_other(counts):
    k, n = counts
    assert upper_bound(n - k, n) == pytest.approx(1 - lower_bound(k, n))


def test_percentiles_lie_between_neighbours():
    assert percentile([4.0, 1.0, 3.0, 2.0], 50) == 2.5
    assert percentile([], 50) is None
