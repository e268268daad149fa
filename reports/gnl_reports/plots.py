"""The two drawings of an exam report, as inline SVG. Every number in them also stands in a table."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gnl_core.errors import MissingExtraError
from gnl_reports.histogram import Bin
from gnl_reports.model import Bar, Baseline, Latency
from gnl_reports.svg import themed
from gnl_reports.text import Html
from gnl_semantic.rate import Rate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Stand-ins that no drawing uses otherwise; the page's theme takes their place.
_INK, _MUTED, _LINE, _ACCENT = "#010101", "#020202", "#030303", "#040404"
_COLOURS = {_INK: "currentColor", _MUTED: "var(--muted)", _LINE: "var(--line)", _ACCENT: "var(--accent)"}

_WIDTH = 3.6  # inches; 346 CSS pixels, so that 9 point text stays readable on the narrowest page
_SMALL = 8.5
_LONGEST_NAME = 30


@contextmanager
def _figure(height: float) -> Iterator[tuple[Figure, Axes]]:
    """Yield a figure without pyplot, under Matplotlib's own defaults whatever the user's settings say."""
    try:
        import matplotlib as mpl  # noqa: PLC0415
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError:
        raise MissingExtraError("HTML reports", "qualify") from None

    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "gnl", "text.parse_math": False, "font.size": 9})
        figure = Figure(figsize=(_WIDTH, height))
        figure.patch.set_visible(False)
        # Placed by hand: automatic layout would depend on the fonts of the machine.
        axes = figure.add_axes((0.04, 0.46 / height, 0.92, 1 - 0.72 / height))
        axes.patch.set_visible(False)
        for side in ("left", "right", "top"):
            axes.spines[side].set_visible(False)
        axes.spines["bottom"].set_color(_LINE)
        axes.tick_params(axis="x", colors=_LINE, labelcolor=_MUTED, labelsize=_SMALL)
        axes.yaxis.set_visible(False)
        yield figure, axes


def _svg(figure: Figure, *, key: str, title: str, description: str) -> Html:
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    return themed(buffer.getvalue(), key=key, title=title, description=description, colours=_COLOURS)


def draw_bar(bar: Bar, baselines: Sequence[Baseline], *, key: str) -> Html:
    """Draw one requirement: the judge's share with its interval above those of the baselines, and the bar itself.

    Args:
        bar: The requirement; its one-sided bound becomes a short tick.
        baselines: What needs no model; `direction` tells whether their recall or their false alarms are meant.
        key: Prefix of every id, unique on the page.

    Raises:
        MissingExtraError: Matplotlib is not installed.
    """
    recall = bar.direction == "at-least"
    rows = [("this judge", bar.rate)]
    for number, baseline in enumerate(baselines, 1):
        rows.append((_drawable(baseline.name, number), baseline.recall if recall else baseline.false_alarms))
    with _figure(0.85 + 0.42 * len(rows)) as (figure, axes):
        for row, (name, rate) in enumerate(rows):
            _draw_rate(axes, -row, name, rate, judge=row == 0)
        if bar.bound is not None:
            axes.plot([bar.bound] * 2, [-0.13, 0.13], color=_ACCENT, linewidth=1.6, solid_capstyle="butt")
        axes.axvline(bar.limit, color=_INK, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
        words = "at least" if recall else "at most"
        axes.annotate(
            f"bar: {words} {bar.limit:.2f}",
            (bar.limit, 1),
            xycoords=("data", "axes fraction"),
            xytext=(-4 if recall else 4, 2),
            textcoords="offset points",
            ha="right" if recall else "left",
            fontsize=_SMALL,
            color=_INK,
        )
        axes.set_xlim(0, 1)
        axes.set_ylim(-len(rows) + 0.6, 0.75)
        axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "0.25", "0.5", "0.75", "1"])
        axes.set_xlabel("share of pairs answered SAME", color=_MUTED, fontsize=_SMALL)
        told = "; ".join(f"{name} {rate}" for name, rate in rows)
        return _svg(figure, key=key, title=f"{bar.name} against its bar", description=f"Bar {bar.limit:.2f}. {told}.")


def _draw_rate(axes: Axes, y: float, name: str, rate: Rate, *, judge: bool) -> None:
    colour = _ACCENT if judge else _MUTED
    text = "not measured" if rate.value is None else f"{rate.value:.3f} ({rate.k}/{rate.n})"
    axes.text(0, y + 0.2, name, color=_INK if judge else _MUTED, fontsize=9)
    axes.text(1, y + 0.2, text, color=_INK if judge else _MUTED, fontsize=_SMALL, ha="right")
    axes.plot([0, 1], [y, y], color=_LINE, linewidth=0.6, zorder=0)
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
    with _figure(2.3) as (figure, axes):
        for piece in histogram:
            tail = piece.high is None
            axes.bar(
                piece.low + (width * 0.5 if tail else 0),
                piece.count,
                width * (0.94 if not tail else 0.9),
                align="edge",
                facecolor="none" if tail else _ACCENT,
                edgecolor=_ACCENT,
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
                    color=_INK,
                )
        right = histogram[-1].low + width * (1.6 if histogram[-1].high is None else 1.0)
        axes.set_xlim(histogram[0].low, right)
        most = max(piece.count for piece in histogram)
        axes.set_ylim(0, most * 1.5)
        for name, value, lift in (("p50", latency.p50, 1.15), ("p95", latency.p95, 1.32)):
            if value is not None and value <= right:
                axes.plot([value, value], [0, most * lift], color=_INK, linewidth=1, linestyle=(0, (4, 3)))
                axes.text(value, most * (lift + 0.02), name, fontsize=_SMALL, color=_INK, ha="center")
        axes.set_xticks(*_ticks(histogram, width))
        axes.set_xlabel("milliseconds a call", color=_MUTED, fontsize=_SMALL)
        total = sum(piece.count for piece in histogram)
        told = ", ".join(f"{piece.count} {range_words(piece)}" for piece in histogram if piece.count)
        return _svg(figure, key=key, title=f"Wall time of {total} calls", description=f"Calls by time: {told}.")


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
