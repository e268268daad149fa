"""What may settle a call whose end is not known: what its body left behind, a person, its tool's `recover`."""

from __future__ import annotations

import functools
import inspect
import json
import logging
from collections.abc import Mapping
from typing import Literal, TypeAlias

from gnl_core.approvals import Answer
from gnl_core.codec import decode, encode
from gnl_core.context import Context
from gnl_core.errors import NotCanonicalError, StoreCorruptError
from gnl_core.hook import LATE, call_in_thread, seconds_for, within
from gnl_core.journal.port import JsonValue, Key
from gnl_core.records import CallRecord
from gnl_core.tools import Settled, Tool, parse_settlement
from gnl_core.verdicts import Call, CallContext

logger = logging.getLogger("gnl_core.crash")

BLOB_BYTES = 64 * 1024
"""Outputs of more bytes than this stand in the row's blob rather than in its JSON."""

Written: TypeAlias = tuple[CallRecord, bytes | None]
"""A record and its blob."""


def succeeded(record: CallRecord, value: object, *, started_at: int, settled_by: str = "") -> Written:
    """Return the terminal record of a call that did what it was to do, and its blob.

    A value that cannot be stored does not change that: the record then says why the value is missing.
    """
    try:
        output = encode(value)
    except NotCanonicalError as error:
        return _done(record, started_at, settled_by, unrepresentable=str(error)), None
    if _large(output):
        blob = json.dumps(output, ensure_ascii=True, separators=(",", ":")).encode()
        if len(blob) > BLOB_BYTES:
            return _done(record, started_at, settled_by, in_blob=True), blob
    return _done(record, started_at, settled_by, output=output), None


def _large(output: JsonValue) -> bool:
    """Whether an output may need more than `BLOB_BYTES`; a small one, as nearly all are, is told at a glance."""
    if isinstance(output, str):
        return len(output) > BLOB_BYTES // 8
    if isinstance(output, dict) and len(output) <= 16:
        return any(not isinstance(item, int | float | None) and _large(item) for item in output.values())
    return isinstance(output, list | dict) and len(output) > 0


def output_of(record: CallRecord, blob: bytes | None, key: Key = ()) -> JsonValue:
    """Return a record's output, from its blob where it stands there.

    Args:
        record: The record.
        blob: The row's blob.
        key: The row's key, for the error.

    Raises:
        StoreCorruptError: The blob is missing, or no JSON.
    """
    if not record.in_blob:
        return record.output
    try:
        output: JsonValue = json.loads(blob or b"")
    except (ValueError, RecursionError) as error:
        raise unreadable_output(record, key, str(error)) from None
    return output


def unreadable_output(record: CallRecord, key: Key, why: str) -> StoreCorruptError:
    """Return the error of a recorded result that is none."""
    text = "/".join(key)
    return StoreCorruptError(
        f"the row {text} holds no result of call {record.call} ({record.tool}) that can be read ({why}); "
        "run `gnl doctor`",
        key=text,
    )


def settle_by_evidence(ctx: CallContext) -> Written | None:
    """Settle a call by what its body returned after it had been given up."""
    value = ctx.evidence.value if ctx.evidence is not None else None
    if ctx.record is None or not isinstance(value, dict) or value.get("ok") is not True:
        return None
    blob = ctx.evidence.blob if ctx.evidence is not None else None
    try:
        decode(json.loads(blob) if blob is not None else value.get("output"))
    except ValueError:  # what cannot be read is no evidence
        return None
    record = _done(
        ctx.record,
        ctx.request.started_at(ctx),
        "evidence",
        output=value.get("output"),
        in_blob=blob is not None,
        unrepresentable=str(value.get("unrepresentable", "")),
    )
    return record, blob


def settle_by_answer(ctx: CallContext, answer: Answer) -> Written | None:
    """Settle a call by what a person knows it came to; None where they only said that it is not to run again."""
    if ctx.record is None or not answer.has_output:
        return None
    return _done(ctx.record, ctx.request.started_at(ctx), "person", output=answer.output), None


