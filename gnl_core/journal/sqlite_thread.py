"""Two threads a store: one writes, one reads, each with a connection that no other thread uses.

A call is one hop there and one back. What waits in the writer's queue becomes one transaction: it costs one sync, and
each call is answered after the commit. If anything in it fails, the transaction is undone and each batch gets one of its
own, so that no batch suffers for another.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import os
import random
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias

from gnl_core.errors import StoreUnavailableError, StoreUnknownError
from gnl_core.journal.sqlite_open import Busy, Target, busy_error, connect, translate
from gnl_core.journal.sqlite_rows import Clock, Rows, Statistics

_MOST_BATCHES = 128  # of one transaction: what waits behind it should not wait long
_LONGEST_NAP_S = 0.01
_EXIT_WAIT_S = 5.0

Outcome: TypeAlias = "tuple[Job, Any, BaseException | None]"


class Held(asyncio.Future[Any]):
    """A future that cannot be cancelled: a cancelled task learns of it when the outcome is there, not before."""

    def cancel(self, msg: Any | None = None) -> bool:  # noqa: ARG002 - the signature is asyncio's
        """Refuse; the task then raises `CancelledError` as soon as it is woken with the outcome."""
        return False


class Job:
    """One call: a function over `Rows`, its arguments, and who waits for it."""

    __slots__ = ("arguments", "future", "loop", "options", "work")

    def __init__(
        self,
        work: Callable[..., Any],
        arguments: tuple[Any, ...],
        options: dict[str, Any],
        future: asyncio.Future[Any] | concurrent.futures.Future[Any],
        loop: asyncio.AbstractEventLoop | None,
    ) -> None:
        self.work = work
        self.arguments = arguments
        self.options = options
        self.future = future
        self.loop = loop

    def run(self, rows: Rows) -> Any:
        """Do the work."""
        return self.work(rows, *self.arguments, **self.options)


def _settle(outcomes: Sequence[Outcome]) -> None:
    for job, value, error in outcomes:
        if job.future.done():
            continue
        if error is None:
            job.future.set_result(value)
        else:
            job.future.set_exception(error)


def deliver(outcomes: Sequence[Outcome]) -> None:
    """Answer calls, each on its own loop."""
    by_loop: dict[asyncio.AbstractEventLoop | None, list[Outcome]] = {}
    for outcome in outcomes:
        by_loop.setdefault(outcome[0].loop, []).append(outcome)
    for loop, mine in by_loop.items():
        if loop is None:
            _settle(mine)
            continue
        try:
            loop.call_soon_threadsafe(_settle, mine)
        except RuntimeError:
            continue  # the loop was closed meanwhile: nobody waits any more


class Worker:
    """A thread with a queue and a connection; both are made when the first call comes."""

    def __init__(self, name: str, target: Target, lock_wait: float, clock: Clock, statistics: Statistics) -> None:
        self._name = name
        self._target = target
        self._lock_wait = lock_wait
        self._clock = clock
        self._statistics = statistics
        self._closed = False
        self._store_id: str | None = None
        self._rows: Rows | None = None
        self._identity: tuple[int, int] | None = None
        self._file = ""
        self._start_over()
        _workers.add(self)

    def _start_over(self) -> None:
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        # Held while SQLite is at work. Who forks takes it first: a child would inherit SQLite's own locks otherwise.
        self.gate = threading.Lock()

    # Called by anybody -----------------------------------------------------------------------------------------------

    def submit(self, job: Job) -> None:
        """Queue a call.

        Raises:
            StoreUnavailableError: The store is closed.
        """
        with self._lock:
            self.check_open()
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
                self._thread.start()
            self._queue.put(job)

    def check_open(self) -> None:
        """Raise `StoreUnavailableError` if the store is closed."""
        if self._closed:
            raise StoreUnavailableError(f"the store {self._target.database} is closed; open it anew")

    def stop(self) -> threading.Thread | None:
        """Let the thread end after what is queued. Returns it."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._queue.put(None)
            return self._thread

    def before_fork(self) -> None:
        """Close the connection: SQLite's locks are kept per process and must not be known to a child."""
        self.gate.acquire()
        self._drop()

    def after_fork(self, *, child: bool) -> None:
        """Go on; a child begins with an empty queue and opens the file when it is first used there."""
        if not child:
            self.gate.release()
            return
        self._start_over()
        self._clock.reset_lock()

    # The thread ------------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        queue = self._queue
        ending = False
        while not ending:
            job = queue.get()
            jobs: list[Job] = []
            while job is not None:
                jobs.append(job)
                if len(jobs) == _MOST_BATCHES:
                    break
                try:
                    job = queue.get_nowait()
                except Empty:
                    break
            ending = job is None
            if jobs:
                deliver(self._answer(jobs))
            # A waiting thread must not keep the last call's arguments alive.
            del jobs, job
        with self.gate:
            self._drop()

    def _answer(self, jobs: list[Job]) -> list[Outcome]:
        raise NotImplementedError

    def _retry(self, jobs: list[Job], attempt: Callable[[list[Job]], list[Outcome]]) -> list[Outcome]:
        until = time.monotonic() + self._lock_wait
        while True:
            try:
                with self.gate:
                    return attempt(jobs)
            except Busy:
                if time.monotonic() >= until:
                    return [(job, None, busy_error(self._target, self._lock_wait)) for job in jobs]
            time.sleep(random.uniform(0, _LONGEST_NAP_S))  # noqa: S311 - so that two waiters do not march in step

    def _open(self) -> Rows:
        rows = self._rows
        if rows is not None and self._identity == _identity(self._file):
            return rows
        self._drop()
        if self._store_id is not None and self._file and _identity(self._file) is None:
            raise self._replaced()
        connection = connect(self._target)
        try:
            rows = Rows(connection, self._clock, self._statistics)
            self._file = connection.execute("PRAGMA database_list").fetchone()[2]
        except sqlite3.Error as error:
            connection.close()
            raise translate(error, self._target) from error
        if self._store_id not in (None, rows.store_id):
            connection.close()
            raise self._replaced()
        self._store_id = rows.store_id
        self._rows, self._identity = rows, _identity(self._file)
        return rows

    def _replaced(self) -> StoreUnavailableError:
        return StoreUnavailableError(
            f"{self._target.database} was removed or replaced by another store while it was in use; nothing was "
            "written. Put the file back, or open the new one with a new storage",
            path=self._target.database,
        )

    def _drop(self) -> None:
        rows, self._rows = self._rows, None
        if rows is not None:
            try:
                rows.connection.close()
            except sqlite3.Error:
                pass  # closing tries a checkpoint; what it cannot do now, the next opener does


