"""MODULE:FUNCTION, as commands take it that need a program's own tools and model."""

from __future__ import annotations

import asyncio
import importlib
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from gnl_core.errors import ConfigError


def load(spec: str) -> Callable[..., Any]:
    """Return the callable that 'module:function' names; the working folder is looked in first.

    Raises:
        ConfigError: The text is no such name, the module cannot be imported or runs something when it is, or it holds
            no such callable.
    """
    module_name, colon, function_name = spec.partition(":")
    if not colon or not all(part.isidentifier() for part in (*module_name.split("."), *function_name.split("."))):
        raise ConfigError(f"{spec!r} must be MODULE:FUNCTION, for instance my_agents.billing:agent")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = _import(module_name)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and error.name in (module_name, module_name.partition(".")[0]):
            raise ConfigError(f"there is no module {module_name!r} here ({here}) or among what is installed") from None
        raise ConfigError(
            f"{module_name} cannot be imported: {type(error).__name__}: {error}. A module that is named here must be "
            'importable without running anything: what it runs as a program stands below if __name__ == "__main__":'
        ) from error
    for part in function_name.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise ConfigError(f"{module_name} holds no callable {function_name!r}")
    return found  # type: ignore[no-any-return] # callable() narrows Any to a callable of anything


def _import(name: str) -> ModuleType:
    """Import a module inside a running event loop: there, an agent that the module would start at once is refused."""

    async def do() -> ModuleType:
        return importlib.import_module(name)

    with warnings.catch_warnings():
        # Of the coroutine that asyncio.run was refused for the error tells already.
        warnings.filterwarnings("ignore", message="coroutine .* was never awaited", category=RuntimeWarning)
        try:
            return asyncio.run(do())
        except (Exception, SystemExit) as error:
            traceback.clear_frames(error.__traceback__)
            raise
