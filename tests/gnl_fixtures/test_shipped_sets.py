"""What the shipped sets promise: counts, languages, independence, and ids that pin them."""

from collections import Counter

import pytest
from sklearn.feature_extraction.text import TfidfVectorizer

from gnl_core import normalize_identity_value
from gnl_fixtures import LABELS, PHENOMENA, load_shipped

NAMES = ("calibration", "heldout")
SET_IDS = {"calibration": "32c2c21f6f955325", "heldout": "166b8deb4e23dd20"}


@pytest.mark.parametrize("name", NAMES)
def test_the_set_id_is_pinned(name):
    shipped = load_shipped(name)
    assert shipped.set_id == SET_IDS[name]
    assert not shipped.private


@pytest.mark.parametrize("name", NAMES)
def test_the_set_is_large_enough_for_its_claims(name):
    pairs = load_shipped(name).pairs
    labels = Counter(pair.label for pair in pairs)
    langs = Counter(pair.lang for pair in pairs)
    assert labels["dup-paraphrase"] >= 300
    assert labels["near-miss"] >= 300
    assert labels["dup-exact"] >= 100
    assert labels["unrelated"] >= 100
    assert min(langs["tr"], langs["en"]) >= 160
    assert min(langs["de"], langs["fr"], langs["es"]) >= 60
    assert min(langs["ar"], langs["ru"], langs["zh"], langs["ja"]) >= 25
    assert langs["mixed"] >= 40
    assert len({pair.domain for pair in pairs}) >= 7
    assert all(pair.phenomena and pair.note for pair in pairs)


@pytest.mark.parametrize("name", NAMES)
def test_one_domain_has_one_tool(name):
    pairs = load_shipped(name).pairs
    assert len({(pair.domain, pair.tool_name) for pair in pairs}) == len({pair.domain for pair in pairs})


@pytest.mark.parametrize("name", NAMES)
def test_exactly_the_dup_exact_pairs_are_equal_after_normalising(name):
    for pair in load_shipped(name).pairs:
        equal = normalize_identity_value(pair.a) == normalize_identity_value(pair.b)
        assert equal == (pair.label == "dup-exact"), pair.id


@pytest.mark.parametrize("label", LABELS)
def test_every_phenomenon_of_the_list_is_in_calibration(label):
    tags = {tag for pair in load_shipped("calibration").labelled(label) for tag in pair.phenomena}
    assert tags == PHENOMENA[label]


@pytest.mark.parametrize("name", NAMES)
def test_no_pair_stands_twice(name):
    keys = Counter(frozenset(map(normalize_identity_value, (pair.a, pair.b))) for pair in load_shipped(name).pairs)
    assert {key for key, n in keys.items() if n > 1} == set()


def test_no_text_has_a_twin_in_the_other_set():
    calibration, heldout = ([t for p in load_shipped(name).pairs for t in (p.a, p.b)] for name in NAMES)
    vectors = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4)).fit(calibration + heldout)
    cosine = vectors.transform(calibration) @ vectors.transform(heldout).T
    assert cosine.max() < 0.75
