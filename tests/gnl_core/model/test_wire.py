"""Call ids on the wire, arguments, and the pieces of an answer."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnl_core.errors import ModelResponseError
from gnl_core.model.messages import Message, TextPart, ToolCallPart, ToolResultPart
from gnl_core.model.providers._shared import Answer, CallKeys, clean, parse_args, wire_ids, wire_name
from gnl_core.model.providers.mistral import nine_characters


def called(*calls, provider="p"):
    """An assistant message with calls: pairs of our id and the provider's."""
    return Message("assistant", tuple(ToolCallPart(ours, "t", {}, "", theirs) for ours, theirs in calls), provider)


def results(*ids):
    return [Message("tool", (ToolResultPart(ours, "t", "ok", provider_id=theirs),)) for ours, theirs in ids]


def on_the_wire(messages, provider="p", **kw):
    ids = wire_ids(messages, provider, **kw)
    return [ids[key] for key in sorted(ids)]


def test_the_providers_own_id_goes_back_to_it():
    calls = [("s0p0", "call_abc"), ("s0p1", "call_def")]
    assert on_the_wire([called(*calls), *results(*calls)]) == ["call_abc", "call_def"] * 2


def test_s13_an_id_that_comes_again_every_turn_goes_back_as_it_came():
    messages = [called(("s0p0", "call_0")), *results(("s0p0", "call_0"))]
    messages += [called(("s1p0", "call_0")), *results(("s1p0", "call_0"))]
    assert on_the_wire(messages) == ["call_0"] * 4


def test_s13_an_id_given_twice_in_one_message_names_no_call():
    calls = [("s0p0", "call_0"), ("s0p1", "call_0"), ("s0p2", "call_1")]
    assert on_the_wire([called(*calls), *results(*calls)]) == ["s0p0", "s0p1", "call_1"] * 2


def test_s15_an_empty_id_is_replaced_by_ours():
    calls = [("s3p0", ""), ("s3p1", "")]
    assert on_the_wire([called(*calls), *results(*calls)]) == ["s3p0", "s3p1"] * 2


def test_s17_ids_of_another_provider_never_leave():
    calls = [("s0p0", "x" * 500), ("s0p1", "functions.name:0")]
    assert on_the_wire([called(*calls, provider="other"), *results(*calls)]) == ["s0p0", "s0p1"] * 2
    assert on_the_wire([called(*calls, provider=""), *results(*calls)]) == ["s0p0", "s0p1"] * 2


def test_our_ids_of_an_earlier_run_in_the_history_stay_apart():
    messages = [called(("s0p0", "")), *results(("s0p0", ""))] * 2
    assert on_the_wire(messages) == ["s0p0", "s0p0", "s0p0_2", "s0p0_2"]


def test_results_out_of_order_find_their_calls():
    calls = [("s0p0", ""), ("s0p1", "")]
    assert on_the_wire([called(*calls), *results(*reversed(calls))]) == ["s0p0", "s0p1", "s0p1", "s0p0"]


def test_a_callers_own_history_without_our_ids():
    assert on_the_wire([called(("", "a"), ("", "b")), *results(("", "b"), ("", "a"))]) == ["a", "b", "b", "a"]
    made = on_the_wire([called(("", ""), ("", "")), *results(("", ""), ("", ""))])
    assert made[:2] == made[2:]
    assert len(set(made)) == 2


def test_a_result_without_a_call_has_an_id_all_the_same():
    assert on_the_wire(results(("s9p9", ""))) == ["s9p9"]


@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from(["", "call_0", "call_1", "x" * 90]), st.booleans()), max_size=4), max_size=5
    )
)
def test_s17_each_call_has_one_id_and_its_result_the_same(steps):
    messages, pairs = [], []
    for step, calls in enumerate(steps):
        ids = [(f"s{step}p{position}", theirs) for position, (theirs, _) in enumerate(calls)]
        messages += [called(*ids, provider="p" if all(own for _, own in calls) else "q"), *results(*ids)]
        pairs.append(ids)
    wire = wire_ids(messages, "p")
    at = 0
    for ids in pairs:
        sent = [wire[at, position] for position in range(len(ids))]
        assert len(set(sent)) == len(sent)
        assert [wire[at + 1 + position, 0] for position in range(len(ids))] == sent
        if messages[at].provider == "q":
            assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", one) for one in sent)
        at += 1 + len(ids)


