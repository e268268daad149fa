import json
from importlib.resources import files

import numpy as np
import pytest

from gnl_fixtures import PHENOMENA, load_shipped
from gnl_qualify.train import rows as rows_module
from gnl_qualify.train.augment import Source, make_near_misses
from gnl_qualify.train.fit import Fitted, curve, dump
from gnl_qualify.train.rows import COSINES, Table, build_table, sources
from gnl_qualify.train.validate import SHAPES, _labels, _threshold, fit_all
from gnl_semantic.embedder import load_embedder
from gnl_semantic.judge.local.features import COSINE_NAMES, NAMES, collect, cosines
from gnl_semantic.judge.local.model import read_model, shipped_model

FIXTURES = load_shipped("calibration")
PAIRS = sources(FIXTURES)


async def test_training_again_gives_the_trees_that_ship():
    again = fit_all(await build_table(PAIRS, None))
    shipped = json.loads((files("gnl_semantic.judge.local") / "parameters.json").read_bytes())
    assert shipped["trained_on"] == FIXTURES.set_id
    assert again.start == shipped["start"]
    assert again.trees == shipped["trees"]


async def test_the_stored_cosines_are_the_embedders():
    made = make_near_misses(PAIRS)
    chosen = [*range(0, len(PAIRS), 101), *range(len(PAIRS), len(PAIRS) + len(made), 211)]
    every = (*PAIRS, *made)
    stored = json.loads(COSINES.read_text())
    assert len(stored) == len(every)
    embedder = load_embedder()
    assert embedder.model_id == shipped_model().parameters.embedder
    for place in chosen:
        evidence = collect(every[place].a, every[place].b)
        fresh = cosines(evidence, await embedder.embed(evidence.texts))
        assert [fresh[name] for name in COSINE_NAMES] == pytest.approx(stored[place], abs=0.0025)


class Fixed:
    """An embedder of two directions, by the length of a text."""

    model_id = "fixed"

    def __init__(self, angle):
        self.angle = angle

    async def embed(self, texts):
        angles = np.array([self.angle * (len(text) % 7) for text in texts])
        return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


async def test_a_stored_cosine_stands_against_a_last_bit_and_gives_way_to_another_model(tmp_path):
    store = tmp_path / "cosines.json"
    with pytest.raises(ValueError, match="run make train"):
        await build_table(PAIRS[:20], None, store=store)
    first = await build_table(PAIRS[:20], Fixed(0.3), store=store)
    kept = store.read_bytes()
    near = await build_table(PAIRS[:20], Fixed(0.3003), store=store)
    assert store.read_bytes() == kept
    assert np.array_equal(first.features, near.features)
    other = await build_table(PAIRS[:20], Fixed(0.5), store=store)
    assert store.read_bytes() != kept
    assert not np.array_equal(first.features, other.features)
    assert np.array_equal(other.features, (await build_table(PAIRS[:20], None, store=store)).features)


def test_made_near_misses_are_the_same_each_time_and_hang_on_their_pair_alone():
    made = make_near_misses(PAIRS)
    assert made == make_near_misses(PAIRS)
    numbers = {(one.a, one.b) for one in made if one.kind == "number"}
    some = [pair for pair in PAIRS if pair.label == "dup-paraphrase"][::3]
    assert {(one.a, one.b) for one in make_near_misses(some) if one.kind == "number"} <= numbers


@pytest.mark.parametrize(
    ("label", "kinds"),
    [("dup-paraphrase", {"number", "word"}), ("near-miss", {"rewritten"}), ("unrelated", set()), ("dup-exact", set())],
)
def test_what_is_made_of_a_pair_differs_from_it_in_one_side(label, kinds):
    chosen = [pair for pair in PAIRS if pair.label == label]
    made = make_near_misses(chosen)
    assert {one.kind for one in made} == kinds
    assert all(one.a == chosen[one.source].a and one.b != chosen[one.source].b for one in made)


