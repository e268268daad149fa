"""What is counted of live questions: the records that `read_telemetry` returns, and their JSON form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Final, Literal

from gnl_core.approvals import Relation
from gnl_core.journal.port import JsonValue
from gnl_core.prior import Origin
from gnl_semantic.rate import Rate
from gnl_semantic.telemetry.rates import rate_json, wilson

Asker = Literal["gate", "confirm", "guard"]
"""Who put the question: a gate that stopped the call for it; or a tool that asks before every call, or the caller's
guard, that would have asked anyway and showed the earlier work beside."""

Decision = Literal["approved", "denied", "pending"]

Unit = Literal["day", "week"]


def _plain(record: object) -> dict[str, JsonValue]:
    """Return the members of a record that holds nothing but numbers, texts and mappings of them."""
    members = {one.name: getattr(record, one.name) for one in fields(record)}  # type: ignore[arg-type] # a dataclass
    return {name: dict(value) if isinstance(value, Mapping) else value for name, value in members.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Decisions:
    """What became of some questions.

    Attributes:
        approved: A person let the call run.
        denied: A person refused it: the same job again.
        pending: Nobody has answered.
        different_work: Approved calls that the person called other work.
        deliberate_repeat: Approved calls that the person called a repeat on purpose.
    """

    approved: int = 0
    denied: int = 0
    pending: int = 0
    different_work: int = 0
    deliberate_repeat: int = 0

    @property
    def asked(self) -> int:
        """All questions."""
        return self.approved + self.denied + self.pending

    @property
    def decided(self) -> int:
        """Questions that a person has answered."""
        return self.approved + self.denied

    @property
    def unsaid(self) -> int:
        """Approved calls of which nobody said why."""
        return self.approved - self.different_work - self.deliberate_repeat

    @property
    def precision(self) -> Rate:
        """The share of answered questions where the person refused the call: precision@suspend."""
        return wilson(self.denied, self.decided)

    def to_json(self) -> dict[str, JsonValue]:
        """Return the counts for programs."""
        return {
            "suspend": self.asked,
            "approved": self.approved,
            "denied": self.denied,
            "pending": self.pending,
            "different_work": self.different_work,
            "deliberate_repeat": self.deliberate_repeat,
            "unsaid": self.unsaid,
            "rate": rate_json(self.precision),
        }


NO_DECISIONS: Final = Decisions()


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRow:
    """Incidents and questions of one tool.

    Attributes:
        tool: Its name.
        suspend: Incidents that were a question.
        warn: All others.
        decisions: What became of the questions.
    """

    tool: str
    suspend: int
    warn: int
    decisions: Decisions

    def to_json(self) -> dict[str, JsonValue]:
        """Return the row for programs."""
        return {
            "tool": self.tool,
            "suspend": self.suspend,
            "warn": self.warn,
            "decisions": self.decisions.to_json(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclarationRow:
    """Questions that rested on one declaration.

    Attributes:
        tool: Name of the tool.
        keys: The declared keys, in their order; never empty.
        decisions: What became of the questions.
    """

    tool: str
    keys: tuple[str, ...]
    decisions: Decisions

    def to_json(self) -> dict[str, JsonValue]:
        """Return the row for programs."""
        return {"tool": self.tool, "keys": list(self.keys), **self.decisions.to_json()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Exact:
    """Repeats with equal arguments: found for certain, and no part of precision@suspend.

    Attributes:
        by_action: Incidents by what was done: 'suspend', 'warn', 'reflect', 'block', 'skip'.
        decisions: What became of those that were a question.
    """

    by_action: Mapping[str, int] = field(default_factory=dict)
    decisions: Decisions = NO_DECISIONS

    def to_json(self) -> dict[str, JsonValue]:
        """Return the counts for programs."""
        return {"by_action": dict(self.by_action), "decisions": self.decisions.to_json()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """What the candidate scans of calls that were not asked about came to.

    Attributes:
        calls: Calls whose scan left an incident.
        dropped_identity: Candidates whose identity differs and that no rule settled. It counts the gray candidates from
            the other side: never add it to `gray_calls`.
        dropped_by_rule: Candidates that a rule held apart.
        dropped_discriminator: Candidates whose discriminator differs.
        dropped_stamp: Candidates recorded under another embedder.
        gray_calls: Calls, not candidates, that left something that only a judge could settle.
    """

    calls: int = 0
    dropped_identity: int = 0
    dropped_by_rule: int = 0
    dropped_discriminator: int = 0
    dropped_stamp: int = 0
    gray_calls: int = 0

    def to_json(self) -> dict[str, JsonValue]:
        """Return the counters for programs."""
        return _plain(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeTally:
    """What the judge was asked and said.

    Attributes:
        same: 'Same' verdicts: each became a question.
        different: 'Different' verdicts.
        unsure: 'Unsure' verdicts.
        skipped: Calls that got no verdict, by cause.
        stale_replaced: Verdicts of another judge, prompt or ruleset that were asked for again.
        cached: Verdicts that cost no call.
        latency_p50: Median of the calls' times in milliseconds, to three digits; None without a call.
        latency_p95: Their 95th percentile.
        timed: Calls that the two stand on.
    """

    same: int = 0
    different: int = 0
    unsure: int = 0
    skipped: Mapping[str, int] = field(default_factory=dict)
    stale_replaced: int = 0
    cached: int = 0
    latency_p50: float | None = None
    latency_p95: float | None = None
    timed: int = 0

    @property
    def verdicts(self) -> int:
        """All verdicts, cached ones too."""
        return self.same + self.different + self.unsure

    @property
    def asked(self) -> bool:
        """Whether it was ever turned to."""
        return bool(self.verdicts or self.skipped)

    def to_json(self) -> dict[str, JsonValue]:
        """Return the counts for programs."""
        return _plain(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """Questions of one day or week.

    Attributes:
        start: First day, 'YYYY-MM-DD', UTC.
        identity: Questions found by equal identity fields, those of another channel among them.
        channel: Those of them found in another run of the person.
        rule: Questions found by a rule.
        judge: Questions that a judge's verdict raised.
        decisions: What became of all of them.
    """

    start: str
    identity: int
    channel: int
    rule: int
    judge: int
    decisions: Decisions

    @property
    def judge_share(self) -> Rate:
        """The judge's share of the questions."""
        return wilson(self.judge, self.identity + self.rule + self.judge)

    def to_json(self) -> dict[str, JsonValue]:
        """Return the bucket for programs."""
        return {
            "start": self.start,
            "identity": self.identity,
            "channel": self.channel,
            "rule": self.rule,
            "judge": self.judge,
            "judge_share": rate_json(self.judge_share),
            "decisions": self.decisions.to_json(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Times when the layer looked at nothing.

    Attributes:
        embedder_outages: Outages of the embedder that were noted.
        no_scan: Calls whose earlier work could not be looked at.
        unusable: Calls whose declared keys identify nothing, by 'tool: cause'.
        build_failed: Calls whose describe() raised, by 'tool: error'.
        recent: (milliseconds of the store's clock, tool, what) of the newest 20.
    """

    embedder_outages: int = 0
    no_scan: int = 0
    unusable: Mapping[str, int] = field(default_factory=dict)
    build_failed: Mapping[str, int] = field(default_factory=dict)
    recent: tuple[tuple[int, str, str], ...] = ()

    @property
    def any(self) -> bool:
        """Whether there was one."""
        return bool(self.recent)

    def to_json(self) -> dict[str, JsonValue]:
        """Return it for programs."""
        recent: list[JsonValue] = [{"at": at, "tool": tool, "what": what} for at, tool, what in self.recent]
        return {**_plain(self), "recent": recent}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One configuration of the gate, as runs froze it.

    Attributes:
        settings: What was frozen of the finder.
        runs: Runs that began with it.
        newest: When the newest of them began, in milliseconds of the store's clock.
    """

    settings: Mapping[str, JsonValue]
    runs: int
    newest: int

    @property
    def rules(self) -> bool:
        """Whether the rule ladder is on."""
        return self.settings.get("rules") not in (None, False)

    @property
    def judge(self) -> bool:
        """Whether there is a judge."""
        return self.settings.get("judge") is not None

    def to_json(self) -> dict[str, JsonValue]:
        """Return it for programs."""
        return _plain(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFigures:
    """What the runs' own counters say, and what they were configured with.

    Attributes:
        runs: Root runs.
        with_gate: Those that began with a semantic gate.
        counts: Sums of the runs' counters: 'guarded', 'embedded', 'embed_hits', 'embed_ms', 'gray', 'judged',
            'judge_hits', 'judge_ms'.
        settings: The configurations, the one of the newest run first.
        more_settings: Runs whose configuration is not listed, since there are too many different ones.
    """

    runs: int = 0
    with_gate: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    settings: tuple[Settings, ...] = ()
    more_settings: int = 0

    def count(self, name: str) -> int:
        """Return one sum, 0 where nothing was counted."""
        return self.counts.get(name, 0)

    def share(self, name: str) -> Rate:
        """Return a counter of calls as its share of the guarded calls; more than all of them count as all."""
        guarded = self.count("guarded")
        return wilson(min(self.count(name), guarded), guarded)

    def to_json(self) -> dict[str, JsonValue]:
        """Return it for programs."""
        return {
            "runs": self.runs,
            "with_gate": self.with_gate,
            **{name: self.count(name) for name in COUNTS},
            "judged_per_guarded": rate_json(self.share("judged")),
            "gray_per_guarded": rate_json(self.share("gray")),
            "settings": [one.to_json() for one in self.settings],
            "more_settings": self.more_settings,
        }


COUNTS: Final = ("guarded", "embedded", "embed_hits", "embed_ms", "gray", "judged", "judge_hits", "judge_ms")
"""Members of a run's counter row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One question that showed earlier work beside a call.

    Attributes:
        run_id: The run whose call it is.
        call: Our id of the call.
        kind: Kind of the question: 'semantic', 'duplicate' or 'confirm'.
        attempt: Attempts that had begun when it was asked.
        at: When it was asked, in milliseconds of the store's clock.
        tool: Name of the tool.
        origin: Which rung found the earlier work.
        asked_by: Who put it.
        decision: What a person said.
        relation: What they said of the pair, where they let the call run.
        identity_keys: The declared keys that were compared.
        sentence: What the earlier work was; '' where the row says nothing of it.
        present: What the call is about to do; likewise.
    """

    run_id: str
    call: str
    kind: str
    attempt: int
    at: int
    tool: str
    origin: Origin
    asked_by: Asker
    decision: Decision
    relation: Relation | None = None
    identity_keys: tuple[str, ...] = ()
    sentence: str = ""
    present: str = ""

    @property
    def question(self) -> str:
        """Its name: '<run>/<call>/<kind>/<attempt>'."""
        return f"{self.run_id}/{self.call}/{self.kind}/{self.attempt}"

    def to_json(self, now: int) -> dict[str, JsonValue]:
        """Return the question for programs.

        Args:
            now: Milliseconds of the store's clock, for its age.
        """
        return {
            "question": self.question,
            **_plain(self),
            "identity_keys": list(self.identity_keys),
            "age_ms": max(0, now - self.at),
        }
