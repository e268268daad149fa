"""Cross-validate by author, domain and shape of near-miss, and choose the thresholds.

The threshold of SAME is the one that the worst of either author group, all domains together and all shapes together
allows. It was chosen on these figures: they flatter it.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gnl_qualify.stats import rate
from gnl_qualify.train.fit import MADE_WEIGHT, Fitted, curve, dump
from gnl_qualify.train.rows import Table
from gnl_semantic.judge.local.atoms import lexicon_bytes
from gnl_semantic.judge.local.features import NAMES
from gnl_semantic.judge.local.model import FORMAT
from gnl_semantic.judge.local.scripts import main_scripts, scripts_of_languages

_log = logging.getLogger(__name__)

MOST_FALSE_ALARMS = 0.02
"""Share of near-misses that may be called SAME in the worst of the splits by author, by domain and by shape."""
LEAST_RECALL = 0.4
"""Recall of a language's paraphrases, by author, from which the judge answers in its script."""
MOST_MISSED = 0.05
"""Share of paraphrases that may be called DIFFERENT; what lies between the two thresholds is UNSURE."""
SHAPES: Mapping[str, frozenset[str]] = {
    "numbers": frozenset({
        "neighbour-number", "transposed-digits", "digit-regrouping", "decimal", "quantity", "capacity", "unit-change",
    }),
    "codes": frozenset({"size-ladder", "suffix-letter", "model-variant", "other-code", "edition"}),
    "parts": frozenset({"other-part", "colour", "material"}),
    "people": frozenset({"sibling-company", "similar-person", "other-role"}),
    "places": frozenset({"other-site", "other-period"}),
    "opposites": frozenset({"negation-cancel", "opposite-direction"}),
}  # fmt: skip
"""Near-misses of one shape are tested by a judge that was trained without it."""
_Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class _Labels:
    same: _Mask
    paraphrase: _Mask
    near_miss: _Mask
    asked: _Mask
    source: NDArray[np.int_]


def train(table: Table, *, trained_on: str, embedder: str) -> tuple[bytes, dict[str, object]]:
    """Return the parameter file and the figures of the cross-validation."""
    labels = _labels(table)
    sums = {name: _held_out(table, labels, list(folds)) for name, folds in _splits(table).items()}
    slope, intercept = curve(sums["author"][: len(table.pairs)][labels.asked], labels.same[labels.asked])
    probability = {name: 1 / (1 + np.exp(-(slope * sum_ + intercept))) for name, sum_ in sums.items()}
    same_from = _threshold(table, labels, probability)
    paraphrases = probability["author"][: len(table.pairs)][labels.paraphrase]
    different_below = min(float(np.floor(np.quantile(paraphrases, MOST_MISSED) * 100)) / 100, same_from)
    figures = _figures(table, labels, probability, same_from)
    by_language: Mapping[str, Mapping[str, tuple[int, int]]] = figures["author, by language"]  # type: ignore[assignment]
    held = [
        language
        for language, one in by_language.items()
        if language != "mixed" and one["recall"][0] >= LEAST_RECALL * one["recall"][1]
    ]
    final = fit_all(table)
    head = {
        "v": FORMAT,
        "trained_on": trained_on,
        "embedder": embedder,
        "lexicon_sha256": hashlib.sha256(lexicon_bytes()).hexdigest(),
        "features": NAMES,
        "scripts": sorted(scripts_of_languages(held) - {"Kana"}),
        "languages": held,
        "same_from": same_from,
        "different_below": different_below,
        "slope": slope,
        "intercept": intercept,
        "start": final.start,
    }
    return dump(head, final.trees), figures


def fit_all(table: Table) -> Fitted:
    """Return the trees that ship: fitted to every pair."""
    return Fitted(table.features, *_targets(_labels(table), np.ones(len(table.pairs), dtype=bool)))


def _labels(table: Table) -> _Labels:
    labels = np.array([pair.label for pair in table.pairs])
    asked = np.array([_one_script(pair.a, pair.b) for pair in table.pairs])
    source = np.array([made.source for made in table.made], dtype=int)
    paraphrase, near_miss = labels == "dup-paraphrase", labels == "near-miss"
    return _Labels(paraphrase | (labels == "dup-exact"), paraphrase, near_miss, asked, source)


def _one_script(a: str, b: str) -> bool:
    one, other = main_scripts(a), main_scripts(b)
    return one == other or not (one and other)


