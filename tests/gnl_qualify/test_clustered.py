"""The bootstrap of whole clusters against the enumeration of every draw."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnl_qualify.clustered import clustered

PARTS = st.lists(st.integers(0, 9).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), max_size=8)


@pytest.mark.parametrize(
    "parts",
    [
        [(1, 4), (3, 5), (2, 2), (0, 6)],
        [(9, 10), (7, 10), (10, 10), (2, 10), (5, 10)],
        [(0, 1), (1, 1), (1, 1), (0, 1), (1, 1), (1, 1)],
    ],
)
def test_the_interval_is_the_one_of_all_draws(parts):
    draws = [sum(k for k, _ in draw) / sum(n for _, n in draw) for draw in product(parts, repeat=len(parts))]
    exact = np.percentile(draws, (2.5, 97.5), method="inverted_cdf")
    drawn = clustered(parts)
    # Few clusters give few different shares: the drawn quantile lies within one of their steps.
    steps = np.diff(np.unique(draws)).max()
    assert abs(drawn.low - exact[0]) <= steps
    assert abs(drawn.high - exact[1]) <= steps


def test_domains_that_differ_widen_the_interval():
    alike = clustered([(5, 10)] * 4 + [(6, 10)] * 4)
    unlike = clustered([(0, 10)] * 4 + [(11, 11)] * 4)
    assert unlike.high - unlike.low > 3 * (alike.high - alike.low)


@pytest.mark.parametrize("parts", [[], [(3, 7)], [(3, 7), (0, 0)], [(0, 4), (0, 9)], [(4, 4), (9, 9)]])
def test_where_resampling_cannot_show_anything_there_is_no_interval(parts):
    drawn = clustered(parts)
    assert (drawn.low, drawn.high) == (None, None)
    assert (drawn.k, drawn.n) == (sum(k for k, _ in parts), sum(n for _, n in parts))


def test_it_is_the_same_in_every_run():
    parts = [(1, 4), (3, 5), (2, 2), (0, 6)]
    # A figure that certificates rest on: NumPy promises this stream for good.
    assert clustered(parts) == clustered(parts)
    assert (clustered(parts).low, clustered(parts).high) == pytest.approx((0.1, 5 / 7), abs=1e-9)


@settings(max_examples=25, deadline=None)
@given(PARTS)
def test_it_lies_within_zero_and_one_and_counts_clusters_with_trials(parts):
    drawn = clustered(parts)
    assert drawn.clusters == sum(n > 0 for _, n in parts)
    if drawn.low is not None:
        assert 0 <= drawn.low <= drawn.high <= 1
