"""Hold a certificate against the transcript it rests on: every number is computed again."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path

from pydantic import ValidationError

from gnl_core.errors import NotCanonicalError
from gnl_fixtures import FixtureSet, load_shipped
from gnl_qualify.errors import TranscriptError
from gnl_qualify.evaluation import questions_for, report_of
from gnl_qualify.issue import stated
from gnl_qualify.limits import MAX_VALID_DAYS
from gnl_qualify.plan import Question
from gnl_qualify.sample import limited
from gnl_qualify.transcript import Header, Transcript, read_transcript
from gnl_semantic.errors import CertificateError, CertificateMissingError, CertificateUnreadableError
from gnl_semantic.judge.certificate import Certificate, check_certificate
from gnl_semantic.judge.prompt import PROMPT_VERSION, PROMPTS
from gnl_semantic.judge.verdict import PARSER_VERSION, parse_verdict
from gnl_semantic.ladder import RULESET_VERSION


def verify_certificate(path: Path, transcript_path: Path, fixtures: FixtureSet | None = None) -> list[str]:
    """Return one line for every field of a certificate that does not follow from its transcript; empty if all do.

    The list also names what is wrong inside the transcript, and the reason for which the runtime would refuse the
    certificate here and now.

    Args:
        path: The certificate.
        transcript_path: The transcript of its exam.
        fixtures: The whole set that was put; None finds a shipped set by the transcript's set id.

    Raises:
        CertificateError: The file has not the shape of a certificate.
        TranscriptError: The file is no transcript, or of a set or prompt that is not at hand.
    """
    certificate, raw = read_unchecked(path)
    transcript = read_transcript(transcript_path)
    header = transcript.header
    _known_prompt(header, transcript_path)
    whole = fixtures or shipped_set(header, transcript_path)
    found = list(_header_faults(header, whole))
    if not found:
        paper, questions = questions_for(header, whole)
        found = list(_answer_faults(transcript, questions))
        if transcript.answers.keys() == {question.id for question in questions}:
            report = report_of(
                header,
                transcript.answers,
                paper,
                finished_at=transcript.finished_at or "",
                transcript_sha256=transcript.sha256,
            )
            found += _differences("", stated(report), raw)
    if certificate.sha256 != certificate.content_sha256():
        found.append("sha256: does not fit the content: the certificate was edited after it was issued")
    found += _expiry_faults(certificate)
    return found or _refusals(certificate)


def read_unchecked(path: Path) -> tuple[Certificate, Mapping[str, object]]:
    """Read a certificate without asking for its content hash: which numbers were edited is the question here."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CertificateMissingError(f"{path}: there is no certificate") from None
    except OSError as error:
        raise CertificateUnreadableError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise CertificateUnreadableError(f"{path}: is no JSON: {error}") from None
    try:
        certificate = Certificate.model_validate(raw)
        certificate.content_sha256()
    except (NotCanonicalError, RecursionError) as error:
        raise CertificateUnreadableError(f"{path}: cannot be hashed: {error}") from None
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in fault["loc"])
        raise CertificateUnreadableError(f"{path}: is no certificate: field '{field}': {fault['msg']}") from None
    return certificate, raw


def transcript_faults(transcript: Transcript, whole: FixtureSet, path: Path) -> list[str]:
    """Return where a transcript is not the whole record of the exam its header describes, a line each.

    Raises:
        TranscriptError: Its prompt is not in this release.
    """
    header = transcript.header
    _known_prompt(header, path)
    return list(_header_faults(header, whole)) or list(_answer_faults(transcript, questions_for(header, whole)[1]))


def _known_prompt(header: Header, path: Path) -> None:
    if header.prompt_version not in PROMPTS:
        raise TranscriptError(f"{path}: prompt version '{header.prompt_version}' is not in this release")


