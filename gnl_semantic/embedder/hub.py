"""Find a hub's model in the local Hugging Face cache; download it only when told to."""

from __future__ import annotations

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
    graphs = (graph,) if graph else GRAPHS
    cached = _find_cached(name, graphs)
    if cached is not None:
        return cached
    if not allow_download:
        raise ModelNotFoundError(
            f"{name!r} is neither a folder nor, with a graph ({' or '.join(graphs)}) and a tokenizer, in the local "
            "Hugging Face cache. Name a model folder, or allow the download with allow_download=True.",
            name=name,
        )
    return _download(name, graphs)


def _find_cached(name: str, graphs: tuple[str, ...]) -> Path | None:
    try:
        from huggingface_hub import snapshot_download  # noqa: PLC0415
    except ImportError:
        raise MissingExtraError(f"The hub name {name!r}", "semantic") from None
    try:
        folder = Path(snapshot_download(name, local_files_only=True))
    except Exception as error:  # Not cached, no such name, no such cache folder: one way out for all.
        _log.debug("%s is not in the cache: %r", name, error)
        return None
    return folder if _has_one(folder, graphs) and _has_one(folder, TOKENIZERS) else None


def _has_one(folder: Path, files: tuple[str, ...]) -> bool:
    return any((folder / file).is_file() for file in files)


def _download(name: str, graphs: tuple[str, ...]) -> Path:
    from huggingface_hub import snapshot_download  # noqa: PLC0415

    _log.info("Downloading the model %s", name)
    for file in graphs:
        try:
            # Weights over 2 GB lie beside their graph.
            folder = Path(snapshot_download(name, allow_patterns=[*_SETTINGS, file, f"{file}?data*"]))
        except Exception as error:  # Whatever the network, the hub or the disk says.
            raise ModelNotFoundError(f"Cannot download {name!r}: {error}", name=name) from error
        if (folder / file).is_file():
            return folder
    raise ModelNotFoundError(f"{name!r} has no ONNX graph ({', '.join(graphs)}) in its repository.", name=name)
