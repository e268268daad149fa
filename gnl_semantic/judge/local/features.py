"""What the local judge looks at: one vector of numbers of two texts, the same in either order.

Counts are capped and cosines rounded, so that no rare text weighs more than what the judge was trained on, and a last
bit that differs between two CPUs makes no difference.
"""

from __future__ import annotations

import bisect
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rapidfuzz import fuzz
from rapidfuzz.distance import JaroWinkler

from gnl_semantic.embedder.port import Vectors
from gnl_semantic.folds import read
from gnl_semantic.judge.local.atoms import Atom, atoms
from gnl_semantic.judge.local.matching import Matching, match
from gnl_semantic.ladder import evaluate_field

KINDS = (
    "reading", "joined", "groups", "clock", "year", "scaled", "prefix", "stem", "typo", "inside", "skeleton", "near",
    "acronym", "covered",
)  # fmt: skip
COSINE_NAMES = ("cos_whole", "cos_rest", "cos_extra")
COSINE_DIGITS = 3
MOST_CHARACTERS = 1024
"""What of a text is looked at; the judge answers UNSURE long before."""
_IDEOGRAPHS = re.compile(r"(?<=[\u3040-\u9fff]) (?=[\u3040-\u9fff])")
_SOFT = frozenset(("prefix", "covered", "stem", "typo", "inside", "skeleton", "near"))


@dataclass(frozen=True, slots=True)
class Evidence:
    """What two texts show before anything is embedded.

    Attributes:
        values: Feature by name, in a fixed order.
        rests: The words of either text that found no partner, as a text each; '' where there are none.
        texts: What an embedder is needed for, in sorted order: both texts, and the rests that are not empty.
    """

    values: dict[str, float]
    rests: tuple[str, str]
    texts: tuple[str, ...]


def collect(a: str, b: str) -> Evidence:
    """Return the evidence of two normalised identity values; never raises, and work is bounded for any text."""
    a, b = (text[:MOST_CHARACTERS] for text in sorted((a, b)))
    found = match(atoms(a), atoms(b))
    values = {
        **_whole(a, b),
        **_kinds(found),
        **_numbers(found),
        **_rests(found),
        **_soft(found),
        **_order(found),
        **_places(found),
    }
    rests = (_words(found.left, found.rest_left), _words(found.right, found.rest_right))
    return Evidence({name: float(value) for name, value in values.items()}, rests, (a, b, *filter(None, rests)))


def cosines(evidence: Evidence, vectors: Vectors) -> dict[str, float]:
    """Return the features that need an embedder.

    Args:
        evidence: Of two texts.
        vectors: One row for each of `evidence.texts`.
    """
    products = np.round((vectors @ vectors.T).astype(np.float64), COSINE_DIGITS)
    whole = float(products[0, 1])
    if all(evidence.rests):
        rest = float(products[2, 3])
        return {"cos_whole": whole, "cos_rest": rest, "cos_extra": 0.0}
    # Where one text only adds words, a rest that says little stays near the text that it was taken from.
    extra = float(products[2, :2].max()) if len(products) > 2 else 0.0
    return {"cos_whole": whole, "cos_rest": 0.9 if any(evidence.rests) else 1.0, "cos_extra": extra}


def vector(values: dict[str, float], cosine: dict[str, float]) -> list[float]:
    """Return all features in the order of `NAMES`."""
    gap = cosine["cos_rest"] - cosine["cos_whole"] if cosine["cos_extra"] == 0.0 and values["rest_none"] == 0 else 0.0
    every = {**values, **cosine, "cos_rest_gap": gap}
    return [round(every[name], 4) for name in NAMES]


def _words(side: Sequence[Atom], rest: Sequence[int]) -> str:
    return _IDEOGRAPHS.sub("", " ".join(side[place].text for place in rest if side[place].kind == "word"))


def _weight(atom: Atom) -> float:
    if atom.kind == "sign":
        return 0.3
    if atom.ideograph:
        return 0.5
    return min(len(atom.text), 8) / 5


def _whole(a: str, b: str) -> dict[str, float]:
    one, other = read(a), read(b)
    x, y = " ".join(one.tokens), " ".join(other.tokens)
    outcome = evaluate_field(a, b).outcome
    shorter, longer = sorted((len(x), len(y)))
    marks = [Counter(char for char in text if not char.isalnum() and not char.isspace()) for text in (a, b)]
    return {
        "ladder_match": outcome == "match",
        "ladder_separate": outcome == "separate",
        "ratio": fuzz.ratio(x, y) / 100,
        "partial": fuzz.partial_ratio(x, y) / 100,
        "token_sort": fuzz.token_sort_ratio(x, y) / 100,
        "token_set": fuzz.token_set_ratio(x, y) / 100,
        "letters_ratio": fuzz.ratio(one.letters, other.letters) / 100,
        "length_ratio": shorter / max(longer, 1),
        "length": min(longer, 120) / 40,
        "marks_differ": min(((marks[0] - marks[1]) + (marks[1] - marks[0])).total(), 6) / 3,
    }


