"""The rule ladder: settle for free what needs no knowledge of the world.

Two identity values are compared field by field. A normalizer may find that they are one value written twice (`match`),
a separator that they contradict each other (`separate`); the types let neither say the other's word. What needs to
know what words, names or abbreviations mean stays `gray`: there is no list, no prefix, stem or phonetic match here.
Everything is pure, symmetric, and bounded in work for any text.

Separators look at places: tokens that stand in the same place of both texts, between tokens that are equal. A number
counts as contradicted where the rest of the texts agrees, or where one text only adds words; a short code only where
everything else agrees. So neither a synonym nor a moved word can make a repeat look like other work.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from gnl_semantic.alignment import differences
from gnl_semantic.folds import Reading, is_letters, is_number, number_value, read, read_clean, touches_digit, values
from gnl_semantic.normalizers import NORMALIZERS
from gnl_semantic.rules import RULESET_VERSION, Rules
from gnl_semantic.separators import PAIR_SEPARATORS, PLACE_SEPARATORS, Place

__all__ = ["RULESET_VERSION", "LadderResult", "Outcome", "Rules", "Trace", "evaluate", "evaluate_field", "ladder_fold"]

Outcome = Literal["match", "separate", "gray"]

DEFAULT_RULES = Rules()
_LONG_NUMBER = 7
"""From here on, blocks with the same digits in all are one number divided in two ways, as telephone numbers are."""


@dataclass(frozen=True, slots=True)
class Trace:
    """Which rule concluded what, in which field.

    Attributes:
        rule: Id of the rule, see `gnl_semantic.rules.RULE_IDS`.
        rule_class: Its class; a normalizer concludes `match` and a separator `separate`, always.
        field: Name of the identity key; '' where a single value was evaluated.
        direction: What the rule concluded.
    """

    rule: str
    rule_class: Literal["normalizer", "separator"]
    field: str
    direction: Literal["match", "separate"]


@dataclass(frozen=True, slots=True)
class LadderResult:
    """The outcome of one comparison.

    Attributes:
        outcome: `match` asks a question, `separate` drops the candidate, `gray` leaves it to the next rung.
        traces: One per field that a rule decided, in the order of the fields; identical values leave none.
    """

    outcome: Outcome
    traces: tuple[Trace, ...]


def ladder_fold(text: str) -> str:
    """Return the key under which spellings of one value meet: equal folds are a `match` under the default rules.

    A text without a letter or digit gets a key of its own, so that it meets only itself.

    >>> ladder_fold("INV-2026-0142") == ladder_fold("inv 2026 142")
    True
    """
    return read(text).key or f"\x00{text}"


def evaluate(a: Mapping[str, str], b: Mapping[str, str], rules: Rules = DEFAULT_RULES) -> LadderResult:
    """Compare two identities, normalised value by key.

    Every field is evaluated, also after a conflict. Any `separate` separates; `match` needs every field to match.
    A field that both lack is equal where another field has a value; one that only one side has is gray.

    Args:
        a: Values of one call, as `gnl_core.identity.normalize_identity_value` returns them. Raw text is folded too.
        b: Values of the other call.
        rules: Options.
    """
    outcomes: set[Outcome] = set()
    traces: list[Trace] = []
    for field in dict.fromkeys((*a, *b)):
        result = evaluate_field(a.get(field, ""), b.get(field, ""), rules, field=field)
        outcomes.add(result.outcome)
        traces.extend(result.traces)
    if "separate" in outcomes:
        return LadderResult("separate", tuple(traces))
    # Two identities without any value would be "the same job" for every call there is.
    carries = any(a.values()) or any(b.values())
    return LadderResult("match" if carries and outcomes == {"match"} else "gray", tuple(traces))


def evaluate_field(a: str, b: str, rules: Rules = DEFAULT_RULES, *, field: str = "") -> LadderResult:
    """Compare two values of one field; see `evaluate`. The order of the two does not matter."""
    if a == b:
        return LadderResult("match", ())
    # An alignment breaks its ties by order, so the order is fixed.
    left, right = (read(text) for text in sorted((a, b)))
    if not (left.key and right.key):
        return LadderResult("gray", ())
    for name, normalizer in NORMALIZERS.items():
        if name not in rules.disable and normalizer(left, right) == "match":
            return LadderResult("match", (Trace(name, "normalizer", field, "match"),))
    separator = _separating_rule(left, right, rules)
    if separator is not None:
        return LadderResult("separate", (Trace(separator, "separator", field, "separate"),))
    return LadderResult("gray", ())


def _separating_rule(a: Reading, b: Reading, rules: Rules) -> str | None:
    """Return the first rule that separates, or None."""
    found = _conclusion(a, b, rules)
    if found is None and rules.phrases is not None and (rules.phrases.search(a.text) or rules.phrases.search(b.text)):
        found = _conclusion(_with_phrases(a, rules.phrases), _with_phrases(b, rules.phrases), rules)
    if found is not None:
        return found
    for name, rule in PAIR_SEPARATORS.items():
        if name not in rules.disable and rule(a, b) == "separate":
            return name
    return None


def _with_phrases(reading: Reading, phrases: re.Pattern[str]) -> Reading:
    """Read a list entry of several tokens as one."""
    return read_clean(phrases.sub(lambda match: f" \x03{match.lastindex} ", reading.text))


def _conclusion(a: Reading, b: Reading, rules: Rules) -> str | None:
    """Return the first rule that separates two tokens in one place, where the rest of the texts lets it."""
    # Only a gazetteer concludes anything where both texts have words of their own, and most gray pairs are such.
    if not rules.gazetteers and _has_own_word(a, b, rules) and _has_own_word(b, a, rules):
        return None
    gaps = differences(a, b)
    if not gaps:
        return None
    only_a, only_b = ({*values(token for gap in gaps for token in gap[side])} for side in (0, 1))
    rest_agrees = True
    longer: set[str] = set()
    found: list[tuple[str, Place]] = []
    for left, right in gaps:
        if not (left and right):
            longer.add("a" if left else "b")
            rest_agrees = rest_agrees and not _new_numbers(left or right, b if left else a)
            continue
        places = _places(left, right)
        rest_agrees = rest_agrees and len(places) == len(left) == len(right)
        for x, y in (values(tokens_of_place) for tokens_of_place in places):
            place = Place(x, y, attached=_touch_digits(x, y, a, b, rules))
            name = _place_rule(place, rules)
            # What stands elsewhere in the other text was moved, so its place says nothing.
            if name is None or x in only_b or y in only_a:
                rest_agrees = False
            else:
                found.append((name, place))
    for name, place in found:
        if name == "gazetteer" or (rest_agrees and (not longer or (len(longer) == 1 and _stands_alone(place)))):
            return name
    return None


def _has_own_word(a: Reading, b: Reading, rules: Rules) -> bool:
    """Tell whether `a` has a word, longer than a code, that `b` lacks however it is spaced."""
    longest_code = max(rules.short_code_max_len, 3)
    return any(
        len(token) > longest_code and is_letters(token) and token not in b.letters and not rules.is_size(token)
        for token in a.tokens
    )


def _place_rule(place: Place, rules: Rules) -> str | None:
    for name, rule in PLACE_SEPARATORS.items():
        if name not in rules.disable and rule(place, rules) == "separate":
            return name
    return None


def _touch_digits(x: str, y: str, a: Reading, b: Reading, rules: Rules) -> bool:
    # Up to 3 letters are a code wherever they stand.
    if not (3 < len(x) == len(y) <= rules.short_code_max_len and is_letters(x) and is_letters(y)):
        return False
    return touches_digit(x, a.text) and touches_digit(y, b.text)


def _places(left: Sequence[str], right: Sequence[str]) -> list[tuple[str, str]]:
    """Return the pairs of tokens that can contradict each other; none where the lists differ in length.

    A number and the unit behind it may both have been converted (1500 m, 1.5 km), and a long number may have been
    divided elsewhere (138 0771, 1380 771).
    """
    if len(left) != len(right):
        return []
    if "".join(left) == "".join(right) and len("".join(left)) >= _LONG_NUMBER:
        return []
    pairs = list(zip(left, right, strict=True))
    converted = {
        index
        for index, (number, unit) in enumerate(pairwise(left))
        if is_number(number) != is_number(unit) and (is_number(number) or not is_letters(number))
    }
    return [pair for index, pair in enumerate(pairs) if index not in converted and index - 1 not in converted]


def _new_numbers(added: Sequence[str], other: Reading) -> bool:
    """Tell whether added words bring a number that the other text does not have."""
    return any(is_number(token) and number_value(token) not in other.values for token in added)


def _stands_alone(place: Place) -> bool:
    """Tell whether two numbers contradict each other although one text has words more.

    The words may be a unit or half of the day: 120 and 1200 mm, 2:30 pm and 14:30.
    """
    x, y = place.x, place.y
    if not (is_number(x) and is_number(y)):
        return False
    if x.isdigit() and y.isdigit() and len(x) <= 2 >= len(y) and abs(int(x) - int(y)) == 12:
        return False
    return re.sub("[.,0]", "", x) != re.sub("[.,0]", "", y)
