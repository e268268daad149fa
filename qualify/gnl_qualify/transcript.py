"""What a judge was asked and said, as JSON Lines: one header, then a row an answer, flushed as it comes.

A transcript holds no labels, ids or notes of the pairs. With the fixtures beside it every number of the report can be
computed again; without them it is a recorded judge. A kill at any moment costs at most the answers in flight.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from io import FileIO
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from gnl_qualify.errors import TranscriptError, TranscriptMismatchError
from gnl_qualify.limits import MAX_REPEATS
from gnl_qualify.plan import QuestionId, Round
from gnl_semantic.judge.verdict import Verdict

try:
    import fcntl
except ImportError:  # Windows has no flock; there two exams into one transcript are the user's to avoid
    fcntl = None  # type: ignore[assignment]

FORMAT_VERSION = 1
MAX_ANSWER = 20_000
"""Characters kept of one answer; a longer one is cut, and is no verdict by then."""

_Count = Annotated[int, Field(ge=0)]


def _time(text: str) -> str:
    if datetime.fromisoformat(text).tzinfo is None:
        raise ValueError("has no time zone")
    return text


_Time = Annotated[str, AfterValidator(_time)]


class _Row(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class Header(_Row):
    """What the exam is: the set, the judge, the prompt, and everything that decides the questions."""

    kind: Literal["header"] = "header"
    format: Literal[1] = 1
    set_id: str
    set_name: str
    set_private: bool
    sampled_from: str | None
    limit: int | None
    seed: int
    judge_model_id: str
    judge_spec: str
    judge_engine: str
    judge_parameters: dict[str, object]
    prompt_version: str
    prompt_sha256: str
    parser_version: str
    ruleset_version: str
    library_version: str
    timeout_s: float
    concurrency: int
    repeat_sample: _Count
    repeats: Annotated[int, Field(ge=0, le=MAX_REPEATS)]
    order_sample: _Count
    command: str
    started_at: _Time
    sitting: Annotated[int, Field(ge=1)] | None = None


class Answer(_Row):
    """One call of the judge.

    `text` is None where the call failed; then `error` is the error's code and `message` says more. `verdict` is what
    the parser made of the text, None where it is no verdict.
    """

    kind: Literal["answer"] = "answer"
    item: str
    round: Round
    repeat: _Count
    prompt_sha256: str
    text: str | None
    verdict: Verdict | None
    error: str | None
    message: str | None
    latency_ms: Annotated[float, Field(ge=0)]
    tokens_in: _Count | None
    tokens_out: _Count | None

    @property
    def id(self) -> QuestionId:
        """The question this row answers."""
        return QuestionId(self.item, self.round, self.repeat)


class End(_Row):
    """The last row: every question was put."""

    kind: Literal["end"] = "end"
    finished_at: _Time


_ROW: TypeAdapter[Header | Answer | End] = TypeAdapter(Annotated[Header | Answer | End, Field(discriminator="kind")])

_BINDING = {
    "set": ("set_id", "sampled_from", "limit"),
    "seed": ("seed",),
    "judge": ("judge_model_id", "judge_spec", "judge_engine", "judge_parameters", "timeout_s"),
    "prompt": ("prompt_version", "prompt_sha256", "parser_version"),
    "samples": ("repeat_sample", "repeats", "order_sample"),
}
"""What must be equal for answers of one exam to count in another, by the word that names it to the user."""


@dataclass(slots=True)
class Transcript:
    """The rows of one file.

    Attributes:
        header: The first row.
        answers: By question, in the order they came.
        finished_at: ISO time of the end row, None while questions are open.
        sha256: Of the whole file's bytes.
        whole: Length in bytes without a last line that a kill cut short.
    """

    header: Header
    answers: dict[QuestionId, Answer] = field(default_factory=dict)
    finished_at: str | None = None
    sha256: str = ""
    whole: int = 0


def read_transcript(path: Path) -> Transcript:
    """Read a transcript; a last line without a line break is passed over, for a kill may have cut it.

    Raises:
        TranscriptError: The file cannot be read, has no header, or a line is faulty or answers a question again.
    """
    transcript: Transcript | None = None
    hashed = hashlib.sha256()
    whole = 0
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                hashed.update(line)
                if not line.endswith(b"\n"):
                    break
                whole += len(line)
                transcript = _take(transcript, line, f"{path}: line {number}")
    except OSError as error:
        raise TranscriptError(f"{path}: cannot be read: {error.strerror}") from None
    if transcript is None:
        raise TranscriptError(f"{path}: is empty: it has no header line")
    transcript.sha256, transcript.whole = hashed.hexdigest(), whole
    return transcript


def _take(transcript: Transcript | None, line: bytes, where: str) -> Transcript:
    """Add one line to what was read before."""
    try:
        row = _ROW.validate_json(line)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        name = ".".join(str(part) for part in fault["loc"][1:])
        raise TranscriptError(f"{where}: {f'field {name!r}: ' if name else ''}{fault['msg']}") from None
    if transcript is None:
        if not isinstance(row, Header):
            raise TranscriptError(f"{where}: is no header: a transcript starts with one")
        return Transcript(row)
    if isinstance(row, Header) or transcript.finished_at is not None:
        raise TranscriptError(f"{where}: a row of kind '{row.kind}' has no place here")
    if isinstance(row, End):
        transcript.finished_at = row.finished_at
    elif row.id in transcript.answers:
        raise TranscriptError(f"{where}: answers item {row.item}, round {row.round} {row.repeat} a second time")
    else:
        transcript.answers[row.id] = row
    return transcript


class TranscriptWriter:
    """Appends to the transcript of one exam. Only one at a time holds a file."""

    def __init__(self, file: FileIO, transcript: Transcript) -> None:
        self._file = file
        self.header = transcript.header
        self.answers: Mapping[QuestionId, Answer] = dict(transcript.answers)
        self.finished = transcript.finished_at is not None

    @classmethod
    def start(cls, path: Path, header: Header) -> Self:
        """Open a new transcript.

        A finished one of the same name is kept as '<name>.previous' (then '.previous.2' …), for a certificate may rest
        on it.

        Raises:
            TranscriptError: The file holds an unfinished exam or anything else, or cannot be written.
        """
        _make_way(path)
        file = _locked(path)
        writer = cls(file, Transcript(header))
        file.truncate(0)
        writer._write(header)
        return writer

    @classmethod
    def resume(cls, path: Path, header: Header) -> Self:
        """Open the transcript of an exam that was broken off, to go on with it.

        Args:
            path: The file.
            header: The exam asked for now; its time, command and concurrency may differ.

        Raises:
            TranscriptMismatchError: It records another set, seed, judge, prompt or other samples.
            TranscriptError: There is none, it is faulty, or another exam is writing it.
        """
        if not path.exists():
            raise TranscriptError(f"{path}: there is no transcript to resume: leave out --resume to start the exam")
        file = _locked(path)
        try:
            if b"\n" not in path.read_bytes():  # killed before the header stood
                file.truncate(0)
                writer = cls(file, Transcript(header))
                writer._write(header)
                return writer
            transcript = read_transcript(path)
            _compare(path, transcript.header, header)
            file.truncate(transcript.whole)
        except BaseException:
            file.close()
            raise
        return cls(file, transcript)

    def add(self, answer: Answer) -> None:
        """Append one answer and hand it to the operating system."""
        self._write(answer)

    def finish(self, finished_at: str) -> None:
        """Append the end row, unless it stands there already."""
        if not self.finished:
            self._write(End(finished_at=finished_at))
            self.finished = True

    def _write(self, row: Header | Answer | End) -> None:
        line = row.model_dump_json().encode() + b"\n"
        try:
            written = self._file.write(line)
        except OSError as error:
            raise self._unwritable(error.strerror) from None
        if written != len(line):
            raise self._unwritable(os.strerror(errno.ENOSPC))

    def _unwritable(self, why: str | None) -> TranscriptError:
        return TranscriptError(f"{self._file.name!s}: cannot be written: {why}: make room, then go on with --resume")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._file.close()


def _make_way(path: Path) -> None:
    if not path.exists() or path.stat().st_size == 0:
        return
    try:
        finished = read_transcript(path).finished_at is not None
    except TranscriptError as error:
        raise TranscriptError(
            f"{path}: stands in the way and is no transcript ({error}): remove it or name another with --transcript"
        ) from None
    if not finished:
        raise TranscriptError(
            f"{path}: holds an exam that was broken off: go on with --resume, remove it, "
            "or name another with --transcript"
        )
    kept = (f"{path.name}.previous{f'.{number}' if number > 1 else ''}" for number in count(1))
    path.replace(next(spare for spare in map(path.with_name, kept) if not spare.exists()))


def _locked(path: Path) -> FileIO:
    try:
        # Unbuffered: each row goes to the operating system at once, and nothing is left to fail when closing.
        file = path.open("ab", buffering=0)
    except OSError as error:
        raise TranscriptError(f"{path}: cannot be written: {error.strerror}") from None
    if fcntl is not None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise TranscriptError(f"{path}: another exam is writing it: wait for its end") from None
        except OSError:  # a file system without locks
            pass
    return file


def _compare(path: Path, stored: Header, asked: Header) -> None:
    """Refuse a transcript of another exam, naming every part that differs."""
    # Through JSON, so that a tuple in the judge's parameters equals the list that was read back.
    before, now = (json.loads(header.model_dump_json()) for header in (stored, asked))
    faults = [
        f"{word} ({name} is {before[name]!r} there, {now[name]!r} here)"
        for word, names in _BINDING.items()
        for name in names
        if before[name] != now[name]
    ]
    if faults:
        raise TranscriptMismatchError(
            f"{path}: records another exam: {'; '.join(faults)}: "
            "give the same options, or name a new file with --transcript",
            differs=[fault.split(" ", 1)[0] for fault in faults],
        )
