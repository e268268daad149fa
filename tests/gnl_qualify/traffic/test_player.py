"""One conversation, played through the engine."""

import pytest

from gnl_core.errors import ModelUnavailableError
from gnl_core.testing import ScriptedModel
from gnl_fixtures import FixtureError
from gnl_qualify.traffic import player
from gnl_qualify.traffic.player import play
from gnl_qualify.traffic.settings import limits_of
from gnl_qualify.traffic.suite import play_suite, scripted
from gnl_qualify.traffic.tools import check_arguments


@pytest.fixture
def play_one(write):
    async def play_one(*turns, setting="exact", style="careful", **members):
        (conversation,) = write.talks(*turns, **members)
        model_of, label_of = scripted(style)
        return await play(conversation, model_of=model_of, label_of=label_of, limits=limits_of(setting))

    return play_one


async def test_a_repeat_is_asked_about_answered_yes_and_done_again(play_one, write):
    turn = write.call("Willow Books")
    played = await play_one(write.said("new", turn), write.said("repeat-of:1", turn), write.said("repeat-of:1", turn))
    first, second, third = (turn.calls[0] for turn in played.turns)
    assert [len(one.asked) for one in (first, second, third)] == [0, 1, 1]
    asked = second.asked[0]
    assert (asked.kind, asked.origin, asked.first) == ("duplicate", "exact", "c-0-t1/s0p0")
    assert [one.executed for one in (first, second, third)] == [1, 1, 1]
    assert played.executions == 3
    assert played.whole


async def test_arguments_hash_and_identity_of_every_call_are_kept(play_one, write):
    played = await play_one(write.said("new", write.call("WILLOW Books")))
    (call,) = played.turns[0].calls
    assert call.args == {"name": "WILLOW Books", "city": "Oxford"}
    assert call.identity == {"name": "willow books", "city": "oxford", "tax_no": ""}
    assert len(call.args_hash) == 16
    assert call.to_json()["label"] == "new"


async def test_the_answer_says_which_relation_the_label_gives(play_one, write, monkeypatch):
    """A repeat on purpose, or other work: the label that a person's yes would carry."""
    told, decide = [], player.decide

    async def spy(journal, question, approved, *, actor=None, relation=None):
        told.append((question, approved, relation))
        return await decide(journal, question, approved, actor=actor, relation=relation)

    monkeypatch.setattr(player, "decide", spy)
    turn = write.call("Willow Books")
    await play_one(write.said("new", turn), write.said("repeat-of:1", turn), write.said("new", turn))
    assert told == [
        ("c-0-t2/s0p0/duplicate/0", True, "deliberate_repeat"),
        ("c-0-t3/s0p0/duplicate/0", True, "different_work"),
    ]


async def test_twins_of_one_step_are_one_job_and_a_question(play_one, write):
    twin = write.call("Willow Books", label="repeat-of:1")
    played = await play_one(write.said("new", write.call("Willow Books"), twin))
    first, second = played.turns[0].calls
    assert (first.call, second.call) == ("s0p0", "s0p1")
    assert [one.origin for one in second.asked] == ["exact"]
    assert (first.asked, played.executions) == ((), 2)


async def test_another_channel_is_another_thread_of_the_same_person(play_one, write):
    """Equal arguments in another thread are no exact repeat: only the person's identity is the same."""
    turns = [write.said("new", write.call("Fox")), write.said("repeat-of:1", write.call("FOX"), channel="mail")]
    known = await play_one(*turns, person="ann")
    assert [one.origin for one in known.turns[1].calls[0].asked] == ["channel"]
    nobody = await play_one(*turns)
    assert nobody.turns[1].calls[0].asked == ()


async def test_a_turn_without_a_call_has_none(play_one, write):
    played = await play_one(write.said("new", write.call("Fox")), write.said("none"))
    assert (played.turns[1].calls, played.whole) == ((), True)


async def test_the_finder_of_similar_work_asks_by_its_rung_and_counts(play_one, write):
    turns = [
        write.said("new", write.call("Willow Books")),
        write.said("repeat-of:1", write.call("willow books")),
        write.said("repeat-of:1", write.call("Willow-Books")),
    ]
    played = await play_one(*turns, setting="rules")
    second, third = (turn.calls[0].asked[0] for turn in played.turns[1:])
    assert (second.kind, second.origin, second.first) == ("semantic", "identity", "c-0-t1/s0p0")
    assert (third.origin, third.rules) == ("rule", ("punct-space",))
    assert [turn.counts["guarded"] for turn in played.turns] == [1, 1, 1]
    assert not {name for turn in played.turns for name in turn.counts if name.endswith("_ms")}


async def test_a_turn_that_fails_ends_the_conversation_and_what_was_played_is_kept(write):
    turns = [write.said("new", write.call(name)) for name in ("Fox", "Hen", "Owl")]
    (conversation,) = write.talks(*turns)
    answer, label_of = scripted("careful")

    def model_of(turn, spoken):
        return (
            ScriptedModel([ModelUnavailableError("it is away")], history=spoken)
            if turn.number == 2
            else answer(turn, spoken)
        )

    played = await play(conversation, model_of=model_of, label_of=label_of, limits=limits_of("exact"))
    assert [turn.fault for turn in played.turns] == ["", "upstream_unavailable: it is away"]
    assert (played.whole, played.executions, played.turns[1].calls) == (False, 1, ())


async def test_the_same_script_plays_the_same(write):
    turns = [write.said("new", write.call("Fox & Hen")), write.said("repeat-of:1", write.call("Fox and Hen"))]
    talks = write.talks(*turns)
    first, second = [[one.to_json() for one in await play_suite(talks)] for _ in range(2)]
    assert first == second
    assert len(first) == 6


def test_scripted_arguments_that_a_tool_would_refuse_are_refused_before_anything_is_played(write):
    wrong = {"tool": "create_customer", "args": {"name": "Fox"}}
    with pytest.raises(FixtureError, match=r"conversation 'c-0': turn 1: field 'careful\.0\.args': .*city"):
        check_arguments(write.talks(write.said("new", wrong)))