def _kinds(found: Matching) -> dict[str, float]:
    counts = Counter(kind for _, _, kind in found.pairs)
    most = max(len(found.left), len(found.right), 1)
    return {
        "equal_share": counts["equal"] / most,
        "matched_share": len(found.pairs) / most,
        **{f"kind_{kind}": min(counts[kind], 4) for kind in KINDS},
    }


def _numbers(found: Matching) -> dict[str, float]:
    rests = [
        [side[place] for place in rest if side[place].kind == "number" and side[place].value != 0]
        for side, rest in ((found.left, found.rest_left), (found.right, found.rest_right))
    ]
    # A code is letters that touch digits; its other half is weighed with the words.
    low, high = sorted(map(len, rests))
    facing = [(x.text, y.text) for x in rests[0] for y in rests[1]]
    matched = sum(found.left[place].kind == "number" for place, _, _ in found.pairs)
    small = [sum((atom.value or 99) == 1 for atom in rest) for rest in rests]
    return {
        "numbers_matched": min(matched, 4),
        "numbers_contradict": min(low, 3),
        "numbers_any_contradict": low > 0,
        "numbers_extra": min(high - low, 3),
        "numbers_one_extra": max(small),
        "numbers_nearest": max((JaroWinkler.similarity(*pair) for pair in facing), default=0.0),
        "numbers_same_digits": any(sorted(x) == sorted(y) for x, y in facing),
    }


def _rests(found: Matching) -> dict[str, float]:
    rests = [
        [side[place] for place in rest if side[place].kind != "number"]
        for side, rest in ((found.left, found.rest_left), (found.right, found.rest_right))
    ]
    totals = [sum(_weight(atom) for atom in side if atom.kind != "number") or 1.0 for side in (found.left, found.right)]
    weights = [sum(map(_weight, rest)) for rest in rests]
    counts = sorted(map(len, rests))
    longest = sorted(max((_weight(atom) for atom in rest), default=0.0) for rest in rests)
    shares = sorted(weight / total for weight, total in zip(weights, totals, strict=True))
    joined = ["".join(atom.text for atom in rest) for rest in rests]
    both = bool(joined[0] and joined[1])
    ideographs = [sum(atom.ideograph for atom in rest) for rest in rests]
    codes = [[atom.text for atom in rest if atom.text.isascii() and len(atom.text) <= 3] for rest in rests]
    return {
        "rest_low": min(*weights, 4),
        "rest_high": min(max(weights), 8),
        "rest_count_low": min(counts[0], 4),
        "rest_count_high": min(counts[1], 6),
        "rest_share_low": shares[0],
        "rest_share_high": shares[1],
        "rest_longest_low": longest[0],
        "rest_longest_high": longest[1],
        "rest_none": not (rests[0] or rests[1]),
        "rest_one_side": counts[0] == 0 < counts[1],
        "rest_nearest": JaroWinkler.similarity(*joined) if both else 0.0,
        "rest_ratio": fuzz.ratio(*joined) / 100 if both else 0.0,
        "rest_codes_low": min(map(len, codes)),
        "rest_codes_high": min(max(map(len, codes)), 3),
        "rest_signs": min(sum(atom.kind == "sign" for rest in rests for atom in rest), 3),
        "rest_units_facing": all(
            any(key.startswith(("unit:", "currency:")) for atom in rest for key in atom.keys) for rest in rests
        ),
        "ideographs": any(atom.ideograph for atom in (*found.left, *found.right)),
        "rest_ideographs_low": min(*ideographs, 4),
        "rest_ideographs_high": min(max(ideographs), 6),
    }


def _soft(found: Matching) -> dict[str, float]:
    """Counter-evidence: what stems, typing slips and abbreviations that may be one word would hide if they are two."""
    worst = 0.0
    tails: list[tuple[str, str]] = []
    prefixed = both_tails = single_letters = first_letter = last_changed = 0
    for place, at, kind in found.pairs:
        if kind not in _SOFT:
            continue
        x, y = found.left[place].text, found.right[at].text
        worst = max(worst, 1 - JaroWinkler.similarity(x, y))
        common = next((n for n, (p, q) in enumerate(zip(x, y, strict=False)) if p != q), min(len(x), len(y)))
        tails.append((x[common:], y[common:]))
        both_tails += bool(x[common:] and y[common:])
        single_letters += min(len(x), len(y)) == 1
        first_letter += x[0] != y[0]
        last_changed += len(x) == len(y)
        prefixed += len(x) != len(y) and (x.endswith(y) or y.endswith(x))
    crossed = sum(
        tail == other[::-1] and tail[0] != tail[1] for n, tail in enumerate(tails) for other in tails[n + 1 :]
    )
    return {
        "soft_worst": worst,
        "soft_both_tails": min(both_tails, 3),
        "soft_longest_tail": min(max((max(len(p), len(q)) for p, q in tails), default=0), 8) / 4,
        "soft_shorter_tail": min(max((min(len(p), len(q)) for p, q in tails), default=0), 4) / 2,
        "soft_single_letters": min(single_letters, 2),
        "soft_first_letter": min(first_letter, 2),
        "soft_same_length": min(last_changed, 2),
        "soft_prefixed": min(prefixed, 2),
        "soft_crossed_tails": min(crossed, 2),
    }


