"""A calibration as lines for a terminal; the HTML page and the frames have the rest."""

from __future__ import annotations

from collections.abc import Iterator

from gnl_qualify.calibration.measure import FORMS
from gnl_qualify.terminal import plain
from gnl_reports.calibration_model import AreaRow, CalibrationReport, LadderRow, Listing, ThresholdRow
from gnl_semantic.rate import Rate
from gnl_semantic.threshold import SentenceForm

LEVELS_SHOWN = (0.60, 0.80, 0.85, 0.90, 0.95)
MOST_SHOWN = 10
"""Pairs of one list on a terminal."""


def render_text(report: CalibrationReport) -> str:
    """Return the report as text without a final line break."""
    return "\n".join(_lines(report))


def _lines(report: CalibrationReport) -> Iterator[str]:
    pairs = sum(report.by_label.values())
    yield f"embedder {plain(report.embedder)}, set {plain(report.set_name)} {report.set_id}, {pairs} pairs"
    for warning in report.warnings:
        yield f"! {plain(warning)}"
    for form in FORMS:
        yield ""
        yield (
            "Canonical sentence, '<tool>: <value>'" if form == "canonical" else "Bare value, as describe() may give it"
        )
        yield from _cosines(report, form)
        yield from (_threshold(row) for row in report.thresholds if row.form == form)
        yield from _centring(report, form)
        yield from _threads(report, form)
    yield ""
    yield f"{'ladder':<26}{'n':>7}{'identical':>11}{'matched':>9}{'separated':>11}{'gray':>7}"
    yield from (_ladder(row) for row in report.ladder if row.group == "label")
    yield ""
    yield from _chain(report)
    for listing, title in (
        (report.ladder_wrong, "settled by the ladder against their label"),
        (report.blind_spots, "repeats in two languages that are no candidates"),
        (report.below, "other repeats that are no candidates"),
    ):
        yield from _listing(listing, title)
    if report.blind_spots.total:
        yield "  Let describe() put such a field into one language: no threshold finds what the embedder holds apart."


def _cosines(report: CalibrationReport, form: SentenceForm) -> Iterator[str]:
    levels = "".join(f"{'>= ' + format(level, '.2f'):>10}" for level in LEVELS_SHOWN)
    yield f"{'cosine':<16}{'n':>7}{'5 %':>8}{'median':>8}{'95 %':>8}{levels}"
    for row in report.cosines:
        if row.form == form:
            if not row.n:
                yield f"{row.label:<16}{0:>7}  not measured: no pair has this label"
                continue
            passed = {one.threshold: one.passed for one in report.levels if (one.form, one.label) == (form, row.label)}
            shares = "".join(f"{100 * (passed[level].value or 0):>8.1f} %" for level in LEVELS_SHOWN)
            p05, median, p95 = (f"{one:>8.3f}" for one in (row.p05, row.median, row.p95) if one is not None)
            yield f"{row.label:<16}{row.n:>7}{p05}{median}{p95}{shares}"
    for one in report.areas:
        if one.form == form:
            yield f"ROC-AUC {one.first} against {one.second}: {_area(one)}"
    for band in report.bands:
        if band.form == form:
            ends = f"{band.low:.3f} to {band.high:.3f}"
            yield f"{band.label} within the middle 90 % of {band.other} ({ends}): {band.inside}"


def _area(row: AreaRow) -> str:
    if row.area is None:
        return f"not measured ({row.n_first} and {row.n_second} pairs)"
    return f"{row.area:.3f}, 95 % [{row.low:.3f}, {row.high:.3f}] (0.5 is chance)"


def _threshold(row: ThresholdRow) -> str:
    low, high = ("?" if end is None else f"{end:.3f}" for end in (row.low, row.high))
    return (
        f"threshold that keeps 99 % of the paraphrases: {row.value:.3f}, 95 % [{low}, {high}]\n"
        f"  keeps {row.kept}; of pairs it was not fitted to {row.kept_unseen}\n"
        f"  lets through near-misses {row.near_miss}, unrelated {row.unrelated}; 0.60 would let through {row.default}"
    )


def _centring(report: CalibrationReport, form: SentenceForm) -> Iterator[str]:
    for row in report.centring:
        if row.form == form:
            yield f"  by halves, vectors {row.vectors}: paraphrases kept {row.kept}, unrelated {row.unrelated}"
    found = report.centring_better[form]
    if found is None:
        yield "  whether a mean vector to subtract is better is not measured: there are no unrelated pairs"
        return
    better = "clearly better" if found else "not clearly better"
    yield f"  a mean vector to subtract is {better} on pairs it was not fitted to"


def _threads(report: CalibrationReport, form: SentenceForm) -> Iterator[str]:
    heads = f"{'n':>5}{'by cosine':>11}{'candidate':>11}{'asked':>8}{'judge sees':>12}{'reached':>9}"
    yield f"{'paraphrases in threads':<26}{heads}"
    for row in report.candidates:
        if (row.form, row.label) == (form, "dup-paraphrase"):
            shares = [_percent(one) for one in (row.by_cosine, row.candidate, row.settled, row.shown, row.reached)]
            cells = "".join(f"{share:>{width}}" for share, width in zip(shares, (11, 11, 8, 12, 9), strict=True))
            yield f"{row.records:>7,} records{'':<11}{row.candidate.n:>5}{cells}"


def _ladder(row: LadderRow) -> str:
    return f"{row.name:<26}{row.gray.n:>7}{row.identical.k:>11}{row.matched.k:>9}{row.separated.k:>11}{row.gray.k:>7}"


def _chain(report: CalibrationReport) -> Iterator[str]:
    judge = "without a judge" if report.judge is None else f"with the judge {plain(report.judge)}"
    yield f"The whole chain at {report.threshold:.3f}, {judge}, of 100 of each:"
    groups = list(dict.fromkeys(row.group for row in report.chain))
    yield f"{'':<40}" + "".join(f"{group:>16}" for group in groups)
    for outcome in dict.fromkeys(row.outcome for row in report.chain):
        shares = {row.group: row.pairs for row in report.chain if row.outcome == outcome}
        yield f"{outcome:<40}" + "".join(f"{_percent(shares[group]):>16}" for group in groups)
    counts = {row.group: row.pairs.n for row in report.chain}
    yield f"{'pairs':<40}" + "".join(f"{counts[group]:>16,}" for group in groups)
    yield f"gray pairs, each of which would be one call of a judge: {report.judge_calls}"


def _listing(listing: Listing, title: str) -> Iterator[str]:
    yield f"{listing.total} {title}"
    for pair in listing.pairs[:MOST_SHOWN]:
        yield f"  {plain(pair.id)} ({plain(pair.why)}): {plain(pair.a[:80])!r} / {plain(pair.b[:80])!r}"
    if listing.total > MOST_SHOWN:
        yield f"  and {listing.total - MOST_SHOWN} more, see --html or --csv"


def _percent(share: Rate) -> str:
    return "-" if share.value is None else f"{100 * share.value:.1f} %"
