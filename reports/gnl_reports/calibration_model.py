"""What a calibration says, before anything is drawn: plain values, one record a row of a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Literal

from gnl_semantic.rate import Rate
from gnl_semantic.threshold import SentenceForm


@dataclass(frozen=True, slots=True, kw_only=True)
class CosineRow:
    """Where the cosines of one label lie; percentiles are linear between neighbours, None of no pairs."""

    form: SentenceForm
    label: str
    n: int
    least: float | None = None
    p05: float | None = None
    median: float | None = None
    mean: float | None = None
    p95: float | None = None
    most: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelRow:
    """The share of one label's pairs whose cosine is at or above a threshold."""

    form: SentenceForm
    label: str
    threshold: float
    passed: Rate


@dataclass(frozen=True, slots=True, kw_only=True)
class BinRow:
    """Pairs of one label with a cosine from `low` up to `high` (the last bin holds its upper edge too)."""

    form: SentenceForm
    label: str
    low: float
    high: float
    pairs: Rate


@dataclass(frozen=True, slots=True, kw_only=True)
class BandRow:
    """How far one label's cosines lie inside another label's band.

    Attributes:
        form: Of the sentence.
        label: Whose pairs are counted.
        other: Whose band is meant.
        low: The other's 5th percentile.
        high: The other's 95th percentile.
        inside: Pairs of `label` with a cosine within; 0.9 where both labels lie alike.
    """

    form: SentenceForm
    label: str
    other: str
    low: float
    high: float
    inside: Rate


@dataclass(frozen=True, slots=True, kw_only=True)
class AreaRow:
    """Area under the ROC curve of the cosine as a sign that a pair is of the first group; 0.5 is chance.

    Area and interval are None where a group has no pairs.
    """

    form: SentenceForm
    first: str
    second: str
    n_first: int
    n_second: int
    area: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RocRow:
    """A point of a ROC curve: at `threshold`, the shares of both groups that pass."""

    form: SentenceForm
    first: str
    second: str
    threshold: float
    first_passed: Rate
    second_passed: Rate


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdRow:
    """The highest threshold that keeps 99 % of the paraphrases of one form of the sentence.

    Attributes:
        form: Of the sentence.
        value: Rounded down to three decimals.
        low: Lower end of the 95 % interval; None where the pairs are too few to have one.
        high: Upper end; None likewise.
        kept: Paraphrases at or above it.
        kept_unseen: Paraphrases kept of each half by the threshold that was fitted to the other half.
        near_miss: Near-misses that it lets through.
        unrelated: Unrelated pairs that it lets through.
        unrelated_p05: 5th percentile of the unrelated pairs' cosines: a threshold below separates nothing.
            None without such pairs.
        separates: Whether it lies above that; None where that is not measured.
        default: Unrelated pairs that the default of unknown embedders, 0.60, lets through.
    """

    form: SentenceForm
    value: float
    low: float | None
    high: float | None
    kept: Rate
    kept_unseen: Rate
    near_miss: Rate
    unrelated: Rate
    unrelated_p05: float | None
    separates: bool | None
    default: Rate


@dataclass(frozen=True, slots=True, kw_only=True)
class CentringRow:
    """Each half of a sample at the threshold (and mean vector) fitted to the other half.

    Attributes:
        form: Of the sentence.
        vectors: 'as they are', or 'minus the mean'.
        kept: Paraphrases kept.
        unrelated: Unrelated pairs let through.
        area: ROC-AUC of paraphrase against unrelated, mean of the halves; None where a half lacks one of the two.
    """

    form: SentenceForm
    vectors: Literal["as they are", "minus the mean"]
    kept: Rate
    unrelated: Rate
    area: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateRow:
    """The candidate search in threads of one length, as the runtime would make it.

    Attributes:
        form: Of the sentence.
        label: Of the repeats that are looked for.
        records: In the thread, the right one included; the others name other jobs.
        same_tool: Mean share of them that belong to the repeat's own tool.
        threshold: Least cosine.
        by_cosine: The right record is among the best by cosine alone.
        candidate: It is a candidate: among these, or in the exact index.
        settled: The ladder asks about it, without a judge.
        other: The ladder asks about another record instead.
        shown: Of the repeats whose right record is a gray candidate and about which nothing was asked: it is the one
            gray pair that a judge would see.
        reached: Asked about by the ladder or shown to a judge: what a judge that is never wrong could reach.
        none: The right record is no candidate.
    """

    form: SentenceForm
    label: str
    records: int
    same_tool: float
    threshold: float
    by_cosine: Rate
    candidate: Rate
    settled: Rate
    other: Rate
    shown: Rate
    reached: Rate
    none: Rate


