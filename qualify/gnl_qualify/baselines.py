"""What judges without a model score on the same pairs: the floor under every figure of a report."""

from __future__ import annotations

from collections.abc import Sequence

from gnl_fixtures import Pair
from gnl_qualify.items import identity_of
from gnl_qualify.scoring import FALSE_ALARM_LABEL, RECALL_LABEL
from gnl_qualify.stats import rate
from gnl_reports.model import Baseline
from gnl_semantic.ladder import evaluate

ALWAYS_SAME = "always same"
ALWAYS_DIFFERENT = "always different"
LADDER_ONLY = "ladder only"


def baselines_of(pairs: Sequence[Pair]) -> tuple[Baseline, ...]:
    """Return the constant judges and the rule ladder with its default rules, where only a match is SAME."""
    paraphrases = [pair for pair in pairs if pair.label == RECALL_LABEL]
    near_misses = [pair for pair in pairs if pair.label == FALSE_ALARM_LABEL]
    n, m = len(paraphrases), len(near_misses)
    return (
        Baseline(name=ALWAYS_SAME, recall=rate(n, n), false_alarms=rate(m, m)),
        Baseline(name=ALWAYS_DIFFERENT, recall=rate(0, n), false_alarms=rate(0, m)),
        Baseline(
            name=LADDER_ONLY,
            recall=rate(sum(map(_matches, paraphrases)), n),
            false_alarms=rate(sum(map(_matches, near_misses)), m),
        ),
    )


def _matches(pair: Pair) -> bool:
    return evaluate(identity_of(pair, "a").values, identity_of(pair, "b").values).outcome == "match"
