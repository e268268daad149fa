"""What a kill between the effect and its record comes to, for one peer: python -m peers.kill NAME FOLDER.

A process drives the run and dies in the middle of it, right after an effect. Then this one resumes in the way that the
peer documents. One line of JSON tells how often that effect happened and how the resume ended.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

from peers import work
from peers.roster import ROSTER

STEPS = 6
KILLED = 3


def main() -> None:
    name, folder = sys.argv[1], Path(sys.argv[2])
    effects = folder / "effects.txt"
    os.environ["GNL_BENCH_EFFECTS"] = str(effects)
    if os.environ.get("GNL_BENCH_DIE"):
        _peer(name, folder).run()
        raise SystemExit("the run ended, must have been killed")
    environment = {**os.environ, "GNL_BENCH_DIE": work.line_of(KILLED)}
    died = subprocess.run([sys.executable, "-m", "peers.kill", name, str(folder)], env=environment, check=False)
    if died.returncode != 9:
        raise SystemExit(f"the process to be killed ended with {died.returncode}, must be 9")
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    peer = _peer(name, folder)
    outcome = "finished"
    try:
        peer.resume()
    except Exception as error:
        outcome = type(error).__name__
    lines = effects.read_text(encoding="utf-8").split()
    print(json.dumps({"times": lines.count(work.line_of(KILLED)), "outcome": outcome}), file=out, flush=True)
    os._exit(0)  # whatever threads a peer keeps


def _peer(name: str, folder: Path) -> work.Peer:
    contender = ROSTER[name]
    peer: work.Peer = getattr(import_module(contender.module), contender.kind)(**contender.options)
    peer.open(folder, STEPS)
    return peer


if __name__ == "__main__":
    main()
