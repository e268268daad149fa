"""What a measurement comes to, and the table that a person reads."""

from __future__ import annotations

import os
import platform
import sqlite3
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from peers.report import disk_of, processor, version_of

from loads.roster import RIVALS, ROSTER, Work

_SETTINGS = ("server_version", "fsync", "synchronous_commit", "full_page_writes")


def facts(folder: Path, names: Sequence[str], dsn: str | None) -> dict[str, Any]:
    """Return what the figures depend on."""
    server: dict[str, str] = {}
    if dsn is not None:
        import psycopg  # noqa: PLC0415 - a benchmark of files alone needs no driver

        with psycopg.connect(dsn) as connection:
            for name in _SETTINGS:
                row = connection.execute(f"SHOW {name}").fetchone()
                assert row is not None
                server[name] = row[0]
    return {
        "cores": os.cpu_count(),
        "processor": processor(),
        "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "disk": disk_of(folder),
        "server": server,
        "packages": {ROSTER[name].package: version_of(ROSTER[name].package) for name in names},
    }


def figures(work: Work, result: dict[str, Any]) -> dict[str, float]:
    """Return one measurement: steps a second, latencies and processor time a step in milliseconds."""
    times = result["steps"]
    return {
        "steps_per_s": work.total / result["wall"],
        **{f"p{part}_ms": 1e3 * times[min(len(times) - 1, len(times) * part // 100)] for part in (50, 95, 99)},
        "cpu_ms": 1e3 * result["cpu"] / work.total,
        "steps": work.total,
        "load": os.getloadavg()[0],
    }


def text(results: dict[str, Any]) -> str:
    """Return the whole report."""
    found = results["facts"]
    rounds = results["rounds"]
    packages = ", ".join(f"{name} {number}" for name, number in found["packages"].items())
    server = ", ".join(f"{name} {value}" for name, value in found["server"].items())
    count = len(next(iter(next(iter(rounds.values())).values()), []))
    loads = [one["load"] for by_name in rounds.values() for each in by_name.values() for one in each]
    lines = [
        f"{found['cores']} cores ({found['processor']}), load before {found['load']}, meanwhile up to "
        f"{max(loads, default=0):.1f}, Python {found['python']}, sqlite {found['sqlite']}, all on {found['disk']}",
        packages + (f"; PostgreSQL: {server}; {results['connections']} connections each" if server else ""),
        f"medians of {count} interleaved rounds; throughput with the least and the most",
        "",
        f"  {'at once':>7}  {'':24}{'steps/s':>22}{'p50 ms':>9}{'p95 ms':>9}{'p99 ms':>9}{'CPU ms':>8}"
        "  ours : theirs, steps/s",
    ]
    for at_once, by_name in rounds.items():
        for name, each in by_name.items():
            lines.append(_row(at_once, name, by_name, each))
        lines.append("")
    lines += [
        "CPU: of the contender's own process, a step; a server's is not in it.",
        "Both record the model's answer and the tool's result of every step, in a commit each, and are asked after",
        "each measurement whether they hold them all. gnl writes a claim of the effect beside the answer: three rows",
        "a step to dbos's two, and only gnl's say that an effect was begun. A run's begin and end count, too.",
    ]
    lines += [f"left out: {name} ({why}); `make bench-load` installs it" for name, why in results["missing"].items()]
    return "\n".join(lines)


def _row(at_once: str, name: str, by_name: dict[str, Any], each: list[dict[str, float]]) -> str:
    def middle(member: str) -> float:
        return statistics.median(one[member] for one in each)

    speeds = [one["steps_per_s"] for one in each]
    speed = f"{middle('steps_per_s'):.0f} ({min(speeds):.0f}-{max(speeds):.0f})"
    ratios = ", ".join(
        f"{_ratio(each, by_name[rival], lambda one: one['steps_per_s']):.2f} of {ROSTER[rival].label}"
        for rival in RIVALS.get(name, ())
        if by_name.get(rival)
    )
    latencies = "".join(f"{middle(member):9.2f}" for member in ("p50_ms", "p95_ms", "p99_ms"))
    return f"  {at_once:>7}  {ROSTER[name].label:24}{speed:>22}{latencies}{middle('cpu_ms'):8.2f}  {ratios}".rstrip()


def _ratio(
    ours: list[dict[str, float]], theirs: list[dict[str, float]], of: Callable[[dict[str, float]], float]
) -> float:
    return statistics.median(of(one) / of(other) for one, other in zip(ours, theirs, strict=True))
