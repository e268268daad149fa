"""Options of the rule ladder, as data that can be written down and compared."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

from gnl_semantic.errors import RulesError
from gnl_semantic.folds import clean, fold_key, is_letters, is_number, number_value, tokens, values

RULESET_VERSION = "1"
"""Changes whenever a rule concludes something else than before; stands in every journalled outcome."""

NORMALIZER_IDS = ("punct-space", "digit-value", "digit-concat", "umlaut-digraph")
SEPARATOR_IDS = (
    "size-ladder",
    "gazetteer",
    "shortcode-edit1",
    "number-value",
    "roman-numeral",
    "symbol",
    "reference-slip",
)
RULE_IDS = (*NORMALIZER_IDS, *SEPARATOR_IDS)

Lists = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Options of the ladder; the defaults are the whole configuration for most.

    Attributes:
        size_ladders: Rungs of sizes; two rungs of one ladder are different sizes.
        gazetteers: Lists of names of the caller's domain that exclude each other; none by default.
        short_code_max_len: Longest code, in characters, of which one changed character separates; 0 switches
            `shortcode-edit1` off. Free codes of letters alone are never longer than 3.
        disable: Ids of rules that are switched off, see `RULE_IDS`.

    Raises:
        RulesError: An option has a wrong type or range, a list has fewer than two entries, one entry twice or one
            without a letter or digit, or a rule id is unknown.
    """

    size_ladders: Lists = (
        ("xs", "s", "m", "l", "xl", "xxl", "xxxl"),
        ("xs", "s", "m", "l", "xl", "2xl", "3xl", "4xl", "5xl"),
    )
    gazetteers: Lists = ()
    short_code_max_len: int = 4
    disable: tuple[str, ...] = ()
    ladder_entries: tuple[Mapping[str, str], ...] = field(init=False, repr=False, compare=False)
    """Token -> rung, for each ladder."""
    gazetteer_entries: tuple[Mapping[str, str], ...] = field(init=False, repr=False, compare=False)
    """Token -> entry, for each gazetteer."""
    phrases: re.Pattern[str] | None = field(init=False, repr=False, compare=False)
    """Finds the entries of more than one token; group n becomes the token '\\x03n'."""

    def __post_init__(self) -> None:
        for name in ("size_ladders", "gazetteers"):
            object.__setattr__(self, name, _lists(name, getattr(self, name)))
        object.__setattr__(self, "disable", _texts("disable", self.disable))
        if isinstance(self.short_code_max_len, bool) or not isinstance(self.short_code_max_len, int):
            raise RulesError(f"rules: short_code_max_len is {self.short_code_max_len!r}, must be a whole number")
        if not 0 <= self.short_code_max_len <= 8:
            raise RulesError(f"rules: short_code_max_len is {self.short_code_max_len}, must lie between 0 and 8")
        for rule in self.disable:
            if rule not in RULE_IDS:
                raise RulesError(f"rules: disable names '{rule}', the rules are {', '.join(RULE_IDS)}", rule=rule)
        patterns: dict[str, str] = {}
        object.__setattr__(self, "ladder_entries", tuple(_entries(names, patterns) for names in self.size_ladders))
        object.__setattr__(self, "gazetteer_entries", tuple(_entries(names, patterns) for names in self.gazetteers))
        object.__setattr__(self, "phrases", re.compile(rf"\b(?:{'|'.join(patterns)})\b") if patterns else None)

    @classmethod
    def from_option(cls, option: bool | Rules | Mapping[str, object] | None) -> Rules | None:
        """Return the rules that an option means: True = the defaults, False or None = no ladder, a mapping = changes.

        Raises:
            RulesError: The option is none of these, or the mapping has an unknown or wrong value.
        """
        match option:
            case None | False:
                return None
            case True:
                return cls()
            case Rules():
                return option
            case Mapping():
                known = [entry.name for entry in fields(cls) if entry.init]
                changes = {key: value for key, value in option.items() if key != "ruleset_version"}
                version = option.get("ruleset_version", RULESET_VERSION)
                if version != RULESET_VERSION:
                    raise RulesError(f"rules: ruleset_version is {version!r}, this release has {RULESET_VERSION!r}")
                for key in changes:
                    if key not in known:
                        raise RulesError(f"rules: unknown option {key!r}; the options are {', '.join(known)}")
                return cls(**changes)  # type: ignore[arg-type]  # __post_init__ validates what a mapping may hold
            case _:
                raise RulesError(f"rules: is {type(option).__name__}, must be True, False, Rules or a mapping")

    def is_size(self, token: str) -> bool:
        """Tell whether a token is a rung of a ladder."""
        return any(token in entries for entries in self.ladder_entries)

    def parameters(self) -> dict[str, object]:
        """Return all options and the ruleset version, JSON-representable; `from_option` reads them back."""
        return {
            "ruleset_version": RULESET_VERSION,
            "size_ladders": [list(ladder) for ladder in self.size_ladders],
            "gazetteers": [list(names) for names in self.gazetteers],
            "short_code_max_len": self.short_code_max_len,
            "disable": list(self.disable),
        }


def _entries(names: tuple[str, ...], patterns: dict[str, str]) -> Mapping[str, str]:
    """Return token -> entry; an entry of several tokens adds its pattern and gets the token of its group."""
    found: dict[str, str] = {}
    for name in names:
        text = clean(name)
        parts = tokens(text)
        key = fold_key(values(parts))
        if not key:
            raise RulesError(f"rules: the list entry {name!r} has no letter or digit")
        if key in found.values():
            raise RulesError(f"rules: the list entry {name!r} stands in its list twice")
        if len(parts) == 1:
            found[number_value(parts[0]) if is_number(parts[0]) else parts[0]] = key
            continue
        # What the entry writes in one piece is one piece in the text: '2xl' is a size, '2 xl' may be two pieces.
        glued = text == "".join(parts)
        body = ("" if glued else r"[\W_]*").join(
            f"0*{re.escape(number_value(part))}" if part.isdigit() else re.escape(part) for part in parts
        )
        pattern = f"({body})"
        found[patterns.setdefault(pattern, f"\x03{len(patterns) + 1}")] = key
        if all(map(is_letters, parts)):
            found["".join(parts)] = key
    return found


def _lists(name: str, value: object) -> Lists:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise RulesError(f"rules: {name} is {type(value).__name__}, must be a list of lists of texts")
    found = tuple(_texts(name, entry) for entry in value)
    for entry in found:
        if len(entry) < 2:
            raise RulesError(f"rules: {name} has a list of {len(entry)} entries; it takes two to differ")
    return found


def _texts(name: str, value: object) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence) or not all(isinstance(text, str) for text in value):
        raise RulesError(f"rules: {name} holds {value!r}, must be a list of texts")
    return tuple(value)
