"""One thread a PostgreSQL store, with an event loop of its own on which its connections live.

Connections belong to the loop that made them, callers come from any: they hand their call over and are woken with its
outcome. So one pool serves every loop and thread of a process, and a caller's loop that ends, or that is blocked by
what it does meanwhile, leaves no transaction open.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Protocol

from gnl_core.errors import StoreUnavailableError
from gnl_core.journal import process
from gnl_core.journal.waiting import Job, deliver


class Served(Protocol):
    """What the thread works with: made on its loop, closed on it."""

    async def close(self) -> None:
        """Release what is held."""
        ...

    def abandon(self) -> None:
        """In a forked child: let go of what is the parent's, and never close it."""
        ...


# What a child inherited and must not close: its objects would speak to the parent's server.
_inherited: list[object] = []


class LoopThread:
    """Runs calls side by side. Started by the first one; a forked child starts its own."""

    def __init__(self, name: str, make: Callable[[], Served]) -> None:
        self._name = name
        self._make = make
        self._closed = False
        self._start_over()
        process.register(self)

    def _start_over(self) -> None:
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._served: Served | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    # Called by anybody -----------------------------------------------------------------------------------------------

    def submit(self, job: Job) -> None:
        """Hand over a call: an async function of what `make` made and of the job's arguments.

        Raises:
            StoreUnavailableError: The store is closed, or the process is ending.
        """
        with self._lock:
            self.check_open()
            self._start().call_soon_threadsafe(self._begin, job)

    def check_open(self) -> None:
        """Raise `StoreUnavailableError` if the store is closed."""
        if self._closed:
            raise StoreUnavailableError(f"the store {self._name} is closed; open it anew", closed=True)

    def stop(self) -> threading.Thread | None:
        """Let the thread end after what it was given. Returns it, None where none was started."""
        with self._lock:
            if not self._closed:
                self._closed = True
                if self._loop is not None:
                    self._loop.call_soon_threadsafe(self._begin_end)
            return self._thread

    def before_fork(self) -> None:
        """Hold the lock, so that the child does not inherit it held by a thread that it does not have."""
        self._lock.acquire()

    def after_fork(self, *, child: bool) -> None:
        """Go on; a child begins with no connection."""
        if not child:
            self._lock.release()
            return
        _inherited.append((self._loop, self._thread, self._served, self._tasks))
        if self._served is not None:
            self._served.abandon()
        self._start_over()

    # The thread ------------------------------------------------------------------------------------------------------

    def _start(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            # Whatever loop the host prefers, the driver needs one that watches file descriptors.
            loop = asyncio.SelectorEventLoop()
            thread = threading.Thread(target=self._serve, args=(loop,), name=f"gnl {self._name}", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                loop.close()
                raise StoreUnavailableError(
                    f"no thread can be started for the store {self._name} ({error}); nothing was written"
                ) from error
            self._loop, self._thread = loop, thread
        return self._loop

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            asyncio.set_event_loop(None)
            loop.close()

    def _begin(self, job: Job) -> None:
        task = asyncio.get_running_loop().create_task(self._answer(job))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, job: Job) -> None:
        if job.future.cancelled():
            return  # a read that nobody waits for any more
        try:
            if self._served is None:
                self._served = self._make()
            value = await job.work(self._served, *job.arguments)
        except BaseException as error:
            # Whatever it is, somebody waits.
            deliver([(job, None, error)])
        else:
            deliver([(job, value, None)])

    def _begin_end(self) -> None:
        task = asyncio.get_running_loop().create_task(self._end())
        task.add_done_callback(lambda _: asyncio.get_running_loop().stop())

    async def _end(self) -> None:
        while self._tasks:
            await asyncio.wait(self._tasks)
        if self._served is not None:
            await self._served.close()
