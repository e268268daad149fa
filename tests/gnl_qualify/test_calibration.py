"""A whole calibration on invented pairs, by embedders that know the truth, half of it, or nothing."""

import asyncio
import json
import re
import zlib

import numpy as np
import pytest

from gnl_fixtures import FixtureSet, Pair
from gnl_qualify.calibration import calibrate
from gnl_qualify.calibration.candidates import THREADS
from gnl_qualify.calibration.chain import NOT_ASKED
from gnl_qualify.calibration.frames import NAMES, csv_of
from gnl_qualify.calibration.measure import BATCH, SAMPLE
from gnl_qualify.calibration.text import render_text
from gnl_qualify.errors import CalibrationSetError
from gnl_qualify.hashing import HashingEmbedder
from gnl_semantic.embedder.port import Embedder, EmbedderProfile
from gnl_semantic.errors import EmbedderError
from gnl_semantic.threshold import MeasuredThreshold


class NumberEmbedder:
    """Puts texts with one number on one axis: an embedder that knows this set's truth. Keeps what it was given."""

    model_id = "test:numbers"
    profile = EmbedderProfile(dimension=64)

    def __init__(self):
        self.texts = []
        self.largest = 0

    async def embed(self, texts):
        self.texts += texts
        self.largest = max(self.largest, len(texts))
        return np.stack([self.vector(re.findall(r"\d+", text)[0]) for text in texts])

    def vector(self, number):
        vector = np.random.default_rng(int(number)).normal(size=64)
        return (vector / np.linalg.norm(vector)).astype(np.float32)


class OneDirection:
    """Finds everything equal."""

    model_id = "test:one"
    profile = EmbedderProfile(dimension=2)

    async def embed(self, texts):
        return np.tile(np.array([1, 0], np.float32), (len(texts), 1))


class QuickEmbedder:
    """One hash of the beginning of a value: for sizes where nothing else may cost time."""

    model_id = "test:crc"
    profile = EmbedderProfile(dimension=8)

    def __init__(self):
        self.largest = 0

    async def embed(self, texts):
        self.largest = max(self.largest, len(texts))
        bits = np.array([zlib.crc32(text.rpartition(": ")[2][:9].encode()) for text in texts], np.uint32)
        vectors = ((bits[:, None] >> np.arange(0, 32, 4, dtype=np.uint32)) & 15).astype(np.float32) + 1
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def outcomes(report, group):
    return {row.outcome: row.pairs.k for row in report.chain if row.group == group}


def thread(report, records, label="dup-paraphrase", form="canonical"):
    (row,) = (r for r in report.candidates if (r.records, r.label, r.form) == (records, label, form))
    return row


async def test_an_embedder_that_knows_finds_every_repeat_and_the_ladder_the_rest(room):
    report = (await calibrate(NumberEmbedder(), room.set_of(40))).report
    areas = {(row.first, row.second): row.area for row in report.areas if row.form == "bare"}
    assert areas["dup-paraphrase", "near-miss"] == areas["same job", "unrelated"] == 1
    assert all(row.separates and row.unrelated.k == 0 for row in report.thresholds)
    row = thread(report, 100)
    assert (row.candidate.k, row.by_cosine.k, row.candidate.n) == (40, 40, 40)
    # Word order is left to a judge: it would see the right record each time.
    assert (row.shown.k, row.shown.n, row.reached.k) == (40, 40, 40)
    assert outcomes(report, "repeats") == {
        "asked: equal identity": 40,
        "asked: ladder": 0,
        "not asked: below the threshold": 0,
        "not asked: separated by the ladder": 0,
        "not asked: gray, no judge": 40,
    }
    assert report.judge_calls.k == 40


async def test_one_that_finds_everything_equal_is_told_so(room):
    report = (await calibrate(OneDirection(), room.set_of(12))).report
    assert not any(row.separates for row in report.thresholds)
    assert all(row.area == 0.5 for row in report.areas)
    assert any("separates nothing" in warning for warning in report.warnings)
    assert any("too few" in warning for warning in report.warnings)
    # An exact repeat is found all the same: its values fold alike.
    assert thread(report, 10, "dup-exact").settled.k == 12


