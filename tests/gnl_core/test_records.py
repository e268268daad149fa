"""Records: written small, read with nothing taken on trust."""

import dataclasses
import json
from types import MappingProxyType

import pytest

from gnl_core.errors import JournalFormatError, StoreCorruptError
from gnl_core.journal.port import Entry
from gnl_core.model.messages import ModelResponse, TextPart, ToolCallPart, Usage
from gnl_core.records import FORMAT, CallRecord, StepRecord, read_call, read_step, stamped

KEY = ("run", "r", "~", "tool", "000000", "000")
BARE = CallRecord(status="running", tool="act", call="s0p0", args={"a": 1}, digest="d", side_effect=True)
FULL = CallRecord(
    status="succeeded",
    tool="act",
    call="s0p0",
    args={"a": [1, None]},
    digest="0123456789abcdef",
    side_effect=True,
    attempts=2,
    started_at=5,
    owner={"id": "x"},
    fence=7,
    ttl_ms=30_000,
    output={"x": 1},
    in_blob=True,
    unrepresentable="$: socket",
    error={"type": "E", "message": "m"},
    certain=True,
    cause="timeout",
    ended=True,
    question={"kind": "confirm"},
    text="no",
    resolved=("s1p0", "s2p0"),
    mirror_of="xrun/args/act/d",
    copied_from="r0",
    settled_by="person",
    run="r",
    resource="ann",
)
STEP = StepRecord(
    response=ModelResponse(
        (TextPart("hi"), ToolCallPart("s0p0", "act", {"a": 1}, "", "call_0")),
        Usage(3, 4),
        "tool_calls",
        "m",
        "p",
        {"x": 1},
    ),
    keep=1,
    add=({"step": 0}, {"call": "s0p0", "render": 1}),
    chain="c" * 64,
    system="s",
    tools="t",
    settings="",
    entry="stream",
    model="p/m",
)


def entry(value):
    return Entry(KEY, value, None, 1, 1, 1, 1)


def test_the_number_of_the_format():
    assert FORMAT == 1


def test_the_form_of_records_is_pinned():
    """What stands in journals; a member that is renamed here is a member that older journals have not."""
    assert BARE.to_json() == {
        "f": 1,
        "status": "running",
        "tool": "act",
        "call": "s0p0",
        "args": {"a": 1},
        "digest": "d",
        "side_effect": True,
    }
    assert FULL.to_json() | {"f": 1} == {
        **{field.name: getattr(FULL, field.name) for field in dataclasses.fields(FULL)},
        "resolved": ["s1p0", "s2p0"],
        "f": 1,
    }
    assert STEP.to_json() == {
        "f": 1,
        "response": {
            "parts": [
                {"type": "text", "text": "hi"},
                {"type": "tool_call", "id": "s0p0", "name": "act", "args": {"a": 1}, "provider_id": "call_0"},
            ],
            "usage": [3, 4],
            "stop_reason": "tool_calls",
            "model": "m",
            "provider": "p",
            "provider_data": {"x": 1},
        },
        "keep": 1,
        "add": [{"step": 0}, {"call": "s0p0", "render": 1}],
        "chain": "c" * 64,
        "system": "s",
        "tools": "t",
        "settings": "",
        "entry": "stream",
        "model": "p/m",
    }


@pytest.mark.parametrize("made", [BARE, FULL])
def test_calls_come_back(made):
    assert read_call(entry(json.loads(json.dumps(made.to_json())))) == made


def test_steps_come_back():
    assert read_step(entry(json.loads(json.dumps(STEP.to_json())))) == STEP


def test_arguments_may_be_any_mapping():
    assert dict(dataclasses.replace(BARE, args=MappingProxyType({"a": 1})).to_json()["args"]) == {"a": 1}


@pytest.mark.parametrize("read", [read_call, read_step, stamped])
@pytest.mark.parametrize(
    "value", [None, 5, "x", [], {}, {"f": None}, {"f": "1"}, {"f": True}, {"f": 0}, {"f": -1}, {"f": 1.0}]
)
def test_what_is_no_record_is_refused_by_its_key(read, value):
    with pytest.raises(StoreCorruptError) as corrupt:
        read(entry(value))
    assert "run/r/~/tool/000000/000" in str(corrupt.value)
    assert "gnl doctor" in str(corrupt.value)
    assert corrupt.value.detail["key"] == "run/r/~/tool/000000/000"