class Reader(Worker):
    """Answers each call by itself."""

    def _answer(self, jobs: list[Job]) -> list[Outcome]:
        return [self._retry([job], self._attempt)[0] for job in jobs if not job.future.cancelled()]

    def _attempt(self, jobs: list[Job]) -> list[Outcome]:
        (job,) = jobs
        try:
            return [(job, job.run(self._open()), None)]
        except sqlite3.Error as error:
            found = translate(error, self._target)
            if isinstance(found, Busy):
                raise found from error
            self._drop()
            found.__cause__ = error
            return [(job, None, found)]
        except Busy:
            raise
        except BaseException as error:  # noqa: BLE001 - whoever waits for it gets it
            return [(job, None, error)]


class Writer(Worker):
    """Puts everything that waits into one transaction."""

    def _answer(self, jobs: list[Job]) -> list[Outcome]:
        outcomes = self._retry(jobs, self._attempt)
        if not outcomes:
            outcomes = [self._retry([job], self._attempt)[0] for job in jobs]
        return outcomes

    def _attempt(self, jobs: list[Job]) -> list[Outcome]:
        """Run one transaction; no outcomes at all say that it was undone and each batch should try by itself."""
        rows: Rows | None = None
        committing = False
        try:
            rows = self._open()
            rows.begin()
            outcomes: list[Outcome] = [(job, job.run(rows), None) for job in jobs]
            rows.finish()
            committing = True
            rows.commit()
        except Busy:
            raise
        except BaseException as error:  # noqa: BLE001 - whoever waits for it gets it
            return self._undo(jobs, rows, error, committing=committing)
        return outcomes

    def _undo(self, jobs: list[Job], rows: Rows | None, error: BaseException, *, committing: bool) -> list[Outcome]:
        found: BaseException = error
        if isinstance(error, sqlite3.Error):
            found = translate(error, self._target, committing=committing)
            found.__cause__ = error
        if rows is not None:
            try:
                rows.rollback()
            except sqlite3.Error:
                self._drop()
        if isinstance(found, Busy):
            raise found
        if isinstance(found, StoreUnknownError):
            self._drop()  # what the file holds is for a fresh connection to find out
        elif len(jobs) > 1 and not committing:
            return []
        return [(job, None, found if job is jobs[0] else _again(found)) for job in jobs]


def _again(error: BaseException) -> BaseException:
    """Return an error of the same kind: two tasks must not raise one object."""
    twin = type(error)(*error.args, **getattr(error, "detail", {}))
    twin.__cause__ = error.__cause__
    return twin


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - once a transaction; Path would double its cost
    except OSError:
        return None
    return found.st_dev, found.st_ino


# Forks and the end of the process --------------------------------------------------------------------------------------

_workers: weakref.WeakSet[Worker] = weakref.WeakSet()
_forking: list[Worker] = []
_fork_lock = threading.Lock()


def _before_fork() -> None:
    _fork_lock.acquire()
    _forking.extend(_workers)
    for worker in _forking:
        worker.before_fork()


def _after_fork_in_parent() -> None:
    for worker in _forking:
        worker.after_fork(child=False)
    _forking.clear()
    _fork_lock.release()


def _after_fork_in_child() -> None:
    global _fork_lock  # noqa: PLW0603 - a lock that another thread of the parent held is never released here
    for worker in _forking:
        worker.after_fork(child=True)
    _forking.clear()
    _fork_lock = threading.Lock()


def _at_exit() -> None:
    """Let what is queued be written; the threads are daemons and would be cut off."""
    threads = [thread for worker in list(_workers) if (thread := worker.stop()) is not None]
    until = time.monotonic() + _EXIT_WAIT_S
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
atexit.register(_at_exit)
