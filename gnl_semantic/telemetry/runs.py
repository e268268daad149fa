"""What the runs of a journal asked of the finder, by their own counters, and what they were configured with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from gnl_core import keys
from gnl_core.canonical import digest
from gnl_core.errors import NotCanonicalError
from gnl_core.journal.port import Entry, JsonValue
from gnl_core.summary import STATUSES
from gnl_semantic.telemetry.model import COUNTS, RunFigures, Settings
from gnl_semantic.telemetry.rows import Reader, start_of, time_of

_AT_ONCE: Final = 50
"""Inputs read at once: each holds its run's first messages."""

_MOST_SETTINGS: Final = 20
_MOST_COUNT: Final = 2**53


async def read_runs(reader: Reader, since: int | None) -> RunFigures:
    """Add up the counters of runs whose last change of status came at `since` or later.

    Args:
        reader: The journal. A run that changes its status meanwhile may be met twice, or not at all.
        since: Milliseconds of the store's clock; None for every run.

    Raises:
        JournalError: The store cannot be read.
    """
    tally = _Runs()
    for status in STATUSES:
        prefix = ("ix", "status", status)
        async for entries in reader.pages(prefix, after=start_of(prefix, since)):
            roots: list[str] = []
            for entry in entries:
                if len(entry.key) != len(keys.index("status", status, 0, "r")) or time_of(entry.key, 3) is None:
                    reader.unreadable += 1
                else:
                    roots.append(entry.key[4])
            for start in range(0, len(roots), _AT_ONCE):
                await _add(reader, tally, roots[start : start + _AT_ONCE])
    return tally.done()


async def _add(reader: Reader, tally: _Runs, roots: Sequence[str]) -> None:
    wanted = [key for root in roots for key in (keys.semantic_counts(root), keys.input_of(root))]
    rows = await reader.get_many(wanted)
    for counts, frozen in zip(rows[::2], rows[1::2], strict=True):
        tally.runs += 1
        if counts is not None and not tally.count(counts):
            reader.unreadable += 1
        if frozen is not None:
            value = reader.object_of(frozen)
            if value is not None:
                tally.configure(frozen, value)


class _Runs:
    """Sums, and the configurations that were met."""

    def __init__(self) -> None:
        self.runs = 0
        self.with_gate = 0
        self._counts: Counter[str] = Counter()
        self._settings: dict[str, Settings] = {}
        self._more = 0

    def count(self, entry: Entry) -> bool:
        value = entry.value
        if not isinstance(value, dict):
            return False
        numbers = {name: value[name] for name in COUNTS if name in value}
        if not all(type(number) is int and 0 <= number <= _MOST_COUNT for number in numbers.values()):
            return False
        self._counts.update(numbers)
        return True

    def configure(self, entry: Entry, value: Mapping[str, object]) -> None:
        settings = _settings_of(value)
        if settings is None:
            return
        self.with_gate += 1
        try:
            name = digest(settings)
        except NotCanonicalError:
            return
        known = self._settings.get(name)
        if known is None and len(self._settings) >= _MOST_SETTINGS:
            oldest = min(self._settings, key=lambda one: self._settings[one].newest)
            if self._settings[oldest].newest >= entry.created_at:
                self._more += 1
                return
            self._more += self._settings.pop(oldest).runs
        self._settings[name] = Settings(
            settings=settings,
            runs=1 + (known.runs if known is not None else 0),
            newest=max(entry.created_at, known.newest if known is not None else 0),
        )

    def done(self) -> RunFigures:
        return RunFigures(
            runs=self.runs,
            with_gate=self.with_gate,
            counts={name: self._counts[name] for name in COUNTS},
            settings=tuple(sorted(self._settings.values(), key=lambda one: -one.newest)),
            more_settings=self._more,
        )


def _settings_of(value: Mapping[str, Any]) -> dict[str, JsonValue] | None:
    """Return what was frozen of a run's finder; None where it began with none."""
    found: Any = value
    for name in ("limits", "side_effect_duplicates", "semantic"):
        found = found.get(name) if isinstance(found, Mapping) else None
    settings = found.get("settings") if isinstance(found, Mapping) else None
    return settings if isinstance(settings, dict) else None
