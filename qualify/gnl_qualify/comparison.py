"""Several sittings on one set, held against each other pair by pair."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import combinations
from pathlib import Path
from string import ascii_uppercase

from gnl_fixtures import FixtureSet, Pair
from gnl_qualify.baselines import baselines_of
from gnl_qualify.errors import TranscriptError, TranscriptMismatchError
from gnl_qualify.evaluation import questions_for, report_of
from gnl_qualify.paired import paired
from gnl_qualify.plan import QuestionId
from gnl_qualify.scoring import FALSE_ALARM_LABEL, RECALL_LABEL, Outcome, expected, outcome_of
from gnl_qualify.transcript import Transcript, read_transcript
from gnl_qualify.verify import shipped_set, transcript_faults
from gnl_reports.comparison_model import ComparisonReport, Disagreement, Duel, Row
from gnl_reports.model import ExamReport

MOST = len(ascii_uppercase)
"""Transcripts in one comparison: each is called by a letter."""


@dataclass(frozen=True, slots=True)
class _Sitting:
    """One transcript, marked: its report, and its outcomes by the id of the pair."""

    path: Path
    transcript: Transcript
    report: ExamReport
    pairs: tuple[Pair, ...]
    outcomes: dict[str, Outcome]


def compare_transcripts(paths: Sequence[Path], fixtures: FixtureSet | None = None) -> ComparisonReport:
    """Return the comparison of finished transcripts of one set.

    Args:
        paths: 2 to `MOST` transcripts; the same pairs may stand in another order.
        fixtures: The whole set that was put; None finds a shipped set by the first transcript's set id.

    Raises:
        TranscriptMismatchError: They are not of the same pairs, or one is named twice.
        TranscriptError: One is no transcript, unfinished, or does not follow from its questions.
        ValueError: Fewer than two, or too many.
    """
    if not 2 <= len(paths) <= MOST:
        raise ValueError(f"2 to {MOST} transcripts can be compared, not {len(paths)}")
    transcripts = [(path, read_transcript(path)) for path in paths]
    _check(transcripts)
    path, first = transcripts[0]
    whole = fixtures or shipped_set(first.header, path)
    sittings = [_marked(path, transcript, whole) for path, transcript in transcripts]
    # The order of the set, whatever order each exam had.
    order = {pair.id: place for place, pair in enumerate(whole.pairs)}
    pairs = sorted(sittings[0].pairs, key=lambda pair: order[pair.id])
    rows = tuple(_row(name, sitting) for name, sitting in zip(ascii_uppercase, sittings, strict=False))
    names = [row.name for row in rows]
    return ComparisonReport(
        fixtures=sittings[0].report.fixtures,
        rows=rows,
        baselines=baselines_of(pairs),
        duels=tuple(
            _duel(pairs, one, other) for one, other in combinations(list(zip(names, sittings, strict=True)), 2)
        ),
        disagreements=tuple(_disagreements(pairs, names, sittings)),
        library_version=version("gnl-semantic"),
    )


def _check(transcripts: Sequence[tuple[Path, Transcript]]) -> None:
    path, first = transcripts[0]
    seen: dict[str, Path] = {}
    for other, transcript in transcripts:
        if transcript.finished_at is None:
            raise TranscriptError(f"{other}: holds an exam that was broken off: finish it with --resume first")
        if transcript.header.set_id != first.header.set_id:
            raise TranscriptMismatchError(
                f"{path} is of the set '{first.header.set_name}' ({first.header.set_id}), {other} of the set "
                f"'{transcript.header.set_name}' ({transcript.header.set_id}): only sittings on the same pairs can be "
                "compared",
                differs=["set"],
            )
        if transcript.sha256 in seen:
            raise TranscriptMismatchError(f"{other}: is the same sitting as {seen[transcript.sha256]}: name it once")
        seen[transcript.sha256] = other


def _marked(path: Path, transcript: Transcript, whole: FixtureSet) -> _Sitting:
    faults = transcript_faults(transcript, whole, path)
    if faults:
        more = f" (and {len(faults) - 1} more faults)" if len(faults) > 1 else ""
        raise TranscriptError(f"{path}: cannot be compared: {faults[0]}{more}")
    header = transcript.header
    paper, _ = questions_for(header, whole)
    report = report_of(
        header,
        transcript.answers,
        paper,
        finished_at=transcript.finished_at or "",
        transcript_sha256=transcript.sha256,
    )
    outcomes = {
        pair.id: outcome_of(transcript.answers[QuestionId(item, "main", 0)]) for item, pair in paper.key.items()
    }
    return _Sitting(path, transcript, report, tuple(paper.key.values()), outcomes)


def _row(name: str, sitting: _Sitting) -> Row:
    report, origin = sitting.report, sitting.report.provenance
    return Row(
        name=name,
        source=sitting.path.name,
        judge=report.judge,
        prompt_version=origin.prompt_version,
        prompt_sha256=origin.prompt_sha256,
        finished_at=origin.finished_at,
        transcript_sha256=sitting.transcript.sha256,
        status=report.status,
        reason=report.reasons[0],
        bars=report.bars,
        languages=report.groups["language"],
        repeat=report.repeat,
        order=report.order,
        sitting=report.fixtures.sitting,
    )


def _duel(pairs: Sequence[Pair], one: tuple[str, _Sitting], other: tuple[str, _Sitting]) -> Duel:
    (first, left), (second, right) = one, other

    def same(label: str, sitting: _Sitting) -> list[bool]:
        return [sitting.outcomes[pair.id] == "same" for pair in pairs if pair.label == label]

    def hits(sitting: _Sitting) -> list[bool]:
        return [sitting.outcomes[pair.id] == expected(pair).value for pair in pairs]

    return Duel(
        first=first,
        second=second,
        recall=paired(same(RECALL_LABEL, left), same(RECALL_LABEL, right)),
        false_alarms=paired(same(FALSE_ALARM_LABEL, left), same(FALSE_ALARM_LABEL, right)),
        right=paired(hits(left), hits(right)),
    )


def _disagreements(pairs: Sequence[Pair], names: Sequence[str], sittings: Sequence[_Sitting]) -> list[Disagreement]:
    found = []
    for pair in pairs:
        answers = {name: sitting.outcomes[pair.id] for name, sitting in zip(names, sittings, strict=True)}
        if len(set(answers.values())) > 1:
            found.append(
                Disagreement(
                    id=pair.id,
                    domain=pair.domain,
                    lang=pair.lang,
                    tool_name=pair.tool_name,
                    a=pair.a,
                    b=pair.b,
                    label=pair.label,
                    expected=expected(pair).value,
                    answers=answers,
                )
            )
    return found
