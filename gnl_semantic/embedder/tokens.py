"""Texts to token ids, through `tokenizers`, or through transformers where only that can read the folder."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnl_core.errors import MissingExtraError
from gnl_semantic.embedder.folder import ModelFolder
from gnl_semantic.errors import ModelInvalidError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Encode = Callable[[Sequence[str]], list[list[int]]]


def load_encoder(folder: ModelFolder) -> Encode:
    """Return a function from texts to token ids: normalised (NFC), prefixed, cut, with special tokens around.

    Control tokens that a text contains ('<s>', '[MASK]') are read as the text they are.

    Raises:
        ModelInvalidError: The tokenizer's files cannot be used.
        MissingExtraError: They need transformers, which is not installed.
    """
    file = folder.path / "tokenizer.json"
    if file.is_file():
        return _encoder(folder, _read_tokenizer(file))
    loaded = _read_with_transformers(folder.path)
    backend = getattr(loaded, "backend_tokenizer", None)
    return _slow_encoder(folder, loaded) if backend is None else _encoder(folder, backend)


def _read_tokenizer(file: Path) -> Tokenizer:
    from tokenizers import Tokenizer  # noqa: PLC0415

    try:
        return Tokenizer.from_file(str(file))
    except Exception as error:  # The library raises nothing narrower.
        raise ModelInvalidError(f"{file} is no tokenizer that can be used: {error}.", path=str(file)) from error


def _read_with_transformers(path: Path) -> Any:
    try:
        from transformers import AutoTokenizer  # noqa: PLC0415
    except ImportError:
        raise MissingExtraError(f"The tokenizer of {path}, which has no tokenizer.json,", "transformers") from None
    try:
        return AutoTokenizer.from_pretrained(str(path), local_files_only=True, trust_remote_code=False)
    except Exception as error:  # Each tokenizer class raises its own.
        raise ModelInvalidError(f"Cannot read the tokenizer of {path}: {error}.", path=str(path)) from error


def _encoder(folder: ModelFolder, tokenizer: Tokenizer) -> Encode:
    tokenizer.no_padding()
    tokenizer.enable_truncation(folder.max_tokens)
    tokenizer.encode_special_tokens = True
    added = tokenizer.get_added_tokens_decoder().values()
    prepare = _preparer(folder.prefix, [token.content for token in added if token.special])

    def encode(texts: Sequence[str]) -> list[list[int]]:
        return [encoding.ids for encoding in tokenizer.encode_batch_fast([prepare(text) for text in texts])]

    return encode


def _slow_encoder(folder: ModelFolder, tokenizer: Any) -> Encode:
    prepare = _preparer(folder.prefix, list(tokenizer.all_special_tokens))

    def encode(texts: Sequence[str]) -> list[list[int]]:
        prepared = [prepare(text) for text in texts]
        ids: list[list[int]] = tokenizer(
            prepared, truncation=True, max_length=folder.max_tokens, padding=False, split_special_tokens=True
        )["input_ids"]
        return ids

    return encode


def _preparer(prefix: str, control: list[str]) -> Callable[[str], str]:
    # A Unigram model finds '<s>' in a text even where added tokens are not looked for: a space inside hides it.
    found = re.compile("|".join(re.escape(token) for token in control if len(token) > 1) or r"(?!)")

    def prepare(text: str) -> str:
        text = unicodedata.normalize("NFC", prefix + text)
        return found.sub(lambda match: f"{match[0][0]} {match[0][1:]}", text)

    return prepare
