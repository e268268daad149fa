"""Two threads a store: one writes, one reads, each with a connection that no other thread uses.

A call is one hop there and one back. What waits in the writer's queue becomes one transaction: it costs one sync, and
each call is answered after the commit. If anything in it fails, the transaction is undone and each batch gets one of
its own, so that no batch suffers for another.
"""

from __future__ import annotations

import contextlib
import os
import random
import sqlite3
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Generic, TypeVar

from gnl_core.errors import StoreCorruptError, StoreUnavailableError, StoreUnknownError
from gnl_core.journal import process
from gnl_core.journal.sqlite_open import Busy, Target, busy_error, connect, translate
from gnl_core.journal.sqlite_rows import Rows
from gnl_core.journal.sqlite_write import WriteRows
from gnl_core.journal.state import Clock, Statistics
from gnl_core.journal.waiting import Job, Outcome, deliver

_MOST_BATCHES = 128  # of one transaction: what waits behind it should not wait long
_LONGEST_NAP_S = 0.01

_RowsT = TypeVar("_RowsT", bound=Rows)


class Worker(Generic[_RowsT]):
    """A thread with a queue and a connection; both are made when the first call comes."""

    rows_type: type[_RowsT]

    def __init__(self, name: str, target: Target, lock_wait: float, clock: Clock, statistics: Statistics) -> None:
        self._name = name
        self._target = target
        self._lock_wait = lock_wait
        self._clock = clock
        self._statistics = statistics
        self._closed = False
        self._store_id: str | None = None
        self._rows: _RowsT | None = None
        self._file = ""
        self._identity: tuple[int, int] | None = None
        self._start_over()
        process.register(self)

    def _start_over(self) -> None:
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        # Held while SQLite is at work. Who forks takes it first: a child would inherit SQLite's own locks otherwise.
        self._gate = threading.Lock()

    # Called by anybody -----------------------------------------------------------------------------------------------

    def submit(self, job: Job) -> None:
        """Queue a call.

        Raises:
            StoreUnavailableError: The store is closed, or the process is ending.
        """
        with self._lock:
            self.check_open()
            if self._thread is None:
                thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:
                    raise StoreUnavailableError(
                        f"no thread can be started for the store {self._target.database} ({error}); nothing was written"
                    ) from error
                self._thread = thread
            self._queue.put(job)

    def check_open(self) -> None:
        """Raise `StoreUnavailableError` if the store is closed."""
        if self._closed:
            raise StoreUnavailableError(f"the store {self._target.database} is closed; open it anew", closed=True)

    def stop(self) -> threading.Thread | None:
        """Let the thread end after what is queued. Returns it, None where none was started."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._queue.put(None)
            return self._thread

    def before_fork(self) -> None:
        """Close the connection: SQLite keeps its locks per process, and a child must not believe that it holds them."""
        self._gate.acquire()
        self._drop()

    def after_fork(self, *, child: bool) -> None:
        """Go on; a child begins with an empty queue, and opens the file when it first uses it."""
        if child:
            self._start_over()
            self._clock.reset_lock()
        else:
            self._gate.release()

    # The thread ------------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        ending = False
        while not ending:
            jobs, ending = _take(self._queue)
            try:
                deliver(self._answer(jobs))
            except BaseException as error:
                # Whatever it is, somebody waits: a thread that died silently would hang them all.
                deliver([(job, None, error) for job in jobs])
            del jobs  # a thread that waits must not keep alive what the last call wrote
        with self._gate:
            self._drop()

    def _answer(self, jobs: list[Job]) -> list[Outcome]:
        raise NotImplementedError

    def _retry(self, attempt: Callable[[list[Job]], list[Outcome]], jobs: list[Job]) -> list[Outcome]:
        until = time.monotonic() + self._lock_wait
        while True:
            try:
                with self._gate:
                    return attempt(jobs)
            except Busy:
                if time.monotonic() >= until:
                    return [(job, None, busy_error(self._target, self._lock_wait)) for job in jobs]
            time.sleep(random.uniform(0, _LONGEST_NAP_S))  # noqa: S311 - so that two who wait do not march in step

    def _open(self) -> _RowsT:
        """Return the open connection, or open one: at first, after an error, after a fork, or as the file moved."""
        rows = self._rows
        if rows is not None and self._identity == _identity(self._file):
            return rows
        self._drop()
        if self._store_id is not None and _identity(self._file) is None:
            raise self._replaced()
        connection = connect(self._target)
        try:
            rows = self.rows_type(connection, self._clock, self._statistics)
            if self._store_id not in (None, rows.store_id):
                raise self._replaced()
            self._file = connection.execute("PRAGMA database_list").fetchone()[2]
        except BaseException:
            connection.close()
            raise
        self._store_id = rows.store_id
        self._rows, self._identity = rows, _identity(self._file)
        return rows

    def _replaced(self) -> StoreUnavailableError:
        return StoreUnavailableError(
            f"{self._target.database} was removed, or replaced by another store, while it was in use; nothing was "
            "written. Put the file back, or open the other one as a new storage",
            path=self._target.database,
        )

    def _drop(self) -> None:
        rows, self._rows = self._rows, None
        if rows is not None:
            # Closing tries a checkpoint; what it cannot do now, the next one who opens the file does.
            with contextlib.suppress(sqlite3.Error):
                rows.connection.close()


class Reader(Worker[Rows]):
    """Answers each call by itself."""

    rows_type = Rows

    def _answer(self, jobs: list[Job]) -> list[Outcome]:
        return [self._retry(self._attempt, [job])[0] for job in jobs if not job.future.cancelled()]

    def _attempt(self, jobs: list[Job]) -> list[Outcome]:
        (job,) = jobs
        try:
            return [(job, job.work(self._open(), *job.arguments), None)]
        except Busy:
            raise
        except sqlite3.Error as error:
            found = translate(error, self._target)
            found.__cause__ = error
            if isinstance(found, Busy):
                raise found from error
            self._drop()
            return [(job, None, found)]
        except BaseException as error:
            return [(job, None, error)]


class Writer(Worker[WriteRows]):
    """Puts everything that waits into one transaction."""

    rows_type = WriteRows

    def _answer(self, jobs: list[Job]) -> list[Outcome]:
        outcomes = self._retry(self._attempt, jobs) if jobs else []
        if not outcomes:
            outcomes = [self._retry(self._attempt, [job])[0] for job in jobs]
        return outcomes

    def _attempt(self, jobs: list[Job]) -> list[Outcome]:
        """Run one transaction; no outcomes at all say that it was undone and each batch should try by itself."""
        rows: WriteRows | None = None
        committing = False
        try:
            rows = self._open()
            rows.begin()
            outcomes: list[Outcome] = [(job, job.work(rows, *job.arguments), None) for job in jobs]
            rows.finish()
            committing = True
            rows.commit()
        except Busy:
            raise
        except BaseException as error:
            return self._undo(jobs, rows, error, committing=committing)
        return outcomes

    def _undo(
        self, jobs: list[Job], rows: WriteRows | None, error: BaseException, *, committing: bool
    ) -> list[Outcome]:
        found = error
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
        if isinstance(found, StoreUnknownError | StoreCorruptError):
            self._drop()  # what the file holds is for a fresh connection to find out
        if not isinstance(found, StoreUnknownError) and len(jobs) > 1 and not committing:
            return []
        return [(job, None, found if job is jobs[0] else _twin(found)) for job in jobs]


def _take(queue: SimpleQueue[Job | None]) -> tuple[list[Job], bool]:
    """Wait for a call; return it with all that wait behind it, and whether the last one was the end."""
    jobs: list[Job] = []
    job = queue.get()
    while job is not None:
        jobs.append(job)
        if len(jobs) == _MOST_BATCHES:
            return jobs, False
        if queue.empty():  # nobody else takes from it, so what it holds now is there to be taken
            return jobs, False
        job = queue.get_nowait()
    return jobs, True


def _twin(error: BaseException) -> BaseException:
    # Two tasks must not raise one object: each adds its own traceback to it.
    twin = type(error)(*error.args, **getattr(error, "detail", {}))
    twin.__cause__ = error.__cause__
    return twin


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - once a transaction, and Path would double what it costs
    except OSError:
        return None
    return found.st_dev, found.st_ino
