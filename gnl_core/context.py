"""What a tool's body may know of the call that runs it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The call a body, or one of its tool's hooks, is run for.

    A parameter annotated with `Context` (or `Context | None`) is filled by the runtime and never shown to a model.

    Attributes:
        run_id: The run whose call it is: the root run, or a sub-agent's.
        tool_call_id: Our id of the call, 's<step>p<position>'.
        tool_name: Name of the tool.
        idempotency_key: Stable over every attempt of this call, and different for every other job: hand it to the
            service that does the work.
        attempt: 1 for the first begin of this call's body.
        actor: Who drives the run.
        resource_id: The person or customer the run is for.
        thread_id: The conversation.
        channel: Where the request came from, for instance 'chat' or 'batch'.
        deps: The `context=` that the run was started with, as it is.
        cancelled: Set once nobody waits for this body any more. A thread cannot be stopped from outside: a body that
            works in steps looks at it before the next one.
    """

    run_id: str
    tool_call_id: str
    tool_name: str
    idempotency_key: str
    attempt: int = 1
    actor: str | None = None
    resource_id: str | None = None
    thread_id: str | None = None
    channel: str | None = None
    deps: Any = None
    cancelled: threading.Event = field(default_factory=threading.Event, repr=False, compare=False)


_CURRENT: ContextVar[Context | None] = ContextVar("gnl_core_context", default=None)


def current_context() -> Context | None:
    """Return the context of the tool call that this code runs in, None outside of any."""
    return _CURRENT.get()


@contextmanager
def active(context: Context | None) -> Iterator[None]:
    """Make `context` the current one while the block runs."""
    token = _CURRENT.set(context)
    try:
        yield
    finally:
        _CURRENT.reset(token)
