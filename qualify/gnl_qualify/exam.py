"""The exam: its order is `sit_exam`, from top to bottom."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from gnl_fixtures import FixtureSet
from gnl_qualify.errors import TranscriptMismatchError
from gnl_qualify.evaluation import questions_for, report_of
from gnl_qualify.issue import issue_certificate
from gnl_qualify.limits import MAX_VALID_DAYS
from gnl_qualify.looks import sitting_number
from gnl_qualify.plan import Question
from gnl_qualify.sample import limited
from gnl_qualify.transcript import MAX_ANSWER, Answer, Header, TranscriptWriter, read_transcript
from gnl_reports.model import ExamReport
from gnl_semantic.errors import JudgeConfigError, JudgeError, JudgeTimeoutError
from gnl_semantic.judge.certificate import Certificate
from gnl_semantic.judge.prompt import PROMPT_VERSION, PROMPTS
from gnl_semantic.judge.transport import JudgeTransport, Reply, within
from gnl_semantic.judge.verdict import PARSER_VERSION, parse_verdict
from gnl_semantic.ladder import RULESET_VERSION

_log = logging.getLogger(__name__)

Tick = Callable[[Answer], None]
"""Called after each answer has been written."""

_NO_WARM_UP = ("builtin:", "recorded:")
"""Judges whose first call takes no longer than the others."""


_WARM_UP_CALLS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How an exam is sat.

    Attributes:
        seed: Decides order and samples.
        limit: Put a stratified sample of so many pairs; None puts all.
        concurrency: Calls in flight, at least 1.
        timeout_s: Seconds one call may take.
        repeat_sample: Pairs asked again.
        repeats: How often each of them is asked again; 0 switches it off.
        order_sample: Pairs put with their records in reverse order; 0 switches it off.
        prompt_version: A version of `PROMPTS`.
        valid_days: Days to the certificate's expiry; None writes none.
        command: The command line as the report names it.

    Raises:
        ValueError: A number is out of its range.
    """

    seed: int = 1
    limit: int | None = None
    concurrency: int = 4
    timeout_s: float = 30.0
    repeat_sample: int = 30
    repeats: int = 1
    order_sample: int = 30
    prompt_version: str = PROMPT_VERSION
    valid_days: int | None = None
    command: str = ""

    def __post_init__(self) -> None:
        if self.concurrency < 1 or not self.timeout_s > 0 or (self.limit is not None and self.limit < 1):
            raise ValueError("concurrency and limit must be at least 1, timeout_s above 0")
        if min(self.repeat_sample, self.repeats, self.order_sample) < 0:
            raise ValueError("repeat_sample, repeats and order_sample must be at least 0")
        if self.valid_days is not None and not 1 <= self.valid_days <= MAX_VALID_DAYS:
            raise ValueError(f"valid_days must lie in 1..{MAX_VALID_DAYS}")


@dataclass(frozen=True, slots=True)
class Sitting:
    """What an exam gave: a report, and the certificate where it was passed."""

    report: ExamReport
    certificate: Certificate | None


async def sit_exam(
    judge: JudgeTransport,
    fixtures: FixtureSet,
    settings: Settings,
    *,
    transcript: Path,
    resume: bool = False,
    progress: Callable[[int, int], Tick] | None = None,
) -> Sitting:
    """Put the pairs to the judge, blind, and return what they show.

    One attempt a question, as at run time. The judge is closed at the end. A cancelled exam leaves every answer so far
    in the transcript.

    Args:
        judge: Whom to ask.
        fixtures: The whole set; `settings.limit` cuts it.
        settings: How.
        transcript: Where the answers are written as they come.
        resume: Go on with an exam that was broken off.
        progress: Given the questions in all and those answered already, returns what is called after each answer.

    Raises:
        PairUnusableError: A value of a pair identifies no job.
        TranscriptError: The transcript cannot be written, or does not belong to this exam.
        JudgeConfigError: There is no such prompt version.
    """
    try:
        asked = _header(judge, fixtures, settings, transcript.parent)
        paper, questions = questions_for(asked, fixtures)
        with (TranscriptWriter.resume if resume else TranscriptWriter.start)(transcript, asked) as writer:
            open_questions = _still_open(questions, writer, transcript)
            tick = progress(len(questions), len(questions) - len(open_questions)) if progress else None
            if open_questions and not judge.info.spec.startswith(_NO_WARM_UP):
                await _warm_up(judge, settings)
            await _put_all(judge, open_questions, settings, writer, tick)
            writer.finish(_now())
        sat = read_transcript(transcript)
        report = report_of(
            sat.header,
            sat.answers,
            paper,
            finished_at=sat.finished_at or _now(),
            transcript_sha256=sat.sha256,
        )
        passed = report.status != "failed"
        return Sitting(report, issue_certificate(report, valid_days=settings.valid_days) if passed else None)
    finally:
        await judge.aclose()


