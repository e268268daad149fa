"""What a root run and its sub-agents share while one process drives them: loaded rows, the fence, the only writer.

A request's rows are read once, in one scan, under a lock whose version did not change since. After that its driver is
the only writer, so it reads them no more: it knows what it wrote. Two rows are other people's: a person's answers, and
the halt flag. Answers are looked up where a call waits for one; the flag is a condition of every batch that begins
something.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from gnl_core import keys
from gnl_core.approvals import Answer, Interrupt
from gnl_core.errors import (
    CanceledError,
    CompensatedRunError,
    ConfigError,
    GnlError,
    RunFencedError,
)
from gnl_core.journal.port import Add, Applied, Create, Entry, Expect, Journal, JsonValue, Key, Op, Refused, new_batch
from gnl_core.journal.send import BEGIN_TRIES, RECORD_TRIES, send
from gnl_core.limits import Spent
from gnl_core.options import Options
from gnl_core.owner import Owner, unregister
from gnl_core.records import CallRecord, read_call
from gnl_core.results import Log

if TYPE_CHECKING:
    from gnl_core.verdicts import Call, CallContext

logger = logging.getLogger("gnl_core.request")


@dataclass(slots=True, eq=False)
class Body:
    """A body that has begun and is not known to have ended.

    Attributes:
        key: Of the record that claims its call.
        left: Whether nobody waits for it any more.
    """

    key: Key
    left: bool = False


class Request:
    """One request while it is driven.

    Attributes:
        journal: The store.
        root: Run id of the root run.
        fence: Version of the run lock, which every batch expects; None outside of any run.
        owner: Who this driver is.
        options: How it is driven.
        rows: The request's rows by key, as loaded and as written since.
        now: Milliseconds of the store's clock, as last seen.
        taint: First untrusted content, if any came in.
        history: (tool, digest) of successful calls, in order, for loop detection.
        spent: Tokens, money and calls so far.
        log: What happened in this drive.
        memo: What user code answered in this drive, so that a second walk calls nothing twice.
        warnings: What the caller should read; also logged.
        held: Answers that came before their question, by the names they were passed under.
        unused: Those of them that no call has met.
        walking: Held while a call walks the gates: one at a time, sub-agents' calls too.
        begun: Calls that were let begin and are not in `spent` yet.
        untold: Whether its calls' failures were told to no model, which would have gone on from them.
    """

    def __init__(
        self, *, journal: Journal, root: str, fence: int | None, owner: Owner, options: Options, now: int
    ) -> None:
        self.journal = journal
        self.root = root
        self.fence = fence
        self.owner = owner
        self.owner_json = owner.to_json()
        self.options = options
        self.now = now
        self.rows: dict[Key, Entry] = {}
        self.taint: Mapping[str, Any] | None = None
        self.halt: Mapping[str, Any] | None = None
        self.history: list[tuple[str, str]] = []
        self.spent = Spent()
        self.log = Log()
        self.memo: dict[tuple[str, ...], Any] = {}
        self.warnings: list[str] = []
        self.held: dict[str, Answer] = {}
        self.unused: set[str] = set()
        self.walking = asyncio.Lock()
        self.begun = 0
        self.untold = False
        self.last_steps: dict[str, int] = {}
        self._alike: dict[tuple[str, str], dict[Key, None]] = {}  # calls by tool and digest
        self.released = False
        # Bodies end in threads of their own, some of them when the drive is long over.
        self._lock = threading.Lock()
        self._bodies: set[Body] = set()
        self._acts_until = 0.0
        self._records: dict[Key, tuple[int, CallRecord]] = {}
        self._unsure: dict[int, tuple[Op, ...]] = {}  # what was put off, by the tags of batches of unknown outcome
        self._standing: tuple[Op, ...] = ()
        self._beginning: tuple[Op, ...] = ()
        if fence is not None:
            self._standing = (Expect(keys.lock(root), fence),)
            self._beginning = (*self._standing, Expect(keys.halt(root), "absent"))

    def load(self, entries: Sequence[Entry]) -> None:
        """Take in the request's rows."""
        for entry in entries:
            self.rows[entry.key] = entry
            self._index(entry.key, entry.value)
            if len(entry.key) == 5 and entry.key[3] == "model":
                part, step = entry.key[2], int(entry.key[4])
                self.last_steps[part] = max(step, self.last_steps.get(part, -1))
            elif len(entry.key) == 4 and entry.key[3] == "head":
                # A completed run recorded all its steps: one that is missing at its end is a gap, too.
                part, head = entry.key[2], _object(entry) or {}
                steps = head.get("steps")
                if head.get("status") == "completed" and type(steps) is int:
                    self.last_steps[part] = max(steps - 1, self.last_steps.get(part, -1))
        self.taint = _object(self.rows.get(keys.taint(self.root)))
        self.halt = _object(self.rows.get(keys.halt(self.root)))

    def record_of(self, entry: Entry) -> CallRecord:
        """Return the call record of a row; each version of it is read once."""
        known = self._records.get(entry.key)
        if known is not None and known[0] == entry.version:
            return known[1]
        record = read_call(entry)
        self._records[entry.key] = (entry.version, record)
        return record

    def calls_like(self, tool: str, digest: str) -> list[tuple[Entry, CallRecord]]:
        """Return the request's calls of a tool with these arguments, in the order they were made; sub-agents' too."""
        found = (self.rows.get(key) for key in self._alike.get((tool, digest), ()))
        return [(entry, self.record_of(entry)) for entry in found if entry is not None]

    def _index(self, key: Key, value: JsonValue) -> None:
        if len(key) == 6 and key[3] == "tool" and isinstance(value, dict):
            self._alike.setdefault((str(value.get("tool")), str(value.get("digest"))), {})[key] = None

    def last_step(self, part: str) -> int:
        """Return the number of the last model step recorded for a run of this request; -1 where there is none."""
        return self.last_steps.get(part, -1)

    def warn(self, message: str) -> None:
        """Note something for the caller, once."""
        if message not in self.warnings:
            self.warnings.append(message)
            logger.warning("%s", message)

    def halted(self) -> GnlError | None:
        """Return the error of a request that starts nothing new."""
        if self.halt is None:
            return None
        if self.halt.get("compensated"):
            return CompensatedRunError(
                f"the effects of run {self.root} are being undone; nothing new starts in it. Begin a new run instead",
                run_id=self.root,
            )
        return CanceledError(
            f"run {self.root} was canceled; what is recorded stays, nothing new starts. Fork it to go on from a step",
            run_id=self.root,
        )

    def answer_op(self, call: Call, answer: Answer) -> Create:
        """Return the operation that records an answer which came before its question."""
        key = keys.answer(call.root, call.part, call.id, answer.kind, answer.attempt)
        return Create(key, answer.to_json(), if_present="keep")

    def started_at(self, ctx: CallContext) -> int:
        """Return when the last attempt of a recorded call was claimed, in ms of the store's clock."""
        assert ctx.record is not None
        assert ctx.entry is not None
        return ctx.record.started_at or ctx.entry.updated_at

    def when(self, ctx: CallContext) -> str:
        """Return when the last attempt was claimed, for people."""
        try:
            return f"at {datetime.fromtimestamp(self.started_at(ctx) / 1000, UTC).isoformat(timespec='seconds')}"
        except (ValueError, OverflowError, OSError):  # a row that somebody changed
            return "at an unknown time"

    # Writing -------------------------------------------------------------------------------------------------------

    async def write(
        self, ops: Sequence[Op], *, pending: list[Op] | None = None, begins: bool = False, terminal: bool = False
    ) -> Applied | Refused:
        """Write one batch under the fence.

        Args:
            ops: Operations of the batch.
            pending: Operations that were put off until the next batch of their run; taken out once they are written.
            begins: Whether the batch begins something, which a halted request does not.
            terminal: Whether it records an effect that happened, so that the store is given more time.

        Returns:
            `Applied`, or `Refused` with the number of the operation within `ops`.

        Raises:
            RunFencedError: Another worker has taken the run over; nothing was written.
            CanceledError, CompensatedRunError: The batch begins something in a halted request.
            JournalError: The store did not take it.
        """
        put_off: tuple[Op, ...] = ()
        if pending:
            # Taken out before anything is awaited: a sibling that writes meanwhile must not send it again.
            put_off = tuple(pending)
            pending.clear()
        guard = self._beginning if begins else self._standing
        written, cancelled = False, None
        try:
            while True:
                batch, tag = (*guard, *put_off, *ops), new_batch()
                if put_off:
                    self._unsure[tag] = put_off
                tries = RECORD_TRIES if terminal else BEGIN_TRIES
                outcome, stopped = await send(self.journal, batch, run_id=self.root, tries=tries, tag=tag)
                self._unsure.pop(tag, None)  # it stays where the outcome is not known
                cancelled = stopped or cancelled
                stands = self._ours(outcome, len(guard), len(put_off))
                if not stands:
                    break
                put_off = tuple(op for op in put_off if op.key not in stands)
            written = isinstance(outcome, Applied)
        finally:
            if put_off and pending is not None and not written:
                pending[:0] = put_off
        self.now = max(self.now, outcome.now)
        if isinstance(outcome, Applied):
            self._note(batch, outcome)
        if cancelled is not None:
            raise cancelled
        if isinstance(outcome, Applied):
            return outcome
        if guard and outcome.op == 0:
            raise self.fenced_error()
        if outcome.op < len(guard):
            self.halt = _object(outcome.found) or {}
            error = self.halted()
            assert error is not None
            raise error
        if outcome.op < len(guard) + len(put_off):
            raise self.fenced_error()
        return Refused(outcome.op - len(guard) - len(put_off), outcome.found, outcome.now)

    async def write_beside(
        self, ops: Sequence[Op], beside: Sequence[Op], *, pending: list[Op] | None = None, terminal: bool = False
    ) -> Applied | Refused:
        """Write one batch, and with it what belongs to it: nothing of that keeps the batch itself from being written.

        What a row beside it refuses is left out alone; where no store can hold what stands beside, all of it is.

        Args:
            ops: Operations of the batch.
            beside: Operations that may be left out.
            pending: As for `write`.
            terminal: As for `write`.

        Returns:
            As `write`, of the batch itself.

        Raises:
            GnlError: As `write`.
        """
        left = list(beside)
        while True:
            try:
                outcome = await self.write((*ops, *left), pending=pending, terminal=terminal)
            except (ValueError, ConfigError):
                if not left:
                    raise
                logger.exception("what belongs to a record of run %s could not be written with it", self.root)
                left = []
                continue
            if isinstance(outcome, Applied) or outcome.op < len(ops):
                return outcome
            refused = left.pop(outcome.op - len(ops))
            logger.warning("what belongs to a record of run %s was refused at %s", self.root, keys.encode(refused.key))

    def _ours(self, outcome: Applied | Refused, start: int, count: int) -> frozenset[Key]:
        """Return the keys that a batch of unknown outcome wrote after all, if what refused this one is its row."""
        found = outcome.found if isinstance(outcome, Refused) and start <= outcome.op < start + count else None
        return self._take_in(found) if found is not None and found.batch in self._unsure else frozenset()

    def _take_in(self, found: Entry) -> frozenset[Key]:
        ops = self._unsure.pop(found.batch)
        self._note(ops, Applied(found.version, found.updated_at))
        return frozenset(op.key for op in ops)

    async def recalls(self, key: Key) -> bool:
        """Whether a row that was put off stands, although the batch that wrote it seemed to fail; it is taken in.

        Raises:
            JournalError: The store cannot be read.
        """
        if not any(op.key == key for ops in self._unsure.values() for op in ops):
            return False
        found = (await self.journal.get_many([key])).entries[0]
        return found is not None and found.batch in self._unsure and key in self._take_in(found)

    async def write_apart(self, ops: Sequence[Op]) -> None:
        """Write one batch without the fence, as often as the record of an effect; from whatever event loop.

        Raises:
            JournalError: The store did not take it.
            NotCanonicalError: No store can.
        """
        _, cancelled = await send(self.journal, ops, run_id=self.root, tries=RECORD_TRIES)
        if cancelled is not None:
            raise cancelled

    def fenced_error(self) -> RunFencedError:
        """Return the error of a driver that lost its run."""
        return RunFencedError(
            f"run {self.root} was taken over by another worker, which took this one for dead; this one stops here and "
            "writes nothing more. Drive the run again to join it where it stands",
            run_id=self.root,
        )

    def _note(self, ops: Sequence[Op], applied: Applied) -> None:
        for op in ops:
            if isinstance(op, Expect):
                continue
            key = op.key
            match key[3] if key[0] == "run" and len(key) > 3 else "":
                case kind if kind in _KEPT and not isinstance(op, Add):
                    before = self.rows.get(key)
                    value: JsonValue = getattr(op, "value", None)
                    self._index(key, value)
                    self.rows[key] = Entry(
                        key,
                        value,
                        getattr(op, "blob", None),
                        applied.version,
                        0,
                        before.created_at if before else applied.now,
                        applied.now,
                    )
                case "taint" if self.taint is None:
                    self.taint = getattr(op, "value", None)

    # The end -------------------------------------------------------------------------------------------------------

    def body_begins(self, key: Key) -> Body:
        """Note a body that begins under a record's key, from its claim on; until it has ended, its owner is not dead.

        One that was noted under the key before, and is not left, is the same one.
        """
        with self._lock:
            for body in self._bodies:
                if body.key == key and not body.left:
                    return body
            body = Body(key)
            self._bodies.add(body)
        return body

    def body_ended(self, body: Body) -> None:
        """Note a body's end, from whatever thread; one that has ended before is no error."""
        with self._lock:
            self._bodies.discard(body)
            self._let_go()

    def executes(self, key: Key, *, left: bool = False) -> bool:
        """Whether a body under this key is executing here and waited for; with `left`, one that is not, too."""
        with self._lock:
            return any(body.key == key and (left or not body.left) for body in self._bodies)

    def may_act_for(self, milliseconds: int) -> None:
        """Say that what a body began elsewhere may go on for so long, in ms: until then its owner is not dead."""
        with self._lock:
            self._acts_until = max(self._acts_until, time.monotonic() + milliseconds / 1000)
            self._let_go()

    def release(self) -> None:
        """Say that this driver holds the request no more."""
        with self._lock:
            self.released = True
            self._let_go()

    def _let_go(self) -> None:
        if self.released and not self._bodies:
            unregister(self.owner, after_s=self._acts_until - time.monotonic())


_KEPT = frozenset(("tool", "args", "nudge", "incident", "body", "cfg", "model", "msg", "claim"))
"""Rows that are looked at again while the request is driven."""


def interrupts_by_name(interrupts: Sequence[Interrupt]) -> str:
    """Return the names of open questions, for messages."""
    return ", ".join(interrupt.question for interrupt in interrupts) or "none"


def _object(entry: Entry | None) -> Mapping[str, Any] | None:
    return entry.value if entry is not None and isinstance(entry.value, dict) else None
