"""From the name of a model to an embedder."""

from __future__ import annotations

import os
import re
from pathlib import Path

from gnl_core.errors import ConfigError
from gnl_semantic.embedder.builtin import DEFAULT, MODELS, ensure_builtin
from gnl_semantic.embedder.folder import read_folder
from gnl_semantic.embedder.hub import find_in_hub
from gnl_semantic.embedder.onnx import OnnxEmbedder
from gnl_semantic.errors import ModelNotFoundError

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)


def load_embedder(
    spec: str = DEFAULT,
    *,
    allow_download: bool = False,
    cache_dir: str | os.PathLike[str] | None = None,
    threads: int | None = None,
    graph: str | None = None,
    prefix: str | None = None,
    candidate_threshold: float | None = None,
) -> OnnxEmbedder:
    """Load a model. This blocks: for about a second, the first time for three.

    Args:
        spec: 'local' or a full name of the built-in model; a model's folder; or a hub name 'owner/name'. A folder that
            exists goes before a hub name.
        allow_download: Whether a hub's model that is not on this machine may be fetched.
        cache_dir: Where the built-in model is kept; by default `GNL_CACHE_DIR`, or the user's cache folder.
        threads: Of one run; by default as many as this process has CPUs, 4 at most.
        graph: ONNX file in the folder, 'onnx/model_quantized.onnx' for instance; by default the first that is there.
        prefix: Put in front of each text; by default what the folder says. Models of the E5 family need 'query: '.
        candidate_threshold: Cosine below which two sentences are no candidates; by default the measured one of the
            built-in model, and for others 0.60 with a warning. One that separates nothing earns a warning too.

    Raises:
        ModelNotFoundError: No such model here.
        ModelInvalidError: Its files cannot be used.
        ModelCacheError: The built-in model cannot be written to the cache folder.
        ConfigError: `graph` or `prefix` for a built-in model.
        MissingExtraError: A package is not installed.
    """
    if spec == "local" or spec.startswith("local:"):
        model = MODELS.get(DEFAULT if spec == "local" else spec)
        if model is None:
            raise ModelNotFoundError(f"No built-in model {spec!r}; there are {', '.join(MODELS)}.", name=spec)
        if graph or prefix is not None:
            raise ConfigError(f"{spec!r} brings its own graph and prefix: leave graph and prefix to models in folders.")
        folder = ensure_builtin(model, cache_dir=cache_dir)
        return OnnxEmbedder(
            folder,
            model_id=model.model_id,
            candidate_threshold=candidate_threshold,
            measured=model.thresholds,
            threads=threads,
        )
    path = Path(spec).expanduser()
    if spec and path.is_dir():
        folder_found = read_folder(path, graph=graph, prefix=prefix)
        return OnnxEmbedder(folder_found, candidate_threshold=candidate_threshold, threads=threads)
    if not _HUB_NAME.fullmatch(spec):
        raise ModelNotFoundError(
            f"No model {spec!r}: no such folder, and no hub name 'owner/name'. The built-in model is 'local'.",
            name=spec,
        )
    found = read_folder(find_in_hub(spec, allow_download=allow_download, graph=graph), graph=graph, prefix=prefix)
    return OnnxEmbedder(
        found, model_id=found.stamp(f"hub:{spec}"), candidate_threshold=candidate_threshold, threads=threads
    )
