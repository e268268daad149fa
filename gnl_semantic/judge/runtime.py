"""The judge of a run: configured once, refused there if it cannot work, and asked about one pair at a time.

It is asked only what the rungs before it left open, it is told two sentences and the name of the tool and nothing else,
and its 'same' buys one question to a person. Everything else, whatever went wrong included, leaves the call as it is.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from gnl_core import keys
from gnl_core.errors import JournalError, StoreCorruptError
from gnl_core.journal import get
from gnl_core.journal.port import Entry, Journal, JsonValue, Key
from gnl_core.prior import Subject
from gnl_semantic.errors import CertificateExpiredError, JudgeConfigError
from gnl_semantic.judge.asking import put
from gnl_semantic.judge.cache import Kept, Stamp, keep, served
from gnl_semantic.judge.certificate import Certificate, check_certificate
from gnl_semantic.judge.judged import Cause, Judged
from gnl_semantic.judge.load import load_judge
from gnl_semantic.judge.prompt import PROMPT_VERSION, PROMPTS
from gnl_semantic.judge.qualification import check_languages, find_certificate, read_languages
from gnl_semantic.judge.slots import take_slot
from gnl_semantic.judge.transport import JudgeInfo, JudgeTransport, Reply
from gnl_semantic.judge.transports.python_file import check_callable
from gnl_semantic.judge.verdict import Verdict

if TYPE_CHECKING:
    from gnl_semantic.past import Past

__all__ = ["MAX_CALLS_PER_RUN", "MAX_SENTENCE", "Judge", "Judged"]

MAX_SENTENCE = 512
"""Longest canonical sentence in characters that a judge is shown. A longer one is never cut: half a record is another
record."""

MAX_CALLS_PER_RUN = 1000
"""Most calls that one request may be allowed to pay for."""

Answering = Callable[..., "str | Reply | Awaitable[str | Reply]"]

logger = logging.getLogger(__name__)


class Judge:
    """A judge that holds a certificate; for `SemanticGate(judge=…)`.

    Args:
        complete: Who answers. A name that `load_judge` takes: 'builtin:local' brings its own certificate, 'openai:URL',
            'recorded:FILE', 'judge.py' and others need one. Or a `JudgeTransport`. Or a function, sync or async, that
            is called as ``complete(system=…, user=…)`` and returns the answer's text or a `Reply`; a sync one is
            called in a thread of its own. There is one attempt a pair, never a second.
        judge_model_id: Id of the model, which the certificate binds. Needed for functions, servers and Python files;
            what names itself is only refused another name.
        qualification: The certificate, or the path of its file; None takes the one a built-in judge brings.
            Of a transport the parameters are held against it too; of a plain function no more than the id can be.
        max_calls_per_run: Calls that one request may pay for, sub-agents and every resumption included, 1 to 1000.
        timeout: Seconds that one call may take, above 0.
        languages: Languages of the records, as tags: each must be one the judge was examined in. () asks nothing.
        require: 'certified' refuses a certificate whose bars hold as point estimates only.
        trusted_keys: Public keys, PEM or 64 hex digits, one of which must have signed the certificate. None asks for
            no signature.

    Raises:
        JudgeConfigError: There is no such judge, or an argument is out of range.
        CertificateError: There is no certificate, or it does not hold for this judge; the leaf says why.
        ConfigError: `require` or a key means nothing.
        MissingExtraError: What the judge or a signature needs is not installed.
    """

    def __init__(
        self,
        complete: str | JudgeTransport | Answering,
        *,
        judge_model_id: str | None = None,
        qualification: Certificate | str | os.PathLike[str] | None = None,
        max_calls_per_run: int = 10,
        timeout: float = 8.0,
        languages: Sequence[str] = (),
        require: Literal["provisional", "certified"] = "provisional",
        trusted_keys: Sequence[str | bytes] | None = None,
    ) -> None:
        _check_limits(max_calls_per_run, timeout)
        self._languages = read_languages(languages)
        self._max_calls, self._timeout = max_calls_per_run, float(timeout)
        self._complete, self._model_id, parameters = _answering(complete, judge_model_id, self._timeout)
        spec = complete if isinstance(complete, str) else None
        self._certificate = find_certificate(qualification, spec=spec, model_id=self._model_id)
        self._prompt = PROMPTS[PROMPT_VERSION]
        self._demands: dict[str, Any] = {
            "judge_model_id": self._model_id,
            "prompt_version": self._prompt.version,
            "prompt_sha256": self._prompt.sha256,
            "judge_parameters": parameters,
            "require": require,
            "trusted_keys": trusted_keys,
        }
        check_certificate(self._certificate, **self._demands)
        check_languages(self._certificate, self._languages)
        self._evidence: dict[str, Any] = self._certificate.evidence()

    def __repr__(self) -> str:
        return f"Judge({self._model_id!r}, {self._certificate.status}, {self._certificate.sha256[:16]})"

    @property
    def model_id(self) -> str:
        """Id of the model, which its verdicts carry."""
        return self._model_id

    @property
    def certificate(self) -> Certificate:
        """What it holds."""
        return self._certificate

    def check(self) -> tuple[str, ...]:
        """Return what a caller should read before a run starts.

        A certificate that ran out since the judge was made is a warning here: runs that are under way go on.
        """
        try:
            return check_certificate(self._certificate, **self._demands)
        except CertificateExpiredError as error:
            return (str(error),)

    def freeze(self) -> dict[str, JsonValue]:
        """Return its settings as JSON: who it is and what it may cost, nothing it holds open and nothing secret."""
        return {
            "model_id": self._model_id,
            "certificate": self._certificate.sha256,
            "status": self._certificate.status,
            "max_calls_per_run": self._max_calls,
            "timeout_s": self._timeout,
            "languages": list(self._languages),
        }

    async def ask(self, subject: Subject, past: Past, *, score: float | None, ruleset_version: str) -> Judged:
        """Say whether a call and a past one name the same thing, from the journal where that is known.

        Nothing raises out of this but a cancellation of the caller's: whatever goes wrong is 'skipped', with its cause.

        Args:
            subject: The call.
            past: The record it is compared with.
            score: Cosine of the two sentences, for the record; None where there is none.
            ruleset_version: Of the rules that left the pair open.
        """
        try:
            return await self._ask(subject, past, score, ruleset_version)
        except JournalError as error:
            logger.warning("judge '%s' is not asked for run %s: %s", self._model_id, subject.run, error)
            return self._skipped("budget")
        except Exception:
            logger.exception("judge '%s' could not be asked for run %s", self._model_id, subject.run)
            return self._skipped("error")

    async def _ask(self, subject: Subject, past: Past, score: float | None, ruleset_version: str) -> Judged:
        key = keys.judged(subject.scope, subject.tool, subject.args_hash, past.args_hash)
        stamp = Stamp(judge=self._model_id, prompt=self._prompt.version, rules=ruleset_version)
        entry = await _row(subject.journal, key)
        known = served(entry, stamp)
        if known is not None:
            return Judged(outcome=known.value, cached=True, evidence=self._evidence)
        present = subject.identity.sentence
        if max(len(present), len(past.sentence)) > MAX_SENTENCE:
            return self._skipped("canonical-too-long")
        user = self._prompt.render(subject.tool, present, past.sentence)
        if await take_slot(subject, self._max_calls) is None:
            return self._skipped("budget")
        answer = await put(self._complete, self._prompt.system, user, model_id=self._model_id, seconds=self._timeout)
        if answer.verdict is None:
            return Judged(
                outcome="skipped",
                cause=answer.cause,
                latency_ms=answer.latency_ms,
                evidence=self._evidence,
                called=True,
            )
        kept = await self._keep(subject, key, entry, verdict=answer.verdict, stamp=stamp, score=score)
        return Judged(
            outcome=kept.verdict.value,
            cached=kept.cached,
            latency_ms=answer.latency_ms,
            stale_replaced=kept.stale_replaced,
            evidence=self._evidence,
            called=True,
        )

    async def _keep(
        self, subject: Subject, key: Key, entry: Entry | None, *, verdict: Verdict, stamp: Stamp, score: float | None
    ) -> Kept:
        """Record a verdict that was paid for; where the store does not take it, it is used all the same."""
        fixture_set = self._certificate.fixture_set_id
        try:
            return await keep(subject, key, entry, verdict, stamp=stamp, fixture_set=fixture_set, score=score)
        except Exception as error:
            logger.warning("a verdict of run %s was not recorded: %s", subject.run, error)
            return Kept(verdict=verdict)

    def _skipped(self, cause: Cause) -> Judged:
        return Judged(outcome="skipped", cause=cause, evidence=self._evidence)


async def _row(journal: Journal, key: Key) -> Entry | None:
    try:
        return await get(journal, key)
    except StoreCorruptError as error:  # as if it were not there: the pair is judged again
        logger.warning("a verdict cannot be read: %s", error)
        return None


def _check_limits(max_calls_per_run: object, timeout: Any) -> None:
    if type(max_calls_per_run) is not int or not 1 <= max_calls_per_run <= MAX_CALLS_PER_RUN:
        raise JudgeConfigError(
            f"Judge.max_calls_per_run is {max_calls_per_run!r}, must be a whole number from 1 to {MAX_CALLS_PER_RUN}"
        )
    number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    if not number or not 0 < timeout <= sys.float_info.max:
        raise JudgeConfigError(f"Judge.timeout is {timeout!r}, must be a finite number of seconds above 0")


def _answering(
    complete: object, judge_model_id: Any, timeout_s: float
) -> tuple[Answering, str, Mapping[str, object] | None]:
    """Return what is called, the id of its model, and what may change its answers where that is known."""
    if judge_model_id is not None and (not isinstance(judge_model_id, str) or not judge_model_id.strip()):
        raise JudgeConfigError(f"Judge.judge_model_id is {judge_model_id!r}, must name the model that answers")
    if isinstance(complete, str):
        unknown = ":" not in complete and not complete.endswith(".py")  # by no kind that there is: refused as such
        if judge_model_id is None and not unknown and not complete.startswith(("builtin:", "recorded:")):
            raise JudgeConfigError(f"Judge.judge_model_id is needed for '{complete}': the certificate binds it")
        complete = load_judge(complete, model=judge_model_id, timeout_s=timeout_s)
    info = getattr(complete, "info", None)
    if isinstance(info, JudgeInfo):
        transport: Any = complete
        if judge_model_id not in (None, info.model_id):
            raise JudgeConfigError(
                f"Judge.judge_model_id is '{judge_model_id}', the transport's own is '{info.model_id}': leave it out"
            )
        check_callable(transport.complete, "Judge.complete: its 'complete'")
        return transport.complete, info.model_id, info.parameters
    check_callable(complete, "Judge.complete")
    if judge_model_id is None:
        raise JudgeConfigError("Judge.judge_model_id is needed for a function: the certificate binds it")
    return complete, judge_model_id, None  # type: ignore[return-value] # what it returns shows when it is called
