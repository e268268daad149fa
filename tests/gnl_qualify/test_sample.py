"""Which pairs are drawn, and in which order."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gnl_fixtures import FixtureSet
from gnl_qualify.sample import limited, shuffled, stratified


def test_eight_of_forty_are_two_of_each_label_under_another_set_id(room):
    whole = room.set_of(10)
    cut = limited(whole, 8, seed=1)
    assert Counter(pair.label for pair in cut.pairs) == dict.fromkeys(room.TEXTS, 2)
    assert cut.set_id != whole.set_id


@pytest.mark.parametrize("limit", [40, 41, 10_000, None])
def test_a_limit_that_cuts_nothing_leaves_the_set_alone(room, limit):
    whole = room.set_of(10)
    assert limited(whole, limit, seed=1) is whole


def test_odd_pairs_go_to_the_labels_of_the_bars(room):
    cut = limited(room.set_of(10), 6, seed=3)
    assert Counter(pair.label for pair in cut.pairs) == {
        "dup-paraphrase": 2,
        "near-miss": 2,
        "dup-exact": 1,
        "unrelated": 1,
    }


def test_a_poor_label_gives_all_it_has_and_the_others_fill_up(room):
    cut = limited(room.set_of(dup_paraphrase=1, near_miss=20, unrelated=20), 21, seed=3)
    assert Counter(pair.label for pair in cut.pairs) == {"dup-paraphrase": 1, "near-miss": 10, "unrelated": 10}


def test_the_seed_decides_the_draw(room):
    pairs = room.set_of(30).pairs
    assert stratified(pairs, 20, seed=1, purpose="x") == stratified(pairs, 20, seed=1, purpose="x")
    assert stratified(pairs, 20, seed=1, purpose="x") != stratified(pairs, 20, seed=2, purpose="x")
    assert stratified(pairs, 20, seed=1, purpose="x") != stratified(pairs, 20, seed=1, purpose="y")


@given(random=st.randoms(use_true_random=False), limit=st.integers(0, 50))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_order_of_the_files_changes_neither_sample_nor_order(room, random, limit):
    pairs = room.set_of(10).pairs
    mixed = list(pairs)
    random.shuffle(mixed)
    one = limited(FixtureSet("x", pairs), limit, seed=5)
    other = limited(FixtureSet("x", tuple(mixed)), limit, seed=5)
    assert one.set_id == other.set_id
    assert shuffled(one.pairs, seed=5) == shuffled(other.pairs, seed=5)


def test_the_order_mixes_the_labels_and_does_not_hang_on_ids(room):
    pairs = room.set_of(25).pairs
    order = shuffled(pairs, seed=1)
    assert len({pair.label for pair in order[:12]}) > 1
    renamed = shuffled([replace(pair, id=f"z{i}") for i, pair in enumerate(reversed(pairs))], seed=1)
    assert [(pair.a, pair.b) for pair in renamed] == [(pair.a, pair.b) for pair in order]
