"""Text for a terminal: what strangers wrote, made harmless; what the reader closed, ignored."""

from __future__ import annotations

import os
import sys
import unicodedata

import click

_JOINERS = "\u200c\u200d"
"""Format characters that spelling needs in some scripts."""


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


def tell(text: str) -> None:
    """Write to standard output; a reader that has gone (`| head`) is no error, a full disk is told."""
    if sys.stdout is None:
        return
    try:
        click.echo(text)
        sys.stdout.flush()
    except OSError as error:
        if not isinstance(error, BrokenPipeError):
            complain(f"standard output cannot be written: {error.strerror}")
        # Python flushes once more at exit, into whatever is open then.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def complain(text: str) -> None:
    """Write one line to standard error, which may be closed."""
    try:
        click.echo(text, err=True)
    except OSError:
        return


def forgive_encoding() -> None:
    """Let a terminal or pipe of a narrow encoding show escapes instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
