"""From a journal to counts: which questions were asked, on what ground, and what people said to them.

Nothing here rules on anything. It reads page by page, through the index of incidents by time and the index of runs by
status, so that a journal of any size costs the same memory and `since` costs only what it covers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from gnl_core.errors import ConfigError
from gnl_core.journal.port import Journal, JsonValue
from gnl_semantic.telemetry.model import (
    NO_DECISIONS,
    Asked,
    Bucket,
    Decisions,
    DeclarationRow,
    Exact,
    JudgeTally,
    RunFigures,
    Scan,
    Settings,
    ToolRow,
    Trouble,
    Unit,
)
from gnl_semantic.telemetry.questions import Skipped, walk
from gnl_semantic.telemetry.rows import Reader
from gnl_semantic.telemetry.runs import read_runs
from gnl_semantic.telemetry.tally import Tally

MOST_RECENT = 1_000
"""Most questions that can be listed one by one."""

_ORIGINS: Final = ("identity", "rule", "judge")
_ASKERS: Final = ("gate", "confirm", "guard")
_END_OF_TIME: Final = 10**13
"""Times have 13 digits in keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Telemetry:
    """What a journal says of the questions about earlier work.

    Attributes:
        now: The store's clock when it was read, in milliseconds: ages are told by it.
        since: Where the reading began, in milliseconds of that clock; None: at the beginning.
        org: The organisation whose rows were read; '' for the store's own.
        by_action: Incidents of work that looks the same, by what was done. What is no 'suspend' was no question.
        tools: The same by tool.
        decisions: What became of the questions: their precision is precision@suspend. Repeats with equal arguments are
            no part of it.
        by_origin: The same by what found the earlier work: 'identity', 'rule', 'judge'. A person's work in another run
            counts as 'identity'.
        channel: Those of 'identity' that were found in another run of the person.
        by_asker: The same by who asked: 'gate'; 'confirm' for a tool, and 'guard' for a caller's guard, that would have
            asked anyway.
        exact: Repeats with equal arguments.
        scan: What candidate scans came to where nothing was asked.
        judge: What the judge came to.
        declarations: The questions by the declaration they rested on.
        unit: Whether `series` counts days or weeks.
        series: The questions over time; days or weeks without one are left out.
        trouble: When the layer looked at nothing.
        runs: The runs' counters and settings.
        recent: The newest questions, newest first.
        unreadable: Rows that hold no record; left out of everything else.
        gone: Incidents whose run was deleted.
    """

    now: int
    since: int | None = None
    org: str = ""
    by_action: Mapping[str, int] = field(default_factory=dict)
    tools: tuple[ToolRow, ...] = ()
    decisions: Decisions = NO_DECISIONS
    by_origin: Mapping[str, Decisions] = field(default_factory=lambda: dict.fromkeys(_ORIGINS, NO_DECISIONS))
    channel: Decisions = NO_DECISIONS
    by_asker: Mapping[str, Decisions] = field(default_factory=lambda: dict.fromkeys(_ASKERS, NO_DECISIONS))
    exact: Exact = Exact()  # noqa: RUF009 - frozen
    scan: Scan = Scan()  # noqa: RUF009 - frozen
    judge: JudgeTally = JudgeTally()  # noqa: RUF009 - frozen
    declarations: tuple[DeclarationRow, ...] = ()
    unit: Unit = "day"
    series: tuple[Bucket, ...] = ()
    trouble: Trouble = Trouble()  # noqa: RUF009 - frozen
    runs: RunFigures = RunFigures()  # noqa: RUF009 - frozen
    recent: tuple[Asked, ...] = ()
    unreadable: int = 0
    gone: int = 0

    @property
    def suspend(self) -> int:
        """Incidents that were a question."""
        return self.by_action.get("suspend", 0)

    @property
    def warn(self) -> int:
        """Incidents that were none."""
        return sum(self.by_action.values()) - self.suspend

    @property
    def configured(self) -> bool:
        """Whether any run that was read began with a semantic gate."""
        return self.runs.with_gate > 0

    @property
    def in_force(self) -> Settings | None:
        """The configuration of the newest run that had a semantic gate."""
        return self.runs.settings[0] if self.runs.settings else None

    def to_json(self) -> dict[str, JsonValue]:
        """Return everything for programs; each rate stands with its denominator and its interval."""
        origins: dict[str, JsonValue] = {name: one.to_json() for name, one in self.by_origin.items()}
        asked: dict[str, JsonValue] = {name: one.asked for name, one in self.by_origin.items()}
        return {
            "v": 1,
            "now": self.now,
            "since": self.since,
            "org": self.org,
            "totals": {"suspend": self.suspend, "warn": self.warn, "by_action": dict(self.by_action)},
            "by_tool": [one.to_json() for one in self.tools],
            "by_origin": {**asked, "channel": self.channel.asked},
            "precision": {
                **self.decisions.to_json(),
                "by_origin": {**origins, "channel": self.channel.to_json()},
                "by_asker": {name: one.to_json() for name, one in self.by_asker.items()},
            },
            "exact": self.exact.to_json(),
            "scan": self.scan.to_json(),
            "judge": self.judge.to_json(),
            "by_declaration": [one.to_json() for one in self.declarations],
            "series": {"unit": self.unit, "buckets": [one.to_json() for one in self.series]},
            "trouble": self.trouble.to_json(),
            "runs": self.runs.to_json(),
            "recent": [one.to_json(self.now) for one in self.recent],
            "unreadable": self.unreadable,
            "gone": self.gone,
        }


async def read_telemetry(journal: Journal, *, since: int | None = None, recent: int = 50) -> Telemetry:
    """Count what a journal holds of questions about earlier work. Reading only.

    Rows are not trusted: one that cannot be read is counted and left out. Runs that are driven meanwhile may be counted
    in part; a reading is no snapshot.

    Args:
        journal: The store; a view scoped to an organisation sees that organisation's rows alone.
        since: Only incidents noticed, and runs that last changed their status, at or after this time, in milliseconds
            of the store's clock.
        recent: Newest questions to list, 0 to 1,000.

    Raises:
        ConfigError: `since` or `recent` is out of range.
        JournalError: The store cannot be read.
    """
    if since is not None and (type(since) is not int or not 0 <= since < _END_OF_TIME):
        raise ConfigError(f"since is {since!r}, must be milliseconds since the epoch, or None", option="since")
    if type(recent) is not int or not 0 <= recent <= MOST_RECENT:
        raise ConfigError(f"recent is {recent!r}, must be 0 to {MOST_RECENT:,}", option="recent")
    reader, skipped, tally = Reader(journal), Skipped(), Tally(recent)
    reader.now = await journal.now()
    async for noticed in walk(reader, since, skipped):
        tally.add(noticed)
    runs = await read_runs(reader, since)
    unit, series = tally.series()
    origins = {name: count.done() for name, count in tally.by_origin.items()}
    return Telemetry(
        now=reader.now,
        since=since,
        org=journal.org,
        by_action=dict(tally.by_action),
        tools=tally.tools(),
        decisions=tally.all.done(),
        by_origin={**{name: origins[name] for name in _ORIGINS}, "identity": tally.identity()},
        channel=origins["channel"],
        by_asker={name: tally.by_asker[name].done() for name in _ASKERS},
        exact=tally.exact(),
        scan=tally.scan(),
        judge=tally.judge(),
        declarations=tally.declarations(),
        unit=unit,
        series=series,
        trouble=tally.trouble(),
        runs=runs,
        recent=tuple(reversed(tally.recent)),
        unreadable=reader.unreadable + skipped.unreadable + tally.undated,
        gone=skipped.gone,
    )
