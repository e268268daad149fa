"""A user's own folder: pooling against numpy, batches, callers at once, and everything that can be wrong with it."""

import asyncio
import logging
import subprocess
import sys
import threading

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models

from gnl_semantic.embedder import UNKNOWN_THRESHOLD, Embedder, OnnxEmbedder
from gnl_semantic.embedder.onnx import _batches
from gnl_semantic.errors import EmbedderError, ModelInvalidError, ModelNotFoundError

WORDS = ["query:", "pay", "invoice", "order", "a", "b", "unheard"]


def unit(vector):
    return vector / np.linalg.norm(vector)


async def test_mean_pooling_is_the_default_and_leaves_padding_out(tiny):
    embedder = OnnxEmbedder(tiny())
    vectors = await embedder.embed(["pay invoice", "order a b pay invoice"])
    assert isinstance(embedder, Embedder)
    assert vectors[0] == pytest.approx(tiny.mean("pay invoice"), abs=1e-6)
    assert vectors[1] == pytest.approx(tiny.mean("order a b pay invoice"), abs=1e-6)


@pytest.mark.parametrize(
    "config", [{"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, {"pooling_mode": "cls"}]
)
async def test_cls_pooling_takes_the_first_token(tiny, config):
    embedder = OnnxEmbedder(tiny(files={"1_Pooling/config.json": config}))
    assert (await embedder.embed(["pay"]))[0] == pytest.approx(unit(tiny.token_vectors("")[0]), abs=1e-6)


async def test_a_pooled_output_is_taken_as_it_is_and_scaled(tiny):
    # The folder asks for a pooling we do not know; the graph has done it.
    embedder = OnnxEmbedder(tiny(output="sentence_embedding", files={"1_Pooling/config.json": {"pooling_mode": "max"}}))
    assert (await embedder.embed(["pay"]))[0] == pytest.approx(unit(tiny.token_vectors("pay").max(axis=0)), abs=1e-6)


@pytest.mark.parametrize("where", ["onnx/model.onnx", "onnx/model_quantized.onnx"])
async def test_other_places_of_the_graph(tiny, where):
    embedder = OnnxEmbedder(tiny(where=where))
    assert (await embedder.embed(["a"])).shape == (1, tiny.dimension)
    assert f"@{where.removeprefix('onnx/').removesuffix('.onnx')}-" in embedder.model_id


async def test_token_types_and_float16_outputs(tiny):
    embedder = OnnxEmbedder(tiny(inputs=("input_ids", "attention_mask", "token_type_ids"), kind=10))
    vectors = await embedder.embed(["pay"])
    assert vectors.dtype == np.float32
    assert vectors[0] == pytest.approx(tiny.mean("pay"), abs=1e-3)


async def test_prefix_and_limit_are_the_folders(tiny):
    settings = {
        "config_sentence_transformers.json": {"prompts": {"q": "query: "}, "default_prompt_name": "q"},
        "sentence_bert_config.json": {"max_seq_length": 5},
        "tokenizer_config.json": {"model_max_length": 10**30},
    }
    embedder = OnnxEmbedder(tiny(files=settings))
    assert (embedder.profile.prefix, embedder.profile.max_tokens) == ("query: ", 5)
    vectors = await embedder.embed(["pay a", "pay a b order"])
    assert vectors[0] == pytest.approx(tiny.mean("query: pay a"), abs=1e-6)
    assert np.array_equal(vectors[0], vectors[1])


def test_an_unmeasured_threshold_says_so(tiny):
    folder = tiny()
    embedder = OnnxEmbedder(folder)
    profile = embedder.profile
    assert (profile.candidate_threshold, profile.threshold_measured) == (UNKNOWN_THRESHOLD, False)
    (warning,) = embedder.warnings
    assert "calibrate" in warning
    assert "0.60" in warning
    embedder = OnnxEmbedder(folder, candidate_threshold=0.7)
    assert embedder.warnings == ()
    profile = embedder.profile
    assert (profile.candidate_threshold, profile.threshold_measured) == (0.7, True)


def test_the_stamp_changes_with_whatever_shapes_a_vector(tiny):
    stamps = [
        OnnxEmbedder(tiny(name="m", **options)).model_id
        for options in (
            {},
            {"kind": 10},
            {"files": {"1_Pooling/config.json": {"pooling_mode": "cls"}}},
            {"files": {"sentence_bert_config.json": {"max_seq_length": 9}}},
        )
    ]
    assert len(set(stamps)) == 4
    assert all(stamp.startswith("folder:m@model-") for stamp in stamps)


def test_equal_folders_have_equal_stamps(tiny):
    # The folder's name is part of the stamp, its place is not.
    assert OnnxEmbedder(tiny(name="one/m")).model_id == OnnxEmbedder(tiny(name="two/m")).model_id


def test_a_graph_that_mixes_its_batch_earns_a_warning(tiny, caplog):
    with caplog.at_level(logging.WARNING, "gnl_semantic"):
        embedder = OnnxEmbedder(tiny(leaky=True), candidate_threshold=0.7)
    (warning,) = embedder.warnings
    assert "depends on the texts embedded with it" in warning
    assert warning in caplog.text
    assert OnnxEmbedder(tiny(name="sound"), candidate_threshold=0.7).warnings == ()


@given(texts=st.lists(st.lists(st.sampled_from(WORDS), max_size=40).map(" ".join), min_size=1, max_size=80))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_rows_stand_in_the_order_of_the_texts(texts, tiny):
    if not hasattr(tiny, "embedder"):
        tiny.embedder = OnnxEmbedder(tiny())
    expected = np.stack([tiny.mean(text) for text in texts])
    assert np.abs(await tiny.embedder.embed(texts) - expected).max() < 1e-6


@given(st.lists(st.integers(1, 8192), max_size=300))
def test_batches_hold_every_text_once_and_stay_small(lengths):
    batches = _batches(lengths)
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) <= 32
        tokens = [lengths[index] for index in batch]
        padded = len(batch) * max(tokens)
        assert len(batch) == 1 or padded <= 4096
        assert padded - sum(tokens) <= 16 * (len(batch) - 1)


async def test_callers_at_once_get_their_own_rows(tiny):
    embedder = OnnxEmbedder(tiny())
    texts = ["pay", "order a", "b b b", "invoice"] * 5
    together = await asyncio.gather(*(embedder.embed([text, "a"]) for text in texts))
    for text, vectors in zip(texts, together, strict=True):
        assert np.array_equal(vectors, await embedder.embed([text, "a"]))


class Gate:
    """Lets each run of a graph begin only when told; counts them."""

    def __init__(self, graph, loop):
        self.graph, self.loop = graph, loop
        self.began, self.go, self.runs = asyncio.Event(), threading.Event(), 0

    def run(self, tokens):
        self.runs += 1
        self.loop.call_soon_threadsafe(self.began.set)
        assert self.go.wait(timeout=30), "the event loop stood still while the model ran"
        return self.graph.run(tokens)


async def test_a_cancelled_call_stops_after_its_batch_and_harms_no_other(tiny):
    embedder = OnnxEmbedder(tiny())
    expected = await embedder.embed(["pay"])
    gate = embedder._graph = Gate(embedder._graph, asyncio.get_running_loop())
    long_call = asyncio.create_task(embedder.embed(["order a b"] * 320))
    await gate.began.wait()
    waiting = asyncio.create_task(embedder.embed(["a"] * 320))
    other = asyncio.create_task(embedder.embed(["pay"]))
    await asyncio.sleep(0)
    long_call.cancel()
    waiting.cancel()
    for task in (long_call, waiting):
        with pytest.raises(asyncio.CancelledError):
            await task
    gate.go.set()
    assert np.array_equal(await other, expected)
    assert gate.runs == 2


async def test_a_failing_model_is_an_embedder_error_and_not_the_end(tiny):
    embedder = OnnxEmbedder(tiny())
    real = embedder._graph

    class Broken:
        def run(self, tokens):
            raise RuntimeError("out of memory")

    embedder._graph = Broken()
    with pytest.raises(EmbedderError, match="could not embed 2 texts: out of memory") as caught:
        await embedder.embed(["a", "b"])
    assert caught.value.resumable
    embedder._graph = real
    assert (await embedder.embed(["a", "b"])).shape == (2, tiny.dimension)


def one_event_loop_each(embedder, results, index):
    results[index] = asyncio.run(embedder.embed(["pay", "order"]))


def test_threads_with_loops_of_their_own_share_an_embedder(tiny):
    embedder, results = OnnxEmbedder(tiny()), [None] * 4
    threads = [threading.Thread(target=one_event_loop_each, args=(embedder, results, index)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(result, results[0]) for result in results)


def test_no_folder(tmp_path):
    with pytest.raises(ModelNotFoundError, match="No model folder at"):
        OnnxEmbedder(tmp_path / "nowhere")


def test_no_graph(tiny):
    folder = tiny()
    (folder / "model.onnx").unlink()
    with pytest.raises(ModelNotFoundError, match=r"No ONNX graph in .*onnx/model_quantized.onnx"):
        OnnxEmbedder(folder)


def test_no_tokenizer(tiny):
    with pytest.raises(ModelNotFoundError, match=r"No tokenizer in .*tokenizer\.json"):
        OnnxEmbedder(tiny(files={"tokenizer.json": None}))


def test_a_broken_tokenizer(tiny):
    with pytest.raises(ModelInvalidError, match=r"tokenizer\.json is no tokenizer"):
        OnnxEmbedder(tiny(files={"tokenizer.json": "{}"}))


@pytest.mark.parametrize("content", [b"", b"no graph", b"\x08\x07\x12\x00"])
def test_a_broken_graph(tiny, content):
    folder = tiny()
    (folder / "model.onnx").write_bytes(content)
    with pytest.raises(ModelInvalidError, match=r"model\.onnx"):
        OnnxEmbedder(folder)


def test_a_truncated_graph(tiny):
    folder = tiny()
    (folder / "model.onnx").write_bytes((folder / "model.onnx").read_bytes()[:200])
    with pytest.raises(ModelInvalidError, match=r"model\.onnx"):
        OnnxEmbedder(folder)


def test_token_ids_beyond_the_graphs_table(tiny):
    beyond = Tokenizer(models.WordLevel({"[UNK]": 500}, unk_token="[UNK]")).to_str()
    with pytest.raises(ModelInvalidError, match="does not work as an embedder"):
        OnnxEmbedder(tiny(files={"tokenizer.json": beyond}))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch": 1}, "dynamic axes"),
        ({"inputs": ("input_ids", "pixel_values")}, "wants the input pixel_values"),
        ({"files": {"1_Pooling/config.json": {"pooling_mode_max_tokens": True}}}, "asks for pooling max"),
        ({"files": {"1_Pooling/config.json": {"pooling_mode": "lasttoken"}}}, "asks for pooling lasttoken"),
        ({"files": {"1_Pooling/config.json": {"pooling_mode": ["cls", "mean"]}}}, "asks for pooling cls"),
        ({"files": {"1_Pooling/config.json": {"include_prompt": False}}}, "without the prompt"),
        ({"files": {"modules.json": [{"type": "sentence_transformers.models.Dense"}]}}, "asks for Dense"),
        ({"files": {"modules.json": "{"}}, r"modules\.json"),
        ({"files": {"config.json": "[]"}}, r"config\.json is no JSON object"),
        ({"files": {"config.json": "nonsense"}}, r"Cannot read .*config\.json"),
        (
            {"files": {"config_sentence_transformers.json": {"prompts": {}, "default_prompt_name": "q"}}},
            "default prompt 'q'",
        ),
    ],
)
def test_what_cannot_be_followed_is_refused(tiny, options, message):
    with pytest.raises(ModelInvalidError, match=message):
        OnnxEmbedder(tiny(**options))


def test_after_a_fork_it_says_so_instead_of_waiting_for_ever(tiny):
    code = """if True:
        import asyncio, os, signal, sys
        from gnl_semantic.embedder import OnnxEmbedder
        from gnl_semantic.errors import EmbedderError
        embedder = OnnxEmbedder(sys.argv[1])
        child = os.fork()
        if not child:
            signal.alarm(30)
            try:
                asyncio.run(embedder.embed(["a"]))
            except EmbedderError:
                os._exit(7)
            os._exit(1)
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    assert subprocess.run([sys.executable, "-c", code, str(tiny())], check=False).returncode == 7
