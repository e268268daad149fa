"""Which pairs are put, and in which order: drawn by hash, so that seed and pairs alone decide it.

A hash instead of a random generator keeps the draw the same on every Python and for every order of files: a transcript
can be verified years later.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from itertools import zip_longest

from gnl_fixtures import FixtureSet, Label, Pair

_LABELS: tuple[Label, ...] = ("dup-paraphrase", "near-miss", "dup-exact", "unrelated")
"""The labels of the two bars come first: they get the odd pairs of a sample that does not divide by four."""


def shuffled(pairs: Iterable[Pair], *, seed: int, purpose: str = "order") -> list[Pair]:
    """Return the pairs in an order that says nothing about them, the same for one seed and purpose."""
    return sorted(pairs, key=lambda pair: (_draw(pair, seed, purpose), pair.id))


def stratified(pairs: Sequence[Pair], n: int, *, seed: int, purpose: str) -> list[Pair]:
    """Return `n` pairs spread evenly over the labels, in their given order; all of them where n is not smaller.

    A label with too few pairs gives all it has, and the others fill up.

    Args:
        pairs: Pairs with unique ids.
        n: Size of the sample, at least 0.
        seed: Decides the draw, together with
        purpose: a word that makes two samples of one exam independent.
    """
    if n >= len(pairs):
        return list(pairs)
    groups = [shuffled((p for p in pairs if p.label == label), seed=seed, purpose=purpose) for label in _LABELS]
    in_turn = [pair for row in zip_longest(*groups) for pair in row if pair is not None]
    chosen = {pair.id for pair in in_turn[:n]}
    return [pair for pair in pairs if pair.id in chosen]


def limited(fixtures: FixtureSet, limit: int | None, *, seed: int) -> FixtureSet:
    """Return the set cut to a stratified sample of `limit` pairs, or unchanged where that is no cut."""
    if limit is None or limit >= len(fixtures.pairs):
        return fixtures
    sample = stratified(fixtures.pairs, limit, seed=seed, purpose="limit")
    return FixtureSet(fixtures.name, tuple(sample), private=fixtures.private)


def _draw(pair: Pair, seed: int, purpose: str) -> bytes:
    # The pair's id stays out: renaming pairs changes neither the set's id nor the order of its exam.
    parts = (str(seed), purpose, pair.tool_name, pair.a, pair.b, pair.label)
    return hashlib.sha256("\0".join(parts).encode()).digest()
