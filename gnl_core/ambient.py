"""Idempotency without a run: a plain tool that does the same work once, whoever asks for it."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from gnl_core import keys
from gnl_core.approvals import MISSING
from gnl_core.call import Caller
from gnl_core.canonical import args_hash, digest
from gnl_core.claims import free_claim
from gnl_core.codec import decode
from gnl_core.errors import ApprovalRequiredError, ConfigError, GnlError, ToolError
from gnl_core.journal import scan_all
from gnl_core.journal.port import Journal, Key, Op
from gnl_core.model.messages import ToolCallPart
from gnl_core.options import Options
from gnl_core.owner import new_owner, register
from gnl_core.request import Request
from gnl_core.slots import Slot
from gnl_core.tool_options import Window
from gnl_core.tools import Tool
from gnl_core.tools import tool as make_tool

logger = logging.getLogger("gnl_core.ambient")

_RUN = "__ambient:"
"""Stands for the run in records of work that no run asked for, before the digest of what names the work: what a body
leaves behind late is kept under it, and settles no other work. No caller's run id begins like this."""


def with_idempotency(
    tool: Tool | Callable[..., Any],
    journal: Journal,
    *,
    window: Window = "cross-run",
    thread_id: str | None = None,
    resource_id: str | None = None,
) -> Callable[..., Awaitable[object]]:
    """Return the tool as a function that does the same work once: equal arguments give the recorded result.

    Nobody can be asked here: a call whose end is not known raises, until the tool's `recover` knows, or an operator
    says what became of it: with `release_failed_claim`, or with `gnl claims list`, `release` and `settle`.

    Args:
        tool: A tool, or a plain function. With an `idempotency_key` that names the work, else all arguments do.
        journal: The store.
        window: 'cross-run', or 'thread' with a `thread_id`.
        thread_id: Conversation, for the window 'thread'.
        resource_id: Person on whose behalf the work is done; another person's record is refused.

    Returns:
        An async function of the tool's arguments, by name.

    Raises:
        ConfigError: The window is not possible here, or the tool asks for a person.
    """
    made = tool if isinstance(tool, Tool) else make_tool(tool)
    if window not in ("run", "thread", "cross-run"):
        raise ConfigError(f"with_idempotency of {made.name}: window={window!r} must be 'cross-run' or 'thread'")
    for name, value in (("thread_id", thread_id or None), ("resource_id", resource_id)):
        if value is not None:
            keys.check_id(name, value)
    if window == "run" or (window == "thread" and not thread_id):
        raise ConfigError(
            f"with_idempotency of {made.name}: window={window!r} needs "
            + ("a run, and there is none; use 'cross-run' or 'thread'" if window == "run" else "a thread_id")
        )
    if made.confirm or made.drives_run:
        raise ConfigError(f"{made.name} asks a person or drives a run, and nobody can be asked outside of run_durable")
    kept = dataclasses.replace(made, idempotency="args", window=window)

    async def call(**args: Any) -> object:
        owner = new_owner()
        register(owner)
        request = Request(
            journal=journal,
            root=_RUN + _digest(kept, thread_id, args),
            fence=None,
            owner=owner,
            options=Options(thread_id=thread_id, resource_id=resource_id),
            now=await journal.now(),
        )
        pending: list[Op] = []
        caller = Caller(request, part=keys.ROOT, tools={kept.name: kept}, pending=pending)
        slot = Slot(ToolCallPart(keys.call_id(0, 0), kept.name, args))
        try:
            await caller.begin(slot, 0, 0)
            await caller.finish(slot)
        finally:
            request.release()
        return _outcome(slot)

    return call


def _digest(tool: Tool, thread_id: str | None, args: Mapping[str, Any]) -> str:
    try:
        work = tool.key_of(args)
    except GnlError:
        return "0"  # the call is refused as soon as it is looked at
    return digest([tool.window, thread_id, tool.name, work])[:32]


def _outcome(slot: Slot) -> object:
    if slot.error is not None:
        raise slot.error
    if slot.interrupts:
        raise ApprovalRequiredError(f"{slot.part.name} waits for a person", tool=slot.part.name)
    if slot.status == "succeeded":
        return decode(slot.output)
    part = slot.message.parts[0] if slot.message is not None else None
    error = (slot.record.error if slot.record is not None else None) or {}
    raise ToolError(getattr(part, "text", slot.status), type=str(error.get("type", slot.status)))


async def release_failed_claim(
    journal: Journal,
    *,
    tool_name: str,
    args: Mapping[str, Any],
    key: object = None,
    thread_id: str | None = None,
    window: Window = "cross-run",
    output: Any = MISSING,
) -> bool:
    """Say, as an operator, what became of recorded work that failed, or whose process is gone.

    Without `output`: it did not happen, and its next call begins afresh. With it: it happened and came to this, and
    every next call is given it.

    Args:
        journal: The store.
        tool_name: Name of the tool.
        args: The call's arguments.
        key: What the tool's `idempotency_key` makes of them, if it has one.
        thread_id: Conversation, for the window 'thread'.
        window: Where the record stands: 'cross-run' or 'thread'.
        output: What the work is known to have come to.

    Returns:
        Whether a claim was freed or settled; False where there is no such record (a warning names those of
        the same tool).

    Raises:
        NotCanonicalError: `output` cannot be stored.
        RefusedError: The work is done, still running, or its record changed meanwhile.
        ConfigError: A window that is not possible here.
    """
    hashed = args_hash(args) if key is None else digest(key)[:16]
    if window == "cross-run":
        place: Key = keys.xrun_args(tool_name, hashed)
    elif window == "thread" and thread_id:
        place = keys.xthr_args(thread_id, tool_name, hashed)
    else:
        raise ConfigError("release_failed_claim needs window='cross-run', or 'thread' with a thread_id")
    if await free_claim(journal, place, output=output):
        return True
    siblings = [keys.encode(one.key) async for one in scan_all(journal, place[:-1])][:20]
    logger.warning("no record %s; of this tool there are: %s", keys.encode(place), ", ".join(siblings) or "none")
    return False
