"""A transcript marked with the fixtures' key: the report, recomputed from nothing but these two."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from gnl_fixtures import FixtureSet
from gnl_qualify.baselines import baselines_of
from gnl_qualify.capacity import capacity_of
from gnl_qualify.items import Paper, set_paper
from gnl_qualify.plan import Question, QuestionId, questions_of
from gnl_qualify.sample import limited
from gnl_qualify.scoring import (
    Marked,
    Outcome,
    bars_of,
    diagnose,
    expected,
    flips_of,
    groups_of,
    outcome_of,
    status_of,
    worst,
)
from gnl_qualify.sittings import count_sittings
from gnl_qualify.stats import percentile
from gnl_qualify.transcript import Answer, Header
from gnl_reports.model import ExamReport, Flips, Latency, Provenance, SetInfo, WrongPair
from gnl_semantic.judge.prompt import PROMPTS
from gnl_semantic.judge.transport import JudgeInfo


def questions_for(header: Header, fixtures: FixtureSet) -> tuple[Paper, tuple[Question, ...]]:
    """Return the paper and all questions of the exam that a header describes.

    Args:
        header: Names limit, seed, prompt and samples.
        fixtures: The whole set, before any limit.

    Raises:
        PairUnusableError: A value of a pair identifies no job.
    """
    paper = set_paper(limited(fixtures, header.limit, seed=header.seed), seed=header.seed)
    questions = questions_of(
        paper,
        PROMPTS[header.prompt_version],
        seed=header.seed,
        repeat_sample=header.repeat_sample,
        repeats=header.repeats,
        order_sample=header.order_sample,
    )
    return paper, questions


def report_of(
    header: Header,
    answers: Mapping[QuestionId, Answer],
    paper: Paper,
    *,
    finished_at: str,
    transcript_sha256: str,
) -> ExamReport:
    """Return the report of a sitting.

    Args:
        header: The transcript's first row.
        answers: Every answer; questions without one are not in any figure, so all must be there.
        paper: The items with their key.
        finished_at: ISO time.
        transcript_sha256: Hash of the finished transcript.
    """
    main = [answers[QuestionId(item.id, "main", 0)] for item in paper.items]
    marked: list[Marked] = [(paper.key[answer.item], outcome_of(answer)) for answer in main]
    bars = bars_of(marked)
    faults = [answer for answer in main if answer.error is not None]
    status, reasons = status_of(bars, diagnose(marked, faults))
    groups = groups_of(marked)
    return ExamReport(
        status=status,
        reasons=reasons,
        judge=JudgeInfo(
            model_id=header.judge_model_id,
            spec=header.judge_spec,
            engine=header.judge_engine,
            parameters=header.judge_parameters,
        ),
        fixtures=_set_info(header, paper),
        bars=bars,
        groups=groups,
        worst_domain=worst(groups["domain"]),
        baselines=baselines_of([pair for pair, _ in marked], [outcome == "same" for _, outcome in marked]),
        repeat=_flips("asked again", answers, "repeat", paper),
        order=_flips("records in reverse order", answers, "reversed", paper),
        latency=_latency(answers, header.timeout_s),
        calls=len(answers),
        tokens_in=_sum([answer.tokens_in for answer in answers.values()]),
        tokens_out=_sum([answer.tokens_out for answer in answers.values()]),
        wrong=_wrong(main, marked),
        provenance=Provenance(
            command=header.command,
            seed=header.seed,
            started_at=header.started_at,
            finished_at=finished_at,
            library_version=header.library_version,
            ruleset_version=header.ruleset_version,
            parser_version=header.parser_version,
            prompt_version=header.prompt_version,
            prompt_sha256=header.prompt_sha256,
            prompt_system=PROMPTS[header.prompt_version].system,
            transcript_sha256=transcript_sha256,
            concurrency=header.concurrency,
        ),
        capacity=capacity_of(bars[0].rate.n, bars[1].rate.n),
    )


def _set_info(header: Header, paper: Paper) -> SetInfo:
    pairs = paper.key.values()
    return SetInfo(
        name=header.set_name,
        set_id=header.set_id,
        pairs=len(paper.key),
        by_label=dict(sorted(Counter(pair.label for pair in pairs).items())),
        by_language=dict(sorted(Counter(pair.lang for pair in pairs).items())),
        private=header.set_private,
        sampled_from=header.sampled_from,
        sittings=count_sittings(header.sampled_from or header.set_id, private=header.set_private),
        sitting=header.sitting,
    )


def _flips(what: str, answers: Mapping[QuestionId, Answer], round_: str, paper: Paper) -> Flips | None:
    """Compare the answers of a round with those of the main round to the same items."""
    outcomes: defaultdict[str, list[Outcome]] = defaultdict(list)
    # Sorted, for answers stand in the transcript as they came.
    for question, answer in sorted(answers.items()):
        if question.round == round_:
            outcomes[question.item].append(outcome_of(answer))
    for item, seen in outcomes.items():
        seen.insert(0, outcome_of(answers[QuestionId(item, "main", 0)]))
    return flips_of(what, outcomes, paper.key)


def _latency(answers: Mapping[QuestionId, Answer], limit_s: float) -> Latency:
    samples = [answer.latency_ms for answer in answers.values() if answer.error is None]
    return Latency(
        p50=percentile(samples, 50),
        p95=percentile(samples, 95),
        max=max(samples, default=None),
        limit=limit_s * 1000,
        samples=tuple(samples),
    )


def _sum(tokens: Sequence[int | None]) -> int | None:
    told = [n for n in tokens if n is not None]
    return sum(told) if told else None


def _wrong(main: Sequence[Answer], marked: Sequence[Marked]) -> tuple[WrongPair, ...]:
    return tuple(
        WrongPair(
            id=pair.id,
            domain=pair.domain,
            lang=pair.lang,
            tool_name=pair.tool_name,
            a=pair.a,
            b=pair.b,
            label=pair.label,
            phenomena=pair.phenomena,
            note=pair.note,
            expected=expected(pair).value,
            answered=outcome,
            raw=answer.text if answer.text is not None else f"{answer.error}: {answer.message}",
        )
        for answer, (pair, outcome) in zip(main, marked, strict=True)
        if outcome != expected(pair).value
    )