def test_an_exchanged_number_is_another_number():
    pairs = [Source(f"p{n}", "d", "en", "dup-paraphrase", "tv 42", "42 tv") for n in range(200)]
    made = [one.b for one in make_near_misses(pairs) if one.kind == "number"]
    assert len(set(made)) > 5
    assert all(int(text.split()[0]) != 42 and text.endswith(" tv") for text in made)


def test_every_shape_of_near_miss_is_left_out_once():
    assert sorted(tag for shape in SHAPES.values() for tag in shape) == sorted(PHENOMENA["near-miss"])


@pytest.fixture(scope="module")
def small():
    """A fit on few rows of noise around one column."""
    dice = np.random.default_rng(1)
    features = dice.random((400, len(NAMES))).round(4)
    same = features[:, NAMES.index("ratio")] + 0.1 * dice.random(400) > 0.5
    return features, same, Fitted(features, same, np.ones(400))


def test_the_judge_sums_the_trees_as_the_trainer_does(small):
    features, same, fitted = small
    slope, intercept = curve(fitted.sums(features), same)
    head = {
        **shipped_model().parameters.model_dump(exclude={"trees"}),
        "slope": slope,
        "intercept": intercept,
        "start": fitted.start,
    }
    model = read_model(dump(head, fitted.trees))
    expected = 1 / (1 + np.exp(-np.clip(slope * fitted.sums(features) + intercept, -60, 60)))
    assert [model.probability(row) for row in features.tolist()] == pytest.approx(list(expected))


def test_evidence_against_never_speaks_for_one_job(small):
    _, _, fitted = small
    base = np.full((50, len(NAMES)), 0.5)
    for name, sign in (("numbers_contradict", -1), ("rest_low", -1), ("matched_share", 1)):
        raised = base.copy()
        raised[:, NAMES.index(name)] = np.linspace(0, 3, 50)
        assert (sign * np.diff(fitted.sums(raised)) >= -1e-4).all()


def test_fitting_twice_gives_the_same_bytes(small):
    features, same, fitted = small
    again = Fitted(features, same, np.ones(400))
    assert dump({"start": again.start}, again.trees) == dump({"start": fitted.start}, fitted.trees)


def test_the_settling_distance_is_wider_than_one_rounding():
    assert rows_module._SAME > 2 * 10**-3


_LOW = [0.2, 0.2, 0.2, 0.2]


@pytest.mark.parametrize(
    ("split", "probabilities", "threshold"),
    [
        ("author", _LOW, 0.3),
        ("author", [0.2, 0.8, 0.2, 0.2], 0.81),
        ("domain", [0.2, 0.2, 0.9, 0.2], 0.91),
        ("shape", [0.7, 0.2, 0.2, 0.2], 0.71),
        ("author", [0.2, 0.2, 0.2, 0.995], 0.3),  # its two texts are in two scripts: never SAME
    ],
)
def test_the_worst_split_chooses_the_threshold(split, probabilities, threshold):
    texts = [("a", "b")] * 3 + [("a", "б")]
    pairs = tuple(Source(f"cal{n % 2}-{n}", "d", "en", "near-miss", *both) for n, both in enumerate(texts))
    table = Table(pairs, (), np.zeros((4, len(NAMES))))
    by_split = {name: np.array(_LOW) for name in ("author", "domain", "shape")} | {split: np.array(probabilities)}
    assert _threshold(table, _labels(table), by_split) == threshold


def test_no_threshold_is_an_error_and_not_a_guess():
    pairs = tuple(Source(f"cal-{n}", "d", "en", "near-miss", "a", "b") for n in range(4))
    table = Table(pairs, (), np.zeros((4, len(NAMES))))
    with pytest.raises(ValueError, match="no threshold"):
        _threshold(table, _labels(table), dict.fromkeys(("author", "domain", "shape"), np.ones(4)))
