import numpy as np
import pytest

from gnl_semantic.embedder import Stamped, cosine
from gnl_semantic.errors import StampMismatchError


def unit(*rows):
    array = np.array(rows, np.float32)
    return array / np.linalg.norm(array, axis=1, keepdims=True)


def test_cosine_gives_one_score_a_pair():
    a = Stamped(model_id="m", vectors=unit([1, 0], [1, 1]))
    b = Stamped(model_id="m", vectors=unit([0, 1], [1, 0], [-1, 0]))
    half = 2**-0.5
    assert cosine(a, b) == pytest.approx(np.array([[0, 1, -1], [half, half, -half]]))


def test_other_stamps_are_refused_even_for_equal_vectors():
    with pytest.raises(StampMismatchError) as caught:
        cosine(Stamped(model_id="m@q4", vectors=unit([1, 0])), Stamped(model_id="m@fp32", vectors=unit([1, 0])))
    assert caught.value.detail == {"stamps": ["m@q4", "m@fp32"]}


def test_other_lengths_under_one_stamp_are_refused():
    with pytest.raises(StampMismatchError, match="2 and 3 dimensions"):
        cosine(Stamped(model_id="m", vectors=unit([1, 0])), Stamped(model_id="m", vectors=unit([1, 0, 0])))


def test_no_rows_give_no_scores():
    empty = Stamped(model_id="m", vectors=np.empty((0, 2), np.float32))
    assert cosine(empty, Stamped(model_id="m", vectors=unit([1, 0]))).shape == (0, 1)
