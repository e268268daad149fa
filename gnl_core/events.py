"""What the executor tells: streams, progress and telemetry only listen.

A listener never changes what happens: what it raises is logged and forgotten.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

logger = logging.getLogger("gnl_core.events")

EventKind = Literal[
    "step-started",
    "text-delta",
    "reasoning-delta",
    "step-finished",
    "tool-started",
    "tool-finished",
    "interrupt",
    "blocked",
    "finished",
    "error",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One thing that happened in a run.

    Attributes:
        kind: What.
        run_id: The run it happened in: the root's, or a sub-agent's.
        step: Number of the model step, from 0.
        replayed: Whether it was read from the journal rather than done now.
        text: The text of a delta, or of an error's message.
        tool_call_id: Our id of the call.
        tool_name: Name of the tool.
        detail: Facts for programs: the tool's status, the question's name, the error's code and detail.
    """

    kind: EventKind
    run_id: str
    step: int = 0
    replayed: bool = False
    text: str = ""
    tool_call_id: str = ""
    tool_name: str = ""
    detail: Any = None


Listener: TypeAlias = Callable[[Event], None]


def tell(listener: Listener | None, event: Event) -> None:
    """Hand an event to a listener, if there is one; whatever it raises is logged."""
    if listener is None:
        return
    try:
        listener(event)
    except Exception:
        logger.exception("a listener failed on a %s event of run %s", event.kind, event.run_id)
