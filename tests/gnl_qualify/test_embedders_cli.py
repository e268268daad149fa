"""`calibrate --embedder` as a person names embedders: functions of one's own, and names that lead nowhere."""

import json
import sys

import numpy as np
import pytest

from gnl_core.errors import ConfigError
from gnl_qualify.embedders import BATCH, FunctionEmbedder, embedder_of
from gnl_semantic.embedder.port import Embedder
from gnl_semantic.errors import EmbedderError

FUNCTION = """
import re, zlib

class NoNumber(Exception):
    pass

def vector(text):
    words = sorted(set(re.findall(r"[^\\W_]+", text.lower())))
    return [3.0 * sum((zlib.crc32(word.encode()) >> bit) & 1 for word in words) + 0.1 for bit in range(24)]

def embed(texts):
    return [vector(text) for text in texts]

async def embed_async(texts):
    return embed(texts)

def raises(texts):
    raise NoNumber("no key\\x1b[2J")

def leaves(texts):
    raise SystemExit(0)

def one_row(texts):
    return vector(texts[0])

def ragged(texts):
    return [[1.0] * (place + 1) for place, _ in enumerate(texts)]

def zeros(texts):
    return [[0.0, 0.0] for _ in texts]

def words(texts):
    return "no vectors"

number = 7

class Whole:
    model_id = "own:whole"
    from gnl_semantic.embedder import EmbedderProfile
    profile = EmbedderProfile(dimension=24)

    async def embed(self, texts):
        import numpy
        rows = numpy.array(embed(texts), numpy.float32)
        return rows / numpy.linalg.norm(rows, axis=1, keepdims=True)

whole = Whole()
"""


@pytest.fixture
def folder(room, tmp_path):
    room.write_set(tmp_path / "mine.json", room.set_of(40))
    (tmp_path / "my_embed.py").write_text(FUNCTION, encoding="utf-8")
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "module.py").write_text(FUNCTION, encoding="utf-8")
    (tmp_path / "broken.py").write_text("x = 1\nimport nothing_like_this\n", encoding="utf-8")
    (tmp_path / "exits.py").write_text("raise SystemExit(0)\n", encoding="utf-8")
    (tmp_path / "empty").mkdir()
    return tmp_path


@pytest.fixture
def calibrate(room, folder):
    return lambda *args: room.run("calibrate", "--fixtures", "mine.json", *args, cwd=folder)


def test_a_function_is_measured_sync_or_async_from_a_file_or_a_module(calibrate, folder):
    reports = []
    for spec in (
        "my_embed.py:embed",
        "my_embed.py:embed_async",
        "pack.module:embed",
        str(folder / "my_embed.py:embed"),
    ):
        done = calibrate("--embedder", spec, "--embed-model-id", "my-model@1", "--json", "c.json")
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("embedder my-model@1, set mine ")
        reports.append(json.loads((folder / "c.json").read_text(encoding="utf-8")))
    assert all(report == reports[0] for report in reports)
    (found,) = (row["value"] for row in reports[0]["thresholds"] if row["form"] == "canonical")
    assert reports[0]["threshold"] == found
    assert f"configure SemanticGate(min_similarity={found:.3f}) (canonical form)" in " ".join(reports[0]["warnings"])


