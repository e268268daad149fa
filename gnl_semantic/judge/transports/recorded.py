"""A judge that repeats what another one said: the answers in the transcript of an exam, JSON Lines.

=============  ========================================================================================
row            fields
=============  ========================================================================================
``header``     ``prompt_sha256`` (of the prompt's words); optional ``judge_model_id``
``answer``     ``prompt_sha256`` (of the rendered user text), ``text``; optional ``repeat``, ``tokens_in``,
               ``tokens_out``; for a failed call ``error`` (the error's code) and ``message`` in place of ``text``
others         are passed over
=============  ========================================================================================
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gnl_semantic.errors import JudgeAnswerMissingError, JudgeConfigError, JudgeError
from gnl_semantic.judge.prompt import PROMPT_VERSION, PROMPTS
from gnl_semantic.judge.transport import JudgeInfo, Reply


class RecordedJudge:
    """Gives the k-th recorded answer to the k-th ask of a prompt; one that was not recorded is never made up."""

    def __init__(self, answers: Mapping[str, list[Reply | JudgeError]], info: JudgeInfo) -> None:
        self._answers = answers
        self._info = info
        self._asked: Counter[str] = Counter()

    @classmethod
    def load(cls, file: str, *, model: str | None = None) -> RecordedJudge:
        """Read a transcript.

        Args:
            file: Its path.
            model: Id of the model that answered, where the header does not say.

        Raises:
            JudgeConfigError: The file cannot be read, a line is faulty, no answer is in it, its answers belong to
                other prompt words, or nobody says which model gave them.
        """
        try:
            data = Path(file).read_bytes()
        except OSError as error:
            raise JudgeConfigError(f"{file}: cannot be read: {error.strerror}: name a transcript") from None
        transcript = _read(data, file)
        recorded = transcript.header.judge_model_id
        if model is not None and recorded not in (None, model):
            raise JudgeConfigError(f"{file}: the answers are those of '{recorded}', not of '{model}'")
        model_id = model or recorded
        if not model_id:
            raise JudgeConfigError(f"{file}: has no judge_model_id in its header: name the model (--model)")
        prompt = transcript.header.prompt_sha256
        current = PROMPTS[PROMPT_VERSION].sha256
        if prompt is None:
            # The certificate will bind these words; only who asked knows whether they were the ones.
            raise JudgeConfigError(f"{file}: has no prompt_sha256 in its header: say which prompt was answered")
        if prompt != current:
            raise JudgeConfigError(
                f"{file}: the answers belong to a prompt with other words ({prompt[:12]}, here {current[:12]}): "
                "ask the judge again"
            )
        info = JudgeInfo(
            model_id=model_id,
            spec=f"recorded:{file}",
            engine="recorded",
            parameters={"file_sha256": hashlib.sha256(data).hexdigest()},
        )
        return cls(transcript.answers, info)

    @property
    def info(self) -> JudgeInfo:
        """Who the judge is."""
        return self._info

    async def complete(self, system: str, user: str) -> Reply:  # noqa: ARG002
        """Return the recorded answer.

        Raises:
            JudgeAnswerMissingError: The transcript does not know this prompt, or was asked it more often than the
                judge was.
            JudgeError: What was recorded is a failed call; the same leaf is raised.
        """
        key = hashlib.sha256(user.encode()).hexdigest()
        answers, asked = self._answers.get(key, []), self._asked[key]
        if asked >= len(answers):
            # Saying the last answer again would certify a steadiness that nobody measured.
            which = f"{asked + 1}. answer" if answers else "answer"
            raise JudgeAnswerMissingError(f"{self._info.spec}: has no {which} to the prompt {key[:12]}")
        outcome = answers[asked]
        self._asked[key] += 1
        if isinstance(outcome, JudgeError):
            raise outcome
        return outcome

    async def aclose(self) -> None:
        """Do nothing: no file is held open."""


_Count = Annotated[int, Field(ge=0)]


class _Row(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)


class _Header(_Row):
    judge_model_id: str | None = None
    prompt_sha256: str | None = None


class _Answer(_Row):
    prompt_sha256: str
    repeat: _Count = 0
    text: str | None = None
    error: str | None = None
    message: str | None = None
    tokens_in: _Count | None = None
    tokens_out: _Count | None = None


@dataclass(frozen=True, slots=True)
class _Transcript:
    header: _Header
    answers: Mapping[str, list[Reply | JudgeError]]


def _read(data: bytes, file: str) -> _Transcript:
    header = _Header()
    rows: list[tuple[_Answer, Reply | JudgeError]] = []
    *whole, rest = data.split(b"\n")
    for number, line in enumerate([*whole, rest], start=1):
        if not line.strip():
            continue
        where = f"{file}: line {number}"
        try:
            raw = json.loads(line)
        except (ValueError, RecursionError) as error:
            if number > len(whole):
                break  # no line break behind it: a kill cut the last line short
            raise JudgeConfigError(f"{where}: is no JSON: {error}") from None
        if not isinstance(raw, dict):
            raise JudgeConfigError(f"{where}: is {type(raw).__name__}, must be an object")
        try:
            if raw.get("kind") == "header":
                header = _Header.model_validate(raw)
            elif raw.get("kind") == "answer":
                answer = _Answer.model_validate(raw)
                rows.append((answer, _outcome(answer, where)))
        except ValidationError as error:
            fault = error.errors(include_url=False, include_input=False)[0]
            raise JudgeConfigError(f"{where}: field '{fault['loc'][0]}': {fault['msg']}") from None
    if not rows:
        raise JudgeConfigError(f"{file}: holds no answer rows: name the transcript of an exam")
    answers: defaultdict[str, list[Reply | JudgeError]] = defaultdict(list)
    for answer, outcome in sorted(rows, key=lambda row: row[0].repeat):
        answers[answer.prompt_sha256].append(outcome)
    return _Transcript(header, dict(answers))


def _outcome(answer: _Answer, where: str) -> Reply | JudgeError:
    if answer.error is None:
        if answer.text is None:
            raise JudgeConfigError(f"{where}: has neither 'text' nor 'error'")
        return Reply(answer.text, answer.tokens_in, answer.tokens_out)
    leaf = _leaves().get(answer.error)
    if leaf is None:
        raise JudgeConfigError(f"{where}: field 'error': '{answer.error}' is no code of a judge's error")
    return leaf(answer.message or f"{where}: the recorded call failed")


def _leaves() -> dict[str, type[JudgeError]]:
    leaves: list[type[JudgeError]] = [JudgeError, *JudgeError.__subclasses__()]
    return {leaf.code: leaf for leaf in leaves}
