"""The report of a calibration, as a page for the person who chooses an embedder, a threshold, or a judge."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from gnl_reports.calibration_model import CalibrationReport, ChainRow, Listing
from gnl_reports.calibration_plots import draw_arms, draw_histogram, draw_levels, draw_roc
from gnl_reports.exam import FOLD_FROM, PREVIEW
from gnl_reports.page import render_page
from gnl_reports.text import redacted
from gnl_semantic.rate import Rate
from gnl_semantic.threshold import SentenceForm

__all__ = ["render_calibration_html"]

FORM_WORDS: Final[Mapping[SentenceForm, str]] = {
    "canonical": "Canonical sentence: tool name, colon, values",
    "bare": "Bare value, as a describe() may give it",
}


def render_calibration_html(report: CalibrationReport, *, redact: bool = False) -> str:
    """Return the report as one self-contained HTML document: no script, no request, light and dark, printable.

    Args:
        report: What to show. Every text in it is taken as hostile.
        redact: Put length and short hash in place of the pairs' texts. Ids and tool names stay.

    Raises:
        MissingExtraError: Jinja2 or Matplotlib is not installed.
    """
    listings = {name: getattr(report, name) for name in ("ladder_wrong", "blind_spots", "below")}
    if redact:
        listings = {name: _redact(listing) for name, listing in listings.items()}
    main = next(row for row in report.thresholds if row.form == report.chain_form)
    return render_page(
        "calibration.html.jinja",
        {
            "report": report,
            "redact": redact,
            "main": main,
            "pairs": sum(report.by_label.values()),
            "forms": [_form(report, form, number) for number, form in enumerate(FORM_WORDS)],
            "arms_plot": draw_arms(report.arms, key="arms"),
            "chain_groups": list(dict.fromkeys(row.group for row in report.chain)),
            "chain": _chain(report.chain),
            "ladder": {group: [row for row in report.ladder if row.group == group] for group in _groups(report)},
            "preview": PREVIEW,
            "fold_from": FOLD_FROM,
            **listings,
        },
    )


def _form(report: CalibrationReport, form: SentenceForm, number: int) -> dict[str, object]:
    """Return all that the page says of one form of the sentence."""

    def of(rows: tuple[object, ...]) -> list[object]:
        return [row for row in rows if getattr(row, "form", None) == form]

    threshold = next(row for row in report.thresholds if row.form == form)
    histogram = [row for row in report.histogram if row.form == form]
    levels = [row for row in report.levels if row.form == form]
    roc = [row for row in report.roc if row.form == form]
    return {
        "number": number,
        "name": form,
        "words": FORM_WORDS[form],
        "threshold": threshold,
        "cosines": of(report.cosines),
        "bands": of(report.bands),
        "areas": of(report.areas),
        "centring": of(report.centring),
        "better": report.centring_better.get(form),
        "candidates": of(report.candidates),
        "languages": of(report.languages),
        "bins": _pivot((f"{row.low:.2f} to {row.high:.2f}", row.label, row.pairs) for row in histogram),
        "levels": _pivot((f"{row.threshold:.2f}", row.label, row.passed) for row in levels),
        "roc": roc,
        "plots": (
            ("Cosines by label", draw_histogram(histogram, key=f"histogram-{number}")),
            ("What passes a threshold", draw_levels(levels, threshold.value, key=f"levels-{number}")),
            ("ROC curves", draw_roc(roc, key=f"roc-{number}")),
        ),
    }


def _pivot(cells: Iterable[tuple[str, str, Rate]]) -> dict[str, dict[str, Rate]]:
    """Return (row, column, value) cells as rows of columns, in order of first sight."""
    table: dict[str, dict[str, Rate]] = {}
    for row, column, value in cells:
        table.setdefault(row, {})[column] = value
    return table


def _chain(rows: tuple[ChainRow, ...]) -> dict[str, dict[str, Rate]]:
    return _pivot((row.outcome, row.group, row.pairs) for row in rows)


def _groups(report: CalibrationReport) -> list[str]:
    return list(dict.fromkeys(row.group for row in report.ladder))


def _redact(listing: Listing) -> Listing:
    return replace(
        listing, pairs=tuple(replace(pair, a=redacted(pair.a), b=redacted(pair.b)) for pair in listing.pairs)
    )
