"""Run a tool's body and see how it ends. A body that is given up is not forgotten: what it returns late is evidence."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from gnl_core.context import Context
from gnl_core.threads import Threads
from gnl_core.tools import Tool

logger = logging.getLogger("gnl_core.body")

_GRACE_S = 1.0
"""How long a cancelled body may take to end before it is left behind."""

_THREADS = Threads(256, "gnl-tool")


@dataclass(frozen=True, slots=True)
class Returned:
    """It returned."""

    value: object


@dataclass(frozen=True, slots=True)
class Raised:
    """It raised."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class GivenUp:
    """Nobody waits for it any more.

    Attributes:
        cause: Why.
        ended: Whether its own code is known to have ended; a thread that it waited for may go on all the same.
        began: Whether it began at all; if not, it never will.
    """

    cause: Literal["timeout", "cancelled", "no thread"]
    ended: bool
    began: bool = True


Ending: TypeAlias = Returned | Raised | GivenUp
Late: TypeAlias = Callable[[Returned | Raised | None], Awaitable[None]]
"""What to do with the end of a body that had been given up, None where it came to nothing; awaited in whatever event
loop is at hand."""


async def run_body(
    tool: Tool, arguments: Mapping[str, object], context: Context, timeout_s: float | None, late: Late
) -> Ending:
    """Run a body to its end, or until its time is over or the caller is cancelled.

    A cancellation is told as `GivenUp('cancelled')`, so that the caller can record it; it is the caller's to raise on.
    A `CancelledError` that the body came to although nobody cancelled it is one that it raised. A `GeneratorExit` of
    the body's own is told as a `RuntimeError`, as Python tells a `StopIteration`: it would close whoever awaits it.

    Raises:
        GeneratorExit: The caller itself is closed.
    """
    if tool.is_async:
        return await _on_loop(lambda: tool.invoke(arguments, context), context, timeout_s, late)
    ending = await _in_thread(tool, arguments, context, timeout_s, late)
    if isinstance(ending, Returned) and isinstance(ending.value, Awaitable):
        # A plain function may return an awaitable: it is awaited where the loop is.
        rest = ending.value
        return await _on_loop(lambda: rest, context, timeout_s, late)
    return ending


async def _on_loop(
    start: Callable[[], Awaitable[object]], context: Context, timeout_s: float | None, late: Late
) -> Ending:
    if timeout_s is not None:
        return await _within(start, context, timeout_s, late)
    task = asyncio.current_task()
    cancels = task.cancelling() if task is not None else 0
    try:
        return Returned(await start())
    except asyncio.CancelledError as error:
        if task is not None and task.cancelling() <= cancels:
            return Raised(error)
        context.cancelled.set()
        return GivenUp("cancelled", ended=True)
    except GeneratorExit as error:
        if not _is_running(task):
            raise
        return _raised(error)
    except BaseException as error:
        return Raised(error)


def _is_running(task: asyncio.Task[Any] | None) -> bool:
    """Whether this is the task's own step: else its coroutine is being closed, and can await nothing."""
    try:
        return task is not None and asyncio.current_task() is task
    except RuntimeError:  # no loop runs
        return False


def _raised(error: BaseException) -> Raised:
    if not isinstance(error, GeneratorExit):
        return Raised(error)
    told = RuntimeError("the body raised GeneratorExit")
    told.__cause__ = error
    return Raised(told)


async def _within(start: Callable[[], Awaitable[object]], context: Context, timeout_s: float, late: Late) -> Ending:
    began = False

    async def body() -> Returned | Raised:
        nonlocal began
        began = True
        try:
            return Returned(await start())
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            return _raised(error)

    task = asyncio.ensure_future(body())
    cause: Literal["timeout", "cancelled", ""] = ""
    try:
        await asyncio.wait({task}, timeout=timeout_s)
        if not task.done():
            cause = "timeout"
    except asyncio.CancelledError:
        cause = "cancelled"
    if not task.done():
        context.cancelled.set()
        task.cancel()
        await _patiently({task})
    if not cause:
        return Raised(asyncio.CancelledError()) if task.cancelled() else task.result()
    if not task.done():
        _watch(task, late)
        return GivenUp(cause, ended=False)
    return GivenUp(cause, ended=True, began=began) if task.cancelled() else task.result()


