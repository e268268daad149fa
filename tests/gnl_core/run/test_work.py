"""The run id of a piece of work: equal to what another program computes, and never shared by two pieces of work.

The golden ids come from other tools: `printf '%s' '["gnl.run.v1","agent:billing",…]' | sha256sum | cut -c1-32`, and for
the ones with control characters JSON.stringify and the crypto module of Node.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnl_core import derived_run_id, keys
from gnl_core.errors import ConfigError, IdInvalidError
from gnl_core.work import check_work_key, name_work, work_key_hash

GOLDEN = [
    (("agent:billing", "resource", "u-142", "invoice-2026-04-7742"), "b30cb97cebbee819efb0b48d1962e930"),
    (("wf:billing", "resource", "u-142", "invoice-2026-04-7742"), "e5b299f85a0db8a71dded96fc31bb3f1"),
    (("agent:reconcile", "org", None, "mutabakat-2026-04-30"), "a9187d5b5b97b8fc12c1e8104dbfd08f"),
    (("agent:reconcile", "org", "", "mutabakat-2026-04-30"), "a9187d5b5b97b8fc12c1e8104dbfd08f"),
    (("agent:reconcile", "org", "acme", "mutabakat-2026-04-30"), "893e26f70227f14a6d90d24749e1c59c"),
    (("agent:fatura", "resource", "Ayşe Çelik", 'İstanbul "ek"\tşube 🧾'), "0e37a7a41d69159d3ed5acf2d66941e3"),
    (("agent:x", "resource", "\x1f\x7f\u2028/", "\b\f\n\\"), "200fba4a770a0208dd78b1866eaa440f"),
]
TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)


@pytest.mark.parametrize(("inputs", "digest"), GOLDEN)
def test_l62_golden_ids(inputs, digest):
    run_id = derived_run_id(*inputs)
    assert run_id == f"run1_{digest}"
    assert keys.check_run_id(run_id) == run_id
    assert keys.is_derived(run_id)


@given(name=TEXT, subject=TEXT, key=TEXT)
def test_l62_a_character_that_moves_to_the_next_field_makes_another_id(name, subject, key):
    here = derived_run_id(f"agent:{name}", "resource", subject, key)
    moved = [
        (f"agent:{name}{subject[0]}", subject[1:], key),
        (f"agent:{name}", subject + key[0], key[1:]),
    ]
    for entity, other_subject, other_key in moved:
        if other_subject and other_key:
            assert derived_run_id(entity, "resource", other_subject, other_key) != here
    assert derived_run_id(f"wf:{name}", "resource", subject, key) != here
    assert derived_run_id(f"agent:{name}", "org", subject, key) != here


@pytest.mark.parametrize(
    ("inputs", "error", "words"),
    [
        (("billing", "resource", "u", "k"), ConfigError, "'agent:<name>'"),
        (("agent:", "resource", "u", "k"), ConfigError, "'agent:<name>'"),
        (("agent:a", "person", "u", "k"), ConfigError, "'resource' or 'org'"),
        (("agent:a", "resource", None, "k"), ConfigError, "resource_id"),
        (("agent:a", "resource", "", "k"), ConfigError, "resource_id"),
        (("agent:a", "resource", 7, "k"), IdInvalidError, "subject"),
        (("agent:a", "resource", "\ud800", "k"), IdInvalidError, "UTF-8"),
        (("agent:a", "resource", "u", ""), IdInvalidError, "non-empty"),
        (("agent:a", "resource", "u", None), IdInvalidError, "non-empty"),
        (("agent:a", "resource", "u", "k" * 2_049), IdInvalidError, "2,048"),
        (("agent:a", "resource", "u", "\udc00"), IdInvalidError, "surrogate"),
    ],
)
def test_l63_what_names_no_work(inputs, error, words):
    with pytest.raises(error, match=words):
        derived_run_id(*inputs)


def test_a_work_key_may_be_any_text_of_its_length():
    for key in ("k", "k" * 2_048, "April invoice / 7742\n"):
        assert check_work_key(key) == key


@pytest.mark.parametrize("suffix", ["", "#2", "#9", "#10", "#117", "#replay-0", "#replay-12", "#fork-1", "#fork-10"])
def test_l63_ids_of_the_minted_shape(suffix):
    run_id = f"run1_{'0a' * 16}{suffix}"
    assert keys.check_run_id(run_id) == run_id
    child = keys.child_id(run_id, keys.ROOT, "s0p0")
    assert keys.check_id("run_id", child) == child
    assert keys.split_run_id(child) == (run_id, child), "a child's id embeds it, suffix and all"


@pytest.mark.parametrize(
    "run_id",
    [
        "run1_",
        "run1_abc",
        f"run1_{'0A' * 16}",
        f"run1_{'0g' * 16}",
        f"run1_{'0' * 31}",
        f"run1_{'0' * 33}",
        *(
            f"run1_{'0' * 32}{suffix}"
            for suffix in (
                "#",
                "#0",
                "#1",
                "#02",
                "#-2",
                "#2#3",
                "#2#fork-1",
                "#fork-0",
                "#fork-01",
                "#replay-",
                "#replay-00",
                "#٣",
                ":fork:1",
                "x",
            )
        ),
    ],
)
def test_l63_ids_that_only_begin_like_a_minted_one(run_id):
    with pytest.raises(IdInvalidError, match="run1_"):
        keys.check_run_id(run_id)


def test_work_is_frozen_with_its_scope():
    run_id, work = name_work(entity="agent:a", work_scope="org", work_key="k", resource_id="ann", org="")
    assert run_id == derived_run_id("agent:a", "org", None, "k")
    assert work.to_json() == {"key": "k", "scope": ["org", "~deployment"]}
    run_id, work = name_work(entity="agent:a", work_scope="org", work_key="k", resource_id="ann", org="acme")
    assert run_id == derived_run_id("agent:a", "org", "acme", "k")
    run_id, work = name_work(entity="agent:a", work_scope="resource", work_key="k", resource_id="ann", org="acme")
    assert (run_id, work.subject) == (derived_run_id("agent:a", "resource", "ann", "k"), "ann")


def test_the_hash_of_a_work_key_is_that_of_its_text():
    # printf '%s' 'invoice-1' | sha256sum | cut -c1-16
    assert work_key_hash("invoice-1") == "ed8d97c08bf3add2"


# Executions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["r", "bob@7", "a#1", derived_run_id("agent:a", "org", None, "k")])
@pytest.mark.parametrize("number", [2, 3, 10, 117])
def test_the_id_of_an_execution_is_read_back(first, number):
    later = keys.execution_id(first, number)
    assert keys.execution_of(later) == (first, number)
    assert keys.check_run_id(later) == later
    assert keys.derived_base(later) == (first if keys.is_derived(first) else None)


@given(first=TEXT, number=st.integers(2))
def test_no_two_executions_have_one_id(first, number):
    later = keys.execution_id(first, number)
    assert later != keys.execution_id(first, number + 1)
    if "\n" not in first:
        assert keys.execution_of(later) == (first, number)


@pytest.mark.parametrize("run_id", ["r", "r@", "r@0", "r@1", "r@02", "r@-2", "r@2x", "@2", "r@\u0663", "r@2\n"])
def test_what_is_no_later_execution(run_id):
    assert keys.execution_of(run_id) == (run_id, 1)


@pytest.mark.parametrize("suffix", ["#replay-0", "#fork-1"])
def test_a_fork_and_a_replay_are_no_later_execution(suffix):
    first = derived_run_id("agent:a", "org", None, "k")
    assert keys.execution_of(first + suffix) == (first + suffix, 1)
    assert keys.derived_base(first + suffix) == first
