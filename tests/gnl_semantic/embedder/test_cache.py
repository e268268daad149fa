"""A folder that is whole or not there, with files small enough to try everything."""

import hashlib
import json

import pytest

from gnl_semantic.embedder.cache import MANIFEST, cache_root, ensure_folder
from gnl_semantic.errors import ModelCacheError

FILES = {"model.onnx": b"x" * 1000, "config.json": b"{}"}


def must_not_build():
    raise AssertionError("built again")


@pytest.fixture
def built(tmp_path):
    return ensure_folder(tmp_path / "models" / "m", lambda: FILES)


def test_a_built_folder_holds_the_files_and_their_manifest(built):
    assert {file.name: file.read_bytes() for file in built.iterdir() if file.name != MANIFEST} == FILES
    entry = json.loads((built / MANIFEST).read_text())["files"]["model.onnx"]
    assert entry == {"bytes": 1000, "sha256": hashlib.sha256(FILES["model.onnx"]).hexdigest()}


def test_a_whole_folder_is_used_without_writing_beside_it(built):
    (built.parent / ".m.lock").unlink()
    assert ensure_folder(built, must_not_build) == built
    assert [file.name for file in built.parent.iterdir()] == ["m"]


def truncate(folder):
    (folder / "model.onnx").write_bytes(b"x" * 999)


def flip(folder):
    (folder / "model.onnx").write_bytes(b"x" * 999 + b"y")


def lose(folder):
    (folder / "config.json").unlink()


def forget(folder):
    (folder / MANIFEST).unlink()


def halve(folder):
    (folder / MANIFEST).write_bytes((folder / MANIFEST).read_bytes()[:40])


def empty(folder):
    (folder / MANIFEST).write_bytes(b"[]")


def replace(folder):
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    folder.write_bytes(b"a file where the folder should be")


@pytest.mark.parametrize("damage", [truncate, flip, lose, forget, halve, empty, replace])
def test_a_damaged_folder_is_built_again(built, damage):
    damage(built)
    assert ensure_folder(built, lambda: FILES) == built
    assert (built / "model.onnx").read_bytes() == FILES["model.onnx"]
    assert ensure_folder(built, must_not_build) == built
    assert sorted(file.name for file in built.parent.iterdir()) == [".m.lock", "m"]


def test_what_a_killed_builder_left_makes_room_first(tmp_path):
    left = tmp_path / ".m.abcd.part"
    left.mkdir()
    (left / "model.onnx").write_bytes(b"half")

    def build():
        assert not left.exists()
        return FILES

    ensure_folder(tmp_path / "m", build)
    assert sorted(file.name for file in tmp_path.iterdir()) == [".m.lock", "m"]


def test_a_failing_build_leaves_nothing_and_may_be_tried_again(tmp_path):
    def fail():
        raise OSError(28, "No space left on device")

    with pytest.raises(ModelCacheError, match=r"No space left on device.*GNL_CACHE_DIR"):
        ensure_folder(tmp_path / "m", fail)
    assert [file.name for file in tmp_path.iterdir()] == [".m.lock"]
    assert ensure_folder(tmp_path / "m", lambda: FILES).is_dir()


@pytest.mark.parametrize("below", ["", "deeper/still"])
def test_a_file_in_the_way_is_a_clear_error(tmp_path, below):
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelCacheError, match=r"Cannot build the model into .*file.*GNL_CACHE_DIR"):
        ensure_folder(tmp_path / "file" / below / "m", must_not_build)


def test_the_argument_goes_before_the_environment_before_the_users_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("GNL_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_root() == tmp_path / ".cache" / "gnl-semantic"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_root() == tmp_path / "xdg" / "gnl-semantic"
    monkeypatch.setenv("GNL_CACHE_DIR", "~/named")
    assert cache_root() == tmp_path / "named"
    assert cache_root(tmp_path / "argument") == tmp_path / "argument"
