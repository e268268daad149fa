"""The report of one sitting, as a page for the person who decides whether to use the judge."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from gnl_reports.histogram import Bin, bins
from gnl_reports.model import Counts, ExamReport, Grouping, Status, WrongPair
from gnl_reports.page import render_page
from gnl_reports.plots import draw_bar, draw_latency, range_words
from gnl_reports.text import Html, redacted

__all__ = ["render_exam_html"]

MEANINGS: Final[Mapping[Status, str]] = {
    "failed": "The judge gets no certificate from this sitting, and the runtime refuses to start with it.",
    "provisional": (
        "Every bar is held by the measured share, but this many pairs cannot rule out a true rate on the wrong side "
        "of a bar; the certificate says so wherever it is shown."
    ),
    "certified": (
        "Every bar is held by the measured share and also by its one-sided 95 % bound, for this model with exactly "
        "this prompt on this set of pairs."
    ),
}
SYMBOLS: Final[Mapping[Status, str]] = {"failed": "✕", "provisional": "◐", "certified": "✓"}
GROUPINGS: Final[tuple[Grouping, ...]] = ("label", "language", "domain", "phenomenon")

PREVIEW = 240
"""Characters of a text that stand open."""
FOLD_FROM = 320
"""Longer texts are folded behind their first `PREVIEW` characters."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """A wrong pair with the number that names its place on the page."""

    number: int
    pair: WrongPair


@dataclass(frozen=True, slots=True)
class _Section:
    """The wrong pairs of one label."""

    number: int
    label: str
    put: int | None
    entries: tuple[_Entry, ...]
    domains: Mapping[str, list[int]]
    answers: tuple[tuple[str, int], ...]


def render_exam_html(report: ExamReport, *, redact: bool = False) -> str:
    """Return the report as one self-contained HTML document: no script, no request, light and dark, printable.

    Args:
        report: What to show. Every text in it is taken as hostile.
        redact: Put length and short hash in place of the pairs' texts, notes and raw answers. Ids, domains and tool
            names stay; so does the prompt.

    Raises:
        MissingExtraError: Jinja2 or Matplotlib is not installed.
    """
    wrong = tuple(map(_redact, report.wrong)) if redact else report.wrong
    histogram = bins(report.latency.samples)
    return render_page(
        "exam.html.jinja",
        {
            "report": report,
            "redact": redact,
            "meaning": MEANINGS[report.status],
            "symbol": SYMBOLS[report.status],
            "plots": [draw_bar(bar, report.baselines, key=f"bar-{n}") for n, bar in enumerate(report.bars)],
            "tables": [(grouping, report.groups[grouping]) for grouping in GROUPINGS if report.groups.get(grouping)],
            "worst": next((one for one in report.groups.get("domain", ()) if one.name == report.worst_domain), None),
            "totals": _totals(group.counts for group in report.groups.get("label", ())),
            "sections": _sections(wrong, report.fixtures.by_label),
            "histogram": [(range_words(piece), piece.count) for piece in histogram],
            "latency_plot": _latency_plot(report, histogram),
            "parameters": [
                (name, json.dumps(value, ensure_ascii=False, default=str))
                for name, value in report.judge.parameters.items()
            ],
            "preview": PREVIEW,
            "fold_from": FOLD_FROM,
        },
    )


def _latency_plot(report: ExamReport, histogram: tuple[Bin, ...]) -> Html | None:
    return draw_latency(report.latency, histogram, key="latency") if histogram else None


def _totals(counts: Iterable[Counts]) -> Counts:
    """Return the sum; labels part the pairs, so that it covers each pair once."""
    total = Counts()
    for part in counts:
        total = Counts(
            same=total.same + part.same,
            different=total.different + part.different,
            unsure=total.unsure + part.unsure,
            unparsed=total.unparsed + part.unparsed,
            error=total.error + part.error,
            timeout=total.timeout + part.timeout,
        )
    return total


def _sections(wrong: Iterable[WrongPair], by_label: Mapping[str, int]) -> list[_Section]:
    """Return the wrong pairs by label in the set's order, then by domain and id, numbered through the page."""
    by_name: dict[str, list[WrongPair]] = {label: [] for label in by_label}
    for pair in wrong:
        by_name.setdefault(pair.label, []).append(pair)
    sections: list[_Section] = []
    number = 0
    for label, pairs in by_name.items():
        pairs.sort(key=lambda pair: (pair.domain, pair.id))
        entries = tuple(_Entry(number + place, pair) for place, pair in enumerate(pairs, 1))
        number += len(entries)
        domains: dict[str, list[int]] = {}
        for entry in entries:
            domains.setdefault(entry.pair.domain, []).append(entry.number)
        if entries:
            answers = tuple(Counter(pair.answered for pair in pairs).most_common())
            sections.append(_Section(len(sections) + 1, label, by_label.get(label), entries, domains, answers))
    return sections


def _redact(pair: WrongPair) -> WrongPair:
    # A note and a raw answer may quote the texts; an answer that is the verdict and no more cannot.
    bare = pair.raw.strip().lower() == pair.answered.lower()
    return replace(
        pair,
        a=redacted(pair.a),
        b=redacted(pair.b),
        note=redacted(pair.note) if pair.note else "",
        raw=pair.raw if bare or not pair.raw else redacted(pair.raw),
    )
