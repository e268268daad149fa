"""Texts that would be more than data, values without end, rows that somebody changed: nothing raises, nothing is
asked that is not so."""

import numpy as np
import pytest
import pytest_asyncio

from gnl_core import SqliteStorage, args_hash, decide, keys
from gnl_core.journal import Delete, new_batch

SCOPE, TOOL = ("xthr", "t"), "createProduct"
ABC, SPACED, OTHER = {"sku": "abc"}, {"sku": " ABC "}, {"sku": "a wholly other thing"}
TEXTS = {
    "lines": "abc\nRECORD 2: abc\r\n\u2028SAME",
    "escape": "abc\x1b[2J\x07\x00",
    "word": "SAME",
    "html": "<script>alert('x')</script><b>Approve</b>",
    "direction": "abc\u202egnp.exe\u2066",
    "json": '"}, {"approved": true',
    "template": "{sku} %s ${x} {{7*7}}",
    "wide": "\U0001f600" * 50,
    "marks": "e" + "\u0301" * 300,
    "spaces": "\u00a0abc\u3000",
}


@pytest_asyncio.fixture
async def storage(place):
    """Rows that somebody changed lie on a disk."""
    async with SqliteStorage(place / "j.db") as storage:
        yield storage


# Texts ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sku", TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize("rules", [False, True])
async def test_a_record_is_data_and_its_text_is_shown_as_such(shop, asked, sku, rules):
    shop.gate = shop.gated(rules=rules)
    await shop.run({"sku": sku})
    question = asked(await shop.run({"sku": sku.upper(), "note": "again"}))
    assert question.kind == "semantic"
    assert question.reason.isprintable(), "a terminal that shows it shows text"
    assert "\n" not in question.reason
    await decide(shop.journal, question.question, True, actor="deniz")
    assert (await shop.run({"sku": sku.upper(), "note": "again"}, run=question.run_id)).text == "done"
    assert (await shop.run(OTHER)).interrupts == ()


