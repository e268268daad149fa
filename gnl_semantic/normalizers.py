"""Rules that may find two values to be one value written twice.

The return type lets a normalizer say `match` or nothing. Each concludes from characters alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeAlias

from gnl_semantic.folds import Reading, fold_key, is_letters, is_number, read

NormalizerSays: TypeAlias = Literal["match", "gray"]

_SHORTEST_JOINED = 6
"""Fewest digits of a block that is divided on the other side: '5-10' is not 510, '24 7' not 247, '1:10' not 110."""
_NUMBERS = "0"
_UMLAUTS = frozenset("äöüåøæÄÖÜÅØÆ")


def _punct_space(a: Reading, b: Reading) -> NormalizerSays:
    """Match texts that differ in marks, case, punctuation and spacing; digits are never joined."""
    if a.key != b.key:
        return "gray"
    return "match" if fold_key(a.tokens) == fold_key(b.tokens) else "gray"


def _digit_value(a: Reading, b: Reading) -> NormalizerSays:
    """Match numbers written with other padding or grouping: 0142 and 142, 1.250,00 and 1250."""
    return "match" if a.key == b.key else "gray"


def _digit_concat(a: Reading, b: Reading) -> NormalizerSays:
    """Match a number written as one block with the same digits in several blocks.

    One text must hold that one block and no other number, so that there is one way to join: 2026-1-12 is not
    2026-11-2. Only blocks as long as a reference are joined.
    """
    if a.letters != b.letters:
        return "gray"
    blocks_a, blocks_b = (list(filter(is_number, text.tokens)) for text in (a, b))
    joined = "".join(blocks_a)
    single = len(blocks_a) != len(blocks_b) and 1 in (len(blocks_a), len(blocks_b))
    if not (single and joined.isdigit() and joined == "".join(blocks_b)):
        return "gray"
    same_rest = _without_numbers(a.tokens) == _without_numbers(b.tokens)
    return "match" if same_rest and len(joined) >= _SHORTEST_JOINED else "gray"


def _umlaut_digraph(a: Reading, b: Reading) -> NormalizerSays:
    """Match ä, ö, ü, å, ø, æ with the digraphs that passports write for them (ICAO Doc 9303): Mueller and Müller."""
    # A digraph is longer than its letter, and only the texts themselves still have the marks.
    if len(a.letters) == len(b.letters) or _UMLAUTS.isdisjoint(a.source + b.source):
        return "gray"
    return "match" if read(a.source, digraphs=True).key == read(b.source, digraphs=True).key else "gray"


def _without_numbers(found: Sequence[str]) -> list[str]:
    """Return the tokens with letters joined and each run of numbers as one place."""
    rest: list[str] = []
    for token in found:
        if is_number(token):
            if not rest or rest[-1] != _NUMBERS:
                rest.append(_NUMBERS)
        elif rest and is_letters(token) and is_letters(rest[-1]):
            rest[-1] += token
        else:
            rest.append(token)
    return rest


NORMALIZERS: Mapping[str, Callable[[Reading, Reading], NormalizerSays]] = {
    "punct-space": _punct_space,
    "digit-value": _digit_value,
    "digit-concat": _digit_concat,
    "umlaut-digraph": _umlaut_digraph,
}
