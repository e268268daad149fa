"""What a gate sees of a call, and what it may answer. Gates find and rule; only the executor writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeAlias

from gnl_core import keys
from gnl_core.journal.port import Create, Entry, JsonValue, Key, Op
from gnl_core.records import CallRecord, QuestionKind

if TYPE_CHECKING:
    from gnl_core.approvals import Answer
    from gnl_core.errors import GnlError
    from gnl_core.findings import Findings
    from gnl_core.incidents import Incident
    from gnl_core.request import Request
    from gnl_core.tools import Tool


class State(Enum):
    """Where a call's record stands, under the store's clock."""

    FRESH = "fresh"
    """No record: nothing has begun."""

    WAITING = "waiting"
    """A person was asked and has not answered."""

    ANSWERED = "answered"
    """A person was asked and has answered."""

    RUNNING = "running"
    """Claimed by somebody who may still be at it."""

    IN_DOUBT = "in doubt"
    """Begun, and nobody will come back to say how it ended."""

    FAILED = "failed"
    """The body raised; whether it took effect is not known."""

    DONE = "done"
    """Settled: replayed for ever."""


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call, wherever it comes from.

    Attributes:
        root: Run id of the root run.
        part: '~' for the root run, the child's run id for a sub-agent's.
        run: Run id of the run that makes the call.
        step: Number of the model step that asked for it.
        position: Its position in that step.
        id: Our id, 's<step>p<position>'.
        provider_id: The provider's id; '' where it gave none.
        tool: The tool.
        args: Arguments as the model wrote them.
        arguments: The same as the tool's types; as written where they do not fit any more.
        unfit: Why recorded arguments do not fit the tool any more.
        args_digest: Their `args_hash`: what a person's answer covers.
        digest: What the record carries: `args_digest`, or the hash of the tool's own key.
        record_key: Where its record stands.
        provider_key: The idempotency key that the tool hands to the outside.
        thread: Conversation, if any.
        resource: Person on whose behalf the run works, if any.
        actor: Who drives the run, if known.
    """

    root: str
    part: str
    run: str
    step: int
    position: int
    id: str
    provider_id: str
    tool: Tool
    args: Mapping[str, JsonValue]
    arguments: Mapping[str, object]
    unfit: GnlError | None
    args_digest: str
    digest: str
    record_key: Key
    provider_key: str
    thread: str | None
    resource: str | None
    actor: str | None

    @property
    def own_key(self) -> Key:
        """Where the run's own row of the call stands."""
        return keys.tool(self.root, self.part, self.step, self.position)

    @property
    def keyed(self) -> bool:
        """Whether the record stands elsewhere: under what names the work, and the run's own row only mirrors it."""
        return self.record_key != self.own_key


@dataclass(frozen=True, slots=True)
class CallContext:
    """Everything a gate may look at; nothing that writes.

    Attributes:
        call: The call.
        state: Where its record stands.
        record: Its record, if there is one.
        entry: The record's row.
        answer: The person's answer that counts for it now, its digest checked; in state FRESH one that was passed
        along. answer_entry: The answer's row, if it is recorded.
        evidence: What its body returned after the call had been given up, if anything.
        may_still_run: Whether the body of an earlier attempt may still be executing: nothing may begin beside it.
        request: What the root run and its sub-agents share.
        now: Milliseconds of the store's clock.
        findings: What is found of earlier work, looked up when it is asked for.
        work: Where the record stands apart: the row of the work, if an operator has freed it.
        orphan: Whether the run that began the work has no row of it any more, so that nobody can be asked there.
    """

    call: Call
    state: State
    record: CallRecord | None
    entry: Entry | None
    answer: Answer | None
    answer_entry: Entry | None
    evidence: Entry | None
    may_still_run: bool
    request: Request
    now: int
    findings: Findings
    work: Entry | None = None
    orphan: bool = False

    @property
    def apart(self) -> bool:
        """Whether the record is this call's own, beside that of the work which it names by its arguments."""
        return self.entry is not None and self.entry.key != self.call.record_key


@dataclass(frozen=True, slots=True)
class Ended:
    """How the body of a call ended, for finishers.

    Attributes:
        succeeded: Whether it returned.
        output: What, in the codec's form.
        version: Version of the batch that claimed the call; 0 where no claim is known, as where a doubt is settled.
    """

    succeeded: bool
    output: JsonValue
    version: int = 0


Finish: TypeAlias = Callable[[Ended], Sequence[Op]]
"""Pure: nothing is awaited between a tool's return and its terminal batch."""


@dataclass(frozen=True, slots=True)
class Question:
    """What a person is asked about a call.

    Attributes:
        kind: Why.
        reason: What they read.
        prior: Earlier work that is shown beside the call.
        plain: The reason without that work: what the model reads of a question that was refused.
    """

    kind: QuestionKind
    reason: str
    prior: Mapping[str, JsonValue] | None = None
    plain: str = ""


@dataclass(frozen=True, slots=True)
class Proceed:
    """Go on.

    Attributes:
        claim: Operations for the batch that claims the call.
        finish: What to write with its terminal record.
        incidents: What to note for operators.
    """

    claim: tuple[Op, ...] = ()
    finish: tuple[Finish, ...] = ()
    incidents: tuple[Incident, ...] = ()


@dataclass(frozen=True, slots=True)
class Replay:
    """The call is settled by this record.

    Attributes:
        record: The record.
        blob: Its output where that stands in a blob.
        settles: Whether the record is new and settles a doubt: then it is written.
    """

    record: CallRecord
    blob: bytes | None = None
    settles: bool = False


@dataclass(frozen=True, slots=True)
class Suspend:
    """A person decides; without a question, the one that stands recorded still waits."""

    question: Question | None = None
    incidents: tuple[Incident, ...] = ()


@dataclass(frozen=True, slots=True)
class Deny:
    """The call does not run, now or ever; the model reads the text.

    Attributes:
        text: What the model reads.
        incidents: What to note for operators.
        writes: What goes with the record, for instance the answer that says so.
        by_person: Whether a person decided it, and not a policy.
        question: What they were asked, for the record.
    """

    text: str
    incidents: tuple[Incident, ...] = ()
    writes: tuple[Op, ...] = ()
    by_person: bool = False
    question: Mapping[str, JsonValue] | None = None


@dataclass(frozen=True, slots=True)
class Reflect:
    """The model is asked once to reconsider; `once` claims that this was the time."""

    text: str
    once: Create
    incidents: tuple[Incident, ...] = ()


@dataclass(frozen=True, slots=True)
class Block:
    """The call does not run and the run stops with this error; no record of the call is written."""

    error: GnlError
    incidents: tuple[Incident, ...] = ()


@dataclass(frozen=True, slots=True)
class Wait:
    """Somebody else is at this very work: look again when they are done."""

    key: Key


Verdict: TypeAlias = Proceed | Replay | Suspend | Deny | Reflect | Block | Wait

PROCEED = Proceed()


class Gate(Protocol):
    """One reason why a call may not simply run."""

    name: ClassVar[str]
    states: ClassVar[frozenset[State]]
    """The gate is asked in these states only."""

    async def rule(self, ctx: CallContext) -> Verdict:
        """Rule on one call. May be asked again for the same call, so what it does must be repeatable."""
        ...


BEGINNING = frozenset({State.FRESH, State.ANSWERED, State.RUNNING, State.IN_DOUBT, State.FAILED})
"""States from which a body may yet be begun."""
