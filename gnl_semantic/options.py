"""The options of the semantic gate: read once, and refused by name where they cannot work."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

from gnl_core.errors import ConfigError
from gnl_semantic.embedder.load import load_embedder
from gnl_semantic.embedder.port import Embedder
from gnl_semantic.rules import Rules


@lru_cache(maxsize=8)
def load(spec: str) -> Embedder:
    """Return the embedder of a name, loaded once a process; as `load_embedder`."""
    return load_embedder(spec)


def stamp_of(embed: object, given: str | None) -> str:
    """Return the stamp of an embedder's vectors.

    Raises:
        ConfigError: It has none, or another than was given; or it is no embedder.
    """
    if isinstance(embed, Embedder):
        if given not in (None, embed.model_id):
            raise ConfigError(
                f"SemanticGate.embed_model_id is {given!r}, but the embedder stamps its vectors {embed.model_id!r}: "
                "leave it out"
            )
        return embed.model_id
    if not callable(embed):
        raise ConfigError(
            f"SemanticGate.embed is {type(embed).__name__}, must be 'local', an Embedder, or a function from texts to "
            "vectors"
        )
    if not isinstance(given, str) or not given.strip():
        raise ConfigError(
            f"SemanticGate.embed_model_id is {given!r}: a function needs the stamp of its model and quantisation, for "
            "instance 'text-embedding-3-small', since vectors of two models are never compared"
        )
    return given


def read_rules(rules: Any) -> Rules | None:
    """Return the options of the ladder; None for none of it.

    Raises:
        ConfigError: They are no such options.
    """
    match rules:
        case None | False:
            return None
        case True:
            return Rules()
        case Rules():
            return rules
        case _:
            raise ConfigError(f"SemanticGate.rules is {type(rules).__name__}, must be True, False or Rules(…)")


def check_options(min_similarity: object, top_k: object, embed_timeout: object) -> None:
    """Refuse numbers that mean nothing.

    Raises:
        ConfigError: One is no number, or out of range.
    """
    if min_similarity is not None and not (_is_number(min_similarity) and -1 <= min_similarity <= 1):  # type: ignore[operator]
        raise ConfigError(f"SemanticGate.min_similarity is {min_similarity!r}, must be a cosine from -1 to 1, or None")
    if type(top_k) is not int or not 1 <= top_k <= 100:
        raise ConfigError(f"SemanticGate.top_k is {top_k!r}, must be an int from 1 to 100")
    if not (_is_number(embed_timeout) and embed_timeout > 0):  # type: ignore[operator]
        raise ConfigError(f"SemanticGate.embed_timeout is {embed_timeout!r}, must be a number of seconds above 0")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
