"""call4agents, as its README shows: `@effect` around the tool, `@recorded` around the model call, inside `run`.

It has no agent loop of its own, so the loop here is the shortest there is. The prompt that it records is the newest
message alone: recording the whole conversation each time would cost it more.
"""

# ruff: noqa: D102 - these are the methods of work.Peer, which says what they do
from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import call4agents as c4a

from peers import work

RUN = "bench"
STEPS = 0
COUNTER = work.Counter()


def _answer(turn: int) -> dict[str, Any]:
    if turn < STEPS:
        return {"tool": work.TOOL, "args": work.arguments(turn)}
    return {"text": work.FINAL}


async def ask(turn: int, prompt: str) -> dict[str, Any]:  # noqa: ARG001 - recorded as its argument
    return _answer(turn)


def ask_sync(turn: int, prompt: str) -> dict[str, Any]:  # noqa: ARG001 - recorded as its argument
    return _answer(turn)


@c4a.effect
async def add(account: str, amount: int, line: str, note: str) -> dict[str, Any]:  # noqa: ARG001
    return COUNTER.add(amount, account, line)


@c4a.effect
def add_sync(account: str, amount: int, line: str, note: str) -> dict[str, Any]:  # noqa: ARG001
    return COUNTER.add(amount, account, line)


class Call4Agents:
    """`recorded`: whether the model's answers are kept too; its resume does not use them, its replay does."""

    def __init__(self, *, asynchronous: bool, recorded: bool) -> None:
        self.asynchronous, self.recorded = asynchronous, recorded
        self.ask = c4a.recorded(ask) if recorded else ask
        self.ask_sync = c4a.recorded(ask_sync) if recorded else ask_sync

    @property
    def counter(self) -> work.Counter:
        return COUNTER

    def open(self, folder: Path, steps: int) -> None:
        global STEPS  # noqa: PLW0603 - the decorated functions take only what is to be recorded
        STEPS = steps
        self.folder = folder
        COUNTER.total = 0
        self.ledger = c4a.init(str(work.database(folder)))
        self.runner = asyncio.Runner()
        self.runner.run(asyncio.sleep(0))

    def run(self) -> None:
        if self.asynchronous:
            self.runner.run(self._drive())
        else:
            self._drive_sync()

    async def _drive(self) -> None:
        with c4a.run(RUN):
            turn, prompt = 0, work.PROMPT
            while "args" in (answer := await self.ask(turn, prompt)):
                prompt = json.dumps(await add(**answer["args"]))
                turn += 1

    def _drive_sync(self) -> None:
        with c4a.run(RUN):
            turn, prompt = 0, work.PROMPT
            while "args" in (answer := self.ask_sync(turn, prompt)):
                prompt = json.dumps(add_sync(**answer["args"]))
                turn += 1

    def resume(self) -> None:
        self.run()

    def durable_steps(self) -> int:
        kinds = ["tool_intent", "tool_done"]
        counts = [
            work.count(self.folder, "SELECT count(*) FROM entries WHERE run_id = ? AND kind = ?", RUN, kind)
            for kind in kinds
        ]
        if self.recorded:  # and one more answer, which is the text at the end
            counts.append(
                work.count(self.folder, "SELECT count(*) FROM entries WHERE run_id = ? AND kind = 'llm_call'", RUN) - 1
            )
        return min(counts)

    def settings(self) -> str:
        return work.settings_of(self.ledger._conn())

    def close(self) -> None:
        self.runner.close()
