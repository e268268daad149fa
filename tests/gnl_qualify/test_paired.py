"""Paired comparisons against published values and against enumeration."""

from math import comb, factorial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnl_qualify.paired import mcnemar_p, paired

CELLS = st.tuples(*[st.integers(0, 40)] * 4).filter(any)


def table(both, first, second, neither):
    """Return the comparison of two answerers with this fourfold table."""
    rows = [(True, True)] * both + [(True, False)] * first + [(False, True)] * second + [(False, False)] * neither
    return paired([one for one, _ in rows], [other for _, other in rows])


@pytest.mark.parametrize(
    ("cells", "low", "high"),
    [
        # Newcombe, Statistics in Medicine 17 (1998) 2635-2650, method 10.
        ((36, 12, 2, 0), 0.0569, 0.3404),
        # Fagerland, Lydersen, Laake, Statistics in Medicine 33 (2014) 2850-2875: hyper-responsive airways.
        ((1, 1, 7, 12), -0.5069, -0.0256),
    ],
)
def test_the_interval_of_published_examples(cells, low, high):
    pairs = table(*cells)
    assert (pairs.low, pairs.high) == pytest.approx((low, high), abs=5e-5)


@pytest.mark.parametrize(("first", "second", "p"), [(1, 7, 0.0703), (5, 15, 0.0414), (0, 6, 0.03125), (4, 4, 1.0)])
def test_exact_p_values_that_tables_of_the_sign_test_give(first, second, p):
    assert mcnemar_p(first, second) == pytest.approx(p, abs=5e-5)


def test_without_discordant_pairs_nothing_speaks_against_chance():
    assert mcnemar_p(0, 0) == 1.0


@settings(deadline=None)
@given(st.integers(0, 60), st.integers(0, 60))
def test_p_is_the_share_of_coin_tosses_at_least_as_uneven(first, second):
    n = first + second
    uneven = sum(comb(n, k) for k in range(n + 1) if abs(2 * k - n) >= abs(first - second))
    assert mcnemar_p(first, second) == pytest.approx(uneven / 2**n)


@settings(deadline=None)
@given(CELLS)
def test_the_interval_holds_the_difference_and_stays_in_range(cells):
    pairs = table(*cells)
    assert (pairs.both, pairs.first_only, pairs.second_only, pairs.neither) == cells
    assert pairs.difference == (cells[1] - cells[2]) / sum(cells)
    assert -1 <= pairs.low <= pairs.difference <= pairs.high <= 1


@settings(deadline=None)
@given(CELLS)
def test_exchanging_the_two_mirrors_everything(cells):
    both, first, second, neither = cells
    one, other = table(both, first, second, neither), table(both, second, first, neither)
    assert (one.low, one.high) == pytest.approx((-other.high, -other.low))
    assert one.p == pytest.approx(other.p)


@pytest.mark.parametrize(
    "chances", [(0.6, 0.2, 0.1, 0.1), (0.3, 0.1, 0.1, 0.5), (0.45, 0.4, 0.05, 0.1), (0.85, 0.05, 0.05, 0.05)]
)
def test_the_interval_covers_the_truth_about_as_often_as_it_says(chances):
    """Enumerate every table of 14 pairs with its multinomial probability."""
    n, covered, truth = 14, 0.0, chances[1] - chances[2]
    for both in range(n + 1):
        for first in range(n + 1 - both):
            for second in range(n + 1 - both - first):
                cells = (both, first, second, n - both - first - second)
                chance = float(factorial(n))
                for cell, share in zip(cells, chances, strict=True):
                    chance *= share**cell / factorial(cell)
                pairs = table(*cells)
                covered += chance * (pairs.low <= truth <= pairs.high)
    assert covered >= 0.93


def test_nothing_compared_is_no_difference():
    pairs = paired([], [])
    assert (pairs.n, pairs.difference, pairs.low, pairs.high, pairs.p) == (0, None, -1.0, 1.0, 1.0)


def test_answers_to_different_pairs_are_refused():
    with pytest.raises(ValueError, match="zip"):
        paired([True], [True, False])
