"""The score takes a call's label, whether it was asked about, and which rung asked."""

import pytest

from gnl_fixtures.conversations import Label
from gnl_qualify.stats import rate
from gnl_qualify.traffic.played import Asked, PlayedCall, PlayedConversation, PlayedTurn
from gnl_qualify.traffic.score import reason_of, score
from gnl_qualify.traffic.suite import Playing
from gnl_qualify.traffic.table import CAPTION, LIVE_CAPTION, render_table, render_text

NEW, NEAR, REPEAT = Label("new"), Label("near-new", 1), Label("repeat", 1)


def call(turn, label, origin="", **members):
    asked = (Asked(kind="semantic", origin=origin, first="c-t1/s0p0"),) if origin else ()
    facts = {"run_id": f"c-t{turn}", "call": "s0p0", "tool": "t", "args": {}, "args_hash": "", "identity": {}}
    return PlayedCall(**{**facts, "status": "succeeded", "executed": 1, "asked": asked, **members}, label=label)


def playing(*calls, setting="judge", expected=1, counts=None, whole=True, silent=0):
    turns = [PlayedTurn(number=n, label=one.label, calls=(one,)) for n, one in enumerate(calls, start=1)]
    turns += [PlayedTurn(number=len(turns) + 1, label=Label("none"), counts=counts or {})] * max(silent, bool(counts))
    played = PlayedConversation(
        id="c", turns=tuple(turns), expected=len(turns) + (not whole), executions=sum(one.executed for one in calls)
    )
    return Playing(model="m", setting=setting, conversations=(played,), expected=expected)


def first():
    return call(1, NEW)


@pytest.mark.parametrize("origin", ["exact", "channel", "identity", "rule", "judge"])
def test_a_repeat_that_is_asked_about_counts_by_its_rung(origin):
    result = score(playing(first(), call(2, REPEAT, origin)))
    assert {name: len(found) for name, found in result.asked.items() if found} == {origin: 1}
    assert (result.repeats, result.missed, result.beside_other) == (1, (), ())
    assert result.repeat_rate == rate(1, 1)


def test_a_repeat_that_nobody_asked_about_is_missed():
    result = score(playing(first(), call(2, REPEAT)))
    assert (result.missed, result.repeat_rate) == (("c-t2/s0p0",), rate(0, 1))


@pytest.mark.parametrize("label", [NEW, NEAR])
def test_other_work_asked_about_for_equal_arguments_is_an_earlier_call_made_again(label):
    result = score(playing(first(), call(2, label, "exact")))
    assert (result.reissued, result.reissued_rate) == (("c-t2/s0p0",), rate(1, 2))
    assert result.false_alarm_rate == rate(0, 2)


@pytest.mark.parametrize("label", [NEW, NEAR])
@pytest.mark.parametrize("origin", ["channel", "identity", "rule", "judge"])
def test_other_work_asked_about_for_anything_else_is_a_false_alarm(label, origin):
    result = score(playing(first(), call(2, label, origin)))
    assert {name: found for name, found in result.false_alarms.items() if found} == {origin: ("c-t2/s0p0",)}
    assert (result.reissued, result.false_alarm_rate) == ((), rate(1, 2))


def test_other_work_that_nobody_asks_about_is_as_it_should_be():
    result = score(playing(first(), call(2, NEAR)))
    assert (result.calls, result.repeats, result.missed, result.reissued) == (2, 0, (), ())
    assert result.repeat_rate == rate(0, 0)


def test_turns_without_a_call_are_left_out_and_told():
    result = score(playing(first(), silent=2))
    assert (result.turns, result.silent_turns, result.calls) == (3, 2, 1)


def test_calls_that_fit_no_tool_are_left_out_and_told():
    result = score(playing(first(), call(2, REPEAT, status="failed", executed=0)))
    assert (result.calls, result.refused_calls, result.repeats) == (1, 1, 0)
    assert "PARTIAL: 1 of 1 conversations were played whole; 2 turns count, 1 calls fitted no tool" in render_text(
        [result]
    )


