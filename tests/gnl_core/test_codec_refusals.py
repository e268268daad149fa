"""What the codec refuses: by path and type, before anything is lost, and whatever stands in a store."""

import collections
import dataclasses
import enum
import json
import socket
from datetime import datetime

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnl_core import NotCanonicalError
from gnl_core.codec import MAX_DEPTH, decode, encode, plain


class Color(enum.Enum):
    RED = "red"


@dataclasses.dataclass(frozen=True)
class Key:
    id: int


def stored(value):
    return decode(json.loads(json.dumps(encode(value), allow_nan=False)))


class Broken:
    def __init__(self):
        self.items = {}


@dataclasses.dataclass
class Lazy:
    name: str = dataclasses.field(init=False)


def endless():
    value = []
    value.append({"again": value})
    return value


def test_s55_a_socket_is_refused_by_path_and_type():
    with socket.socket() as sock, pytest.raises(NotCanonicalError) as error:
        encode({"results": [{"ok": True}, {"connection": sock}]})
    assert "$.results[1].connection" in str(error.value)
    assert "socket.socket" in str(error.value)
    assert error.value.detail == {"path": "$.results[1].connection", "type": "socket.socket"}


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (lambda: 0, ["$", "function"]),
        ((n for n in "a"), ["generator"]),
        ([object()], ["$[0]", "object"]),
        ({"a": Broken()}, ["$.a", "Broken"]),
        ({1: memoryview(b"a")}, ["$[1]", "memoryview", ".tolist()"]),
        (1 + 2j, ["complex"]),
        (Key, ["type"]),
        ({"a b": {"c": ValueError("x")}}, ["$['a b'].c", "ValueError"]),
        (pydantic.SecretStr("hunter2"), ["SecretStr"]),
        ({Key(1): 2}, ["a key becomes"]),
        ({Color.RED: 1, "red": 2}, ["two keys become one"]),
        ({1: {2, (lambda: 0)}}, ["$[1]{}", "function"]),
        (endless(), ["$[0].again", "contains itself"]),
        (Lazy(), ["Lazy", "AttributeError"]),
    ],
)
def test_what_cannot_be_stored_is_refused_by_path_and_type(value, words):
    with pytest.raises(NotCanonicalError) as error:
        encode(value)
    assert all(word in str(error.value) for word in words)
    assert "0x" not in str(error.value)
    assert "hunter2" not in str(error.value)


def test_a_property_that_fails_is_a_typed_refusal():
    class Hostile(collections.UserDict):
        def items(self):
            raise RuntimeError("gone")

    with pytest.raises(NotCanonicalError, match="RuntimeError"):
        encode([Hostile()])


def test_a_moment_finer_than_microseconds_is_refused_and_not_rounded():
    class Fine(datetime):
        def isoformat(self, *args):
            return super().isoformat(*args) + ".123456789"

    with pytest.raises(NotCanonicalError, match="finer than microseconds"):
        encode({"at": Fine(2026, 1, 1)})


def test_depth_is_bounded_by_the_encoded_form():
    def nested(levels, wrap):
        value = 0
        for _ in range(levels):
            value = wrap(value)
        return value

    for wrap, levels in [(lambda v: [v], MAX_DEPTH), (lambda v: {"a": v}, MAX_DEPTH), (lambda v: (v,), MAX_DEPTH // 2)]:
        assert stored(nested(levels, wrap)) == nested(levels, wrap)
        with pytest.raises(NotCanonicalError, match="nested"):
            encode(nested(levels + 1, wrap))
    with pytest.raises(NotCanonicalError, match="nested"):
        encode(nested(100_000, lambda value: [value]))
    with pytest.raises(NotCanonicalError, match="nested"):
        decode(nested(100_000, lambda value: [value]))
    with pytest.raises(NotCanonicalError, match="nested"):
        plain(nested(100_000, lambda value: [value]))


def test_shared_values_are_no_cycle():
    shared = [{1}]
    assert stored((shared, shared)) == ([{1}], [{1}])


@pytest.mark.parametrize(
    "data",
    [
        {"\0gnl:Unknown": 1},
        {"\0other": 1},
        {"\0": 1},
        {"\0gnl:Set": [1], "b": 2},
        {"\0gnl:Set": "ab"},
        {"\0gnl:Set": [[1]]},
        {"\0gnl:Number": "7"},
        {"\0gnl:Number": ["nan"]},
        {"\0gnl:Int": 7},
        {"\0gnl:Int": "12z"},
        {"\0gnl:Decimal": "1,5"},
        {"\0gnl:Decimal": 1.5},
        {"\0gnl:Fraction": [1, 0]},
        {"\0gnl:Fraction": [1]},
        {"\0gnl:Bytes": "***"},
        {"\0gnl:Bytes": "YQ=\n="},
        {"\0gnl:Datetime": "yesterday"},
        {"\0gnl:Datetime": ["2026-01-31"]},
        {"\0gnl:Date": None},
        {"\0gnl:Timedelta": "P1D"},
        {"\0gnl:Timedelta": [10**12]},
        {"\0gnl:Uuid": "x"},
        {"\0gnl:Path": ["dos", "a"]},
        {"\0gnl:PurePath": ["posix", 1]},
        {"\0gnl:Dict": [[1]]},
        {"\0gnl:Dict": [[[1], 2]]},
        {"\0gnl:Dict": {"a": 1}},
    ],
    ids=str,
)
def test_a_tag_that_encode_did_not_write_is_a_typed_error(data):
    for nested in (data, [data], {"a": data}, {"\0gnl:Tuple": [data]}):
        with pytest.raises(NotCanonicalError, match="stored value"):
            decode(nested)
    with pytest.raises(NotCanonicalError):
        decode(json.loads(json.dumps(data)))


plain_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["\0gnl:Set", "\0gnl:Dict", "\0gnl:Datetime", "\0gnl:Int", "a"]), plain_json))
def test_reading_hostile_data_raises_nothing_but_the_typed_error(data):
    for read in (decode, plain):
        try:
            read([data])
        except NotCanonicalError:
            continue
