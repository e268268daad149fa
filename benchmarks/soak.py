"""Kill workers and the server at random, for as long as asked, and count every effect: python benchmarks/soak.py.

Several workers on one store drive a stream of jobs by their work keys (see soaking/jobs.py) while an operator settles,
from the witness, what a crash has left in doubt. All are killed with SIGKILL at random, and so is the server, which is
started again. Then everything is driven to its end. The soak holds if no tool of a job has had more than one effect and
every job is completed, or waits for a person under a question that is listed by its name.

`make soak` takes half an hour on PostgreSQL. The order of the kills follows from the seed, their moments do not.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import random
import select
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import servers
from soaking.verdict import judge
from soaking.worker import modules_needed, operate, work

from gnl_core.testing.forks import Child, start

_LAST_ROUND_S = 120.0
_SERVER_ODDS = 0.15  # of a kill that is the server's
_OPERATOR_ODDS = 0.1
_ENDED = -signal.SIGKILL


@dataclass(slots=True)
class Soak:
    """One soak under way: its processes, and what was done to them."""

    place: str
    folder: Path
    luck: random.Random
    server: servers.Server | None
    children: dict[str, Child] = field(default_factory=dict)
    kills: int = 0
    restarts: int = 0
    broken: list[str] = field(default_factory=list)

    def begin(self, name: str) -> None:
        """Start a worker, or the operator."""
        function: Callable[[], Any] = (
            partial(operate, self.place, str(self.folder))
            if name == "operator"
            else partial(work, self.place, str(self.folder), self.luck.getrandbits(32))
        )
        self.children[name] = start(function, talk=self.folder / f"{name}.txt")

    def kill(self, name: str) -> None:
        """End a process as a crash would, and start another in its place."""
        child = self.children[name]
        os.kill(child.pid, signal.SIGKILL)
        self.end(name, killed=True)
        self.begin(name)

    def end(self, name: str, *, killed: bool = False) -> None:
        """Wait for a process; what ended otherwise than it should is kept."""
        ended = self.children.pop(name).wait(timeout=_LAST_ROUND_S)
        self.kills += killed and ended.status == _ENDED
        if ended.status not in ((0, _ENDED) if killed else (0,)):
            tail = (self.folder / f"{name}.txt").read_text()[-1500:]
            self.broken.append(f"{name} {'hung' if ended.status is None else f'ended with {ended.status}'}: {tail}")

    def strike(self) -> None:
        """Kill one at random."""
        odds = self.luck.random()
        if self.server is not None and odds < _SERVER_ODDS:
            self.server.kill()
            self.wait(self.luck.uniform(0, 1))
            self.server.start()
            self.restarts += 1
        elif odds < _SERVER_ODDS + _OPERATOR_ODDS:
            self.kill("operator")
        else:
            self.kill(self.luck.choice(sorted(self.children.keys() - {"operator"})))

    def wait(self, seconds: float) -> None:
        """Wait, but not beyond the end of a process that should not end now."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            ready, _, _ = select.select(list(self.children.values()), [], [], left)
            for name in [name for name, child in self.children.items() if child in ready]:
                self.end(name)
                self.broken.append(f"{name} ended before it was told to")
                self.begin(name)

    def last_round(self) -> None:
        """Kill them all once more, and have what was begun driven to its end."""
        (self.folder / "last-round").touch()
        names = list(self.children)
        for name in names:
            self.kill(name)
        for name in sorted(names, key=lambda name: name == "operator"):
            self.end(name)


def soak(store: str, seconds: float, *, seed: int, workers: int, pause: float, within: Path | None) -> dict[str, Any]:
    """Run one; return its figures and its verdict."""
    folder = Path(tempfile.mkdtemp(prefix="gnl-soak-", dir=within))
    server: Any = None
    held = None
    try:
        if store == "postgres":
            server = servers.postgres(within)
            server.start()
        elif store == "redis":
            server = servers.Redis(within)
            server.start()
        place = {"postgres": "dsn", "redis": "url"}.get(store)
        one = Soak(
            place=str(folder / "runs.db") if place is None else getattr(server, place),
            folder=folder,
            luck=random.Random(seed),  # noqa: S311 - it shall be the same again
            server=server,
        )
        _load(one)
        for name in ("operator", *(f"worker-{number}" for number in range(workers))):
            one.begin(name)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            one.wait(one.luck.uniform(0.2, 1.8) * pause)
            one.strike()
            _progress(f"{until - time.monotonic():.0f} s left, {one.kills} kills, {one.restarts} restarts")
        _progress("the last round")
        one.last_round()
        ended = start(partial(judge, one.place, folder), talk=folder / "judge.txt").wait(timeout=_LAST_ROUND_S)
        if ended.answer is None:
            one.broken.append(f"the verdict: {(folder / 'judge.txt').read_text()[-1500:]}")
        verdict: dict[str, Any] = ended.answer or {"stuck": [], "most_effects": 0, "jobs": 0}
        held = verdict["jobs"] > 0 and verdict["most_effects"] == 1 and not verdict["stuck"] and not one.broken
        figures = {"store": store, "seconds": seconds, "seed": seed, "kills": one.kills, "restarts": one.restarts}
        return {**figures, **verdict, "broken": one.broken, "ok": held, "folder": None if held else str(folder)}
    finally:
        if server is not None:
            server.close()
        if held:
            shutil.rmtree(folder)


def _load(one: Soak) -> None:
    """Load what workers need, so that one lives for longer than its start takes."""
    needed = start(partial(modules_needed, one.place, str(one.folder)), talk=one.folder / "load.txt").wait()
    if needed.answer is None:
        raise SystemExit(f"no job can be done: {(one.folder / 'load.txt').read_text()[-1500:]}")
    for name in needed.answer:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", choices=("sqlite", "postgres", "redis"), default="postgres")
    parser.add_argument("--seconds", type=float, default=1_800.0, help="of kills; then comes the last round")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--pause", type=float, default=0.5, help="seconds between kills, on the average")
    parser.add_argument("--dir", type=Path, help="where all of it lies (default: in memory)")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    memory = Path("/dev/shm")  # noqa: S108 - folders in it are made by tempfile
    within = options.dir or (memory if memory.is_dir() else None)
    found = soak(
        options.store,
        options.seconds,
        seed=options.seed,
        workers=options.workers,
        pause=options.pause,
        within=within,
    )
    _progress("")
    if options.json:
        print(json.dumps(found))
    else:
        _print(found)
    sys.exit(0 if found["ok"] else 1)


def _print(found: dict[str, Any]) -> None:
    print(
        f"{found['store']}, {found['seconds']:.0f} s, seed {found['seed']}: {found['kills']} processes and "
        f"{found['restarts']} servers killed"
    )
    print(
        f"{found['jobs']} jobs: {found.get('completed', 0)} completed, {found.get('waiting', 0)} wait for a person by "
        f"name, {len(found['stuck'])} stuck; {found.get('effects', 0)} effects, most of one tool for one job: "
        f"{found['most_effects']}"
    )
    for line in (*found["stuck"], *found["broken"]):
        print(f"  {line}")
    if not found["ok"]:
        print(f"NOT HELD; what was left stands in {found['folder']}")


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
