"""What candidates come to: a table of what asks and what does not, and properties of any list of them."""

import random
from collections import Counter
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnl_core.identity import Identity
from gnl_semantic import Rules, evaluate
from gnl_semantic.decide import Scored, decide
from gnl_semantic.past import Past

RULES = Rules()


def past(values, *, amounts=None, discriminators=None, args_hash="b" * 16, at=1):
    return Past(
        args_hash=args_hash,
        model="m",
        template="1",
        sentence="a sentence",
        identity={"sku": values} if isinstance(values, str) else values,
        amounts=amounts or {},
        discriminators=discriminators or {},
        run="r",
        call="s0p0",
        at=at,
    )


def scored(values, score=0.9, *, exact=False, **others):
    return Scored(past=past(values, **others), score=score, exact=exact)


def identity(values, *, amounts=None, discriminators=None):
    return Identity(
        values={"sku": values} if isinstance(values, str) else values,
        amounts=amounts or {},
        discriminators=discriminators or {},
        sentence="a sentence",
    )


# The table -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mine", "theirs", "rules", "came_to"),
    [
        ("tv-42", "tv-42", None, "identity"),
        ("tv-42", "tv-42", RULES, "identity"),
        ("tv-42", "tv 42", None, "gray"),
        ("tv-42", "tv 42", RULES, "rule"),
        ("inv-2026-0142", "inv 2026 142", RULES, "rule"),
        ("danışmanlık a.ş.", "danismanlik as", RULES, "rule"),
        ("tv-42", "tv-43", RULES, "separate"),
        ("tv-42", "tv-43", None, "gray"),
        ("philips airfryer xl", "philips airfryer xxl", RULES, "separate"),
        ("samsung 42 inc tv", "smsng tv42", RULES, "gray"),
        ("karanlık mod", "dark mode", RULES, "gray"),
        ("fiyat 1.5 kg", "fiyat 15 kg", RULES, "separate or gray"),
        ({"sku": "tv-42", "depot": "izmir"}, {"sku": "tv 42", "depot": "İzmir".lower()}, RULES, "rule"),
        ({"sku": "tv-42", "depot": "izmir"}, {"sku": "tv-43", "depot": "izmir"}, RULES, "separate"),
        ({"sku": "tv-42", "depot": "izmir"}, {"sku": "tv 42", "depot": "ambar 3"}, RULES, "gray"),
        ({"sku": "tv-42", "depot": ""}, {"sku": "tv-42", "depot": ""}, None, "identity"),
        ({"sku": "tv-42", "depot": "x"}, {"sku": "tv-42", "depot": ""}, RULES, "gray"),
    ],
)
def test_one_candidate(mine, theirs, rules, came_to):
    found = decide(identity(mine), [scored(theirs)], rules=rules)
    outcome = found.origin if found.asked is not None else "gray" if found.gray is not None else "separate"
    assert outcome in came_to
    assert (found.dropped_identity, found.dropped_by_rule) == (int(outcome == "gray"), int(outcome == "separate"))
    assert bool(found.traces) is (outcome == "rule")


def test_no_candidates_are_nothing():
    found = decide(identity("tv-42"), [], rules=RULES)
    assert (found.asked, found.gray) == (None, None)
    assert (found.dropped_discriminator, found.dropped_identity, found.dropped_by_rule) == (0, 0, 0)


def test_discriminators_come_before_identity_and_rules():
    differs = scored("tv-42", discriminators={"cancel": "true"})
    found = decide(identity("tv-42", discriminators={"cancel": "false"}), [differs], rules=RULES)
    assert (found.asked, found.gray, found.dropped_discriminator) == (None, None, 1)
    assert (found.dropped_identity, found.dropped_by_rule) == (0, 0)


