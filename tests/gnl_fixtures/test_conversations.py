"""Scripted conversations: the shipped ones, and what the loader says of faulty files."""

import json

import pytest

from gnl_fixtures import FixtureError, load_shipped
from gnl_fixtures.conversations import (
    STYLES,
    TOOLS,
    Label,
    load_conversation_files,
    load_conversations,
    parse_conversations,
)


def turn(label="new", **members):
    call = {"tool": "create_customer", "args": {"name": "Willow Books", "city": "Oxford"}}
    return {"says": "Add Willow Books.", "label": label, "careful": [call], **members}


def talk(*turns, **members):
    return {"id": "c-1", "lang": "en", "note": "a note", "turns": list(turns or [turn()]), **members}


def file_of(*talks, **members):
    return json.dumps({"v": 1, "name": "mine", "origin": "by hand", "conversations": list(talks), **members}).encode()


def refused(data):
    with pytest.raises(FixtureError) as caught:
        parse_conversations(data, "mine.json")
    return str(caught.value)


# What is shipped ---------------------------------------------------------------------------------------------------


def test_the_shipped_conversations_are_as_many_and_as_mixed_as_the_suite_says():
    shipped = load_conversations()
    turns = [turn for conversation in shipped for turn in conversation.turns]
    assert (len(shipped), len(turns)) == (50, 160)
    assert {conversation.lang for conversation in shipped} == {"tr", "en", "mixed"}
    assert {turn.label.intent for turn in turns} == {"new", "near-new", "repeat", "none"}
    calls = [call for turn in turns for style in STYLES for call in turn.calls(style)]
    assert {call.tool for call in calls} == set(TOOLS)
    assert {turn.channel for turn in turns} == {"chat", "mail", "batch", "phone"}


def test_the_shipped_conversations_hold_what_models_do_wrong():
    """Twins in one step, an earlier call made again for other work, two scripts, a turn that only talks."""
    shipped = load_conversations()
    turns = [(conversation, turn) for conversation in shipped for turn in conversation.turns]
    assert [turn for _, turn in turns if len(turn.careless) == 2 and turn.careless[1].label.of == turn.number]
    again = [
        turn
        for conversation, turn in turns
        if turn.label.intent == "near-new"
        and turn.careless
        and turn.careless[0].args in [call.args for call in conversation.turns[turn.label.of - 1].careless]
    ]
    assert len(again) >= 4
    assert [turn for _, turn in turns if any("а" <= letter <= "я" for letter in turn.says)]
    assert [turn for _, turn in turns if turn.label.repeat and not turn.careful]


def test_no_text_of_the_labelled_pairs_stands_in_them():
    """The pairs are what rungs were tuned on; this suite must not be a copy of them."""
    pairs = {text for pair in load_shipped("calibration").pairs for text in (pair.a, pair.b) if len(text) > 12}
    texts = {
        str(value)
        for conversation in load_conversations()
        for turn in conversation.turns
        for style in STYLES
        for call in turn.calls(style)
        for value in call.args.values()
    }
    assert texts & pairs == set()


# What is read ------------------------------------------------------------------------------------------------------


def test_calls_of_a_careless_model_default_to_those_of_a_careful_one():
    ((conversation),) = parse_conversations(file_of(talk(turn(), turn("repeat-of:1", careless=[]))), "mine.json")
    first, second = conversation.turns
    assert first.calls("careless") == first.calls("careful") != ()
    assert (second.number, second.calls("careless"), len(second.calls("careful"))) == (2, (), 1)
    assert (first.label, second.label) == (Label("new"), Label("repeat", 1))
    assert [str(one.label) for one in conversation.turns] == ["new", "repeat-of:1"]
    assert (first.channel, conversation.person) == ("chat", "")


def test_a_second_call_of_one_step_may_repeat_the_first():
    call = turn()["careful"][0]
    twins = turn(careful=[call, {**call, "label": "repeat-of:1"}])
    (conversation,) = parse_conversations(file_of(talk(twins)), "mine.json")
    assert [call.label.repeat for call in conversation.turns[0].careful] == [False, True]


