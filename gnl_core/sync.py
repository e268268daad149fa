"""The same without `await`, for scripts. Inside a running event loop these refuse, by name."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any, Self, TypeVar

from gnl_core.errors import SyncInsideLoopError
from gnl_core.events import Event
from gnl_core.fork import fork_run
from gnl_core.results import DurableResult
from gnl_core.run import resume_run, run_durable
from gnl_core.stream import DurableStream, stream_durable

T = TypeVar("T")


def run_durable_sync(**options: Any) -> DurableResult:
    """Drive a run; options, result and errors are those of `run_durable`.

    Raises:
        SyncInsideLoopError: An event loop runs in this thread: await `run_durable` there.
    """
    _outside("run_durable")
    return asyncio.run(run_durable(**options))


def resume_run_sync(**options: Any) -> DurableResult:
    """Go on with a run; options, result and errors are those of `resume_run`.

    Raises:
        SyncInsideLoopError: An event loop runs in this thread: await `resume_run` there.
    """
    _outside("resume_run")
    return asyncio.run(resume_run(**options))


def fork_run_sync(**options: Any) -> str:
    """Fork a run; options, result and errors are those of `fork_run`.

    Raises:
        SyncInsideLoopError: An event loop runs in this thread: await `fork_run` there.
    """
    _outside("fork_run")
    return asyncio.run(fork_run(**options))


def stream_durable_sync(**options: Any) -> SyncStream:
    """Begin to drive a run whose events are read by a plain `for`; options are those of `stream_durable`.

    Raises:
        SyncInsideLoopError: An event loop runs in this thread: await `stream_durable` there.
        GnlError: As `stream_durable`.
    """
    _outside("stream_durable")
    return SyncStream(options)


class SyncStream:
    """A run that is driven while its events are read, in an event loop of its own."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._runner = asyncio.Runner()
        try:
            self._stream: DurableStream = self._run(stream_durable(**options))
        except BaseException:
            self._runner.close()
            raise
        self._events = self._stream.events
        self._result: DurableResult | None = None

    def __iter__(self) -> Iterator[Event]:
        while (event := self._run(_next(self._events))) is not None:
            yield event

    @property
    def result(self) -> DurableResult:
        """Drive the run to its end; raises what stopped it."""
        if self._result is None:
            self._result = self._run(_result(self._stream))
        return self._result

    @property
    def text(self) -> str:
        """Drive the run to its end and return what the model said last."""
        return self.result.text

    def close(self) -> None:
        """Stop the run where it is, if it is not over."""
        self._run(self._stream.aclose())
        self._runner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        _outside("stream_durable", coroutine)
        return self._runner.run(coroutine)


async def _next(events: Any) -> Event | None:
    event: Event | None = await anext(events, None)
    return event


async def _result(stream: DurableStream) -> DurableResult:
    return await stream.result


def _outside(name: str, coroutine: Coroutine[Any, Any, Any] | None = None) -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    if coroutine is not None:
        coroutine.close()
    raise SyncInsideLoopError(
        f"{name}_sync was called where an event loop runs, which it would block; write `await {name}(…)` there"
    )
