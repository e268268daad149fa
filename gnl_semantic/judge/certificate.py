"""The certificate a judge must hold, the bars it must clear, and every reason to refuse one.

The bars stand here once: the exam scores against them and the runtime enforces them.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, ValidationError

from gnl_core.canonical import digest
from gnl_core.errors import ConfigError, NotCanonicalError
from gnl_core.files import write_whole
from gnl_semantic.errors import (
    CertificateExpiredError,
    CertificateFalseAlarmError,
    CertificateMissingError,
    CertificateModelError,
    CertificatePromptError,
    CertificateProvisionalError,
    CertificateRecallError,
    CertificateUnreadableError,
    CertificateUnwritableError,
    CertificateVersionError,
)
from gnl_semantic.judge.certificate_parts import (
    CertifiedBaseline,
    CertifiedClusters,
    CertifiedCounts,
    CertifiedDomain,
    CertifiedFlips,
    CertifiedLatency,
    CertifiedRate,
    CertifiedSignature,
    Hex16,
    Hex64,
    Part,
    Time,
)
from gnl_semantic.judge.signature import check_signature, edited_fields, refuse_edited
from gnl_semantic.judge.verdict import PARSER_VERSION

CERTIFICATE_VERSION = 1
MIN_PARAPHRASE_RECALL = 0.70
"""Least share of dup-paraphrase pairs that a judge must call SAME."""
MAX_NEAR_MISS_FALSE_ALARMS = 0.05
"""Largest share of near-miss pairs that a judge may call SAME."""
MIN_ANSWERED = 5
"""Fewest answered pairs for either bar: the smallest n at which 0.70 allows an imperfect pass (4 of 5)."""
WARN_AFTER = timedelta(days=180)
"""Age from which a certificate without an expiry draws a warning."""


CLOCK_SKEW = timedelta(days=1)
"""How far ahead another machine's clock may have been when the certificate was issued."""


class Certificate(Part):
    """What a judge proved, about which prompt, on which pairs.

    The first seven fields are the seed's. `sha256` covers all fields but itself and the signature, so that a slip of
    the hand is noticed; against intent there is `signature`, where somebody gave one. `check_certificate` holds the
    rates against the counts, `gnl-semantic-qualify verify` holds the counts against the transcript.
    """

    v: Literal[1]
    fixture_set_id: Hex16
    judge_model_id: Annotated[str, StringConstraints(min_length=1)]
    judge_prompt_version: str
    paraphrase_recall: float
    near_miss_fp: float
    passed_at: Time
    status: Literal["provisional", "certified"]
    expires_at: Time | None
    prompt_sha256: Hex64
    parser_version: str
    ruleset_version: str
    library_version: str
    transcript_sha256: Hex64
    seed: int
    judge_spec: str
    judge_engine: str
    judge_parameters: dict[str, object]
    fixture_set_name: str
    fixture_set_private: bool
    fixture_set_sampled_from: Hex16 | None
    pairs_by_label: dict[str, int]
    pairs_by_language: dict[str, int]
    counts_by_label: dict[str, CertifiedCounts]
    recall: CertifiedRate
    false_alarms: CertifiedRate
    recall_by_domain: CertifiedClusters | None
    false_alarms_by_domain: CertifiedClusters | None
    worst_domain: str | None
    worst_domain_right: CertifiedDomain | None
    repeat: CertifiedFlips | None
    order: CertifiedFlips | None
    latency: CertifiedLatency
    tokens_in: int | None
    tokens_out: int | None
    baselines: list[CertifiedBaseline]
    sitting: Annotated[int, Field(ge=1)] | None
    sha256: Hex64
    signature: CertifiedSignature | None

    @classmethod
    def issue(cls, **fields: object) -> Certificate:
        """Return a certificate of these fields, by their Python names, with its `sha256` filled in.

        Raises:
            ValueError: A field is missing, unknown or of another type (pydantic's error, a programming fault).
        """
        blank = cls.model_validate({"signature": None, **fields, "sha256": "0" * 64})
        return blank.model_copy(update={"sha256": blank.content_sha256()})

    def content_sha256(self) -> str:
        """Return the SHA-256 over the canonical JSON of `content`."""
        return digest(self.content())

    def content(self) -> dict[str, object]:
        """Return what hash and signature cover, by the names on disk: all fields but these two."""
        return self.model_dump(by_alias=True, exclude={"sha256", "signature"})

    def evidence(self) -> dict[str, object]:
        """Return what a question says of the judge that caused it: the status, and the counts it rests on."""
        return {
            "judge": self.judge_model_id,
            "prompt": self.judge_prompt_version,
            "status": self.status,
            "recall": f"{self.recall.k}/{self.recall.n}",
            "falseAlarms": f"{self.false_alarms.k}/{self.false_alarms.n}",
            "fixtureSet": self.fixture_set_id,
            "passedAt": self.passed_at,
            "certificate": self.sha256,
        }

    def to_json(self) -> str:
        """Return the certificate as it stands on disk, with a final newline."""
        return json.dumps(self.model_dump(by_alias=True), ensure_ascii=False, indent=2, allow_nan=False) + "\n"


