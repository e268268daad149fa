"""The exam from end to end, with judges made of functions."""

import asyncio
import json
from collections import Counter

import pytest

from gnl_qualify.errors import TranscriptMismatchError
from gnl_qualify.exam import Settings, sit_exam
from gnl_qualify.transcript import read_transcript
from gnl_reports.model import to_json
from gnl_semantic.errors import JudgeConfigError, JudgeRateLimitedError
from gnl_semantic.judge.certificate import check_certificate
from gnl_semantic.judge.prompt import PROMPT_VERSION, PROMPTS
from gnl_semantic.judge.transport import Reply

PROMPT = PROMPTS[PROMPT_VERSION]
ONCE = Settings(repeat_sample=0, order_sample=0)


@pytest.fixture
def sit(room, tmp_path):
    async def sit(answer=None, fixtures=None, settings=ONCE, **options):
        judge = options.pop("judge", None) or room.FunctionJudge(answer or room.truth)
        path = tmp_path / "t.jsonl"
        sitting = await sit_exam(judge, fixtures or room.set_of(10), settings, transcript=path, **options)
        return sitting, judge, path

    return sit


def limited(user):
    raise JudgeRateLimitedError("asked too often")


async def test_a_perfect_judge_passes_and_the_runtime_takes_its_certificate(sit):
    sitting, judge, _ = await sit()
    assert sitting.report.status == "provisional"
    assert (sitting.certificate.paraphrase_recall, sitting.certificate.near_miss_fp) == (1.0, 0.0)
    warnings = check_certificate(
        sitting.certificate,
        judge_model_id=judge.info.model_id,
        prompt_version=PROMPT_VERSION,
        prompt_sha256=PROMPT.sha256,
    )
    assert warnings == ()
    assert judge.closed == 1


async def test_a_perfect_judge_is_certified_on_enough_pairs(sit, room):
    sitting, _, _ = await sit(fixtures=room.set_of(dup_paraphrase=60, near_miss=60))
    assert sitting.certificate.status == "certified"


async def test_the_judge_sees_the_runtimes_prompt_and_nothing_else(sit, room):
    fixtures = room.set_of(10)
    _, judge, path = await sit(fixtures=fixtures, settings=Settings())
    sentences = {text for pair in fixtures.pairs for text in (pair.a, pair.b)}
    assert {system for system, _ in judge.asked} == {PROMPT.system}
    hidden = [
        word for pair in fixtures.pairs for word in (pair.id, pair.label, pair.domain, pair.note, "model-variant")
    ]
    for _, user in judge.asked:
        assert not any(word in user for word in hidden)
    answers = path.read_text(encoding="utf-8").partition("\n")[2]
    assert not any(word in answers for word in [*hidden, *sentences])


async def test_two_sittings_of_one_seed_ask_in_the_same_order(sit, room):
    _, one, path = await sit(settings=Settings(concurrency=1))
    path.unlink()
    _, two, path = await sit(settings=Settings(concurrency=1))
    path.unlink()
    _, three, _ = await sit(settings=Settings(concurrency=1, seed=2))
    assert one.asked == two.asked != three.asked


async def test_unparsed_answers_are_diagnosed_as_a_format_failure(sit):
    sitting, _, _ = await sit(lambda user: "Well, both records say lamp, so SAME")
    assert sitting.certificate is None
    assert sitting.report.reasons[0].startswith("format failure: 40 of 40")
    assert {group.counts.unparsed for group in sitting.report.groups["label"]} == {10}


async def test_rate_limits_are_diagnosed_as_a_transport_failure(sit):
    sitting, _, _ = await sit(limited)
    assert sitting.report.reasons[0].startswith("transport failure: 40 of 40 calls failed (judge_rate_limited 40)")
    counts = [group.counts for group in sitting.report.groups["label"]]
    assert sum(c.unparsed for c in counts) == 0
    assert sum(c.error for c in counts) == 40


@pytest.mark.parametrize("bad", [limited, lambda user: "hm"])
async def test_a_few_bad_answers_are_no_diagnosis(sit, room, bad):
    calls = iter(range(1000))
    sitting, _, _ = await sit(lambda user: bad(user) if next(calls) in (5, 15, 25) else room.truth(user))
    assert not [reason for reason in sitting.report.reasons if "failure" in reason]


