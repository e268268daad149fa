"""A comparison of sittings as lines for a terminal, a pipe or a log."""

from __future__ import annotations

from collections.abc import Iterator

from gnl_qualify.terminal import plain
from gnl_qualify.text_report import LISTED, difference, percent, short
from gnl_reports.comparison_model import ComparisonReport, Row
from gnl_reports.text import ordinal


def render_comparison(report: ComparisonReport, *, listed: int = LISTED) -> str:
    """Return the comparison as text without a final line break; every stranger's text in it is harmless."""
    return "\n".join(_lines(report, listed))


def _lines(report: ComparisonReport, listed: int) -> Iterator[str]:
    fixtures = report.fixtures
    yield f"{len(report.rows)} sittings on set {plain(fixtures.name)} {fixtures.set_id}, {fixtures.pairs} pairs"
    if fixtures.sittings is not None:
        yield f"recorded sittings of built-in judges on this set: {fixtures.sittings}"
    for row in report.rows:
        yield ""
        yield from _row(row)
    yield ""
    for base in report.baselines:
        yield f"baseline {base.name:<18}recall {percent(base.recall):<18}false alarms {percent(base.false_alarms)}"
    for duel in report.duels:
        yield ""
        yield f"{duel.first} less {duel.second}, on the same pairs:"
        yield f"  recall:       {difference(duel.recall)}"
        yield f"  false alarms: {difference(duel.false_alarms)}"
        yield f"  right:        {difference(duel.right)}"
    if len(report.duels) > 1:
        yield f"{len(report.duels)} comparisons stand here: none of their p values is corrected for the others"
    yield ""
    yield f"answered differently: {len(report.disagreements)} of {fixtures.pairs} pairs"
    for pair in report.disagreements[:listed]:
        answers = ", ".join(f"{name} {answer}" for name, answer in pair.answers.items())
        yield (
            f"  {short(pair.id)} [{pair.label}, {short(pair.domain)}, {short(pair.lang)}] {short(pair.a)} | "
            f"{short(pair.b)}: expected {pair.expected}, {answers}"
        )
    if len(report.disagreements) > listed:
        yield f"  ... and {len(report.disagreements) - listed} more (all of them with --html or --json)"


def _row(row: Row) -> Iterator[str]:
    yield (
        f"{row.name}  {short(row.judge.model_id)}, prompt version {plain(row.prompt_version)}: {row.status.upper()} "
        f"({short(row.source)})"
    )
    for bar in row.bars:
        bound = "" if bar.bound is None else f", one-sided bound {100 * bar.bound:.1f} %"
        yield (
            f"   {bar.name}: {percent(bar.rate)}, 95 % interval [{100 * bar.rate.low:.1f}, "
            f"{100 * bar.rate.high:.1f}] %{bound}"
        )
    for group in row.languages:
        parts = (("recall", group.recall), ("false alarms", group.false_alarms))
        told = ", ".join(f"{word} {percent(rate)}" for word, rate in parts if rate is not None)
        yield f"   language {plain(group.name)}: right {percent(group.right)}{', ' * bool(told)}{told}"
    for flips in (row.repeat, row.order):
        if flips is not None:
            yield f"   {flips.what}: {percent(flips.flips)} changed their answer"
    if row.sitting is not None:
        yield f"   the {ordinal(row.sitting)} sitting on this set when it began"
