"""Threads for code that blocks: a queue that they share, and no more of them than were ever needed at once.

`concurrent.futures` does the same, but makes a future with a condition of its own for every call, which the bodies of
tools have no use for: how they end is told to the loop that waits for them.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeAlias

_Work: TypeAlias = tuple[Callable[..., object], tuple[Any, ...]]


class Threads:
    """Runs functions in threads. What was begun is waited for when the process ends; a forked child starts with none.

    Attributes:
        most: Threads at most; what comes while all of them are busy waits for one.
    """

    def __init__(self, most: int, name: str) -> None:
        self.most = most
        self._name = name
        self._start_over()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._start_over)
        self._watching = False

    def _start_over(self) -> None:
        self._queue: SimpleQueue[_Work | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._unfinished = 0
        self._ending = False

    def submit(self, function: Callable[..., object], *arguments: object) -> None:
        """Let a thread call the function, which may raise nothing.

        Raises:
            RuntimeError: The process is ending, or no thread can be started; the function is not called.
        """
        with self._lock:
            if self._ending:
                raise RuntimeError("the process is ending, nothing is begun any more")
            if len(self._threads) <= self._unfinished and len(self._threads) < self.most:
                self._start()
            self._unfinished += 1
            self._queue.put((function, arguments))

    def _start(self) -> None:
        if not self._watching:
            # At the first use: what is registered last is called first, so stores that are in use are still open then.
            atexit.register(self._end)
            self._watching = True
        name = f"{self._name}_{len(self._threads)}"
        thread = threading.Thread(target=self._serve, args=(self._queue,), name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError:
            if not self._threads:
                raise
        else:
            self._threads.append(thread)

    def _serve(self, queue: SimpleQueue[_Work | None]) -> None:
        while (work := queue.get()) is not None:
            function, arguments = work
            try:
                function(*arguments)
            finally:
                del work, function, arguments  # a thread that waits keeps nothing alive
                with self._lock:
                    self._unfinished -= 1

    def _end(self) -> None:
        with self._lock:
            self._ending = True
            for _ in self._threads:
                self._queue.put(None)
        for thread in self._threads:
            thread.join()
