"""The vectors of the built-in model, for each graph that is shipped."""

import json
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gnl_semantic.embedder import Embedder, Stamped, cosine
from gnl_semantic.embedder.builtin import MODELS, ensure_builtin
from gnl_semantic.embedder.folder import read_folder
from gnl_semantic.embedder.tokens import load_encoder
from gnl_semantic.errors import EmbedderInputError, StampMismatchError

GOLDEN = json.loads(Path(__file__).with_name("golden.json").read_text())
# float32 compute: the rounding of the file's four digits. int8 activations move vectors.
TOLERANCE = {"local:multilingual-e5-small@q4": 1e-4, "local:multilingual-e5-small@q4-int8act": 2e-3}
LONG = "the quarterly report of the northern warehouse " * 80


@pytest.fixture(scope="session")
def encode(q4, model_cache):
    return load_encoder(read_folder(ensure_builtin(MODELS[q4.model_id], cache_dir=model_cache)))


def rows(first, second):
    return np.sum(first * second, axis=1)


def test_it_fits_the_port(builtin):
    assert isinstance(builtin, Embedder)
    assert builtin.profile.dimension == 384
    assert builtin.profile.prefix == "query: "
    assert builtin.profile.max_tokens == 512
    assert builtin.warnings == ()


def test_the_stamps_name_model_and_quantisation(q4, int8act):
    assert q4.model_id == "local:multilingual-e5-small@q4"
    assert int8act.model_id == "local:multilingual-e5-small@q4-int8act"


def test_token_ids_are_those_of_the_genuine_tokenizer(encode):
    found = encode([case["text"] for case in GOLDEN["tokens"]])
    assert len(found) == 136
    for case, ids in zip(GOLDEN["tokens"], found, strict=True):
        assert ids == case["ids"], case["text"]


async def test_cosines_are_those_of_the_weights(builtin):
    pairs = GOLDEN["pairs"]
    first, second = [await builtin.embed([pair[side] for pair in pairs]) for side in "ab"]
    assert len(pairs) == 30
    assert rows(first, second) == pytest.approx(
        [pair["cosine"] for pair in pairs], abs=TOLERANCE[builtin.model_id], rel=0
    )


async def test_rows_are_float32_of_length_one(builtin):
    vectors = await builtin.embed(["", " ", "x", "İade", LONG, "\x00", "🚚"])
    assert vectors.dtype == np.float32
    assert vectors.shape == (7, 384)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-6)


async def test_a_text_has_one_vector_whatever_its_batch(builtin):
    texts = [case["text"] for case in GOLDEN["tokens"][:12]]
    alone = np.concatenate([await builtin.embed([text]) for text in texts])
    among_64 = (await builtin.embed([*texts, *(f"order {i} chairs for room {i * 7}" for i in range(52))]))[:12]
    beside_long = (await builtin.embed([*texts, LONG]))[:12]
    for other in (among_64, beside_long):
        assert rows(alone, other).min() > 0.99999
        assert np.abs(alone - other).max() < 1e-4


async def test_padding_to_512_tokens_moves_no_vector(builtin):
    # embed() keeps such texts apart to save time; the graph must not need it.
    texts = [case["text"] for case in GOLDEN["tokens"][:2]]
    tokens = builtin._encode([*texts, LONG])
    assert len(tokens[-1]) == 512
    assert rows(builtin._graph.run(tokens)[:2], await builtin.embed(texts)).min() > 0.99999


async def test_a_long_text_is_cut_at_512_tokens(builtin, encode):
    text = "depo " * 2000
    assert len(text) == 10_000
    assert [len(ids) for ids in encode([text])] == [512]
    vectors = await builtin.embed([text, text + "and something else"])
    assert np.array_equal(vectors[0], vectors[1])


async def test_no_texts_give_no_rows(builtin):
    assert (await builtin.embed([])).shape == (0, 384)
    assert (await builtin.embed([])).dtype == np.float32


async def test_composed_and_decomposed_letters_are_one_text(q4):
    vectors = await q4.embed(["Müşteri İade é", "Mu\u0308s\u0327teri I\u0307ade e\u0301"])
    assert np.array_equal(vectors[0], vectors[1])


@pytest.mark.parametrize("token", ["<s>", "</s>", "<pad>", "<unk>", "<mask>", "＜s＞", "＜mask＞"])
def test_control_tokens_in_a_text_are_text(encode, token):
    for text in (token, f"pay {token} now", f"x{token}y", token * 3):
        (ids,) = encode([text])
        assert ids[0] == 0
        assert ids[-1] == 2
        assert not {0, 1, 2, 3, 250001} & set(ids[1:-1])


@given(st.text(max_size=200))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_has_ids_between_two_control_tokens(encode, text):
    (ids,) = encode([text])
    assert (ids[0], ids[-1]) == (0, 2)
    assert not {0, 1, 2, 250001} & set(ids[1:-1])
    assert encode([unicodedata.normalize("NFD", text)]) == [ids]


async def test_a_control_token_does_not_vanish(q4):
    vectors = await q4.embed(["pay </s> now", "pay now"])
    assert vectors[0] @ vectors[1] < 0.99


@pytest.mark.parametrize("bad", ["\ud800", "order \udfff 12"])
async def test_half_a_surrogate_pair_is_refused_by_its_place(q4, bad):
    with pytest.raises(EmbedderInputError, match="Text 1 holds half a surrogate pair") as caught:
        await q4.embed(["fine", bad])
    assert caught.value.detail == {"index": 1}
    assert "order" not in str(caught.value)


@pytest.mark.parametrize("bad", [None, 3, b"order", ["order"]])
async def test_what_is_no_text_is_refused_by_its_type(q4, bad):
    with pytest.raises(EmbedderInputError, match=f"Text 0 is of type {type(bad).__name__}"):
        await q4.embed([bad])


@pytest.mark.parametrize("bad", ["one text", b"bytes"])
async def test_one_text_is_not_taken_for_many(q4, bad):
    with pytest.raises(EmbedderInputError, match="put it into a list"):
        await q4.embed(bad)


async def test_vectors_of_two_graphs_are_never_compared(q4, int8act):
    one, other = [Stamped(model_id=m.model_id, vectors=await m.embed(["a", "b"])) for m in (q4, int8act)]
    with pytest.raises(StampMismatchError, match="q4-int8act"):
        cosine(one, other)
    assert np.diag(cosine(one, one)) == pytest.approx(1, abs=1e-6)
    assert cosine(one, one).max() <= 1