def _order(found: Matching) -> dict[str, float]:
    places = [at for _, at, _ in found.pairs]
    n = len(places)
    inversions = sum(places[i] > places[j] for i in range(n) for j in range(i + 1, n))
    breaks = sum(places[i + 1] != places[i] + 1 for i in range(n - 1))
    return {
        "inversions": inversions / max(n * (n - 1) / 2, 1),
        "breaks": min(breaks, 8) / 4,
        "in_order": n > 1 and inversions == 0,
        "exchanged": min(_exchanged(found), 2),
        "exchanged_clean": _exchanged(found) > 0 and not (found.rest_left or found.rest_right),
        "swap_template": _swap_template(found),
    }


def _exchanged(found: Matching) -> int:
    """Count pairs of atoms that stand behind (or before) each other's neighbours: from A to B, from B to A."""
    left, right = found.left, found.right

    def text(side: Sequence[Atom], place: int) -> str:
        return side[place].text if 0 <= place < len(side) else ""

    count = 0
    pairs = found.pairs
    for step in (-1, 1):
        contexts = [(text(left, place + step), text(right, at + step)) for place, at, _ in pairs]
        for i, (own, other) in enumerate(contexts):
            for j in range(i + 1, len(contexts)):
                own_2, other_2 = contexts[j]
                if own != other and own and own_2 and own == other_2 and other == own_2:
                    x, y = left[pairs[i][0]], left[pairs[j][0]]
                    if x.kind == y.kind and x.text != y.text:
                        count += 1
    return count


def _swap_template(found: Matching) -> float:
    """Tell whether two runs of one length changed places and everything else stands where it stood."""
    if found.rest_left or found.rest_right or len(found.left) != len(found.right):
        return 0.0
    moved = [(place, at) for place, at, _ in found.pairs if place != at]
    exchange = dict(moved)
    return float(bool(moved) and len(moved) <= 6 and all(exchange.get(at) == place for place, at in moved))


def _places(found: Matching) -> dict[str, float]:
    """Return what stands between matched atoms that kept their order: exchanged there, or added."""
    chain = _longest_chain(found.pairs)
    left_free, right_free = set(found.rest_left), set(found.rest_right)
    exchanged: list[tuple[list[Atom], list[Atom]]] = []
    added = 0
    row = column = 0
    for place, at in [*chain, (len(found.left), len(found.right))]:
        x = [found.left[n] for n in range(row, place) if n in left_free]
        y = [found.right[n] for n in range(column, at) if n in right_free]
        tight = len(x) == place - row and len(y) == at - column
        if x and y and tight:
            exchanged.append((x, y))
        elif x or y:
            added += 1
        row, column = place + 1, at + 1
    single = [(x[0], y[0]) for x, y in exchanged if len(x) == len(y) == 1]
    words = [(x.text, y.text) for x, y in single if x.kind == y.kind == "word"]
    return {
        "places_exchanged": min(len(exchanged), 3),
        "places_single": min(len(single), 3),
        "places_added": min(added, 4),
        "places_only_one": len(exchanged) == 1 and added == 0,
        "places_single_only": len(exchanged) == len(single) == 1 and added == 0,
        "places_word_near": max((JaroWinkler.similarity(*pair) for pair in words), default=0.0),
        "chain_share": len(chain) / max(len(found.left), len(found.right), 1),
    }


def _longest_chain(pairs: Sequence[tuple[int, int, str]]) -> list[tuple[int, int]]:
    """Return a longest run of pairs, not necessarily adjacent, whose places grow on both sides."""
    tails: list[int] = []
    ends: list[int] = []
    before: list[int] = []
    for index, (_, at, _) in enumerate(pairs):
        slot = bisect.bisect_left(tails, at)
        before.append(ends[slot - 1] if slot else -1)
        if slot == len(tails):
            tails.append(at)
            ends.append(index)
        else:
            tails[slot] = at
            ends[slot] = index
    chain: list[tuple[int, int]] = []
    index = ends[-1] if ends else -1
    while index >= 0:
        chain.append(pairs[index][:2])
        index = before[index]
    return chain[::-1]


NAMES = (*collect("a", "b").values, *COSINE_NAMES, "cos_rest_gap")
"""Every feature, in order."""
