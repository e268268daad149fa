"""Which atoms of two texts stand for each other, how surely, and what is left over."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from rapidfuzz.distance import OSA, JaroWinkler

from gnl_semantic.judge.local.atoms import Atom

_STEM = 3


@dataclass(slots=True)
class Matching:
    """Pairs of atoms by kind, and the rest.

    Attributes:
        left: Atoms of one text.
        right: Atoms of the other.
        pairs: Place left, place right, kind of the match.
        rest_left: Places left without a partner.
        rest_right: Places right without a partner.
    """

    left: Sequence[Atom]
    right: Sequence[Atom]
    pairs: list[tuple[int, int, str]] = field(default_factory=list)
    rest_left: list[int] = field(default_factory=list)
    rest_right: list[int] = field(default_factory=list)

    def take(self, lefts: Sequence[int], rights: Sequence[int], kind: str) -> None:
        """Pair some places; the first of either side stand for all of them."""
        self.pairs.append((lefts[0], rights[0], kind))
        self.rest_left = [place for place in self.rest_left if place not in lefts]
        self.rest_right = [place for place in self.rest_right if place not in rights]


def match(left: Sequence[Atom], right: Sequence[Atom]) -> Matching:
    """Pair the atoms of two texts one to one, surest kinds first."""
    found = Matching(left, right, rest_left=list(range(len(left))), rest_right=list(range(len(right))))
    _equal(found)
    _joined(found)
    _groups(found)
    _numbers(found)
    _soft(found)
    _acronyms(found)
    _covered(found)
    found.pairs.sort()
    return found


def _equal(found: Matching) -> None:
    """Pair what shares a key; of several partners the one that continues the last pair."""
    places: dict[str, list[int]] = {}
    for place, atom in enumerate(found.right):
        for key in atom.keys:
            places.setdefault(key, []).append(place)
    free = set(found.rest_right)
    # Same spelling goes before same reading: 'may' the month waits for its own.
    for spelt in (True, False):
        last = -1
        for place in list(found.rest_left):
            atom = found.left[place]
            options = sorted({at for key in atom.keys for at in places.get(key, ()) if at in free})
            options = [at for at in options if (found.right[at].text == atom.text) == spelt]
            if options:
                at = next((at for at in options if at > last), options[0])
                last = at
                free.discard(at)
                found.take([place], [at], "equal" if spelt else "reading")


def _joined(found: Matching) -> None:
    """Pair what only spacing divides: 'air fryer' and 'airfryer', '600 451' and '600451'."""
    for swap in (False, True):
        runs, singles = (found.rest_right, found.rest_left) if swap else (found.rest_left, found.rest_right)
        many, one = (found.right, found.left) if swap else (found.left, found.right)
        for single in list(singles):
            atom = one[single]
            goal = atom.text.lstrip("0") if atom.text.isdigit() or atom.value is None else str(atom.value)
            if len(goal) < 3:
                continue
            for start in list(runs):
                end, text = start, ""
                while end in runs and many[end].kind == atom.kind and len(text) < len(goal):
                    text += many[end].text if text or many[end].kind == "word" else many[end].text.lstrip("0")
                    end += 1
                if text == goal and end - start > 1:
                    sides = ([single], list(range(start, end)))
                    found.take(*(sides if swap else sides[::-1]), "joined")
                    runs, singles = (found.rest_right, found.rest_left) if swap else (found.rest_left, found.rest_right)
                    break
    digits = [
        "".join(side[place].text for place in rest if side[place].kind == "number").replace(".", "").replace(",", "")
        for side, rest in ((found.left, found.rest_left), (found.right, found.rest_right))
    ]
    x, y = (text.lstrip("0") for text in digits)
    # A telephone number with and without its country's prefix.
    if (x == y and len(x) >= 4) or (x[-9:] == y[-9:] and len(x) >= 9 and abs(len(x) - len(y)) <= 3):
        lefts = [place for place in found.rest_left if found.left[place].kind == "number"]
        rights = [place for place in found.rest_right if found.right[place].kind == "number"]
        found.take(lefts, rights, "joined")


def _groups(found: Matching) -> None:
    """Pair '21.02' with '21' and '2' that stand apart, as dates and times are written."""
    for swap in (False, True):
        rest, others = (found.rest_right, found.rest_left) if swap else (found.rest_left, found.rest_right)
        side, other = (found.right, found.left) if swap else (found.left, found.right)
        for place in list(rest):
            text = side[place].text
            if side[place].kind != "number" or not any(mark in text for mark in ".,"):
                continue
            groups = [int(group) for group in text.replace(",", ".").split(".") if group]
            if len(groups) > 3 or max(groups) > 9999:
                continue
            partners: list[int] = []
            for group in groups:
                keys = {f"#{group}", f"#{2000 + group}"} if 10 <= group <= 99 else {f"#{group}"}
                partner = next((at for at in others if at not in partners and keys & other[at].keys), None)
                if partner is not None:
                    partners.append(partner)
                elif group != 0:
                    break
            else:
                if partners:
                    sides = ([place], partners)
                    found.take(*(sides[::-1] if swap else sides), "groups")
                    rest, others = (found.rest_right, found.rest_left) if swap else (found.rest_left, found.rest_right)


def _numbers(found: Matching) -> None:
    """Pair hours of two clocks, years of two and four digits, dates of two lengths, and amounts in two units."""
    for place in list(found.rest_left):
        if found.left[place].value is None and found.left[place].kind != "number":
            continue
        for at in list(found.rest_right):
            kind = _number_kind(found, place, at)
            if kind is None:
                continue
            units = [place + 1], [at + 1]
            found.take([place], [at], kind)
            if kind == "scaled" and place + 1 in found.rest_left and at + 1 in found.rest_right:
                found.take(*units, kind)
            break


def _number_kind(found: Matching, place: int, at: int) -> str | None:
    one, other = found.left[place], found.right[at]
    if one.value is not None and other.value is not None:
        low, high = sorted((one.value, other.value))
        if 1 <= low <= 11 and high == low + 12:
            return "clock"
        if 2000 + low == high and low >= 10:
            return "year"
        if low >= 10**8 and str(low)[-9:] == str(high)[-9:]:
            return "joined"
    if one.kind == other.kind == "number":
        groups = [re.split("[.,]", atom.text) for atom in (one, other)]
        if len(groups[0]) == len(groups[1]) == 3 and groups[0] != groups[1]:
            dates = [[int(group) % 2000 for group in date] for date in groups]
            if dates[0] == dates[1]:
                return "year"
        if _amounts(found.left, place) & _amounts(found.right, at):
            return "scaled"
    return None


def _amounts(side: Sequence[Atom], place: int) -> set[tuple[str, float]]:
    """Return what a number with its unit behind it may measure: dimension, and amount in one unit of it."""
    units = [_UNITS[key] for key in side[place + 1].keys if key in _UNITS] if place + 1 < len(side) else []
    try:
        return {
            (dimension, round(float(side[place].text.replace(",", ".")) * factor, 6)) for dimension, factor in units
        }
    except ValueError:
        return set()


_UNITS = {
    f"unit:{unit}": (dimension, factor)
    for dimension, units in {
        "mass": {"milligram": 0.001, "gram": 1.0, "kilogram": 1000.0, "tonne": 1e6},
        "volume": {"milliliter": 1.0, "centiliter": 10.0, "liter": 1000.0},
        "length": {"millimeter": 1.0, "centimeter": 10.0, "meter": 1000.0, "kilometer": 1e6},
        "bytes": {"megabyte": 1.0, "gigabyte": 1000.0, "terabyte": 1e6},
        "power": {"watt": 1.0, "kilowatt": 1000.0},
        "time": {"second": 1.0, "minute": 60.0, "hour": 3600.0, "day": 86400.0, "week": 604800.0},
        "current": {"milliampere": 1.0, "ampere": 1000.0},
    }.items()
    for unit, factor in units.items()
}


def soft_kind(a: str, b: str) -> tuple[float, str] | None:
    """Return how surely two words may be one word written differently, 0 to 1, and why; None where they may not.

    All of it is evidence for both labels: Karen and Karl share a stem too.
    """
    short, long = sorted((a, b), key=lambda word: (len(word), word))
    common = 0
    for x, y in zip(short, long, strict=False):
        if x != y:
            break
        common += 1
    if common == len(short):
        return (0.9 if common >= _STEM else 0.5), ("prefix" if common < len(long) - 4 or common < 4 else "stem")
    distance = OSA.distance(a, b, score_cutoff=2)
    if distance == 1 and len(short) >= 4:
        return 0.85, "typo"
    if common >= 4 and common >= 0.6 * len(short):
        return 0.5 + 0.4 * common / len(long), "stem"
    if distance == 2 and len(short) >= 6:
        return 0.6, "typo"
    if len(short) >= 4 and short in long:
        return 0.6, "inside"
    if short[0] == long[0] and len(short) >= 2 and len(short) <= 0.75 * len(long) and _within(short, long):
        return 0.45, "skeleton"
    nearness = JaroWinkler.similarity(a, b)
    if common >= _STEM and nearness >= 0.8:
        return nearness - 0.45, "near"
    return None


def _within(short: str, long: str) -> bool:
    letters = iter(long)
    return all(letter in letters for letter in short)


def _soft(found: Matching) -> None:
    options: list[tuple[float, int, int, str]] = []
    for place in found.rest_left:
        a = found.left[place]
        if a.kind != "word" or a.ideograph:
            continue
        for at in found.rest_right:
            b = found.right[at]
            if b.kind != "word" or b.ideograph:
                continue
            kind = soft_kind(a.text, b.text)
            if kind:
                options.append((-kind[0], place, at, kind[1]))
    taken_left: set[int] = set()
    taken_right: set[int] = set()
    for _, place, at, kind_name in sorted(options):
        if place not in taken_left and at not in taken_right:
            taken_left.add(place)
            taken_right.add(at)
            found.take([place], [at], kind_name)


def _covered(found: Matching) -> None:
    """Pair a word with a longer one that holds it, though another word has it too: parts of a compound."""
    for swap in (False, True):
        rest = found.rest_right if swap else found.rest_left
        side, other = (found.right, found.left) if swap else (found.left, found.right)
        for place in list(rest):
            word = side[place].text
            if side[place].kind != "word" or len(word) < 4:
                continue
            at = next((n for n, atom in enumerate(other) if len(atom.text) > len(word) and word in atom.text), None)
            if at is not None:
                sides = ([place], [at])
                found.take(*(sides[::-1] if swap else sides), "covered")


def _acronyms(found: Matching) -> None:
    """Pair a short word with the words whose initials it is; both sides may keep other words between."""
    for swap in (False, True):
        rest, others = (found.rest_right, found.rest_left) if swap else (found.rest_left, found.rest_right)
        side, other = (found.right, found.left) if swap else (found.left, found.right)
        for place in list(rest):
            word = side[place].text
            if side[place].kind != "word" or side[place].ideograph or not 2 <= len(word) <= 6:
                continue
            for start in list(others):
                run = [at for at in range(start, start + len(word)) if at in others]
                if len(run) == len(word) and "".join(other[at].text[0] for at in run) == word:
                    sides = ([place], run)
                    found.take(*(sides[::-1] if swap else sides), "acronym")
                    rest, others = (found.rest_right, found.rest_left) if swap else (found.rest_left, found.rest_right)
                    break
