"""What the threads of stores owe their process: they survive its forks and finish before it ends."""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from typing import Protocol

_EXIT_WAIT_S = 5.0


class Forkable(Protocol):
    """A thread with a connection."""

    def stop(self) -> threading.Thread | None:
        """Let the thread end after what is queued."""
        ...

    def before_fork(self) -> None:
        """Come to rest, with no connection open."""
        ...

    def after_fork(self, *, child: bool) -> None:
        """Go on."""
        ...


_workers: weakref.WeakSet[Forkable] = weakref.WeakSet()
_resting: list[Forkable] = []
_fork_lock = threading.Lock()


def register(worker: Forkable) -> None:
    """Let forks and the end of the process take care of a worker, for as long as it lives."""
    _workers.add(worker)


def _before_fork() -> None:
    _fork_lock.acquire()
    _resting.extend(_workers)
    for worker in _resting:
        worker.before_fork()


def _after_fork_in_parent() -> None:
    for worker in _resting:
        worker.after_fork(child=False)
    _resting.clear()
    _fork_lock.release()


def _after_fork_in_child() -> None:
    for worker in _resting:
        worker.after_fork(child=True)
    _resting.clear()
    _fork_lock.release()


def _at_exit() -> None:
    # The threads are daemons, so that nothing hangs; without this the end would cut off what is queued.
    threads = [thread for worker in list(_workers) if (thread := worker.stop()) is not None]
    until = time.monotonic() + _EXIT_WAIT_S
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
atexit.register(_at_exit)
