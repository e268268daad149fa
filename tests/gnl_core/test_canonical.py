"""One text a value, on every machine and in every release."""

import dataclasses
import enum
import hashlib
import json
import math
import os
import subprocess
import sys
import unicodedata
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from pathlib import PurePosixPath
from uuid import UUID
from zoneinfo import ZoneInfo

import pydantic
import pytest
from hypothesis import example, given, reject
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
        ({"a": [1, len]}, ["$.a[1]", "builtin_function_or_method"]),
        ({"a": "\ud800"}, ["$.a", "surrogate"]),
        ({"\udfff": 1}, ["surrogate"]),
        ({"a": {"\ud800"}}, ["$.a", "surrogate"]),
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


def test_an_int_of_any_size_has_a_hash_and_a_neighbour_has_another():
    largest = 10**4300 - 1  # the most that Python writes in decimal by default
    assert canonical_json(largest) == "9" * 4300
    assert canonical_json(10**5000) == '{"\\u0000gnl:Int":"' + hex(10**5000) + '"}'
    assert len({args_hash({"n": n}) for n in (10**5000, -(10**5000), 10**5000 + 1, hex(10**5000))}) == 4


def test_an_int_of_more_digits_than_python_is_set_to_write_is_refused():
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(640)
    try:
        with pytest.raises(NotCanonicalError, match="too long"):
            canonical_json({"n": 10**700})
    finally:
        sys.set_int_max_str_digits(before)


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


# Types that JSON has not -------------------------------------------------------------------------------------------


class Color(enum.Enum):
    RED = "red"


class Size(enum.IntEnum):
    SMALL = 1


@dataclasses.dataclass
class Money:
    amount: Decimal
    currency: str


class MoneyModel(pydantic.BaseModel):
    amount: Decimal
    currency: str


class Ids(pydantic.RootModel[list[int]]):
    pass


BERLIN = ZoneInfo("Europe/Berlin")
NOON = datetime(2026, 1, 31, 12, 30)

# Digests of a release: they must never change either.
TYPED = [
    ({"v": Decimal("0.10")}, '{"v":{"\\u0000gnl:Decimal":"1E-1"}}', "a0ecd6065c6d87e5"),
    ({"v": Decimal("-12.5E+3")}, '{"v":{"\\u0000gnl:Decimal":"-125E2"}}', "87f4363291178c0a"),
    ({"v": Decimal("0.00")}, '{"v":{"\\u0000gnl:Decimal":"0"}}', "eee793aa0177726d"),
    ({"v": Decimal("sNaN")}, '{"v":{"\\u0000gnl:Decimal":"sNaN"}}', "d9c5602858c447d4"),
    ({"v": Fraction(2, -6)}, '{"v":{"\\u0000gnl:Fraction":[-1,3]}}', "21cdb79d86fffa35"),
    ({"v": NOON}, '{"v":{"\\u0000gnl:Datetime":"2026-01-31T12:30:00"}}', "4bfd20928c6b52a5"),
    ({"v": NOON.replace(tzinfo=UTC)}, '{"v":{"\\u0000gnl:Instant":63905459400000000}}', "c0c256afab610298"),
    ({"v": NOON.date()}, '{"v":{"\\u0000gnl:Date":"2026-01-31"}}', "eee2a621f2556120"),
    ({"v": NOON.time()}, '{"v":{"\\u0000gnl:Time":["12:30:00",""]}}', "3b2b84017e8c1b70"),
    ({"v": timedelta(days=-1, seconds=5)}, '{"v":{"\\u0000gnl:Timedelta":[-1,5,0]}}', "0af5611c14cb6ef9"),
    ({"v": UUID(int=1)}, '{"v":{"\\u0000gnl:Uuid":"00000000-0000-0000-0000-000000000001"}}', "3d1c28fb14190e2d"),
    ({"v": PurePosixPath("a/b")}, '{"v":{"\\u0000gnl:Path":"a/b"}}', "cbd602268bcf54bf"),
    ({"v": b"\xff\x00"}, '{"v":{"\\u0000gnl:Bytes":"/wA="}}', "928df6e36542feb7"),
    ({"v": {"b", "a", "\U0001d11e", "\ufb01"}}, '{"v":{"\\u0000gnl:Set":["a","b","𝄞","ﬁ"]}}', "b482b427d1f0eaa2"),
    (
        {"v": {1: "a", "1": "b", (2, "x"): None}},
        '{"v":{"\\u0000gnl:Dict":[["1","b"],[1,"a"],[[2,"x"],null]]}}',
        "d5038493961815be",
    ),
    ({"v": frozenset()}, '{"v":{"\\u0000gnl:Set":[]}}', "2a9c36031972c1e6"),
    ({"v": -math.inf}, '{"v":{"\\u0000gnl:Number":"-inf"}}', "ce6c8353a97024e4"),
    ({"v": {"a": {"\0x": {1.0}}}}, '{"v":{"a":{"\\u0000\\u0000x":{"\\u0000gnl:Set":[1]}}}}', "39265eb5776463bc"),
]


