"""Text as the local judge reads it: atoms, each with every reading that it allows.

An atom is a word, a number or a sign. Two atoms say the same where they share a key: 'two' and '2', 'März' and '03',
'kilogram' and 'kg', 'IV' and '4'. Number words, months, weekdays, units and currencies of nine languages come from
`lexicon.json`; unlike the ladder, a judge may read words.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import NamedTuple

from gnl_semantic.folds import is_letters, is_number, number_value, read

MOST_ATOMS = 96
"""Atoms of one text that are looked at; the judge refuses texts long before."""

_FRACTION_SLASH = "\x022044"
_ROMAN = {
    roman: value
    for value, roman in enumerate(
        [
            "i",
            "ii",
            "iii",
            "iv",
            "v",
            "vi",
            "vii",
            "viii",
            "ix",
            "x",
            "xi",
            "xii",
            "xiii",
            "xiv",
            "xv",
            "xvi",
            "xvii",
            "xviii",
            "xix",
            "xx",
        ],
        start=1,
    )
}
_HAN_DIGITS = {char: value for value, char in enumerate("零一二三四五六七八九")} | {"两": 2, "〇": 0}
_HAN_UNITS = {"十": 10, "百": 100, "千": 1000}
_KATAKANA = {code: code + 0x60 for code in range(0x3041, 0x3097)}
_SCRIPT = re.compile(
    r"[一二三四五六七八九十百千零两〇]+|[\u3400-\u9fff\uf900-\ufaff々]|[\u3040-\u309f]+|[\u30a0-\u30ff]+"
    r"|[^\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff々]+"
)


class Atom(NamedTuple):
    """One piece of a text.

    Attributes:
        text: The folded token.
        kind: 'word', 'number' or 'sign'.
        keys: Its readings; two atoms that share one say the same.
        value: The number's value, for number words too; None where it has none.
        ideograph: Whether it is one character of a script that writes words without spaces.
    """

    text: str
    kind: str
    keys: frozenset[str]
    value: int | None = None
    ideograph: bool = False


def atoms(text: str) -> tuple[Atom, ...]:
    """Return the atoms of a text, in order, `MOST_ATOMS` at most."""
    return _composed(_split(read(text).tokens))[:MOST_ATOMS]


def _split(tokens: Sequence[str]) -> list[Atom]:
    found: list[Atom] = []
    for token in tokens[:MOST_ATOMS]:
        if is_number(token):
            found.append(number_atom(token))
        elif token == _FRACTION_SLASH:
            continue
        elif not is_letters(token):
            found.append(Atom(token, "sign", frozenset({_SIGNS.get(token, token)})))
        elif token.isascii():
            found.append(_word(token))
        else:
            found.extend(map(_word, _SCRIPT.findall(token)))
    return found


def number_atom(token: str) -> Atom:
    """Return the atom of a number as it was written."""
    value = number_value(token)
    plain = int(value) if value.isdigit() and len(value) <= 15 else None
    keys = {f"#{value}"}
    if re.fullmatch(r"\d{1,3}([.,]\d{3})+", token):
        keys.add(f"#{re.sub('[.,]', '', token)}")
    elif re.fullmatch(r"\d+[.,]\d+", token):
        keys.add("#" + token.replace(",", ".").rstrip("0").rstrip("."))
    elif re.fullmatch(r"\d+\.\d*0", value):
        keys.add(f"#{value.rstrip('0')}")
    if re.search("[.,]", token):
        keys.add("#" + ".".join(group.lstrip("0") or "0" for group in re.split("[.,]", token)))
    return Atom(token, "number", frozenset(keys), plain)


@lru_cache(maxsize=8192)
def _word(word: str) -> Atom:
    han = _han_number(word)
    if han is not None:
        return Atom(word, "number", frozenset({f"#{han}", word}), han, ideograph=True)
    keys = {word, *_lexicon().get(word, ())}
    if "\u3041" <= word[0] <= "\u30ff":  # one syllabary is written for the other, and long vowels are left out
        keys.add(word.translate(_KATAKANA).rstrip("ー"))
    if word in _ROMAN and len(word) > 1:
        keys.add(f"#{_ROMAN[word]}")
    number = _number_words().get(word)
    ideograph = len(word) == 1 and "\u3400" <= word <= "\u9fff"
    return Atom(word, "word", frozenset(keys), number, ideograph)


def _han_number(word: str) -> int | None:
    if any(char not in _HAN_DIGITS and char not in _HAN_UNITS for char in word):
        return None
    total, digit = 0, None
    for char in word:
        if char in _HAN_DIGITS:
            digit = _HAN_DIGITS[char] if digit is None else digit * 10 + _HAN_DIGITS[char]
        else:
            total += (1 if digit is None else digit) * _HAN_UNITS[char]
            digit = None
    return total + (digit or 0)


def _composed(found: list[Atom]) -> tuple[Atom, ...]:
    """Join number words that stand side by side: 'mil quinientos' is 1500, '5 bin' is 5000."""
    result: list[Atom] = []
    numbers = _number_words()
    index = 0
    while index < len(found):
        run = index
        while run < len(found) and (found[run].text in numbers or (run == index and found[run].value is not None)):
            run += 1
        joined = None
        while run - index > 1 and (joined := _sum([found[at].value or 0 for at in range(index, run)])) is None:
            run -= 1
        if joined is None:
            result.append(found[index])
            index += 1
        else:
            text = " ".join(atom.text for atom in found[index:run])
            result.append(Atom(text, "number", frozenset({f"#{joined}"}), joined))
            index = run
    return tuple(result)


def _sum(parts: Sequence[int]) -> int | None:
    """Return the number that number words spell, or None where they are several numbers."""
    total = current = 0
    for part in parts:
        if part >= 1000 and part % 1000 == 0 and current < part:
            total, current = total + max(current, 1) * part, 0
        elif part == 100 and 1 < current < 10:
            current *= 100
        elif current == 0 or current % 10 ** len(str(part)) == 0:
            current += part
        else:
            return None
    return total + current


def lexicon_bytes() -> bytes:
    """Return the file `lexicon.json`."""
    return (files("gnl_semantic.judge.local") / "lexicon.json").read_bytes()


@lru_cache(maxsize=1)
def _raw() -> Mapping[str, Mapping[str, Sequence[int | str]]]:
    return json.loads(lexicon_bytes())  # type: ignore[no-any-return]


@lru_cache(maxsize=1)
def _lexicon() -> Mapping[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for kind, prefix in (
        ("month", "#"),
        ("number", "#"),
        ("weekday", "day:"),
        ("unit", "unit:"),
        ("currency", "currency:"),
    ):
        for word, values in _raw()[kind].items():
            found.setdefault(word, set()).update(f"{prefix}{value}" for value in values)
    return {word: frozenset(keys) for word, keys in found.items()}


@lru_cache(maxsize=1)
def _number_words() -> Mapping[str, int]:
    return {word: int(values[0]) for word, values in _raw()["number"].items() if len(values) == 1}


_SIGNS = {
    "$": "currency:USD", "\x0220ac": "currency:EUR", "\x02a3": "currency:GBP", "\x0220ba": "currency:TRY",
    "\x02a5": "currency:JPY", "\x0220bd": "currency:RUB", '"': "unit:inch", "'": "unit:foot", "''": "unit:inch",
}  # fmt: skip
