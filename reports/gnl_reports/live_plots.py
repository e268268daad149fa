"""The two drawings of live questions, as inline SVG. Every number in them also stands in a table."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import TYPE_CHECKING, Final

from gnl_reports.drawing import ACCENT, INK, LINE, MUTED, SMALL, WARN, figure, svg
from gnl_reports.text import Html
from gnl_semantic.rate import Rate
from gnl_semantic.telemetry import Bucket, Unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ROOM: Final = 0.3
"""Share of the axis that a date takes."""
_DAYS: Final = {"day": 1, "week": 7}
# A pattern tells the rungs apart where colour does not.
_STYLES: Final = (("identity", ACCENT, None), ("rule", MUTED, "////"), ("judge", WARN, "...."))


def draw_series(unit: Unit, buckets: Sequence[Bucket], *, key: str) -> Html:
    """Draw the questions of each day or week, one bar each, by the rung that asked.

    Args:
        unit: Width of a bar.
        buckets: At least one; days or weeks without a question are gaps.
        key: Prefix of every id, unique on the page.

    Raises:
        MissingExtraError: Matplotlib is not installed.
    """
    width = _DAYS[unit]
    first = date.fromisoformat(buckets[0].start)
    places = [(date.fromisoformat(one.start) - first).days for one in buckets]
    with figure(3.1, scale=True, foot=0.5) as (drawn, axes):
        floor = [0] * len(buckets)
        for name, colour, hatch in _STYLES:
            heights = [getattr(one, name) for one in buckets]
            there = [number for number, height in enumerate(heights) if height]
            if not there:
                continue
            axes.bar(
                [places[number] for number in there],
                [heights[number] for number in there],
                width * 0.86,
                bottom=[floor[number] for number in there],
                align="edge",
                facecolor=colour if hatch is None else "none",
                edgecolor=colour,
                hatch=hatch,
                linewidth=0.8,
                label=name,
            )
            floor = [one + more for one, more in zip(floor, heights, strict=True)]
        axes.set_xlim(-0.2 * width, max(places[-1] + width, 6 * width))
        axes.set_ylim(0, max(floor) * 1.15)
        axes.locator_params(axis="y", integer=True)
        _dates(axes, buckets, places)
        axes.set_xlabel(f"by {unit}, UTC", color=MUTED, fontsize=SMALL)
        axes.text(-0.1, 1.05, "questions", transform=axes.transAxes, color=MUTED, fontsize=SMALL, va="bottom")
        axes.legend(
            loc="upper left", bbox_to_anchor=(-0.11, -0.3), frameon=False, fontsize=SMALL, labelcolor=INK, ncols=3
        )
        peak = max(range(len(buckets)), key=lambda number: floor[number])
        told = f"{sum(floor)} questions; most, {floor[peak]}, in the {unit} of {buckets[peak].start}."
        return svg(drawn, key=key, title=f"Questions by {unit} and rung", description=told)


def _dates(axes: Axes, buckets: Sequence[Bucket], places: Sequence[int]) -> None:
    """Name the first bar, and further ones where there is room."""
    left, right = axes.get_xlim()
    kept: list[int] = []
    for number in sorted({0, len(buckets) // 2, len(buckets) - 1}):
        if not kept or (places[number] - places[kept[-1]]) / (right - left) > _ROOM:
            kept.append(number)
    axes.set_xticks([places[number] for number in kept], [buckets[number].start for number in kept])
    for number, label in zip(kept, axes.get_xticklabels(), strict=True):
        # Centred below its bar, a date would leave the drawing at either edge.
        share = (places[number] - left) / (right - left)
        label.set_horizontalalignment("left" if share < _ROOM / 2 else "right" if share > 1 - _ROOM / 2 else "center")


def draw_precision(rows: Sequence[tuple[str, Rate]], *, key: str) -> Html:
    """Draw precision@suspend of several groups of questions, each with its interval.

    Args:
        rows: At least one name of our own and its rate.
        key: Prefix of every id, unique on the page.

    Raises:
        MissingExtraError: Matplotlib is not installed.
    """
    with figure(0.85 + 0.42 * len(rows)) as (drawn, axes):
        for row, (name, rate) in enumerate(rows):
            y = -row
            text = "not measured" if rate.value is None else f"{rate.value:.3f} ({rate.k}/{rate.n})"
            axes.text(0, y + 0.2, name, color=INK, fontsize=9)
            axes.text(1, y + 0.2, text, color=INK, fontsize=SMALL, ha="right")
            axes.plot([0, 1], [y, y], color=LINE, linewidth=0.6, zorder=0)
            if rate.value is not None:
                axes.plot([rate.low, rate.high], [y, y], color=ACCENT, linewidth=2.4, solid_capstyle="butt")
                axes.plot([rate.value], [y], "o", markersize=7, color=ACCENT, clip_on=False, zorder=2.5)
        axes.set_xlim(0, 1)
        axes.set_ylim(-len(rows) + 0.6, 0.75)
        axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "0.25", "0.5", "0.75", "1"])
        axes.set_xlabel("share of answered questions that were refused", color=MUTED, fontsize=SMALL)
        told = "; ".join(f"{name} {rate}" for name, rate in rows)
        return svg(drawn, key=key, title="precision@suspend", description=f"{told}.")
