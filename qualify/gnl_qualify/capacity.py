"""What a set of a given size can prove about a judge and what not, said before the first question is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count

from scipy.stats import binom

from gnl_fixtures import FixtureSet
from gnl_qualify.scoring import FALSE_ALARM_LABEL, FALSE_ALARMS, RECALL, RECALL_LABEL
from gnl_qualify.stats import lower_bound, upper_bound
from gnl_reports.model import Capacity, Chance
from gnl_semantic.judge.certificate import MAX_NEAR_MISS_FALSE_ALARMS, MIN_ANSWERED, MIN_PARAPHRASE_RECALL

_TRUE_RECALLS = (0.60, 0.70, 0.75, 0.80, 0.90)
_TRUE_FALSE_ALARMS = (0.01, 0.02, 0.03, 0.05, 0.08)


def capacity_of(paraphrases: int, near_misses: int) -> tuple[Capacity, Capacity]:
    """Return what so many pairs can show of either bar, if every one of them is answered.

    The chances are those of a judge whose answers are independent with one true rate: sums of the binomial
    distribution of `scipy.stats.binom`.

    Args:
        paraphrases: dup-paraphrase pairs of the set, at least 0.
        near_misses: near-miss pairs of the set, at least 0.
    """
    return _recall(paraphrases), _false_alarms(near_misses)


def sentences(fixtures: FixtureSet) -> Iterator[str]:
    """Yield what a reader should know before the exam is sat, a line each."""
    labels: list[str] = [pair.label for pair in fixtures.pairs]
    for part in capacity_of(labels.count(RECALL_LABEL), labels.count(FALSE_ALARM_LABEL)):
        yield part.sentence


def _recall(n: int) -> Capacity:
    provisional = _first(n, lambda k: k >= MIN_PARAPHRASE_RECALL * n - 1e-9) if n >= MIN_ANSWERED else None
    certified = _first(n, lambda k: (lower_bound(k, n) or 0.0) >= MIN_PARAPHRASE_RECALL)
    if provisional is None:
        certified = None
    return Capacity(
        name=RECALL,
        label=RECALL_LABEL,
        direction="at-least",
        limit=MIN_PARAPHRASE_RECALL,
        n=n,
        least_provisional=MIN_ANSWERED,
        least_certified=next(m for m in count(MIN_ANSWERED) if (lower_bound(m, m) or 0.0) >= MIN_PARAPHRASE_RECALL),
        provisional=provisional,
        certified=certified,
        chances=tuple(
            Chance(true=p, provisional=_at_least(provisional, n, p), certified=_at_least(certified, n, p))
            for p in _TRUE_RECALLS
        ),
    )


def _false_alarms(n: int) -> Capacity:
    provisional = int(MAX_NEAR_MISS_FALSE_ALARMS * n + 1e-9) if n >= MIN_ANSWERED else None
    limit = MAX_NEAR_MISS_FALSE_ALARMS
    # The bound grows with the alarms: the first that breaks it is one past the last that is allowed.
    broken = _first(n, lambda k: (upper_bound(k, n) or 1.0) > limit) if provisional is not None else 0
    certified = broken - 1 if broken else None
    return Capacity(
        name=FALSE_ALARMS,
        label=FALSE_ALARM_LABEL,
        direction="at-most",
        limit=limit,
        n=n,
        least_provisional=MIN_ANSWERED,
        least_certified=next(m for m in count(MIN_ANSWERED) if (upper_bound(0, m) or 1.0) <= limit),
        provisional=provisional,
        certified=certified,
        chances=tuple(
            Chance(true=p, provisional=_at_most(provisional, n, p), certified=_at_most(certified, n, p))
            for p in _TRUE_FALSE_ALARMS
        ),
    )


def _first(n: int, holds: Callable[[int], bool]) -> int | None:
    return next((k for k in range(n + 1) if holds(k)), None)


def _at_least(k: int | None, n: int, p: float) -> float:
    return 0.0 if k is None else float(binom.sf(k - 1, n, p))


def _at_most(k: int | None, n: int, p: float) -> float:
    return 0.0 if k is None else float(binom.cdf(k, n, p))