def _header(judge: JudgeTransport, fixtures: FixtureSet, settings: Settings, folder: Path) -> Header:
    if settings.prompt_version not in PROMPTS:
        raise JudgeConfigError(f"there is no prompt version '{settings.prompt_version}'; known: {', '.join(PROMPTS)}")
    put = limited(fixtures, settings.limit, seed=settings.seed)
    cut = len(put.pairs) < len(fixtures.pairs)
    return Header(
        set_id=put.set_id,
        set_name=_kept(put.name),
        set_private=put.private,
        sampled_from=fixtures.set_id if cut else None,
        limit=settings.limit if cut else None,
        seed=settings.seed,
        judge_model_id=_kept(judge.info.model_id),
        judge_spec=_kept(judge.info.spec),
        judge_engine=judge.info.engine,
        judge_parameters=dict(judge.info.parameters),
        prompt_version=settings.prompt_version,
        prompt_sha256=PROMPTS[settings.prompt_version].sha256,
        parser_version=PARSER_VERSION,
        ruleset_version=RULESET_VERSION,
        library_version=version("gnl-semantic"),
        timeout_s=settings.timeout_s,
        concurrency=settings.concurrency,
        repeat_sample=settings.repeat_sample,
        repeats=settings.repeats,
        order_sample=settings.order_sample,
        command=_kept(settings.command),
        started_at=_now(),
        sitting=sitting_number(fixtures.set_id, folder=folder, private=put.private),
    )


def _still_open(questions: Iterable[Question], writer: TranscriptWriter, path: Path) -> list[Question]:
    """Return the questions without an answer, once the answers that stand are known to be to these questions."""
    asked = {question.id: question for question in questions}
    for answer in writer.answers.values():
        question = asked.get(answer.id)
        if question is None or question.prompt_sha256 != answer.prompt_sha256:
            raise TranscriptMismatchError(
                f"{path}: item {answer.item}, round {answer.round} {answer.repeat} was asked in other words, by "
                "another release or for another set: name a new file with --transcript"
            )
    still_open = [question for question in asked.values() if question.id not in writer.answers]
    if still_open and writer.finished:
        raise TranscriptMismatchError(
            f"{path}: ends as if it were whole, but {len(still_open)} of {len(asked)} answers are missing: "
            "name a new file with --transcript"
        )
    return still_open


async def _warm_up(judge: JudgeTransport, settings: Settings) -> None:
    """Let the model load and read its prefix before a clock counts, on records that are no pair of any set.

    A transport may end a call at the limit, so a cold model is asked until it answers once, or has had ten limits.
    """
    prompt = PROMPTS[settings.prompt_version]
    user = prompt.render("warmUp", "warmUp: one", "warmUp: two")
    for _ in range(_WARM_UP_CALLS):
        try:
            await within(settings.timeout_s, judge.complete(prompt.system, user), judge=judge.info.model_id)
        except JudgeTimeoutError:
            continue
        except Exception as error:
            # Whatever is wrong will show, counted, in the exam itself.
            _log.info("the throw-away call failed: %s", error)
        return


async def _put_all(
    judge: JudgeTransport,
    questions: Iterable[Question],
    settings: Settings,
    writer: TranscriptWriter,
    tick: Tick | None,
) -> None:
    """Ask all questions in order, `settings.concurrency` of them in flight."""
    waiting = iter(questions)

    async def candidate() -> None:
        for question in waiting:
            answer = await _put(judge, question, settings)
            writer.add(answer)
            if tick is not None:
                tick(answer)

    try:
        async with asyncio.TaskGroup() as room:
            for _ in range(settings.concurrency):
                room.create_task(candidate())
    except ExceptionGroup as group:
        # A judge's faults are answers, so that what comes here is ours: one fault, as its caller knows it.
        raise group.exceptions[0] from None


async def _put(judge: JudgeTransport, question: Question, settings: Settings) -> Answer:
    system = PROMPTS[settings.prompt_version].system
    reply = Reply("")
    text: str | None = None
    fault: Exception | None = None
    started = time.perf_counter()
    try:
        reply = await within(settings.timeout_s, judge.complete(system, question.user), judge=judge.info.model_id)
        text = _kept(reply.text)
    except Exception as error:  # a judge is foreign code: its faults are figures of the exam, not ours
        fault = error
    latency_ms = round((time.perf_counter() - started) * 1000, 3)
    return Answer(
        item=question.id.item,
        round=question.id.round,
        repeat=question.id.repeat,
        prompt_sha256=question.prompt_sha256,
        text=text,
        verdict=None if text is None else parse_verdict(text),
        error=None if fault is None else (fault.code if isinstance(fault, JudgeError) else JudgeError.code),
        message=None if fault is None else _kept(str(fault) or type(fault).__name__)[:300],
        latency_ms=latency_ms,
        tokens_in=reply.tokens_in,
        tokens_out=reply.tokens_out,
    )


def _kept(text: str) -> str:
    """Return a stranger's text as UTF-8 can hold it (a file's name may not be), cut where it is endless."""
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= MAX_ANSWER else text[:MAX_ANSWER] + " … (cut)"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
