"""Embedders: texts to unit vectors, on this machine."""

from gnl_core.errors import MissingExtraError

try:
    import numpy as np  # noqa: F401
except ImportError:
    raise MissingExtraError("The embedder", "semantic") from None

from gnl_semantic.embedder.load import load_embedder
from gnl_semantic.embedder.onnx import OnnxEmbedder
from gnl_semantic.embedder.port import Embedder, EmbedderProfile, Vectors
from gnl_semantic.embedder.stamped import Stamped, cosine
from gnl_semantic.threshold import UNKNOWN_THRESHOLD, MeasuredThreshold, SentenceForm, threshold_warning

__all__ = [
    "UNKNOWN_THRESHOLD",
    "Embedder",
    "EmbedderProfile",
    "MeasuredThreshold",
    "OnnxEmbedder",
    "SentenceForm",
    "Stamped",
    "Vectors",
    "cosine",
    "load_embedder",
    "threshold_warning",
]
