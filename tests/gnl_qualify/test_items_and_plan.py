"""From pairs to what a judge may see, and what it is asked."""

import hashlib
from collections import Counter
from dataclasses import fields, replace

import pytest

from gnl_core.identity import SemanticIdentity
from gnl_fixtures import FixtureSet
from gnl_qualify.errors import PairUnusableError
from gnl_qualify.items import Item, set_paper
from gnl_qualify.plan import questions_of
from gnl_semantic.judge.prompt import PROMPT_VERSION, PROMPTS

PROMPT = PROMPTS[PROMPT_VERSION]


def test_an_item_holds_the_canonical_sentences_of_the_runtime(room):
    pair = replace(room.set_of(1).pairs[0], a="  İNV-1 ", b="ınv-1", tool_name="payInvoice")
    (item,) = set_paper(FixtureSet("x", (pair,)), seed=1).items
    declared = SemanticIdentity(keys=("subject",))
    assert item.first == declared.build("payInvoice", {"subject": pair.a}).sentence == "payInvoice: inv-1"
    assert item.second == declared.build("payInvoice", {"subject": pair.b}).sentence


def test_an_item_has_no_place_for_a_label_an_id_or_a_note(room):
    assert [field.name for field in fields(Item)] == ["id", "tool_name", "first", "second"]
    for item in set_paper(room.set_of(20), seed=1).items:
        shown = " ".join(map(str, (item.id, item.tool_name, item.first, item.second)))
        assert not any(word in shown for word in ("dup", "near", "miss", "unrelated", "secret", "orders"))


@pytest.mark.parametrize(("side", "value"), [("a", "\ufeff \u3000"), ("b", "   ")])
def test_a_value_that_identifies_nothing_is_named(room, side, value):
    pair = replace(room.set_of(1).pairs[0], id="odd-7", **{side: value})
    with pytest.raises(PairUnusableError, match=rf"pair 'odd-7': field '{side}'"):
        set_paper(FixtureSet("x", (pair,)), seed=1)


def plan(room, **options):
    paper = set_paper(room.set_of(10), seed=1)
    return paper, questions_of(
        paper, PROMPT, **{"seed": 1, "repeat_sample": 8, "repeats": 2, "order_sample": 6} | options
    )


def test_every_item_is_asked_once_and_samples_of_them_again(room):
    paper, questions = plan(room)
    assert [question.id.item for question in questions[:40]] == [item.id for item in paper.items]
    assert Counter((q.id.round, q.id.repeat) for q in questions) == {
        ("main", 0): 40,
        ("repeat", 1): 8,
        ("repeat", 2): 8,
        ("reversed", 0): 6,
    }
    assert Counter(paper.key[q.id.item].label for q in questions if q.id.repeat == 1) == dict.fromkeys(room.TEXTS, 2)


@pytest.mark.parametrize(
    ("options", "rounds"),
    [
        ({"repeat_sample": 0}, {"main", "reversed"}),
        ({"repeats": 0}, {"main", "reversed"}),
        ({"order_sample": 0}, {"main", "repeat"}),
    ],
)
def test_zero_switches_a_round_off(room, options, rounds):
    assert {question.id.round for question in plan(room, **options)[1]} == rounds


def test_the_hash_is_that_of_the_rendered_text(room):
    for question in plan(room)[1]:
        assert question.prompt_sha256 == hashlib.sha256(question.user.encode()).hexdigest()


def test_reversed_questions_turn_the_records_round_and_equal_records_are_left_out(room):
    paper, questions = plan(room, order_sample=1000)
    straight = {question.id.item: question.user for question in questions if question.id.round == "main"}
    reverse = {question.id.item: question.user for question in questions if question.id.round == "reversed"}
    assert {paper.key[item].label for item in reverse} == {"dup-paraphrase", "near-miss", "unrelated"}
    for item, user in reverse.items():
        assert user != straight[item]
        bodies = [[line.partition(": ")[2] for line in text.splitlines()[1:]] for text in (straight[item], user)]
        assert bodies[0] == bodies[1][::-1]
