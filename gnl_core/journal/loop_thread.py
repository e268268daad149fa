"""The thread of a store that is a server: an event loop of its own, on which alone its connections live.

Connections belong to the loop that made them, callers come from any: they hand their call over and are woken with its
outcome. So one set of connections serves every loop and thread of a process, `asyncio.run` may end without closing
them, and a call that writes goes on to its outcome whatever becomes of its caller.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable
from typing import Any, Protocol

from gnl_core.errors import StoreUnavailableError
from gnl_core.journal import process, waiting
from gnl_core.journal.waiting import Held, Job


class Served(Protocol):
    """What the thread works with: made on its loop, closed on it."""

    async def close(self) -> None:
        """Release what is held."""
        ...


# What a child inherited and must not close: its objects would speak to the parent's server.
_inherited: list[object] = []


class LoopThread:
    """Runs calls side by side. Started by the first one; nothing in it refers to the storage, which may be collected.

    Args:
        name: Of the store, for errors.
        make: Makes what it works with.
        abandon: In a forked child: let go of what is the parent's, and never close it. None where connections cannot be
            let go of: they are closed before a fork, and both sides make new ones.
    """

    def __init__(self, name: str, make: Callable[[], Served], *, abandon: Callable[[Any], None] | None = None) -> None:
        self._name = name
        self._make = make
        self._abandon = abandon
        self._closed = False
        self._lock = threading.RLock()  # a collection between a fork's two halves may stop this thread
        self._forget()
        process.register(self)

    def _forget(self) -> None:
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ending: asyncio.Event | None = None
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
            self._closed = True
            self._end()
            return self._thread

    def before_fork(self) -> None:
        """Hold the lock, so that the child does not inherit it held by a thread that it does not have."""
        self._lock.acquire()
        if self._abandon is None and self._thread is not None:
            self._end()
            self._thread.join()
            self._forget()

    def after_fork(self, *, child: bool) -> None:
        """Go on; a child begins with no connection."""
        if not child:
            self._lock.release()
            return
        self._lock = threading.RLock()
        if self._thread is not None:
            _inherited.append((self._loop, self._thread, self._ending, self._served, self._tasks))
            if self._abandon is not None and self._served is not None:
                self._abandon(self._served)
        self._forget()

    def _start(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            # Whatever loop the host prefers, a driver needs one that watches file descriptors.
            loop, ending = asyncio.SelectorEventLoop(), asyncio.Event()
            thread = threading.Thread(target=self._serve, args=(loop, ending), name=f"gnl {self._name}", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                loop.close()
                raise StoreUnavailableError(
                    f"no thread can be started for the store {self._name} ({error}); nothing was written"
                ) from error
            self._loop, self._ending, self._thread = loop, ending, thread
        return self._loop

    def _end(self) -> None:
        ending, self._ending = self._ending, None
        # Told once: from then on the thread may close its loop at any moment, which then takes no call.
        if self._loop is not None and ending is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(ending.set)

    # The thread ------------------------------------------------------------------------------------------------------

    def _serve(self, loop: asyncio.AbstractEventLoop, ending: asyncio.Event) -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(self._wait(ending))

    async def _wait(self, ending: asyncio.Event) -> None:
        await ending.wait()
        while self._tasks:
            await asyncio.wait(self._tasks)
        if self._served is not None:
            await self._served.close()

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
            waiting.deliver([(job, None, error)])
        else:
            waiting.deliver([(job, value, None)])


class LoopEngine:
    """The thread of a storage, and how calls reach it. Stops it when nothing refers to it any more."""

    def __init__(self, thread: LoopThread) -> None:
        self.thread = thread
        weakref.finalize(self, thread.stop).atexit = False

    def write(self, work: Callable[..., Any], *arguments: Any) -> Held:
        """Begin a call whose outcome is waited for whatever becomes of the caller."""
        return waiting.write(self.thread, work, *arguments)

    def read(self, work: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        """Begin a call that may be given up."""
        return waiting.read(self.thread, work, *arguments)

    def close(self) -> None:
        """Finish what was asked, then end the thread."""
        thread = self.thread.stop()
        if thread is not None and thread is not threading.current_thread():
            thread.join()
