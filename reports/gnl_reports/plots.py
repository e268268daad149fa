"""The two drawings of an exam report, as inline SVG. Every number in them also stands in a table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gnl_reports.drawing import ACCENT, INK, LINE, MUTED, SMALL, figure, svg
from gnl_reports.histogram import Bin
from gnl_reports.model import Bar, Baseline, Latency
from gnl_reports.text import Html
from gnl_semantic.rate import Rate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LONGEST_NAME = 30


def draw_bar(bar: Bar, baselines: Sequence[Baseline], *, key: str) -> Html:
    """Draw one requirement: the judge's share with its interval above those of the baselines, and the bar itself.

    Args:
        bar: The requirement; its one-sided bound becomes a short tick.
        baselines: What needs no model; `direction` tells whether their recall or their false alarms are meant.
        key: Prefix of every id, unique on the page.

    Raises:
        MissingExtraError: Matplotlib is not installed.
    """
    return _draw_shares(bar, [("this judge", bar)], baselines, key=key, title=f"{bar.name} against its bar")


def draw_rows(rows: Sequence[tuple[str, Bar]], baselines: Sequence[Baseline], *, key: str) -> Html:
    """Draw one requirement as several judges met it, each with its interval and bound, above the baselines.

    Args:
        rows: At least one name and what that judge scored; all bars are the same requirement.
        baselines: As for `draw_bar`.
        key: Prefix of every id, unique on the page.

    Raises:
        MissingExtraError: Matplotlib is not installed.
    """
    first = rows[0][1]
    return _draw_shares(first, rows, baselines, key=key, title=f"{first.name} of {len(rows)} sittings")


def _draw_shares(
    bar: Bar, judges: Sequence[tuple[str, Bar]], baselines: Sequence[Baseline], *, key: str, title: str
) -> Html:
    recall = bar.direction == "at-least"
    rows = [(name, one.rate) for name, one in judges]
    for number, baseline in enumerate(baselines, 1):
        rows.append((_drawable(baseline.name, number), baseline.recall if recall else baseline.false_alarms))
    with figure(0.85 + 0.42 * len(rows)) as (drawn, axes):
        for row, (name, rate) in enumerate(rows):
            _draw_rate(axes, -row, name, rate, judge=row < len(judges))
        for row, (_, one) in enumerate(judges):
            if one.bound is not None:
                axes.plot(
                    [one.bound] * 2, [-row - 0.13, -row + 0.13], color=ACCENT, linewidth=1.6, solid_capstyle="butt"
                )
        axes.axvline(bar.limit, color=INK, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
        words = "at least" if recall else "at most"
        axes.annotate(
            f"bar: {words} {bar.limit:.2f}",
            (bar.limit, 1),
            xycoords=("data", "axes fraction"),
            xytext=(-4 if recall else 4, 2),
            textcoords="offset points",
            ha="right" if recall else "left",
            fontsize=SMALL,
            color=INK,
        )
        axes.set_xlim(0, 1)
        axes.set_ylim(-len(rows) + 0.6, 0.75)
        axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "0.25", "0.5", "0.75", "1"])
        axes.set_xlabel("share of pairs answered SAME", color=MUTED, fontsize=SMALL)
        told = "; ".join(f"{name} {rate}" for name, rate in rows)
        return svg(drawn, key=key, title=title, description=f"Bar {bar.limit:.2f}. {told}.")


def _draw_rate(axes: Axes, y: float, name: str, rate: Rate, *, judge: bool) -> None:
    colour = ACCENT if judge else MUTED
    text = "not measured" if rate.value is None else f"{rate.value:.3f} ({rate.k}/{rate.n})"
    axes.text(0, y + 0.2, name, color=INK if judge else MUTED, fontsize=9)
    axes.text(1, y + 0.2, text, color=INK if judge else MUTED, fontsize=SMALL, ha="right")
    axes.plot([0, 1], [y, y], color=LINE, linewidth=0.6, zorder=0)
    if rate.value is None:
        return
    axes.plot([rate.low, rate.high], [y, y], color=colour, linewidth=2.4 if judge else 1.4, solid_capstyle="butt")
    # Shape tells the judge from the baselines where colour does not.
    marker, size = ("o", 7.0) if judge else ("D", 4.5)
    axes.plot([rate.value], [y], marker, markersize=size, color=colour, clip_on=False, zorder=2.5)


def _drawable(name: str, number: int) -> str:
    """Return a name that every font can draw; the table beside the drawing has the name as it is."""
    return name if name.isascii() and name.isprintable() and len(name) <= _LONGEST_NAME else f"baseline {number}"


def draw_latency(latency: Latency, histogram: Sequence[Bin], *, key: str) -> Html:
    """Draw the histogram of call times in milliseconds, with the median and the 95th percentile marked.

    Args:
        latency: Where the marks stand.
        histogram: At least one bin; an open one is drawn as wide as the one before it.
        key: Prefix of every id, unique on the page.

    Raises:
        MissingExtraError: Matplotlib is not installed.
    """
    width = (histogram[0].high or histogram[0].low + 1) - histogram[0].low
    with figure(2.3) as (drawn, axes):
        for piece in histogram:
            tail = piece.high is None
            axes.bar(
                piece.low + (width * 0.5 if tail else 0),
                piece.count,
                width * (0.94 if not tail else 0.9),
                align="edge",
                facecolor="none" if tail else ACCENT,
                edgecolor=ACCENT,
                hatch="////" if tail else None,
                linewidth=0.8,
            )
            if piece.count:
                middle = piece.low + width * (0.95 if tail else 0.47)
                axes.annotate(
                    str(piece.count),
                    (middle, piece.count),
                    xytext=(0, 2),
                    textcoords="offset points",
                    ha="center",
                    fontsize=7.5,
                    color=INK,
                )
        right = histogram[-1].low + width * (1.6 if histogram[-1].high is None else 1.0)
        axes.set_xlim(histogram[0].low, right)
        most = max(piece.count for piece in histogram)
        axes.set_ylim(0, most * 1.5)
        for name, value, lift in (("p50", latency.p50, 1.15), ("p95", latency.p95, 1.32)):
            if value is not None and value <= right:
                axes.plot([value, value], [0, most * lift], color=INK, linewidth=1, linestyle=(0, (4, 3)))
                axes.text(value, most * (lift + 0.02), name, fontsize=SMALL, color=INK, ha="center")
        axes.set_xticks(*_ticks(histogram, width))
        axes.set_xlabel("milliseconds a call", color=MUTED, fontsize=SMALL)
        total = sum(piece.count for piece in histogram)
        told = ", ".join(f"{piece.count} {range_words(piece)}" for piece in histogram if piece.count)
        return svg(drawn, key=key, title=f"Wall time of {total} calls", description=f"Calls by time: {told}.")


def _ticks(histogram: Sequence[Bin], width: float) -> tuple[list[float], list[str]]:
    """Return about four edges and, under an open tail, where it begins: within it there is no scale."""
    edges = [piece.low for piece in histogram if piece.high is not None]
    places = edges[:: max(1, math.ceil(len(edges) / 4))]
    labels = [f"{edge:,.6g}" for edge in places]
    if histogram[-1].high is None:
        return [*places, histogram[-1].low + 0.95 * width], [*labels, f"{histogram[-1].low:,.6g}+"]
    return [*places, histogram[-1].high], [*labels, f"{histogram[-1].high:,.6g}"]


def range_words(piece: Bin) -> str:
    """Return a bin's range in words, for instance '200 to 300 ms' or '900 ms and more'."""
    return f"{piece.low:,.6g} ms and more" if piece.high is None else f"{piece.low:,.6g} to {piece.high:,.6g} ms"
