import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnl_core.identity import normalize_identity_value
from gnl_semantic.judge.local.features import NAMES, collect, cosines, vector

PIECES = [
    "tv", "42", "043", "1.5", "12,50", "21.02", "march", "zwei", "kg", "g", "800", "€", "->", "→", "A.Ş.", "depo",
    "depodan", "mağaza", "ltd", "limited", "第", "倉庫", "第二", "مستودع", "склад", "-", "/", "(", "0", "00", "14:00",
    "2", "pm", "x",
]  # fmt: skip
TEXTS = st.one_of(st.text(max_size=60), st.lists(st.sampled_from(PIECES), max_size=12).map(" ".join))


def unit(texts):
    """Vectors that stand for an embedder's: unit length, one a text, of its characters."""
    rows = np.array([[1 + text.count(char) for char in "aeiort0123 "] for text in texts], np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def features(a, b):
    evidence = collect(a, b)
    return vector(evidence.values, cosines(evidence, unit(evidence.texts)))


@settings(max_examples=300, deadline=None)
@given(TEXTS, TEXTS)
def test_any_two_texts_have_finite_features_that_do_not_hang_on_their_order(a, b):
    found = features(a, b)
    assert len(found) == len(NAMES)
    assert all(map(math.isfinite, found))
    assert found == features(b, a)


@given(TEXTS)
def test_a_text_and_itself_leave_nothing_over(text):
    evidence = collect(text, text)
    assert evidence.rests == ("", "")
    assert evidence.values["rest_none"] == 1
    assert evidence.values["numbers_contradict"] == evidence.values["exchanged"] == 0


@pytest.mark.parametrize(
    "text", ["a1 " * 3334, "9" * 10_000, "货" * 10_000, "x" * 10_000, "1.2,3" * 2000, "(" * 10_000]
)
def test_ten_thousand_characters_are_read(text):
    assert len(features(text, text[1:] + "b")) == len(NAMES)


def named(a, b):
    return dict(zip(NAMES, features(*map(normalize_identity_value, (a, b))), strict=True))


def test_another_number_contradicts_however_the_rest_is_written():
    assert named("TV-42 black, 3 pcs", "3 pcs black tv 43")["numbers_contradict"] == 1
    assert named("TV-42 black, 3 pcs", "3 pcs black tv 42")["numbers_contradict"] == 0
    assert named("TV-42 black", "TV-42 black x1")["numbers_contradict"] == 0


def test_an_exchange_of_two_places_shows_against_a_mere_change_of_order():
    assert named("boxes from York to Leeds", "boxes from Leeds to York")["exchanged_clean"] == 1
    assert named("rack B2 to rack D2", "rack D2 to rack B2")["swap_template"] == 1
    assert named("3 boxes, Leeds to York", "Leeds to York, 3 boxes")["swap_template"] == 0


def test_a_word_in_another_words_place_shows_against_an_added_word():
    assert named("red chair oak", "red chair pine")["places_single_only"] == 1
    added = named("red chair oak", "red chair oak please")
    assert (added["places_exchanged"], added["rest_one_side"]) == (0, 1)


def test_no_rest_no_text_to_embed_beyond_the_two():
    assert collect("tv 42", "42 tv").texts == ("42 tv", "tv 42")
    assert collect("red tv", "blue tv").texts == ("blue tv", "red tv", "blue", "red")


def test_a_last_bit_of_a_vector_makes_no_difference():
    evidence = collect("red chair", "blue chair")
    exact = np.eye(4, 8, dtype=np.float32)
    assert cosines(evidence, exact) == cosines(evidence, exact + np.float32(1e-5))
