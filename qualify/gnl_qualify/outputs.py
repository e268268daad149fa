"""Outputs of a long run: checked before it starts, written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from gnl_core.files import write_whole
from gnl_qualify.errors import OutputPathError


def check_outputs(outputs: Mapping[str, Path | None], *, inputs: Iterable[Path] = ()) -> None:
    """Refuse outputs that could not be written at the end, or that would overwrite an input or each other.

    Args:
        outputs: By the option that named it; None for one that was not asked for.
        inputs: Files that must survive.

    Raises:
        OutputPathError: The message names option, path and fault.
    """
    taken = {_where("an input", path): "an input" for path in inputs}
    for option, path in outputs.items():
        if path is None:
            continue
        where = _where(option, path)
        if where in taken:
            raise OutputPathError(f"{option} {path}: is {taken[where]} too: name another file")
        taken[where] = f"the output of {option}"
        fault = _fault(where)
        if fault:
            raise OutputPathError(f"{option} {path}: {fault}")


def _where(what: str, path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError):  # RuntimeError: how Python before 3.13 tells of a loop
        raise OutputPathError(f"{what} {path}: is a loop of links, or cannot be reached: name another file") from None


def _fault(path: Path) -> str | None:
    try:
        return _standing(path)
    except OSError as error:  # a name that is too long, for one
        return f"cannot be written: {error.strerror}"


def _standing(path: Path) -> str | None:
    if path.is_dir():
        return "is a directory: name a file"
    if path.exists() and not path.is_file():
        return "is no regular file: name a file"
    if not path.parent.is_dir():
        return f"there is no folder {path.parent}: make it first"
    # Only trying tells: rights, read-only mounts and full disks look alike from outside.
    with tempfile.TemporaryFile(dir=path.parent):
        pass
    return "is write-protected" if path.exists() and not os.access(path, os.W_OK) else None


def write_output(path: Path, text: str) -> None:
    """Write a text file whole or not at all.

    Raises:
        OutputPathError: It cannot be written.
    """
    try:
        # Half a character, which JSON can carry, must not cost the whole file.
        write_whole(path, text.encode("utf-8", "replace"))
    except OSError as error:
        raise OutputPathError(f"{path}: cannot be written: {error.strerror}") from None
