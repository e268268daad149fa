"""One text a value, on every machine and in every release."""

import hashlib
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnl_core import NotCanonicalError, args_hash, canonical_json

# Golden vectors: these bytes must never change between releases.
GOLDEN = [
    ({}, "{}"),
    ({"order_id": "A-17", "amount": 12}, '{"amount":12,"order_id":"A-17"}'),
    ({"a": None}, '{"a":null}'),
    ({"name": "Zoe\u0308"}, '{"name":"Zo\u00eb"}'),
    ({"n": (1.0, 2.5, True, "x", {"k": []})}, '{"n":[1,2.5,true,"x",{"k":[]}]}'),
    ({"x": math.nan}, '{"x":{"\\u0000gnl:Number":"nan"}}'),
    ({"\0gnl:Number": "nan"}, '{"\\u0000\\u0000gnl:Number":"nan"}'),
    ({"big": 12345678901234567890}, '{"big":12345678901234567890}'),
    ({"q": 'a"b\n'}, '{"q":"a\\"b\\n"}'),
]

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize(("args", "text"), GOLDEN)
def test_golden_vectors(args, text):
    assert canonical_json(args) == text
    assert args_hash(args) == hashlib.sha256(text.encode()).hexdigest()[:16]


def test_the_hash_of_no_arguments_is_the_references():
    assert args_hash({}) == "44136fa355b3678a"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({"n": 1}, {"n": 1.0}),
        ({"n": 0.0}, {"n": -0.0}),
        ({"n": 10**15}, {"n": 1e15}),
        ({"t": [1, 2]}, {"t": (1, 2)}),
        ({"s": "e\u0301"}, {"s": "\u00e9"}),
        ({"e\u0301": 1}, {"\u00e9": 1}),
    ],
)
def test_two_writings_of_one_value_hash_alike(one, other):
    assert args_hash(one) == args_hash(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"n": 1}, {"n": True}),
        ({"n": 0}, {"n": False}),
        ({"n": 1}, {"n": "1"}),
        ({"a": None}, {}),
        ({"n": math.nan}, {"n": math.inf}),
        ({"n": math.inf}, {"n": -math.inf}),
        ({"n": math.nan}, {"n": None}),
        ({"n": math.nan}, {"n": {"\0gnl:Number": "nan"}}),
        ({"n": 2**53}, {"n": 2**53 + 1}),
        ({"s": "a"}, {"s": "A"}),
        ({"s": "a"}, {"s": " a"}),
        ({"s": "é"}, {"s": "e"}),
        ({"l": [1, 2]}, {"l": [2, 1]}),
    ],
)
def test_two_values_hash_apart(one, other):
    assert args_hash(one) != args_hash(other)


def test_keys_sort_by_utf16_code_units():
    assert canonical_json({"\ufb01": 1, "\U0001d11e": 2}) == '{"\U0001d11e":2,"\ufb01":1}'


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"a": {"b": object()}}, ["$.a.b", "object"]),
        ({"a": [1, b"x"]}, ["$.a[1]", "bytes"]),
        ({1: "x"}, ["key 1", "int"]),
        ({"a": "\ud800"}, ["$.a", "surrogate"]),
        ({"\udfff": 1}, ["surrogate"]),
        ({"a": {1, 2}}, ["$.a", "set"]),
    ],
)
def test_what_has_no_canonical_form_is_named_with_its_path(value, words):
    with pytest.raises(NotCanonicalError) as error:
        canonical_json(value)
    assert all(word in str(error.value) for word in words)


def test_a_value_that_contains_itself_is_refused_and_a_shared_one_is_not():
    loop: list[object] = []
    loop.append({"again": loop})
    with pytest.raises(NotCanonicalError, match=r"\$\[0\]\.again"):
        canonical_json(loop)
    shared = [1]
    assert canonical_json([shared, shared]) == "[[1],[1]]"


def test_endless_values_are_refused():
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(NotCanonicalError, match="nested"):
        canonical_json(deep)
    with pytest.raises(NotCanonicalError, match="too long"):
        canonical_json({"n": 10**5000})


@given(plain)
def test_a_canonical_text_is_its_own_canonical_text(value):
    text = canonical_json(value)
    back = json.loads(text)
    if "\\u0000" not in text:  # tags and escaped keys are one-way
        assert canonical_json(back) == text


@given(st.dictionaries(st.text(), st.integers(), max_size=6))
def test_the_order_of_insertion_never_matters(args):
    assert args_hash(args) == args_hash(dict(reversed(args.items())))


def test_two_keys_that_become_one_are_refused():
    with pytest.raises(NotCanonicalError, match="two keys are one"):
        canonical_json({"e\u0301": 1, "\u00e9": 2})
