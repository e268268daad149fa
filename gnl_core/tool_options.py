"""The options of a tool's declaration, and the checks that refuse one that cannot mean what it says."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal, TypedDict, get_args

from gnl_core.duplicates import EffectClass
from gnl_core.errors import ToolDeclarationError
from gnl_core.identity import SemanticIdentity
from gnl_core.tool_schema import Signature, read_signature

Idempotency = Literal["call", "args"]
Window = Literal["run", "thread", "cross-run"]

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ATTEMPTS_MAX = 999  # attempts are written with three digits where records are listed in order


class ToolOptions(TypedDict, total=False):
    """What `tool` takes beside the function; `Tool` says what each means."""

    name: str | None
    description: str | None
    side_effect: bool | None
    idempotent: bool
    idempotency: Idempotency
    idempotency_key: Callable[[dict[str, Any]], object] | None
    window: Window
    recover: Callable[..., Any] | None
    lookup: Callable[..., Any] | None
    confirm: bool | Callable[[dict[str, Any]], str]
    timeout: float | None
    claim_ttl: float | None
    max_retries: int
    compensate: Callable[..., Any] | None
    untrusted: bool
    semantic_identity: SemanticIdentity | None
    effect_class: EffectClass | None


def check_name(name: object) -> str:
    """Return a name that a model may call a tool by.

    Raises:
        ToolDeclarationError: It is not 1 to 64 of A-Z a-z 0-9 _ -, which is what every provider takes.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ToolDeclarationError(
            f"a tool's name is {str(name)[:80]!r}, must be 1 to 64 of A-Z a-z 0-9 _ -; give one by tool(name=...)",
            option="name",
        )
    return name


def check_function(function: object, name: str) -> None:
    """Refuse what has no signature of its own to make a schema of.

    Raises:
        ToolDeclarationError: It is no function and no method, or a generator.
    """
    if not (inspect.isfunction(function) or inspect.ismethod(function)):
        raise ToolDeclarationError(
            f"tool '{name}' is made of {type(function).__name__}, must be a function or a method: wrap it in a def "
            "with type hints"
        )
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ToolDeclarationError(f"tool '{name}' is a generator, which has no one result to record; return a list")


def check_options(name: str, options: Mapping[str, Any], parameters: Collection[str]) -> None:
    """Refuse options of the wrong kind, or that name what the tool has not.

    Args:
        name: Name of the tool.
        options: As given.
        parameters: Names of the tool's arguments.

    Raises:
        ToolDeclarationError: Naming the tool and the option.
    """
    for option, value in options.items():
        expected = _EXPECTED.get(option)
        if expected is None:
            raise _refused(name, option, "is no option of a tool; there are " + ", ".join(sorted(_EXPECTED)))
        words, fits = expected
        if not fits(value):
            raise _refused(name, option, f"is {_shown(value)}, must be {words}")
    for option in ("idempotency_key", "confirm"):
        if inspect.iscoroutinefunction(options.get(option)):
            raise _refused(name, option, "is async; it only looks at the arguments, so make it a plain function")
    identity = options.get("semantic_identity")
    if isinstance(identity, SemanticIdentity):
        for kind in ("keys", "amount_fields", "discriminator_fields"):
            for field in getattr(identity, kind):
                if field not in parameters:
                    takes = ", ".join(parameters) or "no argument"
                    raise _refused(name, "semantic_identity", f"has '{field}' among its {kind}; the tool takes {takes}")


def read_hooks(
    name: str, options: Mapping[str, Any], parameters: Collection[str], namespace: Mapping[str, Any]
) -> tuple[tuple[Callable[..., Any], Signature], ...]:
    """Return how each of `recover`, `lookup` and `compensate` is called.

    Raises:
        ToolDeclarationError: One needs an argument that the tool has not.
    """
    hooks = []
    for option in ("recover", "lookup", "compensate"):
        hook = options.get(option)
        if hook is None:
            continue
        signature = read_signature(hook, f"{option} of tool '{name}'", namespace)
        offered = {*parameters, "output"} if option == "compensate" else set(parameters)
        if option == "compensate" and "output" in parameters and "output" in signature.parameters:
            raise _refused(name, option, "takes 'output', which is also an argument of the tool; rename the argument")
        for parameter in signature.parameters.values():
            if parameter.default is inspect.Parameter.empty and parameter.name not in offered:
                raise _refused(
                    name,
                    option,
                    f"needs '{parameter.name}', which the tool does not take; it may ask for "
                    f"{', '.join(sorted(offered)) or 'no argument'} and for a parameter annotated with Context",
                )
        hooks.append((hook, signature))
    return tuple(hooks)


def _is_bool(value: object) -> bool:
    return isinstance(value, bool)


def _is_seconds(value: object) -> bool:
    if value is None:
        return True
    return not isinstance(value, bool) and isinstance(value, int | float) and value > 0 and math.isfinite(value)


def _is_attempts(value: object) -> bool:
    return not isinstance(value, bool) and isinstance(value, int) and 1 <= value <= _ATTEMPTS_MAX


def _is_hook(value: object) -> bool:
    return value is None or callable(value)


_HOOK: tuple[str, Callable[[object], bool]] = ("a function", _is_hook)
_FLAG: tuple[str, Callable[[object], bool]] = ("True or False", _is_bool)
_SECONDS: tuple[str, Callable[[object], bool]] = ("a finite number of seconds over 0", _is_seconds)
_WORD: tuple[str, Callable[[object], bool]] = (
    "a text that is not empty",
    lambda value: value is None or (isinstance(value, str) and bool(value)),
)
_EXPECTED: dict[str, tuple[str, Callable[[object], bool]]] = {
    "name": _WORD,
    "description": ("a text", lambda value: value is None or isinstance(value, str)),
    "side_effect": ("True, False or None", lambda value: value is None or isinstance(value, bool)),
    "idempotent": _FLAG,
    "idempotency": ("'call' or 'args'", lambda value: value in ("call", "args")),
    "idempotency_key": _HOOK,
    "window": ("'run', 'thread' or 'cross-run'", lambda value: value in ("run", "thread", "cross-run")),
    "recover": _HOOK,
    "lookup": _HOOK,
    "confirm": ("True, False or a function", lambda value: isinstance(value, bool) or callable(value)),
    "timeout": _SECONDS,
    "claim_ttl": _SECONDS,
    "max_retries": (f"an int from 1 to {_ATTEMPTS_MAX}", _is_attempts),
    "compensate": _HOOK,
    "untrusted": _FLAG,
    "semantic_identity": (
        "a SemanticIdentity",
        lambda value: value is None or isinstance(value, SemanticIdentity),
    ),
    "effect_class": (
        "one of " + ", ".join(map(repr, get_args(EffectClass))),
        lambda value: value is None or value in get_args(EffectClass),
    ),
}


def _refused(tool: str, option: str, problem: str) -> ToolDeclarationError:
    return ToolDeclarationError(f"tool '{tool}': {option} {problem}", tool=tool, option=option)


def _shown(value: object) -> str:
    return repr(value)[:60] if isinstance(value, str | int | float) else type(value).__name__
