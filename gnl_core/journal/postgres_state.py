"""What a PostgreSQL store is told, and what it counts."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gnl_core.journal.access import Access
from gnl_core.journal.state import Statistics


@dataclass(frozen=True, slots=True)
class Options:
    """How a store uses its server.

    Attributes:
        pool_size: Connections at most.
        lock_wait: Seconds to wait for a free connection, and for rows that others hold.
        reconnect_wait: Seconds to wait for a server that was reached before and is away.
        access: Whether the store may be made, or written.
    """

    pool_size: int
    lock_wait: float
    reconnect_wait: float
    access: Access = "make"


@dataclass(slots=True)
class PostgresStatistics(Statistics):
    """What a storage object has done so far; counted by it alone, not by others on the same store.

    Attributes:
        retries: Batches tried again since others wrote the same rows at the same moment.
        losses: Connections that turned out to be dead.
    """

    retries: int = 0
    losses: int = 0

    def copy(self) -> PostgresStatistics:
        """Return the figures as they are now."""
        return replace(self)
