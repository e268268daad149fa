"""Pairs worth reading, and how each language fares at the threshold."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from gnl_fixtures import Pair
from gnl_qualify.calibration.bands import share_above
from gnl_qualify.calibration.chain import candidates
from gnl_qualify.calibration.measure import FORMS, RUNGS, Measured, rule_of
from gnl_reports.calibration_model import LanguageRow, ListedPair, Listing
from gnl_semantic.threshold import SentenceForm

MOST_LISTED = 200
"""Pairs of one list that the report holds; the frame 'pairs' has all."""


def language_rows(measured: Measured, thresholds: Mapping[SentenceForm, float]) -> tuple[LanguageRow, ...]:
    """Return how the paraphrases of each language fare at the threshold."""
    languages = np.array([pair.lang for pair in measured.fixtures.pairs])
    paraphrase = measured.of("dup-paraphrase")
    rows: list[LanguageRow] = []
    for form in FORMS:
        for language in np.unique(languages[paraphrase]):
            values = measured.cosines[form][paraphrase & (languages == language)]
            rows.append(
                LanguageRow(
                    form=form,
                    language=str(language),
                    threshold=thresholds[form],
                    least=float(values.min()),
                    median=float(np.median(values)),
                    kept=share_above(values, thresholds[form]),
                )
            )
    return tuple(rows)


def blind_spots(measured: Measured, threshold: float) -> Listing:
    """Return the repeats written in two languages that are no candidates, lowest cosine first."""
    return _listing(measured, _missed(measured, threshold) & _mixed(measured), _cosine_words)


def below(measured: Measured, threshold: float) -> Listing:
    """Return all other repeats that are no candidates, lowest cosine first."""
    return _listing(measured, _missed(measured, threshold) & ~_mixed(measured), _cosine_words)


def ladder_wrong(measured: Measured) -> Listing:
    """Return the pairs that the ladder settles against their label."""
    same = measured.of("dup-exact", "dup-paraphrase")
    settled = np.isin(measured.rungs, (RUNGS.index("identity"), RUNGS.index("match")))
    wrong = (same & (measured.rungs == RUNGS.index("separate"))) | (~same & settled)
    return _listing(measured, wrong, lambda pair, cosine: rule_of(pair))  # noqa: ARG005


def _missed(measured: Measured, threshold: float) -> NDArray[np.bool_]:
    return measured.of("dup-exact", "dup-paraphrase") & ~candidates(measured, threshold)


def _mixed(measured: Measured) -> NDArray[np.bool_]:
    pairs = measured.fixtures.pairs
    return np.array([pair.lang == "mixed" or "translation" in pair.phenomena for pair in pairs])


def _cosine_words(pair: Pair, cosine: float) -> str:  # noqa: ARG001
    return f"cosine {cosine:.3f}"


def _listing(measured: Measured, mask: NDArray[np.bool_], why: Callable[[Pair, float], str]) -> Listing:
    cosines, pairs = measured.cosines["canonical"], measured.fixtures.pairs
    places = sorted(map(int, np.flatnonzero(mask)), key=lambda place: (cosines[place], place))
    return Listing(
        total=len(places),
        pairs=tuple(
            ListedPair(
                id=pair.id,
                label=pair.label,
                language=pair.lang,
                tool_name=pair.tool_name,
                a=pair.a,
                b=pair.b,
                why=why(pair, float(cosines[place])),
                cosine=float(cosines[place]),
            )
            for place in places[:MOST_LISTED]
            for pair in (pairs[place],)
        ),
    )
