"""DBOS Transact on sqlite, as its documentation shows: a workflow of steps, one a model call and one a tool call.

As it comes, its sqlite store has a rollback journal. `wal=True` makes the file a write-ahead-logged one before DBOS
opens it: its fastest durable setting, though not one that its documentation names.
"""

# ruff: noqa: D102 - these are the methods of work.Peer, which says what they do
from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

from dbos import DBOS, DBOSConfig, SetWorkflowID

from peers import work

RUN = "bench"
STEPS = 0
COUNTER = work.Counter()


def _answer(turn: int) -> dict[str, Any]:
    if turn < STEPS:
        return {"tool": work.TOOL, "args": work.arguments(turn)}
    return {"text": work.FINAL}


@DBOS.step()
async def call_model(turn: int) -> dict[str, Any]:
    return _answer(turn)


@DBOS.step()
async def call_tool(account: str, amount: int, line: str, note: str) -> dict[str, Any]:  # noqa: ARG001
    return COUNTER.add(amount, account, line)


@DBOS.workflow()
async def agent(prompt: str) -> str:  # noqa: ARG001 - recorded as the workflow's input
    turn = 0
    while "args" in (answer := await call_model(turn)):
        await call_tool(**answer["args"])
        turn += 1
    return str(answer["text"])


@DBOS.step()
def call_model_sync(turn: int) -> dict[str, Any]:
    return _answer(turn)


@DBOS.step()
def call_tool_sync(account: str, amount: int, line: str, note: str) -> dict[str, Any]:  # noqa: ARG001
    return COUNTER.add(amount, account, line)


@DBOS.workflow()
def agent_sync(prompt: str) -> str:  # noqa: ARG001 - recorded as the workflow's input
    turn = 0
    while "args" in (answer := call_model_sync(turn)):
        call_tool_sync(**answer["args"])
        turn += 1
    return str(answer["text"])


class Dbos:
    """A DBOS instance a round, since it is one a process."""

    def __init__(self, *, asynchronous: bool, wal: bool) -> None:
        self.asynchronous, self.wal = asynchronous, wal

    @property
    def counter(self) -> work.Counter:
        return COUNTER

    def open(self, folder: Path, steps: int) -> None:
        global STEPS  # noqa: PLW0603 - the decorated functions take only what is to be recorded
        STEPS = steps
        self.folder = folder
        COUNTER.total = 0
        if self.wal:
            connection = sqlite3.connect(work.database(folder))
            connection.execute("PRAGMA journal_mode=WAL")
            connection.close()
        config = DBOSConfig(
            name="bench",
            system_database_url=f"sqlite:///{work.database(folder)}",
            application_version="bench",
            log_level="ERROR",
        )
        self.dbos = DBOS(config=config)
        DBOS.launch()
        self.runner = asyncio.Runner()
        self.runner.run(asyncio.sleep(0))

    def run(self) -> None:
        if self.asynchronous:
            self.runner.run(self._drive())
        else:
            with SetWorkflowID(RUN):
                agent_sync(work.PROMPT)

    async def _drive(self) -> None:
        with SetWorkflowID(RUN):
            await agent(work.PROMPT)

    def resume(self) -> None:
        # The launch has found the pending workflow and is driving it.
        DBOS.retrieve_workflow(RUN).get_result()

    def durable_steps(self) -> int:
        done = [step for step in DBOS.list_workflow_steps(RUN) if step["output"] is not None]
        return (len(done) - 1) // 2

    def settings(self) -> str:
        with self.dbos._sys_db.engine.connect() as connection:
            mode = connection.exec_driver_sql("PRAGMA journal_mode").scalar_one()
            return work.spelled(mode, connection.exec_driver_sql("PRAGMA synchronous").scalar_one())

    def close(self) -> None:
        self.runner.close()
        DBOS.destroy()
