"""Vectors that know which model made them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gnl_semantic.embedder.port import Vectors
from gnl_semantic.errors import StampMismatchError


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stamped:
    """Unit vectors of one model.

    Attributes:
        model_id: The stamp of the embedder that made them.
        vectors: float32, shape (n, dimension), rows of length 1.
    """

    model_id: str
    vectors: Vectors


def cosine(a: Stamped, b: Stamped) -> Vectors:
    """Return the cosine of each row of `a` with each row of `b`: float32, shape (len(a), len(b)), -1 to 1.

    Raises:
        StampMismatchError: The two come from different models, or their vectors differ in length.
    """
    if a.model_id != b.model_id:
        raise StampMismatchError(
            f"Vectors of {a.model_id!r} cannot be compared with vectors of {b.model_id!r}: embed both texts with one "
            "model.",
            stamps=[a.model_id, b.model_id],
        )
    if a.vectors.shape[1] != b.vectors.shape[1]:
        raise StampMismatchError(
            f"Vectors stamped {a.model_id!r} have {a.vectors.shape[1]} and {b.vectors.shape[1]} dimensions: one of the "
            "two was not made by that model.",
            stamps=[a.model_id, b.model_id],
        )
    # Rounding takes a text's cosine with itself a hair over 1.
    scores: Vectors = np.clip(a.vectors @ b.vectors.T, -1.0, 1.0)
    return scores
