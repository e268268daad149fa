"""Read a sentence-embedding model's folder: which graph, which tokenizer, how to pool, how long, what in front."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gnl_semantic.errors import ModelInvalidError, ModelNotFoundError

GRAPHS = ("model.onnx", "onnx/model.onnx", "onnx/model_quantized.onnx")
"""Where the graph is looked for, in this order."""

TOKENIZERS = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "sentencepiece.bpe.model",
    "spiece.model",
    "tokenizer.model",
)
"""Files a tokenizer is read from."""

Pooling = Literal["mean", "cls"]

_POOLING_KEYS = {
    "cls": "pooling_mode_cls_token",
    "mean": "pooling_mode_mean_tokens",
    "max": "pooling_mode_max_tokens",
    "mean_sqrt_len": "pooling_mode_mean_sqrt_len_tokens",
    "weightedmean": "pooling_mode_weightedmean_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}
_MODULES = ("Transformer", "Pooling", "Normalize")
_MAX_TOKENS = 512
# Positions of this family start behind the padding token's id.
_OFFSET_POSITIONS = {"roberta": 2, "xlm-roberta": 2, "camembert": 2, "mpnet": 2}
# Tokenizers without a limit say so with a number around 1e30.
_NO_LIMIT = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFolder:
    """What a model's folder says about itself.

    Attributes:
        path: The folder.
        graph: The ONNX file.
        pooling: How token vectors become one, where the graph does not do it itself.
        prefix: Put in front of each text.
        max_tokens: Longer texts are cut, special tokens included.
        pad_id: Token id for padding; masked, so any would do.
        unknown_steps: What must follow the transformer beyond pooling and normalising; only a graph that does it
            itself can be used then.
    """

    path: Path
    graph: Path
    pooling: Pooling = "mean"
    prefix: str = ""
    max_tokens: int = _MAX_TOKENS
    pad_id: int = 0
    unknown_steps: tuple[str, ...] = ()

    def stamp(self, name: str) -> str:
        """Return '<name>@<graph>-<hash>'; the hash covers every file and setting that shapes a vector.

        Raises:
            ModelNotFoundError: A file cannot be read.
        """
        digest = hashlib.sha256(json.dumps([self.pooling, self.prefix, self.max_tokens]).encode())
        weights_beside = sorted(self.graph.parent.glob(f"{self.graph.name}?data*"))
        tokenizers = [self.path / file for file in TOKENIZERS]
        for file in [self.graph, *weights_beside, *(file for file in tokenizers if file.is_file())]:
            try:
                with file.open("rb") as stream:
                    digest.update(hashlib.file_digest(stream, "sha256").digest())
            except OSError as error:
                raise ModelNotFoundError(f"Cannot read {file}: {error}.", path=str(file)) from error
        return f"{name}@{self.graph.stem}-{digest.hexdigest()[:12]}"


def read_folder(
    path: str | os.PathLike[str], *, graph: str | None = None, prefix: str | None = None, max_tokens: int | None = None
) -> ModelFolder:
    """Read what the folder's files say.

    Args:
        path: The folder.
        graph: ONNX file in the folder; by default the first of `GRAPHS` that is there.
        prefix: Put in front of each text; by default the folder's own default prompt, or nothing.
        max_tokens: Cut texts to so many tokens; by default what the folder says, 512 where it says nothing.

    Raises:
        ModelNotFoundError: No folder, no graph or no tokenizer in it.
        ModelInvalidError: A configuration that cannot be read.
    """
    path = Path(path).expanduser()
    if not path.is_dir():
        raise ModelNotFoundError(f"No model folder at {path}.", path=str(path))
    found = next((path / name for name in ([graph] if graph else GRAPHS) if (path / name).is_file()), None)
    if found is None:
        raise ModelNotFoundError(
            f"No ONNX graph in {path}: looked for {graph or ', '.join(GRAPHS)}. Export the model "
            "(for instance with optimum-cli export onnx) or name the file with graph=.",
            path=str(path),
        )
    if not any((path / name).is_file() for name in TOKENIZERS):
        raise ModelNotFoundError(
            f"No tokenizer in {path}: put the model's tokenizer.json beside its graph.", path=str(path)
        )
    config = _read(path / "config.json")
    pooling, unknown = _pooling(path)
    return ModelFolder(
        path=path,
        graph=found,
        pooling=pooling,
        prefix=_prompt(path) if prefix is None else prefix,
        max_tokens=max_tokens or _max_tokens(path, config),
        pad_id=_whole_number(config.get("pad_token_id")) or 0,
        unknown_steps=(*unknown, *_steps(path)),
    )


def _read(file: Path) -> dict[str, Any]:
    try:
        value = json.loads(file.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise ModelInvalidError(f"Cannot read {file} as JSON: {error}.", path=str(file)) from error
    if not isinstance(value, dict):
        raise ModelInvalidError(f"{file} is no JSON object.", path=str(file))
    return value


def _pooling(path: Path) -> tuple[Pooling, list[str]]:
    """Return the pooling, and what the folder asks for behind the transformer that only its graph can do."""
    config = _read(path / "1_Pooling" / "config.json")
    modes = {mode for mode, key in _POOLING_KEYS.items() if config.get(key)}
    if named := config.get("pooling_mode"):
        modes = set(map(str, named if isinstance(named, list) else [named]))
    known: Pooling = "cls" if modes == {"cls"} else "mean"
    unknown = sorted(f"pooling {mode}" for mode in modes - {known})
    if config.get("include_prompt") is False:
        unknown.append("pooling without the prompt's tokens")
    return known, unknown


def _steps(path: Path) -> list[str]:
    """Return the modules that sentence-transformers would run and we do not, a dense layer for instance."""
    file = path / "modules.json"
    try:
        modules = json.loads(file.read_bytes())
        types = [str(module["type"]).rpartition(".")[2] for module in modules]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, RecursionError, TypeError, KeyError) as error:
        raise ModelInvalidError(f"Cannot read the list of modules {file}: {error!r}.", path=str(file)) from error
    return [kind for kind in types if kind not in _MODULES]


def _prompt(path: Path) -> str:
    config = _read(path / "config_sentence_transformers.json")
    name, prompts = config.get("default_prompt_name"), config.get("prompts")
    if name is None or not isinstance(prompts, dict):
        return ""
    prompt = prompts.get(name)
    if not isinstance(prompt, str):
        raise ModelInvalidError(f"{path} names the default prompt {name!r} and does not hold it.", path=str(path))
    return prompt


def _max_tokens(path: Path, config: dict[str, Any]) -> int:
    """Return the smallest limit that the folder names."""
    positions = _whole_number(config.get("max_position_embeddings"))
    limits = [
        _whole_number(_read(path / "sentence_bert_config.json").get("max_seq_length")),
        _whole_number(_read(path / "tokenizer_config.json").get("model_max_length")),
        positions and positions - _OFFSET_POSITIONS.get(str(config.get("model_type")), 0),
    ]
    return min([limit for limit in limits if limit and 0 < limit < _NO_LIMIT], default=_MAX_TOKENS)


def _whole_number(value: object) -> int | None:
    return int(value) if isinstance(value, int | float) and abs(value) < _NO_LIMIT else None
