"""What playing conversations recorded: plain data, JSON out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gnl_fixtures.conversations import Label


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A question that a person was asked about a call.

    Attributes:
        kind: Kind of the question, 'duplicate' or 'semantic'.
        origin: Which rung found the earlier work; '' where the question shows none.
        first: The earlier call, '<run>/<call>'.
        score: Cosine of both calls' sentences; None where none was computed.
        rules: Names of the rules that spoke.
        amounts_differ: Amount fields that differ.
    """

    kind: str
    origin: str
    first: str = ""
    score: float | None = None
    rules: tuple[str, ...] = ()
    amounts_differ: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the question for programs."""
        return {
            "kind": self.kind,
            "origin": self.origin,
            "first": self.first,
            "score": self.score,
            "rules": list(self.rules),
            "amounts_differ": list(self.amounts_differ),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedCall:
    """One tool call that a model made.

    Attributes:
        run_id: The run, which is the turn.
        call: Our id of the call.
        tool: Name of the tool as the model wrote it.
        args: Arguments as the model wrote them; None where they are no JSON object.
        args_hash: Their hash; '' where there are none.
        identity: Normalised identity fields; empty where there is no identity.
        label: What the user wanted.
        status: How the call ended.
        executed: How often its tool did it, by the ledger.
        asked: Every question about it, in order.
        notes: What gates wrote for an operator: source, action and detail, without times.
    """

    run_id: str
    call: str
    tool: str
    args: Mapping[str, Any] | None
    args_hash: str
    identity: Mapping[str, str]
    label: Label
    status: str
    executed: int
    asked: tuple[Asked, ...] = ()
    notes: tuple[Mapping[str, Any], ...] = ()

    @property
    def guarded(self) -> bool:
        """Whether the call got as far as the gates: its tool exists, and its arguments fit."""
        return self.status != "failed"

    def to_json(self) -> dict[str, Any]:
        """Return the call for programs."""
        return {
            "run_id": self.run_id,
            "call": self.call,
            "tool": self.tool,
            "args": dict(self.args) if self.args is not None else None,
            "args_hash": self.args_hash,
            "identity": dict(self.identity),
            "label": str(self.label),
            "status": self.status,
            "executed": self.executed,
            "asked": [asked.to_json() for asked in self.asked],
            "notes": [dict(note) for note in self.notes],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedTurn:
    """One turn.

    Attributes:
        number: Place in the conversation, from 1.
        label: What the user wanted.
        calls: What the model called; empty where it only talked.
        counts: What the finder of similar work did in it: 'guarded', 'gray', 'judged', 'judge_hits'.
        fault: Why the turn could not be played to its end; '' where it was.
    """

    number: int
    label: Label
    calls: tuple[PlayedCall, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    fault: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the turn for programs."""
        return {
            "number": self.number,
            "label": str(self.label),
            "calls": [call.to_json() for call in self.calls],
            "counts": dict(self.counts),
            "fault": self.fault,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedConversation:
    """One conversation, as far as it was played.

    Attributes:
        id: Its id.
        turns: Turns played, in order; the last one may have a fault.
        expected: How many turns it has.
        executions: Everything that the tools did in it, by the ledger.
    """

    id: str
    turns: tuple[PlayedTurn, ...]
    expected: int
    executions: int

    @property
    def whole(self) -> bool:
        """Whether every turn was played to its end."""
        return len(self.turns) == self.expected and not any(turn.fault for turn in self.turns)

    def to_json(self) -> dict[str, Any]:
        """Return the conversation for programs."""
        return {
            "id": self.id,
            "whole": self.whole,
            "expected_turns": self.expected,
            "executions": self.executions,
            "turns": [turn.to_json() for turn in self.turns],
        }
