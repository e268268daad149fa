"""The jobs of a soak: what one does, and the files that tell the processes of each other's.

A job is three effects in two steps: 'charge', which can be looked up after a crash, beside 'notify', which cannot, and
then 'ship', which can. The witness counts them by job; the journal is not asked.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
from pathlib import Path
from typing import Any

from gnl_core import Context, Gnl, open_storage, tool
from gnl_core.journal.storage import Storage
from gnl_core.model.messages import ModelRequest
from gnl_core.testing import EffectLog, ScriptedModel
from gnl_core.testing.effects import Effect
from gnl_core.testing.scripted import Turn

AGENT = "clerk"
TOOLS = ("charge", "notify", "ship")
LOCK_TTL_S = 3.0
"""Seconds after its last sign of life when a dead worker's run is taken over."""

_LINGER_S = 0.02  # at most, before and after an effect: a kill shall hit it there
_WINDOW = 6  # jobs that are open at a time: workers meet each other


def storage_of(place: str) -> Storage:
    """Return the store of the soak."""
    redis = place.startswith(("redis:", "unix:"))
    return open_storage(place, accept_async_replication=redis)


def abandoned(job: int) -> bool:
    """Return whether nobody answers what this job asks: it must then wait, by its name."""
    return job % 10 == 0


def name_of(job: int) -> str:
    """Return the work key of a job."""
    return f"job-{job}"


class Board:
    """Which jobs were begun, finished, or wait for a person: files that processes append lines to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def note(self, what: str, job: int) -> None:
        """Add a line."""
        with (self.folder / f"{what}.log").open("a") as file:
            file.write(f"{job}\n")  # so short a line is whole or missing, and then its job is driven again

    def jobs(self, what: str) -> set[int]:
        """Return the jobs of which it was noted."""
        path = self.folder / f"{what}.log"
        return {int(line) for line in path.read_text().splitlines() if line} if path.exists() else set()

    def last_round(self) -> bool:
        """Return whether no new job begins any more."""
        return (self.folder / "last-round").exists()

    def open_jobs(self) -> list[int]:
        """Return the jobs to drive now, the lowest first."""
        over = self.jobs("finished") | self.jobs("waiting")
        if self.last_round():
            return sorted(self.jobs("begun") - over)
        number = 1
        found: list[int] = []
        while len(found) < _WINDOW:
            if number not in over:
                found.append(number)
            number += 1
        return found


def clerk(storage: Storage, effects: EffectLog, luck: random.Random) -> Gnl:
    """Return the agent that does a job."""

    async def work(name: str, job: int) -> dict[str, Any]:
        await asyncio.sleep(luck.uniform(0, _LINGER_S))
        done = effects.fire(name, name_of(job), {"done": f"{name} {job} by {os.getpid()}"})
        await asyncio.sleep(luck.uniform(0, _LINGER_S))
        assert done is not None
        return done

    def look_up(context: Context) -> dict[str, Any]:
        found: Effect | None = effects.find(context)
        return {"done": False} if found is None else {"done": True, "output": found.output}

    @tool(side_effect=True, recover=look_up)
    async def charge(job: int) -> dict[str, Any]:
        """Charge the customer of a job."""
        return await work("charge", job)

    @tool(side_effect=True)
    async def notify(job: int) -> dict[str, Any]:
        """Write to the customer of a job."""
        return await work("notify", job)

    @tool(side_effect=True, recover=look_up)
    async def ship(job: int) -> dict[str, Any]:
        """Ship what a job is about."""
        return await work("ship", job)

    options: Any = {"model": ScriptedModel(_TURNS), "tools": [charge, notify, ship], "work_scope": "org"}
    return Gnl(storage.runs, agents={AGENT: options}, lock_ttl=LOCK_TTL_S)


def _order(request: ModelRequest) -> dict[str, int]:
    found = re.search(r"job-(\d+)", request.messages[0].text)
    assert found is not None
    return {"job": int(found[1])}


def _first(request: ModelRequest) -> Turn:
    return [("charge", _order(request)), ("notify", _order(request))]


def _second(request: ModelRequest) -> Turn:
    return [("ship", _order(request))]


_TURNS: tuple[Turn, ...] = (_first, _second, "Done.")