async def test_a_judge_silent_on_every_near_miss_fails(sit, room):
    def answer(user):
        near_miss = room.truth(user) == "DIFFERENT" and user.count("lamp") == 2
        return limited(user) if near_miss else room.truth(user)

    sitting, _, _ = await sit(answer)
    assert sitting.report.bars[1].rate.value == 0
    assert sitting.report.status == "failed"
    assert any("0 answered of 10" in reason for reason in sitting.report.reasons)


@pytest.mark.parametrize(("each", "passes"), [(1, False), (5, True)])
async def test_one_pair_a_label_is_no_exam_and_five_are(sit, room, each, passes):
    sitting, _, _ = await sit(fixtures=room.set_of(each))
    assert (sitting.certificate is not None) == passes


async def test_a_sample_is_another_set_and_says_of_which(sit, room):
    whole = room.set_of(10)
    sitting, _, _ = await sit(fixtures=whole, settings=Settings(limit=20, repeat_sample=0, order_sample=0))
    info = sitting.report.fixtures
    assert (info.pairs, info.by_label) == (20, dict.fromkeys(sorted(room.TEXTS), 5))
    assert info.set_id != whole.set_id == info.sampled_from == sitting.certificate.fixture_set_sampled_from


async def test_never_more_calls_in_flight_than_asked_for(sit, room):
    flying = peak = 0
    gate = asyncio.Event()

    async def answer(user):
        nonlocal flying, peak
        if "warmUp" in user:
            return "UNSURE"
        flying += 1
        peak = max(peak, flying)
        if flying == 3:
            gate.set()
        await gate.wait()
        flying -= 1
        return room.truth(user)

    await sit(answer, settings=Settings(concurrency=3, repeat_sample=0, order_sample=0))
    assert peak == 3


async def test_one_call_warms_up_and_is_no_figure(sit, room):
    sitting, judge, path = await sit()
    assert "warmUp" in judge.asked[0][1]
    assert len(judge.asked) == 41
    assert sitting.report.calls == len(read_transcript(path).answers) == 40


async def test_a_cold_model_gets_more_than_one_limit_to_warm_up(sit, room):
    cold = 3

    async def answer(user):
        nonlocal cold
        if "warmUp" in user and cold:
            cold -= 1
            await asyncio.Event().wait()
        return room.truth(user)

    sitting, judge, _ = await sit(answer, settings=Settings(timeout_s=0.05, repeat_sample=0, order_sample=0))
    assert cold == 0
    assert ["warmUp" in user for _, user in judge.asked[:5]] == [True, True, True, True, False]
    assert sitting.report.groups["label"][0].counts.timeout == 0


@pytest.mark.parametrize("spec", ["builtin:ladder", "recorded:x.jsonl"])
async def test_what_has_no_model_is_not_warmed_up(sit, room, spec):
    _, judge, _ = await sit(judge=room.FunctionJudge(spec=spec))
    assert len(judge.asked) == 40


async def test_a_hanging_call_is_a_timeout_and_the_exam_goes_on(sit, room):
    async def answer(user):
        if "1003" in user:
            await asyncio.Event().wait()
        return room.truth(user)

    sitting, _, _ = await sit(answer, settings=Settings(timeout_s=0.02, repeat_sample=0, order_sample=0))
    assert sum(group.counts.timeout for group in sitting.report.groups["label"]) == 4
    assert len(sitting.report.latency.samples) == 36


@pytest.mark.parametrize("answer", [lambda user: 1 / 0, lambda user: Reply(None), lambda user: b"SAME"])
async def test_a_judge_that_breaks_every_promise_only_fails_its_own_calls(sit, answer):
    sitting, _, _ = await sit(answer)
    assert sum(group.counts.error for group in sitting.report.groups["label"]) == 40


async def test_a_changeable_judge_shows_in_the_repeats(sit, room):
    seen = Counter()

    def answer(user):
        seen[user] += 1
        return "SAME" if seen[user] % 2 else "DIFFERENT"

    sitting, _, _ = await sit(answer, settings=Settings(repeat_sample=12, repeats=2, order_sample=0))
    assert (sitting.report.repeat.flips.k, sitting.report.repeat.flips.n) == (12, 12)
    assert sitting.report.order is None


