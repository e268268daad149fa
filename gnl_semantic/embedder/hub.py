"""Find a hub's model in the local Hugging Face cache; download it only when told to."""

from __future__ import annotations

import importlib.util
import logging
from pathlib import Path

from gnl_core.errors import MissingExtraError
from gnl_semantic.embedder.folder import GRAPHS, TOKENIZERS
from gnl_semantic.errors import ModelNotFoundError

_log = logging.getLogger(__name__)

_SETTINGS = ("*.json", "vocab.txt", "merges.txt", "*.model")


def find_in_hub(name: str, *, allow_download: bool = False, graph: str | None = None) -> Path:
    """Return the folder of a hub's model, 'owner/name'.

    The Hugging Face cache is where its own environment variables (HF_HOME, HF_HUB_CACHE) put it.

    Raises:
        ModelNotFoundError: It is not in the cache and may not, or could not, be downloaded.
        MissingExtraError: huggingface_hub is not installed.
    """
    if importlib.util.find_spec("huggingface_hub") is None:
        raise MissingExtraError(f"The hub name {name!r}", "semantic")
    graphs = (graph,) if graph else GRAPHS
    for file in graphs:
        try:
            folder = _fetch(name, file, local_files_only=True)
        except Exception as error:  # Not cached or not whole, no such name, no cache folder: one way out for all.
            _log.debug("%s with %s is not in the cache: %r", name, file, error)
            continue
        if (folder / file).is_file() and any((folder / one).is_file() for one in TOKENIZERS):
            return folder
    if not allow_download:
        raise ModelNotFoundError(
            f"{name!r} is neither a folder nor, with its settings and a graph ({' or '.join(graphs)}), in the local "
            "Hugging Face cache. Name a model folder, or allow the download with allow_download=True.",
            name=name,
        )
    return _download(name, graphs)


def _download(name: str, graphs: tuple[str, ...]) -> Path:
    _log.info("Downloading the model %s", name)
    for file in graphs:
        try:
            folder = _fetch(name, file)
        except Exception as error:  # Whatever the network, the hub or the disk says.
            raise ModelNotFoundError(f"Cannot download {name!r}: {error}", name=name) from error
        if (folder / file).is_file():
            return folder
    raise ModelNotFoundError(f"{name!r} has no ONNX graph ({', '.join(graphs)}) in its repository.", name=name)


def _fetch(name: str, graph: str, *, local_files_only: bool = False) -> Path:
    """Return the snapshot with the settings and one graph; the client refuses one that it knows to be partial."""
    from huggingface_hub import snapshot_download  # noqa: PLC0415

    # Weights over 2 GB lie beside their graph.
    wanted = [*_SETTINGS, graph, f"{graph}?data*"]
    return Path(snapshot_download(name, allow_patterns=wanted, local_files_only=local_files_only))
