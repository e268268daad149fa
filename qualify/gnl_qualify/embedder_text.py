"""The table of an embedder as lines for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from gnl_qualify.embedder_table import LEVELS, EmbedderTable, LadderRow
from gnl_qualify.terminal import plain


def render_table(table: EmbedderTable) -> str:
    """Return the table as text without a final line break."""
    return "\n".join(_lines(table))


def _lines(table: EmbedderTable) -> Iterator[str]:
    yield f"embedder {plain(table.embedder)}, set {plain(table.set_name)} {table.set_id}, {table.pairs} pairs"
    yield ""
    levels = "".join(f"{'>= ' + format(level, '.2f'):>10}" for level in LEVELS)
    yield f"{'cosine':<16}{'n':>7}{'mean':>8}{'median':>8}{levels}"
    for row in table.cosines:
        shares = "".join(f"{100 * (share.value or 0):>8.1f} %" for share in row.at_least.values())
        yield f"{row.label:<16}{row.n:>7}{row.mean:>8.3f}{row.median:>8.3f}{shares}"
    yield ""
    yield f"ROC-AUC dup-paraphrase against near-miss: {_auc(table.auc_paraphrase_near_miss)}"
    yield f"ROC-AUC same job against different jobs:  {_auc(table.auc_same_different)}"
    for rows in (table.ladder_by_label, table.ladder_by_language):
        yield ""
        yield f"{'ladder':<26}{'n':>7}{'identical':>11}{'matched':>9}{'separated':>11}{'gray':>7}"
        yield from map(_ladder, rows)


def _auc(value: float | None) -> str:
    return "not measured (a side has no pairs)" if value is None else f"{value:.3f} (0.5 is chance)"


def _ladder(row: LadderRow) -> str:
    return f"{plain(row.name):<26}{row.n:>7}{row.identity_equal:>11}{row.matched:>9}{row.separated:>11}{row.gray:>7}"
