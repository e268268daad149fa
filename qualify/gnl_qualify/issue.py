"""From a report to the certificate it earned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timedelta

from gnl_qualify.limits import MAX_VALID_DAYS
from gnl_reports.model import Bar, Clustered, ExamReport, Flips, Group, Paired
from gnl_semantic.judge.certificate import CERTIFICATE_VERSION, Certificate
from gnl_semantic.judge.certificate_parts import (
    CertifiedBaseline,
    CertifiedClusters,
    CertifiedCounts,
    CertifiedDifference,
    CertifiedDomain,
    CertifiedFlips,
    CertifiedLatency,
    CertifiedRate,
)


def issue_certificate(report: ExamReport, *, valid_days: int | None = None) -> Certificate:
    """Return the certificate of a report.

    Args:
        report: A report whose status is 'provisional' or 'certified'.
        valid_days: Days from the end of the exam to the expiry, 1 to `MAX_VALID_DAYS`; None writes no expiry.

    Raises:
        ValueError: The report failed, or `valid_days` is out of range.
    """
    if report.status == "failed":
        raise ValueError("a failed exam earns no certificate")
    return Certificate.issue(**_fields(report, valid_days))


def stated(report: ExamReport) -> dict[str, object]:
    """Return what a certificate of this report states, by its names on disk, without expiry, hash and signature.

    A failed report has such fields too, with its status: a verifier compares them.
    """
    certificate = Certificate.model_construct(**_fields(report, None))  # type: ignore[arg-type]
    return certificate.model_dump(by_alias=True, exclude={"expires_at", "sha256", "signature"}, warnings=False)


def _fields(report: ExamReport, valid_days: int | None) -> dict[str, object]:
    if valid_days is not None and not 1 <= valid_days <= MAX_VALID_DAYS:
        raise ValueError(f"valid_days is {valid_days}, must lie in 1..{MAX_VALID_DAYS}")
    recall, alarms = report.bars
    origin, fixtures, latency = report.provenance, report.fixtures, report.latency
    return {
        "v": CERTIFICATE_VERSION,
        "fixture_set_id": fixtures.set_id,
        "judge_model_id": report.judge.model_id,
        "judge_prompt_version": origin.prompt_version,
        "paraphrase_recall": recall.rate.value or 0.0,
        "near_miss_fp": alarms.rate.value or 0.0,
        "passed_at": origin.finished_at,
        "status": report.status,
        "expires_at": _expiry(origin.finished_at, valid_days),
        "prompt_sha256": origin.prompt_sha256,
        "parser_version": origin.parser_version,
        "ruleset_version": origin.ruleset_version,
        "library_version": origin.library_version,
        "transcript_sha256": origin.transcript_sha256,
        "seed": origin.seed,
        "judge_spec": report.judge.spec,
        "judge_engine": report.judge.engine,
        "judge_parameters": dict(report.judge.parameters),
        "fixture_set_name": fixtures.name,
        "fixture_set_private": fixtures.private,
        "fixture_set_sampled_from": fixtures.sampled_from,
        "pairs_by_label": dict(fixtures.by_label),
        "pairs_by_language": dict(fixtures.by_language),
        "counts_by_label": {group.name: CertifiedCounts(**asdict(group.counts)) for group in report.groups["label"]},
        "recall": _rate(recall),
        "false_alarms": _rate(alarms),
        "recall_by_domain": _clusters(recall.by_domain),
        "false_alarms_by_domain": _clusters(alarms.by_domain),
        "worst_domain": report.worst_domain,
        "worst_domain_right": _domain(report.groups["domain"], report.worst_domain),
        "repeat": _flips(report.repeat),
        "order": _flips(report.order),
        "latency": CertifiedLatency(p50_ms=latency.p50, p95_ms=latency.p95, max_ms=latency.max, limit_ms=latency.limit),
        "tokens_in": report.tokens_in,
        "tokens_out": report.tokens_out,
        "baselines": [
            CertifiedBaseline(
                name=base.name,
                paraphrase_recall=base.recall.value or 0.0,
                near_miss_fp=base.false_alarms.value or 0.0,
                recall_difference=_difference(base.recall_difference),
                false_alarm_difference=_difference(base.false_alarm_difference),
            )
            for base in report.baselines
        ],
        "sitting": fixtures.sitting,
    }


def _expiry(passed_at: str, valid_days: int | None) -> str | None:
    if valid_days is None:
        return None
    return (datetime.fromisoformat(passed_at) + timedelta(days=valid_days)).isoformat()


def _rate(bar: Bar) -> CertifiedRate:
    bound = bar.bound if bar.bound is not None else (0.0 if bar.direction == "at-least" else 1.0)
    return CertifiedRate(k=bar.rate.k, n=bar.rate.n, low=bar.rate.low, high=bar.rate.high, bound=bound)


def _clusters(rate: Clustered | None) -> CertifiedClusters | None:
    return None if rate is None else CertifiedClusters(domains=rate.clusters, low=rate.low, high=rate.high)


def _domain(groups: Sequence[Group], name: str | None) -> CertifiedDomain | None:
    right = next((group.right for group in groups if group.name == name), None)
    return None if right is None else CertifiedDomain(k=right.k, n=right.n, low=right.low, high=right.high)


def _difference(pairs: Paired | None) -> CertifiedDifference | None:
    if pairs is None:
        return None
    return CertifiedDifference(
        n=pairs.n,
        judge_only=pairs.first_only,
        baseline_only=pairs.second_only,
        difference=pairs.difference,
        low=pairs.low,
        high=pairs.high,
        p=pairs.p,
    )


def _flips(flips: Flips | None) -> CertifiedFlips | None:
    """Certify the pairs that could be compared, not those that were asked."""
    if flips is None:
        return None
    agreeing, couples = (flips.agreement.k, flips.agreement.n) if flips.agreement else (0, 0)
    return CertifiedFlips(pairs=flips.flips.n, runs=flips.runs, flips=flips.flips.k, couples=couples, agreeing=agreeing)
