"""A calibration from the first pair to the report, and the object that a notebook gets."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gnl_fixtures import LABELS, FixtureSet, Label
from gnl_qualify.calibration import bands, candidates, chain, frames, lists, thresholds
from gnl_qualify.calibration.measure import FORMS, Measured, Progress, measure
from gnl_qualify.stats import rate
from gnl_reports.calibration_model import CalibrationReport, ThresholdRow
from gnl_semantic.embedder.port import Embedder, EmbedderProfile
from gnl_semantic.judge.transport import JudgeTransport
from gnl_semantic.ladder import RULESET_VERSION
from gnl_semantic.threshold import SentenceForm

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Calibration:
    """What a calibration found.

    Attributes:
        report: Every figure, as plain values.
        measured: Cosine and rung of every pair.
        said: What a judge said of each pair, see `chain.answers_of`; None without a judge.
    """

    report: CalibrationReport
    measured: Measured
    said: NDArray[np.uint8] | None

    def frames(self) -> dict[str, DataFrame]:
        """Return the figures as tidy tables by name; 'pairs' has one row a pair.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        return frames.frames_of(self.report, self.measured, self.said)

    def to_json(self) -> str:
        """Return the report as JSON; the cosines of single pairs are in `frames` only."""
        return json.dumps(self.report.to_json(), ensure_ascii=False, indent=2) + "\n"

    def to_html(self, *, redact: bool = False) -> str:
        """Return the report as one HTML document, see `gnl_reports.calibration.render_calibration_html`."""
        from gnl_reports.calibration import render_calibration_html  # noqa: PLC0415

        return render_calibration_html(self.report, redact=redact)


async def calibrate(
    embedder: Embedder,
    fixtures: FixtureSet,
    *,
    judge: JudgeTransport | None = None,
    seed: int = 1,
    timeout_s: float = 30.0,
    concurrency: int = 4,
    progress: Progress | None = None,
) -> Calibration:
    """Measure an embedder, the ladder with its default rules, and a judge if there is one, on labelled pairs.

    Args:
        embedder: Whose cosines are measured.
        fixtures: Pairs with at least one of each of `measure.NEEDED`. What needs a label that has no pairs is not
            measured, and a warning says so.
        judge: Answers the gray pairs, once each; left open.
        seed: Of every draw.
        timeout_s: Of one call of the judge, in seconds.
        concurrency: Its calls in flight.
        progress: Told how far the work has come.

    Raises:
        CalibrationSetError: A label that is needed has no pairs; nothing has been embedded.
        PairUnusableError: A value of a pair identifies no job.
        EmbedderError: The embedder failed.
    """
    tell = progress or _silent
    measured = await measure(embedder, fixtures, seed=seed, progress=tell)
    rows = thresholds.threshold_rows(measured, seed=seed)
    used = _used(embedder.profile, rows)
    threshold = used["canonical"]
    gray = chain.gray(measured, threshold)
    said = None
    if judge is not None:
        said = await chain.answers_of(
            judge,
            fixtures.pairs,
            map(int, np.flatnonzero(gray)),
            timeout_s=timeout_s,
            concurrency=concurrency,
            progress=tell,
        )
    centring = thresholds.centring_rows(measured, seed=seed)
    here = not embedder.profile.threshold_measured
    by_label: dict[str, int] = dict(Counter(pair.label for pair in fixtures.pairs))
    missing = [label for label in LABELS if label not in by_label]
    by_label |= dict.fromkeys(missing, 0)
    report = CalibrationReport(
        embedder=embedder.model_id,
        judge=None if judge is None else judge.info.model_id,
        judge_calls=rate(int(gray.sum()), len(gray)),
        threshold=threshold,
        threshold_source="here" if here else "profile",
        chain_form="canonical",
        set_name=fixtures.name,
        set_id=fixtures.set_id,
        private=fixtures.private,
        by_label=by_label,
        seed=seed,
        sampled=len(measured.sample),
        ruleset_version=RULESET_VERSION,
        library_version=version("gnl-semantic"),
        warnings=(
            *_unmeasured(missing),
            *_warnings(rows, embedder),
            *(() if here else getattr(embedder, "warnings", ())),
        ),
        thresholds=rows,
        cosines=bands.cosine_rows(measured),
        levels=bands.level_rows(measured),
        histogram=bands.bin_rows(measured),
        bands=bands.band_rows(measured),
        areas=bands.area_rows(measured),
        roc=bands.roc_rows(measured),
        centring=centring,
        centring_better={
            form: None if "unrelated" in missing else thresholds.clearly_better(centring, form) for form in FORMS
        },
        candidates=candidates.candidate_rows(measured, used, seed=seed, progress=tell),
        ladder=chain.ladder_rows(measured),
        chain=chain.chain_rows(measured, threshold, said),
        arms=chain.arm_rows(measured, threshold, said),
        languages=lists.language_rows(measured, used),
        blind_spots=lists.blind_spots(measured, threshold),
        below=lists.below(measured, threshold),
        ladder_wrong=lists.ladder_wrong(measured),
    )
    return Calibration(report=report, measured=measured, said=said)


def _silent(stage: str, done: int, total: int) -> None:
    """Tell nobody."""


def _used(profile: EmbedderProfile, rows: tuple[ThresholdRow, ...]) -> Mapping[SentenceForm, float]:
    """Return the threshold of each form that the runtime would use: the profile's where one was measured."""
    known = {one.form for one in profile.measured} | ({"canonical"} if profile.threshold_measured else set())
    return {row.form: profile.threshold_for(row.form) if row.form in known else row.value for row in rows}


def _unmeasured(missing: Sequence[Label]) -> list[str]:
    """Return what a set without some labels leaves open, a sentence each."""
    needs = {
        "dup-exact": "how equal repeats fare is not measured, and 'repeats' and 'same job' are paraphrases alone",
        "unrelated": "whether a threshold separates anything at all, what 0.60 lets through and whether a mean vector "
        "helps are not measured, and questions about different jobs are counted on near-misses alone",
    }
    return [f"no pair is labelled {label}: {needs[label]}" for label in missing]


def _warnings(rows: tuple[ThresholdRow, ...], embedder: Embedder) -> list[str]:
    found: list[str] = []
    profile = embedder.profile
    for row in rows:
        if row.separates is False:
            found.append(
                f"{row.form} form: a threshold that keeps 99 % of the paraphrases separates nothing: {row.value:.3f} "
                f"lets {row.unrelated.k} of {row.unrelated.n} unrelated pairs through"
            )
        if row.default.n and row.default.k == row.default.n:
            found.append(
                f"{row.form} form: 0.60, the default for an unknown embedder, separates nothing here: it lets all "
                f"{row.default.n} unrelated pairs through"
            )
        if row.low is None:
            found.append(
                f"{row.form} form: {row.kept.n} paraphrases are too few for the lower end of the threshold's interval "
                "(about 370 have one)"
            )
    if not profile.threshold_measured:
        option = getattr(embedder, "threshold_option", "candidate_threshold={:.3f}")
        found.append(
            f"nobody had measured this embedder, so at run time its threshold is {profile.candidate_threshold:.2f}: "
            f"configure {option.format(rows[0].value)} (canonical form)"
        )
    return found
