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
class Clustered:
    """A share k / n whose n trials come in `clusters`, with a two-sided 95 % interval from a bootstrap of clusters.

    Attributes:
        low: Lower end of the interval, None where resampling clusters cannot show one.
        high: Upper end, likewise.
    """

    k: int
    n: int
    clusters: int
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """Two answerers on the same n pairs: how often each says what is counted, and the difference of their shares.

    Attributes:
        both: Pairs that both count; with the next three the fourfold table.
        difference: Share of the first less that of the second, None where n is 0.
        low: Lower end of the difference's two-sided 95 % interval.
        high: Upper end.
        p: Exact two-sided p value of McNemar's test.
    """

    n: int
    both: int
    first_only: int
    second_only: int
    neither: int
    difference: float | None
    low: float
    high: float
    p: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Chance:
    """How likely a judge of one true rate clears a bar: by the measured share, and by the one-sided bound too."""

    true: float
    provisional: float
    certified: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What n pairs of one label can show of one bar, if all are answered.

    Attributes:
        least_provisional: Fewest pairs for 'provisional'.
        least_certified: Fewest pairs for 'certified', by a judge without a fault.
        provisional: SAME answers that n pairs ask for (recall) or allow (false alarms); None where n is too small.
        certified: The same for 'certified'.
        chances: For a few true rates.
    """

    name: str
    label: str
    direction: Literal["at-least", "at-most"]
    limit: float
    n: int
    least_provisional: int
    least_certified: int
    provisional: int | None
    certified: int | None
    chances: tuple[Chance, ...]

    @property
    def sentence(self) -> str:
        """What a set of this size can and cannot prove, in words."""
        word = "at least" if self.direction == "at-least" else "at most"
        head = f"{self.name}: {self.n} {self.label} pairs"
        needs = f"'provisional' needs {self.least_provisional} or more, 'certified' {self.least_certified} or more"
        if self.provisional is None:
            return f"{head} cannot earn a certificate: {needs}"
        if self.certified is None:
            can = f"{word} {self.provisional} SAME for 'provisional'; they are too few for 'certified' ({needs})"
        else:
            can = f"{word} {self.provisional} SAME for 'provisional', {word} {self.certified} for 'certified' ({needs})"
        at_bar = next(chance for chance in self.chances if chance.true == self.limit)
        return (
            f"{head}: {can}; a judge whose true rate is just {self.limit:.2f} becomes provisional in "
            f"{100 * at_bar.provisional:.0f} of 100 sittings, certified in {100 * at_bar.certified:.1f}"
        )


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
        by_domain: The rate again, with the interval of a bootstrap by domain: pairs of one domain share words.
    """

    name: str
    rate: Rate
    limit: float
    direction: Literal["at-least", "at-most"]
    bound: float | None
    answered: int
    passed: bool
    certified: bool
    by_domain: Clustered | None = None


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
    """What a judge that needs no model scores on the same pairs.

    Attributes:
        recall_difference: The judge's recall against this one's, pair by pair; the judge is the first.
        false_alarm_difference: The same of the near-misses.
    """

    name: str
    recall: Rate
    false_alarms: Rate
    recall_difference: Paired | None = None
    false_alarm_difference: Paired | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FlippedPair:
    """A pair whose answers were not all the same word; `answers` in the order they were asked for."""

    id: str
    domain: str
    label: str
    answers: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flips:
    """Answers that changed when only `what` changed.

    Attributes:
        what: For instance 'asked again' or 'records in reverse order'.
        pairs: Pairs asked more than once.
        flips: Pairs whose answers were not all the same word.
        runs: Answers to each of these pairs, the first one included.
        agreement: Couples of answers to one pair that agree, of all such couples; a pair is a cluster.
        changed: The pairs that flipped.
    """

    what: str
    pairs: int
    flips: Rate
    runs: int = 2
    agreement: Clustered | None = None
    changed: tuple[FlippedPair, ...] = ()


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
        sitting: Which sitting on this set this one is, as counted when it began; None where nobody counted.
    """

    name: str
    set_id: str
    pairs: int
    by_label: Mapping[str, int]
    by_language: Mapping[str, int]
    private: bool
    sampled_from: str | None
    sittings: int | None
    sitting: int | None = None


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
        capacity: What a set of this size can and cannot prove, by bar.
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
    capacity: tuple[Capacity, ...] = ()


def to_json(report: ExamReport) -> dict[str, object]:
    """Return the report as JSON-representable values, field names as in Python."""
    return asdict(report)
