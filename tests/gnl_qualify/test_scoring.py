"""Answers to numbers, gates and a diagnosis."""

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gnl_qualify.scoring import bars_of, count, diagnose, flips_of, groups_of, outcome_of, status_of, worst
from gnl_qualify.transcript import Answer
from gnl_semantic.judge.verdict import Verdict

KINDS = ["same", "different", "unsure", "unparsed", "error", "timeout"]
SILENCE = ["unsure", "unparsed", "error", "timeout"]
SHEETS = st.lists(
    st.tuples(st.sampled_from(["dup_exact", "dup_paraphrase", "near_miss", "unrelated"]), st.sampled_from(KINDS)),
    max_size=60,
)
sloppy = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


def answer(text=None, error=None, verdict=None):
    return Answer(
        item="q1", round="main", repeat=0, prompt_sha256="0", text=text, verdict=verdict, error=error,
        message=None, latency_ms=1.0, tokens_in=None, tokens_out=None,
    )  # fmt: skip


def marked(room, **outcomes):
    """Return pairs by label with the outcomes listed for them."""
    return [
        (pair, outcome)
        for label, listed in outcomes.items()
        for pair, outcome in zip(room.pairs_of(**{label: len(listed)}), listed, strict=True)
    ]


def mark(room, sheet):
    return [(room.pairs_of(**{label: 1})[0], outcome) for label, outcome in sheet]


def verdict_on(rows):
    bars = bars_of(rows)
    return status_of(bars, diagnose(rows, []))


@pytest.mark.parametrize(
    ("given_answer", "outcome"),
    [
        (answer(" same\n"), "same"),
        (answer("DIFFERENT"), "different"),
        (answer("Unsure"), "unsure"),
        (answer("SAME."), "unparsed"),
        (answer(""), "unparsed"),
        (answer(error="judge_timeout"), "timeout"),
        (answer(error="judge_rate_limited"), "error"),
        (answer("no", verdict=Verdict.SAME), "unparsed"),
    ],
)
def test_how_an_answer_counts(given_answer, outcome):
    assert outcome_of(given_answer) == outcome


def test_exact_repeats_never_count_towards_recall(room):
    recall, _ = bars_of(
        marked(room, dup_exact=["same"] * 50, dup_paraphrase=["different"] * 10, near_miss=["different"] * 10)
    )
    assert (recall.rate.k, recall.rate.n) == (0, 10)


def test_silence_stays_in_both_denominators(room):
    recall, alarms = bars_of(
        marked(
            room, dup_paraphrase=["same"] * 7 + ["timeout", "unparsed", "error"], near_miss=["different"] * 6 + SILENCE
        )
    )
    assert (recall.rate.k, recall.rate.n, recall.answered) == (7, 10, 7)
    assert (alarms.rate.k, alarms.rate.n, alarms.answered) == (0, 10, 7)


@pytest.mark.parametrize(("recall", "alarms", "passes"), [(14, 1, True), (13, 1, False), (14, 2, False), (20, 0, True)])
def test_the_bars_are_held_at_their_very_edge(room, recall, alarms, passes):
    rows = marked(
        room,
        dup_paraphrase=["same"] * recall + ["different"] * (20 - recall),
        near_miss=["same"] * alarms + ["different"] * (20 - alarms),
    )
    assert (verdict_on(rows)[0] != "failed") == passes


@pytest.mark.parametrize(("label", "empty"), [("dup_paraphrase", "near-miss"), ("near_miss", "dup-paraphrase")])
def test_a_rate_over_no_pairs_is_no_pass_and_names_the_label(room, label, empty):
    right = {"dup_paraphrase": "same", "near_miss": "different"}[label]
    status, reasons = verdict_on(marked(room, **{label: [right] * 50}))
    assert status == "failed"
    assert [reason for reason in reasons if empty in reason and "zero pairs" in reason]


def test_nothing_put_at_all_fails():
    assert verdict_on([])[0] == "failed"


@pytest.mark.parametrize("silence", ["error", "timeout", "unparsed"])
def test_silence_on_every_near_miss_fails_although_it_rings_no_alarm(room, silence):
    status, reasons = verdict_on(
        marked(room, dup_paraphrase=["same"] * 10, dup_exact=["same"] * 30, near_miss=[silence] * 10)
    )
    assert status == "failed"
    assert [reason for reason in reasons if "0 answered of 10" in reason]


def test_five_of_ten_near_misses_are_enough(room):
    rows = marked(room, dup_paraphrase=["same"] * 10, near_miss=["different"] * 5 + ["error"] * 5)
    assert verdict_on(rows)[0] == "provisional"


def test_silence_never_earns_the_word_certified(room):
    rows = marked(room, dup_paraphrase=["same"] * 300, near_miss=["different"] * 20 + ["error"] * 280)
    status, reasons = verdict_on(rows)
    assert status == "provisional"
    assert "near-miss false alarms" in reasons[1]


