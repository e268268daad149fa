"""Models to embed with: the built-in one, built once into a temporary cache, and tiny ones made on the spot."""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from gnl_semantic.embedder import load_embedder

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "query:", "pay", "invoice", "order", "a", "b"]
DIMENSION = 6


@pytest.fixture(scope="session")
def model_cache(tmp_path_factory):
    cache = tmp_path_factory.mktemp("model-cache")
    yield cache
    shutil.rmtree(cache)  # pytest would keep 150 MB of it for three more sessions.


@pytest.fixture(scope="session")
def q4(model_cache):
    return load_embedder("local", cache_dir=model_cache)


@pytest.fixture(scope="session")
def int8act(model_cache):
    return load_embedder("local:multilingual-e5-small@q4-int8act", cache_dir=model_cache)


@pytest.fixture(params=["q4", "int8act"])
def builtin(request):
    """Each graph that is shipped."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def no_network():
    """Code that makes every attempt at a connection fail, and tell."""
    return (
        "import sys\n"
        "def refuse(event, arguments):\n"
        "    if event in ('socket.connect', 'socket.getaddrinfo', 'socket.sendto'):\n"
        "        print('NETWORK', event, arguments, flush=True)\n"
        "        raise OSError('no network in this test')\n"
        "sys.addaudithook(refuse)\n"
    )


@pytest.fixture
def python(tmp_path):
    """Start Python code in a process of its own, its caches in the test's folder."""
    started = []

    def start(code, *arguments, **environment):
        inherited = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
        env = {**inherited, "GNL_CACHE_DIR": str(tmp_path / "cache"), "HF_HUB_CACHE": str(tmp_path / "hub")}
        process = subprocess.Popen(
            [sys.executable, "-c", code, *map(str, arguments)],
            env={**env, **{name: str(value) for name, value in environment.items()}},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def run(python):
    """Run Python code in a process of its own to its end; return what it printed."""

    def finish(code, *arguments, **environment):
        process = python(code, *arguments, **environment)
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        return out

    return finish


def table():
    """One random vector a word."""
    return np.random.default_rng(7).normal(size=(len(WORDS), DIMENSION)).astype(np.float32)


def tokenizer():
    tok = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tok.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tok.add_special_tokens(["[PAD]", "[CLS]", "[SEP]"])
    tok.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return tok


def graph(*, output="last_hidden_state", inputs=("input_ids", "attention_mask"), batch="batch", leaky=False, kind=1):
    """Look words up. `leaky` mixes the rows of a batch, as one quantisation scale for all of them would."""
    int64 = TensorProto.INT64
    nodes = [helper.make_node("Gather", ["table", "input_ids"], ["words"])]
    if leaky:
        nodes += [
            helper.make_node("ReduceMax", ["words", "first"], ["most"], keepdims=1),
            helper.make_node("Add", ["words", "most"], ["mixed"]),
        ]
    states = "mixed" if leaky else "words"
    if output == "sentence_embedding":
        nodes.append(helper.make_node("ReduceMax", [states, "second"], [output], keepdims=0))
    else:
        nodes.append(helper.make_node("Cast", [states], [output], to=kind))
    shape = [batch, DIMENSION] if output == "sentence_embedding" else [batch, "tokens", DIMENSION]
    body = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info(name, int64, [batch, "tokens"]) for name in inputs],
        [helper.make_tensor_value_info(output, kind, shape)],
        [
            numpy_helper.from_array(table(), "table"),
            numpy_helper.from_array(np.array([0]), "first"),
            numpy_helper.from_array(np.array([1]), "second"),
        ],
    )
    return helper.make_model(body, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


class Tiny:
    """Makes folders of a model that looks words up in a table, and knows what it should answer."""

    words = WORDS
    dimension = DIMENSION

    def __init__(self, root):
        self.root = root

    def __call__(self, *, name="tiny", files=(), where="model.onnx", **options):
        """Keyword `files` adds files (None leaves one out); unknown options go to `graph`."""
        folder = self.root / name
        contents = {"tokenizer.json": tokenizer().to_str(), "config.json": {"pad_token_id": 0}, **dict(files)}
        for path, content in contents.items():
            if content is None:
                continue
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(content if isinstance(content, str) else json.dumps(content))
        (folder / where).parent.mkdir(parents=True, exist_ok=True)
        onnx.save(graph(**options), folder / where)
        return folder

    def token_vectors(self, text):
        """One row a token of the text, special ones included."""
        ids = [WORDS.index(word) if word in WORDS[4:] else 1 for word in text.split()]
        return table()[[WORDS.index("[CLS]"), *ids, WORDS.index("[SEP]")]]

    def mean(self, text):
        return unit(self.token_vectors(text).mean(axis=0))


def unit(vector):
    return vector / np.linalg.norm(vector)


@pytest.fixture
def tiny(tmp_path):
    return Tiny(tmp_path)
