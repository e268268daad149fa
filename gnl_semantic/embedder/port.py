"""What the rest of the project knows of an embedder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from gnl_semantic.threshold import UNKNOWN_THRESHOLD, MeasuredThreshold, SentenceForm

Vectors = NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedderProfile:
    """What was measured about a model, and how texts must be handed to it.

    Attributes:
        dimension: Length of a vector.
        prefix: Put in front of each text by the embedder itself, never by its caller.
        max_tokens: Longer texts are cut to this many tokens, special ones included.
        candidate_threshold: Cosine below which two sentences are no candidates, -1 to 1.
        threshold_measured: Whether the threshold was measured for this model; if not it is `UNKNOWN_THRESHOLD`.
        measured: What was measured, a form of the sentence each; `candidate_threshold` belongs to 'canonical'.
    """

    dimension: int
    prefix: str = ""
    max_tokens: int = 512
    candidate_threshold: float = UNKNOWN_THRESHOLD
    threshold_measured: bool = False
    measured: tuple[MeasuredThreshold, ...] = ()

    def threshold_for(self, form: SentenceForm) -> float:
        """Return the threshold of a form of the sentence: 'bare' has its own where one was measured."""
        own = next((one.value for one in self.measured if one.form == form), self.candidate_threshold)
        return self.candidate_threshold if form == "canonical" else own


@runtime_checkable
class Embedder(Protocol):
    """Turns texts into unit vectors.

    `model_id` is the stamp of its vectors: model and quantisation. Vectors of two stamps are never compared.
    """

    @property
    def model_id(self) -> str:
        """The stamp, for instance 'local:multilingual-e5-small@q4'."""
        ...

    @property
    def profile(self) -> EmbedderProfile:
        """What was measured about the model."""
        ...

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Return one row of length 1 a text: float32, shape (len(texts), dimension), in the order of the texts.

        Raises:
            EmbedderError: The model failed. Never a half-filled result.
        """
        ...