def test_an_embedder_object_brings_its_own_id(calibrate):
    done = calibrate("--embedder", "my_embed.py:whole")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("embedder own:whole, ")
    done = calibrate("--embedder", "my_embed.py:whole", "--embed-model-id", "other")
    assert (done.returncode, "'own:whole': leave it out" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("my_embed.py:embed",), "add --embed-model-id ID"),
        (("my_embed.py:embed", "--embed-model-id", " "), "add --embed-model-id ID"),
        (("my_embed.py",), "write my_embed.py:embed"),
        (("my_embed.py:",), "define embed(texts) there"),
        (("my_embed.py:nothing",), "holds no 'nothing'"),
        (("my_embed.py:number",), "is int, must be a function"),
        (("no.py:embed",), "no.py: cannot be read: No such file"),
        (("broken.py:embed",), "broken.py, line 2: cannot be loaded: ModuleNotFoundError"),
        (("exits.py:embed",), "exits.py, line 1: cannot be loaded: SystemExit"),
        (("no_module:embed",), "there is no module 'no_module'"),
        (("pack.module:nothing",), "holds no callable 'nothing'"),
        (("a b:c",), "must be MODULE:FUNCTION"),
        (("nowhere",), "there is no such embedder"),
        (("no/where",), "there is no such embedder"),
        (("local:other",), "there is no such embedder"),
        (("empty",), "the folder holds no ONNX graph with its tokenizer"),
        (("hashing", "--embed-model-id", "x"), "leave it out"),
        (("local", "--embed-model-id", "x"), "leave it out"),
        (("nowhere", "--embed-model-id", "x"), "leave it out"),
    ],
)
def test_what_is_no_embedder_is_refused_with_the_way_out(folder, monkeypatch, args, told):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [*sys.path])
    name, *rest = args
    with pytest.raises(ConfigError) as refused:
        embedder_of(name, rest[1] if rest else None)
    text = str(refused.value)
    assert told in text
    assert "\n" not in text
    for python_option in ("allow_download", "graph=", "prefix", "name="):
        assert python_option not in text
    if told.startswith("there is no such embedder"):
        assert "a function as my_embed.py:embed or package.module:embed with --embed-model-id" in text


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("raises", "raised NoNumber: no key"),
        ("leaves", "raised SystemExit: 0"),
        ("one_row", "returned an array of shape (24,) for 64 texts"),
        ("ragged", "returned list that holds no rows of numbers"),
        ("zeros", "returned a vector that is not finite, or has no length"),
        ("words", "returned str that holds no rows of numbers"),
    ],
)
async def test_a_function_that_fails_is_told_with_what_it_must_return(folder, monkeypatch, name, told):
    monkeypatch.chdir(folder)
    embedder = embedder_of(f"my_embed.py:{name}", "m")
    with pytest.raises(EmbedderError) as failed:
        await embedder.embed(["tv 42"] * BATCH)
    text = str(failed.value)
    assert text.startswith(f"--embedder my_embed.py:{name}: ")
    assert told in text
    assert "one vector a text" in text


def test_a_fault_of_a_function_is_one_harmless_line(calibrate):
    done = calibrate("--embedder", "my_embed.py:raises", "--embed-model-id", "m")
    assert (done.returncode, done.stdout) == (2, "")
    assert "raised NoNumber: no key\\x1b[2J" in done.stderr
    assert "Traceback" not in done.stderr
    assert "\x1b" not in done.stderr


async def test_a_function_gets_its_texts_in_batches_and_in_order():
    sizes = []

    def embed(texts):
        sizes.append(len(texts))
        return [[float(text), 1e30] for text in texts]

    embedder = FunctionEmbedder(embed, model_id="m", where="f")
    assert isinstance(embedder, Embedder)
    assert (await embedder.embed([])).shape == (0, 0)
    texts = [str(number) for number in range(2 * BATCH + 1)]
    vectors = await embedder.embed(texts)
    assert sizes == [BATCH, BATCH, 1]
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1)
    assert vectors.dtype == np.float32
    assert embedder.profile.dimension == 2
    assert not embedder.profile.threshold_measured
    one_by_one = [(await embedder.embed([text]))[0] for text in texts[:3]]
    assert (vectors[:3] == np.stack(one_by_one)).all()


async def test_a_width_that_changes_is_refused():
    widths = iter((2, 3))
    embedder = FunctionEmbedder(lambda texts: np.ones((len(texts), next(widths))), model_id="m", where="f")
    await embedder.embed(["a"])
    with pytest.raises(EmbedderError, match="vectors of 3 numbers, and of 2 before"):
        await embedder.embed(["a"])
