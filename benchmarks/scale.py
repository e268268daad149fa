"""Lists of 10,000 suspended runs, and reads in a journal of 1,000,000 rows: python benchmarks/scale.py [--json].

On a file and on a PostgreSQL server of its own, on one disk (`--dsn` names an empty database on another server).

The suspended runs are driven by the engine into the file; the server gets the same rows, copied one by one. Timed: the
first page and all pages of `list_runs`, which `gnl runs list` shows, the counts by status, and `list_interrupts`, which
`gnl approvals list` shows. The target is a second.

Then one run and one conversation of 2,000 remembered pieces of work are read before and after the store grew: the rows
of that run and of that conversation are copied by SQL under other names, four fifths and one fifth, until there are a
million. A ratio is the median of what was measured after over the median before, in one process.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scaling import lists, points
from scaling.stores import copy_all, count_rows, multiply, storage_of
from servers import on_disk

TARGET_MS = 1_000.0
TIMED = ("first page of 50", "all, in pages of 1,000", "all suspended, in pages of 1,000", "all open questions")
"""What the target is for."""


def main() -> None:
    options = _options()
    folder = Path(tempfile.mkdtemp(prefix="gnl-scale-", dir=options.dir))
    folder.chmod(0o755)  # the server runs as another user where this is root
    try:
        with _places(options, folder) as places:
            found: dict[str, Any] = {
                "load before": os.getloadavg()[0],
                "runs": options.runs,
                "rows": options.rows,
                "lists": asyncio.run(_lists(places, options)) if options.runs else {},
                "points": {name: _points(place, options) for name, place in places.items()} if options.rows else {},
                "load after": os.getloadavg()[0],
            }
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    _progress("")
    print(json.dumps(found) if options.json else _text(found))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10_000, help="suspended runs; 0 leaves the lists out")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of others; 0 leaves the reads out")
    parser.add_argument("--records", type=int, default=2_000, help="that the conversation remembers (default: 2000)")
    parser.add_argument("--rounds", type=int, default=3, help="of the lists (default: 3)")
    parser.add_argument("--only", nargs="+", choices=("sqlite", "postgres"), default=["sqlite", "postgres"])
    parser.add_argument("--dir", type=Path, help="where files and server lie (default: the system's temporary folder)")
    parser.add_argument("--dsn", help="an empty database on another server, as a URL")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


@contextmanager
def _places(options: argparse.Namespace, folder: Path) -> Iterator[dict[str, str]]:
    found = {"sqlite": str(folder / "runs.db")} if "sqlite" in options.only else {}
    if "postgres" not in options.only:
        yield found
        return
    with on_disk(folder, options.dsn) as dsn:
        yield {**found, "postgres": dsn}


async def _lists(places: dict[str, str], options: argparse.Namespace) -> dict[str, dict[str, float]]:
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        made = storage_of(places.get("sqlite") or str(Path(folder) / "made.db"))
        async with made:
            began = time.perf_counter()
            await lists.fill(made.runs, options.runs)
            _progress(f"{options.runs} runs made in {time.perf_counter() - began:.0f} s")
            for name, place in places.items():
                async with storage_of(place) as storage:
                    if name != "sqlite":
                        await copy_all(made.runs, storage.runs)
                    found[name] = await lists.measure(storage.runs, options.runs, options.rounds)
                    _progress(f"lists of {name} measured")
    return found


def _points(place: str, options: argparse.Namespace) -> dict[str, Any]:
    async def measured(*, new: bool) -> dict[str, float]:
        async with storage_of(place) as storage:
            if new:
                await points.fill(storage.runs, options.records)
            return await points.measure(storage.runs, options.records)

    before = asyncio.run(measured(new=True))
    rows_before = count_rows(place)
    _progress("the store grows")
    multiply(place, points.RUN, options.rows * 4 // 5)
    multiply(place, points.SCOPE, options.rows // 5)
    rows_after = count_rows(place)
    after = asyncio.run(measured(new=False))
    ratio = {name: after[name] / before[name] for name in before}
    return {"rows": [rows_before, rows_after], "before": before, "after": after, "ratio": ratio}


def _text(found: dict[str, Any]) -> str:
    lines = [f"{os.cpu_count()} cores, load {found['load before']:.1f} before, {found['load after']:.1f} after; ms"]
    if found["lists"]:
        lines += ["", f"{found['runs']:,} suspended runs"]
        lines.append(f"  {'':36}" + "".join(f"{name:>12}" for name in found["lists"]))
        for what in next(iter(found["lists"].values())):
            times = [each[what] for each in found["lists"].values()]
            verdict = "" if what not in TIMED else "  met" if max(times) < TARGET_MS else "  MISSED"
            lines.append(f"  {what:36}" + "".join(f"{took:12,.1f}" for took in times) + verdict)
        lines.append(f"  the target is below {TARGET_MS:,.0f} ms")
    for name, one in found["points"].items():
        lines += ["", f"{name}: {one['rows'][0]:,} rows, then {one['rows'][1]:,}"]
        lines.append(f"  {'':24}{'before':>10}{'after':>10}{'ratio':>8}")
        for what in one["before"]:
            lines.append(f"  {what:24}{one['before'][what]:10.3f}{one['after'][what]:10.3f}{one['ratio'][what]:8.2f}")
    return "\n".join(lines)


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