async def test_outcomes_and_rungs_add_up(room):
    report = (await calibrate(HashingEmbedder(), room.set_of(20))).report
    for group, n in {"repeats": 40, "look-alikes": 20, "unrelated": 20, "dup-exact": 20}.items():
        assert sum(outcomes(report, group).values()) == n
    for row in report.ladder:
        assert row.identical.k + row.matched.k + row.separated.k + row.gray.k == row.gray.n
    assert sum(row.gray.n for row in report.ladder if row.group == "label and language") == 80


async def test_a_judge_is_asked_about_gray_candidates_only_and_by_the_canonical_sentence(room):
    judge = room.FunctionJudge()
    calibration = await calibrate(NumberEmbedder(), room.set_of(15), judge=judge)
    report = calibration.report
    assert len(judge.asked) == report.judge_calls.k == 15
    assert all("RECORD 1: placeOrder: " in user for _, user in judge.asked)
    assert outcomes(report, "repeats")["asked: judge says same"] == 15
    assert outcomes(report, "look-alikes")["asked: judge says same"] == 0
    (arm,) = (row for row in report.arms if row.arm == "ladder and this judge")
    assert (arm.recall.k, arm.alarms.k) == (15, 0)
    assert (calibration.said != NOT_ASKED).sum() == 15
    assert judge.closed == 0


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        ("UNSURE", "unsure"),
        ("well, SAME", "unparsed"),
        (None, "error"),
    ],
)
async def test_what_a_judge_does_not_say_asks_nobody(room, answer, outcome):
    def reply(user):
        if answer is None:
            raise RuntimeError("down")
        return answer

    report = (await calibrate(NumberEmbedder(), room.set_of(10), judge=room.FunctionJudge(reply))).report
    assert outcomes(report, "repeats")[f"not asked: judge, {outcome}"] == 10
    assert outcomes(report, "repeats")["asked: judge says same"] == 0


async def test_a_silent_judge_runs_into_its_limit(room):
    async def never(user):
        await asyncio.Event().wait()

    judge = room.FunctionJudge(never)
    report = (await calibrate(NumberEmbedder(), room.set_of(3), judge=judge, timeout_s=0.01)).report
    assert outcomes(report, "repeats")["not asked: judge, error"] == 3


@pytest.mark.parametrize("label", ["dup-paraphrase", "near-miss"])
async def test_a_missing_label_is_refused_before_anything_is_embedded(room, label):
    pairs = tuple(pair for pair in room.set_of(3).pairs if pair.label != label)
    embedder = NumberEmbedder()
    with pytest.raises(CalibrationSetError, match=f"no pair is labelled {label}:"):
        await calibrate(embedder, FixtureSet("mine", pairs))
    assert embedder.texts == []


