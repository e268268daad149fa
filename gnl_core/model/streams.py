"""Read a model's stream and leave nothing open."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gnl_core.model.messages import ModelEvent


@asynccontextmanager
async def opened(events: AsyncIterator[ModelEvent]) -> AsyncIterator[AsyncIterator[ModelEvent]]:
    """Close a model's stream on every way out; the port asks for an iterator only, which may have nothing to close."""
    try:
        yield events
    finally:
        close = getattr(events, "aclose", None)
        if close is not None:
            await close()
