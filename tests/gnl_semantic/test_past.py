"""Rows of past work: what is written of it, and that nothing a row may hold does harm."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnl_core import keys
from gnl_core.identity import SemanticIdentity
from gnl_core.journal import Add, Create, Entry, Put, new_batch
from gnl_core.journal.memory import InMemoryStorage
from gnl_core.prior import Subject
from gnl_semantic.past import fold_hash, past_ops, read_past, stamp_key

SCOPE = ("xthr", "t")
HASH = "00000000000000aa"
PLACE = keys.similar(SCOPE, "order", HASH)
VALUE = {
    "f": 1,
    "model": "m@1",
    "template": "1",
    "sentence": "order: kettle",
    "identity": {"sku": "kettle"},
    "amounts": {"price": "12.5"},
    "discriminators": {"cancel": ""},
    "run": "r",
    "call": "s0p1",
}


def subject(*, args=None, args_hash=HASH, run="r", call="s0p1", describe=None, scope=SCOPE, tool="order"):
    declared = SemanticIdentity(
        keys=("sku",), amount_fields=("price",), discriminator_fields=("cancel",), describe=describe
    )
    return Subject(
        journal=InMemoryStorage().runs,
        scope=scope,
        root="r",
        fence=1,
        run=run,
        call=call,
        tool=tool,
        args_hash=args_hash,
        identity=declared.build(tool, args or {"sku": "Kettle", "price": 12.50}),
        now=5_000,
    )


def entry(value, *, key=PLACE, blob=None):
    return Entry(key, value, blob, 3, 1, 1_000, 2_000)


def unit(*values):
    vector = np.array(values, np.float32)
    return vector / np.linalg.norm(vector)


async def written(ops, journal):
    await journal.apply(ops, batch=new_batch())
    page = await journal.scan(SCOPE, blobs=True)
    return {one.key: one for one in page.entries}


# Written -----------------------------------------------------------------------------------------------------------


async def test_a_success_leaves_record_fold_and_count():
    call = subject()
    rows = await written(past_ops(call, stamp="m@1", vector=unit(3, 4), known=None), call.journal)
    record = rows[PLACE]
    assert record.value == VALUE
    assert np.frombuffer(record.blob, "<f4").tolist() == pytest.approx([0.6, 0.8])
    assert rows[keys.fold(SCOPE, "order", fold_hash({"sku": "kettle"}), HASH)].value == {"f": 1}
    assert rows[keys.generation(SCOPE, "order")].value == {"n": 1}
    copy = rows[keys.new_vector(SCOPE, "order", stamp_key("m@1"), HASH)]
    assert (copy.value, copy.blob, copy.created_at) == ({"f": 1}, record.blob, record.created_at)
    assert len(rows) == 4


async def test_what_is_written_reads_back():
    call = subject(args={"sku": "Kettle", "price": 12, "cancel": True})
    rows = await written(past_ops(call, stamp="m@1", vector=None, known=None), call.journal)
    record = rows[PLACE]
    past = read_past(record, SCOPE, "order")
    assert record.blob is None
    assert (past.args_hash, past.model, past.template, past.sentence) == (HASH, "m@1", "1", "order: kettle")
    assert (past.identity, past.amounts, past.discriminators) == (
        {"sku": "kettle"},
        {"price": "12"},
        {"cancel": "true"},
    )
    assert (past.run, past.call, past.at) == ("r", "s0p1", record.created_at)


@pytest.mark.parametrize(
    "bad",
    [[np.nan, 1], [np.inf, 0], [0, 0], [], [3e38, 3e38], [[1, 0]]],
    ids=["nan", "inf", "zero", "none", "big", "2d"],
)
def test_a_vector_that_is_none_is_not_written(bad):
    create, *_ = past_ops(subject(), stamp="m@1", vector=np.array(bad, np.float32), known=None)
    assert create.blob is None


def test_a_repeat_leaves_a_record_with_a_vector_alone():
    known = entry(VALUE, blob=unit(1, 0).tobytes())
    assert past_ops(subject(run="later"), stamp="other@2", vector=unit(0, 1), known=known) == ()


def test_a_failed_embedding_leaves_a_known_record_alone():
    assert past_ops(subject(run="later"), stamp="m@1", vector=None, known=entry(VALUE)) == ()


def test_a_repeat_fills_a_missing_vector_in_and_stays_the_first_ones():
    call = subject(run="later", call="s9p9", describe=lambda args: "one kettle")
    put, fold, add, copy = past_ops(call, stamp="m@2", vector=unit(0, 1), known=entry(VALUE))
    assert isinstance(put, Put)
    assert put.blob == unit(0, 1).tobytes()
    assert put.value == {**VALUE, "model": "m@2", "sentence": "one kettle"}  # the vector's own sentence and stamp
    assert isinstance(fold, Create)
    assert fold.if_present == "keep"
    assert add == Add(keys.generation(SCOPE, "order"), {"f": 1})
    place = keys.new_vector(SCOPE, "order", stamp_key("m@2"), HASH)
    assert copy == Put(place, {"f": 1, "at": entry(VALUE).created_at}, put.blob), "of the record's time, not its own"


async def test_a_back_fill_keeps_the_time_of_the_first_success():
    call = subject()
    first = await written(past_ops(call, stamp="m@1", vector=None, known=None), call.journal)
    record = first[PLACE]
    rows = await written(past_ops(call, stamp="m@1", vector=unit(1, 0), known=record), call.journal)
    filled = rows[PLACE]
    assert (filled.created_at, filled.blob) == (record.created_at, unit(1, 0).tobytes())
    assert rows[keys.generation(SCOPE, "order")].value == {"n": 1, "f": 1}


async def test_of_two_first_successes_one_stays():
    one, two = subject(run="a"), subject(run="b")
    await written(past_ops(one, stamp="m@1", vector=unit(1, 0), known=None), one.journal)
    rows = await written(past_ops(two, stamp="m@1", vector=unit(0, 1), known=None), one.journal)
    assert rows[PLACE].value["run"] == "a"
    assert rows[keys.generation(SCOPE, "order")].value == {"n": 2}
    copy = rows[keys.new_vector(SCOPE, "order", stamp_key("m@1"), HASH)]
    assert copy.blob == rows[PLACE].blob


@pytest.mark.parametrize("value", [{**VALUE, "f": 2}, None, "text", {**VALUE, "identity": 3}])
def test_a_row_that_cannot_be_read_is_not_written_over(value):
    assert past_ops(subject(), stamp="m@1", vector=unit(1, 0), known=entry(value)) == ()


# Read --------------------------------------------------------------------------------------------------------------


def test_a_record_of_another_tool_or_thread_is_none():
    # Equal sentences throughout: only the key tells them apart.
    assert read_past(entry(VALUE), SCOPE, "order") is not None
    assert read_past(entry(VALUE), SCOPE, "order-cancel") is None
    assert read_past(entry(VALUE), ("xthr", "t:sem"), "order") is None
    deeper = entry(VALUE, key=(*keys.similar(SCOPE, "order", HASH), "x"))
    assert read_past(deeper, SCOPE, "order") is None
    family = entry(VALUE, key=keys.marker(SCOPE, "order", HASH))
    assert read_past(family, SCOPE, "order") is None


@pytest.mark.parametrize("key", [(), ("xthr",), (HASH,)])
def test_a_short_key_is_none(key):
    assert read_past(entry(VALUE, key=key), SCOPE, "order") is None


@pytest.mark.parametrize("name", sorted(VALUE))
@pytest.mark.parametrize("wrong", [None, 7, 1.0, True, [], {"sku": 1}, "x"], ids=repr)
def test_a_member_of_another_type_makes_no_record(name, wrong):
    texts = ("model", "template", "sentence", "run", "call")
    if isinstance(wrong, str) and name in texts:
        return
    assert read_past(entry({**VALUE, name: wrong}), SCOPE, "order") is None


@pytest.mark.parametrize("name", sorted(VALUE))
def test_a_member_that_is_missing_makes_no_record(name):
    assert read_past(entry({key: one for key, one in VALUE.items() if key != name}), SCOPE, "order") is None


def test_a_record_without_identity_is_none_since_it_would_match_everything():
    assert read_past(entry({**VALUE, "identity": {}}), SCOPE, "order") is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.sampled_from(list(VALUE)), inner),
    max_leaves=12,
)


@given(json_values, st.dictionaries(st.sampled_from(list(VALUE)), json_values), st.binary(max_size=9) | st.none())
def test_no_content_of_a_row_raises(value, members, blob):
    read_past(entry(value, blob=blob), SCOPE, "order")
    past = read_past(entry({**VALUE, **members}, blob=blob), SCOPE, "order")
    if past is not None:
        texts = [past.sentence, past.run, *past.identity.values(), *past.amounts.values()]
        assert all(isinstance(text, str) for text in texts)
    past_ops(subject(), stamp="m@1", vector=unit(1, 0), known=entry({**VALUE, **members}, blob=blob))


# Folds -------------------------------------------------------------------------------------------------------------


def test_a_fold_has_16_digits_and_takes_no_order():
    assert len(fold_hash({"a": "x", "b": "y"})) == 16
    assert fold_hash({"a": "x", "b": "y"}) == fold_hash({"b": "y", "a": "x"})
    assert fold_hash({"a": "x", "b": "y"}) != fold_hash({"a": "y", "b": "x"})


def test_spellings_of_one_value_have_one_fold():
    assert fold_hash({"sku": "müller"}) == fold_hash({"sku": "muller"})
    assert fold_hash({"sku": "foo-bar"}) == fold_hash({"sku": "foo bar"})
