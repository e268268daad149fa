"""One call of a store's thread, who waits for it, and how its outcome comes back to them."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
from collections.abc import Callable, Generator, Sequence
from typing import Any, Protocol, TypeAlias


class Held:
    """The wait for a write, which cannot be cancelled: a cancelled task learns of it when the outcome is there.

    It is a future as far as a task needs one. Unlike asyncio's it wakes the task at once instead of in the loop's next
    turn, which would cost one more call of the operating system for every batch.
    """

    __slots__ = ("_asyncio_future_blocking", "_callback", "_context", "_error", "_loop", "_value", "_waits")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waits = True
        self._callback: Callable[[Held], object] | None = None
        self._asyncio_future_blocking = False

    def __await__(self) -> Generator[Held, None, Any]:
        """Wait for the outcome."""
        if self._waits:
            self._asyncio_future_blocking = True
            yield self
        return self.result()

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop of the task that waits."""
        return self._loop

    def add_done_callback(self, callback: Callable[[Held], object], *, context: contextvars.Context) -> None:
        """Wake the task that waits; there is one, and it asks before anything is settled on its loop."""
        self._callback, self._context = callback, context

    def cancel(self, msg: Any | None = None) -> bool:  # noqa: ARG002 - the signature is asyncio's
        """Refuse; the task then raises `CancelledError` as soon as it is woken with the outcome."""
        return False

    def cancelled(self) -> bool:
        """Tell that it is not."""
        return False

    def done(self) -> bool:
        """Whether the outcome is there."""
        return not self._waits

    def result(self) -> Any:
        """Return the outcome, or raise it."""
        if self._error is not None:
            raise self._error
        return self._value

    def set_result(self, value: Any) -> None:
        """Wake with a value."""
        self._settle(value, None)

    def set_exception(self, error: BaseException) -> None:
        """Wake with an error."""
        self._settle(None, error)

    def _settle(self, value: Any, error: BaseException | None) -> None:
        self._value, self._error, self._waits = value, error, False
        if self._callback is not None:
            self._context.run(self._callback, self)


class Job:
    """One call: a function over `Rows`, its arguments, and who waits for it: a future, on its loop or on none."""

    __slots__ = ("arguments", "future", "loop", "work")

    def __init__(
        self,
        work: Callable[..., Any],
        arguments: tuple[Any, ...],
        future: Held | asyncio.Future[Any] | concurrent.futures.Future[Any],
        loop: asyncio.AbstractEventLoop | None,
    ) -> None:
        self.work = work
        self.arguments = arguments
        self.future = future
        self.loop = loop


Outcome: TypeAlias = tuple[Job, Any, BaseException | None]


def _settle(job: Job, value: Any, error: BaseException | None) -> None:
    if job.future.done():
        return
    if error is None:
        job.future.set_result(value)
    else:
        job.future.set_exception(error)


def _settle_soon(loop: asyncio.AbstractEventLoop, outcomes: Sequence[Outcome]) -> None:
    # Each by itself: a task that is woken may raise something that ends the loop's turn.
    for outcome in outcomes:
        loop.call_soon(_settle, *outcome)


def deliver(outcomes: Sequence[Outcome]) -> None:
    """Bring outcomes to who waits for them, each loop called once; a loop that was closed meanwhile waits no more."""
    by_loop: dict[asyncio.AbstractEventLoop | None, list[Outcome]] = {}
    for outcome in outcomes:
        by_loop.setdefault(outcome[0].loop, []).append(outcome)
    for loop, mine in by_loop.items():
        if loop is None:
            for outcome in mine:
                _settle(*outcome)
            continue
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile: nobody waits any more
            if len(mine) == 1:
                loop.call_soon_threadsafe(_settle, *mine[0])
            else:
                loop.call_soon_threadsafe(_settle_soon, loop, mine)


class Worker(Protocol):
    """A thread of a store."""

    def submit(self, job: Job) -> None:
        """Hand over a call."""
        ...


def write(worker: Worker, work: Callable[..., Any], *arguments: Any) -> Held:
    """Hand over a call that writes."""
    loop = asyncio.get_running_loop()
    future = Held(loop)
    worker.submit(Job(work, arguments, future, loop))
    return future


def read(worker: Worker, work: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
    """Hand over a call that reads; whoever waits for it may give up."""
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    worker.submit(Job(work, arguments, future, loop))
    return future


def ask(worker: Worker, work: Callable[..., Any]) -> Any:
    """Hand over a call and block until its outcome is there: for who has no event loop."""
    future: concurrent.futures.Future[Any] = concurrent.futures.Future()
    worker.submit(Job(work, (), future, None))
    return future.result()
