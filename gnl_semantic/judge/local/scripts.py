"""In which scripts a text is written; what is declared or seen is known, what would have to be guessed is not."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import lru_cache

_BY_NAME = {
    "LATIN": "Latn",
    "CYRILLIC": "Cyrl",
    "ARABIC": "Arab",
    "CJK": "Hani",
    "HIRAGANA": "Kana",
    "KATAKANA": "Kana",
    "KATAKANA-HIRAGANA": "Kana",
    "GREEK": "Grek",
    "HEBREW": "Hebr",
    "HANGUL": "Hang",
    "DEVANAGARI": "Deva",
    "THAI": "Thai",
    "ARMENIAN": "Armn",
    "GEORGIAN": "Geor",
}
_OF_LANGUAGE = {
    "ar": ("Arab",), "fa": ("Arab",), "ur": ("Arab",), "ru": ("Cyrl",), "uk": ("Cyrl",), "bg": ("Cyrl",),
    "sr": ("Cyrl", "Latn"), "zh": ("Hani",), "ja": ("Hani", "Kana"), "ko": ("Hang", "Hani"), "el": ("Grek",),
    "he": ("Hebr",), "hi": ("Deva",), "th": ("Thai",), "hy": ("Armn",), "ka": ("Geor",),
}  # fmt: skip
"""Scripts of languages that are not written in Latin letters; every other tag counts as Latin."""
_MOSTLY = 0.7
"""Share of Latin letters from which they are more than names in another script: 'PDA手持终端' is Chinese."""


def scripts_of(text: str) -> frozenset[str]:
    """Return the scripts of a text's letters as ISO 15924 codes; kanji and kana count apart, unknown ones as 'Zyyy'."""
    return frozenset(_script(char) for char in text if char.isalpha())


def main_scripts(text: str) -> frozenset[str]:
    """Return the scripts a text is written in, without Latin names and codes inside another script."""
    found = scripts_of(text)
    letters = [char for char in text if char.isalpha()]
    latin = sum(_script(char) == "Latn" for char in letters)
    if found > {"Latn"} and latin < _MOSTLY * len(letters):
        found -= {"Latn"}
    return frozenset("Hani" if script == "Kana" else script for script in found)


def scripts_of_languages(languages: Sequence[str]) -> frozenset[str]:
    """Return the scripts that languages are written in."""
    return frozenset(s for tag in languages for s in _OF_LANGUAGE.get(tag.partition("-")[0].lower(), ("Latn",)))


@lru_cache(maxsize=4096)
def _script(char: str) -> str:
    return _BY_NAME.get(unicodedata.name(char, "").split(" ")[0], "Zyyy")
