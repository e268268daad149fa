"""Untrusted text made fit to be looked at: escaped, isolated, and with nothing in it that the eye cannot see."""

from __future__ import annotations

import hashlib
import unicodedata
from functools import lru_cache
from html import escape
from itertools import groupby

_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})
_BLANK_LETTERS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
"""Drawn as nothing although their categories say letter, mark or symbol."""
_MOST_MARKS = 6
"""Combining marks on one letter that are drawn; languages need fewer, a pile of 200 covers what stands around it."""
_MARK = "mark"
_VARIATION_SELECTORS = ((0x180B, 0x180F), (0xFE00, 0xFE0F), (0xE0100, 0xE01EF))


class Html(str):
    """Markup that has been escaped already; template engines leave it as it is."""

    __slots__ = ()

    def __html__(self) -> str:
        return str(self)


def is_hidden(char: str) -> bool:
    """Tell whether a character cannot be seen or cannot be told from a plain space."""
    category = unicodedata.category(char)
    return (
        category in _HIDDEN_CATEGORIES
        or (category == "Zs" and char != " ")
        or char in _BLANK_LETTERS
        or any(low <= ord(char) <= high for low, high in _VARIATION_SELECTORS)
    )


def shown(text: str, *, lines: bool = False) -> Html:
    """Return the text escaped for HTML, each hidden character replaced by a chip that names its code point.

    Runs of one hidden character become one chip with a count, so that a text of 5,000 zero-width spaces stays short.
    Of a pile of combining marks the first few are drawn and the others counted.

    Args:
        text: Anything, lone surrogates included.
        lines: Keep line feeds and tabs as they are, for texts that are meant to have lines.
    """
    kept = "\n\t" if lines else ""
    parts = []
    for kind, run in groupby(text, key=lambda char: "" if char in kept else _kind(char)):
        stretch = "".join(run)
        if kind == _MARK:
            parts.append(stretch[:_MOST_MARKS])
            if (more := len(stretch) - _MOST_MARKS) > 0:
                parts.append(f'<span class="chip" dir="ltr">+{more} marks</span>')
        else:
            parts.append(_chip(kind, len(stretch)) if kind else escape(stretch))
    return Html("".join(parts))


@lru_cache(maxsize=4096)
def _kind(char: str) -> str:
    """Return a hidden character itself, `_MARK` for a combining mark, '' for what is simply seen."""
    if is_hidden(char):
        return char
    return _MARK if unicodedata.category(char) in {"Mn", "Me"} else ""


def shown_value(text: str) -> Html:
    """Return `shown` text whose leading and trailing spaces are chips too: in an identity value they are content."""
    inner = text.strip(" ")
    if not inner:
        return Html(_chip(" ", len(text)) if text else "")
    start = text.index(inner)
    end = len(text) - start - len(inner)
    return Html((_chip(" ", start) if start else "") + shown(inner) + (_chip(" ", end) if end else ""))


def plain(text: str) -> str:
    """Return the text, not yet escaped, with hidden characters named in brackets: for titles, which hold no markup."""
    return "".join(f"[U+{ord(char):04X}]" if is_hidden(char) else char for char in text)


def _chip(char: str, times: int) -> str:
    name = unicodedata.name(char, f"no name, category {unicodedata.category(char)}")
    count = f" ×{times}" if times > 1 else ""
    # The line feed is drawn as well as named, so that a text of several lines keeps its shape.
    after = "\n" * times if char == "\n" else ""
    return f'<span class="chip" dir="ltr" title="{escape(name)}">U+{ord(char):04X}{count}</span>{after}'


def redacted(text: str) -> str:
    """Return what may be said about a text without showing it: its length and 12 hex digits of its SHA-256."""
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"[{len(text):,} characters, sha256 {digest}]"


def p_value(p: float) -> str:
    """Return a p value to three decimals, never as 0."""
    return f"{p:.3f}" if p >= 0.001 else "below 0.001"


def ordinal(number: int) -> str:
    """Return '1st', '2nd', '3rd', '4th' or '11th'."""
    tail = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{tail}"
