"""From the words after --embedder to an embedder: a model, the hashing one, or a function of the caller's own."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from gnl_core.errors import ConfigError
from gnl_core.hook import call_in_thread
from gnl_semantic.embedder.port import Embedder, EmbedderProfile, Vectors
from gnl_semantic.errors import EmbedderError, ModelNotFoundError

if TYPE_CHECKING:
    from gnl_semantic.embedding import EmbedFunction

BATCH = 64
"""Most texts of one call of a function: few enough for the servers that embed."""

WAYS = (
    "'local' (the built-in model), a model's folder, a hub name 'owner/name' whose files are in the local Hugging Face "
    "cache, a function as my_embed.py:embed or package.module:embed with --embed-model-id, or 'hashing' (no model)"
)


class FunctionEmbedder:
    """A function from texts to vectors, as `SemanticGate(embed=…)` takes it: sync (then in a thread) or async.

    Args:
        function: Gets at most `BATCH` texts a call.
        model_id: The stamp of its vectors.
        where: Names it in errors.
    """

    threshold_option = "SemanticGate(min_similarity={:.3f})"
    """How a threshold is configured for it at run time."""

    def __init__(self, function: EmbedFunction, *, model_id: str, where: str) -> None:
        self._function = function
        self._model_id = model_id
        self._where = where
        self._dimension: int | None = None

    @property
    def model_id(self) -> str:
        """The stamp."""
        return self._model_id

    @property
    def profile(self) -> EmbedderProfile:
        """What is known of it: nothing but the dimension, which is 0 before the first vector."""
        return EmbedderProfile(dimension=self._dimension or 0)

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Return one row of length 1 a text.

        Raises:
            EmbedderError: The function raised, or returned anything but one vector a text.
        """
        batches = [list(texts[start : start + BATCH]) for start in range(0, len(texts), BATCH)]
        rows = [self._unit(await self._call(batch), len(batch)) for batch in batches]
        return np.concatenate(rows) if rows else np.empty((0, self._dimension or 0), np.float32)

    async def _call(self, texts: list[str]) -> object:
        try:
            if inspect.iscoroutinefunction(self._function):
                return await self._function(texts)
            answer = await call_in_thread(lambda: self._function(texts))
            return await answer if inspect.isawaitable(answer) else answer
        except (KeyboardInterrupt, asyncio.CancelledError):
            raise
        except BaseException as error:  # sys.exit(0) of a function must not look like a calibration
            raise EmbedderError(
                f"--embedder {self._where}: raised {type(error).__name__}: {error}. It is called with a list of at "
                f"most {BATCH} texts and must return one vector a text"
            ) from error

    def _unit(self, answer: object, texts: int) -> Vectors:
        try:
            with np.errstate(over="ignore"):
                rows = np.asarray(answer, dtype=np.float32).astype(np.float64)  # the square of a float32 may be none
        except (TypeError, ValueError):
            raise self._unusable(f"{type(answer).__name__} that holds no rows of numbers, all of one length") from None
        if rows.ndim != 2 or len(rows) != texts or not rows.shape[1]:
            raise self._unusable(f"an array of shape {rows.shape} for {texts} texts")
        if self._dimension not in (None, rows.shape[1]):
            raise self._unusable(f"vectors of {rows.shape[1]} numbers, and of {self._dimension} before")
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        if not np.isfinite(lengths).all() or not lengths.all():
            raise self._unusable("a vector that is not finite, or has no length")
        self._dimension = rows.shape[1]
        unit: Vectors = np.ascontiguousarray(rows / lengths, dtype=np.float32)
        return unit

    def _unusable(self, what: str) -> EmbedderError:
        return EmbedderError(
            f"--embedder {self._where}: returned {what}; it must return one vector a text, all of one length: a list "
            "of lists of numbers, or an array of shape (texts, dimension)"
        )


def embedder_of(name: str, model_id: str | None) -> Embedder:
    """Return what --embedder and --embed-model-id name.

    Raises:
        ConfigError: There is no such embedder, or it cannot be loaded; the message names the options of the program.
        MissingExtraError: A package is not installed.
    """
    is_function = ":" in name and not name.startswith("local:") and not _is_folder(name)
    if is_function:
        return _function(name, model_id)
    if model_id is not None:
        raise ConfigError(
            f"--embed-model-id belongs to a function (--embedder my_embed.py:embed); {name!r} brings its own: leave it "
            "out"
        )
    if name == "hashing":
        from gnl_qualify.hashing import HashingEmbedder  # noqa: PLC0415

        return HashingEmbedder()
    if name.endswith(".py"):
        raise ConfigError(f"--embedder {name}: names a file and no function in it: write {name}:embed")
    from gnl_semantic.embedder import load_embedder  # noqa: PLC0415

    try:
        return load_embedder(name)
    except ModelNotFoundError as error:
        # Its own message names arguments of Python that are no options here.
        what = "the folder holds no ONNX graph with its tokenizer" if _is_folder(name) else "there is no such embedder"
        raise ConfigError(f"--embedder {name}: {what}. Name {WAYS}") from error


def _is_folder(name: str) -> bool:
    try:
        return Path(name).expanduser().is_dir()
    except (OSError, RuntimeError):
        return False


def _function(spec: str, model_id: str | None) -> Embedder:
    head, _, attribute = spec.rpartition(":")
    found = _of_file(Path(head), attribute) if head.endswith(".py") else _of_module(spec)
    if isinstance(found, Embedder) and not isinstance(found, type):
        if model_id is not None:
            raise ConfigError(f"--embed-model-id: {spec} is an embedder with the id {found.model_id!r}: leave it out")
        return found
    if not callable(found):
        raise ConfigError(
            f"--embedder {spec}: is {type(found).__name__}, must be a function that takes a list of texts and returns "
            "one vector a text"
        )
    if model_id is None or not model_id.strip():
        raise ConfigError(
            f"--embedder {spec}: a function's vectors need a stamp: add --embed-model-id ID, the id that the gate is "
            "given as SemanticGate(embed_model_id=…)"
        )
    return FunctionEmbedder(found, model_id=model_id, where=spec)


def _of_module(spec: str) -> Any:
    from gnl_core.cli.target import load  # noqa: PLC0415

    try:
        return load(spec)
    except ConfigError as error:
        raise ConfigError(f"--embedder: {error}. Name {WAYS}") from error


def _of_file(path: Path, attribute: str) -> Any:
    """Run a file and return one name of it. Its folder is not put on the import path."""
    try:
        source = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"--embedder {path}: cannot be read: {error.strerror}. Name {WAYS}") from None
    module = ModuleType(f"gnl_embed_{hashlib.sha256(source).hexdigest()[:16]}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module
    try:
        exec(compile(source, str(path), "exec"), module.__dict__)  # noqa: S102 - the caller's own code
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
        raise ConfigError(
            f"--embedder {path}{f', line {line}' if line else ''}: cannot be loaded: {type(error).__name__}: {error}. "
            "The file must be loadable without running anything"
        ) from error
    if not hasattr(module, attribute):
        raise ConfigError(
            f"--embedder {path}: holds no {attribute!r}: define {attribute or 'embed'}(texts) there, or name another"
        )
    return getattr(module, attribute)
