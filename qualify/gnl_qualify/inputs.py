"""The files that a command names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from gnl_fixtures import FixtureSet


def paths(values: Sequence[str]) -> list[Path]:
    """Split lists at commas, but never a path that exists with one in its name."""
    paths: list[Path] = []
    for value in values:
        names = [value] if is_file(Path(value)) else value.split(",")
        if not all(name.strip() for name in names):
            raise click.BadParameter(f"--fixtures {value!r}: holds an empty name")
        paths += map(Path, names)
    return paths


def is_file(path: Path) -> bool:
    """Tell whether a path is a file; what cannot be looked at is none."""
    try:
        return path.is_file()
    except OSError:  # too long for a name, as a list of names may be
        return False


def load(files: Sequence[Path], shipped: str) -> FixtureSet:
    """Return the pairs of all files, or the shipped set of that name where none is given."""
    from gnl_fixtures import load_files, load_shipped  # noqa: PLC0415

    return load_files(files) if files else load_shipped(shipped)  # type: ignore[arg-type]
