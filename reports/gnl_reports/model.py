"""What a report says, before anything is drawn: plain values, JSON-representable by `to_json`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Literal

from gnl_semantic.judge.transport import JudgeInfo
from gnl_semantic.rate import Rate

Status = Literal["certified", "provisional", "failed"]
Grouping = Literal["label", "language", "domain", "phenomenon"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One requirement and what was measured against it.

    Attributes:
        name: For instance 'paraphrase recall'.
        rate: The measured rate; its denominator is all pairs put, answered or not.
        limit: The bar.
        direction: 'at-least' or 'at-most'.
        bound: One-sided 95 % Clopper-Pearson bound on the side of the bar; None where nothing was measured. Of an
            'at-most' bar it is taken over the answered pairs alone, so that silence proves nothing.
        answered: Pairs of this bar's label that got a parsed answer.
        passed: Whether the point estimate holds the bar.
        certified: Whether the bound holds it too.
    """

    name: str
    rate: Rate
    limit: float
    direction: Literal["at-least", "at-most"]
    bound: float | None
    answered: int
    passed: bool
    certified: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Answers to a group of pairs, by kind; they add up to the pairs put."""

    same: int = 0
    different: int = 0
    unsure: int = 0
    unparsed: int = 0
    error: int = 0
    timeout: int = 0

    @property
    def put(self) -> int:
        """All pairs of the group."""
        return self.same + self.different + self.unsure + self.unparsed + self.error + self.timeout

    @property
    def answered(self) -> int:
        """Pairs with a parsed answer."""
        return self.same + self.different + self.unsure


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """One row of a table.

    Attributes:
        name: The label, language, domain or phenomenon.
        counts: Answers by kind.
        right: Answers that say what the label expects ('unsure' never does).
        recall: SAME among the dup-paraphrase pairs of the group; None where it has none.
        false_alarms: SAME among the near-miss pairs of the group; None where it has none.
    """

    name: str
    counts: Counts
    right: Rate
    recall: Rate | None
    false_alarms: Rate | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """What a judge that needs no model scores on the same pairs."""

    name: str
    recall: Rate
    false_alarms: Rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Flips:
    """Answers that changed when only `what` changed.

    Attributes:
        what: For instance 'asked again' or 'records in reverse order'.
        pairs: Pairs asked more than once.
        flips: Pairs whose answers were not all the same word.
    """

    what: str
    pairs: int
    flips: Rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Wall time of the answered calls in milliseconds.

    Attributes:
        samples: Every measured call, for the histogram.
        limit: The configured time limit of one call.
    """

    p50: float | None
    p95: float | None
    max: float | None
    limit: float
    samples: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongPair:
    """A pair that was answered against its label, or not at all."""

    id: str
    domain: str
    lang: str
    tool_name: str
    a: str
    b: str
    label: str
    phenomena: tuple[str, ...]
    note: str
    expected: str
    answered: str
    raw: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetInfo:
    """The pairs that were put.

    Attributes:
        name: File stem or shipped name.
        set_id: 16 hex digits.
        pairs: How many were put.
        by_label: Pairs by label.
        by_language: Pairs by language.
        private: A user's own set, not published with this distribution.
        sampled_from: Set id of the whole set where only a sample was put.
        sittings: Sittings of built-in judges recorded for this set in the ledger; None where no ledger is kept.
    """

    name: str
    set_id: str
    pairs: int
    by_label: Mapping[str, int]
    by_language: Mapping[str, int]
    private: bool
    sampled_from: str | None
    sittings: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """How to get this report again."""

    command: str
    seed: int
    started_at: str
    finished_at: str
    library_version: str
    ruleset_version: str
    parser_version: str
    prompt_version: str
    prompt_sha256: str
    prompt_system: str
    transcript_sha256: str | None
    concurrency: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExamReport:
    """One sitting of one judge.

    Attributes:
        status: 'failed', or which of the two certificates the sitting earned.
        reasons: Why, the weightiest first; never empty.
        bars: The requirements.
        groups: Tables by label, language, domain and phenomenon.
        worst_domain: Name of the domain with the lowest share of right answers.
        wrong: Every pair answered against its label.
        tokens_in: Sum over all calls, None where the transport does not tell.
        calls: Calls of the judge in this sitting, repeats and reversed ones included.
    """

    status: Status
    reasons: tuple[str, ...]
    judge: JudgeInfo
    fixtures: SetInfo
    bars: tuple[Bar, ...]
    groups: Mapping[Grouping, tuple[Group, ...]]
    worst_domain: str | None
    baselines: tuple[Baseline, ...]
    repeat: Flips | None
    order: Flips | None
    latency: Latency
    calls: int
    tokens_in: int | None
    tokens_out: int | None
    wrong: tuple[WrongPair, ...]
    provenance: Provenance


def to_json(report: ExamReport) -> dict[str, object]:
    """Return the report as JSON-representable values, field names as in Python."""
    return asdict(report)
