"""Durable steps of 1, 4, 16 and 64 runs at once, this runtime beside dbos: python benchmarks/load.py [--json].

A contender is one process with one event loop, on a file or on a PostgreSQL server; the files and the server that is
started here lie on one disk, with every sync. Rounds are interleaved: in each, every contender is measured at every
number of runs, on a new file or database. A figure is the median of the rounds, a ratio is taken within a round.

A step is one answer of an instant model and one call of a tool that adds to a number in memory; both results are
recorded. Its latency is the time from one question to the model until the next one of the same run. `make bench-load`
installs dbos and runs it; a contender that is not installed is left out, and named.
"""

from __future__ import annotations

import argparse
import json
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from loads import report
from loads.roster import ROSTER, Work
from peers.process import Process
from servers import on_disk


def main() -> None:
    options = _options()
    folder = Path(tempfile.mkdtemp(prefix="gnl-load-", dir=options.dir))
    folder.chmod(0o755)  # the server runs as another user where this is root
    names = options.only or list(ROSTER)
    processes: dict[str, Process] = {}
    try:
        processes |= {name: Process(name, folder, "loads.worker") for name in names}
        running = {name: process for name, process in processes.items() if process.missing is None}
        wanted = any(ROSTER[name].server == "postgres" for name in running)
        with _server(folder, options.dsn, wanted=wanted) as dsn:
            facts = report.facts(folder, list(running), dsn)
            rounds = _rounds(running, options, folder, dsn)
    finally:
        for process in processes.values():
            process.close()
        shutil.rmtree(folder, ignore_errors=True)
    missing = {name: process.missing for name, process in processes.items() if process.missing is not None}
    results = {"facts": facts, "connections": options.connections, "rounds": rounds, "missing": missing}
    _progress("")
    print(json.dumps(results) if options.json else report.text(results))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--at-once", nargs="+", type=_positive, default=[1, 4, 16, 64], metavar="RUNS")
    parser.add_argument("--steps", type=_positive, default=20, help="steps of a run (default: 20)")
    parser.add_argument("--total", type=_positive, default=320, help="steps of a measurement at least (default: 320)")
    parser.add_argument("--rounds", type=_positive, default=3, help="counted rounds (default: 3)")
    parser.add_argument("--only", nargs="+", choices=ROSTER, metavar="NAME", help=f"contenders: {', '.join(ROSTER)}")
    parser.add_argument("--dir", type=Path, help="where files and server lie (default: the system's temporary folder)")
    parser.add_argument("--dsn", help="another server, as a URL of a user who may create databases")
    parser.add_argument("--connections", type=_positive, default=20, help="to the server, for each (default: 20)")
    parser.add_argument("--json", action="store_true", help="every round's figures, as JSON")
    return parser.parse_args()


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} must be at least 1")
    return value


@contextmanager
def _server(folder: Path, dsn: str | None, *, wanted: bool) -> Iterator[str | None]:
    if not wanted:
        yield None
        return
    with on_disk(folder, dsn) as found:
        yield found


def _rounds(
    running: dict[str, Process], options: argparse.Namespace, folder: Path, dsn: str | None
) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Return the measurements by number of runs and contender, one a round."""
    found: dict[str, dict[str, list[dict[str, Any]]]] = {
        str(at_once): {name: [] for name in running} for at_once in options.at_once
    }
    for number in range(options.rounds):
        for at_once in options.at_once:
            turns = -(-options.total // (at_once * options.steps))
            work = Work(at_once=at_once, turns=turns, steps=options.steps)
            for name, process in running.items():
                _progress(f"round {number + 1} of {options.rounds}, {at_once} at once: {name}")
                with _place(folder, dsn, name) as place:
                    result = process.ask(
                        "measure",
                        work.steps,
                        at_once=at_once,
                        turns=work.turns,
                        place=place,
                        connections=options.connections,
                    )
                _check(name, work, result)
                found[str(at_once)][name].append(report.figures(work, result))
    return found


@contextmanager
def _place(folder: Path, dsn: str | None, name: str) -> Iterator[str]:
    """Yield a new file, or an empty database on the server, which has written out what came before."""
    if ROSTER[name].server == "sqlite":
        own = Path(tempfile.mkdtemp(dir=folder))
        try:
            yield str(own / "store.sqlite")
        finally:
            shutil.rmtree(own)
        return
    import psycopg  # noqa: PLC0415 - a benchmark of files alone needs no driver

    assert dsn is not None
    database = f"gnl_bench_{secrets.token_hex(6)}"
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{database}"')
        connection.execute("CHECKPOINT")
        try:
            yield urlsplit(dsn)._replace(path=f"/{database}").geturl()
        finally:
            connection.execute(f'DROP DATABASE "{database}" WITH (FORCE)')


def _check(name: str, work: Work, result: dict[str, Any]) -> None:
    runs = work.at_once * work.turns
    wanted = (work.total + runs, work.total, work.total, work.total)
    held = (result["answers"], result["results"], result["effects"], len(result["steps"]))
    if held != wanted:
        raise SystemExit(
            f"{name}: answers, results, effects and steps are {held}, must be {wanted}; the adapter is wrong and "
            "nothing here may be read"
        )


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
