"""The tables a person reads, and which targets are met."""

from __future__ import annotations

import os
import platform
import sqlite3
import statistics
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from peers.roster import ROSTER, Contender

RESUMED = 100
FLOOR = "raw"
TIMES_RAW = 5.0
REPLAY_MS = 0.1
RESUME_MS = 20.0
IMPORT_MS = 150.0
RAM = ("tmpfs", "ramfs")


def facts(folder: Path, contenders: Iterable[Contender]) -> dict[str, Any]:
    """Return what the figures depend on."""
    packages = sorted({name for contender in contenders for name in contender.package})
    return {
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "processor": processor(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "disk": disk_of(folder),
        "packages": {name: version_of(name) for name in packages},
    }


def text(results: dict[str, Any]) -> str:
    """Return the whole report."""
    lines = _facts(results["facts"])
    lines.append(
        f"{results['steps']} steps a run, one model answer and one tool call each; "
        f"medians of {_count(results['rounds'])} interleaved rounds (min to max)"
    )
    for kind, title in (("async", "The tool is async"), ("sync", "The tool is a plain function")):
        lines += ["", title, *_table(results, kind)]
    lines += ["", "What a step leaves in the store", *_keeps(results)]
    if "kills" in results:
        lines += [
            "",
            "Killed between the effect and its record, then resumed as documented (counted effects, end of the resume)",
        ]
        lines += _kills(results["kills"])
    for name, why in results["missing"].items():
        lines.append(f"left out: {name} ({why}); `make bench-durable` installs the peers")
    if "replay" in results:
        lines += ["", "gnl alone", *_alone(results), "", "Targets", *_targets(results)]
    return "\n".join(lines)


def _facts(found: dict[str, Any]) -> list[str]:
    packages = ", ".join(f"{name} {number}" for name, number in found["packages"].items())
    return [
        f"{found['cores']} cores ({found['processor']}), load {found['load']}, {found['system']}, "
        f"Python {found['python']}, sqlite {found['sqlite']}, databases on {found['disk']}"
        + ("" if found["disk"] in RAM else ", which is no RAM disk: the times hold a disk's"),
        packages,
    ]


def _table(results: dict[str, Any], kind: str) -> list[str]:
    rounds = results["rounds"]
    steps = results["steps"]
    lines = [
        f"  {'':34} {'CPU us a step':>22} {'times raw':>22} {'wall us':>8} {'bytes':>7}  sqlite",
    ]
    for name, measured in rounds.items():
        if ROSTER[name].tool not in (kind, "any"):
            continue
        cpu = [result["cpu"] / steps * 1e6 for result in measured]
        wall = [result["wall"] / steps * 1e6 for result in measured]
        size = statistics.median(result["bytes"] / steps for result in measured)
        lines.append(
            f"  {ROSTER[name].label:34} {_spread(cpu, 0):>22} {_spread(_ratios(rounds, name), 1):>22} "
            f"{statistics.median(wall):8.0f} {size:7.0f}  {measured[-1]['settings']}"
        )
    return lines


def _keeps(results: dict[str, Any]) -> list[str]:
    shown: dict[str, str] = {}
    for name in results["rounds"]:
        shown.setdefault(ROSTER[name].label, ROSTER[name].keeps)
    return [f"  {label:34} {keeps}" for label, keeps in shown.items()]


def _kills(kills: dict[str, dict[str, Any]]) -> list[str]:
    tools: dict[tuple[str, int, str, str], list[str]] = {}
    for name, result in kills.items():
        key = (ROSTER[name].label, result["times"], result["outcome"], ROSTER[name].kill)
        tools.setdefault(key, []).append(ROSTER[name].tool)
    return [
        f"  {label:34} {' and '.join(kinds):14} effect {times}x; {outcome:27} {kill}"
        for (label, times, outcome, kill), kinds in tools.items()
    ]


def _alone(results: dict[str, Any]) -> list[str]:
    replay, resume, imports = results["replay"], results["resume"], results["import"]
    bare = statistics.median(imports["bare"])
    lines = [
        f"  replay of the finished run    {_spread(_ms(replay['wall']), 3)} ms a step"
        f" (CPU {_spread(_ms(replay['cpu']), 3)})",
        f"  resume after {RESUMED} steps        {_spread(_ms(resume['first']), 1)} ms to the first live step,"
        f" {_spread(_ms(resume['wall']), 1)} ms in all",
        f"  a bare interpreter            {_spread(_ms(imports['bare']), 0)} ms",
    ]
    for name, times in imports.items():
        if name != "bare":
            over, best = statistics.median(times) - bare, min(times) - min(imports["bare"])
            lines.append(
                f"  {name}: {_spread(_ms(times), 0)} ms in all; over bare {over * 1e3:.0f} ms (best {best * 1e3:.0f})"
            )
    return lines


def _targets(results: dict[str, Any]) -> list[str]:
    rounds = results["rounds"]
    lines = []
    for name, kind in (("ours", "async"), ("ours-sync", "sync")):
        if name not in rounds:
            continue
        own = statistics.median(_ratios(rounds, name))
        judged = f"at most {TIMES_RAW:g} times raw sqlite3, {kind} tool"
        lines.append(_verdict(own <= TIMES_RAW, judged, f"{own:.2f}") if name == "ours" else _aside(judged, own))
        if name == "ours" and "raw-apart" in rounds:
            apart = own / statistics.median(_ratios(rounds, "raw-apart"))
            lines.append(_aside("times raw with answer and call apart", apart))
        others = {
            other: statistics.median(_ratios(rounds, other))
            for other in rounds
            if ROSTER[other].tool == kind and not other.startswith("ours")
        }
        if others:
            best = min(others, key=lambda other: others[other])
            lines.append(
                _verdict(
                    own < others[best],
                    f"faster than every peer, {kind} tool",
                    f"{ROSTER[best].label} takes {others[best] / own:.2f} times as long",
                )
            )
    replay = statistics.median(results["replay"]["wall"]) * 1e3
    resume = statistics.median(results["resume"]["first"]) * 1e3
    imported = statistics.median(results["import"]["import gnl_core"]) * 1e3
    lines += [
        _verdict(replay <= REPLAY_MS, f"replay at most {REPLAY_MS:g} ms a step", f"{replay:.3f} ms"),
        _verdict(resume < RESUME_MS, f"resume after {RESUMED} steps under {RESUME_MS:g} ms", f"{resume:.1f} ms"),
        _verdict(
            imported < IMPORT_MS,
            f"import gnl_core under {IMPORT_MS:g} ms, the interpreter's start included",
            f"{imported:.0f} ms",
        ),
    ]
    return lines


def _verdict(met: bool, what: str, figure: str) -> str:
    return f"  {'met   ' if met else 'MISSED'} {what}: {figure}"


def _aside(what: str, figure: float) -> str:
    return f"  {'(aside)':>6} {what}: {figure:.2f}"


def _ratios(rounds: dict[str, Any], name: str) -> list[float]:
    floor = rounds.get(FLOOR) or rounds[name]
    return [own["cpu"] / raw["cpu"] for own, raw in zip(rounds[name], floor, strict=True)]


def _spread(values: Sequence[float], digits: int) -> str:
    middle, least, most = statistics.median(values), min(values), max(values)
    return f"{middle:.{digits}f} ({least:.{digits}f}-{most:.{digits}f})"


def _ms(seconds: Iterable[float]) -> list[float]:
    return [value * 1e3 for value in seconds]


def _count(rounds: dict[str, Any]) -> int:
    return len(next(iter(rounds.values()), []))


def version_of(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.machine()


def disk_of(folder: Path) -> str:
    """Return the kind of the file system that the folder is on, 'unknown' where the system does not say."""
    best, kind = "", "unknown"
    try:
        mounts = Path("/proc/mounts").read_text(encoding="utf-8").splitlines()
    except OSError:
        return kind
    for line in mounts:
        point, found = line.split()[1:3]
        if len(point) > len(best) and folder.is_relative_to(point):
            best, kind = point, found
    return kind
