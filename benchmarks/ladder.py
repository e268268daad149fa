"""What the rule ladder settles for free, and what it costs: python benchmarks/ladder.py [--promap FILE] [FIXTURES …].

Fixtures are files of labelled pairs (default: the shipped calibration set); one table each by label, language and
phenomenon, with every false match and dropped duplicate. `--promap` takes a JSON list of {a, b, lang, match,
match_type}: real product titles, another domain than the ladder's. Each text counts as one identity value.
The speed, in processor time, is taken in turns with a fixed loop of pure Python: the ratio compares across machines.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gnl_core.identity import normalize_identity_value
from gnl_fixtures import SAME_JOB, Pair, load_files, load_shipped
from gnl_semantic import folds
from gnl_semantic.ladder import evaluate_field

OUTCOMES = ("match", "separate", "gray")


@dataclass(frozen=True, slots=True)
class Row:
    """One pair as it is counted."""

    a: str
    b: str
    label: str
    same: bool
    groups: tuple[str, ...]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("fixtures", nargs="*", type=Path)
    parser.add_argument("--promap", type=Path)
    parser.add_argument("--rounds", type=int, default=9, help="timed rounds (default: 9)")
    options = parser.parse_args()
    if options.fixtures:
        sets = [(path.name, [_row(pair) for pair in load_files([path]).pairs]) for path in options.fixtures]
    else:
        sets = [("calibration (shipped)", [_row(pair) for pair in load_shipped("calibration").pairs])]
    if options.promap:
        sets.append((options.promap.name, _promap(options.promap)))
    for name, rows in sets:
        report(name, rows)
        speed(rows, options.rounds)


def report(name: str, rows: Sequence[Row]) -> None:
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    by_rule: Counter[tuple[str, str]] = Counter()
    wrong: list[str] = []
    for row in rows:
        result = evaluate_field(row.a, row.b)
        for group in (row.label, *(f"{row.label} · {group}" for group in row.groups)):
            counts[group][result.outcome] += 1
        for trace in result.traces:
            by_rule[trace.rule, row.label] += 1
        if result.outcome == ("separate" if row.same else "match"):
            kind = "dropped duplicate" if row.same else "false match"
            wrong.append(f"  {kind} ({', '.join(trace.rule for trace in result.traces)}): {row.a} | {row.b}")
    print(f"\n{name}: {len(rows)} pairs")
    print(f"  {'':42}{'n':>5}" + "".join(f"{outcome:>16}" for outcome in OUTCOMES))
    for group in sorted(counts):
        total = counts[group].total()
        cells = (f"{counts[group][outcome]:>7} ({counts[group][outcome] / total:>5.1%})" for outcome in OUTCOMES)
        print(f"  {group:42}{total:>5}" + "".join(f"{cell:>16}" for cell in cells))
    print("  by rule: " + ", ".join(f"{rule} {label} {n}" for (rule, label), n in sorted(by_rule.items())))
    print("\n".join(wrong) if wrong else "  no false match, no dropped duplicate")


def speed(rows: Sequence[Row], rounds: int) -> None:
    """Print evaluations a second of processor time over all pairs, against the yardstick.

    Cold: no text has been read before. Warm: every text has, as when one new call meets the records of its scope.
    """
    spent: dict[str, list[float]] = {"cold": [], "warm": [], "yardstick": []}
    for _ in range(rounds):
        spent["yardstick"].append(_seconds(yardstick))
        folds._remembered.cache_clear()
        for name in ("cold", "warm"):
            spent[name].append(_seconds(lambda: [evaluate_field(row.a, row.b) for row in rows]) / len(rows))
    median = {name: statistics.median(times) for name, times in spent.items()}
    characters = statistics.mean(len(row.a) + len(row.b) for row in rows)
    print(f"  {len(rows)} pairs of {characters:.0f} characters, median of {rounds} rounds:")
    for name in ("cold", "warm"):
        ratio = median[name] / median["yardstick"]
        print(f"  {name}: {1 / median[name]:,.0f} evaluations a second; one costs {ratio:.5f} yardsticks")


def yardstick() -> int:
    """Do a fixed amount of string and dict work, about 10 ms."""
    seen: dict[str, int] = {}
    for number in range(40_000):
        word = str(number % 997)
        seen[word] = seen.get(word, 0) + len(word)
    return sum(seen.values())


def _seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def _row(pair: Pair) -> Row:
    groups = (pair.lang, *pair.phenomena)
    return Row(*_values(pair.a, pair.b), pair.label, pair.label in SAME_JOB, groups)


def _promap(path: Path) -> list[Row]:
    items: Iterable[dict[str, object]] = json.loads(path.read_text("utf-8"))
    return [
        Row(
            *_values(str(item["a"]), str(item["b"])),
            "match" if item["match"] else str(item["match_type"]),
            bool(item["match"]),
            (str(item["lang"]),),
        )
        for item in items
    ]


def _values(a: str, b: str) -> tuple[str, str]:
    return normalize_identity_value(a), normalize_identity_value(b)


if __name__ == "__main__":
    main()
