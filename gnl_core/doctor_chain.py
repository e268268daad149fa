"""Rebuild what each model step was asked from a run's rows, and compare it with the chain recorded beside the step.

The rows are read page by page, and of each only digests are kept, so that a run of any length fits. What came after the
last step (its answer, the calls that it asked for) is under no chain yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gnl_core import keys
from gnl_core.crash import output_of
from gnl_core.errors import JournalFormatError, StoreCorruptError
from gnl_core.journal import get, scan_all
from gnl_core.journal.port import Entry, Journal, JsonValue
from gnl_core.model.messages import ToolCallPart, message_from_json
from gnl_core.records import read_call, read_step, stamped
from gnl_core.render import RENDER, result_text, tool_message
from gnl_core.splice import EMPTY_CHAIN, digest_message, extend, rebuild

_UNREADABLE = (StoreCorruptError, JournalFormatError, ValueError, TypeError, LookupError)
_TOLD = ("succeeded", "failed", "denied", "reflected")
"""A call of another status waits for somebody, which is told elsewhere: what the model once read of it is not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A model step that was not asked what the rows now say it was.

    Attributes:
        step: Its number.
        since: What the rows add to the step before: 'the answer of step 0', 'the result of s0p0'.
        settled: Calls among them that were settled or run once more later, by whom: their results may differ.
    """

    step: int
    since: tuple[str, ...]
    settled: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Step:
    keep: int
    add: tuple[Mapping[str, JsonValue], ...]
    chain: str
    answer: str
    calls: tuple[ToolCallPart, ...]  # without their arguments: a result's message needs names and ids alone


@dataclass(slots=True)
class _Run:
    """Digests of all that a step's messages are made of."""

    begin: list[str] | None = field(default_factory=list)
    steps: dict[int, _Step] = field(default_factory=dict)
    calls: dict[str, str] = field(default_factory=dict)
    messages: dict[str, str] = field(default_factory=dict)
    settled: dict[str, str] = field(default_factory=dict)

    def resolve(self, reference: Mapping[str, JsonValue]) -> str | None:
        """Return the digest of what a reference names; None where that cannot be read, or is of a later release."""
        step, call, message = reference.get("step"), reference.get("call"), reference.get("msg")
        if isinstance(step, int):
            return self.steps[step].answer if step in self.steps else None
        if isinstance(call, str):
            return self.calls.get(call) if reference.get("render") == RENDER else None
        return self.messages.get(message) if isinstance(message, str) else None


async def check_chain(journal: Journal, run_id: str) -> list[Difference]:
    """Rebuild the steps of a run, and return those that differ from what is recorded, in order.

    What cannot be read, or is missing, is told by the run's view and differs in nothing here.

    Raises:
        JournalError: The store cannot be read.
    """
    root, part = keys.split_run_id(run_id)
    run = _Run()
    entry = await get(journal, keys.input_of(root, part))
    if entry is not None:
        run.begin = _begin(entry)
    async for row in scan_all(journal, ("run", root, part, "model")):
        _take_step(run, row)
    asked = {call.id: call for step in run.steps.values() for call in step.calls}
    async for row in scan_all(journal, ("run", root, part, "tool"), blobs=True):
        _take_call(run, row, asked)
    async for row in scan_all(journal, ("run", root, part, "msg")):
        _take_message(run, row)
    return list(_fold(run))


def _begin(entry: Entry) -> list[str] | None:
    try:
        return [digest_message(message_from_json(message)) for message in stamped(entry).get("messages", [])]
    except _UNREADABLE:
        return None


def _take_step(run: _Run, row: Entry) -> None:
    try:
        number, record = int(row.key[4]), read_step(row)
        answer = digest_message(record.response.message())
    except _UNREADABLE:
        return
    calls = tuple(ToolCallPart(call.id, call.name, None, "", call.provider_id) for call in record.response.tool_calls)
    run.steps[number] = _Step(record.keep, record.add, record.chain, answer, calls)


def _take_call(run: _Run, row: Entry, asked: Mapping[str, ToolCallPart]) -> None:
    try:
        call, record = keys.call_id(int(row.key[4]), int(row.key[5])), read_call(row)
        if call not in asked or record.status not in _TOLD:
            return
        text, is_error = result_text(record, output_of(record, row.blob, row.key))
        run.calls[call] = digest_message(tool_message(asked[call], text, is_error))
    except _UNREADABLE:
        return
    if record.settled_by or record.attempts > 1:
        run.settled[call] = record.settled_by


def _take_message(run: _Run, row: Entry) -> None:
    try:
        run.messages[row.key[4]] = digest_message(message_from_json(stamped(row)["message"]))
    except _UNREADABLE:
        return


def _fold(run: _Run) -> Iterator[Difference]:
    """Go through the steps in order.

    Two chains are kept: over what the rows say, and over what the steps before were asked. A run that went on after a
    result had changed was asked the one in a later drive, and the other in the drive that made the step before.
    """
    if run.begin is None:
        return
    links: list[str | None] = list(run.begin)
    rows: list[str | None] = [EMPTY_CHAIN]
    told: list[str | None] = [EMPTY_CHAIN]
    _extend(rows, 0, links)
    _extend(told, 0, links)
    for number in range(len(run.steps)):
        step = run.steps.get(number)
        if step is None:
            return
        try:
            links = rebuild(links, step.keep, step.add, run.resolve)
        except ValueError:
            yield Difference(step=number, since=(f"{step.keep} messages, more than there were",), settled=())
            return
        added = links[step.keep :]
        _extend(rows, step.keep, added)
        _extend(told, step.keep, added)
        # Where one of them holds what cannot be read, nothing is known of it.
        if step.chain not in (rows[-1], told[-1]) and None not in (rows[-1], told[-1]):
            calls = [str(one["call"]) for one in step.add if "call" in one]
            settled = (f"{call}{_by(run.settled[call])}" for call in calls if call in run.settled)
            yield Difference(step=number, since=tuple(map(_named, step.add)), settled=tuple(settled))
        if step.chain != told[-1]:
            # Which of the added ones was another is not known: a later step that keeps a part of them proves nothing.
            _extend(told, step.keep, [None] * len(added))
            told[-1] = step.chain


def _extend(chains: list[str | None], keep: int, links: Sequence[str | None]) -> None:
    """Keep the chain over so many messages, and go on with these."""
    del chains[keep + 1 :]
    for link in links:
        last = chains[-1]
        chains.append(None if last is None or link is None else extend(last, link))


def _by(whom: str) -> str:
    return f" (by {whom})" if whom else " (run once more)"


def _named(reference: Mapping[str, JsonValue]) -> str:
    if "step" in reference:
        return f"the answer of step {reference['step']}"
    if "call" in reference:
        return f"the result of {reference['call']}"
    return f"the message {reference.get('msg')}"