def test_a_field_that_was_declared_since_says_nothing_in_the_older_record():
    mine = identity({"sku": "tv-42", "depot": ""}, discriminators={"cancel": ""})
    assert decide(mine, [scored("tv-42")], rules=None).origin == "identity"
    assert decide(mine, [scored("tv-42")], rules=None).asked is not None
    said = identity({"sku": "tv-42", "depot": ""}, discriminators={"cancel": "true"})
    assert decide(said, [scored("tv-42")], rules=None).dropped_discriminator == 1


@pytest.mark.parametrize(
    ("before", "now", "differ"),
    [
        ({"price": "5"}, {"price": 5}, ()),
        ({"price": "5"}, {"price": 5.0}, ()),
        ({"price": "5"}, {"price": Decimal("5.00")}, ()),
        ({"price": "5"}, {"price": 7}, ("price",)),
        ({"price": "5"}, {}, ("price",)),
        ({}, {"price": 5}, ("price",)),
        ({}, {}, ()),
        ({"a": "1", "b": "2"}, {"b": 3, "c": 4}, ("a", "b", "c")),
    ],
)
@pytest.mark.parametrize("theirs", ["tv-42", "tv 42"])
def test_amounts_that_differ_are_named_one_sided_ones_too(theirs, before, now, differ):
    found = decide(identity("tv-42", amounts=now), [scored(theirs, amounts=before)], rules=RULES)
    assert found.asked is not None
    assert found.amounts_differ == differ


def test_the_best_cosine_is_looked_at_first_and_a_record_without_one_last():
    mine = identity("tv-42")
    far, near = scored("tv-42", 0.61, args_hash="1" * 16), scored("tv-42", 0.99, args_hash="2" * 16)
    none = scored("tv-42", None, exact=True, args_hash="3" * 16)
    assert decide(mine, [none, far, near], rules=None).asked == near
    assert decide(mine, [none, far], rules=None).asked == far
    opposite = scored("tv-42", -0.9, args_hash="4" * 16)
    assert decide(mine, [none, opposite], rules=None).asked == opposite
    assert decide(mine, [none], rules=None).asked == none


def test_of_equal_cosines_the_earliest_is_shown():
    mine = identity("tv-42")
    late, early = scored("tv-42", args_hash="1" * 16, at=9), scored("tv-42", args_hash="2" * 16, at=3)
    assert decide(mine, [late, early], rules=None).asked == early


def test_a_judge_would_see_the_pair_that_the_rules_find_most_in_common_with():
    mine = identity({"sku": "tv 42", "depot": "izmir liman"})
    words = scored({"sku": "television", "depot": "port of izmir"}, 0.95, args_hash="1" * 16)
    half = scored({"sku": "tv-42", "depot": "port of izmir"}, 0.7, args_hash="2" * 16)
    assert decide(mine, [words, half], rules=RULES).gray == half
    assert decide(mine, [words], rules=RULES).gray == words


# Properties ----------------------------------------------------------------------------------------------------------

WORDS = st.sampled_from(
    [
        "tv-42",
        "tv 42",
        "TV42",
        "tv-43",
        "samsung tv",
        "smsng tv42",
        "airfryer xl",
        "airfryer xxl",
        "air fryer xl",
        "---",
    ]
)
SCORES = st.one_of(st.none(), st.floats(-1, 1, width=32))
CANDIDATES = st.lists(
    st.builds(
        lambda sku, depot, cancel, price, score, exact, at: scored(
            {"sku": sku, "depot": depot},
            score,
            exact=exact,
            discriminators={"cancel": cancel},
            amounts=price,
            at=at,
        ),
        WORDS,
        st.sampled_from(["", "izmir"]),
        st.sampled_from(["", "true"]),
        st.sampled_from([{}, {"price": "5"}]),
        SCORES,
        st.booleans(),
        st.integers(0, 5),
    ),
    max_size=7,
)
CALLS = st.builds(
    lambda sku, depot: identity({"sku": sku, "depot": depot}, discriminators={"cancel": ""}, amounts={"price": 5}),
    WORDS,
    st.sampled_from(["", "izmir"]),
)
OPTIONS = st.sampled_from([None, RULES, Rules(disable=("shortcode-edit1",))])


