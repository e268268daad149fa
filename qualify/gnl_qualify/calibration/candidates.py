"""The candidate search in threads, as the runtime makes it: is the right record found, and would a judge see it?

A thread is made of a repeat's own earlier record, at a drawn place, and of records that name other jobs: of the same
tool as far as the sample has them, of other tools after that. Records that a label, or an equal fold, ties to the
repeat's job are left out, so that there is one right answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from gnl_fixtures import Label, Pair
from gnl_qualify.calibration.measure import FORMS, Measured, Progress
from gnl_qualify.items import identity_of
from gnl_qualify.stats import rate
from gnl_reports.calibration_model import CandidateRow
from gnl_semantic.embedder.port import Vectors
from gnl_semantic.ladder import evaluate
from gnl_semantic.recall import Candidate, FoldKey, find_candidates, fold_key, pick_gray, top_k
from gnl_semantic.threshold import SentenceForm

THREADS = (10, 100, 1_000)
"""Records in a thread."""
REPEATS = 1_000
"""Most repeats of a label that are looked for in each form and length."""
LABELS_SOUGHT: tuple[Label, ...] = ("dup-paraphrase", "dup-exact")

Ints = NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class _Pool:
    """The texts of the sample: first every `a`, then every `b`.

    Attributes:
        values: Identity of each.
        folds: Its fold key.
        tools: Number of its tool.
        jobs: Number of its job: equal where a label or a fold says that two texts name one.
    """

    values: Sequence[Mapping[str, str]]
    folds: Sequence[FoldKey]
    tools: Ints
    jobs: Ints


def candidate_rows(
    measured: Measured, thresholds: Mapping[SentenceForm, float], *, seed: int, progress: Progress
) -> tuple[CandidateRow, ...]:
    """Return a row for each form, label and length of thread; a length that the sample cannot fill measures nothing.

    Args:
        measured: The pass over the pairs; its kept vectors are searched.
        thresholds: Least cosine, by form.
        seed: Of threads and places.
        progress: See `Progress`.
    """
    pairs = [measured.fixtures.pairs[place] for place in measured.sample]
    pool = _pool(pairs)
    rows: list[CandidateRow] = []
    todo = [(form, label, records) for form in FORMS for label in LABELS_SOUGHT for records in THREADS]
    vectors = {form: np.concatenate(measured.vectors[form]) for form in FORMS}
    for done, (form, label, records) in enumerate(todo, 1):
        sought = [place for place, pair in enumerate(pairs) if pair.label == label][:REPEATS]
        tally: Counter[str] = Counter()
        for place in sought:
            thread = _thread(pool, place, records, np.random.default_rng([seed, place, records]))
            if thread is not None:
                tally.update(_search(pool, vectors[form], place, thread, thresholds[form]))
        rows.append(_row(form, label, records, thresholds[form], tally))
        progress("searching threads", done, len(todo))
    return tuple(rows)


def _pool(pairs: Sequence[Pair]) -> _Pool:
    identities = [identity_of(pair, side) for side in ("a", "b") for pair in pairs]
    values = [identity.values for identity in identities]
    folds = [fold_key(one) for one in values]
    names = [pair.tool_name for pair in pairs] * 2
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    # Whatever the tool: a record of another tool fills a thread as if it were one of this tool.
    first: dict[FoldKey, int] = {}
    ties = [(text, first.setdefault(fold, text)) for text, fold in enumerate(folds)]
    ties += [(place, len(pairs) + place) for place, pair in enumerate(pairs) if pair.same_job]
    ends, others = np.array(ties).T
    graph = coo_array((np.ones(len(ties)), (ends, others)), shape=(len(values), len(values)))
    jobs = connected_components(graph, directed=False)[1].astype(np.intp)
    return _Pool(values, folds, np.array([numbers[name] for name in names], np.intp), jobs)


def _thread(pool: _Pool, place: int, records: int, draw: np.random.Generator) -> Ints | None:
    """Return the texts of one thread in order, `place` (the right record) among them; None where they are too few."""
    others = pool.jobs != pool.jobs[place]
    own = pool.tools == pool.tools[place]
    wanted = records - 1
    if int(others.sum()) < wanted:
        return None
    near = np.flatnonzero(others & own)
    chosen = draw.choice(near, min(wanted, len(near)), replace=False)
    far = draw.choice(np.flatnonzero(others & ~own), wanted - len(chosen), replace=False)
    return np.insert(draw.permutation(np.concatenate([chosen, far])), draw.integers(records), place)


def _search(pool: _Pool, vectors: Vectors, place: int, thread: Ints, threshold: float) -> dict[str, int]:
    """Return what is true of the search for one repeat, as ones and zeros, and the records of its own tool."""
    call = len(pool.values) // 2 + place
    right = int(np.flatnonzero(thread == place)[0])
    # An index over the thread finds what this comparison finds.
    exact = [row for row, text in enumerate(thread) if pool.folds[text] == pool.folds[call]]
    matrix = vectors[thread]
    found = find_candidates(matrix, vectors[call], exact, threshold=threshold)
    best = top_k(matrix, vectors[call], threshold=threshold)
    asked, grays = _walk(pool, pool.values[call], thread, found)
    shown = None if asked is not None else pick_gray(pool.values[call], grays)
    is_shown = shown is not None and grays[shown][0].row == right
    return {
        "sought": 1,
        "own_tool": int((pool.tools[thread] == pool.tools[place]).sum()),
        "by_cosine": any(row == right for row, _ in best),
        "candidate": any(one.row == right for one in found),
        "settled": asked == right,
        "other": asked is not None and asked != right,
        "gray": asked is None and any(one.row == right for one, _ in grays),
        "shown": is_shown,
        "reached": asked == right or is_shown,
    }


def _walk(
    pool: _Pool, values: Mapping[str, str], thread: Ints, found: Sequence[Candidate]
) -> tuple[int | None, list[tuple[Candidate, Mapping[str, str]]]]:
    """Return the row the ladder asks about, if any, and the gray candidates before it."""
    grays: list[tuple[Candidate, Mapping[str, str]]] = []
    for one in found:
        theirs = pool.values[thread[one.row]]
        outcome = "match" if values == theirs else evaluate(values, theirs).outcome
        if outcome == "match":
            return one.row, grays
        if outcome == "gray":
            grays.append((one, theirs))
    return None, grays


def _row(form: SentenceForm, label: Label, records: int, threshold: float, tally: Counter[str]) -> CandidateRow:
    n = tally["sought"]
    return CandidateRow(
        form=form,
        label=label,
        records=records,
        same_tool=tally["own_tool"] / (n * records) if n else 0.0,
        threshold=threshold,
        by_cosine=rate(tally["by_cosine"], n),
        candidate=rate(tally["candidate"], n),
        settled=rate(tally["settled"], n),
        other=rate(tally["other"], n),
        shown=rate(tally["shown"], tally["gray"]),
        reached=rate(tally["reached"], n),
        none=rate(n - tally["candidate"], n),
    )
