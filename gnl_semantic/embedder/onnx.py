"""Any sentence-embedding model in an ordinary folder, run by onnxruntime on this machine's CPU."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnl_core.errors import MissingExtraError
from gnl_semantic.embedder.folder import ModelFolder, read_folder
from gnl_semantic.embedder.port import EmbedderProfile, Vectors
from gnl_semantic.embedder.tokens import load_encoder
from gnl_semantic.errors import EmbedderError, EmbedderInputError, ModelInvalidError
from gnl_semantic.threshold import UNKNOWN_THRESHOLD, MeasuredThreshold, threshold_warning

_log = logging.getLogger(__name__)

_BATCH = 32
_BATCH_TOKENS = 4096
"""Padded tokens of one run: bounds the memory of the attention at about 100 MB for a small model."""
_RUN_TOKENS = 16
"""Tokens whose work one more run costs. Measured for the built-in model, 1 thread: 6.5 ms a run, 0.4 ms a token."""
_MOST_THREADS = 4
_TYPES = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}
_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
_PROBE = ("12", "İade no. 2026-0418", "a sentence of some more words than the two before it " * 3)
_INVARIANT = 0.9999
"""Least cosine of a text alone with the same text in a batch. Measured: 0.999999 for float32 compute and for int8 with
one scale a block, 0.987 to 0.993 where one int8 scale covers a whole batch."""


class OnnxEmbedder:
    """An `Embedder` over a model's folder.

    Safe for concurrent callers: their calls run one after another on a thread of its own, off the event loop. A
    cancelled call ends after the batch it is in.

    Args:
        folder: The model's folder, or what `read_folder` made of it.
        model_id: The stamp of its vectors; by default the folder's name and a hash of its files and settings.
        candidate_threshold: Cosine below which two sentences are no candidates; by default the measured one, or
            `UNKNOWN_THRESHOLD` with a warning.
        measured: What is known of the model.
        threads: Of one run; by default as many as this process has CPUs, 4 at most.

    Attributes:
        warnings: What a person should know about the model; also written to the log.

    Raises:
        ModelNotFoundError: No folder, or a file missing in it.
        ModelInvalidError: Files that cannot be used.
        MissingExtraError: onnxruntime, tokenizers or (for some tokenizers) transformers is not installed.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | ModelFolder,
        *,
        model_id: str | None = None,
        candidate_threshold: float | None = None,
        measured: tuple[MeasuredThreshold, ...] = (),
        threads: int | None = None,
    ) -> None:
        folder = folder if isinstance(folder, ModelFolder) else read_folder(folder)
        self._model_id = model_id or folder.stamp(f"folder:{folder.path.resolve().name}")
        try:
            self._encode = load_encoder(folder)
            self._graph = _Graph(folder, threads or min(_MOST_THREADS, _cpus()))
        except ImportError as error:
            if isinstance(error, MissingExtraError):
                raise
            raise MissingExtraError("The embedder", "semantic") from error
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="gnl-embedder")
        self._process = os.getpid()
        dimension, doubts = self._probe(folder)
        known = next((one for one in measured if one.form == "canonical"), None)
        doubt = threshold_warning(self._model_id, candidate_threshold, known)
        self.warnings = (*doubts, *([doubt] if doubt else ()))
        if candidate_threshold is None and known is not None:
            candidate_threshold = known.value
        self._profile = EmbedderProfile(
            dimension=dimension,
            prefix=folder.prefix,
            max_tokens=folder.max_tokens,
            candidate_threshold=UNKNOWN_THRESHOLD if candidate_threshold is None else candidate_threshold,
            threshold_measured=candidate_threshold is not None,
            measured=measured,
        )
        for warning in self.warnings:
            _log.warning("%s", warning)

    @property
    def model_id(self) -> str:
        """The stamp of its vectors."""
        return self._model_id

    @property
    def profile(self) -> EmbedderProfile:
        """What was measured about the model."""
        return self._profile

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Return one row of length 1 a text: float32, shape (len(texts), dimension), in the order of the texts.

        Raises:
            EmbedderInputError: Something that is no text; nothing has been embedded.
            EmbedderError: The model failed, or belongs to the process that this one was forked from.
        """
        if os.getpid() != self._process:
            # A fork copies no threads, neither ours nor onnxruntime's: the call would wait for ever.
            raise EmbedderError(f"{self._model_id} was loaded before a fork: load it in the process that uses it.")
        checked = _check(texts)
        if not checked:
            return np.empty((0, self._profile.dimension), np.float32)
        stop = threading.Event()
        try:
            return await asyncio.get_running_loop().run_in_executor(
                self._worker, partial(self._embed, checked, stop.is_set)
            )
        finally:
            stop.set()

    def _embed(self, texts: Sequence[str], stopped: Callable[[], bool] = lambda: False) -> Vectors:
        try:
            tokens = self._encode(texts)
            rows: dict[int, Vectors] = {}
            for batch in _batches([len(ids) for ids in tokens]):
                if stopped():
                    break
                rows.update(zip(batch, self._graph.run([tokens[index] for index in batch]), strict=True))
        except EmbedderError:
            raise
        except Exception as error:  # onnxruntime and tokenizers raise what they like.
            raise EmbedderError(f"{self._model_id} could not embed {len(texts)} texts: {error}") from error
        if len(rows) < len(texts):
            raise EmbedderError(f"{self._model_id} was stopped after {len(rows)} of {len(texts)} texts.")
        return np.stack([rows[index] for index in range(len(texts))])

    def _probe(self, folder: ModelFolder) -> tuple[int, tuple[str, ...]]:
        """Run the model once: it must work, and a text's vector must not depend on its batch."""
        try:
            together = self._embed(_PROBE)
            alone = np.stack([self._embed([text])[0] for text in _PROBE])
        except EmbedderError as error:
            raise ModelInvalidError(
                f"{folder.graph} does not work as an embedder: {error}", path=str(folder.graph)
            ) from error
        least = float(np.sum(together * alone, axis=1).min())
        if least >= _INVARIANT:
            return together.shape[1], ()
        return together.shape[1], (
            f"{self._model_id}: the vector of a text depends on the texts embedded with it (cosine {least:.4f} with "
            "itself). Scores near a threshold are then a matter of chance: take a graph that is not dynamically "
            "quantised to int8.",
        )


