"""What every drawing shares: a figure under Matplotlib's own defaults, and its way into the page's theme."""

from __future__ import annotations

import io
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gnl_core.errors import MissingExtraError
from gnl_reports.svg import themed
from gnl_reports.text import Html

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Stand-ins that no drawing uses otherwise; the page's theme takes their place.
INK, MUTED, LINE, ACCENT, GOOD, WARN, BAD = (f"#0{n}0{n}0{n}" for n in range(1, 8))
_COLOURS = {
    INK: "currentColor",
    MUTED: "var(--muted)",
    LINE: "var(--line)",
    ACCENT: "var(--accent)",
    GOOD: "var(--good)",
    WARN: "var(--warn)",
    BAD: "var(--bad)",
}

_WIDTH = 3.6  # inches; 346 CSS pixels, so that 9 point text stays readable on the narrowest page
SMALL = 8.5


@contextmanager
def figure(height: float, *, scale: bool = False, foot: float = 0.0) -> Iterator[tuple[Figure, Axes]]:
    """Yield a figure without pyplot, under Matplotlib's own defaults whatever the user's settings say.

    Args:
        height: Inches.
        scale: Whether the y axis has a scale of its own, with room for its numbers.
        foot: Inches kept free below the x axis and its words.

    Raises:
        MissingExtraError: Matplotlib is not installed.
    """
    try:
        import matplotlib as mpl  # noqa: PLC0415
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError:
        raise MissingExtraError("HTML reports", "qualify") from None

    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "gnl", "text.parse_math": False, "font.size": 9})
        drawn = Figure(figsize=(_WIDTH, height))
        drawn.patch.set_visible(False)
        # Placed by hand: automatic layout would depend on the fonts of the machine.
        left = 0.12 if scale else 0.04
        axes = drawn.add_axes((left, (0.46 + foot) / height, 0.96 - left, 1 - (0.72 + foot) / height))
        axes.patch.set_visible(False)
        for side in ("right", "top") if scale else ("left", "right", "top"):
            axes.spines[side].set_visible(False)
        for side in ("left", "bottom"):
            axes.spines[side].set_color(LINE)
        axes.tick_params(colors=LINE, labelcolor=MUTED, labelsize=SMALL)
        axes.yaxis.set_visible(scale)
        yield drawn, axes


def svg(drawn: Figure, *, key: str, title: str, description: str) -> Html:
    """Return the figure as an inline SVG with a name and a description; see `themed`."""
    buffer = io.StringIO()
    drawn.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    return themed(buffer.getvalue(), key=key, title=title, description=description, colours=_COLOURS)