def test_files_of_ones_own_are_read_as_one(tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.json").write_bytes(file_of(talk(id=name)))
    paths = [tmp_path / "a.json", tmp_path / "b.json"]
    assert [one.id for one in load_conversation_files(paths)] == ["a", "b"]
    with pytest.raises(FixtureError, match=r"b\.json: conversation 'b': field 'id': stands in .*b\.json too"):
        load_conversation_files([*paths, paths[1]])
    with pytest.raises(FixtureError, match=r"none\.json: cannot be read: No such file"):
        load_conversation_files([tmp_path / "none.json"])


# What is refused ---------------------------------------------------------------------------------------------------

WHERE = "mine.json: conversation 0 ('c-1'): turn 2: "


@pytest.mark.parametrize(
    ("second", "told"),
    [
        (turn("repeat"), "field 'label': is 'repeat', must be new, none, near-new:<turn> or repeat-of:<turn>"),
        (turn("repeat-of:2"), "field 'label': is 'repeat-of:2', must name an earlier turn"),
        (turn("near-new:3"), "field 'label': is 'near-new:3', must name an earlier turn"),
        (turn("none"), "field 'label': is none: only a turn without any call is 'none'"),
        (turn(careful=[]), "field 'label': is new: only a turn without any call is 'none'"),
        (turn(mood="cross"), "field 'mood': Extra inputs are not permitted"),
        (turn(says=""), "field 'says': String should have at least 1 character"),
        (turn(careful=[{"tool": "fly", "args": {}}]), "field 'careful.0.tool': Input should be 'create_order', "),
        (turn(careful=[{"tool": "open_ticket", "args": {"customer": ["a"]}}]), "field 'careful.0.args.customer.str'"),
        (turn(careful=[{"tool": "open_ticket"}]), "field 'careful.0.args': Field required"),
        (
            turn(careful=[{**turn()["careful"][0], "label": "repeat-of:2"}]),
            "field 'careful.0.label': is 'repeat-of:2', must name an earlier turn",
        ),
    ],
)
def test_a_fault_is_told_with_file_conversation_turn_and_field(second, told):
    assert refused(file_of(talk(turn(), second))).startswith(WHERE + told)


def test_a_repeat_points_to_the_turn_that_asked_first():
    told = refused(file_of(talk(turn(), turn("repeat-of:1"), turn("repeat-of:2"))))
    assert told.endswith("turn 3: field 'label': is 'repeat-of:2', and turn 2 asks for no work of its own")


def test_a_repeat_of_work_that_one_kind_of_model_never_did_is_refused():
    told = refused(file_of(talk(turn(careless=[]), turn("repeat-of:1"))))
    assert "turn 1 asks for no work of its own" in told


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"\xff", "mine.json: byte 0 is no UTF-8"),
        (b"{", "mine.json: line 1, column 2: "),
        (b"[]", "mine.json: Input should be a valid dictionary"),
        (b'{"v": 1, "v": 1}', "mine.json: an object has the field 'v' twice"),
        (b"[" * 100_000, "mine.json: the JSON is nested too deeply"),
        (file_of(talk(), v=2), "mine.json: field 'v': Input should be less than or equal to 1"),
        (file_of(), "mine.json: field 'conversations': List should have at least 1 item"),
        (file_of(talk(id="UPPER")), "mine.json: conversation 0 ('UPPER'): field 'id': String should match pattern"),
        (file_of(talk(turns=[])), "mine.json: conversation 0 ('c-1'): field 'turns': List should have at least 1"),
        (file_of(7), "mine.json: conversation 0: Input should be a valid dictionary"),
        (file_of(talk(), talk()), "mine.json: conversation 'c-1': field 'id': stands in mine.json too"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused(data, told, tmp_path):
    if b"c-1" in data and data.count(b"c-1") == 2:
        (tmp_path / "mine.json").write_bytes(data)
        with pytest.raises(FixtureError) as caught:
            load_conversation_files([tmp_path / "mine.json"])
        assert str(caught.value).replace(f"{tmp_path}/", "").startswith(told)
    else:
        assert refused(data).startswith(told)


def test_a_number_that_is_none_is_refused():
    data = file_of(talk()).replace(b'"Oxford"', b"NaN")
    assert "field 'careful.0.args.city" in refused(data)
