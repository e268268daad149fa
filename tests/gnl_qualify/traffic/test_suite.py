"""The whole suite, played and pinned: what this version asks about, call by call.

A change of a rule, the embedder, the judge or a gate shows here. Where it is meant, look at each line that differs and
write the new text: gnl-semantic-qualify traffic > tests/gnl_qualify/traffic/expected.txt
"""

import asyncio
from pathlib import Path

import pytest

from gnl_fixtures.conversations import load_conversations
from gnl_qualify.traffic.score import score_all
from gnl_qualify.traffic.suite import play_suite
from gnl_qualify.traffic.table import render_text

EXPECTED = Path(__file__).with_name("expected.txt")


@pytest.fixture(scope="module")
def scores():
    return score_all(asyncio.run(play_suite(load_conversations())))


def test_the_suite_comes_to_what_is_pinned(scores):
    assert render_text(scores) == EXPECTED.read_text(encoding="utf-8")


def test_every_call_ran_as_often_as_a_person_allowed(scores):
    for score in scores:
        assert (score.unasked, score.refused_calls) == ((), 0)
        assert score.executions == score.calls
        assert score.conversations == score.expected == 50


def test_a_further_rung_only_adds_questions(scores):
    """The finder cannot take a question away from the rungs before it."""
    by_name = {(score.model, score.setting): score for score in scores}
    for model in ("careful", "careless"):
        exact, rules, judge = (by_name[model, setting] for setting in ("exact", "rules", "judge"))
        assert exact.asked["exact"] == rules.asked["exact"] == judge.asked["exact"]
        assert exact.asked["channel"] == rules.asked["channel"] == judge.asked["channel"]
        assert exact.reissued == rules.reissued == judge.reissued
        assert set(judge.missed) <= set(rules.missed) <= set(exact.missed)


def test_a_model_that_writes_one_spelling_leaves_the_later_rungs_little_to_do(scores):
    by_name = {(score.model, score.setting): score for score in scores}
    careful, careless = by_name["careful", "judge"], by_name["careless", "judge"]
    assert len(careful.asked["exact"]) > 10 * len(careless.asked["exact"])
    assert careful.asked["judge"] == careful.asked["rule"] == ()
    assert careless.asked["rule"]
    assert careless.asked["judge"]
