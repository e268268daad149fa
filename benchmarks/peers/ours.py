"""This project's runtime: `run_durable` over a sqlite journal; and what only it is measured for, replay and resume."""

# ruff: noqa: D102 - these are the methods of work.Peer, which says what they do
from __future__ import annotations

import asyncio
import gc
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

from gnl_core import SqliteStorage, keys, run_durable, tool
from gnl_core.model.messages import (
    ModelEvent,
    ModelRequest,
    ModelResponse,
    ResponseDone,
    TextPart,
    ToolCallPart,
    Usage,
)
from peers import work

RUN = "bench"
REPEATS = 9


class InstantModel:
    """Answers request n of a run with one call until `steps`, then with a text."""

    spec = "bench/instant"

    def __init__(self, steps: int, *, on_ask: Callable[[int], None] | None = None) -> None:
        self.steps, self.on_ask = steps, on_ask

    async def generate(self, request: ModelRequest) -> ModelResponse:
        step = len(request.messages) // 2  # the prompt, then an answer and a result a step
        if self.on_ask is not None:
            self.on_ask(step)
        if step >= self.steps:
            return ModelResponse((TextPart(work.FINAL),), Usage(900, 12), "stop", "instant", "bench")
        call = ToolCallPart("", work.TOOL, work.arguments(step), provider_id=f"call_{step}")
        return ModelResponse((call,), Usage(900, 60), "tool_calls", "instant", "bench")

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        yield ResponseDone(await self.generate(request))


class Ours:
    """One store, one tool, one run."""

    def __init__(self, *, asynchronous: bool, durability: str = "full") -> None:
        self.durability = durability
        self.counter = work.Counter()

        @tool(name=work.TOOL, description=work.DESCRIPTION, side_effect=True)
        async def add_async(account: str, amount: int, line: str, note: str) -> dict[str, Any]:  # noqa: ARG001
            return self.counter.add(amount, account, line)

        @tool(name=work.TOOL, description=work.DESCRIPTION, side_effect=True)
        def add(account: str, amount: int, line: str, note: str) -> dict[str, Any]:  # noqa: ARG001
            return self.counter.add(amount, account, line)

        self.tool = add_async if asynchronous else add

    def open(self, folder: Path, steps: int) -> None:
        self.folder, self.steps = folder, steps
        self.runner = asyncio.Runner()
        self.storage = SqliteStorage(work.database(folder), durability=self.durability)
        self.runner.run(self.storage.runs.now())  # opens the file, as the other adapters do here

    def run(self) -> None:
        self.runner.run(self.drive(InstantModel(self.steps)))

    def resume(self) -> None:
        self.run()

    def drive(self, model: InstantModel) -> Coroutine[Any, Any, Any]:
        return run_durable(
            run_id=RUN,
            journal=self.storage.runs,
            model=model,
            tools=[self.tool],
            prompt=work.PROMPT,
            max_steps=self.steps + 1,
        )

    def durable_steps(self) -> int:
        return self.runner.run(self._durable_steps())

    async def _durable_steps(self) -> int:
        answers = await self._rows("model")
        results = [row for row in await self._rows("tool") if row["status"] == "succeeded"]
        return min(len(answers) - 1, len(results))

    async def _rows(self, family: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        after = None
        while True:
            page = await self.storage.runs.scan((*keys.request(RUN), keys.ROOT, family), after=after)
            rows += [entry.value for entry in page.entries if isinstance(entry.value, dict)]
            if page.after is None:
                return rows
            after = page.after

    def settings(self) -> str:
        # Asked of the connection that writes, in its own thread, as every other adapter asks its peer's.
        return self.runner.run(self._settings())

    async def _settings(self) -> str:
        text: str = await self.storage.runs._engine.write(lambda rows: work.settings_of(rows.connection))
        return text

    def close(self) -> None:
        self.runner.run(self.storage.aclose())
        self.runner.close()


def replay(folder: Path, steps: int) -> dict[str, Any]:
    """Drive a finished run again, each time with a store object of its own; seconds a step."""
    folder.mkdir(parents=True)
    try:
        peer = Ours(asynchronous=True)
        peer.open(folder, steps)
        peer.run()
        peer.close()
        times = []
        for _ in range(REPEATS):
            again = Ours(asynchronous=True)
            again.open(folder, steps)
            gc.collect()
            processor, wall = time.process_time(), time.perf_counter()
            again.run()
            times.append(((time.process_time() - processor) / steps, (time.perf_counter() - wall) / steps))
            if again.counter.total:
                raise RuntimeError(f"the replay did {again.counter.total} effects, must do none")
            again.close()
        return {"cpu": [cpu for cpu, _ in times], "wall": [wall for _, wall in times]}
    finally:
        shutil.rmtree(folder)


def resume(folder: Path, steps: int) -> dict[str, Any]:
    """Resume a run whose process died after `steps` recorded steps; seconds until the model is asked, and in all."""
    dead, alive = folder / "dead", folder / "alive"
    dead.mkdir(parents=True)
    try:
        subprocess.run([sys.executable, "-m", "peers.ours", str(dead), str(steps)], check=False)
        first, total, cpu = [], [], []
        for _ in range(REPEATS):
            shutil.copytree(dead, alive)
            peer = Ours(asynchronous=True)
            peer.open(alive, steps + 1)
            asked: list[tuple[int, float]] = []
            model = InstantModel(steps + 1, on_ask=lambda step, asked=asked: asked.append((step, time.perf_counter())))
            gc.collect()
            processor, start = time.process_time(), time.perf_counter()
            peer.runner.run(peer.drive(model))
            total.append(time.perf_counter() - start)
            cpu.append(time.process_time() - processor)
            if asked[0][0] != steps or peer.counter.total != 1:
                raise RuntimeError(
                    f"resumed at step {asked[0][0]} with {peer.counter.total} effects, must be {steps}, 1"
                )
            first.append(asked[0][1] - start)
            peer.close()
            shutil.rmtree(alive)
        return {"first": first, "wall": total, "cpu": cpu, "median_ms": statistics.median(first) * 1e3}
    finally:
        shutil.rmtree(folder)


def _die(folder: Path, steps: int) -> None:
    """Record `steps` steps and die while the model is asked for the next."""
    peer = Ours(asynchronous=True)
    peer.open(folder, steps + 1)
    peer.runner.run(peer.drive(InstantModel(steps + 1, on_ask=lambda step: os._exit(9) if step == steps else None)))


if __name__ == "__main__":
    _die(Path(sys.argv[1]), int(sys.argv[2]))