class _Graph:
    """One onnxruntime session: token ids in, unit vectors out."""

    def __init__(self, folder: ModelFolder, threads: int) -> None:
        onnxruntime = _onnxruntime()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        # Threads that wait for the next run must not burn the CPU of the agent around them.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        try:
            self._session = onnxruntime.InferenceSession(folder.graph, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # One class a status code, all of them private.
            raise ModelInvalidError(f"{folder.graph} cannot be loaded: {error}", path=str(folder.graph)) from error
        self._types = self._read_inputs(folder)
        self._output = self._read_output(folder)
        self._pooling = folder.pooling
        self._pad = folder.pad_id

    def _read_inputs(self, folder: ModelFolder) -> dict[str, Any]:
        types = {}
        for one in self._session.get_inputs():
            if one.name not in _INPUTS or one.type not in _TYPES:
                raise ModelInvalidError(
                    f"{folder.graph} wants the input {one.name} ({one.type}); an embedder's graph has some of "
                    f"{', '.join(_INPUTS)}, as int64 or int32.",
                    path=str(folder.graph),
                )
            if any(isinstance(axis, int) for axis in one.shape):
                raise ModelInvalidError(
                    f"{folder.graph} was exported with the fixed shape {one.shape} of {one.name}: export it again with "
                    "dynamic axes for batch and length.",
                    path=str(folder.graph),
                )
            types[one.name] = _TYPES[one.type]
        return types

    def _read_output(self, folder: ModelFolder) -> str:
        """Return the output to read: pooled inside the graph where there is one, else the token vectors."""
        outputs = {one.name: len(one.shape) for one in self._session.get_outputs()}
        if outputs.get("sentence_embedding") == 2:
            return "sentence_embedding"
        token_vectors = [name for name, rank in outputs.items() if rank == 3]
        if not token_vectors:
            raise ModelInvalidError(
                f"{folder.graph} has neither an output sentence_embedding [batch, dimension] nor token vectors "
                f"[batch, tokens, dimension]: {outputs}.",
                path=str(folder.graph),
            )
        if folder.unknown_steps:
            raise ModelInvalidError(
                f"{folder.path} asks for {', '.join(folder.unknown_steps)}: export the model with that inside the "
                "graph (output sentence_embedding).",
                path=str(folder.path),
            )
        return "last_hidden_state" if "last_hidden_state" in token_vectors else token_vectors[0]

    def run(self, tokens: Sequence[Sequence[int]]) -> Vectors:
        """Return one unit vector a text; float32, shape (len(tokens), dimension)."""
        longest = max(len(ids) for ids in tokens)
        ids = np.full((len(tokens), longest), self._pad, np.int64)
        mask = np.zeros_like(ids)
        for row, one in enumerate(tokens):
            ids[row, : len(one)] = one
            mask[row, : len(one)] = 1
        known = {
            "input_ids": ids,
            "attention_mask": mask,
            "token_type_ids": np.zeros_like(ids),
        }
        feed = {name: known[name].astype(kind, copy=False) for name, kind in self._types.items()}
        (found,) = self._session.run([self._output], feed)
        vectors = found if found.ndim == 2 else _pool(found, mask, self._pooling)
        return _unit(vectors, len(tokens))


def _onnxruntime() -> Any:
    """Import onnxruntime with its telemetry off, unless the user has set the variable.

    Official builds (1.32 on Linux, for one) report events and a device id to their maker over HTTPS, and keep
    both under the user's cache folder. Of an embedder nothing leaves the machine.
    """
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime  # noqa: PLC0415

    if os.environ["ORT_DISABLE_TELEMETRY"] == "1":
        # The variable came too late where somebody has imported it before us.
        onnxruntime.disable_telemetry_events()
    return onnxruntime


def _pool(states: NDArray[Any], mask: NDArray[np.int64], pooling: str) -> NDArray[Any]:
    if pooling == "cls":
        first: NDArray[Any] = states[:, 0]
        return first
    # The division by the number of tokens cancels when the length becomes 1.
    summed: NDArray[Any] = np.einsum("bt,btd->bd", mask.astype(np.float32), states.astype(np.float32))
    return summed


def _unit(vectors: NDArray[Any], count: int) -> Vectors:
    if vectors.ndim != 2 or len(vectors) != count:
        raise EmbedderError(f"The graph returned the shape {vectors.shape} for {count} texts.")
    exact = vectors.astype(np.float64)
    lengths = np.linalg.norm(exact, axis=1, keepdims=True)
    if not np.all(np.isfinite(lengths) & (lengths > 0)):
        raise EmbedderError("The graph returned a vector that is zero or not finite.")
    unit: Vectors = (exact / lengths).astype(np.float32)
    return unit


def _check(texts: Sequence[str]) -> list[str]:
    if isinstance(texts, str | bytes):
        raise EmbedderInputError("embed() takes a list of texts; this is one text: put it into a list.")
    checked = list(texts)
    for index, text in enumerate(checked):
        if not isinstance(text, str):
            raise EmbedderInputError(f"Text {index} is of type {type(text).__name__}, not str.", index=index)
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise EmbedderInputError(
                f"Text {index} holds half a surrogate pair at character {error.start}: it is no Unicode text.",
                index=index,
            ) from None
    return checked


def _batches(lengths: Sequence[int]) -> list[list[int]]:
    """Return the indices of texts of like length together: batches within the limits, where padding stays cheap."""
    batches: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        # In this order the newest text is the longest: all before it would be padded to its length.
        longest, last = lengths[index], batches[-1] if batches else []
        fits = len(last) < min(_BATCH, _BATCH_TOKENS // max(1, longest))
        if last and fits and len(last) * (longest - lengths[last[-1]]) <= _RUN_TOKENS:
            last.append(index)
        else:
            batches.append([index])
    return batches


def _cpus() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS
        return os.cpu_count() or 1
