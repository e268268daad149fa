"""The parts a certificate is made of: camelCase on disk, every share with its counts."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints
from pydantic.alias_generators import to_camel


def _zoned(text: str) -> str:
    if datetime.fromisoformat(text).tzinfo is None:
        raise ValueError("the time has no zone")
    return text


Hex16 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16}$")]
Hex64 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Count = Annotated[int, Field(ge=0, le=1_000_000_000)]
Pairs = Annotated[int, Field(ge=0, le=1_000_000)]
"""Pairs of one exam: bounded, since the check of 'certified' sums over them."""
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Time = Annotated[str, AfterValidator(_zoned)]
"""ISO 8601 with a zone."""


class Part(BaseModel):
    """Common shape of everything inside a certificate: camelCase on disk, nothing unknown, nothing coerced."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="forbid", strict=True, frozen=True, allow_inf_nan=True
    )


class CertifiedRate(Part):
    """A rate as certified: k of n pairs put, its two-sided 95 % Wilson interval, its one-sided 95 % bound.

    The bound is Clopper and Pearson's: of recall over all pairs put, of false alarms over the answered ones alone.
    """

    k: Pairs
    n: Pairs
    low: Share
    high: Share
    bound: Share


class CertifiedClusters(Part):
    """A rate's interval from a bootstrap by domain; None where resampling shows none."""

    domains: Count
    low: Share | None
    high: Share | None


class CertifiedDomain(Part):
    """The domain with the lowest share of right answers: k of n, with its two-sided 95 % Wilson interval."""

    k: Count
    n: Count
    low: Share
    high: Share


class CertifiedDifference(Part):
    """The judge's share of SAME less a baseline's on the same n pairs.

    `low` and `high` are Newcombe's two-sided 95 % interval (method 10 for paired data), `p` is McNemar's, exact.
    """

    n: Count
    judge_only: Count
    baseline_only: Count
    difference: float | None
    low: float
    high: float
    p: Share


class CertifiedCounts(Part):
    """Answers to the pairs of one label, by kind."""

    same: Pairs = 0
    different: Pairs = 0
    unsure: Pairs = 0
    unparsed: Pairs = 0
    error: Pairs = 0
    timeout: Pairs = 0

    @property
    def answered(self) -> int:
        """Pairs that got one of the three words."""
        return self.same + self.different + self.unsure

    @property
    def put(self) -> int:
        """Pairs that were asked."""
        return self.answered + self.unparsed + self.error + self.timeout


class CertifiedFlips(Part):
    """Pairs asked `runs` times in all, and how many changed their answer.

    `agreeing` of all `couples` of answers to one pair are the same word.
    """

    pairs: Count
    runs: Count
    flips: Count
    couples: Count
    agreeing: Count


class CertifiedLatency(Part):
    """Milliseconds of one call; `limit_ms` is the time limit the exam gave it."""

    p50_ms: float | None
    p95_ms: float | None
    max_ms: float | None
    limit_ms: float


class CertifiedBaseline(Part):
    """What a judge without a model scores on the same pairs."""

    name: str
    paraphrase_recall: Share
    near_miss_fp: Share
    recall_difference: CertifiedDifference | None
    false_alarm_difference: CertifiedDifference | None


class CertifiedSignature(Part):
    """An Ed25519 signature over the digest of every field, so that an edited field can be named.

    `public_key` tells which key to look for; trust comes from the reader's own list, never from this field.
    """

    algorithm: Literal["ed25519"]
    public_key: Hex64
    fields: dict[str, Hex64]
    value: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{128}$")]
