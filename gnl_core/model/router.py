"""Names of models: 'provider/model' to a model, the built-in providers, and those a host registers."""

from __future__ import annotations

import importlib
import re
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import TypeAlias

from gnl_core.errors import ModelSpecError
from gnl_core.model.port import ChatModel

ModelLike: TypeAlias = ChatModel | str | Sequence[ChatModel | str]
"""What stands for a model everywhere: a model, its name, or a list of either (a fallback chain)."""

Factory: TypeAlias = Callable[[str], ChatModel]

MAX_MODEL_ID = 200
"""Most characters of a model id."""

_PREFIX = re.compile(r"[a-z0-9][a-z0-9._-]*")
_MODEL_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]*")
_BUILT_IN = {
    "openai": "OpenAIModel",
    "anthropic": "AnthropicModel",
    "google": "GoogleModel",
    "mistral": "MistralModel",
}
_registered: dict[str, tuple[Factory]] = {}
_lock = threading.Lock()


def register_model_provider(prefix: str, factory: Factory) -> Callable[[], None]:
    """Make 'prefix/…' resolve through a factory, in this process.

    Args:
        prefix: Lower-case letters, digits, '.', '_', '-', beginning with a letter or digit.
        factory: Called with the checked model id: at most 200 characters, no white space, no '..' segment, no '://'.

    Returns:
        A function that takes back this registration, and no later one under the same prefix.

    Raises:
        ModelSpecError: The prefix is malformed or one of the built-in ones.
    """
    _check_prefix(prefix, prefix)
    if prefix in _BUILT_IN:
        raise ModelSpecError(f"the provider {prefix!r} is built in and cannot be replaced; register another prefix")
    entry = (factory,)  # a new object each time: the same factory registered twice is two registrations
    with _lock:
        replaced = prefix in _registered
        _registered[prefix] = entry
    if replaced:
        warnings.warn(
            f"the model provider {prefix!r} was registered before; '{prefix}/…' now resolves through the new factory",
            stacklevel=2,
        )

    def unregister() -> None:
        with _lock:
            if _registered.get(prefix) is entry:
                del _registered[prefix]

    return unregister


def resolve_model(model: ModelLike) -> ChatModel:
    """Return the model that a name, a model or a list of them stands for.

    Args:
        model: 'provider/model', split at the first '/'; a model, which is returned as it is; or a list of either,
            which becomes a `FallbackModel`.

    Raises:
        ModelSpecError: The name is malformed, its provider unknown, the list empty, or a factory returned no model.
        MissingExtraError: The provider's SDK is not installed.
    """
    if isinstance(model, str):
        return _resolve(model)
    if isinstance(model, ChatModel):
        return model
    if isinstance(model, list | tuple):
        from gnl_core.model.fallback import FallbackModel  # noqa: PLC0415 - it resolves its own candidates here

        return FallbackModel(model)
    raise ModelSpecError(f"{type(model).__name__} is no model; give a ChatModel, 'provider/model', or a list of them")


def _resolve(spec: str) -> ChatModel:
    prefix, slash, model_id = spec.partition("/")
    if not slash:
        raise ModelSpecError(f"{spec[:60]!r} names no provider; write 'provider/model', for instance 'openai/{spec}'")
    _check_prefix(prefix, spec)
    if len(model_id) > MAX_MODEL_ID:
        raise ModelSpecError(f"the model id of {spec[:60]!r}… has {len(model_id)} characters, at most {MAX_MODEL_ID}")
    if not _MODEL_ID.fullmatch(model_id) or ".." in model_id.split("/") or "://" in model_id:
        raise ModelSpecError(
            f"the model id of {spec!r} must be letters, digits, '.', '_', ':', '/', '-', begin with a letter or digit, "
            "and hold no '..' segment and no '://': factories put it into a URL under your credentials"
        )
    with _lock:
        entry = _registered.get(prefix)
        known = sorted([*_BUILT_IN, *_registered])
    if entry is not None:
        model = entry[0](model_id)
        if not isinstance(model, ChatModel):
            raise ModelSpecError(f"the factory of {prefix!r} returned {type(model).__name__}, which is no ChatModel")
        # A server of one's own is another provider than the one whose protocol it speaks: ids and opaque data of the
        # one must not be sent to the other.
        named = getattr(model, "named", None)
        return named(prefix) if callable(named) else model
    if prefix not in _BUILT_IN:
        raise ModelSpecError(
            f"unknown model provider {prefix!r} in {spec!r}; known are {', '.join(known)}; "
            "add one with register_model_provider(prefix, factory)"
        )
    module = importlib.import_module(f"gnl_core.model.providers.{prefix}")
    made: ChatModel = getattr(module, _BUILT_IN[prefix])(model_id)
    return made


def _check_prefix(prefix: str, where: str) -> None:
    if not _PREFIX.fullmatch(prefix):
        raise ModelSpecError(
            f"the provider {prefix!r} of {where!r} must be lower-case letters, digits, '.', '_', '-', and begin with a "
            "letter or digit; it is taken as it is spelt, never trimmed or lower-cased"
        )
