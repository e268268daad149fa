"""The process of one contender: python -m loads.worker NAME, driven by lines of JSON on standard input."""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import os
import sys
import time
from itertools import pairwise
from typing import Any, TextIO

from loads.roster import ROSTER, Adapter, Work


def main() -> None:
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print goes there
    contender = ROSTER[sys.argv[1]]
    try:
        module = importlib.import_module(contender.module)
    except ImportError as error:
        _say(out, {"missing": str(error)})
        return
    _say(out, {"ready": True})
    for line in sys.stdin:
        command = json.loads(line)
        adapter: Adapter = module.Adapter(**contender.options)
        work = Work(at_once=command["at_once"], turns=command["turns"], steps=command["steps"])
        adapter.open(command["place"], command["connections"])
        _say(out, asyncio.run(measured(adapter, work)))
        adapter.close()


async def measured(adapter: Adapter, work: Work) -> dict[str, Any]:
    """Drive the runs; return wall and processor seconds, the seconds of each step, and what the store holds."""
    # Connections are made, and code is warmed, by as many runs of one step.
    await asyncio.gather(*(adapter.drive(f"warm-{place}", 1) for place in range(work.at_once)))
    effects = adapter.effects
    gc.collect()

    async def one_place(place: int) -> list[float]:
        took: list[float] = []
        for turn in range(work.turns):
            asked = await adapter.drive(f"bench-{place}-{turn}", work.steps)
            took += [later - earlier for earlier, later in pairwise(asked)]
        return took

    wall, processor = time.perf_counter(), time.process_time()
    times = await asyncio.gather(*(one_place(place) for place in range(work.at_once)))
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    names = [f"bench-{place}-{turn}" for place in range(work.at_once) for turn in range(work.turns)]
    answers, results = await adapter.recorded(names)
    return {
        "wall": wall,
        "cpu": processor,
        "steps": sorted(took for place in times for took in place),
        "effects": adapter.effects - effects,
        "answers": answers,
        "results": results,
    }


def _say(out: TextIO, value: dict[str, Any]) -> None:
    out.write(json.dumps(value) + "\n")
    out.flush()


if __name__ == "__main__":
    main()