def test_nine_characters_of_ours_are_always_the_same():
    made = [nine_characters(f"s{step}p{position}") for step in range(100) for position in range(10)]
    assert all(re.fullmatch("[a-zA-Z0-9]{9}", one) for one in made)
    assert len(set(made)) == 1000
    assert nine_characters("s0p0") == made[0] == "XkBiKVgdQ"


@pytest.mark.parametrize(
    ("text", "args"),
    [
        ('{"a": 1}', {"a": 1}),
        ("", {}),
        (" \n", {}),
        ('{"n": 123456789012345678901234567890}', {"n": 123456789012345678901234567890}),
        ('{"a": 1, "a": 2}', {"a": 2}),
        ('{"x": 1e308}', {"x": 1e308}),
        ('{"s": "\\ud83d\\ude00"}', {"s": "😀"}),
    ],
)
def test_arguments_that_are_an_object(text, args):
    assert parse_args(text) == (args, "")


@pytest.mark.parametrize(
    "text",
    [
        "[1]",
        '"x"',
        "null",
        "3",
        '{"a": 1',
        '{"a": 1} x',
        "{'a': 1}",
        '{"x": NaN}',
        '{"x": Infinity}',
        '{"x": -Infinity}',
        '{"x": 1e400}',
        '{"x": [-1e999]}',
        '{"s": "\\ud800"}',
        "[" * 100_000,
        '{"n": ' + "1" * 5000 + "}",
    ],
)
def test_s19_arguments_that_are_no_json_object_are_kept_as_text(text):
    assert parse_args(text) == (None, text)


@given(st.dictionaries(st.text(), st.recursive(st.none() | st.integers() | st.text(), st.lists, max_leaves=5)))
def test_whatever_a_provider_writes_is_read_back(value):
    args, raw = parse_args(json.dumps(value))
    if args is None:
        assert "\\ud" in raw
    else:
        assert args == value


@given(st.text())
def test_what_is_cleaned_has_a_utf_8_form(text):
    assert clean(text).encode().decode() == clean(text)


def test_a_pair_of_surrogates_in_two_pieces_becomes_its_character():
    answer = Answer()
    for piece in ("\ud83d", "\ude00"):
        list(answer.text(piece))
    assert answer.parts == (TextPart("😀"),)


@pytest.mark.parametrize(("name", "sent"), [("pay", "pay"), ("", "unnamed"), ("a b\n", "a_b_"), ("é" * 90, "_" * 64)])
def test_a_name_that_a_model_made_up_can_go_back(name, sent):
    assert wire_name(name) == sent


def test_an_answer_that_was_not_ended_is_none():
    answer = Answer()
    list(answer.text("hello"))
    with pytest.raises(ModelResponseError, match="broke off"):
        answer.response("p", "m")


def keys_of(*pieces):
    keys = CallKeys()
    return [keys.key(*piece) for piece in pieces]


def test_calls_of_a_stream_are_told_apart():
    by_index = keys_of((0, "", "a", ""), (0, "x", "", '{"n"'), (1, "y", "b", ""), (0, "", "", ": 1}"))
    assert by_index == [(0, 0), (0, 0), (1, 0), (0, 0)]
    index_0_always = keys_of((0, "x", "a", "{}"), (0, "y", "b", "{}"))
    assert index_0_always == [(0, 0), (0, 1)]
    without_ids = keys_of((0, "", "pay", '{"amount": 10}'), (0, "", "pay", '{"amount": 20}'))
    assert without_ids == [(0, 0), (0, 1)]
    name_and_id_repeated = keys_of((0, "x", "a", '{"n"'), (0, "x", "a", ": 1}"), (0, "x", "a", ""))
    assert name_and_id_repeated == [(0, 0)] * 3
