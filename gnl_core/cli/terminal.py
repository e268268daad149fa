"""Text for a terminal. What strangers wrote is made harmless: no character of it moves a cursor or hides another."""

from __future__ import annotations

import json
import os
import sys
import unicodedata
from collections.abc import Sequence
from typing import Any

import click

PROGRAM = "gnl"
DONE, WAITS, USAGE, INTERNAL, INTERRUPTED = 0, 1, 2, 70, 130
"""Exit statuses: done; what was driven or looked at waits for a person, or failed; bad options or files, or refused; a
fault of the program; interrupted."""

_JOINERS = "\u200c\u200d"  # spelling needs them in some scripts
_LONG = 200


def plain(text: str) -> str:
    r"""Return `text` on one line with every control, escape and direction character spelt out.

    >>> plain("a\x1b[2J\nb")
    'a\\x1b[2J\\nb'
    """
    return "".join(
        character.encode("unicode_escape").decode()
        if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp") and character not in _JOINERS
        else character
        for character in text
    )


def short(value: object, most: int = _LONG) -> str:
    """Return a text, or JSON of anything else, harmless and on one line; of a longer one, its start and its length.

    >>> short("aaaaaaaa", 3)
    'aaa… (8 characters)'
    """
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    if len(text) <= most:
        return plain(text)
    return f"{plain(text[:most])}… ({len(text):,} characters)"


def tell(text: str) -> None:
    """Write one line of data to standard output; a reader that has gone (`| head`) is no error.

    Raises:
        click.ClickException: It cannot be written, for instance since the disk is full.
    """
    try:
        click.echo(text)
        sys.stdout.flush()
    except OSError as error:
        # Python flushes once more at exit, into whatever is open then.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            raise click.ClickException(f"standard output cannot be written: {error.strerror}") from None


def complain(text: str) -> None:
    """Write one line of talk to standard error, which may be closed."""
    try:
        click.echo(plain(text), err=True)
    except OSError:
        return


def tell_json(value: Any) -> None:
    """Write JSON to standard output, in ASCII: a terminal reads no character of it as a command."""
    tell(json.dumps(value, indent=2).replace("\x7f", "\\u007f"))


def tell_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Write a table; the cells are made harmless, the last column is as wide as it likes."""
    lines = [[plain(cell) for cell in row] for row in (head, *rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head) - 1)]
    for line in lines:
        cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=False)]
        tell("  ".join([*cells, line[-1]]).rstrip())


def age(since: int, now: int) -> str:
    """Return how long ago a time in milliseconds was, in its largest unit.

    >>> age(1, 5_400_001)
    '1 h'
    """
    if since <= 0:
        return "?"
    seconds = max(0, now - since) // 1000
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def forgive_encoding() -> None:
    """Let a terminal or pipe of a narrow encoding show escapes instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
