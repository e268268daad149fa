"""This project: `run_durable` over one storage that all runs of the process share."""

# ruff: noqa: D102 - these are the methods of roster.Adapter, which says what they do
from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from peers import work
from peers.ours import InstantModel

from gnl_core import PostgresStorage, SqliteStorage, keys, run_durable, tool
from gnl_core.journal import scan_all


class Adapter:
    """One store, one tool."""

    def __init__(self) -> None:
        self.counter = work.Counter()

        @tool(name=work.TOOL, description=work.DESCRIPTION, side_effect=True)
        async def add(account: str, amount: int, line: str, note: str) -> dict[str, Any]:  # noqa: ARG001
            return self.counter.add(amount, account, line)

        self.tool = add

    @property
    def effects(self) -> int:
        return self.counter.total

    def open(self, place: str, connections: int) -> None:
        self.storage = (
            PostgresStorage(place, pool_size=connections)
            if place.startswith("postgresql:")
            else SqliteStorage(place, durability="full")
        )

    async def drive(self, name: str, steps: int) -> list[float]:
        asked: list[float] = []
        await run_durable(
            run_id=name,
            journal=self.storage.runs,
            model=InstantModel(steps, on_ask=lambda _: asked.append(time.perf_counter())),
            tools=[self.tool],
            prompt=work.PROMPT,
            max_steps=steps + 1,
        )
        return asked

    async def recorded(self, names: list[str]) -> tuple[int, int]:
        answers = results = 0
        for name in names:
            request = (*keys.request(name), keys.ROOT)
            answers += len([1 async for _ in scan_all(self.storage.runs, (*request, "model"))])
            async for entry in scan_all(self.storage.runs, (*request, "tool")):
                results += isinstance(entry.value, Mapping) and entry.value["status"] == "succeeded"
        return answers, results

    def close(self) -> None:
        self.storage.close()
