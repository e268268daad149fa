"""Embedders: texts to unit vectors, on this machine."""

from gnl_core.errors import MissingExtraError

try:
    import numpy as np  # noqa: F401
except ImportError:
    raise MissingExtraError("The embedder", "semantic") from None

from gnl_semantic.embedder.load import load_embedder
from gnl_semantic.embedder.onnx import OnnxEmbedder
from gnl_semantic.embedder.port import UNKNOWN_THRESHOLD, Embedder, EmbedderProfile, Vectors
from gnl_semantic.embedder.stamped import Stamped, cosine

__all__ = [
    "UNKNOWN_THRESHOLD",
    "Embedder",
    "EmbedderProfile",
    "OnnxEmbedder",
    "Stamped",
    "Vectors",
    "cosine",
    "load_embedder",
]
