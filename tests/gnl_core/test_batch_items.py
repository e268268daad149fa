"""What a batch's token stands for, and whose item a run is, for any keys and arguments."""

import random

from hypothesis import given
from hypothesis import strategies as st

from gnl_core import keys
from gnl_core.batch.items import read_items, token_of

NAMES = st.text("abAB01_-", min_size=1, max_size=5)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("xyz", max_size=2), inner, max_size=3),
    max_leaves=6,
)
ITEMS = st.dictionaries(NAMES, st.dictionaries(st.text("pq", min_size=1, max_size=2), VALUES, max_size=3), max_size=5)


def token(batch, items, policy="a"):
    return token_of({"policy": policy}, read_items(batch, items, "key", lambda item: item.get("person")))


@given(NAMES, ITEMS, st.randoms())
def test_no_order_of_items_or_arguments_changes_the_token(batch, named, chance: random.Random):
    items = [{"key": key, **args} for key, args in named.items()]
    shuffled = [dict(chance.sample(sorted(item.items(), key=str), len(item))) for item in items]
    chance.shuffle(shuffled)
    assert token(batch, shuffled) == token(batch, items)


@given(NAMES, ITEMS, NAMES, VALUES)
def test_every_item_argument_and_rule_changes_it(batch, named, other, value):
    items = [{"key": key, **args} for key, args in named.items()]
    before = token(batch, items)
    assert token(batch, items, "b") != before
    if other not in named:
        assert token(batch, [*items, {"key": other}]) != before
    for place, item in enumerate(items):
        changed = [*items[:place], {**item, "new": value}, *items[place + 1 :]]
        assert token(batch, changed) != before
        assert token(batch, [*items[:place], {**item, "person": "ann"}, *items[place + 1 :]]) != before


@given(NAMES, NAMES, NAMES, NAMES)
def test_a_run_is_of_one_batch_and_of_no_other(batch, item, other, twin):
    run = keys.item_run_id(batch, item)
    assert keys.batch_of(run) == batch
    assert keys.batch_of(keys.child_id(run, keys.ROOT, "s0p0")) == batch
    assert (keys.item_run_id(other, twin) == run) == ((other, twin) == (batch, item))
    assert keys.batch_of(f"{batch}:{item}") is None


@given(st.sampled_from([1, 1.0]), st.sampled_from(["\u00e9", "e\u0301"]))
def test_two_spellings_of_one_value_are_one_item(number, text):
    assert token("b", [{"key": "k", "n": number, "t": text}]) == token("b", [{"key": "k", "n": 1, "t": "\u00e9"}])


def test_an_item_is_read_once_and_changes_no_more():
    item = {"key": "k", "list": [1, (2, 3)]}
    (job,) = read_items("b", [item], "key", None)
    item["list"].append(4)
    assert job.args == {"key": "k", "list": [1, [2, 3]]}
