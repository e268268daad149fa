"""The threshold in the built-in model's profile is the one that the shipped pairs give."""

import math

import numpy as np
import pytest

from gnl_fixtures import load_shipped
from gnl_qualify.calibration.measure import sentence_of
from gnl_qualify.calibration.thresholds import fitted
from gnl_qualify.items import identity_of
from gnl_semantic.embedder import load_embedder
from gnl_semantic.embedder.builtin import MODELS

# The nine lowest of 857 decide: at most eight may be lost.
LOWEST = {
    "canonical": ("tr-205", "2-eu-301", "tr-204", "2-tr-244", "tr-203", "2-tr-243", "2-en-289", "2-w-271", "en-216"),
    "bare": ("tr-205", "2-tr-292", "2-eu-301", "tr-204", "2-tr-244", "en-216", "2-w-271", "tr-203", "2-eu-303"),
}
# int8 activations move a cosine by up to 0.003.
TOLERANCE = {"local:multilingual-e5-small@q4": 1e-6, "local:multilingual-e5-small@q4-int8act": 0.003}


@pytest.fixture(scope="module")
def shipped():
    return load_shipped("calibration")


async def cosines(embedder, pairs, form):
    sides = {
        side: await embedder.embed([sentence_of(identity_of(pair, side), form) for pair in pairs])
        for side in ("a", "b")
    }
    return np.einsum("ij,ij->i", sides["a"], sides["b"])


def known(embedder, form):
    (one,) = (one for one in embedder.profile.measured if one.form == form)
    return one


@pytest.mark.parametrize("form", ["canonical", "bare"])
async def test_the_lowest_paraphrases_give_the_threshold(builtin, shipped, form):
    measured = known(builtin, form)
    assert measured.set_id == shipped.set_id
    paraphrases = shipped.labelled("dup-paraphrase")
    names = ["cal2" + name.removeprefix("2") if name[0] == "2" else f"cal-{name}" for name in LOWEST[form]]
    assert len(names) == math.floor(0.01 * len(paraphrases)) + 1
    lowest = await cosines(builtin, [pair for pair in paraphrases if pair.id in names], form)
    rest = await cosines(builtin, [pair for pair in paraphrases if pair.id not in names][::20], form)
    # As if all others stood above: their number alone matters.
    found = fitted(np.concatenate([lowest, np.ones(len(paraphrases) - len(lowest), np.float32)]))
    tolerance = TOLERANCE[builtin.model_id]
    assert measured.value - tolerance <= found < measured.value + 0.001 + tolerance
    assert rest.min() >= found - tolerance
    assert measured.low <= measured.value <= measured.high


@pytest.mark.parametrize("form", ["canonical", "bare"])
async def test_what_it_lets_through_is_what_the_profile_says(q4, shipped, form):
    measured = known(q4, form)
    unrelated = await cosines(q4, shipped.labelled("unrelated"), form)
    assert float((unrelated >= np.float32(measured.value)).mean()) == pytest.approx(measured.unrelated_passed)
    assert np.percentile(unrelated, 5) == pytest.approx(measured.unrelated_p05, abs=0.001)


def test_the_profile_takes_the_canonical_one(builtin):
    profile = builtin.profile
    assert profile.threshold_measured
    assert profile.candidate_threshold == profile.threshold_for("canonical") == known(builtin, "canonical").value
    assert profile.threshold_for("bare") == known(builtin, "bare").value
    assert builtin.warnings == ()


def test_the_common_default_is_refused_aloud(model_cache):
    embedder = load_embedder("local", cache_dir=model_cache, candidate_threshold=0.60)
    (warning,) = embedder.warnings
    assert "0.6 separates nothing" in warning
    assert embedder.profile.candidate_threshold == 0.60


def test_every_shipped_graph_is_measured():
    assert all({one.form for one in model.thresholds} == {"canonical", "bare"} for model in MODELS.values())