def _targets(labels: _Labels, chosen: _Mask) -> tuple[_Mask, NDArray[np.float64]]:
    made = chosen[labels.source]
    same = np.concatenate([labels.same[chosen], np.zeros(made.sum(), dtype=bool)])
    return same, np.concatenate([np.ones(chosen.sum()), np.full(made.sum(), MADE_WEIGHT)])


def _held_out(table: Table, labels: _Labels, folds: list[_Mask]) -> NDArray[np.float64]:
    """Return the sums of pairs by judges that were trained without their fold; NaN where a pair is in none."""
    sums = np.full(len(table.features), np.nan)
    for test in folds:
        chosen = ~test
        rows = np.concatenate([chosen, chosen[labels.source]])
        fitted = Fitted(table.features[rows], *_targets(labels, chosen))
        tested = np.concatenate([test, test[labels.source]])
        sums[tested] = fitted.sums(table.features[tested])
        _log.info("fold of %d pairs", test.sum())
    return sums


def _splits(table: Table) -> dict[str, Iterator[_Mask]]:
    authors = np.array([pair.id.partition("-")[0] for pair in table.pairs])
    domains = np.array([pair.domain for pair in table.pairs])
    near = np.array([pair.label == "near-miss" for pair in table.pairs])
    return {
        "author": (authors == author for author in np.unique(authors)),
        "domain": (domains == domain for domain in np.unique(domains)),
        "shape": (
            near & np.array([bool(shape.intersection(pair.phenomena)) for pair in table.pairs])
            for shape in SHAPES.values()
        ),
    }


def _threshold(table: Table, labels: _Labels, probability: Mapping[str, NDArray[np.float64]]) -> float:
    """Return the least probability, in hundredths, at which no author group and no split has too many false alarms."""
    authors = np.array([pair.id.partition("-")[0] for pair in table.pairs])
    groups = [(probability[split], labels.near_miss) for split in ("author", "domain", "shape")]
    groups += [(probability["author"], labels.near_miss & (authors == author)) for author in np.unique(authors)]
    for hundredths in range(30, 100):
        alarms = [((p[: len(near)] >= hundredths / 100) & near & labels.asked).sum() / near.sum() for p, near in groups]
        if max(alarms) <= MOST_FALSE_ALARMS:
            return hundredths / 100
    raise ValueError("no threshold keeps false alarms low enough")


def _figures(
    table: Table, labels: _Labels, probability: Mapping[str, NDArray[np.float64]], same_from: float
) -> dict[str, object]:
    n = len(table.pairs)
    languages = np.array([pair.lang for pair in table.pairs])
    kinds = np.array([made.kind for made in table.made])
    alarm = {
        name: np.concatenate([(p[:n] >= same_from) & labels.asked, p[n:] >= same_from])
        for name, p in probability.items()
    }

    def count(split: str, mask: _Mask) -> tuple[int, int]:
        return int(alarm[split][:n][mask].sum()), int(mask.sum())

    figures: dict[str, object] = {"same_from": same_from}
    for split in ("author", "domain"):
        recall, alarms = count(split, labels.paraphrase), count(split, labels.near_miss)
        figures[split] = {
            "recall": recall, "recall interval": _interval(recall),
            "false alarms": alarms, "false alarms interval": _interval(alarms),
            "unrelated": count(split, ~labels.same & ~labels.near_miss),
            "made": {
                kind: (int(alarm[split][n:][kinds == kind].sum()), int((kinds == kind).sum()))
                for kind in sorted(set(kinds))
            },
        }  # fmt: skip
    figures["shape, false alarms"] = {
        shape: count(
            "shape", labels.near_miss & np.array([bool(members.intersection(p.phenomena)) for p in table.pairs])
        )
        for shape, members in SHAPES.items()
    }
    for name, values in (("author group", [p.id.partition("-")[0] for p in table.pairs]), ("language", languages)):
        figures[f"author, by {name}"] = {
            value: {
                "recall": count("author", labels.paraphrase & (np.array(values) == value)),
                "false alarms": count("author", labels.near_miss & (np.array(values) == value)),
            }
            for value in map(str, np.unique(values))
        }
    return figures


def _interval(counts: tuple[int, int]) -> tuple[float, float]:
    one = rate(*counts)
    return round(one.low or 0.0, 3), round(one.high or 1.0, 3)
