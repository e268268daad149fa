"""A run whose events can be read while it is driven."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from gnl_core.admission import admit
from gnl_core.errors import DoubtError, RefusedError
from gnl_core.events import Event
from gnl_core.journal.port import Journal
from gnl_core.model.router import ModelLike
from gnl_core.results import DurableResult
from gnl_core.run import Plan, make_plan
from gnl_core.run_options import RunOptions, check_listener

if TYPE_CHECKING:
    from gnl_core.admission import Admitted

logger = logging.getLogger("gnl_core.stream")

OnBlocked = Callable[[dict[str, Any]], None]

_driven: set[asyncio.Task[DurableResult]] = set()


async def stream_durable(
    *,
    run_id: str,
    journal: Journal,
    model: ModelLike,
    on_blocked: OnBlocked | None = None,
    **options: Unpack[RunOptions],
) -> DurableStream:
    """Begin to drive a run, or go on with it, and return its stream once it is admitted.

    The run is driven in a task of its own: it goes on whether or not anybody reads, and records every step whole before
    it acts on it. Leaving `async with`, or `aclose()`, stops it where it is.

    Args:
        run_id: As for `run_durable`.
        journal: As for `run_durable`.
        model: As for `run_durable`.
        on_blocked: Called once, when a protection stopped the run, with {'kind', 'code', 'message', 'detail'}: the
            limit's name or the error's code, the code, and the error's own words and facts. What it raises is logged.
        **options: Every other option of `run_durable`.

    Raises:
        GnlError: What `run_durable` raises before the run is admitted; later errors come from the stream.
    """
    check_listener("on_blocked", on_blocked)
    return await open_stream(make_plan(run_id=run_id, journal=journal, model=model, **options), on_blocked)


async def open_stream(plan: Plan, on_blocked: OnBlocked | None) -> DurableStream:
    """Admit what was planned and return its stream; `on_blocked` and errors are those of `stream_durable`."""
    stream = DurableStream(plan.asked.run_id, on_blocked, plan.asked.options.listener)
    heard = dataclasses.replace(plan.asked.options, listener=stream.hear)
    plan.asked = dataclasses.replace(plan.asked, options=heard)
    admitted = await admit(plan.asked)
    stream.start(plan, admitted)
    return stream


class DurableStream:
    """A run that is being driven.

    Attributes:
        run_id: The run.
        events: What happens, as it happens; ends when the run does. An error ends it with one event of kind 'blocked'
            or 'error' and is not raised here.
    """

    def __init__(self, run_id: str, on_blocked: OnBlocked | None, listener: Callable[[Event], None] | None) -> None:
        self.run_id = run_id
        self._on_blocked = on_blocked
        self._listener = listener
        self._queue: asyncio.Queue[Event | None] = asyncio.Queue()
        self._begun = asyncio.Event()
        self._admitted: Admitted | None = None
        self._task: asyncio.Task[DurableResult] | None = None

    def hear(self, event: Event) -> None:
        """Take in an event; the runtime calls this."""
        self._queue.put_nowait(event)
        if self._listener is not None:
            self._listener(event)

    def start(self, plan: Plan, admitted: Admitted) -> None:
        """Begin to drive; `stream_durable` calls this."""
        self._admitted = admitted
        self._task = asyncio.create_task(self._drive(plan, admitted), name=f"run {self.run_id}")
        _driven.add(self._task)  # the loop itself keeps no task alive, and this run goes on though nobody reads it
        self._task.add_done_callback(self._ended)

    async def _drive(self, plan: Plan, admitted: Admitted) -> DurableResult:
        self._begun.set()
        return await plan.go(admitted, "stream")

    def _ended(self, task: asyncio.Task[DurableResult]) -> None:
        _driven.discard(task)
        self._begun.set()  # its loop may have ended before it began: whoever closes it waits no more
        self._queue.put_nowait(None)
        if self._admitted is not None and not self._admitted.request.released:
            self._admitted.request.release()  # its loop ended before it began: nobody holds the run any more
        error = None if task.cancelled() else task.exception()  # read, so that nobody warns of it
        if self._on_blocked is not None and isinstance(error, RefusedError | DoubtError):
            try:
                kind = str(error.detail.get("kind", error.code))
                self._on_blocked({"kind": kind, "code": error.code, "message": str(error), "detail": error.detail})
            except Exception:
                logger.exception("on_blocked failed for run %s", self.run_id)

    @property
    def events(self) -> AsyncIterator[Event]:
        """Iterate over what happens, once."""
        return self._events()

    async def _events(self) -> AsyncIterator[Event]:
        while (event := await self._queue.get()) is not None:
            yield event
        self._queue.put_nowait(None)  # whoever iterates again finds the end, too

    @property
    async def result(self) -> DurableResult:
        """Wait for the run's end.

        Raises:
            GnlError: What stopped it, as `run_durable` raises it.
            asyncio.CancelledError: The stream was closed.
        """
        assert self._task is not None
        return await asyncio.shield(self._task)

    @property
    async def text(self) -> str:
        """Wait for what the model said last; raises as `result` does."""
        return (await self.result).text

    async def aclose(self) -> None:
        """Stop the run where it is: what was running is recorded as in doubt, the lock is given back.

        Raises:
            asyncio.CancelledError: The caller was cancelled meanwhile; the run was stopped all the same.
        """
        task = self._task
        if task is None or task.done():
            return
        cancelled: asyncio.CancelledError | None = None
        stopping = False
        while not task.done():
            try:
                await self._begun.wait()  # a task that is cancelled before it begins runs nothing, not even its own end
                if not stopping:
                    stopping = task.cancel()
                await asyncio.wait({task})
            except asyncio.CancelledError as one:
                cancelled = one
        if cancelled is not None:
            raise cancelled

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