@pytest.mark.parametrize("missing", [("dup-exact",), ("unrelated",), ("dup-exact", "unrelated")])
async def test_what_needs_a_label_without_pairs_is_not_measured_and_the_rest_is(room, missing):
    whole = room.set_of(30)
    part = FixtureSet("mine", tuple(pair for pair in whole.pairs if pair.label not in missing))
    full, calibration = (await calibrate(HashingEmbedder(), whole)).report, await calibrate(HashingEmbedder(), part)
    report = calibration.report
    assert [warning.partition(":")[0] for warning in report.warnings[: len(missing)]] == [
        f"no pair is labelled {label}" for label in missing
    ]
    assert {label: report.by_label[label] for label in missing} == dict.fromkeys(missing, 0)
    empty = {row.label: row for row in report.cosines if not row.n}
    assert set(empty) == set(missing)
    assert all(row.median is None for row in empty.values())
    text, page = render_text(report), calibration.to_html()
    for label in missing:
        assert re.search(rf"^{label} +0  not measured: no pair has this label$", text, re.MULTILINE)
    assert "not measured: no pair has this label" in page
    # What paraphrases and near-misses say does not depend on the others.
    assert [row for row in report.cosines if row.label == "dup-paraphrase"] == [
        row for row in full.cosines if row.label == "dup-paraphrase"
    ]
    assert [(row.value, row.low, row.kept, row.near_miss) for row in report.thresholds] == [
        (row.value, row.low, row.kept, row.near_miss) for row in full.thresholds
    ]
    areas = {(row.first, row.second): row.area for row in report.areas if row.form == "bare"}
    assert areas["dup-paraphrase", "near-miss"] is not None
    unmeasured = "unrelated" in missing
    assert (areas["dup-paraphrase", "unrelated"] is None) == unmeasured
    assert all((row.separates is None) == (row.unrelated_p05 is None) == unmeasured for row in report.thresholds)
    assert all((found is None) == unmeasured for found in report.centring_better.values())
    assert ("against unrelated: not measured" in text) == unmeasured
    assert ("There are no unrelated pairs, so it is not measured." in page) == unmeasured
    assert not any("separates nothing" in warning for warning in report.warnings if unmeasured)
    assert set(calibration.frames()) == set(NAMES)
    assert json.loads(calibration.to_json())["set_id"] == report.set_id


async def test_one_paraphrase_and_one_near_miss_are_the_least(room):
    report = (await calibrate(HashingEmbedder(), room.set_of(dup_paraphrase=1, near_miss=1))).report
    assert report.thresholds[0].kept.k == 1
    assert render_text(report)


async def test_broken_vectors_are_refused(room):
    class Broken(OneDirection):
        async def embed(self, texts):
            return np.full((len(texts), 2), np.nan, np.float32)

    with pytest.raises(EmbedderError, match="not finite"):
        await calibrate(Broken(), room.set_of(2))


async def test_the_threshold_of_a_measured_embedder_is_its_profiles(room):
    class Measured(HashingEmbedder):
        profile = EmbedderProfile(
            dimension=256,
            candidate_threshold=0.7,
            threshold_measured=True,
            measured=(
                MeasuredThreshold(
                    form="bare", value=0.4, low=0.3, high=0.5, unrelated_p05=0, unrelated_passed=0, set_id="0" * 16
                ),
            ),
        )

    report = (await calibrate(Measured(), room.set_of(6))).report
    assert (report.threshold, report.threshold_source) == (0.7, "profile")
    assert {row.form: row.threshold for row in report.candidates} == {"canonical": 0.7, "bare": 0.4}
    report = (await calibrate(HashingEmbedder(), room.set_of(6))).report
    assert report.threshold_source == "here"
    assert report.threshold == report.thresholds[0].value
    assert any("candidate_threshold=" in warning for warning in report.warnings)


async def test_repeats_in_two_languages_below_the_threshold_are_listed_by_pair(room):
    def pair(number, lang, tags=()):
        texts = {"a": f"Dark mode {number}", "b": f"Karanlık mod {number + 5000}"}
        return Pair(
            id=f"mixed-{number}", domain="d", lang=lang, tool_name="t", label="dup-paraphrase", phenomena=tags, **texts
        )

    blind = (pair(1, "mixed"), pair(2, "en", ("translation",)), pair(3, "en"))
    fixtures = FixtureSet("x", (*room.set_of(400).pairs, *blind))
    report = (await calibrate(NumberEmbedder(), fixtures)).report
    assert {one.id for one in report.blind_spots.pairs} == {"mixed-1", "mixed-2"}
    assert {one.id for one in report.below.pairs} == {"mixed-3"}
    assert report.blind_spots.total == 2
    text = render_text(report)
    assert "mixed-1" in text
    assert "describe()" in text


async def test_what_the_ladder_settles_wrongly_is_listed_with_its_rule(room):
    wrong = Pair(id="w", domain="d", lang="en", tool_name="t", a="TV 42", b="tv-42", label="near-miss")
    report = (await calibrate(HashingEmbedder(), FixtureSet("x", (*room.set_of(3).pairs, wrong)))).report
    (listed,) = report.ladder_wrong.pairs
    assert (listed.id, listed.why) == ("w", "match: punct-space")


