"""The floor: sqlite3 of the standard library, two transactions a step, nothing else: no hashing, no thread, no loop."""

# ruff: noqa: D102 - these are the methods of work.Peer, which says what they do
from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

from peers import work


class Raw:
    """One INSERT that claims the call and keeps the model's answer, one UPDATE that keeps the result.

    As with everybody else, asking the model, the effect and the making of JSON are in the time. With `ready=True` the
    texts are made before the clock starts, and the effect is one addition: what is left is sqlite. With `apart=True`
    the answer has a row of its own beside the call's, as a journal that is read by calls has it.
    """

    def __init__(self, *, ready: bool = False, apart: bool = False) -> None:
        self.ready, self.apart = ready, apart
        self.counter = work.Counter()

    def open(self, folder: Path, steps: int) -> None:
        self.folder, self.steps = folder, steps
        self.connection = sqlite3.connect(work.database(folder), isolation_level=None)
        self.connection.execute("PRAGMA journal_mode=WAL")
        self.connection.execute("PRAGMA synchronous=FULL")
        for table in (
            "calls (run TEXT, step INTEGER, status TEXT, call TEXT, result TEXT, PRIMARY KEY (run, step))",
            "answers (run TEXT, step INTEGER, answer TEXT, PRIMARY KEY (run, step))",
        ):
            self.connection.execute(f"CREATE TABLE IF NOT EXISTS {table} WITHOUT ROWID")
        counter = work.Counter()
        self.texts = [
            (json.dumps(_answer(step)), json.dumps(counter.add(1, "DE-7781-4402", work.line_of(step))))
            for step in range(steps if self.ready else 0)
        ]

    def run(self) -> None:
        if self.ready:
            for step, (answer, result) in enumerate(self.texts):
                self._claim(step, answer)
                self.counter.total += 1
                self._keep(step, result)
            return
        for step in range(self.steps):
            answer = _answer(step)
            args = answer["args"]
            if self.apart:
                self._claim(step, json.dumps({"tool": answer["tool"], "args": args}), json.dumps(answer))
            else:
                self._claim(step, json.dumps(answer))
            self._keep(step, json.dumps(self.counter.add(args["amount"], args["account"], args["line"])))

    def _claim(self, step: int, call: str, answer: str = "") -> None:
        self.connection.execute("BEGIN IMMEDIATE")
        if answer:
            self.connection.execute("INSERT INTO answers VALUES (?, ?, ?)", ("run", step, answer))
        self.connection.execute("INSERT INTO calls VALUES (?, ?, 'running', ?, NULL)", ("run", step, call))
        self.connection.execute("COMMIT")

    def _keep(self, step: int, result: str) -> None:
        self.connection.execute("BEGIN IMMEDIATE")
        self.connection.execute(
            "UPDATE calls SET status = 'done', result = ? WHERE run = ? AND step = ?", (result, "run", step)
        )
        self.connection.execute("COMMIT")

    def resume(self) -> None:
        raise NotImplementedError("what a row that says 'running' means is for its owner to write")

    def durable_steps(self) -> int:
        return work.count(self.folder, "SELECT count(*) FROM calls WHERE status = 'done' AND result IS NOT NULL")

    def settings(self) -> str:
        return work.settings_of(self.connection)

    def close(self) -> None:
        self.connection.close()


def _answer(step: int) -> dict[str, Any]:
    return {"role": "assistant", "tool": work.TOOL, "args": work.arguments(step)}
