"""Add up incidents and questions in bounded memory: what grows with the journal is nothing but numbers."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from gnl_semantic.telemetry.model import (
    Asked,
    Bucket,
    Decisions,
    DeclarationRow,
    Exact,
    JudgeTally,
    Scan,
    ToolRow,
    Trouble,
    Unit,
)
from gnl_semantic.telemetry.questions import Noticed

MOST_NAMES: Final = 1_000
"""Most tools, declarations or causes that are told apart; whatever more a broken journal names counts as one other."""

OTHER: Final = "(others)"

_MOST_DAYS: Final = 20_000
_MOST_TROUBLES: Final = 20
_LONGEST_CALL_MS: Final = 10_000_000
_DAY_MS: Final = 86_400_000
_DAYS_SHOWN: Final = 62
"""From a longer time on, weeks are counted instead of days."""

_CALLED: Final = frozenset(("timeout", "error", "parse-fail"))
"""Causes of a missing verdict for which the judge was called all the same."""

_DROPPED: Final = ("dropped_identity", "dropped_by_rule", "dropped_discriminator", "dropped_stamp", "gray_calls")


@dataclass(slots=True)
class Count:
    """Decisions while they are counted."""

    approved: int = 0
    denied: int = 0
    pending: int = 0
    different_work: int = 0
    deliberate_repeat: int = 0

    def add(self, asked: Asked) -> None:
        """Count one question."""
        match asked.decision:
            case "approved":
                self.approved += 1
            case "denied":
                self.denied += 1
            case _:
                self.pending += 1
        match asked.relation:
            case "different_work":
                self.different_work += 1
            case "deliberate_repeat":
                self.deliberate_repeat += 1

    def done(self) -> Decisions:
        """Return the record."""
        return Decisions(
            approved=self.approved,
            denied=self.denied,
            pending=self.pending,
            different_work=self.different_work,
            deliberate_repeat=self.deliberate_repeat,
        )


@dataclass(slots=True)
class _Tool:
    suspend: int = 0
    warn: int = 0
    decisions: Count = field(default_factory=Count)


class _Latency:
    """Times to three digits: few thousand buckets hold any number of them."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()

    def add(self, milliseconds: float) -> None:
        whole = round(min(milliseconds, _LONGEST_CALL_MS))
        step = 10 ** max(0, len(str(whole)) - 3)
        self._counts[round(whole / step) * step] += 1

    @property
    def number(self) -> int:
        return self._counts.total()

    def quantile(self, share: float) -> float | None:
        """Return the smallest time that this share of the calls did not exceed."""
        wanted, seen = math.ceil(share * self.number), 0
        for value in sorted(self._counts):
            seen += self._counts[value]
            if seen >= wanted:
                return float(value)
        return None


