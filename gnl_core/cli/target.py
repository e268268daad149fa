"""MODULE:FUNCTION, as commands take it that need a program's own tools and model."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gnl_core.errors import ConfigError


def load(spec: str) -> Callable[..., Any]:
    """Return the callable that 'module:function' names; the working folder is looked in first.

    Raises:
        ConfigError: The text is no such name, the module cannot be imported, or it holds no such callable.
    """
    module_name, colon, function_name = spec.partition(":")
    if not colon or not all(part.isidentifier() for part in (*module_name.split("."), *function_name.split("."))):
        raise ConfigError(f"{spec!r} must be MODULE:FUNCTION, for instance my_agents.billing:agent")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module_name)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name in (module_name, module_name.partition(".")[0]):
            raise ConfigError(f"there is no module {module_name!r} here ({here}) or among what is installed") from None
        raise ConfigError(f"{module_name} cannot be imported: {type(error).__name__}: {error}") from error
    for part in function_name.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise ConfigError(f"{module_name} holds no callable {function_name!r}")
    return found  # type: ignore[no-any-return] # callable() narrows Any to a callable of anything
