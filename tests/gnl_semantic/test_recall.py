"""Candidates by cosine and by fold, and the one gray pair."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnl_semantic.ladder import evaluate
from gnl_semantic.recall import Candidate, ExactIndex, evidence, find_candidates, fold_key, pick_gray, top_k


def unit(*angles):
    """Return unit vectors in the plane; the cosine of two is that of the angle between them."""
    return np.array([[np.cos(a), np.sin(a)] for a in angles], dtype=np.float32)


QUERY = unit(0.0)[0]


def test_the_best_rows_above_the_threshold_come_first():
    found = top_k(unit(1.0, 0.1, 0.5, 0.3, 2.0), QUERY, k=3, threshold=0.8)
    assert [row for row, _ in found] == [1, 3, 2]
    assert [score for _, score in found] == pytest.approx(np.cos([0.1, 0.3, 0.5]))
    assert [row for row, _ in top_k(unit(1.0, 0.1, 0.5), QUERY, k=3, threshold=0.9)] == [1]


def test_a_cosine_equal_to_the_threshold_passes():
    matrix = np.array([[0.5, 0.0], [0.25, 0.0]], dtype=np.float32)
    assert top_k(matrix, QUERY, threshold=0.5) == [(0, 0.5)]


def test_of_equal_cosines_the_lower_row_wins_also_at_the_edge_of_k():
    assert [row for row, _ in top_k(unit(0.2, 0.2, 0.1, 0.2), QUERY, k=2, threshold=0)] == [2, 0]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_vector_that_is_not_finite_is_no_candidate(bad):
    matrix = unit(0.1, 0.2)
    matrix[0] = bad
    assert [row for row, _ in top_k(matrix, QUERY, threshold=0.5)] == [1]


def test_no_records_and_no_places_give_nothing():
    assert top_k(np.empty((0, 2), np.float32), QUERY, threshold=-1) == []
    assert top_k(unit(0.1), QUERY, k=0, threshold=-1) == []


def test_rows_that_are_not_alive_take_no_place():
    alive = np.array([False, True, True])
    assert [row for row, _ in top_k(unit(0.0, 0.2, 0.1), QUERY, k=2, threshold=0.5, alive=alive)] == [2, 1]
    found = find_candidates(unit(0.0, 3.0, 0.1), QUERY, [0, 1], k=1, threshold=0.5, alive=alive)
    assert [(one.row, one.exact) for one in found] == [(2, False), (1, True)]


@given(st.lists(st.floats(0, 3), max_size=30), st.integers(0, 6), st.floats(-1, 1))
def test_top_k_is_what_sorting_everything_gives(angles, k, threshold):
    matrix = unit(*angles).reshape(-1, 2)
    scores = matrix @ QUERY
    order = sorted(
        (row for row in range(len(scores)) if scores[row] >= np.float32(threshold)), key=lambda r: -scores[r]
    )
    assert [row for row, _ in top_k(matrix, QUERY, k=k, threshold=threshold)] == order[:k]


def test_a_record_that_folds_alike_is_a_candidate_whatever_its_cosine():
    index = ExactIndex()
    for row, text in enumerate(("tv 43", "INV-2026-0142", "tv 44")):
        index.add(row, {"subject": text})
    exact = index.find({"subject": "inv 2026 142"})
    found = find_candidates(unit(0.1, 3.0, 0.2), QUERY, exact, k=1, threshold=0.9)
    assert [(one.row, one.exact) for one in found] == [(0, False), (1, True)]
    assert found[1].score == pytest.approx(np.cos(3.0))


def test_a_row_found_twice_is_one_candidate():
    (one,) = find_candidates(unit(0.1), QUERY, [0, 0], threshold=0.9)
    assert (one.row, one.exact) == (0, True)


def test_the_index_ignores_the_order_of_fields_and_keeps_fields_apart():
    index = ExactIndex()
    index.add(4, {"sku": "TV-42", "site": "İzmir"})
    assert index.find({"site": "izmir", "sku": "tv 42"}) == (4,)
    assert index.find({"site": "tv 42", "sku": "izmir"}) == ()
    assert index.find({"sku": "tv 42"}) == ()


@given(st.text(max_size=20), st.text(max_size=20))
def test_whatever_meets_in_the_index_is_a_match_of_the_ladder(a, b):
    if fold_key({"x": a}) == fold_key({"x": b}) and a and b:
        assert evaluate({"x": a}, {"x": b}).outcome == "match"


def gray(row, score, **values):
    return Candidate(row, score, exact=False), values


def test_the_gray_pair_with_more_matching_fields_goes_before_the_higher_cosine():
    call = {"customer": "Jane Berg", "sku": "tv 42"}
    grays = [
        gray(0, 0.99, customer="Jana Bergmann", sku="television 42"),
        gray(1, 0.91, customer="J. Berg", sku="TV-42"),
        gray(2, 0.95, customer="J. Berg", sku="TV 42"),
    ]
    assert [evidence(call, values) for _, values in grays] == [0, 1, 1]
    assert pick_gray(call, grays) == 2


def test_with_equal_evidence_the_cosine_decides_and_then_the_lower_row():
    call = {"subject": "green lamp"}
    grays = [gray(7, 0.9, subject="a lamp"), gray(3, 0.9, subject="the lamp"), gray(5, 0.8, subject="one lamp")]
    assert pick_gray(call, grays) == 1
    assert pick_gray(call, []) is None
