"""The processes of a soak that are killed: workers, who drive jobs, and the operator, who settles doubts."""

from __future__ import annotations

import asyncio
import random
import sys
import time
from pathlib import Path
from typing import Any

from gnl_core import Gnl, InMemoryStorage, decide, list_interrupts
from gnl_core.approvals import Interrupt
from gnl_core.errors import (
    DoubtError,
    RefusedError,
    RunBusyError,
    RunFencedError,
    StoreBusyError,
    StoreUnavailableError,
    StoreUnknownError,
)
from gnl_core.testing import EffectLog
from soaking.jobs import AGENT, Board, abandoned, clerk, name_of, storage_of

AWAY = (StoreBusyError, StoreUnavailableError, StoreUnknownError)
"""What a host meets while the server is away."""

_NAP_S = 0.05
_LOOK_TWICE_S = 4.0
"""Seconds that the operator waits before he says that nothing happened: whoever began it may be alive and slow."""


def modules_needed(place: str, folder: str) -> list[str]:
    """Return the modules that a worker loads: whoever forks workers loads them beforehand, once."""
    asyncio.run(_try_out(place, Path(folder)))
    return list(sys.modules)


async def _try_out(place: str, folder: Path) -> None:
    effects = EffectLog(folder / "tried.jsonl")
    async with storage_of(place) as storage, InMemoryStorage() as memory:
        await list_interrupts(storage.runs)
        await clerk(memory, effects, random.Random(0)).run(AGENT, work_key="any", prompt="Do job-0.")  # noqa: S311


def work(place: str, folder: str, seed: int) -> None:
    """Drive jobs until there are none left; before the last round, until killed."""
    asyncio.run(_work(place, Path(folder), random.Random(seed)))  # noqa: S311 - no secret


async def _work(place: str, folder: Path, luck: random.Random) -> None:
    board, effects = Board(folder), EffectLog(folder / "effects.jsonl")
    async with storage_of(place) as storage:
        agents = clerk(storage, effects, luck)
        while jobs := board.open_jobs():
            job = luck.choice(jobs)
            board.note("begun", job)
            try:
                await agents.run(AGENT, work_key=name_of(job), prompt=f"Do {name_of(job)}.")
            except DoubtError as doubt:
                if abandoned(job) and all(one.kind == "in_doubt" for one in doubt.interrupts):
                    board.note("waiting", job)
                await asyncio.sleep(_NAP_S)
            except (RunBusyError, RunFencedError, *AWAY):
                await asyncio.sleep(_NAP_S)
            else:
                board.note("finished", job)
                if luck.random() < 0.1:  # a repeat is a replay
                    await _once_more(agents, luck.choice(sorted(board.jobs("finished"))))


async def _once_more(agents: Gnl, job: int) -> None:
    try:
        await agents.run(AGENT, work_key=name_of(job), prompt=f"Do {name_of(job)}.")
    except (RunBusyError, RunFencedError, *AWAY):
        await asyncio.sleep(_NAP_S)


def operate(place: str, folder: str) -> None:
    """Settle doubts from the witness, until killed or until the last round is over."""
    asyncio.run(_operate(place, Path(folder)))


async def _operate(place: str, folder: Path) -> None:
    board, effects = Board(folder), EffectLog(folder / "effects.jsonl")
    seen: dict[str, float] = {}
    async with storage_of(place) as storage:
        while not board.last_round() or board.open_jobs():
            try:
                for question in await list_interrupts(storage.runs):
                    first = seen.setdefault(question.question, time.monotonic())
                    job = int(str(question.args["job"]))
                    if question.kind != "in_doubt" or abandoned(job):
                        continue
                    answer = _answer(question, effects, time.monotonic() - first)
                    if answer is not None:
                        await decide(storage.runs, question.question, actor="operator", **answer)
            except (RefusedError, *AWAY):
                pass  # what is open still is listed again
            await asyncio.sleep(4 * _NAP_S)


def _answer(question: Interrupt, effects: EffectLog, seconds: float) -> dict[str, Any] | None:
    found = effects.find(question)
    if found is not None:
        return {"approved": False, "output": found.output, "reason": "the witness holds its effect"}
    if seconds < _LOOK_TWICE_S:
        return None
    return {"approved": True, "reason": "the witness holds no effect of it"}