def test_a_turn_that_broke_off_is_not_counted_and_the_text_says_so():
    broken = PlayedTurn(number=2, label=REPEAT, fault="model_unavailable: away")
    played = PlayedConversation(
        id="c", turns=(PlayedTurn(number=1, label=NEW, calls=(first(),)), broken), expected=3, executions=1
    )
    result = score(Playing(model="m", setting="exact", conversations=(played,), expected=4))
    assert (result.conversations, result.turns, result.repeats) == (0, 1, 0)
    assert "m, equal arguments: PARTIAL: 0 of 4 conversations were played whole; 1 turns count" in render_text([result])


def test_a_repeat_shown_beside_other_work_is_asked_about_and_told():
    other = call(3, REPEAT, asked=(Asked(kind="semantic", origin="rule", first="c-t2/s0p0"),))
    result = score(playing(first(), call(2, NEAR), other))
    assert (result.beside_other, result.missed) == (("c-t3/s0p0",), ())
    again = call(3, REPEAT, asked=(Asked(kind="duplicate", origin="exact", first="c-t2/s0p0"),))
    assert score(playing(first(), call(2, REPEAT, "rule"), again)).beside_other == ()


def test_a_repeat_of_work_that_the_model_never_did_says_so():
    reissued = call(2, NEAR, "exact")
    result = score(playing(first(), reissued, call(3, Label("repeat", 2))))
    assert result.reasons == {"c-t3/s0p0": "its first work was never done"}


def test_a_call_that_ran_twice_or_never_is_told_loudly():
    result = score(playing(first(), call(2, NEAR, executed=2), call(3, NEAR, executed=0)))
    assert result.unasked == ("c-t2/s0p0", "c-t3/s0p0")
    assert "EXECUTED AS OFTEN AS NOBODY ALLOWED: c-t2/s0p0, c-t3/s0p0" in render_text([result])


@pytest.mark.parametrize(
    ("source", "detail", "reason"),
    [
        ("semantic-judge", {"outcome": "unsure"}, "judge: unsure"),
        ("semantic-judge", {"outcome": "skipped:timeout"}, "judge: skipped:timeout"),
        ("semantic-guard", {"gray_calls": 1}, "gray"),
        ("semantic-guard", {"dropped_by_rule": 2}, "a rule told them apart"),
        ("semantic-guard", {"dropped_discriminator": 1}, "a discriminator differs"),
        ("semantic-guard", {"reason": "identity-unusable"}, "no usable identity"),
        ("semantic-guard", {"no_scan": True}, "the store could not be read"),
        ("semantic-guard", {"embedder_outage": True}, "the embedder was out"),
        ("taint-guard", {}, "nothing alike"),
    ],
)
def test_the_reason_of_a_miss_is_what_the_gates_wrote_down(source, detail, reason):
    assert reason_of(call(2, REPEAT, notes=({"source": source, "action": "warn", "detail": detail},))) == reason


def test_judge_calls_are_counted_per_guarded_call():
    counts = {"guarded": 8, "gray": 3, "judged": 2, "judge_hits": 1}
    result = score(playing(first(), counts=counts))
    assert (result.guarded, result.gray, result.judged, result.judge_hits) == (8, 3, 2, 1)
    assert result.judge_rate == rate(2, 8)
    assert result.to_json()["rates"]["judge_calls_per_guarded_call"]["value"] == 0.25


def test_the_table_is_markdown_and_every_rate_has_its_counts_and_interval():
    calls = [first(), call(2, REPEAT, "rule"), call(3, REPEAT), call(4, NEAR, "judge"), call(5, NEW, "exact")]
    head, rule, row = render_table([score(playing(*calls, counts={"guarded": 4, "gray": 1, "judged": 1}))]).splitlines()
    assert head.count("|") == rule.count("|") == row.count("|") == 11
    assert row == (
        "| m | + judge | 5 | 1/2 [0.09, 0.91] | rule 1 | 1/3 [0.06, 0.79] | 1/3 [0.06, 0.79]; judge 1 | 5 | 1 of 4 "
        "| 1/4 [0.05, 0.70] |"
    )


def test_the_caption_says_what_the_rates_are_not():
    scripted, live = render_text([score(playing(first()))]), render_text([score(playing(first()))], live=True)
    assert scripted.startswith(CAPTION)
    assert "not to be compared with a run against a live model" in scripted
    assert live.startswith(LIVE_CAPTION)
