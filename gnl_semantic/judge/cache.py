"""Verdicts on pairs, kept in the journal: a pair is paid for once, whichever of the two came first.

A verdict is served as long as model, prompt and ruleset are the ones it was given under. A row that cannot be read is
no verdict, and stands in nobody's way.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from gnl_core.journal.port import Applied, Create, Entry, JsonValue, Key, Replace, new_batch
from gnl_core.lock import fence_check
from gnl_core.prior import Subject
from gnl_core.records import FORMAT
from gnl_semantic.judge.verdict import Verdict

_TRIES = 3
"""How often a verdict is written over what came in between, before it is given up as a record."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """What a verdict was given under.

    Attributes:
        judge: Id of the model.
        prompt: Version of the prompt.
        rules: Version of the ruleset that left the pair open.
    """

    judge: str
    prompt: str
    rules: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What stands after a verdict was to be kept.

    Attributes:
        verdict: The one that counts: of two workers with two answers, the first one's.
        cached: Whether it is another worker's.
        stale_replaced: Whether a verdict under another stamp was written over.
    """

    verdict: Verdict
    cached: bool = False
    stale_replaced: bool = False


def read_verdict(entry: Entry | None) -> tuple[Verdict, Stamp] | None:
    """Return the verdict of a row and what it was given under; None where there is none that can be read."""
    value = entry.value if entry is not None else None
    if not isinstance(value, dict) or type(value.get("f")) is not int or value["f"] != FORMAT:
        return None
    match value:
        case {"verdict": str(word), "judge": str(judge), "prompt": str(prompt), "rules": str(rules)}:
            verdict = next((one for one in Verdict if one.value == word), None)
            return None if verdict is None else (verdict, Stamp(judge=judge, prompt=prompt, rules=rules))
        case _:
            return None


def served(entry: Entry | None, stamp: Stamp) -> Verdict | None:
    """Return the verdict of a row if it was given under this very stamp."""
    found = read_verdict(entry)
    return found[0] if found is not None and found[1] == stamp else None


async def keep(
    subject: Subject,
    key: Key,
    entry: Entry | None,
    verdict: Verdict,
    *,
    stamp: Stamp,
    fixture_set: str,
    score: float | None,
) -> Kept:
    """Record a fresh verdict, unless another one under the same stamp came first: then that one counts.

    Args:
        subject: The call that the judge was asked for.
        key: Row of the pair.
        entry: That row as it was read before the judge was asked: only this version of it is written over.
        verdict: What the judge said.
        stamp: What it was said under.
        fixture_set: Id of the set that its certificate rests on, for the record.
        score: Cosine of the two sentences, where there is one.

    Raises:
        JournalError: The store did not take it, or may have.
    """
    value: JsonValue = {
        "f": FORMAT,
        "verdict": verdict.value,
        "judge": stamp.judge,
        "prompt": stamp.prompt,
        "rules": stamp.rules,
        "fixture_set": fixture_set,
        "score": None if score is None else float(score),
        "call": f"{subject.run}/{subject.call}",
    }
    for _ in range(_TRIES):
        write = Create(key, value) if entry is None else Replace(key, entry.version, value)
        ops = (fence_check(subject.root, subject.fence), write)
        result = await subject.journal.apply(ops, batch=new_batch())
        if isinstance(result, Applied):
            return Kept(verdict=verdict, stale_replaced=read_verdict(entry) is not None)
        if result.op == 0:
            logger.warning("run %s is driven by somebody else by now: its verdict is not recorded", subject.root)
            return Kept(verdict=verdict)
        entry = result.found
        winner = served(entry, stamp)
        if winner is not None:
            return Kept(verdict=winner, cached=True)
    logger.warning("a verdict of run %s was not recorded: its row changed %d times", subject.root, _TRIES)
    return Kept(verdict=verdict)