@pytest.mark.parametrize("unit", ["a", "ab 1 ", "1", "-", "\ufdfa", "e\u0301"])
async def test_an_identity_without_end_is_compared_and_its_question_stays_short(shop, asked, unit):
    shop.gate = shop.gated(rules=True)
    long = unit * (100_000 // len(unit.encode()))
    await shop.run({"sku": long})
    await shop.run({"sku": long + "x"}, run="other")
    question = asked(await shop.run({"sku": long + " ", "note": "again"}))
    assert question.kind == "semantic"
    assert len(question.reason) < 4_000
    assert "characters)" in question.reason


async def test_a_question_quotes_a_short_sentence_whole(shop, asked):
    await shop.run({"sku": "x" * 480})
    assert "x" * 480 + "'" in asked(await shop.run({"sku": "X" * 480})).reason
    await shop.run({"sku": "y" * 600})
    reason = asked(await shop.run({"sku": "Y" * 600})).reason
    assert "y" * 600 not in reason
    assert "of 615 characters" in reason


@pytest.mark.parametrize("thread", ["a:b/c", "a/b", "%2F", "run/r1/~", "xthr", "~", "ü:ğ", "a\\b", "..", "a:sem-x"])
async def test_a_conversation_may_have_any_name(shop, asked, thread):
    await shop.run(ABC, thread_id=thread)
    question = asked(await shop.run(SPACED, thread_id=thread))
    assert question.prior["run_id"] == "r1"
    await decide(shop.journal, question.question, True, actor="deniz")
    assert (await shop.run(SPACED, thread_id=thread, run="r2")).text == "done"
    assert await shop.tombstones(thread) == [
        keys.tombstone(keys.thread_scope(thread), TOOL, args_hash(SPACED), args_hash(ABC))
    ]


# Rows that somebody changed ------------------------------------------------------------------------------------------


@pytest.fixture
async def kept(shop):
    """One record and its row."""
    await shop.run(ABC, run="first")
    (entry,) = (await shop.rows(*keys.similar_of(SCOPE, TOOL))).values()
    return entry


NO_RECORD = {
    "null": None,
    "number": 7,
    "text": "abc",
    "list": [1],
    "empty": {},
    "of another release": {"f": 2},
    "true for one": {"f": True},
    "text for one": {"f": "1"},
}
DAMAGED = [
    {"model": 7},
    {"model": None},
    {"template": 1},
    {"sentence": None},
    {"sentence": ["abc"]},
    {"identity": {}},
    {"identity": None},
    {"identity": ["sku", "abc"]},
    {"identity": {"sku": 7}},
    {"identity": {"sku": {"a": "b"}}},
    {"amounts": None},
    {"amounts": {"price": 5}},
    {"discriminators": "x"},
    {"discriminators": {"cancel": True}},
    {"run": 7},
    {"call": None},
]


@pytest.mark.parametrize("rules", [False, True])
@pytest.mark.parametrize("value", NO_RECORD.values(), ids=NO_RECORD)
async def test_a_row_that_is_no_record_asks_nothing(shop, kept, value, rules):
    await shop.put(kept.key, value, kept.blob)
    shop.gate = shop.gated(rules=rules)
    assert (await shop.run(SPACED)).text == "done"
    assert shop.effects.count() == 2
    assert (await shop.get(kept.key)).value == value, "a newer release may have written it"


@pytest.mark.parametrize("members", DAMAGED, ids=str)
async def test_a_record_with_a_damaged_member_asks_nothing(shop, kept, members):
    await shop.put(kept.key, kept.value | members, kept.blob)
    shop.gate = shop.gated(rules=True)
    assert (await shop.run(SPACED)).text == "done"
    assert shop.effects.count() == 2


@pytest.mark.parametrize("gone", ["f", "model", "template", "sentence", "identity", "amounts", "discriminators", "run"])
async def test_a_record_without_a_member_asks_nothing(shop, kept, gone):
    await shop.put(kept.key, {name: value for name, value in kept.value.items() if name != gone}, kept.blob)
    shop.gate = shop.gated(rules=True)
    assert (await shop.run(SPACED)).text == "done"


async def test_a_record_of_another_identity_at_the_place_of_this_ones_fold_asks_nothing(shop, kept):
    await shop.put(kept.key, kept.value | {"identity": {"sku": "tv 43"}}, kept.blob)
    shop.gate = shop.gated(rules=True)
    assert (await shop.run(SPACED)).text == "done"


BLOBS = {
    "empty": b"",
    "three bytes": b"abc",
    "another width": np.ones(3, "<f4").tobytes(),
    "nan": np.full(2, np.nan, "<f4").tobytes(),
    "infinite": np.full(2, np.inf, "<f4").tobytes(),
    "zero": np.zeros(2, "<f4").tobytes(),
    "largest": np.full(2, np.finfo("<f4").max, "<f4").tobytes(),
    "huge": b"\x3f" * (4 << 20),
}


@pytest.mark.parametrize("blob", BLOBS.values(), ids=BLOBS)
async def test_a_damaged_vector_is_not_compared_and_the_identity_beside_it_is(shop, kept, asked, blob):
    await shop.put(kept.key, kept.value, blob)
    shop.gate = shop.gated(rules=True)
    assert (await shop.run(OTHER, run="other")).text == "done"
    assert (await shop.noted("other"))[0][2].get("gray_calls", 0) in (0, 1)
    question = asked(await shop.run(SPACED))
    assert question.prior["origin"] == "identity"
    assert "score" not in question.prior, "what cannot be compared has no score"


@pytest.mark.parametrize("name", ["semgen", "semtomb", "semfold", "sem"])
@pytest.mark.parametrize("value", [None, 7, "x", [], {"n": "x"}, {"n": -1}, {"n": 10**18}, {"n": 1.5}, {}], ids=str)
async def test_rows_beside_the_records_may_hold_anything(shop, kept, asked, name, value):
    places = {
        "semgen": keys.generation(SCOPE, TOOL),
        "semtomb": keys.tombstone(SCOPE, TOOL, args_hash(SPACED), "no hash"),
        "semfold": (*SCOPE, "semfold", TOOL, "x", "y"),
        "sem": keys.similar(SCOPE, TOOL, "no hash at all"),
    }
    await shop.put(places[name], value)
    shop.gate = shop.gated(rules=True)
    assert (await shop.run(OTHER, run="other")).text == "done"
    assert (await shop.run(OTHER, run="other")).replayed_tool_calls[0].status == "succeeded"
    assert asked(await shop.run(SPACED)).prior["run_id"] == "first"


@pytest.mark.parametrize("name", ["000000", "000001", "999999", "new", "no number"])
@pytest.mark.parametrize(
    "value", [None, 7, [], {"f": 1}, {"f": 2}, {"f": 1, "at": "x"}, {"f": 1, "at": -(10**18)}], ids=str
)
@pytest.mark.parametrize("blob", [None, b"\xff" * 4096])
async def test_copies_of_vectors_may_hold_anything(shop, kept, asked, name, value, blob):
    """A copy only proposes: what it names is read from its record before anybody sees it."""
    (copy,) = await shop.rows(*SCOPE, "semvec")
    await shop.put((*copy[:-2], name) if name != "new" else (*copy[:-1], "no hash"), value, blob)
    shop.gate = shop.gated(rules=True)
    assert (await shop.run(OTHER, run="other")).text == "done"
    shop.gate = shop.gated(rules=True)
    assert asked(await shop.run(SPACED)).prior["run_id"] == "first"


@pytest.mark.parametrize("change", ["gone", "null", "another's vector", "of no record"])
async def test_a_copy_that_is_not_what_its_record_holds_asks_nothing_falsely(shop, kept, asked, change):
    ((place, copy),) = (await shop.rows(*SCOPE, "semvec")).items()
    if change == "gone":
        await shop.journal.apply((Delete(place),), batch=new_batch())
    elif change == "of no record":
        await shop.put((*place[:-1], "f" * 16), copy.value, copy.blob)
    else:
        vector = np.array([0.0, 1.0], "<f4").tobytes()
        await shop.put(place, None if change == "null" else copy.value, vector)
    shop.gate = shop.gated(rules=True)
    assert (await shop.run(OTHER)).text == "done"
    shop.gate = shop.gated(rules=True)
    assert asked(await shop.run(SPACED)).prior["run_id"] == "first"


async def test_a_counter_that_is_none_costs_no_record_of_the_call(shop, kept):
    await shop.put(keys.generation(SCOPE, TOOL), {"n": "many"})
    assert (await shop.run(OTHER, run="other")).text == "done"
    assert (await shop.get(keys.tool("other", "~", 0, 0))).value["status"] == "succeeded"
    assert shop.effects.count() == 2


async def test_keys_of_no_shape_do_not_matter(shop, kept, asked):
    for key in (
        (*SCOPE, "sem", TOOL),
        (*SCOPE, "sem", TOOL, "a", "b"),
        (*SCOPE, "semfold", TOOL),
        (*SCOPE, "semtomb", TOOL, args_hash(SPACED)),
        (*SCOPE, "semtomb", TOOL, args_hash(SPACED), args_hash(ABC), "more"),
    ):
        await shop.put(key, kept.value, kept.blob)
    shop.gate = shop.gated(rules=True)
    assert asked(await shop.run(SPACED)).prior["run_id"] == "first"


async def test_a_fold_without_its_record_asks_nothing(shop, kept):
    await shop.journal.apply((Delete(kept.key),), batch=new_batch())
    assert (await shop.run(SPACED)).text == "done"


async def test_more_records_of_one_identity_than_are_looked_at_are_one_question(shop, kept, asked):
    fold = next(iter(await shop.rows(*SCOPE, "semfold")))
    for number in range(520):
        await shop.put((*fold[:-1], f"{number:016x}"), {"f": 1})
    assert asked(await shop.run(SPACED)).kind == "semantic"


async def test_counts_of_the_request_that_are_no_counter_are_left_alone(shop):
    await shop.put(keys.semantic_counts("first"), "no counter")
    assert (await shop.run(ABC, run="first")).text == "done"
    assert (await shop.get(keys.semantic_counts("first"))).value == "no counter"


async def test_an_erased_conversation_is_forgotten_by_a_warm_gate_too(shop, kept):
    await shop.run(OTHER)
    await shop.journal.delete_prefix(SCOPE)
    assert (await shop.run(SPACED)).text == "done"
    assert [record["identity"] for record in await shop.records()] == [{"sku": "abc"}]


async def test_one_erased_record_is_shown_by_nobody_and_forgotten(shop, kept):
    await shop.run(OTHER)
    await shop.journal.apply((Delete(kept.key),), batch=new_batch())
    cache = shop.gate._cache
    assert len(cache) == 1
    result = await shop.run({"sku": "unlike either"}, run="third")
    assert result.text == "done"
    assert (await shop.noted("third"))[0][2]["dropped_identity"] == 1
    assert len(cache) == 0, "its vector is not kept in memory either"
    assert (await shop.run(SPACED)).text == "done"
