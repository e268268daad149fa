"""From a name to an embedder: built-in names, folders, the local hub cache, and a hub on loopback."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from gnl_core.errors import ConfigError
from gnl_semantic.embedder import load_embedder
from gnl_semantic.errors import ModelNotFoundError

COMMIT = "0" * 40
LOAD = """
import sys
from gnl_core.errors import GnlError
from gnl_semantic.embedder import load_embedder
try:
    print(load_embedder(sys.argv[1], allow_download=sys.argv[2] == "download").model_id)
except GnlError as error:
    print(error.code, error)
"""


class Hub:
    """A server that answers a hub client's questions about one model, and remembers them."""

    def __init__(self, folder):
        self.files = {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
        self.fetched = []
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                self.answer(body=True)

            def do_HEAD(self):
                self.answer(body=False)

            def answer(self, *, body):
                path = self.path.partition("?")[0]
                name = path.partition(f"/resolve/{COMMIT}/")[2]
                headers, status = {"X-Repo-Commit": COMMIT}, 200
                if name in hub.files:
                    data = hub.files[name]
                    headers["ETag"] = f'"{abs(hash(name)):x}"'
                    if body:
                        hub.fetched.append(name)
                elif path.startswith("/api/models/owner/tiny/tree/"):
                    data = json.dumps(
                        [
                            {"type": "file", "path": name, "size": len(content), "oid": "1" * 40}
                            for name, content in hub.files.items()
                        ]
                    ).encode()
                elif path.startswith("/api/models/owner/tiny"):
                    siblings = [{"rfilename": name} for name in hub.files]
                    data = json.dumps({"id": "owner/tiny", "sha": COMMIT, "siblings": siblings}).encode()
                else:
                    data, status = b"{}", 404
                self.send_response(status)
                for header, value in {**headers, "Content-Length": str(len(data))}.items():
                    self.send_header(header, value)
                self.end_headers()
                if body:
                    self.wfile.write(data)

            def log_message(self, *arguments):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *exception):
        self.server.shutdown()
        self.server.server_close()


def cached(folder, hub):
    """Put a folder where the hub's client keeps models."""
    home = hub / "models--owner--tiny"
    (home / "refs").mkdir(parents=True)
    (home / "refs" / "main").write_text(COMMIT)
    (home / "snapshots").mkdir()
    folder.rename(home / "snapshots" / COMMIT)


async def test_local_is_the_default_model(q4, model_cache, monkeypatch):
    monkeypatch.setenv("GNL_CACHE_DIR", str(model_cache))
    embedder = load_embedder()
    assert embedder.model_id == q4.model_id == "local:multilingual-e5-small@q4"
    assert (await embedder.embed(["a"]) == await q4.embed(["a"])).all()


async def test_the_built_in_folder_works_as_a_users_own(q4, model_cache):
    (folder,) = (model_cache / "models").glob("multilingual-e5-small@q4-[0-9]")
    embedder = load_embedder(str(folder), threads=1)
    assert embedder.profile.prefix == "query: "
    assert embedder.model_id != q4.model_id
    assert (await embedder.embed(["İade 12"]))[0] @ (await q4.embed(["İade 12"]))[0] > 0.99999


def test_an_unknown_built_in_name_lists_the_known(tmp_path):
    with pytest.raises(
        ModelNotFoundError, match="local:multilingual-e5-small@q4, local:multilingual-e5-small@q4-int8act"
    ):
        load_embedder("local:multilingual-e5-large@q4", cache_dir=tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("spec", ["", "nowhere", "/no/such/folder", "../x", "a/b/c", "owner/../x", "https://x/y"])
def test_what_names_nothing_is_told(spec, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelNotFoundError, match=f"No model {spec!r}"):
        load_embedder(spec)


@pytest.mark.parametrize("option", [{"graph": "model.onnx"}, {"prefix": ""}])
def test_the_built_in_model_takes_no_other_graph_or_prefix(option, tmp_path):
    with pytest.raises(ConfigError, match="brings its own"):
        load_embedder("local", cache_dir=tmp_path, **option)


def test_a_folder_with_the_callers_graph_and_prefix(tiny):
    folder = tiny(where="onnx/other.onnx")
    with pytest.raises(ModelNotFoundError, match="No ONNX graph"):
        load_embedder(str(folder))
    embedder = load_embedder(str(folder), graph="onnx/other.onnx", prefix="query: ")
    assert embedder.profile.prefix == "query: "
    assert "@other-" in embedder.model_id
    assert embedder.model_id != load_embedder(str(folder), graph="onnx/other.onnx").model_id


@pytest.mark.network_free
def test_a_hub_name_is_found_in_the_local_cache_without_network(run, no_network, tiny, tmp_path):
    cached(tiny(), tmp_path / "hub")
    assert run(no_network + LOAD, "owner/tiny", "no").startswith("hub:owner/tiny@model-")


@pytest.mark.network_free
def test_nothing_is_downloaded_unasked(run, no_network):
    told = run(no_network + LOAD, "owner/tiny", "no")
    assert told.startswith("model_not_found")
    assert "NETWORK" not in told
    assert "allow_download=True" in told


def test_a_cached_model_without_a_graph_is_no_model(run, no_network, tiny, tmp_path):
    folder = tiny()
    (folder / "model.onnx").unlink()
    cached(folder, tmp_path / "hub")
    assert run(no_network + LOAD, "owner/tiny", "no").startswith("model_not_found")


def test_a_download_that_was_allowed_takes_what_is_needed(run, tiny):
    folder = tiny(where="onnx/model_quantized.onnx")
    (folder / "pytorch_model.bin").write_bytes(b"not wanted")
    with Hub(folder) as hub:
        first = run(LOAD, "owner/tiny", "download", HF_ENDPOINT=hub.url)
        assert first.startswith("hub:owner/tiny@model_quantized-")
        assert sorted(hub.fetched) == ["config.json", "onnx/model_quantized.onnx", "tokenizer.json"]
    # The second time the hub is gone and the cache answers.
    assert run(LOAD, "owner/tiny", "no", HF_ENDPOINT=hub.url) == first


def test_a_download_that_fails_is_told(run, tmp_path):
    told = run(LOAD, "owner/tiny", "download", HF_ENDPOINT="http://127.0.0.1:9")
    assert told.startswith("model_not_found Cannot download 'owner/tiny'")
