"""The process of one peer: python -m peers.worker NAME, driven by lines of JSON on standard input.

The first line out tells whether the peer could be loaded; then one line out a line in. What libraries print goes to
standard error.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any, TextIO

from peers import work
from peers.roster import ROSTER


def main() -> None:
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    contender = ROSTER[sys.argv[1]]
    try:
        module = importlib.import_module(contender.module)
    except ImportError as error:
        _say(out, {"missing": str(error)})
        return
    peer = getattr(module, contender.kind)(**contender.options)
    _say(out, {"ready": True})
    for line in sys.stdin:
        command = json.loads(line)
        if command["do"] == "round":
            _say(out, measured(peer, Path(command["folder"]), command["steps"]))
        else:
            _say(out, getattr(module, command["do"])(Path(command["folder"]), command["steps"]))


def measured(peer: Any, folder: Path, steps: int) -> dict[str, Any]:
    """Run one round on a new store and return its times in seconds, its sizes in bytes and what the store holds."""
    folder.mkdir(parents=True)
    try:
        peer.open(folder, steps)
        before, effects = work.stored_bytes(folder), peer.counter.total
        gc.collect()
        wall, processor = time.perf_counter(), time.process_time()
        peer.run()
        processor, wall = time.process_time() - processor, time.perf_counter() - wall
        result = {
            "cpu": processor,
            "wall": wall,
            "effects": peer.counter.total - effects,
            "durable": peer.durable_steps(),
            "settings": peer.settings(),
        }
        peer.close()
        return {**result, "bytes": work.stored_bytes(folder) - before}
    finally:
        shutil.rmtree(folder)


def _say(out: TextIO, value: dict[str, Any]) -> None:
    out.write(json.dumps(value) + "\n")
    out.flush()


if __name__ == "__main__":
    main()
