"""From pairs to a table of features, with cosines that are the same on every machine."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gnl_core.identity import normalize_identity_value
from gnl_fixtures import FixtureSet
from gnl_qualify.train.augment import Made, Source, make_near_misses
from gnl_semantic.embedder.port import Embedder
from gnl_semantic.judge.local.features import COSINE_NAMES, Evidence, collect, cosines, vector

_log = logging.getLogger(__name__)

COSINES = Path(__file__).with_name("cosines.json")
_SAME = 0.0025
"""Difference up to which a stored cosine stands: CPUs differ in the last bits, which rounding may carry to the third
digit and beyond."""
_CHUNK = 512


@dataclass(frozen=True, slots=True)
class Table:
    """What is trained on.

    Attributes:
        pairs: The pairs of the set.
        made: Near-misses made from them.
        features: One row a pair, then one row a made near-miss.
    """

    pairs: tuple[Source, ...]
    made: tuple[Made, ...]
    features: NDArray[np.float64]


def sources(fixtures: FixtureSet) -> tuple[Source, ...]:
    """Return the pairs of a set with the texts a judge would read."""
    return tuple(
        Source(
            id=pair.id,
            domain=pair.domain,
            lang=pair.lang,
            label=pair.label,
            a=normalize_identity_value(pair.a),
            b=normalize_identity_value(pair.b),
            phenomena=tuple(pair.phenomena),
        )
        for pair in fixtures.pairs
    )


async def build_table(pairs: Sequence[Source], embedder: Embedder | None, *, store: Path = COSINES) -> Table:
    """Return the features of pairs and of the near-misses made from them.

    Args:
        pairs: See `sources`.
        embedder: The one the judge will use; None believes the store.
        store: File with the cosines of an earlier run, which stand where they agree with these; it is written anew
            where they do not.

    Raises:
        EmbedderError: The embedder failed.
        ValueError: No embedder, and the store is not of these pairs.
    """
    made = make_near_misses(pairs)
    evidence = [*(collect(pair.a, pair.b) for pair in pairs), *(collect(one.a, one.b) for one in made)]
    kept = _read(store)
    if embedder is not None:
        kept = _settle(kept, await _cosines(evidence, embedder), store)
    elif len(kept) != len(evidence):
        raise ValueError(f"{store} holds {len(kept)} pairs, not {len(evidence)}: run make train")
    rows = [vector(one.values, cosine) for one, cosine in zip(evidence, kept, strict=True)]
    return Table(tuple(pairs), tuple(made), np.array(rows))


async def _cosines(evidence: Sequence[Evidence], embedder: Embedder) -> list[dict[str, float]]:
    texts = sorted({text for one in evidence for text in one.texts})
    place = {text: index for index, text in enumerate(texts)}
    _log.info("Embedding %d texts of %d pairs", len(texts), len(evidence))
    chunks = [await embedder.embed(texts[at : at + _CHUNK]) for at in range(0, len(texts), _CHUNK)]
    vectors = np.concatenate(chunks)
    return [cosines(one, vectors[[place[text] for text in one.texts]]) for one in evidence]


def _read(store: Path) -> list[dict[str, float]]:
    try:
        rows = json.loads(store.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    return [dict(zip(COSINE_NAMES, row, strict=True)) for row in rows]


def _settle(kept: list[dict[str, float]], fresh: list[dict[str, float]], store: Path) -> list[dict[str, float]]:
    if len(kept) == len(fresh) and all(
        abs(one[name] - other[name]) <= _SAME for one, other in zip(kept, fresh, strict=True) for name in COSINE_NAMES
    ):
        return kept
    _log.info("Writing the cosines of %d pairs anew", len(fresh))
    rows = [[round(one[name], 6) for name in COSINE_NAMES] for one in fresh]
    store.write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n", encoding="utf-8")
    return _read(store)
