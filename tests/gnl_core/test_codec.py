"""Values go into the journal and come out as they were, or are refused by path and type."""

import collections
import dataclasses
import enum
import json
import math
import os
import re
import subprocess
import sys
import types
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnl_core import NotCanonicalError, args_hash, canonical_json
from gnl_core.codec import decode, encode, plain
from gnl_core.tools import tool


class Color(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Order:
    sku: str
    qty: int


@dataclasses.dataclass(frozen=True)
class Key:
    id: int


class Line(pydantic.BaseModel):
    sku: str


class Point(NamedTuple):
    x: int
    y: int


def stored(value):
    """What comes out of a store that writes JSON text in ASCII."""
    return decode(json.loads(json.dumps(encode(value), allow_nan=False)))


def same(one, other):
    """Equality of values and of types at every depth, with NaN equal to itself and -0.0 not to 0.0."""
    if type(one) is not type(other):
        return False
    match one:
        case float():
            return (one != one and other != other) or (
                one == other and math.copysign(1, one) == math.copysign(1, other)
            )
        case Decimal():
            return str(one) == str(other)
        case list() | tuple():
            return len(one) == len(other) and all(map(same, one, other))
        case dict():
            return len(one) == len(other) and all(
                same(a, b) and same(one[a], other[b]) for a, b in zip(one, other, strict=True)
            )
        case datetime() | time():
            return (
                one.isoformat() == other.isoformat() and one.fold == other.fold and str(one.tzinfo) == str(other.tzinfo)
            )
        case _:
            return one == other


# The table of docs/values.md ---------------------------------------------------------------------------------------

PAGE = Path(__file__).resolve().parents[2] / "docs" / "values.md"
ROWS = [
    [cell.strip().strip("`").replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
    for line in PAGE.read_text(encoding="utf-8").splitlines()
    if line.startswith("| `")
]


def of(expression):
    return eval(expression, {**globals(), "math": math, "timezone": timezone})


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_s54_the_table_of_values_holds(row):
    expression, hint, written, hashed, handed_back, read = row
    value = of(expression)
    if hint == "none":
        assert written == "none"
    else:
        names = {**globals()}
        exec(f"def f(x: {hint}): ...", names)
        assert same(tool(names["f"]).validate({"x": json.loads(written)})["x"], value)
    if hashed == "refused":
        with pytest.raises(NotCanonicalError):
            canonical_json(value)
    else:
        assert canonical_json(value) == hashed
    assert same(stored(value), value if handed_back == "the same" else of(handed_back))
    assert json.dumps(plain(encode(value))) == read


def test_the_table_has_a_row_for_each_type():
    kinds = {type(of(row[0])) for row in ROWS}
    assert kinds >= {
        type(None), bool, int, float, str, bytes, bytearray, list, tuple, set, frozenset, dict, Decimal, Fraction,
        datetime, date, time, timedelta, UUID, PureWindowsPath, Color, Order, Line, Point,
    }  # fmt: skip


# Round trips -------------------------------------------------------------------------------------------------------

any_text = st.text(st.characters(exclude_categories=())) | st.sampled_from(
    ["\0", "\0gnl:Number", "\0\0gnl:Set", "gnl:Number", "\\u0000", "\ud800", "a\x00b"]
)
zones = st.none() | st.sampled_from(
    [UTC, timezone(timedelta(hours=-3, minutes=-30, seconds=5)), ZoneInfo("Europe/Berlin")]
)
moments = st.builds(
    lambda value, zone, fold: value.replace(tzinfo=zone, fold=fold), st.datetimes(), zones, st.sampled_from([0, 1])
)
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | any_text
    | st.binary(max_size=8)
    | st.decimals(allow_nan=False)
    | st.fractions()
    | moments
    | moments.map(lambda value: value.timetz())
    | st.dates()
    | st.timedeltas()
    | st.uuids()
)
hashable = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3).map(tuple) | st.frozensets(inner, max_size=3), max_leaves=6
)
nan = st.sampled_from([Decimal("NaN"), Decimal("-NaN123"), Decimal("sNaN"), math.nan])
values = st.recursive(
    scalars | hashable | nan,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(any_text, inner, max_size=4)
        | st.dictionaries(hashable.filter(lambda key: "nan" not in repr(key).lower()), inner, max_size=3)
        | st.sets(hashable.filter(lambda member: "nan" not in repr(member).lower()), max_size=3)
    ),
    max_leaves=12,
)
plain_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | any_text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(any_text, inner, max_size=4),
    max_leaves=12,
)


@given(values)
def test_every_value_of_the_table_comes_back_as_it_was(value):
    assert same(stored(value), value)
    assert encode(stored(value)) == encode(value)


