"""The whole chain on each pair: an earlier record, a new call, and the rung at which it ends."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from gnl_fixtures import LABELS, Label, Pair
from gnl_qualify.calibration.bands import LEVELS
from gnl_qualify.calibration.measure import RUNGS, Measured, Progress
from gnl_qualify.items import identity_of
from gnl_qualify.stats import rate
from gnl_reports.calibration_model import ArmRow, ChainRow, LadderRow
from gnl_semantic.judge.prompt import PROMPT_VERSION, PROMPTS
from gnl_semantic.judge.transport import JudgeTransport, within
from gnl_semantic.judge.verdict import Verdict, parse_verdict
from gnl_semantic.rate import Rate

Mask = NDArray[np.bool_]

GROUPS: Mapping[str, tuple[Label, ...]] = {
    "repeats": ("dup-exact", "dup-paraphrase"),
    "dup-exact": ("dup-exact",),
    "dup-paraphrase": ("dup-paraphrase",),
    "look-alikes": ("near-miss",),
    "unrelated": ("unrelated",),
}
DIFFERENT: tuple[Label, ...] = ("near-miss", "unrelated")
ANSWERS = ("same", "different", "unsure", "unparsed", "error")
NOT_ASKED = 255
"""Of a pair that no judge was shown."""


def candidates(measured: Measured, threshold: float) -> Mask:
    """Return which pairs the candidate search proposes: by cosine of the canonical form, or by the exact index."""
    found: Mask = measured.alike | (measured.cosines["canonical"] >= np.float32(threshold))
    return found


def gray(measured: Measured, threshold: float) -> Mask:
    """Return which pairs a judge would be shown."""
    found: Mask = candidates(measured, threshold) & (measured.rungs == RUNGS.index("gray"))
    return found


async def answers_of(
    judge: JudgeTransport,
    pairs: Sequence[Pair],
    places: Iterable[int],
    *,
    timeout_s: float,
    concurrency: int,
    progress: Progress,
) -> NDArray[np.uint8]:
    """Put pairs to a judge in the prompt in force, once each; return the place in `ANSWERS` of what it said.

    Args:
        judge: Whom to ask; left open.
        pairs: All pairs.
        places: Of the pairs to put; the others get `NOT_ASKED`.
        timeout_s: Seconds a call.
        concurrency: Calls in flight.
        progress: See `Progress`.
    """
    said = np.full(len(pairs), NOT_ASKED, np.uint8)
    todo = list(places)
    waiting = iter(todo)
    done = 0

    async def worker() -> None:
        nonlocal done
        for place in waiting:
            said[place] = ANSWERS.index(await _answer(judge, pairs[place], timeout_s))
            done += 1
            progress("asking the judge", done, len(todo))

    async with asyncio.TaskGroup() as group:
        for _ in range(concurrency):
            group.create_task(worker())
    return said


async def _answer(judge: JudgeTransport, pair: Pair, timeout_s: float) -> str:
    prompt = PROMPTS[PROMPT_VERSION]
    first, second = identity_of(pair, "a").sentence, identity_of(pair, "b").sentence
    user = prompt.render(pair.tool_name, first, second)
    try:
        reply = await within(timeout_s, judge.complete(prompt.system, user), judge=judge.info.model_id)
        verdict = parse_verdict(reply.text)
    except Exception:  # a judge is foreign code; its faults are figures
        return "error"
    return "unparsed" if verdict is None else verdict.value


def ladder_rows(measured: Measured) -> tuple[LadderRow, ...]:
    """Return what the ladder makes of each label, and of each label and language."""
    counts: dict[tuple[str, str], Counter[str]] = {}
    for pair, rung in zip(measured.fixtures.pairs, measured.rungs, strict=True):
        for key in (("label", pair.label), ("label and language", f"{pair.label}, {pair.lang}")):
            counts.setdefault(key, Counter())[RUNGS[rung]] += 1
    order = {label: place for place, label in enumerate(LABELS)}
    keys = sorted(counts, key=lambda key: (key[0], order[key[1].partition(",")[0]], key[1]))  # type: ignore[index]
    return tuple(_ladder_row(group, name, counts[group, name]) for group, name in keys)


def _ladder_row(group: str, name: str, found: Counter[str]) -> LadderRow:
    n = found.total()
    identical, matched, separated, undecided = (rate(found[rung], n) for rung in RUNGS)
    return LadderRow(group=group, name=name, identical=identical, matched=matched, separated=separated, gray=undecided)


def chain_rows(measured: Measured, threshold: float, said: NDArray[np.uint8] | None) -> tuple[ChainRow, ...]:
    """Return where the chain ends, for every group of `GROUPS`; the outcomes of a group add up to its pairs.

    Args:
        measured: The pass over the pairs.
        threshold: Least cosine of the canonical form.
        said: A judge's answers, see `answers_of`; None without a judge.
    """
    outcomes = _outcomes(measured, threshold, said)
    rows: list[ChainRow] = []
    for group, labels in GROUPS.items():
        members = measured.of(*labels)
        for (outcome, asks), mask in outcomes.items():
            k = int((mask & members).sum())
            rows.append(ChainRow(group=group, outcome=outcome, asks=asks, pairs=rate(k, int(members.sum()))))
    return tuple(rows)


def _outcomes(
    measured: Measured, threshold: float, said: NDArray[np.uint8] | None
) -> dict[tuple[str, bool], NDArray[np.bool_]]:
    proposed, undecided = candidates(measured, threshold), gray(measured, threshold)

    def rung(name: str) -> Mask:
        stops: Mask = proposed & (measured.rungs == RUNGS.index(name))
        return stops

    found = {
        ("asked: equal identity", True): rung("identity"),
        ("asked: ladder", True): rung("match"),
        ("not asked: below the threshold", False): ~proposed,
        ("not asked: separated by the ladder", False): rung("separate"),
    }
    if said is None:
        return {**found, ("not asked: gray, no judge", False): undecided}
    judged = {
        (f"asked: judge says {word}" if word == Verdict.SAME.value else f"not asked: judge, {word}", word == "same"): (
            undecided & (said == place)
        )
        for place, word in enumerate(ANSWERS)
    }
    return {**found, **judged}


def arm_rows(measured: Measured, threshold: float, said: NDArray[np.uint8] | None) -> tuple[ArmRow, ...]:
    """Return what each way of asking finds and costs: by the score alone, by the ladder, with a judge."""
    paraphrase, different = measured.of("dup-paraphrase"), measured.of(*DIFFERENT)
    cosines = measured.cosines["canonical"]

    def row(arm: str, level: float, asked: Mask) -> ArmRow:
        return ArmRow(arm=arm, threshold=level, recall=_share(asked, paraphrase), alarms=_share(asked, different))

    def ladder(level: float) -> Mask:
        settled: Mask = candidates(measured, level) & np.isin(
            measured.rungs, (RUNGS.index("identity"), RUNGS.index("match"))
        )
        return settled

    levels = sorted({*LEVELS, threshold})
    same = measured.of("dup-exact", "dup-paraphrase")
    rows = [row("score alone", level, cosines >= np.float32(level)) for level in levels]
    rows.append(row("ladder", threshold, ladder(threshold)))
    if said is not None:
        asked = ladder(threshold) | (gray(measured, threshold) & (said == ANSWERS.index("same")))
        rows.append(row("ladder and this judge", threshold, asked))
    best = "ladder and a judge that is never wrong"
    rows += [row(best, level, ladder(level) | (gray(measured, level) & same)) for level in levels]
    return tuple(rows)


def _share(mask: Mask, members: Mask) -> Rate:
    return rate(int((mask & members).sum()), int(members.sum()))