async def settle_by_recover(ctx: CallContext) -> tuple[Literal["done", "not done", "unknown"], Written | None]:
    """Ask the tool what became of the call, once a drive.

    Anything but a clear answer counts as none: the flag is the call's and never the tool's, so that the next call of
    the same tool asks again.
    """
    call, request, record = ctx.call, ctx.request, ctx.record
    assert record is not None
    memo = (call.run, call.id, "recover")
    if memo not in request.memo:
        request.memo[memo] = await ask(ctx, call, record.attempts, "recover")
    settlement = request.memo[memo]
    if settlement is None:
        return "unknown", None
    if not settlement.done:
        return "not done", None
    return "done", succeeded(record, settlement.output, started_at=request.started_at(ctx), settled_by="recover")


async def ask(ctx: CallContext, call: Call, attempt: int, name: Literal["recover", "lookup"]) -> Settled | None:
    """Ask one of a tool's hooks what the outside world knows of the call; None where it does not say in time."""
    hook = call.tool.recover if name == "recover" else call.tool.lookup
    assert hook is not None
    context = context_of(ctx, attempt)
    seconds = seconds_for(call.tool, ctx.request.options)
    function = functools.partial(call.tool.call_hook, hook, call.arguments, context)
    try:
        answer = await within(seconds, function, in_thread=not inspect.iscoroutinefunction(hook))
    except Exception as error:
        _warn(ctx, f"{name} of {call.tool.name} raised {type(error).__name__}: {error}")
        return None
    if answer is LATE:
        context.cancelled.set()
        _warn(ctx, f"{name} of {call.tool.name} did not answer within {seconds:g} s")
        return None
    settlement = parse_settlement(answer)
    if settlement is None:
        word = "done" if name == "recover" else "exists"
        _warn(
            ctx,
            f"{name} of {call.tool.name} answered {type(answer).__name__}, must answer {{'{word}': True, 'output': …}} "
            f"or {{'{word}': False}}",
        )
    return settlement


async def call_compensate(tool: Tool, arguments: Mapping[str, object], context: Context, output: object) -> None:
    """Undo one call, for as long as it takes; raises what the tool's `compensate` raises.

    One that is no coroutine function runs in a thread, it may block.
    """
    hook = tool.compensate
    assert hook is not None
    if inspect.iscoroutinefunction(hook):
        await tool.call_hook(hook, arguments, context, output)
        return
    answer = await call_in_thread(lambda: tool.call_hook(hook, arguments, context, output))
    if inspect.isawaitable(answer):
        await answer


def context_of(ctx: CallContext, attempt: int) -> Context:
    """Return what the tool's own code may know of the call."""
    call, options = ctx.call, ctx.request.options
    return Context(
        run_id=call.run,
        tool_call_id=call.id,
        tool_name=call.tool.name,
        idempotency_key=call.provider_key,
        attempt=attempt,
        actor=call.actor,
        resource_id=call.resource,
        thread_id=call.thread,
        channel=options.channel,
        deps=options.deps,
    )


def _warn(ctx: CallContext, message: str) -> None:
    ctx.request.warn(f"{message} (call {ctx.call.id} of run {ctx.call.run}); this counts as no answer")


def _done(
    record: CallRecord,
    started_at: int,
    settled_by: str,
    *,
    output: JsonValue = None,
    in_blob: bool = False,
    unrepresentable: str = "",
) -> CallRecord:
    return CallRecord(
        status="succeeded",
        tool=record.tool,
        call=record.call,
        args=record.args,
        digest=record.digest,
        side_effect=record.side_effect,
        attempts=record.attempts,
        started_at=started_at,
        output=output,
        in_blob=in_blob,
        unrepresentable=unrepresentable,
        settled_by=settled_by,
        run=record.run,
        resource=record.resource,
    )
