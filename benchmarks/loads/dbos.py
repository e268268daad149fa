"""DBOS Transact: an async workflow a run, its model call and its tool call async steps; a task a workflow."""

# ruff: noqa: D102 - these are the methods of roster.Adapter, which says what they do
from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import closing
from typing import Any

from dbos import DBOS, DBOSConfig, SetWorkflowID
from peers import work

COUNTER = work.Counter()
ASKED: dict[str, list[float]] = {}


@DBOS.step()
async def call_model(run: str, turn: int, steps: int) -> dict[str, Any]:
    ASKED[run].append(time.perf_counter())
    if turn < steps:
        return {"tool": work.TOOL, "args": work.arguments(turn)}
    return {"text": work.FINAL}


@DBOS.step()
async def call_tool(account: str, amount: int, line: str, note: str) -> dict[str, Any]:  # noqa: ARG001
    return COUNTER.add(amount, account, line)


@DBOS.workflow()
async def agent(run: str, steps: int, prompt: str) -> str:  # noqa: ARG001 - recorded as the workflow's input
    turn = 0
    while "args" in (answer := await call_model(run, turn, steps)):
        await call_tool(**answer["args"])
        turn += 1
    return str(answer["text"])


class Adapter:
    """A DBOS instance a measurement, since it is one a process."""

    def __init__(self, *, wal: bool = False) -> None:
        self.wal = wal

    @property
    def effects(self) -> int:
        return COUNTER.total

    def open(self, place: str, connections: int) -> None:
        on_server = place.startswith("postgresql:")
        if self.wal:
            with closing(sqlite3.connect(place)) as connection:
                connection.execute("PRAGMA journal_mode=WAL")
        config = DBOSConfig(
            name="bench",
            system_database_url=place if on_server else f"sqlite:///{place}",
            application_version="bench",
            log_level="ERROR",
        )
        if on_server:
            config["sys_db_pool_size"] = connections
        DBOS(config=config)
        DBOS.launch()

    async def drive(self, name: str, steps: int) -> list[float]:
        ASKED[name] = []
        with SetWorkflowID(name):
            await agent(name, steps, work.PROMPT)
        return ASKED.pop(name)

    async def recorded(self, names: list[str]) -> tuple[int, int]:
        answers = results = 0
        for name in names:
            steps = await asyncio.to_thread(DBOS.list_workflow_steps, name)
            done = [one["function_name"] for one in steps if one["output"] is not None]
            answers += sum(one.endswith("call_model") for one in done)
            results += sum(one.endswith("call_tool") for one in done)
        return answers, results

    def close(self) -> None:
        DBOS.destroy()