@pytest.mark.parametrize(
    ("each", "status"), [(1, "failed"), (4, "failed"), (5, "provisional"), (58, "provisional"), (59, "certified")]
)
def test_how_many_pairs_a_perfect_judge_needs(room, each, status):
    assert verdict_on(marked(room, dup_paraphrase=["same"] * each, near_miss=["different"] * each))[0] == status


@pytest.mark.parametrize(("kind", "cause"), [("error", "transport"), ("timeout", "transport"), ("unparsed", "format")])
def test_half_of_the_calls_name_the_cause_and_a_few_do_not(room, kind, cause):
    rows = marked(room, dup_paraphrase=[kind] * 15, near_miss=["different"] * 15)
    assert verdict_on(rows)[1][0].startswith(f"{cause} failure")
    rows = marked(room, dup_paraphrase=[kind] * 3 + ["same"] * 12, near_miss=["different"] * 15)
    assert diagnose(rows, []) == []
    assert verdict_on(rows)[0] == "provisional"


def test_transport_comes_before_format(room):
    rows = marked(room, dup_paraphrase=["error"] * 10, near_miss=["unparsed"] * 10)
    first, second = diagnose(rows, [answer(error="judge_rate_limited")] * 10)
    assert first.startswith("transport failure: 10 of 20")
    assert "judge_rate_limited 10" in first
    assert second.startswith("format failure: 10 of 10 answers")


@sloppy
@given(sheet=SHEETS)
def test_counts_add_up_in_every_table(room, sheet):
    rows = mark(room, sheet)
    assert count(rows).put == len(rows)
    groups = groups_of(rows)
    for table in ("label", "language", "domain"):
        assert sum(group.counts.put for group in groups[table]) == len(rows)
        assert all(group.right.n == group.counts.put for group in groups[table])


@sloppy
@given(sheet=SHEETS, seed=st.integers(0, 99))
def test_the_order_of_the_answers_changes_nothing(room, sheet, seed):
    rows = mark(room, sheet)
    mixed = random.Random(seed).sample(rows, len(rows))
    assert bars_of(rows) == bars_of(mixed)
    assert groups_of(rows) == groups_of(mixed)
    assert verdict_on(rows) == verdict_on(mixed)


@sloppy
@given(sheet=SHEETS, label=st.sampled_from(["dup_paraphrase", "near_miss"]), silence=st.sampled_from(SILENCE))
def test_more_silence_never_raises_a_rate(room, sheet, label, silence):
    rows = mark(room, sheet)
    for before, after in zip(bars_of(rows), bars_of([*rows, *mark(room, [(label, silence)])]), strict=True):
        assert (after.rate.value or 0) <= (before.rate.value or 0)
    for before, after in zip(bars_of(rows)[:1], bars_of([*rows, *mark(room, [(label, silence)])])[:1], strict=True):
        assert (after.bound or 0) <= (before.bound or 0)


@sloppy
@given(sheet=SHEETS, place=st.integers(0, 59), silence=st.sampled_from(["unparsed", "error", "timeout"]))
def test_a_lost_answer_never_turns_a_fail_into_certified(room, sheet, place, silence):
    before = verdict_on(mark(room, sheet))[0]
    if sheet and before == "failed":
        sheet = list(sheet)
        sheet[place % len(sheet)] = (sheet[place % len(sheet)][0], silence)
        assert verdict_on(mark(room, sheet))[0] != "certified"


def test_the_worst_domain_is_the_one_least_often_right(room):
    rows = [(pair, "different" if pair.domain == "refunds" else "same") for pair in room.pairs_of(dup_paraphrase=30)]
    assert worst(groups_of(rows)["domain"]) == "refunds"
    assert worst([]) is None


def test_flips_are_counted_over_what_can_be_compared(room):
    names = ("steady", "turned", "lost its words", "never had any", "cut off")
    key = dict(zip(names, room.pairs_of(near_miss=5), strict=True))
    flips = flips_of(
        "asked again",
        {
            "steady": ["same", "same"],
            "turned": ["same", "different"],
            "lost its words": ["same", "unparsed"],
            "never had any": ["unparsed", "unparsed"],
            "cut off": ["same", "timeout"],
        },
        key,
    )
    assert (flips.pairs, flips.flips.k, flips.flips.n, flips.runs) == (5, 2, 3, 2)
    assert [(one.id, one.answers) for one in flips.changed] == [
        ("near-miss-0001", ("same", "different")),
        ("near-miss-0002", ("same", "unparsed")),
    ]
    assert (flips.agreement.k, flips.agreement.n) == (1, 3)
    assert flips_of("asked again", {}, {}) is None


def test_agreement_counts_couples_of_answers_and_takes_pairs_whole(room):
    key = dict(zip("abc", room.pairs_of(near_miss=3), strict=True))
    answers = {"a": ["same"] * 4, "b": ["same", "same", "same", "unsure"], "c": ["same", "same", "unsure", "unsure"]}
    flips = flips_of("asked again", answers, key)
    # Couples that agree: 6 of 6, 3 of 6, 2 of 6.
    assert (flips.agreement.k, flips.agreement.n, flips.agreement.clusters, flips.runs) == (11, 18, 3, 4)
    assert flips.agreement.low <= 11 / 18 <= flips.agreement.high
