"""One pass over the pairs: cosines of both forms, the ladder's rungs, and the vectors of a sample.

A batch of vectors is all that is ever held beside the sample, whatever the number of pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gnl_core.identity import Identity
from gnl_fixtures import LABELS, FixtureSet, Label, Pair
from gnl_qualify.errors import CalibrationSetError
from gnl_qualify.items import identity_of
from gnl_qualify.sample import stratified
from gnl_semantic.embedder.port import Embedder, Vectors
from gnl_semantic.errors import EmbedderError
from gnl_semantic.ladder import evaluate
from gnl_semantic.recall import fold_key
from gnl_semantic.threshold import SentenceForm

FORMS: tuple[SentenceForm, ...] = ("canonical", "bare")
NEEDED: tuple[Label, ...] = ("dup-paraphrase", "near-miss")
"""Labels without which nothing is compared. What needs one of the others is not measured where it has no pairs."""
RUNGS = ("identity", "match", "separate", "gray")
BATCH = 128
"""Pairs whose vectors are held at one time; 2 texts each."""
SAMPLE = 2_048
"""Pairs whose vectors are kept, for threads and the mean vector: 6 MB a form at 384 dimensions."""

Progress = Callable[[str, int, int], None]
"""Told the stage, what is done of it, and all of it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Measured:
    """What the pass found; arrays have one entry a pair, in the order of the set.

    Attributes:
        fixtures: The set.
        labels: Place of the label in `LABELS`.
        cosines: By form: float32, -1 to 1.
        rungs: Place in `RUNGS` where the ladder stops.
        alike: Whether both identities fold alike, so that the exact index finds the pair.
        sample: Places of the pairs whose vectors were kept, ascending.
        vectors: By form: those of `a` and of `b`, float32, shape (len(sample), dimension) each.
    """

    fixtures: FixtureSet
    labels: NDArray[np.uint8]
    cosines: Mapping[SentenceForm, NDArray[np.float32]]
    rungs: NDArray[np.uint8]
    alike: NDArray[np.bool_]
    sample: NDArray[np.intp]
    vectors: Mapping[SentenceForm, tuple[Vectors, Vectors]]

    def of(self, *labels: Label) -> NDArray[np.bool_]:
        """Return the mask of the pairs with one of these labels."""
        return np.isin(self.labels, [LABELS.index(label) for label in labels])


async def measure(embedder: Embedder, fixtures: FixtureSet, *, seed: int, progress: Progress) -> Measured:
    """Embed every pair in both forms, once, and let the ladder look at it.

    Raises:
        CalibrationSetError: A label of `NEEDED` has no pairs.
        PairUnusableError: A value of a pair identifies no job.
        EmbedderError: The embedder failed.
    """
    pairs = fixtures.pairs
    labels = np.array([LABELS.index(pair.label) for pair in pairs], np.uint8)
    _check_labels(fixtures, labels)
    chosen = {pair.id for pair in stratified(pairs, SAMPLE, seed=seed, purpose="calibration")}
    kept = np.array([pair.id in chosen for pair in pairs])
    cosines = {form: np.empty(len(pairs), np.float32) for form in FORMS}
    rungs = np.empty(len(pairs), np.uint8)
    alike = np.empty(len(pairs), np.bool_)
    vectors: dict[SentenceForm, list[tuple[Vectors, Vectors]]] = {form: [] for form in FORMS}
    for start in range(0, len(pairs), BATCH):
        place = slice(start, min(start + BATCH, len(pairs)))
        sides = [(identity_of(pair, "a"), identity_of(pair, "b")) for pair in pairs[place]]
        for form in FORMS:
            a, b = await _embedded(embedder, sides, form)
            # Unit vectors: the cosine is the product; rounding takes it a hair over 1.
            cosines[form][place] = np.clip(np.einsum("ij,ij->i", a, b), -1, 1)
            vectors[form].append((a[kept[place]], b[kept[place]]))
        rungs[place] = [RUNGS.index(_rung(one, other)) for one, other in sides]
        alike[place] = [fold_key(one.values) == fold_key(other.values) for one, other in sides]
        progress("embedding", place.stop, len(pairs))
    return Measured(
        fixtures=fixtures,
        labels=labels,
        cosines=cosines,
        rungs=rungs,
        alike=alike,
        sample=np.flatnonzero(kept),
        vectors={form: _joined(found) for form, found in vectors.items()},
    )


def sentence_of(identity: Identity, form: SentenceForm) -> str:
    """Return the sentence that is embedded: the canonical one, or the bare values."""
    return identity.sentence if form == "canonical" else " ".join(filter(None, identity.values.values()))


async def _embedded(
    embedder: Embedder, sides: Sequence[tuple[Identity, Identity]], form: SentenceForm
) -> tuple[Vectors, Vectors]:
    texts = [sentence_of(pair[side], form) for side in (0, 1) for pair in sides]
    vectors = await embedder.embed(texts)
    if len(vectors) != len(texts) or not np.isfinite(vectors).all():
        raise EmbedderError(
            f"{embedder.model_id} returned {len(vectors)} vectors for {len(texts)} texts, or some that are not finite"
        )
    return vectors[: len(sides)], vectors[len(sides) :]


def _joined(found: Sequence[tuple[Vectors, Vectors]]) -> tuple[Vectors, Vectors]:
    return np.concatenate([a for a, _ in found]), np.concatenate([b for _, b in found])


def _check_labels(fixtures: FixtureSet, labels: NDArray[np.uint8]) -> None:
    missing = [label for label in NEEDED if not (labels == LABELS.index(label)).any()]
    if missing:
        raise CalibrationSetError(
            f"set {fixtures.name}: no pair is labelled {' or '.join(missing)}: a calibration needs at least one pair "
            f"of each of {' and '.join(NEEDED)}; add pairs of the missing kind. The threshold is fitted to the "
            "paraphrases: about 370 of them give its interval both ends",
            missing=missing,
        )


def _rung(one: Identity, other: Identity) -> str:
    """Return where the runtime's order of rungs stops."""
    return "identity" if one.values == other.values else evaluate(one.values, other.values).outcome


def rule_of(pair: Pair) -> str:
    """Return the rules that settle a pair, for a list that a person reads; 'identity' where the values are equal."""
    one, other = identity_of(pair, "a"), identity_of(pair, "b")
    traces = evaluate(one.values, other.values).traces
    return (
        "identity" if one.values == other.values else ", ".join(f"{trace.direction}: {trace.rule}" for trace in traces)
    )
