"""The report as text: every figure with its denominator, every stranger's text harmless."""

from dataclasses import replace

import pytest

from gnl_qualify.exam import Settings, sit_exam
from gnl_qualify.stats import rate
from gnl_qualify.text_report import LISTED, percent, render_text

ONCE = Settings(repeat_sample=0, order_sample=0)


@pytest.fixture
def report_of(room, tmp_path):
    async def report_of(answer, fixtures=None, settings=ONCE):
        judge = room.FunctionJudge(answer)
        path = tmp_path / "t.jsonl"
        return (await sit_exam(judge, fixtures or room.set_of(10), settings, transcript=path)).report

    return report_of


def test_a_rate_never_travels_without_its_denominator():
    assert percent(rate(70, 75)) == "93.3 % (70/75)"
    assert percent(rate(0, 0)) == "not measured (0/0)"


async def test_kinds_of_silence_stand_beside_their_label(report_of, room):
    def answer(user):
        if "1001" in user:
            return "UNSURE"
        if "1002" in user:
            return "hm"
        if "1003" in user:
            raise OSError
        return room.truth(user)

    text = render_text(await report_of(answer))
    assert "near-miss       70.0 % (7/10); 1 unsure, 1 unparsed, 1 failed" in text


async def test_a_sample_names_the_set_it_was_drawn_from(report_of, room):
    whole = room.set_of(10)
    text = render_text(await report_of(room.truth, whole, Settings(limit=20)))
    assert f"(a sample of {whole.set_id}), 20 pairs" in text.splitlines()[0]


async def test_reasons_come_before_figures_and_the_caveat_comes_last(report_of):
    lines = render_text(await report_of(lambda user: "SAME")).splitlines()
    assert lines[2] == "FAILED"
    assert lines[3].startswith("  - near-miss false alarms: 1.000 (10/10")
    assert next(i for i, line in enumerate(lines) if line.startswith("dup-exact")) > 3
    assert "precision@suspend" in lines[-1]


async def test_flips_are_told_with_their_interval(report_of, room):
    text = render_text(await report_of(room.truth, settings=Settings(repeat_sample=20, order_sample=20)))
    assert "asked again: 0.0 % (0/20) changed their answer, 95 % interval [0.0, 16.1] %, 20 pairs asked 2 times" in text
    assert "records in reverse order: 0.0 % (0/20) changed their answer" in text


async def test_a_pair_that_flipped_is_listed_with_its_answers(report_of, room):
    answers = iter(["SAME", "DIFFERENT"] * 200)

    def fickle(user):
        return next(answers) if "1003" in user and "lamp 7003" in user.lower() else room.truth(user)

    text = render_text(await report_of(fickle, settings=Settings(repeat_sample=40, repeats=3, order_sample=0)))
    assert "asked again: 2.5 % (1/40) changed their answer" in text
    assert "40 pairs asked 4 times" in text
    assert "  near-miss-0003 [near-miss, orders]: same, different, same, different" in text
    assert "  agreement: 236/240 couples of answers to one pair, 95 % interval [" in text


async def test_the_set_the_sitting_and_the_ladder_stand_beside_the_figures(report_of, room):
    text = render_text(await report_of(room.truth, room.set_of(20)))
    assert "this set: near-miss false alarms: 20 near-miss pairs: at most 1 SAME for 'provisional'" in text
    assert "this was the 1st sitting on this set" in text
    assert "the judge's recall less this: +100.0 points, 95 % interval [" in text
    assert "20 against 0 of 20 pairs, McNemar p below 0.001" in text


async def test_wrong_pairs_are_listed_on_a_fail_only_and_cut(report_of, room):
    failed = await report_of(lambda user: "SAME", room.set_of(15))
    listed = render_text(failed).partition("answered wrong (30):\n")[2].splitlines()
    assert len([line for line in listed if line.startswith(("  near", "  unre"))]) == LISTED
    assert "  ... and 10 more" in render_text(failed)
    assert "answered wrong" not in render_text(replace(failed, status="provisional"))


async def test_long_and_hostile_texts_are_cut_and_spelt_out(report_of, room):
    report = await report_of(lambda user: "\x1b[2J" + "x" * 9000)
    hostile = replace(report.wrong[0], a="\u202e" + "y" * 9000, domain="\x9b", id="\r\n")
    text = render_text(replace(report, wrong=(hostile,), worst_domain=None))
    assert not set(text) & set("\x1b\x9b\u202e\r")
    assert "\\u202eyyy" in text
    assert max(map(len, text.splitlines())) < 700


async def test_no_measured_call_gives_no_latency(report_of):
    def fail(user):
        raise OSError

    assert "latency" not in render_text(await report_of(fail))


async def test_no_pair_is_listed_where_nobody_is_to_read_them(report_of):
    report = await report_of(lambda user: "SAME")
    text = render_text(report, listed=0)
    assert f"and {len(report.wrong)} more" in text
    assert not [pair for pair in report.wrong if pair.a in text]
