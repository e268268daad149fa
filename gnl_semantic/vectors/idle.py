"""One thread a process that drops from caches what nobody has asked for: no call needs to come for that."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from typing import Protocol

_SHORTEST_NAP_S = 0.05


class Sweepable(Protocol):
    """A cache."""

    def sweep(self) -> float | None:
        """Drop what is due; return the seconds until the next is, None where nothing is held."""
        ...


class _Sweeper:
    def __init__(self) -> None:
        self._start_over()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._start_over)

    def _start_over(self) -> None:
        self._changed = threading.Condition()
        self._caches: weakref.WeakSet[Sweepable] = weakref.WeakSet()
        self._thread: threading.Thread | None = None

    def watch(self, cache: Sweepable) -> None:
        with self._changed:
            if self._thread is not None and cache in self._caches:
                return
            self._caches.add(cache)
            if self._thread is not None:
                self._changed.notify()  # it may sleep for longer than this one allows
                return
            thread = threading.Thread(target=self._serve, name="gnl-vectors-idle", daemon=True)
            with contextlib.suppress(RuntimeError):  # no thread to be had: the next call drops what is due
                thread.start()
                self._thread = thread

    def _serve(self) -> None:
        with self._changed:
            while (due := self._sweep()) is not None:
                self._changed.wait(max(due, _SHORTEST_NAP_S))
            self._thread = None

    def _sweep(self) -> float | None:
        """Sweep all; the lock is held, so that none is added unseen. Nothing here keeps a cache alive afterwards."""
        return min((left for cache in self._caches if (left := cache.sweep()) is not None), default=None)


_sweeper = _Sweeper()


def watch(cache: Sweepable) -> None:
    """Have a cache swept for as long as it holds something. It is not kept alive by that."""
    _sweeper.watch(cache)
