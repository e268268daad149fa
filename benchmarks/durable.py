"""This runtime beside its peers, in one run: python benchmarks/durable.py [--steps N] [--rounds N] [--json].

Every contender drives the same agent run (an instant model, one tool call a step) in a process of its own, on a RAM
disk, so that what is counted is processor time and no disk's. The rounds are interleaved: each contender once, then
each once again. A figure is the median of the rounds; a ratio is taken within a round. `make bench-durable` installs
the peers and runs it; a contender that is not installed is left out, and named.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path

from peers import report
from peers.cold import import_times
from peers.process import Process
from peers.roster import ROSTER


def main() -> None:
    options = _options()
    folder = Path(tempfile.mkdtemp(prefix="gnl-bench-", dir=options.dir))
    names = options.only or list(ROSTER)
    processes = {name: Process(name, folder) for name in names}
    try:
        running = {name: process for name, process in processes.items() if process.missing is None}
        rounds = _rounds(running, options.steps, options.rounds)
        results = {
            "facts": report.facts(folder, [ROSTER[name] for name in running]),
            "steps": options.steps,
            "rounds": rounds,
            "missing": {name: process.missing for name, process in processes.items() if process.missing is not None},
        }
        if "ours" in running:
            _progress("replay and resume")
            results["replay"] = running["ours"].ask("replay", options.steps)
            results["resume"] = running["ours"].ask("resume", report.RESUMED)
            _progress("import")
            results["import"] = import_times()
        if not options.no_kill:
            _progress("kills between an effect and its record")
            results["kills"] = {name: process.kill() for name, process in running.items() if not name.startswith("raw")}
    finally:
        for process in processes.values():
            process.close()
        shutil.rmtree(folder, ignore_errors=True)
    _progress("")
    if options.json:
        print(json.dumps(results, indent=2))
    else:
        print(report.text(results))


def _options() -> argparse.Namespace:
    ram = Path("/dev/shm")  # noqa: S108 - the RAM disk of every Linux; the folder in it is made by tempfile
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=_positive, default=200, help="steps of one agent run (default: 200)")
    parser.add_argument("--rounds", type=_positive, default=9, help="counted rounds, after one for warmth (default: 9)")
    parser.add_argument("--only", nargs="+", choices=ROSTER, metavar="NAME", help=f"contenders: {', '.join(ROSTER)}")
    parser.add_argument("--dir", type=Path, default=ram if ram.is_dir() else None, help="where the databases are made")
    parser.add_argument("--no-kill", action="store_true", help="leave out the kills between an effect and its record")
    parser.add_argument("--json", action="store_true", help="every round's figures, as JSON")
    return parser.parse_args()


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} must be at least 1")
    return value


def _rounds(running: dict[str, Process], steps: int, rounds: int) -> dict[str, list[dict[str, object]]]:
    results: dict[str, list[dict[str, object]]] = {name: [] for name in running}
    for number in range(rounds + 1):
        for name, process in running.items():
            _progress(f"round {number} of {rounds}: {name}")
            result = process.ask("round", steps)
            if result["durable"] != steps or result["effects"] != steps:
                raise SystemExit(
                    f"{name}: the store holds {result['durable']} steps and {result['effects']} effects happened, "
                    f"both must be {steps}; the adapter is wrong and nothing here may be read"
                )
            if number:  # round 0 warms up
                results[name].append(result)
    return results


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
