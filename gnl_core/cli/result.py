"""`--result JSON`: what work is known to have come to."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

result_option: Callable[[Command], Command] = click.option(
    "--result", required=True, metavar="JSON", help="What the call came to: JSON, or @FILE that holds it."
)


def read_result(text: str, option: str = "--result") -> Any:
    """Return the value of an option.

    Raises:
        click.UsageError: It is no JSON, or names a file that cannot be read.
    """
    try:
        if text.startswith("@"):
            text = Path(text[1:]).read_text(encoding="utf-8")
        return json.loads(text, parse_constant=_no_constant)
    except OSError as error:
        raise click.UsageError(f"{option} {text}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise click.UsageError(f"{option} is no JSON ({error}); a text stands in quotes: '\"done\"'") from None


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")
