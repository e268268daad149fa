"""Who is measured, and what a measurement is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

Server = Literal["sqlite", "postgres"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """One row of the table.

    Attributes:
        label: What the row says.
        module: Adapter module.
        server: Where it keeps what it records.
        package: Distribution whose version is named.
        options: Keyword arguments of the adapter.
    """

    label: str
    module: str
    server: Server
    package: str
    options: Mapping[str, Any] = field(default_factory=dict)


ROSTER: dict[str, Contender] = {
    "ours-sqlite": Contender(label="gnl, SQLite", module="loads.ours", server="sqlite", package="gnl-semantic"),
    "dbos-sqlite": Contender(label="dbos, SQLite", module="loads.dbos", server="sqlite", package="dbos"),
    "dbos-sqlite-wal": Contender(
        label="dbos, file set to WAL", module="loads.dbos", server="sqlite", package="dbos", options={"wal": True}
    ),
    "ours-postgres": Contender(label="gnl, Postgres", module="loads.ours", server="postgres", package="gnl-semantic"),
    "dbos-postgres": Contender(label="dbos, Postgres", module="loads.dbos", server="postgres", package="dbos"),
}
RIVALS = {
    "ours-sqlite": ("dbos-sqlite", "dbos-sqlite-wal"),
    "ours-postgres": ("dbos-postgres",),
}
"""Whose throughput ours is set beside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What one measurement does.

    Attributes:
        at_once: Runs that are driven side by side in one event loop.
        turns: Runs that each of these places drives, one after another.
        steps: Steps of a run: one model answer and one tool call each; then one more answer ends it.
    """

    at_once: int
    turns: int
    steps: int

    @property
    def total(self) -> int:
        """Steps of the measurement."""
        return self.at_once * self.turns * self.steps


class Adapter(Protocol):
    """What the worker asks of one. Only `drive` is timed."""

    effects: int

    def open(self, place: str, connections: int) -> None:
        """Open the store: a file's path, or a server's DSN with a database that is empty."""
        ...

    async def drive(self, name: str, steps: int) -> list[float]:
        """Drive one run; return the times at which its model was asked, `steps` + 1 of them."""
        ...

    async def recorded(self, names: list[str]) -> tuple[int, int]:
        """Count the model answers and the tool results that the store holds of these runs."""
        ...

    def close(self) -> None:
        """Release everything."""
        ...
