"""Rules that may find that two values contradict each other.

The return type lets a separator say `separate` or nothing. Most look at one place: two tokens with the same text around
them. What may count as such a place is the ladder's business; a rule only says whether these two exclude each other.
"""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from gnl_semantic.folds import Reading, contradict, is_currency, is_letters, is_number
from gnl_semantic.rules import Rules

SeparatorSays: TypeAlias = Literal["separate", "gray"]


@dataclass(frozen=True, slots=True)
class Place:
    """Two tokens that contradict each other in one place of both texts.

    Attributes:
        x: The token of one text; a number by value.
        y: The token of the other.
        attached: Whether both touch a digit, in letters of more than 3.
    """

    x: str
    y: str
    attached: bool


def _size_ladder(place: Place, rules: Rules) -> SeparatorSays:
    """Separate two rungs of one ladder: XL and XXL."""
    return _in_one_list(place, rules.ladder_entries)


def _gazetteer(place: Place, rules: Rules) -> SeparatorSays:
    """Separate two entries of one of the caller's lists."""
    return _in_one_list(place, rules.gazetteer_entries)


def _shortcode_edit1(place: Place, rules: Rules) -> SeparatorSays:
    """Separate codes of one length that differ in one character: TV-42 and TV-43, ABC and ABD."""
    x, y = place.x, place.y
    if len(x) > rules.short_code_max_len or not _one_character(x, y):
        return "gray"
    if x.isdigit():
        return "separate" if contradict(x, y) else "gray"
    return "separate" if len(x) <= _code_length(x, y) or place.attached else "gray"


def _number_value(place: Place, rules: Rules) -> SeparatorSays:  # noqa: ARG001  # one signature for all
    """Separate numbers of different values, however long or near: 4417 and 4471, 12,50 and 125,00, 14 and 4.

    One changed digit in a short number is left to `shortcode-edit1`, so that switching that off means something.
    """
    x, y = place.x, place.y
    if not (is_number(x) and is_number(y)) or (len(x) <= _SHORT_NUMBER and _one_character(x, y)):
        return "gray"
    return "separate" if contradict(x, y) else "gray"


def _symbol(place: Place, rules: Rules) -> SeparatorSays:  # noqa: ARG001  # ditto
    """Separate two currencies, and arrows that point in opposite directions."""
    symbols = {place.x, place.y}
    return "separate" if symbols == {"<", ">"} or all(map(is_currency, symbols)) else "gray"


def _roman_numeral(place: Place, rules: Rules) -> SeparatorSays:  # noqa: ARG001  # ditto
    """Separate two Roman numerals up to 39: phase II and phase III. Single letters are codes already."""
    x, y = place.x, place.y
    return "separate" if max(len(x), len(y)) > 1 and _ROMAN.fullmatch(x) and _ROMAN.fullmatch(y) else "gray"


def _reference_slip(a: Reading, b: Reading) -> SeparatorSays:
    """Separate two long references of one series, whatever the words around them say: order 70415 and 70451.

    One slip apart, or built alike with letters (NRK6192 and NRK6202), they come from one series and so name the same
    kind of thing. Both texts must have one such reference only, and neither may have the other's digits anywhere.
    """
    own_a, own_b = (_references(text) for text in (a.text, b.text))
    only_a, only_b = own_a - own_b, own_b - own_a
    if len(only_a) != 1 or len(only_b) != 1:
        return "gray"
    (x,), (y,) = only_a, only_b
    if not (_one_slip(x, y) or _one_make(x, y)):
        return "gray"
    divided = _digits(x) in _digits(b.text) or _digits(y) in _digits(a.text)
    return "gray" if divided else "separate"


def _references(text: str) -> set[str]:
    """Return the runs of letters and digits with 4 digits, or 5 where they are digits alone; no decimals."""
    runs = (run for run in _RUN.findall(text) if len(run) > 3 and run.isalnum() and not run.isalpha())
    return {run for run in runs if len(_digits(run)) >= (5 if run.isdigit() else 4)}


def _one_make(x: str, y: str) -> bool:
    """Tell whether two references have the same letters in the same places, two at least."""
    return len(x) == len(y) and sum(map(str.isalpha, x)) > 1 and _DIGIT.sub("0", x) == _DIGIT.sub("0", y)


def _digits(text: str) -> str:
    return "".join(filter(str.isdigit, text))


def _one_slip(x: str, y: str) -> bool:
    """Tell whether one digit was changed, or two neighbouring digits exchanged."""
    if len(x) != len(y):
        return False
    changed = [(p, q) for p, q in zip(x, y, strict=True) if p != q]
    if not all(p.isdigit() and q.isdigit() for p, q in changed):
        return False
    if len(changed) == 2:
        start = next(index for index, (p, q) in enumerate(zip(x, y, strict=True)) if p != q)
        return x[start : start + 2] == y[start : start + 2][::-1]
    return len(changed) == 1


def _in_one_list(place: Place, lists: tuple[Mapping[str, str], ...]) -> SeparatorSays:
    for entries in lists:
        x, y = entries.get(place.x), entries.get(place.y)
        if x and y and x != y:
            return "separate"
    return "gray"


def _one_character(x: str, y: str) -> bool:
    """Tell whether two runs of letters or of digits, of one length, differ in one position, within one script."""
    if len(x) != len(y) or not ((is_letters(x) and is_letters(y)) or (x.isdigit() and y.isdigit())):
        return False
    changed = [(p, q) for p, q in zip(x, y, strict=True) if p != q]
    return len(changed) == 1 and _script(changed[0][0]) == _script(changed[0][1])


def _script(char: str) -> int:
    """Return an alphabet's number, so that Latin A and Cyrillic А are not taken for two codes; 0 for no alphabet."""
    return bisect(_ALPHABETS, ord(char)) if ord(char) < _ALPHABETS[-1] else 0


def _code_length(x: str, y: str) -> int:
    """Return up to how many letters are a code: 3, or 1 in scripts that write no vowels, or 0 in those without case.

    Three Arabic letters are a word as often as not, and in scripts without spaces a run of any length is a phrase.
    """
    highest = ord(max(x + y))
    return 3 if highest < 0x0590 else 1 if highest < _ALPHABETS[-1] else 0


_SHORT_NUMBER = 4
_ROMAN = re.compile(r"x{0,3}(?:ix|iv|v?i{0,3})")
_DIGIT = re.compile(r"\d")
_RUN = re.compile(r"\x02?[a-z0-9]+(?:[.,]\d+)*")
_ALPHABETS = (0x30, 0x61, 0x0370, 0x0400, 0x0530, 0x0590, 0x0600, 0x0900)
"""First code points of digits, Latin, Greek, Cyrillic, Armenian, Hebrew, Arabic, and what comes after."""


PLACE_SEPARATORS: Mapping[str, Callable[[Place, Rules], SeparatorSays]] = {
    "size-ladder": _size_ladder,
    "gazetteer": _gazetteer,
    "shortcode-edit1": _shortcode_edit1,
    "number-value": _number_value,
    "roman-numeral": _roman_numeral,
    "symbol": _symbol,
}
PAIR_SEPARATORS: Mapping[str, Callable[[Reading, Reading], SeparatorSays]] = {"reference-slip": _reference_slip}
