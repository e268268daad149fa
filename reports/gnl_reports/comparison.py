"""The comparison of several sittings, as a page for the person who has to choose a judge or a prompt."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gnl_reports.comparison_model import ComparisonReport, Disagreement, Row
from gnl_reports.exam import FOLD_FROM, PREVIEW, SYMBOLS
from gnl_reports.model import Bar
from gnl_reports.page import render_page
from gnl_reports.plots import draw_rows
from gnl_reports.text import Html, redacted

__all__ = ["redacted_comparison", "render_comparison_html"]


@dataclass(frozen=True, slots=True)
class _Entry:
    """A pair with the number that names its place on the page."""

    number: int
    pair: Disagreement


def render_comparison_html(report: ComparisonReport, *, redact: bool = False) -> str:
    """Return the comparison as one self-contained HTML document: no script, no request, light and dark, printable.

    Args:
        report: What to show. Every text in it is taken as hostile.
        redact: Say that its texts are redacted, as `redacted_comparison` returns it.

    Raises:
        MissingExtraError: Jinja2 or Matplotlib is not installed.
    """
    labels: dict[str, list[_Entry]] = {}
    for number, pair in enumerate(sorted(report.disagreements, key=lambda pair: pair.label), 1):
        labels.setdefault(pair.label, []).append(_Entry(number, pair))
    prompts = list(dict.fromkeys(row.prompt_version for row in report.rows))
    return render_page(
        "comparison.html.jinja",
        {
            "report": report,
            "redact": redact,
            "symbols": SYMBOLS,
            "plots": _plots(report),
            "prompts": prompts,
            "grid": _grid(report.rows) if len(prompts) > 1 else {},
            "sections": [
                (number, label, report.fixtures.by_label.get(label), entries)
                for number, (label, entries) in enumerate(labels.items(), 1)
            ],
            "preview": PREVIEW,
            "fold_from": FOLD_FROM,
        },
    )


def redacted_comparison(report: ComparisonReport) -> ComparisonReport:
    """Return the comparison with length and short hash in place of the pairs' texts."""
    hidden = tuple(replace(pair, a=redacted(pair.a), b=redacted(pair.b)) for pair in report.disagreements)
    return replace(report, disagreements=hidden)


def _plots(report: ComparisonReport) -> list[tuple[str, Html]]:
    columns = zip(*(row.bars for row in report.rows), strict=True)
    return [(bars[0].name, _plot(report, bars, key=f"rows-{number}")) for number, bars in enumerate(columns)]


def _plot(report: ComparisonReport, bars: tuple[Bar, ...], *, key: str) -> Html:
    return draw_rows([(row.name, bar) for row, bar in zip(report.rows, bars, strict=True)], report.baselines, key=key)


def _grid(rows: tuple[Row, ...]) -> dict[str, dict[str, list[Row]]]:
    """Return the rows by judge, then by prompt version."""
    grid: dict[str, dict[str, list[Row]]] = {}
    for row in rows:
        grid.setdefault(row.judge.model_id, {}).setdefault(row.prompt_version, []).append(row)
    return grid