def numbered(candidates):
    """Give each candidate a hash of its own, as records have."""
    return [
        Scored(
            past=past(
                one.past.identity,
                amounts=one.past.amounts,
                discriminators=one.past.discriminators,
                args_hash=f"{number:016x}",
                at=one.past.at,
            ),
            score=one.score,
            exact=one.exact,
        )
        for number, one in enumerate(candidates)
    ]


def alone(call, one, rules):
    """What a candidate comes to by the definition, without `decide`."""
    if one.past.discriminators != call.discriminators:
        return "discriminator"
    if one.past.identity == call.values:
        return "identity"
    return evaluate(one.past.identity, call.values, rules).outcome if rules is not None else "gray"


@settings(deadline=None, max_examples=60)
@given(CALLS, CANDIDATES, OPTIONS, st.randoms(use_true_random=False))
def test_the_order_of_candidates_never_changes_what_comes_of_them(call, candidates, rules, rng: random.Random):
    candidates = numbered(candidates)
    shuffled = list(candidates)
    rng.shuffle(shuffled)
    assert decide(call, candidates, rules=rules) == decide(call, shuffled, rules=rules)


@settings(deadline=None, max_examples=60)
@given(CALLS, CANDIDATES, OPTIONS)
def test_something_is_asked_exactly_where_a_candidate_matches_and_no_other_one_hides_it(call, candidates, rules):
    candidates = numbered(candidates)
    each = {one.past.args_hash: alone(call, one, rules) for one in candidates}
    found = decide(call, candidates, rules=rules)
    assert (found.asked is not None) is any(one in ("identity", "match") for one in each.values())
    if found.asked is not None:
        assert each[found.asked.past.args_hash] == {"identity": "identity", "rule": "match"}[found.origin]
        assert found.gray is None


@settings(deadline=None, max_examples=60)
@given(CALLS, CANDIDATES, OPTIONS)
def test_where_nothing_is_asked_the_counters_add_up_to_the_candidates(call, candidates, rules):
    candidates = numbered(candidates)
    found = decide(call, candidates, rules=rules)
    if found.asked is not None:
        return
    each = Counter(alone(call, one, rules) for one in candidates)
    counted = (found.dropped_discriminator, found.dropped_identity, found.dropped_by_rule)
    assert counted == (each["discriminator"], each["gray"], each["separate"])
    assert sum(counted) == len(candidates)
    assert (found.gray is not None) is (found.dropped_identity > 0)


@settings(deadline=None, max_examples=60)
@given(CALLS, CANDIDATES, CANDIDATES, OPTIONS)
def test_another_candidate_never_takes_a_question_away(call, some, more, rules):
    some, both = numbered(some), numbered([*some, *more])
    if decide(call, some, rules=rules).asked is not None:
        assert decide(call, both, rules=rules).asked is not None


@settings(deadline=None, max_examples=50)
@given(CALLS, CANDIDATES, st.lists(SCORES, min_size=7, max_size=7))
def test_the_score_decides_which_is_shown_and_never_whether(call, candidates, scores):
    candidates = numbered(candidates)
    other = [
        Scored(past=one.past, score=score, exact=one.exact) for one, score in zip(candidates, scores, strict=False)
    ]
    assert (decide(call, candidates, rules=RULES).asked is None) is (decide(call, other, rules=RULES).asked is None)


@settings(deadline=None, max_examples=50)
@given(CALLS, CANDIDATES)
def test_without_rules_only_equal_identity_asks_and_all_else_is_gray(call, candidates):
    found = decide(call, numbered(candidates), rules=None)
    assert found.dropped_by_rule == 0
    assert found.traces == ()
    if found.asked is not None:
        assert found.asked.past.identity == call.values