@pytest.mark.parametrize(("read", "made"), [(read_call, FULL), (read_step, STEP)])
def test_a_newer_format_is_refused_and_not_guessed_at(read, made):
    for number in (FORMAT + 1, 99):
        with pytest.raises(
            JournalFormatError, match=f"has format {number}, this release reads up to {FORMAT}"
        ) as newer:
            read(entry(made.to_json() | {"f": number}))
        assert newer.value.detail == {"key": "run/r/~/tool/000000/000", "format": number}


WRONG = {
    "status": [None, 5, "done", ""],
    "tool": [None, 5],
    "call": [None, 5],
    "args": [None, 5, "x", [], [["a", 1]]],
    "digest": [None, 5],
    "side_effect": [None, 1, "yes"],
    "attempts": [None, "1", 1.5, [], -1, 10_000, 10**25],
    "started_at": [None, "now", 1.5],
    "owner": [5, "x", []],
    "fence": [None, "x"],
    "ttl_ms": [None, "x"],
    "in_blob": [None, 1, "x"],
    "unrepresentable": [None, 5],
    "error": [5, "x", []],
    "certain": [None, 1],
    "cause": [None, 5],
    "ended": [None, 1],
    "question": [5, "x", []],
    "text": [None, 5],
    "resolved": [None, 5, "x", [5], {}],
    "mirror_of": [None, 5],
    "copied_from": [None, 5],
    "settled_by": [None, 5],
    "run": [None, 5],
    "resource": [None, 5],
}


@pytest.mark.parametrize(("member", "value"), [(member, value) for member, values in WRONG.items() for value in values])
def test_members_of_a_call_of_another_type_are_refused(member, value):
    with pytest.raises(StoreCorruptError):
        read_call(entry(FULL.to_json() | {member: value}))


@pytest.mark.parametrize("member", ["status", "tool", "call", "args", "digest", "side_effect"])
def test_members_of_a_call_that_are_missing_are_refused(member):
    value = FULL.to_json()
    del value[member]
    with pytest.raises(StoreCorruptError):
        read_call(entry(value))


def test_members_that_a_later_minor_release_adds_are_let_be():
    assert read_call(entry(FULL.to_json() | {"later": 1})) == FULL
    assert read_step(entry(STEP.to_json() | {"later": 1})) == STEP


WRONG_STEP = {
    "response": [None, 5, {}, {"parts": []}],
    "keep": [None, "1", -1, 1.5],
    "add": [None, 5, {}, "x", [5], [["step", 0]]],
    "chain": [None, 5],
    "system": [None, 5],
    "tools": [None, []],
    "settings": [None, {}],
    "entry": [None, "batch", ""],
    "model": [None, 5],
}


@pytest.mark.parametrize(
    ("member", "value"), [(member, value) for member, values in WRONG_STEP.items() for value in values]
)
def test_members_of_a_step_of_another_type_are_refused(member, value):
    with pytest.raises(StoreCorruptError):
        read_step(entry(STEP.to_json() | {member: value}))


@pytest.mark.parametrize("member", list(WRONG_STEP))
def test_members_of_a_step_that_are_missing_are_refused(member):
    value = STEP.to_json()
    del value[member]
    with pytest.raises(StoreCorruptError):
        read_step(entry(value))


@pytest.mark.parametrize(
    ("members", "terminal"),
    [
        ({"status": "running"}, False),
        ({"status": "succeeded"}, True),
        ({"status": "failed"}, False),
        ({"status": "failed", "certain": True}, True),
        ({"status": "in_doubt"}, False),
        ({"status": "in_doubt", "certain": True}, False),
        ({"status": "suspended"}, False),
        ({"status": "denied"}, True),
        ({"status": "reflected"}, True),
        ({"status": "released"}, False),
    ],
)
def test_what_is_replayed_for_ever(members, terminal):
    assert dataclasses.replace(BARE, **members).terminal is terminal