@pytest.mark.parametrize(("args", "text", "digest"), TYPED)
def test_golden_vectors_of_typed_values(args, text, digest):
    assert canonical_json(args) == text
    assert args_hash(args) == digest


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Decimal("0.10"), Decimal("0.1")),
        (Decimal("1E+2"), Decimal(100)),
        (Decimal("-0"), Decimal("0.00")),
        (NOON.replace(tzinfo=UTC), NOON.replace(hour=13, tzinfo=BERLIN)),
        (NOON.replace(tzinfo=UTC), NOON.replace(hour=15, minute=0, tzinfo=timezone(timedelta(hours=2, minutes=30)))),
        (datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=1), datetime(2026, 10, 25, 1, 30, tzinfo=UTC)),
        ({"b", "a"}, frozenset(("a", "b"))),
        ({1: "x", (1, 2): "y"}, {(1, 2): "y", 1.0: "x"}),
        (b"a", bytearray(b"a")),
        (Color.RED, "red"),
        (Size.SMALL, 1),
        (Money(Decimal(1), "EUR"), {"currency": "EUR", "amount": Decimal("1.0")}),
        (MoneyModel(amount=Decimal(1), currency="EUR"), Money(Decimal(1), "EUR")),
        (Ids([1, 2]), [1, 2]),
        (PurePosixPath("Zoe\u0308"), PurePosixPath("Zo\u00eb")),
    ],
)
def test_two_writings_of_one_typed_value_hash_alike(one, other):
    assert args_hash({"v": one}) == args_hash({"v": other})


def test_typed_values_hash_apart_from_each_other_and_from_what_they_look_like():
    values = [
        Decimal("0.1"), 0.1, "0.1", Decimal(1), 1, True, "1", Fraction(1), Fraction(1, 3), Decimal("NaN"), math.nan,
        "NaN",
        Decimal("Infinity"), Decimal("-Infinity"), Decimal("1E+999999999"), Decimal("1E-999999"),
        NOON, NOON.replace(tzinfo=UTC), NOON.replace(tzinfo=BERLIN), NOON.isoformat(), NOON.date(), NOON.time(),
        NOON.time().replace(tzinfo=UTC), NOON.time().replace(tzinfo=BERLIN), timedelta(1), timedelta(seconds=1),
        date.min,
        time.min, {1}, [1], {"1"}, {1, 2}, {(1, 2)}, {1: 0}, {"1": 0}, {True: 0}, {None: 0}, {"": 0}, [[1, 0]],
        b"a", "a", "YQ==", UUID(int=1), str(UUID(int=1)), PurePosixPath("a"), {"\0gnl:Decimal": "1E-1"},
        None, {}, [], set(),
    ]  # fmt: skip
    hashes = {args_hash({"v": value}) for value in values}
    assert len(hashes) == len(values)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (Money(len, "EUR"), ["$.v.amount", "builtin_function_or_method"]),
        ({1: object()}, ["$.v[", "object"]),
        (iter(()), ["$.v", "tuple_iterator"]),
        ({"of": Size}, ["$.v.of", "Enum"]),
    ],
)
def test_s21_an_object_without_a_value_of_its_own_is_refused_by_path_and_type(value, words):
    with pytest.raises(NotCanonicalError) as error:
        args_hash({"v": value})
    assert all(word in str(error.value) for word in words)
    assert "0x" not in str(error.value)


def test_the_first_and_the_last_instant_there_is_have_a_hash():
    first = datetime.min.replace(tzinfo=timezone(timedelta(hours=14)))
    last = datetime.max.replace(tzinfo=timezone(timedelta(hours=-14)))
    assert canonical_json(first) == '{"\\u0000gnl:Instant":-50400000000}'
    assert canonical_json(last) == '{"\\u0000gnl:Instant":315537947999999999}'


def test_a_record_that_contains_itself_is_refused():
    money = Money(Decimal(1), "EUR")
    money.amount = [money]
    with pytest.raises(NotCanonicalError, match="contains itself"):
        canonical_json(money)


def test_two_keys_that_become_one_value_are_refused():
    with pytest.raises(NotCanonicalError, match="two keys are one"):
        canonical_json({Color.RED: 1, "red": 2})
    with pytest.raises(NotCanonicalError, match="two keys are one"):
        canonical_json({(1, Color.RED): 1, (1, "red"): 2})


