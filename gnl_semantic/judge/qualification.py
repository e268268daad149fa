"""Which certificate stands for a judge at run time, and whether it speaks for the languages of the records."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from gnl_semantic.errors import (
    CertificateLanguageError,
    CertificateMissingError,
    CertificateUnreadableError,
    JudgeConfigError,
)
from gnl_semantic.judge.certificate import MIN_ANSWERED, Certificate, read_certificate

SHIPPED: Final = {"builtin:local": Path(__file__).with_name("local") / "certificate.json"}
"""Certificates that come with the package, by the judge's name."""


def find_certificate(qualification: object, *, spec: str | None, model_id: str) -> Certificate:
    """Return the certificate that was given, or the one that comes with a built-in judge.

    Args:
        qualification: A certificate, the path of one, or None.
        spec: How the judge was named; None for one that was passed as an object.
        model_id: Id of its model, for messages.

    Raises:
        CertificateMissingError: There is none.
        CertificateError: What was given is no certificate, or was edited.
    """
    if isinstance(qualification, Certificate):
        if qualification.sha256 != qualification.content_sha256():
            raise CertificateUnreadableError(
                f"the certificate of judge '{qualification.judge_model_id}' was changed after it was issued: pass it "
                "as gnl-semantic-qualify wrote it"
            )
        return qualification
    if isinstance(qualification, str | os.PathLike):
        return read_certificate(qualification)
    if qualification is not None:
        raise CertificateUnreadableError(
            f"Judge.qualification is {type(qualification).__name__}, must be a Certificate or the path of one"
        )
    if spec in SHIPPED:
        return read_certificate(SHIPPED[spec])
    base = (spec or "").partition("?")[0]
    other = f"name the languages in Judge(languages=…) of '{base}', which has one, or " if base in SHIPPED else ""
    raise CertificateMissingError(
        f"judge '{model_id}' has no certificate: {other}sit the exam with gnl-semantic-qualify and pass the file as "
        "Judge.qualification"
    )


def read_languages(languages: object) -> tuple[str, ...]:
    """Return the languages that a caller declared.

    Raises:
        JudgeConfigError: It is no sequence of language tags.
    """
    if not isinstance(languages, Sequence) or isinstance(languages, str | bytes):
        raise JudgeConfigError(
            f"Judge.languages is {languages!r}, must be a sequence of language tags such as ('tr', 'en')"
        )
    for tag in languages:
        if not isinstance(tag, str) or not tag.strip():
            raise JudgeConfigError(f"Judge.languages holds {tag!r}, must hold language tags such as 'tr'")
    return tuple(languages)


def check_languages(certificate: Certificate, languages: Sequence[str]) -> None:
    """Refuse a certificate that says little or nothing of a language: 'tr-TR' is spoken for by pairs in 'tr'.

    Raises:
        CertificateLanguageError: Fewer of the exam's pairs than `MIN_ANSWERED` are in one of the languages.
    """
    pairs = {tag.lower(): count for tag, count in certificate.pairs_by_language.items()}
    wanted = {tag: max(pairs.get(tag.lower(), 0), pairs.get(tag.lower().partition("-")[0], 0)) for tag in languages}
    missing = [f"'{tag}' ({count})" for tag, count in wanted.items() if count < MIN_ANSWERED]
    if not missing:
        return
    there = [f"{tag} ({count})" for tag, count in sorted(pairs.items()) if count >= MIN_ANSWERED]
    raise CertificateLanguageError(
        f"the exam of judge '{certificate.judge_model_id}' had fewer than {MIN_ANSWERED} pairs in "
        f"{', '.join(missing)}; it had pairs in {', '.join(there) or 'no language'}: "
        "sit the exam on pairs in the languages of your records",
        missing=[tag for tag, count in wanted.items() if count < MIN_ANSWERED],
    )