async def test_a_judge_that_goes_by_the_order_shows_in_the_reversed_round(sit, room):
    def answer(user):
        _, one, two = (line.partition(": ")[2] for line in user.splitlines())
        return "SAME" if one < two else "DIFFERENT"

    sitting, _, _ = await sit(answer, settings=Settings(order_sample=12, repeat_sample=12))
    assert (sitting.report.order.flips.k, sitting.report.order.flips.n) == (12, 12)
    assert sitting.report.repeat.flips.k == 0


async def test_tokens_are_summed_where_the_transport_tells(sit, room):
    sitting, _, _ = await sit(lambda user: Reply(room.truth(user), 7, 1))
    assert (sitting.report.tokens_in, sitting.report.tokens_out) == (280, 40)
    sitting, _, _ = await sit()
    assert sitting.report.tokens_in is sitting.report.tokens_out is None


async def test_the_constant_judges_stand_beside_the_figures(sit):
    sitting, _, _ = await sit()
    base = {b.name: (b.recall.value, b.false_alarms.value) for b in sitting.report.baselines}
    assert (base["always same"], base["always different"]) == ((1.0, 1.0), (0.0, 0.0))
    assert base["ladder only"][1] == 0.0


async def test_an_always_same_judge_fails_on_false_alarms_alone(sit):
    sitting, _, _ = await sit(lambda user: "SAME", settings=Settings())
    assert [bar.passed for bar in sitting.report.bars] == [True, False]
    assert sitting.report.order.flips.k == sitting.report.repeat.flips.k == 0
    assert sitting.certificate is None


async def test_a_cancelled_exam_keeps_its_answers_and_goes_on_with_the_rest(sit, room):
    gate = asyncio.Event()
    count = 0

    async def stops(user):
        nonlocal count
        count += 1
        if count > 11:
            gate.set()
            await asyncio.Event().wait()
        return room.truth(user)

    judge = room.FunctionJudge(stops)
    task = asyncio.create_task(sit(judge=judge, settings=Settings(concurrency=2)))
    await gate.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert judge.closed == 1
    again = room.FunctionJudge()
    sitting, _, path = await sit(judge=again, settings=Settings(concurrency=4), resume=True)
    assert len(again.asked) - 1 == 100 - 10
    assert len(read_transcript(path).answers) == sitting.report.calls == 100
    _, idle, _ = await sit(settings=Settings(), resume=True)
    assert idle.asked == []


async def test_a_resumed_exam_gives_the_same_figures(sit, room, tmp_path):
    straight, _, path = await sit(settings=Settings(concurrency=1))
    rows = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(rows[:30]) + rows[30][:15], encoding="utf-8")
    resumed, _, _ = await sit(settings=Settings(concurrency=1), resume=True)
    assert resumed.report.bars == straight.report.bars
    assert resumed.report.groups == straight.report.groups
    assert resumed.report.repeat == straight.report.repeat


async def test_an_unknown_prompt_is_refused_before_anything_is_written(sit, tmp_path):
    with pytest.raises(JudgeConfigError, match="prompt version '99'"):
        await sit(settings=Settings(prompt_version="99"))
    assert not list(tmp_path.iterdir())


async def test_the_report_is_json(sit):
    sitting, _, _ = await sit(lambda user: "SAME\ud800")
    assert json.loads(json.dumps(to_json(sitting.report)))["status"] == "failed"


async def test_an_endless_answer_is_cut_and_no_verdict(sit):
    sitting, _, path = await sit(lambda user: " " * 50_000 + "SAME")
    assert sitting.report.reasons[0].startswith("format failure")
    assert path.stat().st_size < 40 * 21_000


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda rows: [*rows[:5], *rows[8:]], "3 of 40 answers are missing"),
        (lambda rows: [rows[0], rows[1].replace('"prompt_sha256":"', '"prompt_sha256":"0'), *rows[2:]], "other words"),
        (lambda rows: [rows[0], rows[1].replace('"q00001"', '"q99999"'), *rows[2:-1]], "other words"),
    ],
)
async def test_answers_to_other_questions_are_not_gone_on_with(sit, spoil, words):
    _, _, path = await sit()
    path.write_text("".join(spoil(path.read_text(encoding="utf-8").splitlines(keepends=True))), encoding="utf-8")
    before = path.read_bytes()
    with pytest.raises(TranscriptMismatchError, match=words):
        await sit(resume=True)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "wrong", [{"concurrency": 0}, {"limit": 0}, {"timeout_s": 0.0}, {"repeats": -1}, {"valid_days": 0}]
)
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(ValueError, match="must"):
        Settings(**wrong)