async def _patiently(tasks: set[asyncio.Task[Any]]) -> None:
    try:
        await asyncio.wait(tasks, timeout=_GRACE_S)
    except asyncio.CancelledError:
        logger.debug("cancelled while a cancelled body was ending")


_left: set[asyncio.Task[Any]] = set()


def _watch(task: asyncio.Task[Returned | Raised], late: Late) -> None:
    async def watch() -> None:
        while not task.done():
            try:
                await asyncio.wait({task})
            except asyncio.CancelledError:
                continue  # the loop is being closed, which waits for the body as well: its end is still worth keeping
        await late(None if task.cancelled() else task.result())

    watcher = asyncio.ensure_future(watch())
    _left.add(watcher)
    watcher.add_done_callback(_left.discard)


# Bodies in threads -------------------------------------------------------------------------------------------------


class _Thread:
    """One body in a thread, which cannot be stopped from outside."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.future: asyncio.Future[Returned | Raised] = loop.create_future()
        self.began = False
        self._lock = threading.Lock()
        self._given_up = False
        self._ended: Returned | Raised | None = None

    def run(self, call: Callable[[], Any], late: Late) -> None:
        """Run in the thread."""
        if not self._begin():
            return  # it waited for a thread for so long that nobody waits for it any more
        try:
            ending: Returned | Raised = Returned(call())
        except BaseException as error:
            ending = _raised(error)
        with self._lock:
            self._ended = ending
            given_up = self._given_up
        if not given_up:
            try:
                self.loop.call_soon_threadsafe(self._deliver, ending)
            except RuntimeError:  # the loop is closed: nobody waits
                given_up = True
        if given_up:
            try:
                asyncio.run(late(_unawaited(ending)))  # type: ignore[arg-type] # a coroutine
            except Exception:
                logger.exception("what a tool's body returned late could not be kept")

    def _begin(self) -> bool:
        with self._lock:
            self.began = not self._given_up
            return self.began

    def give_up(self) -> Returned | Raised | None:
        """Stop waiting; return the end if it came first."""
        with self._lock:
            self._given_up = self._ended is None
            return self._ended

    def _deliver(self, ending: Returned | Raised) -> None:
        if not self.future.done():
            self.future.set_result(ending)


async def _in_thread(
    tool: Tool, arguments: Mapping[str, object], context: Context, timeout_s: float | None, late: Late
) -> Ending:
    thread = _Thread(asyncio.get_running_loop())
    variables = contextvars.copy_context()
    call = functools.partial(variables.run, tool.invoke, arguments, context)
    try:
        _THREADS.submit(thread.run, call, late)
    except RuntimeError:
        logger.exception("no thread can be started for %s, or the process is ending", tool.name)
        return GivenUp("no thread", ended=True, began=False)
    cause: Literal["timeout", "cancelled"] = "timeout"
    try:
        if timeout_s is None:
            ending: Returned | Raised = await thread.future
        else:
            async with asyncio.timeout(timeout_s):
                ending = await thread.future
    except TimeoutError:
        pass
    except asyncio.CancelledError:
        cause = "cancelled"
    else:
        return ending
    context.cancelled.set()
    ended = thread.give_up()
    return GivenUp(cause, ended=not thread.began, began=thread.began) if ended is None else ended


def _unawaited(ending: Returned | Raised) -> Returned | Raised | None:
    """Return a late end; nothing where the body gave an awaitable that nobody is there to await."""
    if isinstance(ending, Returned) and isinstance(ending.value, Awaitable):
        close = getattr(ending.value, "close", None)
        if close is not None:
            close()
        return None
    return ending
