"""Candidate thresholds: what was measured of a model, and what a person must be told of one that was not."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Literal

SentenceForm = Literal["canonical", "bare"]
"""'canonical': '<tool name>: <values>', the default sentence; 'bare': the values alone, as `describe` may give them."""

UNKNOWN_THRESHOLD = 0.60
"""Candidate threshold of an embedder that nobody has measured: the seed's default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredThreshold:
    """The highest threshold that keeps 99 % of the paraphrases of a set, for one form of the sentence.

    Attributes:
        form: What the sentences looked like; a threshold means nothing for the other form.
        value: Cosine, -1 to 1.
        low: Lower end of its 95 % interval.
        high: Upper end.
        unrelated_p05: 5th percentile of the cosines of unrelated pairs: a threshold that is not above it separates
            nothing.
        unrelated_passed: Share of unrelated pairs at or above `value`, 0 to 1.
        set_id: Id of the set.
    """

    form: SentenceForm
    value: float
    low: float
    high: float
    unrelated_p05: float
    unrelated_passed: float
    set_id: str


def threshold_warning(model_id: str, threshold: float | None, measured: MeasuredThreshold | None) -> str | None:
    """Return what a person must be told of a threshold when it is configured, or None.

    Args:
        model_id: The embedder's stamp.
        threshold: What somebody asks for; None for what the model brings.
        measured: What is known of the model.
    """
    if measured is None:
        if threshold is not None:
            return None
        return (
            f"{model_id}: nobody has measured this embedder, so its candidate threshold is the default "
            f"{UNKNOWN_THRESHOLD:.2f}, which may let everything through, or too little: run `gnl-semantic-qualify "
            "calibrate --fixtures pairs.json --embedder NAME` on pairs of your own, and pass the threshold that it "
            "finds as SemanticGate(min_similarity=…). NAME is the model's folder or hub name; for a function of your "
            f"own it is my_embed.py:embed, with --embed-model-id {shlex.quote(model_id)}."
        )
    taken = measured.value if threshold is None else threshold
    if taken > measured.unrelated_p05:
        return None
    way_out = (
        f"The measured one is {measured.value:.3f}."
        if measured.value > measured.unrelated_p05
        else "None that keeps the paraphrases does better: take another embedder, or leave the work to the ladder."
    )
    return (
        f"{model_id}: the candidate threshold {taken:.3g} separates nothing: 95 % of unrelated pairs have a "
        f"cosine of at least {measured.unrelated_p05:.3f} (set {measured.set_id}). {way_out}"
    )
