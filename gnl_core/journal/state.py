"""What the threads of a store share: a clock, and counts of what has been done."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace


@dataclass(slots=True)
class Statistics:
    """What a storage object has done so far; counted by it alone, not by others on the same file.

    Attributes:
        batches: Batches applied.
        refused: Batches refused.
        transactions: Commits that wrote: each is one sync of the log with durability 'full'.
        reads: Calls of `get_many`.
        scans: Pages of `scan`.
        rows_read: Rows returned by either.
        rows_written: Rows created or replaced.
        bytes_written: Bytes of values and blobs in them; keys and SQLite's own are not counted.
    """

    batches: int = 0
    refused: int = 0
    transactions: int = 0
    reads: int = 0
    scans: int = 0
    rows_read: int = 0
    rows_written: int = 0
    bytes_written: int = 0

    def copy(self) -> Statistics:
        """Return the figures as they are now."""
        return replace(self)


class Clock:
    """Milliseconds that never run backwards within one storage object, and never behind a row that it has seen."""

    def __init__(self, seconds: Callable[[], float] = time.time) -> None:
        self._seconds = seconds
        self._last = 0
        self._lock = threading.Lock()

    def read(self, seen: int = 0) -> int:
        """Return the time, at least `seen`."""
        now = int(self._seconds() * 1000)
        with self._lock:
            self._last = max(self._last, now, seen)
            return self._last

    def reset_lock(self) -> None:
        """Make the lock anew: in a child process nobody would release it."""
        self._lock = threading.Lock()
