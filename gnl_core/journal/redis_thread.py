"""The thread of a Redis store, with an event loop of its own, which alone uses its connections.

So callers of any number of event loops share them, `asyncio.run` may end without closing them, and a call that writes
goes on to its outcome whatever becomes of its caller.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, Protocol

from gnl_core.errors import StoreUnavailableError
from gnl_core.journal import process
from gnl_core.journal.waiting import Job, deliver


class Session(Protocol):
    """What the loop's calls work with."""

    async def aclose(self) -> None:
        """Close the connections."""
        ...


class LoopThread:
    """A thread with an event loop; both are made when the first call comes."""

    def __init__(self, name: str, make_session: Callable[[], Session]) -> None:
        self._name = name
        self._make_session = make_session
        self._closed = False
        self._running: _Running | None = None
        self._lock = threading.RLock()  # a collection between a fork's two halves may stop this thread
        process.register(self)

    def submit(self, job: Job) -> None:
        """Begin a call: `job.work(session, *job.arguments)`, a coroutine.

        Raises:
            StoreUnavailableError: The store is closed, or the process is ending.
        """
        with self._lock:
            self.check_open()
            if self._running is None:
                try:
                    self._running = _Running(self._name, self._make_session())
                except RuntimeError as error:
                    raise StoreUnavailableError(
                        f"no thread can be started for the store {self._name} ({error}); nothing was written"
                    ) from error
            self._running.begin(job)

    def check_open(self) -> None:
        """Raise `StoreUnavailableError` if the store is closed."""
        if self._closed:
            raise StoreUnavailableError(f"the store {self._name} is closed; open it anew", closed=True)

    def stop(self) -> threading.Thread | None:
        """Let the thread end after what is under way. Returns it, None where none was started."""
        with self._lock:
            self._closed = True
            if self._running is None:
                return None
            self._running.end()
            return self._running.thread

    def before_fork(self) -> None:
        """Finish what is under way and close the connections: a child would share them, byte for byte."""
        self._lock.acquire()
        if self._running is not None:
            self._running.end()
            self._running.thread.join()

    def after_fork(self, *, child: bool) -> None:
        """Go on; either side connects when it next calls."""
        self._running = None
        if child:
            self._lock = threading.RLock()
        else:
            self._lock.release()


class _Running:
    """A started thread. Nothing in it refers to the storage, which may thus be collected while the thread waits."""

    def __init__(self, name: str, session: Session) -> None:
        self._session = session
        self._loop = asyncio.new_event_loop()
        self._ending = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self.thread = threading.Thread(target=self._serve, name=f"gnl-redis {name}", daemon=True)
        try:
            self.thread.start()
        except RuntimeError:
            self._loop.close()
            raise

    def begin(self, job: Job) -> None:
        self._loop.call_soon_threadsafe(self._start, job)

    def end(self) -> None:
        if self.thread.is_alive() and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._ending.set)

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._wait())

    async def _wait(self) -> None:
        await self._ending.wait()
        while self._tasks:
            await asyncio.wait(self._tasks)
        await self._session.aclose()

    def _start(self, job: Job) -> None:
        task = self._loop.create_task(self._answer(job))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, job: Job) -> None:
        value: Any = None
        error: BaseException | None = None
        try:
            value = await job.work(self._session, *job.arguments)
        except BaseException as raised:  # whatever it is, somebody waits for it
            error = raised
        deliver([(job, value, error)])
