"""What came of a soak, read from the witness and the journal when everything has ended."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gnl_core import Gnl, list_interrupts, list_runs
from gnl_core.testing import EffectLog
from soaking.jobs import AGENT, TOOLS, Board, abandoned, clerk, name_of, storage_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The end of a soak.

    Attributes:
        jobs: Jobs that were begun.
        completed: Those whose run is completed, with each effect in the witness.
        waiting: Those of the jobs nobody answers for that wait for a person, under a question that is listed by name.
        stuck: What is neither, each with what is known of it.
        most_effects: Of one tool for one job.
        effects: In all.
    """

    jobs: int
    completed: int
    waiting: int
    stuck: tuple[str, ...]
    most_effects: int
    effects: int


def judge(place: str, folder: Path) -> dict[str, Any]:
    """Return the verdict as JSON: it is made in a child, since it opens the store."""
    return asdict(asyncio.run(_judge(place, folder)))


async def _judge(place: str, folder: Path) -> Verdict:
    board, effects = Board(folder), EffectLog(folder / "effects.jsonl")
    counts = Counter((one.name, one.key) for one in effects.read())
    completed = waiting = 0
    stuck: list[str] = []
    async with storage_of(place) as storage:
        agents = clerk(storage, effects, random.Random())  # noqa: S311 - it drives nothing
        status = await _statuses(agents)
        asked = {one.run_id for one in await list_interrupts(storage.runs)}
        jobs = board.jobs("begun")
        for job in sorted(jobs):
            run = agents.run_id_of(AGENT, name_of(job))
            happened = [counts[name, name_of(job)] for name in TOOLS]
            if status.get(run) == "completed" and happened == [1] * len(TOOLS):
                completed += 1
            elif run in asked and abandoned(job):
                waiting += 1
            else:
                stuck.append(
                    f"{name_of(job)} ({run}): {status.get(run)}, effects {dict(zip(TOOLS, happened, strict=True))}"
                )
        strays = sorted(status.keys() - {agents.run_id_of(AGENT, name_of(job)) for job in jobs})
        stuck += [f"{run} is nobody's job" for run in strays]
    return Verdict(
        jobs=len(jobs),
        completed=completed,
        waiting=waiting,
        stuck=tuple(stuck),
        most_effects=max(counts.values(), default=0),
        effects=counts.total(),
    )


async def _statuses(agents: Gnl) -> dict[str, str]:
    found: dict[str, str] = {}
    cursor = None
    while True:
        page = await list_runs(agents.journal, limit=1_000, cursor=cursor)
        found |= {run.run_id: run.status for run in page.runs}
        cursor = page.cursor
        if cursor is None:
            return found