@given(plain_json)
def test_plain_json_stands_as_it_is_but_for_keys_with_nul_and_the_negative_zero(value):
    encoded = encode(value)
    if "\\u0000" not in json.dumps(value) and "-0.0" not in json.dumps(value):
        assert encoded == value
    assert same(decode(encoded), value)


@given(values)
def test_what_a_model_reads_is_strict_json_in_utf8(value):
    json.dumps(plain(encode(value)), allow_nan=False, ensure_ascii=False).encode()


@given(st.dictionaries(any_text, plain_json, min_size=1, max_size=2))
def test_no_data_can_pose_as_a_tag(value):
    assert type(decode(encode(value))) is dict


def test_s52_nan_and_infinities_are_valid_json_in_the_journal():
    text = json.dumps(encode({"score": math.nan, "range": [-math.inf, math.inf]}), allow_nan=False)
    back = decode(json.loads(text))
    assert math.isnan(back["score"])
    assert back["range"] == [-math.inf, math.inf]
    assert plain(json.loads(text)) == {"score": "NaN", "range": ["-Infinity", "Infinity"]}


def test_s53_nul_and_the_text_that_spells_it_stay_different():
    one, other = json.dumps(encode("a\x00b")), json.dumps(encode("a\\u0000b"))
    assert one != other
    assert decode(json.loads(one)) == "a\x00b"
    assert decode(json.loads(other)) == "a\\u0000b"


def test_s51_bytes_and_lone_surrogates_come_back():
    assert stored(b"\xff\xfe") == b"\xff\xfe"
    assert stored({"\udfff": "a\ud800"}) == {"\udfff": "a\ud800"}
    assert plain(encode({"\udfff": ["a\ud800b", "\ud83d\ude00"]})) == {"\ufffd": ["a\ufffdb", "\U0001f600"]}


def test_s49_an_enum_declared_inside_a_model_becomes_its_value():
    class Ticket(pydantic.BaseModel):
        class State(enum.Enum):
            OPEN = "open"

        class Level(enum.IntEnum):
            HIGH = 3

        state: State
        level: Level
        history: list[State] = []

    ticket = Ticket(state="open", level=3, history=["open"])
    assert stored(ticket) == {"state": "open", "level": 3, "history": ["open"]}
    assert type(stored(ticket)["level"]) is int


def test_a_live_result_and_a_replayed_one_are_the_same():
    result = [Order("a", 2), Line(sku="b"), Point(1, 2), Color.RED, {Color.RED: {Key(1)}}]
    live = decode(encode(result))
    assert live == [{"sku": "a", "qty": 2}, {"sku": "b"}, (1, 2), "red", {"red": [{"id": 1}]}]
    assert stored(live) == live
    assert stored(result) == live


def test_ints_of_any_size_come_back_whatever_python_is_set_to_write():
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(640)
    try:
        for value in (2**53 + 1, 2**2048 - 1, 2**2048, -(2**2048), 10**5000, -(10**5000)):
            assert stored([value]) == [value]
        assert stored(Fraction(10**5000, 7)) == Fraction(10**5000, 7)
        assert plain(encode(2**2048)) == hex(2**2048)
    finally:
        sys.set_int_max_str_digits(before)


@pytest.mark.parametrize(
    "value",
    [
        datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1),
        datetime(2026, 3, 29, 2, 30, tzinfo=ZoneInfo("Europe/Berlin")),
        datetime(2026, 10, 25, 2, 30, fold=1),
        datetime.min.replace(tzinfo=timezone(timedelta(hours=14))),
        datetime.max.replace(tzinfo=UTC),
        time(2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1),
        time(2, 30, tzinfo=timezone(timedelta(hours=1))),
    ],
    ids=str,
)
def test_zone_and_fold_are_kept(value):
    back = stored({"at": value})["at"]
    assert same(back, value)
    assert back.utcoffset() == value.utcoffset()


def test_the_recorded_instant_stands_where_the_zone_is_unknown_or_has_other_rules_now():
    tag = "\0gnl:Datetime"
    unknown = decode({tag: ["2026-01-31T12:30:00+01:00", "Atlantis/Capital", 0]})
    changed = decode({tag: ["2026-01-31T12:30:00+05:00", "Europe/Berlin", 0]})
    outside = decode({tag: ["2026-01-31T12:30:00+01:00", "../../etc/passwd", 0]})
    assert unknown.isoformat() == outside.isoformat() == "2026-01-31T12:30:00+01:00"
    assert changed.isoformat() == "2026-01-31T12:30:00+05:00"
    with pytest.raises(NotCanonicalError, match="tzdata"):
        decode({"\0gnl:Time": ["12:30:00", "Atlantis/Capital", 0]})


