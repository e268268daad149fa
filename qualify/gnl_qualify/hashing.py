"""An embedder without a model: hashed pieces of words. For tests, and to try the program where no model runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gnl_core.errors import MissingExtraError
from gnl_semantic.embedder.port import EmbedderProfile, Vectors

try:
    from sklearn.feature_extraction.text import HashingVectorizer
except ImportError:
    raise MissingExtraError("the hashing embedder", "qualify") from None

DIMENSION = 256


class HashingEmbedder:
    """Counts pieces of three characters: equal spelling is near, meaning is unknown. Deterministic and quick."""

    def __init__(self) -> None:
        self._vectorizer = HashingVectorizer(
            analyzer="char_wb",
            ngram_range=(3, 3),
            n_features=DIMENSION,
            norm=None,
            lowercase=False,
            alternate_sign=False,
            dtype=np.float32,
        )

    @property
    def model_id(self) -> str:
        """The stamp of its vectors."""
        return "test:hashing@1"

    @property
    def profile(self) -> EmbedderProfile:
        """Nothing was measured about it."""
        return EmbedderProfile(dimension=DIMENSION)

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Return one row of length 1 a text: float32, shape (len(texts), `DIMENSION`)."""
        if not texts:
            return np.empty((0, DIMENSION), np.float32)
        counts = self._vectorizer.transform(texts).toarray()
        # A text too short for any piece still needs a direction.
        counts[~counts.any(axis=1), 0] = 1
        vectors: Vectors = (counts / np.linalg.norm(counts, axis=1, keepdims=True)).astype(np.float32)
        return vectors
