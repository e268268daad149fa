"""Ask code of the caller's that only looks, for a limited time: a call's gates are held up while it is awaited."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from gnl_core.options import Options
    from gnl_core.tools import Tool

HOOK_SECONDS: Final = 60.0
"""How long `recover`, `lookup` or a guard may take where neither its tool nor the run sets a timeout."""

_GRACE_S = 1.0
"""How long what was told to stop may take to do so before it is left behind."""


class _Late:
    """There was no answer in time."""


LATE: Final = _Late()

_left: set[asyncio.Task[object]] = set()


def seconds_for(tool: Tool, options: Options) -> float:
    """Return how many seconds what is asked about a call of this tool may take."""
    if tool.timeout is not None:
        return tool.timeout
    return options.timeouts.tool if options.timeouts.tool is not None else HOOK_SECONDS


async def within(seconds: float, function: Callable[[], Any], *, in_thread: bool = False) -> object:
    """Call a function and await what it returns, for so long.

    What goes on after that is left behind, and its answer is not heeded: it may only look, never do.

    Args:
        seconds: Above 0.
        function: Takes nothing; may return an awaitable.
        in_thread: Whether it may block, so that a thread calls it. Otherwise the time counts from its first await.

    Returns:
        Its answer; `LATE` where there was none in time.

    Raises:
        BaseException: What it raises; RuntimeError where that is a CancelledError of its own.
    """
    task = asyncio.ensure_future(_call(function, in_thread))
    try:
        await asyncio.wait({task}, timeout=seconds)
    except asyncio.CancelledError:
        await _stop(task)
        raise
    if not task.done():
        await _stop(task)
        return LATE  # whatever it came to when it was stopped
    if task.cancelled():
        raise RuntimeError("it raised CancelledError, and nobody had cancelled it")
    return task.result()


async def _call(function: Callable[[], Any], in_thread: bool) -> object:
    answer = await call_in_thread(function) if in_thread else function()
    return await answer if inspect.isawaitable(answer) else answer


async def _stop(task: asyncio.Task[object]) -> None:
    _left.add(task)
    task.add_done_callback(_forget)
    task.cancel()
    await asyncio.wait({task}, timeout=_GRACE_S)


def _forget(task: asyncio.Task[object]) -> None:
    _left.discard(task)
    if not task.cancelled():
        task.exception()  # read, so that nobody warns of it


async def call_in_thread(function: Callable[[], Any]) -> object:
    """Let a thread of its own call the function. It is a daemon: one that hangs keeps no process from ending."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[Callable[[], object]] = loop.create_future()
    variables = contextvars.copy_context()

    def deliver(give: Callable[[], object]) -> None:
        if not ended.done():
            ended.set_result(give)

    def run() -> None:
        try:
            answer = variables.run(function)
        except BaseException as error:
            give = _raising(error)
        else:
            give = _returning(answer)
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(deliver, give)

    threading.Thread(target=run, name="gnl-hook", daemon=True).start()
    return (await ended)()


def _raising(error: BaseException) -> Callable[[], object]:
    def give() -> object:
        raise error

    return give


def _returning(answer: object) -> Callable[[], object]:
    return lambda: answer
