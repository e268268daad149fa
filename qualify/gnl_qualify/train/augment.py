"""Near-misses made from the calibration set itself.

Its near-misses are written alike but for the one thing that differs, its paraphrases are not; so a classifier learns
that a text written differently is the same job. These pairs say otherwise: a paraphrase with one number or one word
exchanged, and a near-miss with one side written differently, are two jobs.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

Kind = Literal["number", "word", "rewritten"]
_WORD = re.compile(r"[^\W\d_]{4,}")
_NUMBER = re.compile(r"\d+")
_BREAK = re.compile(r"\s*[,;:–—/|]\s+|\s+[-–—]\s+")
_MARKS = re.compile(r"[(),;:–—\-/'\"]")


class Source(NamedTuple):
    """A pair as it is trained on: normalised texts."""

    id: str
    domain: str
    lang: str
    label: str
    a: str
    b: str
    phenomena: tuple[str, ...] = ()


class Made(NamedTuple):
    """A near-miss made from the pair at place `source`."""

    source: int
    kind: Kind
    a: str
    b: str


def make_near_misses(pairs: Sequence[Source]) -> list[Made]:
    """Return two near-misses of each paraphrase and one of each near-miss, where its text allows it.

    What is made of a pair depends on that pair and on the words of its domain and language only.
    """
    words: dict[tuple[str, str], list[str]] = defaultdict(list)
    for pair in pairs:
        words[pair.domain, pair.lang] += _WORD.findall(pair.a)
    made: list[Made] = []
    for place, pair in enumerate(pairs):
        dice = random.Random(pair.id)  # noqa: S311  # reproducible on purpose
        changed: Mapping[Kind, str | None] = {}
        if pair.label == "dup-paraphrase":
            changed = {
                "number": _other_number(pair.b, dice),
                "word": _other_word(pair.b, pair.a, words[pair.domain, pair.lang], dice),
            }
        elif pair.label == "near-miss":
            changed = {"rewritten": _rewritten(pair.b, pair.a, dice)}
        made += [Made(place, kind, pair.a, text) for kind, text in changed.items() if text is not None]
    return made


def _other_number(text: str, dice: random.Random) -> str | None:
    places = list(_NUMBER.finditer(text))
    if not places:
        return None
    place = dice.choice(places)
    digits = place.group()
    match dice.randrange(5):
        case 0 | 1:
            at = dice.randrange(len(digits))
            other = digits[:at] + str((int(digits[at]) + dice.choice((1, 2, 9))) % 10) + digits[at + 1 :]
        case 2 if len(digits) > 2:
            at = dice.randrange(len(digits) - 1)
            other = digits[:at] + digits[at + 1] + digits[at] + digits[at + 2 :]
        case 3:
            other = str(int(digits) + 1)
        case _:
            other = digits + str(dice.randrange(10))
    return None if int(other) == int(digits) else text[: place.start()] + other + text[place.end() :]


def _other_word(text: str, partner: str, words: Sequence[str], dice: random.Random) -> str | None:
    """Exchange a word that both texts have for one that the domain uses elsewhere."""
    places = [place for place in _WORD.finditer(text) if place.group()[:4] in partner]
    if not places:
        return None
    place, word = dice.choice(places), dice.choice(words)
    if word[:3] == place.group()[:3] or word in partner:
        return None
    return text[: place.start()] + word + text[place.end() :]


def _rewritten(text: str, partner: str, dice: random.Random) -> str | None:
    """Write one side differently, without touching what makes the two different."""
    before = text
    if dice.random() < 0.6:
        parts = _BREAK.split(text)
        turn = dice.randrange(len(parts))
        text = dice.choice((", ", " - ", " ", ": ")).join(parts[turn:] + parts[:turn])
    if dice.random() < 0.5:
        text = " ".join(_MARKS.sub(" ", text).split())
    common = set(_WORD.findall(partner))
    if dice.random() < 0.5 and (places := [place for place in _WORD.finditer(text) if place.group() in common]):
        place = dice.choice(places)
        short = place.group()[: dice.choice((3, 4))] + dice.choice((".", " ", ""))
        text = text[: place.start()] + short + text[place.end() :]
    if dice.random() < 0.3:
        text = re.sub(r"([a-z])[- ]?(\d)", dice.choice((r"\1 \2", r"\1\2")), text, count=1)
    if dice.random() < 0.2:
        text = re.sub(r"(?<![\d.,])(\d)(?![\d.,])", r"0\1", text, count=1)
    return None if text == before else text
