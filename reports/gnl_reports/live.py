"""Live questions about earlier work, as a page for the person who keeps the gates."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from gnl_core.journal.port import JsonValue
from gnl_core.repeats import age_text
from gnl_reports.exam import FOLD_FROM, PREVIEW
from gnl_reports.live_plots import draw_precision, draw_series
from gnl_reports.live_words import CONFIRM, GRAY_IS, NOTED, SUSPECTS, TRAPS, headline, moment, period
from gnl_reports.page import render_page
from gnl_reports.text import Html, redacted
from gnl_semantic.rate import Rate
from gnl_semantic.telemetry import Decisions, Settings, Telemetry

__all__ = ["redacted_live", "render_live_html"]

ASKERS: Final[Mapping[str, str]] = {
    "gate": "asked by a gate",
    "confirm": "shown beside a tool's own question",
    "guard": "shown beside a guard's question",
}
DECISIONS: Final[Mapping[str, str]] = {"approved": "ran", "denied": "refused", "pending": "waits"}
RELATIONS: Final[Mapping[str, str]] = {"different_work": "other work", "deliberate_repeat": "a repeat on purpose"}


def render_live_html(told: Telemetry, *, redact: bool = False) -> str:
    """Return the counts as one self-contained HTML document: no script, no request, light and dark, printable.

    Args:
        told: What to show. Every text in it is taken as hostile.
        redact: Put length and short hash in place of what calls were about. Names of tools and fields and ids of runs
            stay.

    Raises:
        MissingExtraError: Jinja2 or Matplotlib is not installed.
    """
    shown = redacted_live(told) if redact else told
    groups = _groups(told)
    return render_page(
        "live.html.jinja",
        {
            "told": shown,
            "redact": redact,
            "headline": headline(told),
            "period": period(told),
            "groups": groups,
            "plots": _plots(told, groups),
            "settings": [_settings(one) for one in shown.runs.settings],
            "askers": ASKERS,
            "decisions": DECISIONS,
            "relations": RELATIONS,
            "gray_is": GRAY_IS,
            "traps": TRAPS,
            "suspects": SUSPECTS,
            "confirm": CONFIRM,
            "noted": NOTED,
            "recent": [
                (number, one, moment(one.at), age_text(told.now - one.at)) for number, one in enumerate(shown.recent, 1)
            ],
            "troubles": [(moment(at), tool, what.replace("-", " ")) for at, tool, what in told.trouble.recent],
            "preview": PREVIEW,
            "fold_from": FOLD_FROM,
        },
    )


def redacted_live(told: Telemetry) -> Telemetry:
    """Return the counts with length and short hash in place of what calls were about, and no names of gazetteers."""
    hidden = (
        replace(
            one,
            sentence=redacted(one.sentence) if one.sentence else "",
            present=redacted(one.present) if one.present else "",
        )
        for one in told.recent
    )
    runs = replace(told.runs, settings=tuple(map(_without_names, told.runs.settings)))
    return replace(told, recent=tuple(hidden), runs=runs)


def _without_names(one: Settings) -> Settings:
    """Return settings with the size of each gazetteer in its place: such lists hold names of people and places."""
    rules = one.settings.get("rules")
    lists = rules.get("gazetteers") if isinstance(rules, dict) else None
    if not isinstance(rules, dict) or not isinstance(lists, list):
        return one
    sizes: list[JsonValue] = [f"[{len(names)} names]" if isinstance(names, list) else "[?]" for names in lists]
    return replace(one, settings={**one.settings, "rules": {**rules, "gazetteers": sizes}})


def _groups(told: Telemetry) -> list[tuple[str, Decisions, bool]]:
    """Return (name, decisions, whether it is a part of the row above) of each group of questions."""
    rows = [("All questions", told.decisions, False)]
    for name, words in (("identity", "equal identity"), ("rule", "a rule"), ("judge", "a judge")):
        rows.append((f"Found by {words}", told.by_origin[name], False))
        if name == "identity":
            rows.append(("of these, in another channel", told.channel, True))
    rows += [(words.capitalize(), told.by_asker[name], False) for name, words in ASKERS.items()]
    return rows


def _plots(told: Telemetry, groups: list[tuple[str, Decisions, bool]]) -> list[tuple[str, Html]]:
    plots: list[tuple[str, Html]] = []
    measured: list[tuple[str, Rate]] = [(name, one.precision) for name, one, _ in groups if one.decided]
    if measured:
        plots.append(("precision@suspend", draw_precision(measured, key="precision")))
    if told.series:
        plots.append((f"Questions by {told.unit}", draw_series(told.unit, told.series, key="series")))
    return plots


def _settings(one: Settings) -> tuple[Settings, str, list[tuple[str, str]]]:
    members = [
        (name, json.dumps(value, ensure_ascii=False, default=str)) for name, value in sorted(one.settings.items())
    ]
    return one, moment(one.newest), members
