"""What a judge came to about one pair."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from gnl_core.journal.port import JsonValue

Outcome = Literal["same", "different", "unsure", "skipped"]

Cause = Literal["", "budget", "canonical-too-long", "timeout", "error", "parse-fail"]
"""Why there is no verdict; '' where there is one.

'budget': the request's calls are used up, or the journal could not say. 'canonical-too-long': a sentence is too long to
be shown whole. 'timeout': no answer in time. 'parse-fail': an answer that is none of the three words. 'error': anything
else that went wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What a judge came to about one pair.

    Attributes:
        outcome: 'same' buys one question to a person; the others buy nothing.
        cause: Why it is 'skipped'.
        cached: Whether the verdict is one that was recorded before, or by another worker at the same moment.
        latency_ms: Milliseconds that the call of the model took; 0 where none was made.
        stale_replaced: Whether a verdict by another model, prompt or ruleset stood there and was replaced.
        evidence: What the judge's certificate says of it; see `Certificate.evidence`.
        called: Whether the model was called, which costs one of the request's calls whatever came of it.
    """

    outcome: Outcome
    cause: Cause = ""
    cached: bool = False
    latency_ms: int = 0
    stale_replaced: bool = False
    evidence: Mapping[str, JsonValue] = field(default_factory=dict)
    called: bool = False
