"""What a comparison of sittings on one set says: rows of a matrix, duels, and the pairs answered differently."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from gnl_reports.model import Bar, Baseline, Flips, Group, Paired, SetInfo, Status
from gnl_semantic.judge.transport import JudgeInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One judge under one prompt.

    Attributes:
        name: One letter, by which the rest of the report calls it.
        source: Name of the transcript.
        status: What the sitting earned, with `reason` for it.
        bars: Both requirements, as in the report of the exam.
        languages: The table by language.
        sitting: Which sitting on this set it was when it began; None where nobody counted.
    """

    name: str
    source: str
    judge: JudgeInfo
    prompt_version: str
    prompt_sha256: str
    finished_at: str
    transcript_sha256: str
    status: Status
    reason: str
    bars: tuple[Bar, ...]
    languages: tuple[Group, ...]
    repeat: Flips | None
    order: Flips | None
    sitting: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Duel:
    """Two rows on the same pairs; the first is the minuend of every difference.

    Attributes:
        recall: SAME among the dup-paraphrase pairs.
        false_alarms: SAME among the near-miss pairs.
        right: Right answers among all pairs.
    """

    first: str
    second: str
    recall: Paired
    false_alarms: Paired
    right: Paired


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """A pair to which not all rows gave one answer; `answers` by the row's name."""

    id: str
    domain: str
    lang: str
    tool_name: str
    a: str
    b: str
    label: str
    expected: str
    answers: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonReport:
    """Sittings on one set.

    Attributes:
        rows: In the order they were named.
        baselines: What needs no model, on the same pairs.
        duels: Every two rows.
        disagreements: In the order of the set.
    """

    fixtures: SetInfo
    rows: tuple[Row, ...]
    baselines: tuple[Baseline, ...]
    duels: tuple[Duel, ...]
    disagreements: tuple[Disagreement, ...]
    library_version: str


def comparison_to_json(report: ComparisonReport) -> dict[str, object]:
    """Return the comparison as JSON-representable values, field names as in Python."""
    return asdict(report)
