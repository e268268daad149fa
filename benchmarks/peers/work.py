"""The work that every peer does: an instant model asks for one tool call a step, and the tool adds to a counter.

Everybody gets the same arguments and returns the same result, about 200 bytes each, as an agent's call has.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any, Protocol

TOOL = "add_to_ledger"
DESCRIPTION = "Add an amount to an account and return the new total."
PROMPT = "Post every line of the month's statement to the ledger, one call a line, and say when you are done."
FINAL = "Every line is posted."
_NOTE = "Invoice line, net of tax, cost centre 4711, approved by the regional office on the first working day."


class Counter:
    """The effect: a number in memory, so that nothing but the record costs anything.

    With GNL_BENCH_EFFECTS every effect is a line in that file too, and GNL_BENCH_DIE names the line of the statement
    whose effect is the last thing that the process does.
    """

    def __init__(self) -> None:
        self.total = 0
        self.log = os.environ.get("GNL_BENCH_EFFECTS")
        self.die = os.environ.get("GNL_BENCH_DIE")

    def add(self, amount: int, account: str, line: str) -> dict[str, Any]:
        """Do the effect and return what the tool returns."""
        self.total += amount
        if self.log:
            with Path(self.log).open("a", encoding="utf-8") as file:
                file.write(line + "\n")
            if line == self.die:
                os._exit(9)
        return {"total": self.total, "account": account, "line": line, "note": _NOTE}


def arguments(step: int) -> dict[str, Any]:
    """Return the arguments of step number `step`; no two steps have the same."""
    return {"account": "DE-7781-4402", "amount": 1, "line": line_of(step), "note": _NOTE}


def line_of(step: int) -> str:
    """Return the name of the line of the statement that step number `step` posts."""
    return f"2026-03/{step:06d}"


class Peer(Protocol):
    """What the worker asks of an adapter. Only `run` is timed."""

    counter: Counter

    def open(self, folder: Path, steps: int) -> None:
        """Open the store in the folder, and make everything that a program makes once, for runs of so many steps."""
        ...

    def run(self) -> None:
        """Drive one agent run."""
        ...

    def resume(self) -> None:
        """Drive the run of a process that died, in the way that the peer documents."""
        ...

    def durable_steps(self) -> int:
        """Count the steps whose model answer (where it is kept) and tool result the store holds."""
        ...

    def settings(self) -> str:
        """Return the journal mode and synchronous level that the peer's own connection says it has."""
        ...

    def close(self) -> None:
        """Release everything that `open` made."""
        ...


_LEVELS = {0: "OFF", 1: "NORMAL", 2: "FULL", 3: "EXTRA"}


def spelled(journal_mode: str, synchronous: int) -> str:
    """Return sqlite's settings as text, for instance 'wal, FULL'."""
    return f"{journal_mode}, {_LEVELS[synchronous]}"


def settings_of(connection: sqlite3.Connection) -> str:
    """Return the settings of a connection of the standard library's."""
    mode = connection.execute("PRAGMA journal_mode").fetchone()[0]
    return spelled(mode, connection.execute("PRAGMA synchronous").fetchone()[0])


def database(folder: Path) -> Path:
    """Return the one database of a round."""
    return folder / "store.sqlite"


def stored_bytes(folder: Path) -> int:
    """Return the size of the database with its write-ahead log folded in, in bytes; 0 where there is none yet."""
    path = database(folder)
    if not path.exists():
        return 0
    connection = sqlite3.connect(path)
    try:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    finally:
        connection.close()
    return path.stat().st_size


def count(folder: Path, query: str, *values: Any) -> int:
    """Return the first column of the first row of a query, read by a connection of our own."""
    connection = sqlite3.connect(database(folder))
    try:
        return int(connection.execute(query, values).fetchone()[0])
    finally:
        connection.close()
