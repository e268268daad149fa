"""A first look at an embedder on labelled pairs: where the cosines lie, and what the ladder settles before them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from gnl_core.errors import MissingExtraError
from gnl_fixtures import LABELS, FixtureSet, Pair
from gnl_qualify.items import identity_of
from gnl_qualify.stats import rate
from gnl_semantic.embedder.port import Embedder
from gnl_semantic.ladder import evaluate
from gnl_semantic.rate import Rate

try:
    import numpy as np
    from sklearn.metrics import roc_auc_score
except ImportError:
    # Raised when the table is asked for, not after every text was embedded.
    raise MissingExtraError("calibrating", "qualify") from None

LEVELS = (0.60, 0.80, 0.85, 0.90)
"""Cosines at or above which the share of pairs is given; the first is the candidate threshold of unknown embedders."""
BATCH = 64
"""Pairs whose vectors are held at one time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CosineRow:
    """Cosines of one label's pairs.

    Attributes:
        label: Of the pairs.
        n: How many.
        mean: Of the cosines, -1 to 1.
        median: Of the cosines.
        at_least: Share of pairs by level of `LEVELS`.
    """

    label: str
    n: int
    mean: float
    median: float
    at_least: Mapping[str, Rate]


@dataclass(frozen=True, slots=True, kw_only=True)
class LadderRow:
    """What the rule ladder makes of a group of pairs; the four counts add up to `n`."""

    name: str
    n: int
    identity_equal: int
    matched: int
    separated: int
    gray: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedderTable:
    """The whole table.

    Attributes:
        embedder: Stamp of the embedder.
        set_name: Name of the set.
        set_id: Its id.
        pairs: Number of pairs.
        cosines: A row a label.
        auc_paraphrase_near_miss: Area under the ROC curve, 0 to 1, of the cosine as a sign that a pair is
            dup-paraphrase and not near-miss; 0.5 is chance. None where one of the labels has no pairs.
        auc_same_different: The same for one job against two.
        ladder_by_label: The ladder's work, a row a label.
        ladder_by_language: The same, a row a label and language.
    """

    embedder: str
    set_name: str
    set_id: str
    pairs: int
    cosines: tuple[CosineRow, ...]
    auc_paraphrase_near_miss: float | None
    auc_same_different: float | None
    ladder_by_label: tuple[LadderRow, ...]
    ladder_by_language: tuple[LadderRow, ...]

    def to_json(self) -> dict[str, object]:
        """Return the table as JSON-representable values."""
        return asdict(self)


async def embedder_table(embedder: Embedder, fixtures: FixtureSet) -> EmbedderTable:
    """Measure an embedder, and the ladder with its default rules, on a labelled set.

    Raises:
        EmbedderError: The embedder failed.
        PairUnusableError: A value of a pair identifies no job.
    """
    cosines = await _cosines(embedder, fixtures.pairs)
    by_label = {label: cosines[[pair.label == label for pair in fixtures.pairs]] for label in LABELS}
    same = np.array([pair.same_job for pair in fixtures.pairs])
    rungs = [(pair, _rung(pair)) for pair in fixtures.pairs]
    return EmbedderTable(
        embedder=embedder.model_id,
        set_name=fixtures.name,
        set_id=fixtures.set_id,
        pairs=len(fixtures.pairs),
        cosines=tuple(_cosine_row(label, values) for label, values in by_label.items() if len(values)),
        auc_paraphrase_near_miss=_auc(by_label["dup-paraphrase"], by_label["near-miss"]),
        auc_same_different=_auc(cosines[same], cosines[~same]),
        ladder_by_label=_ladder_rows(rungs, lambda pair: pair.label),
        ladder_by_language=_ladder_rows(rungs, lambda pair: f"{pair.label}, {pair.lang}"),
    )


async def _cosines(embedder: Embedder, pairs: Sequence[Pair]) -> np.ndarray:
    """Return one cosine a pair; the vectors are dropped batch by batch."""
    found = np.empty(len(pairs))
    for start in range(0, len(pairs), BATCH):
        batch = pairs[start : start + BATCH]
        texts = [identity_of(pair, side).sentence for side in ("a", "b") for pair in batch]
        vectors = await embedder.embed(texts)
        # Unit vectors: the cosine is the product.
        found[start : start + len(batch)] = np.einsum("ij,ij->i", vectors[: len(batch)], vectors[len(batch) :])
    return found


def _cosine_row(label: str, cosines: np.ndarray) -> CosineRow:
    return CosineRow(
        label=label,
        n=len(cosines),
        mean=float(np.mean(cosines)),
        median=float(np.median(cosines)),
        at_least={f"{level:.2f}": rate(int((cosines >= level).sum()), len(cosines)) for level in LEVELS},
    )


def _auc(positive: np.ndarray, negative: np.ndarray) -> float | None:
    if not len(positive) or not len(negative):
        return None
    truth = np.concatenate([np.ones(len(positive)), np.zeros(len(negative))])
    return float(roc_auc_score(truth, np.concatenate([positive, negative])))


def _rung(pair: Pair) -> str:
    """Return where the runtime's order of rungs stops with this pair."""
    a, b = identity_of(pair, "a").values, identity_of(pair, "b").values
    return "identity" if a == b else evaluate(a, b).outcome


def _ladder_rows(rungs: Iterable[tuple[Pair, str]], name: Callable[[Pair], str]) -> tuple[LadderRow, ...]:
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for pair, rung in rungs:
        counts[name(pair)][rung] += 1
    return tuple(
        LadderRow(
            name=group,
            n=found.total(),
            identity_equal=found["identity"],
            matched=found["match"],
            separated=found["separate"],
            gray=found["gray"],
        )
        for group, found in sorted(counts.items())
    )