@dataclass(frozen=True, slots=True, kw_only=True)
class LadderRow:
    """What the rule ladder makes of a group of pairs; the four add up to all of them."""

    group: str
    name: str
    identical: Rate
    matched: Rate
    separated: Rate
    gray: Rate


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainRow:
    """Where the whole chain ends for a group of pairs: one earlier record, one new call.

    Attributes:
        group: For instance 'repeats'.
        outcome: For instance 'asked: identity' or 'missed: below the threshold'.
        asks: Whether a person is asked.
        pairs: That end there.
    """

    group: str
    outcome: str
    asks: bool
    pairs: Rate


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmRow:
    """A way of asking: repeats that are asked about, and questions that it costs about different jobs.

    Attributes:
        arm: 'score alone', 'ladder', 'ladder and this judge', or 'ladder and a judge that is never wrong'.
        threshold: Least cosine.
        recall: Paraphrases asked about.
        alarms: Near-misses and unrelated pairs asked about.
    """

    arm: str
    threshold: float
    recall: Rate
    alarms: Rate


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageRow:
    """Paraphrases of one language ('mixed': each text in another) at the threshold."""

    form: SentenceForm
    language: str
    threshold: float
    least: float
    median: float
    kept: Rate


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedPair:
    """A pair worth reading: `why` names the rule or the cosine that puts it here."""

    id: str
    label: str
    language: str
    tool_name: str
    a: str
    b: str
    why: str
    cosine: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Pairs with one fault; `pairs` holds the first of `total`."""

    total: int
    pairs: tuple[ListedPair, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationReport:
    """A whole calibration.

    Attributes:
        embedder: Stamp of the embedder.
        judge: Model id of the judge, None where none was asked.
        judge_calls: Gray candidates among all pairs: what a judge costs on them, at most one call a new call.
        threshold: That of the chain, of the thread search and of the lists.
        threshold_source: 'profile': measured before, as the runtime would use it; 'here': found by this calibration.
        chain_form: Form of the sentence that the chain used.
        set_name: Name of the set.
        set_id: Its id.
        private: Whether the pairs are the user's own.
        by_label: Pairs by label.
        seed: Of every draw.
        sampled: Pairs whose vectors were kept, for threads and the mean vector.
        ruleset_version: Of the ladder.
        library_version: Of this package.
        warnings: What must be said aloud.
        blind_spots: Repeats in two languages that are no candidates.
        below: All other repeats that are no candidates.
        ladder_wrong: Pairs that the ladder settles against their label.
        centring_better: Form by form, whether a mean vector separates clearly better on pairs it was not fitted to;
            None where there are no unrelated pairs.
    """

    embedder: str
    judge: str | None
    judge_calls: Rate
    threshold: float
    threshold_source: Literal["profile", "here"]
    chain_form: SentenceForm
    set_name: str
    set_id: str
    private: bool
    by_label: Mapping[str, int]
    seed: int
    sampled: int
    ruleset_version: str
    library_version: str
    warnings: tuple[str, ...]
    thresholds: tuple[ThresholdRow, ...]
    cosines: tuple[CosineRow, ...]
    levels: tuple[LevelRow, ...]
    histogram: tuple[BinRow, ...]
    bands: tuple[BandRow, ...]
    areas: tuple[AreaRow, ...]
    roc: tuple[RocRow, ...]
    centring: tuple[CentringRow, ...]
    centring_better: Mapping[SentenceForm, bool | None]
    candidates: tuple[CandidateRow, ...]
    ladder: tuple[LadderRow, ...]
    chain: tuple[ChainRow, ...]
    arms: tuple[ArmRow, ...]
    languages: tuple[LanguageRow, ...]
    blind_spots: Listing
    below: Listing
    ladder_wrong: Listing

    def to_json(self) -> dict[str, object]:
        """Return the report as JSON-representable values."""
        return asdict(self)
