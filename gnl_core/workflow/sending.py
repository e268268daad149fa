"""Send something to where a workflow waits: once, first come first kept."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from gnl_core import keys
from gnl_core.errors import (
    AlreadyDecidedError,
    ConfigError,
    NotCanonicalError,
    RefusedError,
    RunAgentMismatchError,
    RunNotFoundError,
)
from gnl_core.journal.port import Applied, Create, Entry, Expect, Journal, JsonValue, new_batch
from gnl_core.outcome import read_head
from gnl_core.request import Request
from gnl_core.sync import outside
from gnl_core.workflow.values import to_row

_TRIES = 5


async def send_to_workflow(journal: Journal, *, run_id: str, wait: str, data: Any, actor: str | None = None) -> bool:
    """Send something to a wait of a workflow's run; the run's next drive reads it.

    It may come before the run gets there. The first that is sent stands.

    Args:
        journal: The store.
        run_id: The run.
        wait: Name of the wait.
        data: What is sent: anything a tool could return.
        actor: Who sends it; needed where the run names an actor of its own.

    Returns:
        Whether this call sent it; False where the very same was sent before.

    Raises:
        AlreadyDecidedError: Something else was sent before.
        RunNotFoundError: No such run.
        RunAgentMismatchError: It is no workflow's.
        RefusedError: It has ended, or is being erased.
        ConfigError: No `actor` for a run that has one.
        NotCanonicalError: `data` cannot be stored.
        JournalError: The store cannot be used.
    """
    keys.check_id("run_id", run_id)
    keys.check_id("the name of a wait", wait)
    value, blob = sent_row(data, actor)
    key = keys.workflow_sent(run_id, wait)
    for _ in range(_TRIES):
        read = await journal.get_many([keys.head(run_id), keys.input_of(run_id), key, keys.halt(run_id)])
        head_row, began, sent, halt = read.entries
        head = read_head(head_row)
        if head is None or head_row is None:
            raise RunNotFoundError(f"there is no run {run_id!r} in this journal", run_id=run_id)
        if began is None or not isinstance(began.value, dict) or began.value.get("kind") != "workflow":
            raise RunAgentMismatchError(
                f"run {run_id!r} is no workflow's, and waits to be sent nothing", run_id=run_id, door="workflow"
            )
        if sent is not None:
            check_same(run_id, wait, sent, value, blob)
            return False
        if halt is not None or head.get("status") in ("completed", "canceled") or head.get("erasing"):
            raise RefusedError(
                f"run {run_id!r} has ended, or is being erased, and reads nothing more; nothing was sent", run_id=run_id
            )
        if not actor and head.get("actor"):
            raise ConfigError(
                f"run {run_id!r} names an actor, so what is sent to it says who sent it: pass actor=…", option="actor"
            )
        # The head's version: a run that ends, or is erased, meanwhile has read this or is not written to.
        ops = (
            Create(key, {**value, "at": read.now}, blob),
            Expect(keys.head(run_id), head_row.version),
            Expect(keys.halt(run_id), "absent"),
        )
        if isinstance(await journal.apply(ops, batch=new_batch()), Applied):
            return True
    raise RefusedError(f"run {run_id!r} changed while something was sent to it; send it again", run_id=run_id)


def send_to_workflow_sync(journal: Journal, *, run_id: str, wait: str, data: Any, actor: str | None = None) -> bool:
    """Do as `send_to_workflow` without `await`, for scripts.

    Raises:
        SyncInsideLoopError: An event loop runs in this thread: await `send_to_workflow` there.
        GnlError: As `send_to_workflow`.
    """
    outside("send_to_workflow")
    return asyncio.run(send_to_workflow(journal, run_id=run_id, wait=wait, data=data, actor=actor))


def sent_row(data: Any, actor: str | None) -> tuple[dict[str, JsonValue], bytes | None]:
    """Return the row of what is sent, without its time.

    Raises:
        NotCanonicalError: It cannot be stored.
        IdInvalidError: The actor is no id.
    """
    if actor is not None:
        keys.check_id("actor", actor)
    value, blob = to_row(data)
    return value | ({"actor": actor} if actor else {}), blob


def check_same(run_id: str, wait: str, sent: Entry, value: Mapping[str, JsonValue], blob: bytes | None) -> None:
    """Refuse to send something else than was sent before.

    Raises:
        AlreadyDecidedError: It is something else; `detail` says who sent the first, and when.
    """
    stored: Mapping[str, Any] = sent.value if isinstance(sent.value, dict) else {}
    if _said(stored, sent.blob) == _said(value, blob):
        return
    raise AlreadyDecidedError(
        f"wait {wait!r} of run {run_id!r} was sent something else before, and the first stands",
        run_id=run_id,
        wait=wait,
        actor=stored.get("actor"),
        at=stored.get("at"),
    )


def _said(value: Mapping[str, Any], blob: bytes | None) -> str:
    """Return the one text of what was sent: True is not 1, and no order of names makes a difference."""
    try:
        data = json.loads(blob or b"") if value.get("in_blob") else value.get("data")
    except (ValueError, RecursionError):
        return ""  # unreadable: nothing that is sent is the same
    return json.dumps(data, sort_keys=True)


async def send_along(request: Request, send: Mapping[str, Any]) -> None:
    """Record what a driver passes along, under its fence.

    Raises:
        AlreadyDecidedError: Something else was sent before; nothing was written.
        CanceledError, CompensatedRunError: Nothing new begins in the run.
        JournalError: The store cannot be used.
    """
    found = await request.journal.get_many([keys.workflow_sent(request.root, wait) for wait in send])
    ops: list[Create] = []
    for (wait, data), sent in zip(send.items(), found.entries, strict=True):
        value, blob = sent_row(data, request.options.actor)
        if sent is not None:
            check_same(request.root, wait, sent, value, blob)
            request.rows[sent.key] = sent
            continue
        ops.append(Create(keys.workflow_sent(request.root, wait), {**value, "at": found.now}, blob))
    if not ops:
        return
    outcome = await request.write(ops, begins=True)
    if isinstance(outcome, Applied):
        request.rows |= {
            op.key: Entry(op.key, op.value, op.blob, outcome.version, 0, outcome.now, outcome.now) for op in ops
        }
    else:
        await send_along(request, send)  # somebody else sent something in the same moment


def check_send(send: Mapping[str, Any]) -> None:
    """Refuse what cannot be sent, before anything is done.

    Raises:
        ConfigError: It is no mapping, or a value cannot be stored.
        IdInvalidError: A wait's name is none.
    """
    if not isinstance(send, Mapping):
        raise ConfigError(
            f"send is {type(send).__name__}, must be a mapping of waits' names to what is sent", option="send"
        )
    for wait, data in send.items():
        keys.check_id("the name of a wait", wait)
        try:
            to_row(data)
        except NotCanonicalError as error:
            raise ConfigError(f"what is sent to wait {wait!r} cannot be stored: {error}", option="send") from None