class Tally:
    """Counts of one walk over incidents."""

    def __init__(self, recent: int) -> None:
        self.by_action: Counter[str] = Counter()
        self.all = Count()
        self.by_origin = {name: Count() for name in ("identity", "channel", "rule", "judge")}
        self.by_asker = {name: Count() for name in ("gate", "confirm", "guard")}
        self.recent: deque[Asked] = deque(maxlen=recent)
        self._tools: dict[str, _Tool] = {}
        self._declared: dict[tuple[str, tuple[str, ...]], Count] = {}
        self._exact_by_action: Counter[str] = Counter()
        self._exact = Count()
        self._scan: Counter[str] = Counter()
        self._verdicts: Counter[str] = Counter()
        self._skipped: Counter[str] = Counter()
        self._judged: Counter[str] = Counter()
        self._latency = _Latency()
        self._trouble: Counter[str] = Counter()
        self._unusable: Counter[str] = Counter()
        self._build_failed: Counter[str] = Counter()
        self._troubles: deque[tuple[int, str, str]] = deque(maxlen=_MOST_TROUBLES)
        self._days: dict[int, dict[str, Count]] = {}
        self.undated = 0

    def add(self, noticed: Noticed) -> None:
        """Count one incident, and the question in it."""
        if noticed.source == "duplicate-guard":
            self._count(self._exact_by_action, noticed.action)
            if noticed.asked is not None:
                self._exact.add(noticed.asked)
            return
        self._count(self.by_action, noticed.action)
        name = noticed.tool or OTHER
        tool = self._tools.setdefault(name if len(self._tools) < MOST_NAMES or name in self._tools else OTHER, _Tool())
        if noticed.asked is not None:
            tool.suspend += 1
            tool.decisions.add(noticed.asked)
            self._question(noticed.asked)
        else:
            tool.warn += 1
        if noticed.source == "semantic-judge":
            self._judge(noticed)
        elif noticed.action == "warn":
            self._scanned(noticed)

    def _question(self, asked: Asked) -> None:
        self.all.add(asked)
        self.by_origin[asked.origin].add(asked)
        self.by_asker[asked.asked_by].add(asked)
        self.recent.append(asked)
        if asked.identity_keys:
            declared = (asked.tool, asked.identity_keys)
            if declared in self._declared or len(self._declared) < MOST_NAMES:
                self._declared.setdefault(declared, Count()).add(asked)
        day = asked.at // _DAY_MS
        if day in self._days or len(self._days) < _MOST_DAYS:
            self._days.setdefault(day, {}).setdefault(asked.origin, Count()).add(asked)
        else:
            self.undated += 1

    def _judge(self, noticed: Noticed) -> None:
        detail = noticed.detail
        evidence = detail.get("judge")
        places = (detail, evidence if isinstance(evidence, Mapping) else {})

        def said(name: str) -> object:
            return next((place[name] for place in places if name in place), None)

        outcome = "same" if noticed.asked is not None else detail.get("outcome")
        if not isinstance(outcome, str):
            return
        cause = outcome.removeprefix("skipped:") if outcome.startswith("skipped:") else None
        if cause is not None:
            self._count(self._skipped, cause)
        elif outcome in ("same", "different", "unsure"):
            self._verdicts[outcome] += 1
        self._judged["cached"] += said("cached") is True
        self._judged["stale_replaced"] += said("stale_replaced") is True
        latency = said("latency_ms")
        called = said("cached") is not True and (cause is None or cause in _CALLED)
        if called and _is_number(latency):
            self._latency.add(float(latency))  # type: ignore[arg-type] # a number by then

    def _scanned(self, noticed: Noticed) -> None:
        detail, tool = noticed.detail, noticed.tool or OTHER
        reason = detail.get("reason")
        if reason in ("identity-unusable", "identity-build-failed"):
            cause = detail.get("cause")
            name = f"{tool}: {cause[:100] if isinstance(cause, str) else '?'}"
            self._count(self._unusable if reason == "identity-unusable" else self._build_failed, name)
            self._troubles.append((noticed.at, tool, str(reason)))
            return
        numbers = {name: detail[name] for name in _DROPPED if _is_number(detail.get(name))}
        self._scan["calls"] += bool(numbers)
        for name, number in numbers.items():
            self._scan[name] += max(0, int(number))  # type: ignore[call-overload] # a number by then
        for name in ("embedder_outage", "no_scan"):
            if detail.get(name) is True:
                self._trouble[name] += 1
                self._troubles.append((noticed.at, tool, name.replace("_", "-")))

    def _count(self, counter: Counter[str], name: str) -> None:
        name = name[:200]
        counter[name if name in counter or len(counter) < MOST_NAMES else OTHER] += 1

    # Results -------------------------------------------------------------------------------------------------------

    def identity(self) -> Decisions:
        """Return the questions found by equal identity, in the conversation or in another channel."""
        total = Count()
        for name in ("identity", "channel"):
            _merge(total, self.by_origin[name])
        return total.done()

    def tools(self) -> tuple[ToolRow, ...]:
        """Return the tools, those with the most questions first."""
        rows = (
            ToolRow(tool=name, suspend=one.suspend, warn=one.warn, decisions=one.decisions.done())
            for name, one in self._tools.items()
        )
        return tuple(sorted(rows, key=lambda row: (-row.suspend, -row.warn, row.tool)))

    def declarations(self) -> tuple[DeclarationRow, ...]:
        """Return the declarations, those whose questions were approved most often first."""
        rows = (
            DeclarationRow(tool=tool, keys=names, decisions=one.done()) for (tool, names), one in self._declared.items()
        )
        return tuple(sorted(rows, key=lambda row: (-row.decisions.approved, -row.decisions.asked, row.tool, row.keys)))

    def exact(self) -> Exact:
        """Return the repeats with equal arguments."""
        return Exact(by_action=dict(self._exact_by_action), decisions=self._exact.done())

    def scan(self) -> Scan:
        """Return what the scans came to."""
        return Scan(**self._scan)

    def judge(self) -> JudgeTally:
        """Return what the judge came to."""
        return JudgeTally(
            same=self._verdicts["same"],
            different=self._verdicts["different"],
            unsure=self._verdicts["unsure"],
            skipped=dict(sorted(self._skipped.items())),
            stale_replaced=self._judged["stale_replaced"],
            cached=self._judged["cached"],
            latency_p50=self._latency.quantile(0.5),
            latency_p95=self._latency.quantile(0.95),
            timed=self._latency.number,
        )

    def trouble(self) -> Trouble:
        """Return when the layer looked at nothing, newest first."""
        return Trouble(
            embedder_outages=self._trouble["embedder_outage"],
            no_scan=self._trouble["no_scan"],
            unusable=dict(self._unusable.most_common()),
            build_failed=dict(self._build_failed.most_common()),
            recent=tuple(reversed(self._troubles)),
        )

    def series(self) -> tuple[Unit, tuple[Bucket, ...]]:
        """Return the questions by day, or by week where days would be too many."""
        if not self._days:
            return "day", ()
        unit: Unit = "day" if max(self._days) - min(self._days) < _DAYS_SHOWN else "week"
        merged: dict[int, dict[str, Count]] = {}
        for day, origins in self._days.items():
            # Day 0 of the epoch was a Thursday; weeks begin on Mondays.
            start = day if unit == "day" else day - (day + 3) % 7
            for origin, count in origins.items():
                _merge(merged.setdefault(start, {}).setdefault(origin, Count()), count)
        return unit, tuple(_bucket(start, merged[start]) for start in sorted(merged))


def _merge(into: Count, other: Count) -> None:
    into.approved += other.approved
    into.denied += other.denied
    into.pending += other.pending
    into.different_work += other.different_work
    into.deliberate_repeat += other.deliberate_repeat


def _bucket(day: int, origins: Mapping[str, Count]) -> Bucket:
    total = Count()
    asked = dict.fromkeys(("identity", "channel", "rule", "judge"), 0)
    for origin, count in origins.items():
        asked[origin] = count.done().asked
        _merge(total, count)
    return Bucket(
        start=date_of(day * _DAY_MS),
        identity=asked["identity"] + asked["channel"],
        channel=asked["channel"],
        rule=asked["rule"],
        judge=asked["judge"],
        decisions=total.done(),
    )


def date_of(milliseconds: int) -> str:
    """Return the day of a time in milliseconds since the epoch, 'YYYY-MM-DD', UTC; 13 digits reach the year 2286."""
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)).date().isoformat()


def _is_number(value: object) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and math.isfinite(value) and value >= 0  # type: ignore[operator, arg-type] # a number by then
