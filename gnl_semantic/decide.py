"""Which past work a person should see beside a call: candidates and the call in, one finding out. Pure.

A cosine has chosen candidates and decides nothing here: equal identity fields ask, then the rule ladder asks, drops or
leaves gray. A gray candidate never hides a match that comes after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from gnl_core.identity import Identity, amounts_differ, amounts_of
from gnl_semantic.ladder import Trace, evaluate
from gnl_semantic.past import Past
from gnl_semantic.recall import Candidate, pick_gray
from gnl_semantic.rules import Rules


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """A record worth a look.

    Attributes:
        past: The record.
        score: Cosine with the call, -1 to 1; None where the record has no vector of this embedder.
        exact: Whether its identity folds like the call's.
    """

    past: Past
    score: float | None
    exact: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a look at the candidates came to.

    Attributes:
        asked: The record that a person should see; None where there is nothing to ask.
        origin: Which rung asks.
        traces: Rules that made the match.
        amounts_differ: Amount fields that differ from the record's, also where only one side has a number.
        gray: The one candidate that a judge would be shown; None where something is asked, or nothing is gray.
        dropped_discriminator: Candidates whose discriminators differ.
        dropped_identity: Candidates whose identity differs and that no rule settled.
        dropped_by_rule: Candidates that a rule separated.
    """

    asked: Scored | None = None
    origin: Literal["identity", "rule"] = "identity"
    traces: tuple[Trace, ...] = ()
    amounts_differ: tuple[str, ...] = ()
    gray: Scored | None = None
    dropped_discriminator: int = 0
    dropped_identity: int = 0
    dropped_by_rule: int = 0


def decide(identity: Identity, candidates: Sequence[Scored], *, rules: Rules | None) -> Finding:
    """Return what to ask, or why there is nothing to ask.

    Args:
        identity: The call's.
        candidates: In any order; records without a cosine are looked at last.
        rules: Options of the ladder; None leaves every unequal identity gray.
    """
    discriminated = separated = 0
    grays: list[Scored] = []
    for one in sorted(candidates, key=_order):
        if not _same(one.past.discriminators, identity.discriminators):
            discriminated += 1
            continue
        if _same(one.past.identity, identity.values):
            return _asked(identity, one, "identity", ())
        if rules is None:
            grays.append(one)
            continue
        result = evaluate(one.past.identity, identity.values, rules)
        match result.outcome:
            case "match":
                return _asked(identity, one, "rule", result.traces)
            case "separate":
                separated += 1
            case "gray":
                grays.append(one)
    return Finding(
        gray=_gray(identity, grays),
        dropped_discriminator=discriminated,
        dropped_identity=len(grays),
        dropped_by_rule=separated,
    )


def _same(a: Mapping[str, str], b: Mapping[str, str]) -> bool:
    """Whether two records say the same; a field that was declared since says nothing in the older one."""
    return all(a.get(name, "") == b.get(name, "") for name in {*a, *b})


def _order(one: Scored) -> tuple[float, int, str]:
    """Best cosine first; of equals the earliest."""
    return (2.0 if one.score is None else -one.score, one.past.at, one.past.args_hash)


def _asked(identity: Identity, one: Scored, origin: Literal["identity", "rule"], traces: tuple[Trace, ...]) -> Finding:
    differ = amounts_differ(one.past.amounts, amounts_of(identity), one_sided=True)
    return Finding(asked=one, origin=origin, traces=traces, amounts_differ=differ)


def _gray(identity: Identity, grays: Sequence[Scored]) -> Scored | None:
    pairs = [
        (Candidate(row, -1.0 if one.score is None else one.score, one.exact), one.past.identity)
        for row, one in enumerate(grays)
    ]
    place = pick_gray(identity.values, pairs)
    return grays[place] if place is not None else None