def shipped_set(header: Header, path: Path) -> FixtureSet:
    """Return the shipped set that a transcript names, or that it is a sample of.

    Raises:
        TranscriptError: There is none of that id.
    """
    wanted = header.sampled_from or header.set_id
    for name in ("heldout", "calibration"):
        fixtures = load_shipped(name)
        if fixtures.set_id == wanted:
            return fixtures
    raise TranscriptError(f"{path}: set {wanted} is none of the shipped ones: name its files with --fixtures")


def _header_faults(header: Header, whole: FixtureSet) -> Iterator[str]:
    put = limited(whole, header.limit, seed=header.seed)
    cut = len(put.pairs) < len(whole.pairs)
    stated = {
        "set_id": put.set_id,
        "sampled_from": whole.set_id if cut else None,
        "set_private": whole.private,
    }
    for field, value in stated.items():
        if getattr(header, field) != value:
            yield f"transcript, field {field}: {getattr(header, field)}, the fixtures give {value}"
    released = {
        "prompt_sha256": PROMPTS[header.prompt_version].sha256,
        "parser_version": PARSER_VERSION,
        "ruleset_version": RULESET_VERSION,
    }
    for field, value in released.items():
        if getattr(header, field) != value:
            yield f"transcript, field {field}: {getattr(header, field)}, here {value}: verify with that release"


def _answer_faults(transcript: Transcript, questions: Sequence[Question]) -> Iterator[str]:
    asked = {question.id: question for question in questions}
    for answer in transcript.answers.values():
        where = f"transcript, item {answer.item}, round {answer.round} {answer.repeat}"
        question = asked.get(answer.id)
        if question is None:
            yield f"{where}: this exam did not ask it"
        elif question.prompt_sha256 != answer.prompt_sha256:
            yield f"{where}, field prompt_sha256: is not the hash of the prompt of this item"
        if answer.verdict != (None if answer.text is None else parse_verdict(answer.text)):
            yield f"{where}, field verdict: {answer.verdict or 'none'} is not what the text says"
    missing = len(asked.keys() - transcript.answers.keys())
    if missing:
        yield f"transcript: {missing} of {len(asked)} questions have no answer"


def _differences(path: str, computed: object, written: object) -> Iterator[str]:
    """Yield a line for every leaf in which two JSON values differ, floats to 9 decimals."""
    if isinstance(computed, Mapping) and isinstance(written, Mapping):
        for name in dict.fromkeys([*computed, *written]):
            if path or name in computed:
                yield from _differences(f"{path}.{name}".lstrip("."), computed.get(name), written.get(name))
    elif isinstance(computed, list) and isinstance(written, list) and len(computed) == len(written):
        for index, (one, other) in enumerate(zip(computed, written, strict=True)):
            yield from _differences(f"{path}[{index}]", one, other)
    elif not _equal(computed, written):
        yield f"{path}: certificate {json.dumps(written)}, transcript {json.dumps(computed)}"


def _equal(one: object, other: object) -> bool:
    if isinstance(one, float) and isinstance(other, float | int):
        return math.isclose(one, other, rel_tol=0, abs_tol=1e-9)
    return one == other


def _expiry_faults(certificate: Certificate) -> Iterator[str]:
    if certificate.expires_at is None:
        return
    life = datetime.fromisoformat(certificate.expires_at) - datetime.fromisoformat(certificate.passed_at)
    if life % timedelta(days=1) or not timedelta(days=1) <= life <= timedelta(days=MAX_VALID_DAYS):
        yield f"expiresAt: {certificate.expires_at} is not 1 to {MAX_VALID_DAYS} whole days after passedAt"


def _refusals(certificate: Certificate) -> list[str]:
    try:
        check_certificate(
            certificate,
            judge_model_id=certificate.judge_model_id,
            prompt_version=PROMPT_VERSION,
            prompt_sha256=PROMPTS[PROMPT_VERSION].sha256,
        )
    except CertificateError as error:
        return [f"refused at run time: {error}"]
    return []
