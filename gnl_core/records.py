"""What stands in the journal's rows: record types, their JSON form, and its format version.

Rows come from disk, so reading them trusts nothing: a row that is no such record is a `StoreCorruptError` that names
its key, and a row of a newer format a `JournalFormatError`. A release writes the format that the one before it reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from gnl_core.errors import JournalFormatError, StoreCorruptError
from gnl_core.journal.port import Entry, JsonValue
from gnl_core.model.messages import ModelResponse, response_from_json, response_to_json

FORMAT = 1
"""Number of the format that this release writes, in the member 'f' of each record."""

CallStatus = Literal[
    "running",  # claimed; the body may have started
    "succeeded",  # done; replayed for ever
    "failed",  # the body raised; `certain` says whether nothing happened for sure
    "in_doubt",  # this process saw the end without learning the outcome (timeout, cancellation)
    "suspended",  # waits for a person
    "denied",  # policy or a person said no
    "reflected",  # the model was asked to reconsider
    "released",  # an operator freed a failed claim: the next call starts afresh
]
QuestionKind = Literal["confirm", "guard", "in_doubt", "taint", "duplicate", "semantic"]
RunStatus = Literal["running", "suspended", "completed", "failed", "canceled"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecord:
    """One tool call.

    Attributes:
        status: Where it stands.
        tool: Name of the tool.
        call: Our id of the call that made the record.
        args: Arguments as the model wrote them.
        digest: `args_hash` of the arguments, or of what `idempotency_key` made of them.
        side_effect: Whether the tool acts on the world.
        attempts: How often the body was begun.
        started_at: When the last attempt was claimed, in ms of the store's clock; 0 in a running record, whose row
            was written at that very time.
        owner: Who claimed the last attempt (`gnl_core.owner.Owner` as JSON).
        fence: Version of the run lock under which it was claimed.
        ttl_ms: How long after the claim a body must be taken for alive.
        output: What the tool returned, in the codec's form; None when it stands in the row's blob.
        in_blob: Whether the output stands in the blob, as JSON text in UTF-8.
        unrepresentable: Why the output could not be stored: path and type.
        error: {'type', 'message', 'detail'} of what the body raised.
        certain: A failed call of which it is certain that nothing happened.
        cause: Why a call is in doubt: 'timeout', 'cancelled', 'not_recorded'.
        ended: Whether the own code of the body of a call in doubt is known to have ended; what it left behind in
            threads has until the claim's time is over.
        question: {'kind', 'attempt', 'reason', 'at', 'prior'} of a suspended call.
        text: What the model reads of a denied or reflected call.
        resolved: Our ids of other calls that this record answered. Read and shown, and part of the format; this release
            writes none.
        mirror_of: Encoded key of the record that this one is a shadow of.
        copied_from: Run id of a fork's source.
        settled_by: Who settled a doubt: 'recover', 'lookup', 'evidence', 'person'.
        run: Run id of the call, in records outside a run's own prefix.
        resource: Person on whose behalf the record was made, in records outside a run's own prefix.
    """

    status: CallStatus
    tool: str
    call: str
    args: Mapping[str, JsonValue]
    digest: str
    side_effect: bool
    attempts: int = 0
    started_at: int = 0
    owner: Mapping[str, JsonValue] | None = None
    fence: int = 0
    ttl_ms: int = 0
    output: JsonValue = None
    in_blob: bool = False
    unrepresentable: str = ""
    error: Mapping[str, JsonValue] | None = None
    certain: bool = False
    cause: str = ""
    ended: bool = False
    question: Mapping[str, JsonValue] | None = None
    text: str = ""
    resolved: tuple[str, ...] = ()
    mirror_of: str = ""
    copied_from: str = ""
    settled_by: str = ""
    run: str = ""
    resource: str = ""

    @property
    def terminal(self) -> bool:
        """Whether the record is replayed for ever."""
        return self.status in ("succeeded", "denied", "reflected") or (self.status == "failed" and self.certain)

    def to_json(self) -> dict[str, JsonValue]:
        """Return the record's JSON form; members at their default are left out."""
        value: dict[str, JsonValue] = {
            "f": FORMAT,
            "status": self.status,
            "tool": self.tool,
            "call": self.call,
            "args": self.args,  # type: ignore[dict-item] # a Mapping that the store writes as an object
            "digest": self.digest,
            "side_effect": self.side_effect,
        }
        for name, default in _OPTIONAL:
            member = getattr(self, name)
            if member != default:
                value[name] = list(member) if isinstance(member, tuple) else member
        return value


_OPTIONAL = tuple(
    (field.name, field.default)
    for field in fields(CallRecord)
    if field.name not in ("status", "tool", "call", "args", "digest", "side_effect")
)
_MOST_ATTEMPTS = 9_999
"""More than any tool may be begun: readers ask for the answers of each attempt, and this number comes from disk."""

_STATUSES = frozenset(CallStatus.__args__)  # type: ignore[attr-defined]
_TYPES: dict[str, type | tuple[type, ...]] = {
    "attempts": int,
    "started_at": int,
    "owner": dict,
    "fence": int,
    "ttl_ms": int,
    "in_blob": bool,
    "unrepresentable": str,
    "error": dict,
    "certain": bool,
    "cause": str,
    "ended": bool,
    "question": dict,
    "text": str,
    "resolved": list,
    "mirror_of": str,
    "copied_from": str,
    "settled_by": str,
    "run": str,
    "resource": str,
}