def write_certificate(path: str | os.PathLike[str], certificate: Certificate) -> None:
    """Write a certificate so that the file is, at any moment, the old one whole or the new one whole.

    Raises:
        CertificateUnwritableError: The folder is missing, full or not writable; what stood there still stands.
    """
    try:
        write_whole(Path(path), certificate.to_json().encode())
    except OSError as error:
        raise CertificateUnwritableError(
            f"{path}: cannot be written: {error.strerror}: name a file in a folder you may write to"
        ) from None


def read_certificate(path: str | os.PathLike[str]) -> Certificate:
    """Read a certificate from disk, without asking yet whether it holds for a judge.

    Raises:
        CertificateMissingError: There is no such file.
        CertificateVersionError: It has another format version.
        CertificateUnreadableError: It is no certificate, or a field was edited.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise CertificateMissingError(
            f"{path}: there is no certificate; sit the exam with gnl-semantic-qualify --judge ... --out {path}"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise CertificateUnreadableError(f"{path}: cannot be read: {error}") from None
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError: also a number of thousands of digits
        raise CertificateUnreadableError(f"{path}: is no JSON: {error}: sit the exam again") from None
    return parse_certificate(raw, str(path))


def parse_certificate(raw: object, name: str = "certificate") -> Certificate:
    """Turn a certificate's JSON value into a `Certificate`; `name` stands in every message.

    Raises:
        CertificateVersionError: `v` is not 1.
        CertificateUnreadableError: A field is missing, unknown or of another type, or the content hash differs.
    """
    if not isinstance(raw, Mapping):
        raise CertificateUnreadableError(f"{name}: is {type(raw).__name__}, must be a JSON object")
    version = raw.get("v")
    if version != CERTIFICATE_VERSION or isinstance(version, bool):
        raise CertificateVersionError(
            f"{name}: field 'v' is {version!r}, this release reads {CERTIFICATE_VERSION}: sit the exam again"
        )
    try:
        certificate = Certificate.model_validate(raw)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in fault["loc"])
        raise CertificateUnreadableError(f"{name}: field '{field}': {fault['msg']}: sit the exam again") from None
    try:
        content = certificate.content_sha256()
    except (NotCanonicalError, RecursionError) as error:
        raise CertificateUnreadableError(f"{name}: cannot be hashed: {error}: sit the exam again") from None
    if certificate.sha256 != content:
        edited = edited_fields(certificate.content(), certificate.signature) if certificate.signature else []
        named = f" (edited: {', '.join(edited)})" if edited else ""
        raise CertificateUnreadableError(
            f"{name}: field 'sha256' does not fit the content{named}: the file was edited after it was issued; "
            "restore it or sit the exam again"
        )
    return certificate


def check_certificate(
    certificate: Certificate | None,
    *,
    judge_model_id: str,
    prompt_version: str,
    prompt_sha256: str,
    judge_parameters: Mapping[str, object] | None = None,
    require: Literal["provisional", "certified"] = "provisional",
    trusted_keys: Sequence[str | bytes] | None = None,
    now: datetime | None = None,
) -> tuple[str, ...]:
    """Refuse a certificate that does not hold for this judge and this prompt; return warnings for one that does.

    Which pairs were asked is on record and never compared: any set may have been the exam. Shares are held against
    their counts, and 'certified' against them too; intervals are not computed again here, which is what
    `gnl-semantic-qualify verify` does.

    Args:
        certificate: What the caller configured; None means that nothing was.
        judge_model_id: Id of the judge model about to be used.
        prompt_version: Version of the prompt about to be rendered.
        prompt_sha256: Its hash: the words count, not only their number.
        judge_parameters: `judge.info.parameters` of the judge about to be used: what may change its answers. None does
            not ask. Its time limit is left out, which an exam and a run may set apart.
        require: 'certified' refuses a provisional certificate, whose bars hold as point estimates only.
        trusted_keys: Public keys, PEM or 64 hex digits: one of them must have signed. None asks for no signature;
            one that is there and does not fit the fields is refused all the same.
        now: Aware time of the check; default the present.

    Raises:
        CertificateError: The leaf says which requirement failed; the message names the way out.
        ConfigError: `require` or a key means nothing.
        MissingExtraError: `trusted_keys` without the extra 'sign'.
    """
    if require not in ("provisional", "certified"):
        raise ConfigError(f"require is {require!r}, must be 'provisional' or 'certified'")
    if certificate is None:
        raise CertificateMissingError(
            f"judge '{judge_model_id}' has no certificate: sit the exam with gnl-semantic-qualify, then pass the file"
        )
    if trusted_keys is not None:
        check_signature(certificate.content(), certificate.signature, trusted_keys)
    elif certificate.signature is not None:
        refuse_edited(certificate.content(), certificate.signature)
    _check_judge(certificate, judge_model_id, judge_parameters)
    _check_prompt(certificate, prompt_version, prompt_sha256)
    # A NaN compares false with everything: the comparisons are written so that it fails.
    if not certificate.paraphrase_recall >= MIN_PARAPHRASE_RECALL:
        raise CertificateRecallError(
            f"certified paraphrase recall is {certificate.paraphrase_recall}, "
            f"the bar is at least {MIN_PARAPHRASE_RECALL}: use a better judge"
        )
    if not certificate.near_miss_fp <= MAX_NEAR_MISS_FALSE_ALARMS:
        raise CertificateFalseAlarmError(
            f"certified near-miss false alarms are {certificate.near_miss_fp}, "
            f"the bar is at most {MAX_NEAR_MISS_FALSE_ALARMS}: use a better judge"
        )
    if require == "certified" and certificate.status != "certified":
        raise CertificateProvisionalError(
            f"the certificate of judge '{certificate.judge_model_id}' is provisional: its one-sided 95 % bounds are "
            f"{certificate.recall.bound:.3f} for recall (at least {MIN_PARAPHRASE_RECALL} is needed) and "
            f"{certificate.false_alarms.bound:.3f} for false alarms (at most {MAX_NEAR_MISS_FALSE_ALARMS}): sit the "
            "exam on more pairs, or accept provisional certificates"
        )
    fault = _contradiction(certificate)
    if fault is not None:
        raise CertificateUnreadableError(f"the certificate contradicts itself: {fault}: sit the exam again")
    return _check_age(certificate, now or datetime.now(UTC))


def _check_judge(certificate: Certificate, judge_model_id: str, judge_parameters: Mapping[str, object] | None) -> None:
    if certificate.judge_model_id != judge_model_id:
        raise CertificateModelError(
            f"the certificate was issued for judge model '{certificate.judge_model_id}', "
            f"not for '{judge_model_id}': sit the exam with the model you use"
        )
    if judge_parameters is not None:
        other = _other_parameters(certificate.judge_parameters, judge_parameters)
        if other:
            raise CertificateModelError(
                f"the certificate of judge '{judge_model_id}' was issued for other parameters ({', '.join(other)}): "
                "sit the exam with the judge you use"
            )


def _check_prompt(certificate: Certificate, prompt_version: str, prompt_sha256: str) -> None:
    if (certificate.judge_prompt_version, certificate.prompt_sha256) != (prompt_version, prompt_sha256):
        raise CertificatePromptError(
            f"the certificate holds for prompt version '{certificate.judge_prompt_version}' "
            f"({certificate.prompt_sha256[:12]}), this release renders '{prompt_version}' ({prompt_sha256[:12]}): "
            "sit the exam again"
        )
    if certificate.parser_version != PARSER_VERSION:
        raise CertificatePromptError(
            f"the certificate's answers were read by parser version '{certificate.parser_version}', "
            f"this release has '{PARSER_VERSION}': sit the exam again"
        )


def _contradiction(certificate: Certificate) -> str | None:
    """Hold the two rates against the counts they were made of."""
    for field, share, rate, label in (
        ("paraphraseRecall", certificate.paraphrase_recall, certificate.recall, "dup-paraphrase"),
        ("nearMissFp", certificate.near_miss_fp, certificate.false_alarms, "near-miss"),
    ):
        counts = certificate.counts_by_label.get(label, CertifiedCounts())
        if rate.k > rate.n or not rate.n or not math.isclose(share, rate.k / rate.n, abs_tol=1e-9):
            return f"field '{field}' is {share}, its counts say {rate.k} of {rate.n}"
        if (rate.k, rate.n) != (counts.same, counts.put) or rate.n != certificate.pairs_by_label.get(label):
            return f"field 'countsByLabel.{label}' says {counts.same} of {counts.put}, the rate {rate.k} of {rate.n}"
        if counts.answered < MIN_ANSWERED:
            return f"only {counts.answered} of {counts.put} '{label}' pairs were answered, {MIN_ANSWERED} are needed"
    near_misses = certificate.counts_by_label["near-miss"]
    if certificate.status == "certified" and not (
        one_sided_bars(certificate.recall.bound, certificate.false_alarms.bound)
        and _tail(certificate.recall.n - certificate.recall.k, certificate.recall.n, 1 - MIN_PARAPHRASE_RECALL)
        and _tail(near_misses.same, near_misses.answered, MAX_NEAR_MISS_FALSE_ALARMS)
    ):
        return "field 'status' is 'certified', its bounds do not clear the bars"
    return None


def _tail(k: int, n: int, share: float) -> bool:
    """Say whether k or fewer of n have a chance of 5 % at most where the true share is `share`.

    That is when the one-sided 95 % Clopper-Pearson bound lies on the right side of `share`. Summed here, since scipy
    is no part of the runtime.
    """
    log = math.lgamma(n + 1) + n * math.log1p(-share)
    odds = math.log(share) - math.log1p(-share)
    terms = (math.exp(log - math.lgamma(i + 1) - math.lgamma(n - i + 1) + i * odds) for i in range(k + 1))
    return math.fsum(terms) <= 0.05 + 1e-9


def _other_parameters(certified: Mapping[str, object], used: Mapping[str, object]) -> list[str]:
    names = (certified.keys() | used.keys()) - {"timeout_s"}
    return sorted(
        name
        for name in names
        if name not in certified or name not in used or digest(certified[name]) != digest(used[name])
    )


def _check_age(certificate: Certificate, now: datetime) -> tuple[str, ...]:
    passed = datetime.fromisoformat(certificate.passed_at)
    if certificate.expires_at is not None and now > datetime.fromisoformat(certificate.expires_at):
        raise CertificateExpiredError(
            f"the certificate expired at {certificate.expires_at}: sit the exam again", expired=certificate.expires_at
        )
    if passed - now > CLOCK_SKEW:
        raise CertificateUnreadableError(
            f"the certificate was passed in the future ({certificate.passed_at}), so its age would never show: "
            "set the clock right or sit the exam again"
        )
    if now - passed > WARN_AFTER:
        days = (now - passed).days
        return (f"the certificate of judge '{certificate.judge_model_id}' is {days} days old: sit the exam again",)
    return ()


def one_sided_bars(recall_bound: float, false_alarm_bound: float) -> bool:
    """Say whether the one-sided 95 % bounds clear the bars too, which is what 'certified' means."""
    return recall_bound >= MIN_PARAPHRASE_RECALL and false_alarm_bound <= MAX_NEAR_MISS_FALSE_ALARMS