@pytest.mark.parametrize(
    ("value", "back"),
    [
        (Path("a/b"), Path("a/b")),
        (PurePosixPath("/a"), PurePosixPath("/a")),
        (PureWindowsPath("c:\\a"), PureWindowsPath("c:\\a")),
        (collections.OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
        (types.MappingProxyType({"a": 1}), {"a": 1}),
        (collections.Counter("aab"), {"a": 2, "b": 1}),
        (type("Text", (str,), {})("x"), "x"),
        (type("Number", (float,), {})(0.5), 0.5),
        ([type("Whole", (int,), {})(7), True], [7, True]),
        ({1: "int", "1": "str", None: 0, (1, (2,)): [1]}, {1: "int", "1": "str", None: 0, (1, (2,)): [1]}),
        ({"\0gnl:Number": "nan"}, {"\0gnl:Number": "nan"}),
        ({"\0gnl:Number": "nan", "b": {1}}, {"\0gnl:Number": "nan", "b": {1}}),
        ({"\0": 0, "\0\0": 1, "\0\0\0": 2}, {"\0": 0, "\0\0": 1, "\0\0\0": 2}),
        ({Color.RED: 1}, {"red": 1}),
        ({frozenset({"a"}), ()}, {frozenset({"a"}), ()}),
    ],
)
def test_what_else_a_tool_may_return(value, back):
    assert same(stored(value), back)


def test_a_pydantic_model_keeps_what_a_subclass_adds_and_leaves_out_what_it_excludes():
    class Animal(pydantic.BaseModel):
        name: str

    class Dog(Animal):
        tricks: set[str]
        password: str = pydantic.Field(default="secret", exclude=True)

    class Home(pydantic.BaseModel):
        pet: Animal
        since: datetime

    class Ids(pydantic.RootModel[list[int]]):
        pass

    home = Home(pet=Dog(name="Rex", tricks={"sit"}), since=datetime(2026, 1, 31, tzinfo=UTC))
    assert stored([home, Ids([1])]) == [
        {"pet": {"name": "Rex", "tricks": {"sit"}}, "since": datetime(2026, 1, 31, tzinfo=UTC)},
        [1],
    ]


def test_the_encoded_form_is_a_copy_of_its_own():
    value = {"a": [1]}
    encoded = encode(value)
    value["a"].append(2)
    assert encoded == {"a": [1]}
    back = decode(encoded)
    back["a"].append(3)
    assert encoded == {"a": [1]}


# What a model reads ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ({1: "a", "1": "b"}, [[1, "a"], ["1", "b"]]),
        ({None: 0, True: 1, 2.5: 2}, {"null": 0, "true": 1, "2.5": 2}),
        ({Decimal("1.50"): 1}, {"1.50": 1}),
        (({b"a"}, {"k": (1,)}), [["YQ=="], {"k": [1]}]),
        ({"\0gnl:Set": [1]}, {"\0gnl:Set": [1]}),
        (dict.fromkeys("\ud800\udfff", 1), [["\ufffd", 1], ["\ufffd", 1]]),
        (timedelta(0), "P0D"),
        (timedelta(days=1), "P1D"),
        (timedelta(hours=2, minutes=3, seconds=4.5), "PT2H3M4.5S"),
        (-timedelta(days=1, microseconds=1), "-P1DT0.000001S"),
        (Decimal("1E+5"), "1E+5"),
        (-0.0, -0.0),
    ],
    ids=repr,
)
def test_what_a_model_reads(value, read):
    assert same(plain(encode(value)), read)


def test_an_iso_duration_reads_back_as_the_duration():
    adapter = pydantic.TypeAdapter(timedelta)
    for value in (timedelta(0), timedelta(days=1), timedelta(hours=2, seconds=4.5), -timedelta(days=3, seconds=1)):
        assert adapter.validate_python(plain(encode(value))) == value


# The form does not depend on the process ---------------------------------------------------------------------------


def test_a_sets_form_does_not_depend_on_the_hash_seed():
    program = (
        "import json; from gnl_core.codec import encode\n"
        "print(json.dumps(encode([{'e\\u0301', '\\xe9', 'b', 'a', (1, 'x')}, {frozenset({'p', 'q'}), 'r'}])))"
    )
    seen = set()
    for seed in "0", "1", "2", "3":
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", program]
        seen.add(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)
    assert len(seen) == 1


def test_s19_arguments_hash_as_written_and_typed_values_by_value():
    assert args_hash({"amount": "0.10"}) != args_hash({"amount": "0.1"})
    assert args_hash({"amount": Decimal("0.10")}) == args_hash({"amount": Decimal("0.1")})
    assert args_hash({"amount": 100}) == args_hash({"amount": 100.0}) != args_hash({"amount": "100"})
