"""A run in progress, looked at by another process: python benchmarks/watch.py [--json].

One run is driven to its end (an instant model, one tool call a step, every sync of the disk), alone and while another
process does what `gnl runs list` and `gnl runs show` do every 50 ms: it lists the runs and reads this one whole. Rounds
are interleaved, on new runs of one store; a ratio is taken within a round: the time watched over the time alone. The
target is 1.10. A look that fails, by whatever error, ends the benchmark.

The run's rows are read whole at each look, so a longer run (`--steps`) is a heavier one to look at.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import os
import shutil
import statistics
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from servers import places_of

from gnl_core import list_runs, open_storage, read_run, run_durable, tool
from gnl_core.errors import RunNotFoundError
from gnl_core.testing import ScriptedModel

TARGET = 1.10
PERIOD_S = 0.05


def main() -> None:
    options = _options()
    folder = Path(tempfile.mkdtemp(prefix="gnl-watch-", dir=options.dir))
    folder.chmod(0o755)  # the server runs as another user where this is root
    try:
        with places_of(options.only, folder, options.dsn) as places:
            found = {name: _measured(place, options) for name, place in places.items()}
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps(found) if options.json else _text(found, options))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200, help="of the run (default: 200)")
    parser.add_argument("--tool-ms", type=float, default=5.0, help="milliseconds that its tool takes (default: 5)")
    parser.add_argument("--rounds", type=int, default=9, help="counted ones (default: 9)")
    parser.add_argument("--only", nargs="+", choices=("sqlite", "postgres"), default=["sqlite", "postgres"])
    parser.add_argument("--dir", type=Path, help="where file and server lie (default: the system's temporary folder)")
    parser.add_argument("--dsn", help="an empty database on another server, as a URL")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


# The two processes -------------------------------------------------------------------------------------------------


def _measured(place: str, options: argparse.Namespace) -> dict[str, Any]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    asyncio.run(_driven(place, "made-first", 1, 0))  # the watcher makes no store
    watcher = context.Process(target=_watch, args=(place, theirs), daemon=True)
    watcher.start()
    theirs.close()
    times: list[dict[str, float]] = []
    looks: list[float] = []
    try:
        for number in range(options.rounds + 1):
            order = ("alone", "watched") if number % 2 else ("watched", "alone")
            took: dict[str, float] = {}
            for how in order:
                run_id = f"{how}-{number}"
                if how == "watched":
                    ours.send(run_id)
                    ours.recv()  # it looks
                took[how] = asyncio.run(_driven(place, run_id, options.steps, options.tool_ms / 1e3))
                if how == "watched":
                    ours.send(None)
                    seen = ours.recv()
                    if number:  # round 0 warms up
                        looks += seen
            if number:
                times.append(took)
    except (EOFError, ConnectionError):
        raise SystemExit("a look failed; its error stands above") from None
    finally:
        ours.close()
        watcher.join(10)
    return {
        "alone_ms": 1e3 * statistics.median(one["alone"] for one in times),
        "watched_ms": 1e3 * statistics.median(one["watched"] for one in times),
        "ratios": sorted(one["watched"] / one["alone"] for one in times),
        "looks": len(looks),
        "look_ms": 1e3 * statistics.median(looks),
    }


async def _driven(place: str, run_id: str, steps: int, tool_s: float) -> float:
    @tool(side_effect=True)
    async def book(order: int, note: str) -> dict[str, object]:
        """Book an order."""
        await asyncio.sleep(tool_s)
        return {"order": order, "booked": True, "note": note}

    note = "left at the back door, as the customer asked"
    answers: list[Any] = [[("book", {"order": number, "note": note})] for number in range(steps)]
    async with open_storage(place) as storage:
        began = time.perf_counter()
        result = await run_durable(
            run_id=run_id,
            journal=storage.runs,
            model=ScriptedModel([*answers, "Done."]),
            tools=[book],
            prompt="Book them.",
            max_steps=steps + 1,
        )
        took = time.perf_counter() - began
    assert result.text == "Done."
    return took


def _watch(place: str, line: Connection) -> None:
    asyncio.run(_looked(place, line))


async def _looked(place: str, line: Connection) -> None:
    async with open_storage(place, read_only=True, must_exist=True) as storage:
        while True:
            try:
                run_id = line.recv()
            except EOFError:
                return
            line.send(True)
            took: list[float] = []
            over = False
            while not over:
                over = line.poll(PERIOD_S)  # then once more: a short run has a look too
                began = time.perf_counter()
                await list_runs(storage.runs)
                with contextlib.suppress(RunNotFoundError):  # not begun yet
                    await read_run(storage.runs, run_id)
                    took.append(time.perf_counter() - began)
            line.recv()
            line.send(took)


def _text(found: dict[str, Any], options: argparse.Namespace) -> str:
    lines = [
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; a run of {options.steps} steps whose tool takes "
        f"{options.tool_ms:g} ms, {options.rounds} rounds",
        f"  {'':10}{'alone, ms':>12}{'watched, ms':>13}{'ratio':>8}{'range':>14}{'looks':>8}{'a look, ms':>12}",
    ]
    for name, one in found.items():
        ratios = one["ratios"]
        ratio = statistics.median(ratios)
        lines.append(
            f"  {name:10}{one['alone_ms']:12,.0f}{one['watched_ms']:13,.0f}{ratio:8.2f}"
            f"{f'{ratios[0]:.2f}-{ratios[-1]:.2f}':>14}{one['looks']:8}{one['look_ms']:12,.1f}"
            f"  {'met' if ratio <= TARGET else 'MISSED'}"
        )
    return "\n".join([*lines, f"  the target is a ratio of at most {TARGET:.2f}"])


if __name__ == "__main__":
    main()
