"""From answers to numbers, gates and a diagnosis: pure functions.

How answers count: an unparsed or failed answer is never credited, and stays in every denominator. The false-alarm rate
therefore predicts what operators will meet. It is not what earns the word 'certified', though: its bound is taken over
the answered pairs alone, so that silence proves nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import comb
from typing import Literal

from gnl_fixtures import LABELS, Pair
from gnl_qualify.clustered import clustered
from gnl_qualify.stats import lower_bound, rate, upper_bound
from gnl_qualify.transcript import Answer
from gnl_reports.model import Bar, Clustered, Counts, FlippedPair, Flips, Group, Grouping, Status
from gnl_semantic.judge.certificate import MAX_NEAR_MISS_FALSE_ALARMS, MIN_ANSWERED, MIN_PARAPHRASE_RECALL
from gnl_semantic.judge.verdict import Verdict, parse_verdict
from gnl_semantic.rate import Rate

Outcome = Literal["same", "different", "unsure", "unparsed", "error", "timeout"]
Marked = tuple[Pair, Outcome]
"""A pair and what the judge made of it in the main round."""

RECALL = "paraphrase recall"
FALSE_ALARMS = "near-miss false alarms"
RECALL_LABEL = "dup-paraphrase"
FALSE_ALARM_LABEL = "near-miss"
DIAGNOSIS_SHARE = 0.5
"""From this share of failed calls (unparsed answers) on, the transport (the format) is named as the first cause."""


def outcome_of(answer: Answer) -> Outcome:
    """Return how one answer counts. The text is parsed anew: a transcript's own verdict is not taken on trust."""
    if answer.error == "judge_timeout":
        return "timeout"
    if answer.error is not None or answer.text is None:
        return "error"
    verdict = parse_verdict(answer.text)
    return "unparsed" if verdict is None else verdict.value


def expected(pair: Pair) -> Verdict:
    """Return the one verdict that is right: 'unsure' never is."""
    return Verdict.SAME if pair.same_job else Verdict.DIFFERENT


def count(marked: Iterable[Marked]) -> Counts:
    """Return the answers by kind; they add up to the pairs put."""
    kinds = Counter(str(outcome) for _, outcome in marked)
    return Counts(**kinds)


def bars_of(marked: Sequence[Marked]) -> tuple[Bar, Bar]:
    """Return both bars as measured: paraphrase recall, then near-miss false alarms. dup-exact counts for neither."""
    of = {label: count(m for m in marked if m[0].label == label) for label in (RECALL_LABEL, FALSE_ALARM_LABEL)}
    paraphrases, near_misses = of[RECALL_LABEL], of[FALSE_ALARM_LABEL]
    recall = rate(paraphrases.same, paraphrases.put)
    low = lower_bound(paraphrases.same, paraphrases.put)
    alarms = rate(near_misses.same, near_misses.put)
    high = upper_bound(near_misses.same, near_misses.answered)
    return (
        Bar(
            name=RECALL,
            rate=recall,
            limit=MIN_PARAPHRASE_RECALL,
            direction="at-least",
            bound=low,
            answered=paraphrases.answered,
            passed=recall.value is not None and recall.value >= MIN_PARAPHRASE_RECALL,
            certified=low is not None and low >= MIN_PARAPHRASE_RECALL,
            by_domain=_by_domain(marked, RECALL_LABEL),
        ),
        Bar(
            name=FALSE_ALARMS,
            rate=alarms,
            limit=MAX_NEAR_MISS_FALSE_ALARMS,
            direction="at-most",
            bound=high,
            answered=near_misses.answered,
            passed=alarms.value is not None and alarms.value <= MAX_NEAR_MISS_FALSE_ALARMS,
            certified=high is not None and high <= MAX_NEAR_MISS_FALSE_ALARMS,
            by_domain=_by_domain(marked, FALSE_ALARM_LABEL),
        ),
    )


def _by_domain(marked: Iterable[Marked], label: str) -> Clustered:
    domains: defaultdict[str, list[bool]] = defaultdict(list)
    for pair, outcome in marked:
        if pair.label == label:
            domains[pair.domain].append(outcome == "same")
    # Sorted, so that the order of the exam does not move the bootstrap.
    return clustered((sum(domains[name]), len(domains[name])) for name in sorted(domains))


def judge_bars(bars: tuple[Bar, Bar]) -> list[str]:
    """Return why the bars do not hold, in words; empty where both do."""
    return [
        reason
        for bar, label in zip(bars, (RECALL_LABEL, FALSE_ALARM_LABEL), strict=True)
        for reason in _fails(bar, label)
    ]


def _fails(bar: Bar, label: str) -> list[str]:
    if bar.rate.n == 0:
        return [f"{bar.name}: the set has no {label} pairs, and a rate over zero pairs is no pass"]
    reasons = []
    if bar.answered < MIN_ANSWERED:
        reasons.append(
            f"{bar.name}: {bar.answered} answered of {bar.rate.n} {label} pairs, at least {MIN_ANSWERED} are needed"
        )
    if not bar.passed:
        word = "at least" if bar.direction == "at-least" else "at most"
        reasons.append(f"{bar.name}: {bar.rate}, required {word} {bar.limit:.2f}")
    return reasons


