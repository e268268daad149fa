"""The drawings of a calibration, as inline SVG. Every number in them also stands in a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from gnl_reports.calibration_model import ArmRow, BinRow, LevelRow, RocRow
from gnl_reports.drawing import ACCENT, BAD, INK, LINE, MUTED, SMALL, WARN, figure, svg
from gnl_reports.text import Html

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_HEIGHT, _FOOT = 3.4, 0.82
_DASHED, _DOTTED, _MIXED = (0, (5, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2))
# A line's pattern tells it from the others where colour does not.
_STYLES: Final[Mapping[str, tuple[str, object]]] = {
    "dup-exact": (MUTED, _DOTTED),
    "dup-paraphrase": (ACCENT, "-"),
    "near-miss": (BAD, _DASHED),
    "unrelated": (WARN, _MIXED),
}
_PLAIN = (INK, "-")
_Row = TypeVar("_Row")


def draw_histogram(rows: Sequence[BinRow], *, key: str) -> Html:
    """Draw the overlapping histograms of all labels, each as the share of its label's pairs.

    Args:
        rows: The bins of one form of the sentence; all labels have the same edges.
        key: Prefix of every id, unique on the page.

    Raises:
        MissingExtraError: Matplotlib is not installed.
    """
    told = []
    with figure(_HEIGHT, scale=True, foot=_FOOT) as (drawn, axes):
        for label, bins in _by([row for row in rows if row.pairs.n], "label").items():
            colour, line = _STYLES.get(label, _PLAIN)
            shares = [one.pairs.value or 0 for one in bins]
            edges = [bins[0].low, *(one.high for one in bins)]
            axes.stairs(shares, edges, color=colour, linestyle=line, linewidth=1.6, label=label)
            peak = max(bins, key=lambda one: one.pairs.k)
            told.append(
                f"{label}: most pairs ({peak.pairs.k} of {peak.pairs.n}) from {peak.low:.2f} to {peak.high:.2f}"
            )
        axes.set_ylim(0, axes.get_ylim()[1] * 1.05)
        _words(axes, "cosine", "share of a label's pairs")
        return svg(drawn, key=key, title=f"Cosines by label, {rows[0].form} form", description="; ".join(told) + ".")


def draw_roc(rows: Sequence[RocRow], *, key: str) -> Html:
    """Draw the ROC curves of one form of the sentence, with the diagonal of chance.

    Args:
        rows: Points, in rising order within each contrast.
        key: Prefix of every id, unique on the page.

    Raises:
        MissingExtraError: Matplotlib is not installed.
    """
    told = []
    styles = ((BAD, _DASHED), (ACCENT, "-"), (WARN, _MIXED))
    with figure(_HEIGHT, scale=True, foot=_FOOT) as (drawn, axes):
        axes.plot([0, 1], [0, 1], color=LINE, linewidth=1, label="chance")
        contrasts: dict[str, list[RocRow]] = {}
        for row in rows:
            contrasts.setdefault(f"{row.first} / {row.second}", []).append(row)
        for (name, points), (colour, line) in zip(contrasts.items(), styles, strict=False):
            xs = [0, *(one.second_passed.value or 0 for one in points)]
            ys = [0, *(one.first_passed.value or 0 for one in points)]
            axes.plot(xs, ys, color=colour, linestyle=line, linewidth=1.6, label=name)
            middle = min(points, key=lambda one: abs((one.second_passed.value or 0) - 0.1))
            told.append(f"{name}: {middle.first_passed} pass where {middle.second_passed} of the others do")
        _unit_square(axes)
        _words(axes, "share of the second group that passes", "share of the first")
        return svg(
            drawn, key=key, title=f"ROC curves of the cosine, {rows[0].form} form", description="; ".join(told) + "."
        )


def draw_levels(rows: Sequence[LevelRow], threshold: float, *, key: str) -> Html:
    """Draw the share of each label that passes, by threshold, with one threshold marked.

    Args:
        rows: Of one form of the sentence, thresholds rising.
        threshold: The one to mark.
        key: Prefix of every id, unique on the page.

    Raises:
        MissingExtraError: Matplotlib is not installed.
    """
    told = []
    # Where everything passes there is nothing to see.
    full = {row.threshold for row in rows} - {row.threshold for row in rows if row.passed.k < row.passed.n}
    first = max(full, default=-1.0)
    with figure(_HEIGHT, scale=True, foot=_FOOT) as (drawn, axes):
        for label, levels in _by([row for row in rows if row.threshold >= first and row.passed.n], "label").items():
            colour, line = _STYLES.get(label, _PLAIN)
            shares = [one.passed.value or 0 for one in levels]
            axes.plot(
                [one.threshold for one in levels], shares, color=colour, linestyle=line, linewidth=1.6, label=label
            )
            near = min(levels, key=lambda one: abs(one.threshold - threshold))
            told.append(f"at {near.threshold:.2f} {near.passed} of {label} pass")
        axes.axvline(threshold, color=INK, linewidth=1, linestyle=(0, (4, 3)))
        left = threshold < sum(axes.get_xlim()) / 2
        axes.annotate(
            f"{threshold:.3f}",
            (threshold, 0.08),
            xytext=(4 if left else -4, 0),
            textcoords="offset points",
            ha="left" if left else "right",
            fontsize=SMALL,
            color=INK,
        )
        axes.set_ylim(0, 1.02)
        _words(axes, "threshold", "share that passes")
        description = f"Marked: {threshold:.3f}. " + "; ".join(told) + "."
        return svg(drawn, key=key, title=f"What passes a threshold, {rows[0].form} form", description=description)


def draw_arms(rows: Sequence[ArmRow], *, key: str) -> Html:
    """Draw the paraphrases asked about against the questions about different jobs, for each way of asking.

    Args:
        rows: A way with several thresholds becomes a line, one with a single threshold a mark.
        key: Prefix of every id, unique on the page.

    Raises:
        MissingExtraError: Matplotlib is not installed.
    """
    told = []
    lines = iter(((BAD, _DASHED), (ACCENT, "-")))
    marks = iter((("D", MUTED), ("o", ACCENT)))
    with figure(_HEIGHT, scale=True, foot=_FOOT) as (drawn, axes):
        for arm, points in _by(rows, "arm").items():
            xs, ys = ([getattr(one, name).value or 0 for one in points] for name in ("alarms", "recall"))
            if len(points) > 1:
                colour, line = next(lines, _PLAIN)
                axes.plot(xs, ys, color=colour, linestyle=line, linewidth=1.6, label=arm)
                best = max(points, key=lambda one: (one.recall.value or 0) - (one.alarms.value or 0))
                told.append(f"{arm}, at {best.threshold:.3f}: paraphrases {best.recall}, different jobs {best.alarms}")
            else:
                marker, colour = next(marks, ("s", INK))
                axes.plot(xs, ys, marker, color=colour, markersize=6, label=arm, clip_on=False, zorder=3)
                told.append(f"{arm}: paraphrases {points[0].recall}, different jobs {points[0].alarms}")
        _unit_square(axes)
        _words(axes, "different jobs asked about", "paraphrases asked about")
        return svg(drawn, key=key, title="Recall against questions", description="; ".join(told) + ".")


def _by(rows: Iterable[_Row], field: str) -> dict[str, list[_Row]]:
    groups: dict[str, list[_Row]] = {}
    for row in rows:
        groups.setdefault(getattr(row, field), []).append(row)
    return groups


def _unit_square(axes: Axes) -> None:
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1.02)


def _words(axes: Axes, x: str, y: str) -> None:
    axes.locator_params(axis="x", nbins=5)
    axes.set_xlabel(x, color=MUTED, fontsize=SMALL)
    # Above the axis and not along it: upright text is hard to read.
    axes.text(-0.1, 1.04, y, transform=axes.transAxes, color=MUTED, fontsize=SMALL, va="bottom")
    # Below everything, so that no line runs through it.
    below = -0.5 / (_HEIGHT - _FOOT - 0.72)
    axes.legend(
        loc="upper left",
        bbox_to_anchor=(-0.11, below),
        frameon=False,
        fontsize=SMALL,
        labelcolor=INK,
        handlelength=2.6,
        labelspacing=0.25,
        borderpad=0,
        borderaxespad=0,
    )
