"""What judges without a model score on the same pairs: the floor under every figure of a report."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gnl_fixtures import Pair
from gnl_qualify.items import identity_of
from gnl_qualify.paired import paired
from gnl_qualify.scoring import FALSE_ALARM_LABEL, RECALL_LABEL
from gnl_qualify.stats import rate
from gnl_reports.model import Baseline, Paired
from gnl_semantic.ladder import evaluate
from gnl_semantic.rate import Rate

ALWAYS_SAME = "always same"
ALWAYS_DIFFERENT = "always different"
LADDER_ONLY = "ladder only"


def baselines_of(pairs: Sequence[Pair], same: Sequence[bool] | None = None) -> tuple[Baseline, ...]:
    """Return the constant judges and the rule ladder with its default rules, where only a match is SAME.

    Args:
        pairs: What was put.
        same: Whether the judge said SAME to each of them; None leaves out the comparison with the judge.
    """
    return tuple(
        _baseline(name, pairs, same, answer)
        for name, answer in (
            (ALWAYS_SAME, lambda _: True),
            (ALWAYS_DIFFERENT, lambda _: False),
            (LADDER_ONLY, _matches),
        )
    )


def _baseline(
    name: str, pairs: Sequence[Pair], same: Sequence[bool] | None, answer: Callable[[Pair], bool]
) -> Baseline:
    rates: list[Rate] = []
    differences: list[Paired | None] = []
    for label in (RECALL_LABEL, FALSE_ALARM_LABEL):
        places = [place for place, pair in enumerate(pairs) if pair.label == label]
        own = [answer(pairs[place]) for place in places]
        rates.append(rate(sum(own), len(own)))
        differences.append(None if same is None else paired([same[place] for place in places], own))
    return Baseline(
        name=name,
        recall=rates[0],
        false_alarms=rates[1],
        recall_difference=differences[0],
        false_alarm_difference=differences[1],
    )


def _matches(pair: Pair) -> bool:
    return evaluate(identity_of(pair, "a").values, identity_of(pair, "b").values).outcome == "match"