async def test_ten_pairs_are_enough_and_short_threads_are_not_made_up(room):
    report = (
        await calibrate(HashingEmbedder(), room.set_of(dup_exact=2, dup_paraphrase=3, near_miss=3, unrelated=2))
    ).report
    assert [thread(report, records).candidate.n for records in THREADS] == [3, 0, 0]
    assert thread(report, 1000).candidate.value is None
    assert render_text(report)


async def test_a_hundred_thousand_pairs_stream_through(room):
    embedder = QuickEmbedder()
    calibration = await calibrate(embedder, room.set_of(25_000))
    assert embedder.largest == 2 * BATCH
    measured = calibration.measured
    # All that was kept of 400,000 vectors.
    assert sum(side.shape[0] for sides in measured.vectors.values() for side in sides) == 4 * SAMPLE
    assert all(cosines.dtype == np.float32 and len(cosines) == 100_000 for cosines in measured.cosines.values())
    assert sum(calibration.report.by_label.values()) == len(calibration.frames()["pairs"]) == 100_000
    assert thread(calibration.report, 1000).candidate.n == SAMPLE // 4
    assert len(calibration.to_json()) < 1_000_000


async def test_two_runs_say_the_same_and_another_seed_draws_other_threads(room):
    one, again, other = [(await calibrate(QuickEmbedder(), room.set_of(60), seed=seed)).report for seed in (1, 1, 2)]
    assert one == again
    assert one.cosines == other.cosines
    assert one.candidates != other.candidates


async def test_progress_ends_where_the_work_does(room):
    told = []
    await calibrate(
        NumberEmbedder(), room.set_of(70), judge=room.FunctionJudge(), progress=lambda *one: told.append(one)
    )
    last = {stage: (done, total) for stage, done, total in told}
    assert last["embedding"] == (280, 280)
    assert last["asking the judge"] == (70, 70)
    assert last["searching threads"] == (12, 12)


async def test_frames_hold_every_figure_and_every_pair(room):
    calibration = await calibrate(HashingEmbedder(), room.set_of(10), judge=room.FunctionJudge())
    frames = calibration.frames()
    assert set(frames) == set(NAMES)
    chain = frames["chain"]
    assert {"pairs_k", "pairs_n", "pairs_share", "pairs_low", "pairs_high"} < set(chain.columns)
    assert chain[chain.group == "repeats"].pairs_k.sum() == 20
    pairs = frames["pairs"]
    assert pairs.id.is_unique
    assert list(pairs.label.cat.categories) == sorted({"dup-exact", "dup-paraphrase", "near-miss", "unrelated"})
    assert pairs.judge.isna().any()
    assert list(frames["blind_spots"].columns)[:2] == ["id", "label"]
    assert json.loads(calibration.to_json())["set_id"] == calibration.report.set_id


async def test_no_cell_of_a_csv_is_a_formula(room):
    pair = Pair(id="=cmd()", domain="+1", lang="@x", tool_name="-t", a="TV 42", b="tv-42", label="near-miss")
    calibration = await calibrate(HashingEmbedder(), FixtureSet("x", (*room.set_of(3).pairs, pair)))
    for name in ("pairs", "ladder_wrong"):
        line = next(line for line in csv_of(calibration.frames()[name]).splitlines() if "cmd" in line)
        assert line.startswith("'=cmd()")
        assert ",'@x," in line
        assert ",'-t," in line
    # Numbers stay numbers, below zero too.
    assert "'-" not in csv_of(calibration.frames()["thresholds"])


async def test_the_hashing_embedder_is_an_embedder_and_gives_unit_vectors():
    embedder = HashingEmbedder()
    assert isinstance(embedder, Embedder)
    vectors = await embedder.embed(["tv 42", "", "x", "tv 42"])
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1)
    assert (vectors[0] == vectors[3]).all()
    assert (await embedder.embed([])).shape == (0, 256)
