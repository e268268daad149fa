"""What may be found of earlier work for one call. A finder finds; it has no verdict to return.

The probabilistic layer enters through `Similar` and nowhere else. By its type it can add a question about a call and do
nothing more: it cannot skip a call, block it, or tell the model that the work was done. The gates that rule on what is
found are small and deterministic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from gnl_core.identity import Identity
from gnl_core.journal.port import Journal, JsonValue, Key, Op

Origin = Literal["exact", "channel", "identity", "rule", "judge"]
"""Which rung found it: equal arguments; a person's equal identity in another run; and of work that looks the same:
equal identity fields, the rule ladder, a judge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """Earlier work that a person is shown beside a call.

    Attributes:
        origin: Which rung found it.
        run_id: The run that did it, or is at it.
        tool_call_id: Our id of the call that did it.
        at: When it was done; where it is under way, when it began. Milliseconds of the store's clock.
        in_flight: Whether it is not known to have ended.
        channel: Where its request came from; '' where that was not told.
        sentence: Its canonical sentence, '' where it was found by equal arguments.
        present: The canonical sentence of the present call.
        score: Cosine of the two sentences, -1 to 1; None where none was computed.
        prior_hash: `args_hash` of its arguments: with that of the present call it names the pair.
        identity_keys: The declared keys it was compared by.
        amounts_differ: Amount fields whose numbers differ.
        traces: Rules that spoke: {'rule', 'class', 'field', 'direction'} each.
        judge: Evidence of the judge that called the pair the same: model, certificate, latency.
    """

    origin: Origin
    run_id: str
    tool_call_id: str
    at: int
    in_flight: bool = False
    channel: str = ""
    sentence: str = ""
    present: str = ""
    score: float | None = None
    prior_hash: str = ""
    identity_keys: tuple[str, ...] = ()
    amounts_differ: tuple[str, ...] = ()
    traces: tuple[Mapping[str, JsonValue], ...] = ()
    judge: Mapping[str, JsonValue] | None = None

    def to_json(self) -> dict[str, JsonValue]:
        """Return what `Interrupt.prior` and the question's own row hold; members without a value are left out."""
        value: dict[str, JsonValue] = {
            "origin": self.origin,
            "run_id": self.run_id,
            "tool_call_id": self.tool_call_id,
            "at": self.at,
        }
        optional: dict[str, JsonValue] = {
            "in_flight": self.in_flight,
            "channel": self.channel,
            "sentence": self.sentence,
            "present": self.present,
            "prior_hash": self.prior_hash,
            "identity_keys": list(self.identity_keys),
            "amounts_differ": list(self.amounts_differ),
            "traces": [dict(trace) for trace in self.traces],
            "judge": dict(self.judge) if self.judge is not None else None,
        }
        value |= {name: member for name, member in optional.items() if member}
        return value if self.score is None else value | {"score": self.score}


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The call that similar work is looked for.

    Attributes:
        journal: The store.
        scope: Where earlier work is looked for: the key that its rows begin with, see `keys.thread_scope`.
        root: Run id of the root run: its judge's budget is the request's.
        fence: Version of the run lock; whoever writes for the call expects it.
        run: Run id of the run that makes the call.
        call: Our id of the call.
        tool: Name of the tool.
        args_hash: `args_hash` of the arguments.
        identity: Its normalised identity; the sentence in it is the only text that leaves this object.
        now: Milliseconds of the store's clock.
        ttl_ms: Age beyond which earlier work counts no more; None: never.
    """

    journal: Journal
    scope: Key
    root: str
    fence: int
    run: str
    call: str
    tool: str
    args_hash: str
    identity: Identity
    now: int
    ttl_ms: int | None = None

    @property
    def identity_keys(self) -> tuple[str, ...]:
        """The declared keys, in the order of declaration."""
        return tuple(self.identity.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """What a finder wants an operator to read; it becomes an incident with the action 'warn'.

    Attributes:
        source: 'semantic-guard' or 'semantic-judge'.
        message: One sentence: names and numbers, no contents of a call.
        detail: Facts for programs.
    """

    source: Literal["semantic-guard", "semantic-judge"]
    message: str
    detail: Mapping[str, JsonValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a finder came to for one call.

    Attributes:
        prior: Work that looks the same and that a person should see; None where there is nothing to ask.
        detail: Facts beside a question, for its incident.
        notices: What operators should read, asked or not.
        counts: What it cost, by name, for the request's counter row: 'guarded', 'embedded', 'embed_hits', 'embed_ms',
            'gray', 'judged', 'judge_hits', 'judge_ms'.
    """

    prior: Prior | None = None
    detail: Mapping[str, JsonValue] = field(default_factory=dict)
    notices: tuple[Notice, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)


class Similar(Protocol):
    """Looks for past work of one scope that looks the same as what a call is about to do.

    Best-effort: whatever fails or takes too long finds nothing, says so in a notice, and the call goes on. Nothing that
    it does may raise, or change what the tool returns.
    """

    def check(self) -> tuple[str, ...]:
        """Return what a caller should read before a run starts. What cannot work was refused when it was made."""
        ...

    def freeze(self) -> dict[str, JsonValue]:
        """Return its settings as JSON: all that can be, without what it holds open."""
        ...

    async def find(self, subject: Subject, *, judge: bool) -> Found:
        """Return what looks alike.

        Args:
            subject: The call.
            judge: Whether a judge may be asked; the decoration of a confirm question never asks one.
        """
        ...

    async def remember(self, subject: Subject) -> tuple[Op, ...]:
        """Return the operations that record the call's work once it has succeeded: only `Create(keep)`, `Put`, `Add`.

        The first success of equal arguments stays as it is; an absent vector may be filled in.
        """
        ...


@dataclass(frozen=True, slots=True)
class Inactive:
    """A finder that a run was started with and that this drive was not given again: nothing is looked for.

    Attributes:
        settings: What was frozen of it.
    """

    settings: Mapping[str, JsonValue]

    def check(self) -> tuple[str, ...]:
        """Say that the layer is off."""
        return (
            "this run was started with a semantic gate, which a journal cannot hold open: pass limits with it again, "
            "or it stays inactive",
        )

    def freeze(self) -> dict[str, JsonValue]:
        """Return the settings as they were frozen."""
        return dict(self.settings)

    async def find(self, subject: Subject, *, judge: bool) -> Found:  # noqa: ARG002 - the protocol's
        """Find nothing."""
        return Found()

    async def remember(self, subject: Subject) -> tuple[Op, ...]:  # noqa: ARG002 - the protocol's
        """Record nothing."""
        return ()