def read_call(entry: Entry) -> CallRecord:
    """Return the call record of a row.

    Raises:
        StoreCorruptError: The row holds no call record.
        JournalFormatError: It was written by a newer release.
    """
    value = stamped(entry)
    try:
        args = value["args"]
        if not isinstance(args, dict) or value["status"] not in _STATUSES:
            raise ValueError("args or status")
        side_effect = value["side_effect"]
        if not isinstance(side_effect, bool):
            raise TypeError("side_effect")
        optional: dict[str, Any] = {}
        for name, _ in _OPTIONAL:
            if name not in value:
                continue
            member = value[name]
            if name in _TYPES and not isinstance(member, _TYPES[name]):
                raise TypeError(name)
            optional[name] = tuple(map(_str, member)) if name == "resolved" else member
        if not 0 <= optional.get("attempts", 0) <= _MOST_ATTEMPTS:
            raise ValueError("attempts")
        return CallRecord(
            status=value["status"],
            tool=_str(value["tool"]),
            call=_str(value["call"]),
            args=args,
            digest=_str(value["digest"]),
            side_effect=side_effect,
            **optional,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise _corrupt(entry, "call", error) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """One model step: the whole response, and the request as a splice on the step before.

    Attributes:
        response: The answer, with our ids in its tool calls.
        keep: How many messages of the step before the request begins with.
        add: References to the further messages: {'step': n} is the answer of step n, {'call': 's0p1', 'render': 1} the
            tool message made of that call's record, {'msg': hash} a message that stands in a row of its own.
        chain: SHA-256 over the chain of message digests, 64 hex digits.
        system: Digest of the system prompt; '' where there is none.
        tools: Digest of the tools offered.
        settings: Digest of the settings.
        entry: Which of 'generate' and 'stream' recorded it.
        model: 'provider/model' that was asked.
    """

    response: ModelResponse
    keep: int
    add: tuple[Mapping[str, JsonValue], ...]
    chain: str
    system: str
    tools: str
    settings: str
    entry: Literal["generate", "stream"]
    model: str

    def to_json(self) -> dict[str, JsonValue]:
        """Return the record's JSON form."""
        return {
            "f": FORMAT,
            "response": response_to_json(self.response),
            "keep": self.keep,
            "add": [dict(reference) for reference in self.add],
            "chain": self.chain,
            "system": self.system,
            "tools": self.tools,
            "settings": self.settings,
            "entry": self.entry,
            "model": self.model,
        }


def read_step(entry: Entry) -> StepRecord:
    """Return the step record of a row.

    Raises:
        StoreCorruptError: The row holds no step record.
        JournalFormatError: It was written by a newer release.
    """
    value = stamped(entry)
    try:
        mode = value["entry"]
        if mode not in ("generate", "stream"):
            raise ValueError("entry")
        add = value["add"]
        if not isinstance(add, list) or not all(isinstance(reference, dict) for reference in add):
            raise TypeError("add")
        keep = value["keep"]
        if not isinstance(keep, int) or keep < 0:
            raise TypeError("keep")
        return StepRecord(
            response=response_from_json(value["response"]),
            keep=keep,
            add=tuple(add),
            chain=_str(value["chain"]),
            system=_str(value["system"]),
            tools=_str(value["tools"]),
            settings=_str(value["settings"]),
            entry=mode,
            model=_str(value["model"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise _corrupt(entry, "model step", error) from None


def read_provider_id(entry: Entry, call: str) -> str:
    """Return the id that the model's provider gave a call of a step; '' where it gave none, or there is no such call.

    Of the answer, which may be long, it looks at nothing else.

    Args:
        entry: The row of the step.
        call: Our id of the call.

    Raises:
        StoreCorruptError: The row holds no step record.
        JournalFormatError: It was written by a newer release.
    """
    value = stamped(entry)
    try:
        for part in value["response"]["parts"]:
            if part["type"] == "tool_call" and part["id"] == call:
                return _str(part.get("provider_id", ""))
    except (KeyError, TypeError, AttributeError) as error:
        raise _corrupt(entry, "model step", error) from None
    return ""


def stamped(entry: Entry) -> dict[str, Any]:
    """Return a row's object after its format has been checked.

    Raises:
        StoreCorruptError: The row holds no object with a format number.
        JournalFormatError: It was written by a newer release.
    """
    value = entry.value
    number = value.get("f") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise StoreCorruptError(
            f"the row {'/'.join(entry.key)} holds no record; run `gnl doctor`", key="/".join(entry.key)
        )
    if number > FORMAT:
        raise JournalFormatError(
            f"the row {'/'.join(entry.key)} has format {number}, this release reads up to {FORMAT}: "
            "update gnl-semantic",
            key="/".join(entry.key),
            format=number,
        )
    return value


def _corrupt(entry: Entry, what: str, error: Exception) -> StoreCorruptError:
    return StoreCorruptError(
        f"the row {'/'.join(entry.key)} holds no {what} that can be read ({error}); run `gnl doctor`",
        key="/".join(entry.key),
    )


def _str(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value
