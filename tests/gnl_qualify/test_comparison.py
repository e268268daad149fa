"""Sittings on one set, held against each other pair by pair."""

from types import MappingProxyType

import pytest

from gnl_fixtures import FixtureSet
from gnl_qualify import evaluation, exam, verify
from gnl_qualify.comparison import compare_transcripts
from gnl_qualify.comparison_text import render_comparison
from gnl_qualify.errors import TranscriptError, TranscriptMismatchError
from gnl_qualify.exam import Settings, sit_exam
from gnl_qualify.paired import mcnemar_p
from gnl_semantic.judge.prompt import PROMPTS, Prompt


@pytest.fixture
def sat(room, tmp_path):
    """Sit an exam and return its transcript."""

    async def sat(name, answer=room.truth, fixtures=None, **settings):
        judge = room.FunctionJudge(answer, model_id=name)
        path = tmp_path / f"{name}.transcript.jsonl"
        options = {"repeat_sample": 0, "order_sample": 0} | settings
        await sit_exam(judge, fixtures or room.set_of(15), Settings(**options), transcript=path)
        return path

    return sat


def with_faults(room, *numbers, say="UNSURE"):
    return lambda user: say if any(number in user for number in numbers) else room.truth(user)


async def test_two_judges_on_the_same_pairs(sat, room):
    good = await sat("good")
    # 1001 stands in pairs of every label, 7003 in the near-misses and the unrelated alone.
    weak = await sat("weak", with_faults(room, "1001", "7003", say="SAME"), seed=5)
    report = compare_transcripts([good, weak], room.set_of(15))
    assert [(row.name, row.judge.model_id, row.status) for row in report.rows] == [
        ("A", "good", "provisional"),
        ("B", "weak", "failed"),
    ]
    (duel,) = report.duels
    alarms = duel.false_alarms
    assert (alarms.both, alarms.first_only, alarms.second_only, alarms.neither) == (0, 0, 2, 13)
    assert (alarms.difference, alarms.p) == (-2 / 15, mcnemar_p(0, 2))
    assert (duel.recall.both, duel.recall.n) == (15, 15)
    assert (duel.right.first_only, duel.right.second_only, duel.right.n) == (4, 0, 60)
    assert [(pair.id, pair.expected, pair.answers) for pair in report.disagreements] == [
        ("near-miss-0001", "different", {"A": "different", "B": "same"}),
        ("near-miss-0003", "different", {"A": "different", "B": "same"}),
        ("unrelated-0001", "different", {"A": "different", "B": "same"}),
        ("unrelated-0003", "different", {"A": "different", "B": "same"}),
    ]


async def test_every_row_says_what_its_exam_said(sat, room):
    path = await sat("one", with_faults(room, "1002"), repeat_sample=20, order_sample=20)
    report = compare_transcripts([path, await sat("two")], room.set_of(15))
    row = report.rows[0]
    judge = room.FunctionJudge(with_faults(room, "1002"), model_id="one")
    again = await sit_exam(
        judge, room.set_of(15), Settings(repeat_sample=20, order_sample=20), transcript=path.with_name("again.jsonl")
    )
    assert (row.bars, row.languages, row.status) == (
        again.report.bars,
        again.report.groups["language"],
        again.report.status,
    )
    assert (row.repeat, row.order) == (again.report.repeat, again.report.order)
    assert (row.sitting, report.rows[1].sitting) == (1, 2)


async def test_every_two_rows_are_compared_and_the_number_of_comparisons_is_told(sat, room):
    paths = [await sat(name, with_faults(room, *numbers)) for name, numbers in (("a", ()), ("b", ["1001"]), ("c", []))]
    report = compare_transcripts(paths, room.set_of(15))
    assert [(duel.first, duel.second) for duel in report.duels] == [("A", "B"), ("A", "C"), ("B", "C")]
    assert report.duels[1].right.p == 1.0
    assert "3 comparisons stand here: none of their p values is corrected" in render_comparison(report)


async def test_two_prompts_of_one_judge_are_two_rows(sat, room, monkeypatch):
    prompts = MappingProxyType({**PROMPTS, "2": Prompt("2", "Answer SAME or DIFFERENT.")})
    for module in (exam, evaluation, verify):
        monkeypatch.setattr(module, "PROMPTS", prompts)
    one = await sat("judge")
    two = one.with_name("second.jsonl")
    judge = room.FunctionJudge(model_id="judge")
    await sit_exam(judge, room.set_of(15), Settings(prompt_version="2"), transcript=two)
    rows = compare_transcripts([one, two], room.set_of(15)).rows
    assert [(row.judge.model_id, row.prompt_version, row.prompt_sha256) for row in rows] == [
        ("judge", version, prompts[version].sha256) for version in ("1", "2")
    ]


async def test_transcripts_of_different_sets_are_refused_by_name(sat, room):
    other = FixtureSet("another", room.set_of(16).pairs)
    paths = [await sat("one"), await sat("two", fixtures=other)]
    with pytest.raises(TranscriptMismatchError) as caught:
        compare_transcripts(paths, room.set_of(15))
    for word in (*map(str, paths), "'invented'", "'another'", room.set_of(15).set_id, other.set_id):
        assert word in str(caught.value)


async def test_two_samples_of_one_set_are_different_pairs(sat, room):
    paths = [await sat("one", limit=20, seed=1), await sat("two", limit=20, seed=2)]
    with pytest.raises(TranscriptMismatchError, match="same pairs"):
        compare_transcripts(paths, room.set_of(15))


async def test_an_unfinished_an_edited_and_a_repeated_transcript_are_refused(sat, room):
    good, bad = await sat("good"), await sat("bad")
    with pytest.raises(TranscriptMismatchError, match="same sitting"):
        compare_transcripts([good, good], room.set_of(15))
    lines = bad.read_text(encoding="utf-8").splitlines(keepends=True)
    bad.write_text("".join(lines[:-1]), encoding="utf-8")
    with pytest.raises(TranscriptError, match="broken off"):
        compare_transcripts([good, bad], room.set_of(15))
    bad.write_text("".join([*lines[:5], *lines[6:]]), encoding="utf-8")
    with pytest.raises(TranscriptError, match=r"bad.*1 of 60 questions have no answer"):
        compare_transcripts([good, bad], room.set_of(15))


async def test_text_of_strangers_is_harmless_and_cut(sat, room):
    hostile = await sat("x\x1b[2J" + "\u202e" * 3, lambda user: "\x1b[31mSAME" * 9)
    text = render_comparison(compare_transcripts([await sat("good"), hostile], room.set_of(15)))
    assert not set(text) & set("\x1b\u202e")
    assert "\\x1b[2J\\u202e" in text
    assert "  ... and 40 more" in text


@pytest.mark.parametrize("count", [0, 1, 27])
def test_one_sitting_is_no_comparison(count, tmp_path):
    with pytest.raises(ValueError, match="2 to 26"):
        compare_transcripts([tmp_path / "x"] * count)
