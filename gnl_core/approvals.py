"""Questions to a person and their answers.

A question is (run, call, kind, attempt) over the very bytes of the arguments shown; an answer covers that question and
no other. It is spent by the claim that it allows: after a crash another question is open, 'in_doubt'.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from gnl_core.errors import ConfigError
from gnl_core.journal.port import Entry, JsonValue
from gnl_core.records import FORMAT, QuestionKind

MISSING: Any = object()
"""Stands for 'no output given', since None is an output."""

Relation = Literal["different_work", "deliberate_repeat"]
"""What a person knows of a call that they let run although it looked like earlier work."""

_MAX_TIME = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Interrupt:
    """A question that waits for a person.

    Attributes:
        run_id: The run whose call it is: the root run, or a sub-agent's.
        tool_call_id: Our id of the call, 's<step>p<position>'.
        tool_name: Name of the tool.
        args: Arguments that the person is shown.
        args_digest: Their `args_hash`: an answer covers these bytes only.
        kind: Why it is asked.
        attempt: Attempts that had begun when it was asked.
        reason: One sentence for the person.
        asked_at: Milliseconds of the store's clock.
        provider_call_id: The id the model's provider gave the call; '' where it gave none.
        prior: What earlier work the question is about, if any.
    """

    run_id: str
    tool_call_id: str
    tool_name: str
    args: Mapping[str, JsonValue]
    args_digest: str
    kind: QuestionKind
    attempt: int
    reason: str
    asked_at: int
    provider_call_id: str = ""
    prior: Mapping[str, JsonValue] | None = None

    @property
    def question(self) -> str:
        """Its name, unique in the journal: '<run>/<call>/<kind>/<attempt>'."""
        return f"{self.run_id}/{self.tool_call_id}/{self.kind}/{self.attempt}"

    def to_json(self) -> dict[str, JsonValue]:
        """Return the question for programs."""
        return {
            "question": self.question,
            "run_id": self.run_id,
            "tool_call_id": self.tool_call_id,
            "tool_name": self.tool_name,
            "args": dict(self.args),
            "args_digest": self.args_digest,
            "kind": self.kind,
            "attempt": self.attempt,
            "reason": self.reason,
            "asked_at": self.asked_at,
            "provider_call_id": self.provider_call_id,
            "prior": dict(self.prior) if self.prior is not None else None,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """A person's answer as a caller passes it; True and False stand for `Approval(approved=…)`.

    Attributes:
        approved: Whether the call may run (kind 'in_doubt': run again).
        args_digest: `args_hash` of the arguments it covers. Needed where the question is not open yet.
        actor: Who answered.
        reason: Why; the model reads it when the answer is no.
        expires_at: Milliseconds since the epoch after which the answer no longer lets a call run.
        output: For a call in doubt that is not to run again: what it is known to have come to.
        relation: For a call that was shown beside earlier work: whether it is other work, or a repeat on purpose.

    Raises:
        ConfigError: `args_digest`, `actor`, `reason`, `expires_at` or `relation` is of another type, or no time.
    """

    approved: bool
    args_digest: str | None = None
    actor: str | None = None
    reason: str | None = None
    expires_at: int | None = None
    output: Any = MISSING
    relation: Relation | None = None

    def __post_init__(self) -> None:
        # What is recorded must be read again: an answer that cannot be is none, and a person's no would be lost.
        for name in ("args_digest", "actor", "reason"):
            value = getattr(self, name)
            if not isinstance(value, str | None):
                raise ConfigError(f"{name} of an answer is {value!r}, must be a str or None")
        if self.relation not in (None, *get_args(Relation)):
            raise ConfigError(
                f"relation of an answer is {self.relation!r}, must be 'different_work', 'deliberate_repeat' or None"
            )
        value = self.expires_at
        if value is not None and (type(value) is not int or not 0 <= value <= _MAX_TIME):
            shown = "too large" if type(value) is int and value > _MAX_TIME else repr(value)
            raise ConfigError(f"expires_at of an answer is {shown}, must be whole milliseconds since the epoch or None")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A recorded answer."""

    kind: str
    attempt: int
    approved: bool
    args_digest: str
    at: int
    actor: str | None = None
    reason: str | None = None
    expires_at: int | None = None
    output: JsonValue = None
    has_output: bool = False
    relation: Relation | None = None

    def to_json(self) -> dict[str, JsonValue]:
        """Return the record's JSON form."""
        value: dict[str, JsonValue] = {
            "f": FORMAT,
            "kind": self.kind,
            "attempt": self.attempt,
            "approved": self.approved,
            "args_digest": self.args_digest,
            "at": self.at,
        }
        if self.actor is not None:
            value["actor"] = self.actor
        if self.reason is not None:
            value["reason"] = self.reason
        if self.expires_at is not None:
            value["expires_at"] = self.expires_at
        if self.has_output:
            value["output"] = self.output
            value["has_output"] = True
        if self.relation is not None:
            value["relation"] = self.relation
        return value


def read_answer(entry: Entry | None) -> Answer | None:
    """Return a recorded answer. A row that cannot be read is no answer, and never an approval."""
    value = entry.value if entry is not None else None
    if not isinstance(value, dict) or value.get("f") != FORMAT or not isinstance(value.get("approved"), bool):
        return None
    kind, attempt, digest, at = value.get("kind"), value.get("attempt"), value.get("args_digest"), value.get("at")
    relation = value.get("relation")
    actor, reason, expires_at = value.get("actor"), value.get("reason"), value.get("expires_at")
    if (
        not isinstance(kind, str)
        or not isinstance(attempt, int)
        or not isinstance(digest, str)
        or not isinstance(at, int)
        or not isinstance(actor, str | None)
        or not isinstance(reason, str | None)
        or not isinstance(expires_at, int | None)
    ):
        return None
    return Answer(
        kind=kind,
        attempt=attempt,
        approved=value["approved"] is True,
        args_digest=digest,
        at=at,
        actor=actor,
        reason=reason,
        expires_at=expires_at,
        output=value.get("output"),
        has_output=value.get("has_output") is True,
        relation=cast("Relation", relation) if relation in get_args(Relation) else None,
    )