def diagnose(marked: Sequence[Marked], faults: Sequence[Answer]) -> list[str]:
    """Return what went wrong before the judge could be measured: transport first, then format.

    Half of the calls or more must have failed, or half or more of the answers that came be unparsed; a few of either
    are the judge's own score.

    Args:
        marked: Pairs and outcomes of the main round.
        faults: The failed answers, for the commonest cause.
    """
    counts = count(marked)
    failed = counts.error + counts.timeout
    came = counts.put - failed
    reasons = []
    if counts.put and failed >= DIAGNOSIS_SHARE * counts.put:
        causes = Counter(answer.error or "judge_failed" for answer in faults).most_common()
        named = ", ".join(f"{code} {n}" for code, n in causes)
        example = next(
            (fault.message for fault in faults if fault.error == causes[0][0] and fault.message), "no message"
        )
        reasons.append(
            f"transport failure: {failed} of {counts.put} calls failed ({named}), for instance: {example[:160]}; this "
            "measures the way to the judge, not the judge: mend it, ask fewer at a time or allow more time, and sit "
            "the exam again"
        )
    if came and counts.unparsed >= DIAGNOSIS_SHARE * came:
        reasons.append(
            f"format failure: {counts.unparsed} of {came} answers are not one of the words SAME, DIFFERENT, UNSURE; "
            "a model that reasons aloud needs that switched off, or kept apart from its answer"
        )
    return reasons


def status_of(bars: tuple[Bar, Bar], diagnosis: Sequence[str]) -> tuple[Status, tuple[str, ...]]:
    """Return the status and its reasons, the weightiest first; never without one."""
    faults = [*diagnosis, *judge_bars(bars)]
    if faults:
        return "failed", tuple(faults)
    unproven = [
        f"the one-sided 95 % bound of {bar.name} is {bar.bound:.3f}, 'certified' needs "
        f"{'at least' if bar.direction == 'at-least' else 'at most'} {bar.limit:.2f}: put more pairs"
        for bar in bars
        if not bar.certified
    ]
    if unproven:
        return "provisional", ("both bars hold as point estimates", *unproven)
    return "certified", ("both bars hold, and so do their one-sided 95 % bounds",)


def groups_of(marked: Sequence[Marked]) -> dict[Grouping, tuple[Group, ...]]:
    """Return the tables by label, language, domain and phenomenon; a pair stands under each of its phenomena."""
    labels = tuple(group for label in LABELS for group in _table([m for m in marked if m[0].label == label], _label))
    return {
        "label": labels,
        "language": _table(marked, lambda pair: (pair.lang,)),
        "domain": _table(marked, lambda pair: (pair.domain,)),
        "phenomenon": _table(marked, lambda pair: tuple(dict.fromkeys(pair.phenomena))),
    }


def worst(groups: Sequence[Group]) -> str | None:
    """Return the group with the lowest share of right answers, the larger one of equals."""
    ranked = sorted(groups, key=lambda group: (group.right.value or 0.0, -group.right.n, group.name))
    return ranked[0].name if ranked else None


def _label(pair: Pair) -> tuple[str, ...]:
    return (pair.label,)


def _table(marked: Sequence[Marked], names: Callable[[Pair], tuple[str, ...]]) -> tuple[Group, ...]:
    rows: dict[str, list[Marked]] = {}
    for mark in marked:
        for name in names(mark[0]):
            rows.setdefault(name, []).append(mark)
    return tuple(_group(name, rows[name]) for name in sorted(rows))


def _group(name: str, marked: Sequence[Marked]) -> Group:
    right = sum(outcome == expected(pair).value for pair, outcome in marked)
    return Group(
        name=name,
        counts=count(marked),
        right=rate(right, len(marked)),
        recall=_same(marked, RECALL_LABEL),
        false_alarms=_same(marked, FALSE_ALARM_LABEL),
    )


def _same(marked: Sequence[Marked], label: str) -> Rate | None:
    counts = count(m for m in marked if m[0].label == label)
    return rate(counts.same, counts.put) if counts.put else None


def flips_of(what: str, outcomes: Mapping[str, Sequence[Outcome]], key: Mapping[str, Pair]) -> Flips | None:
    """Return how many pairs changed their answer, or None where none was asked more than once.

    A pair with a failed call, or without one parsed answer, cannot be compared and leaves the denominator of the rate;
    an unparsed answer beside a parsed one is another answer. Agreement counts couples of answers to one pair, as the
    observed agreement of J. L. Fleiss, "Measuring nominal scale agreement among many raters", Psychological Bulletin 76
    (1971), 378-382, does.

    Args:
        what: What alone was changed between the questions.
        outcomes: All outcomes by item, the main round's first.
        key: The pair of each item.
    """
    if not outcomes:
        return None
    comparable = {
        item: answers
        for item, answers in outcomes.items()
        if not {"error", "timeout"} & set(answers) and set(answers) != {"unparsed"}
    }
    changed = [item for item, answers in comparable.items() if len(set(answers)) > 1]
    return Flips(
        what=what,
        pairs=len(outcomes),
        flips=rate(len(changed), len(comparable)),
        runs=max(map(len, outcomes.values())),
        agreement=clustered(
            (sum(comb(n, 2) for n in Counter(comparable[item]).values()), comb(len(comparable[item]), 2))
            for item in sorted(comparable)
        ),
        changed=tuple(
            FlippedPair(id=pair.id, domain=pair.domain, label=pair.label, answers=tuple(comparable[item]))
            for item in changed
            for pair in (key[item],)
        ),
    )
