"""Which records are candidates for a repeat, and which one gray pair a judge would see. Pure: arrays in, places out.

A cosine only proposes. On labelled pairs it does not tell a repeat from a look-alike, so what the ladder can settle
must not hang on it: records whose values fold alike are candidates whatever their cosine.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gnl_semantic.embedder.port import Vectors
from gnl_semantic.ladder import evaluate_field, ladder_fold

TOP_K = 3
"""Candidates by cosine: the seed's default."""

FoldKey = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A record worth a look.

    Attributes:
        row: Its row in the matrix of vectors.
        score: Cosine with the new call, -1 to 1.
        exact: Whether its values fold like those of the new call; then the cosine did not matter.
    """

    row: int
    score: float
    exact: bool


class ExactIndex:
    """Finds records by the ladder fold of their identity, whatever their vectors say.

    Equal identities have equal folds, so that one index serves both rungs.
    """

    def __init__(self) -> None:
        self._rows: defaultdict[FoldKey, list[int]] = defaultdict(list)

    def add(self, row: int, values: Mapping[str, str]) -> None:
        """Note that the record in `row` has this identity, normalised value by key."""
        self._rows[fold_key(values)].append(row)

    def find(self, values: Mapping[str, str]) -> tuple[int, ...]:
        """Return the rows whose identity folds like this one, oldest first."""
        return tuple(self._rows.get(fold_key(values), ()))


def fold_key(values: Mapping[str, str]) -> FoldKey:
    """Return the key under which spellings of one identity meet, whatever the order of its fields."""
    return tuple(sorted((field, ladder_fold(value)) for field, value in values.items()))


def top_k(
    matrix: Vectors, query: Vectors, *, k: int = TOP_K, threshold: float, alive: NDArray[np.bool_] | None = None
) -> list[tuple[int, float]]:
    """Return the rows of the `k` highest cosines that reach the threshold, best first, each with its cosine.

    Of equal cosines the lower row comes first. A vector that is not finite is no candidate.

    Args:
        matrix: Unit vectors of the records, float32, shape (n, dimension).
        query: Unit vector of the new call, shape (dimension,).
        k: Most rows to return, 0 or more.
        threshold: Least cosine, -1 to 1.
        alive: Rows that may be candidates at all, shape (n,); by default every row.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        scores = matrix @ query
    return best_of(scores, k=k, threshold=threshold, alive=alive)


def best_of(
    scores: Vectors, *, k: int = TOP_K, threshold: float, alive: NDArray[np.bool_] | None = None
) -> list[tuple[int, float]]:
    """Return the places of the `k` highest cosines that reach the threshold, best first, each with its cosine.

    Of equal cosines the lower place comes first. One that is not finite is no candidate.

    Args:
        scores: The cosine of each record, shape (n,).
        k: Most places to return, 0 or more.
        threshold: Least cosine, -1 to 1.
        alive: Places that may be candidates at all, shape (n,); by default every one.
    """
    passing = np.isfinite(scores) & (scores >= threshold)
    if alive is not None:
        passing &= alive
    rows = np.flatnonzero(passing)
    if k < len(rows):
        # All that tie with the k-th stay in, so that the order below decides between them.
        least = np.partition(scores[rows], len(rows) - k)[len(rows) - k] if k else np.inf
        rows = rows[scores[rows] >= least]
    order = np.argsort(-scores[rows], kind="stable")[:k]
    return [(int(row), float(scores[row])) for row in rows[order]]


def find_candidates(
    matrix: Vectors,
    query: Vectors,
    exact: Iterable[int],
    *,
    k: int = TOP_K,
    threshold: float,
    alive: NDArray[np.bool_] | None = None,
) -> list[Candidate]:
    """Return the `k` best by cosine joined with the rows that an `ExactIndex` found, best cosine first.

    Args:
        matrix: See `top_k`, as the other arguments.
        query: See `top_k`.
        exact: Rows whose identity folds like that of the new call; these that are not alive are left out.
        k: See `top_k`.
        threshold: See `top_k`.
        alive: See `top_k`.
    """
    found = dict(top_k(matrix, query, k=k, threshold=threshold, alive=alive))
    alike = {row for row in exact if alive is None or alive[row]}
    scores = {**{row: float(matrix[row] @ query) for row in sorted(alike - found.keys())}, **found}
    candidates = [Candidate(row, score, row in alike) for row, score in scores.items()]
    return sorted(candidates, key=lambda one: (-one.score, one.row))


def evidence(a: Mapping[str, str], b: Mapping[str, str]) -> int:
    """Return how many fields of two identities the ladder would match: what speaks for one job in a gray pair.

    How far the numbers or words of a gray field agree is no evidence. Measured on the shipped calibration set, among
    gray pairs a look-alike keeps all numbers in 70 of 100 cases and a repeat in 43 (it writes them as words, or
    another way round); chosen by it, the right record of 1,000 was shown to a judge less often than by cosine alone.
    """
    fields = dict.fromkeys((*a, *b))
    return sum(evaluate_field(a.get(field, ""), b.get(field, "")).outcome == "match" for field in fields)


def pick_gray(values: Mapping[str, str], grays: Sequence[tuple[Candidate, Mapping[str, str]]]) -> int | None:
    """Return the place in `grays` of the one candidate that a judge would be shown, None of none.

    The ladder's evidence decides, then the cosine, then the lower row.

    Args:
        values: Identity of the new call, normalised value by key.
        grays: The candidates that the ladder left gray, each with its identity.
    """
    if not grays:
        return None
    return max(
        range(len(grays)),
        key=lambda place: (
            evidence(values, grays[place][1]),
            grays[place][0].score,
            -grays[place][0].row,
        ),
    )
