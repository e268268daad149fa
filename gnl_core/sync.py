"""The same without `await`, for scripts. Inside a running event loop these refuse, by name."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any, Self, TypeVar, Unpack

from gnl_core.errors import RefusedError, SyncInsideLoopError
from gnl_core.events import Event
from gnl_core.fork import fork_run
from gnl_core.journal.port import Journal
from gnl_core.model.router import ModelLike
from gnl_core.results import DurableResult
from gnl_core.rollover import rollover_run
from gnl_core.run import resume_run, run_durable
from gnl_core.run_options import DriveOptions, RunOptions
from gnl_core.stream import DurableStream, OnBlocked, stream_durable

T = TypeVar("T")


def run_durable_sync(
    *, run_id: str, journal: Journal, model: ModelLike, **options: Unpack[RunOptions]
) -> DurableResult:
    """Drive a run; options, result and errors are those of `run_durable`.

    Raises:
        SyncInsideLoopError: An event loop runs in this thread: await `run_durable` there.
    """
    outside("run_durable")
    return asyncio.run(run_durable(run_id=run_id, journal=journal, model=model, **options))


def resume_run_sync(
    *, run_id: str, journal: Journal, model: ModelLike, **options: Unpack[DriveOptions]
) -> DurableResult:
    """Go on with a run; options, result and errors are those of `resume_run`.

    Raises:
        SyncInsideLoopError: An event loop runs in this thread: await `resume_run` there.
    """
    outside("resume_run")
    return asyncio.run(resume_run(run_id=run_id, journal=journal, model=model, **options))


def fork_run_sync(*, journal: Journal, run_id: str, step: int, new_run_id: str) -> str:
    """Fork a run; options, result and errors are those of `fork_run`.

    Raises:
        SyncInsideLoopError: An event loop runs in this thread: await `fork_run` there.
    """
    outside("fork_run")
    return asyncio.run(fork_run(journal=journal, run_id=run_id, step=step, new_run_id=new_run_id))


def rollover_run_sync(
    journal: Journal, run_id: str, *, agent: str | None = None, resource_id: str | None = None
) -> str:
    """Begin a run's work anew; options, result and errors are those of `rollover_run`.

    Raises:
        SyncInsideLoopError: An event loop runs in this thread: await `rollover_run` there.
    """
    outside("rollover_run")
    return asyncio.run(rollover_run(journal, run_id, agent=agent, resource_id=resource_id))


def stream_durable_sync(
    *,
    run_id: str,
    journal: Journal,
    model: ModelLike,
    on_blocked: OnBlocked | None = None,
    **options: Unpack[RunOptions],
) -> SyncStream:
    """Begin to drive a run whose events are read by a plain `for`; options are those of `stream_durable`.

    The run is driven while its events are read or its result is asked for, and at no other time. Leave the stream by
    `with`, `close()` or its result, so that the run is given back.

    Raises:
        SyncInsideLoopError: An event loop runs in this thread: await `stream_durable` there.
        GnlError: As `stream_durable`.
    """
    outside("stream_durable")
    return SyncStream(stream_durable(run_id=run_id, journal=journal, model=model, on_blocked=on_blocked, **options))


class SyncStream:
    """A run that is driven while its events are read, in an event loop of its own."""

    def __init__(self, opening: Coroutine[Any, Any, DurableStream]) -> None:
        self._runner = asyncio.Runner()
        try:
            self._stream: DurableStream = self._run(opening)
        except BaseException:
            self._runner.close()
            raise
        self._ended = False
        self._result: DurableResult | None = None
        self._error: BaseException | None = None
        self._source = self._stream.events

    def __iter__(self) -> Iterator[Event]:
        while not self._ended and (event := self._run(_next(self._source))) is not None:
            yield event
        self._end()

    @property
    def result(self) -> DurableResult:
        """Drive the run to its end; raises what stopped it."""
        self._end()
        if self._result is None:
            assert self._error is not None
            raise self._error
        return self._result

    @property
    def text(self) -> str:
        """Drive the run to its end and return what the model said last."""
        return self.result.text

    def close(self) -> None:
        """Stop the run where it is, if it is not over."""
        if not self._ended:
            self._run(self._stream.aclose())
            self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _end(self) -> None:
        if self._ended:
            return
        outside("stream_durable")
        try:
            self._result = self._run(_result(self._stream))
        except Exception as error:
            self._error = error
        except asyncio.CancelledError:
            self._error = RefusedError(f"the stream of run {self._stream.run_id} was closed before the run was over")
        self._ended = True
        self._runner.close()

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        outside("stream_durable", coroutine)
        return self._runner.run(coroutine)


async def _next(events: Any) -> Event | None:
    event: Event | None = await anext(events, None)
    return event


async def _result(stream: DurableStream) -> DurableResult:
    return await stream.result


def outside(name: str, coroutine: Coroutine[Any, Any, Any] | None = None) -> None:
    """Refuse to go on where an event loop runs; a coroutine that was made already is closed.

    Raises:
        SyncInsideLoopError: One does; await the function named there.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    if coroutine is not None:
        coroutine.close()
    raise SyncInsideLoopError(
        f"{name}_sync was called where an event loop runs, which it would block; write `await {name}(…)` there"
    )