@given(st.dictionaries(st.text(), plain, max_size=6), st.randoms())
def test_s18_the_order_of_keys_never_matters_at_any_depth(args, random):
    def shuffled(value):
        if isinstance(value, list):
            return [shuffled(item) for item in value]
        if isinstance(value, dict):
            keys = list(value)
            random.shuffle(keys)
            return {key: shuffled(value[key]) for key in keys}
        return value

    try:
        expected = args_hash(args)
    except NotCanonicalError as error:
        if "two keys are one in NFC" in str(error):
            reject()
        raise
    assert args_hash(shuffled(args)) == expected


@given(st.text(), st.text())
def test_s20_nfc_and_nfd_of_one_text_hash_alike(key, text):
    one = {unicodedata.normalize("NFC", key): unicodedata.normalize("NFC", text)}
    other = {unicodedata.normalize("NFD", key): unicodedata.normalize("NFD", text)}
    assert args_hash(one) == args_hash(other)


@given(st.lists(st.integers() | st.text() | st.decimals(allow_nan=False), unique=True, max_size=6), st.randoms())
def test_the_order_of_a_sets_members_never_matters(members, random):
    mixed = list(members)
    random.shuffle(mixed)
    assert args_hash({"v": frozenset(members)}) == args_hash({"v": set(mixed)})


def told_apart(value):
    """The value as the rules see it: an independent second writing of them."""
    match value:
        case bool() | None:
            return ("is", value)
        case int() | float():
            return ("number", "nan" if value != value else value)
        case str():
            return ("text", unicodedata.normalize("NFC", value))
        case list():
            return ("list", tuple(map(told_apart, value)))
        case _:
            return ("dict", frozenset((told_apart(key), told_apart(item)) for key, item in value.items()))


@given(plain, plain)
def test_different_values_hash_apart_and_equal_ones_alike(one, other):
    try:
        same = args_hash({"v": one}) == args_hash({"v": other})
    except NotCanonicalError as error:
        if "two keys are one in NFC" in str(error):
            reject()
        raise
    assert same == (told_apart(one) == told_apart(other))


HASHES = """
from decimal import Decimal
from gnl_core.canonical import args_hash
members = {"ı", "z", "Å", b"x", Decimal("1.50"), ("ö", 1)}
print(args_hash({"İstanbul": "Danışmanlık", "ı": members, "i": [1.0], "Z": 1, "a": {1: "mixed", "1": "keys"}}))
"""


def test_s20_the_hash_depends_on_neither_locale_nor_hash_seed(tmp_path):
    program = tmp_path / "hashes.py"
    program.write_text(HASHES, encoding="utf-8")
    seen = set()
    for locale, seed in [("C", "0"), ("tr_TR.UTF-8", "1"), ("C.UTF-8", "random"), ("de_DE", "4242")]:
        environment = {**os.environ, "LANG": locale, "LC_ALL": locale, "PYTHONHASHSEED": seed, "PYTHONUTF8": "0"}
        command = [sys.executable, str(program)]
        seen.add(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip())
    assert len(seen) == 1
    assert len(seen.pop()) == 16


text_near_ascii = st.text(st.characters(max_codepoint=0x301), max_size=8) | st.text('\0a\x7f"\\/é\u0308', max_size=4)


@given(
    st.dictionaries(
        text_near_ascii | st.sampled_from([Color.RED, Size.SMALL, 1, None]),
        st.none() | st.booleans() | st.integers() | st.floats() | text_near_ascii | st.sampled_from([Color.RED, []]),
        max_size=5,
    )
)
@example({"b": 1, "a": True, "c": None, "": "x"})
@example({"\0gnl:Int": "1"})
@example({"a": "\0"})
@example({"n": 10**4_000})
@example({"n": 10**4_299, "m": -(10**4_299)})
@example({"n": 1.0, "m": -0.0})
@example({"é": 1, "e\u0301": 2})
@example({"lone": "\ud800"})
def test_the_short_way_to_a_hash_and_the_long_one_agree(args):
    assert hash_or_refusal(args_hash, args) == hash_or_refusal(the_long_way, args)


def the_long_way(args):
    return hashlib.sha256(canonical_json(args).encode()).hexdigest()[:16]


def hash_or_refusal(function, args):
    try:
        return function(args)
    except NotCanonicalError as error:
        return str(error)


def test_the_short_way_to_a_hash_agrees_where_ints_of_any_length_may_be_written():
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        for number in (10**3_990, 10**4_299, 10**4_300, -(10**5_000)):
            assert args_hash({"n": number}) == the_long_way({"n": number})
    finally:
        sys.set_int_max_str_digits(before)
