"""One tool call on its way through a step, and how it is told to models, people and listeners."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from gnl_core import keys
from gnl_core.approvals import MISSING, Interrupt
from gnl_core.canonical import args_hash
from gnl_core.codec import encode, plain
from gnl_core.errors import JournalGapError, NotCanonicalError
from gnl_core.events import Event
from gnl_core.journal.port import Entry, JsonValue, Put
from gnl_core.model.messages import Message, ToolCallPart
from gnl_core.records import CallRecord
from gnl_core.render import result_text, tool_message
from gnl_core.verdicts import Call, CallContext, Finish


@dataclass(slots=True)
class Slot:
    """One call of a step on its way.

    Attributes:
        part: The call as the model made it.
        call: What it resolves to; None where there is no such tool.
        status: How it stands, for results and events.
        message: What the model reads of it, once it is settled.
        output: Its output in the codec's form.
        value: The same decoded, where that has been done.
        record: Its record, once it is settled.
        replayed: Whether it was read rather than run.
        origin: Whose work was read: this very call's, or other work's.
        interrupts: Questions that wait: its own, or those of the run it drives.
        error: Why it did not run, or what went wrong with its record.
        claim: That it may run now.
        waits: Whether somebody else is at the same work.
        counted: Whether it is among the request's calls that have begun.
    """

    part: ToolCallPart
    call: Call | None = None
    status: str = ""
    message: Message | None = None
    output: JsonValue = None
    value: object = MISSING
    record: CallRecord | None = None
    replayed: bool = False
    origin: str = "self"
    interrupts: tuple[Interrupt, ...] = ()
    error: BaseException | None = None
    claim: Claim | None = None
    waits: bool = False
    counted: bool = False


@dataclass(slots=True)
class Claim:
    """A call that may run now: its record is 'running', or it needs no claim.

    Attributes:
        record: The record.
        entry: Its row, to be replaced; None where there is none.
        at: When it was claimed, in ms of the store's clock.
        first: Whether no attempt came before.
        finish: What is written with the record of its end.
        context: What the gates saw.
        entered: Whether the body began: a claim whose body never did is taken back.
        version: Version of the batch that claimed it; 0 where nothing was claimed.
        since: When that was, on this process's own clock.
    """

    record: CallRecord
    entry: Entry | None
    at: int
    first: bool
    finish: tuple[Finish, ...] = ()
    context: CallContext | None = field(default=None, repr=False)
    entered: bool = False
    version: int = 0
    since: float = field(default_factory=time.monotonic)

    def age_ms(self) -> float:
        """Return how long ago it was claimed, in ms, by this process's own clock."""
        return (time.monotonic() - self.since) * 1000


DriveChild = Callable[[Call], Awaitable["str | tuple[Interrupt, ...]"]]
"""Drive the run that a sub-agent's call stands for: its text, or the questions it waits on."""


def settle(slot: Slot, record: CallRecord, output: JsonValue, *, replayed: bool = False) -> None:
    """Take a settled record as the end of a call."""
    text, is_error = result_text(record, output)
    slot.record, slot.output, slot.status, slot.replayed = record, output, record.status, replayed
    slot.message = tool_message(slot.part, text, is_error)


def mirror(part: str, call: Call, record: CallRecord, blob: bytes | None) -> Put:
    """Return the operation that shows work recorded under its arguments in the run's own timeline."""
    shadow = dataclasses.replace(
        record, call=call.id, args=call.args, mirror_of=keys.encode(call.record_key), run="", resource=""
    )
    return Put(keys.tool(call.root, part, call.step, call.position), shadow.to_json(), blob)


def gap(run: str, call: str) -> JournalGapError:
    """Return the error of a call whose record is missing although the run went on after it."""
    return JournalGapError(
        f"run {run} has later model steps, but no record of call {call} that they were made after; nothing is run in "
        "its place. Run `gnl doctor`, or fork the run before that step",
        run_id=run,
        tool_call_id=call,
    )


def event_of(slot: Slot, run: str, kind: Literal["tool-started", "tool-finished"]) -> Event:
    """Return what listeners are told of a call."""
    return Event(
        kind=kind,
        run_id=run,
        step=step_of(slot.part.id),
        replayed=slot.replayed,
        tool_call_id=slot.part.id,
        tool_name=slot.part.name,
        detail={"status": slot.status} if slot.status else None,
    )


def interrupt_of(ctx: CallContext) -> Interrupt:
    """Return the question that a recorded call waits on: the one asked, or whether it may run again."""
    record = ctx.record
    assert record is not None
    if record.status == "suspended":
        question = record.question or {}
        kind, at, reason = question.get("kind"), question.get("at"), question.get("reason")
        prior = question.get("prior")
        return interrupt(
            ctx.call,
            record,
            at if isinstance(at, int) else 0,
            str(kind),
            str(reason),
            prior=prior if isinstance(prior, dict) else None,
        )
    reason = "It was begun and nobody knows whether it took effect; it may have happened already. Run it once more?"
    return interrupt(ctx.call, record, ctx.request.started_at(ctx), "in_doubt", reason)


def interrupt(
    call: Call, record: CallRecord, at: int, kind: str, reason: str, *, prior: Mapping[str, JsonValue] | None = None
) -> Interrupt:
    """Return a question about a call, with the arguments that are recorded: a person's answer covers those."""
    foreign = bool(record.run) and (record.run, record.call) != (call.run, call.id)
    return Interrupt(
        run_id=record.run or call.run,
        tool_call_id=record.call,
        tool_name=call.tool.name,
        args=record.args,
        args_digest=args_hash(record.args),
        kind=kind,  # type: ignore[arg-type] # from a record
        attempt=record.attempts,
        reason=reason,
        asked_at=at,
        provider_call_id="" if foreign else call.provider_id,
        prior=prior,
    )


def error_json(error: BaseException) -> dict[str, JsonValue]:
    """Return what a record keeps of an exception: its type's name, its message, and the public members that fit."""
    try:
        message = str(error)
    except Exception:  # a tool's own class; its failure is recorded all the same
        message = "the message of this exception could not be read"
    value: dict[str, JsonValue] = {"type": type(error).__name__, "message": message}
    detail: dict[str, JsonValue] = {}
    with contextlib.suppress(Exception):  # a class of the tool's own may let nobody read its members
        for name, member in vars(error).items():
            if not str(name).startswith("_"):
                with contextlib.suppress(NotCanonicalError):
                    detail[str(name)] = plain(encode(member))
    if detail:
        value["detail"] = detail
    return value


def step_of(call: str) -> int:
    """Return the model step of one of our call ids; 0 where it is none."""
    position = keys.parse_call_id(call)
    return position[0] if position else 0
