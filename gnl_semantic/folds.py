"""Text as the rule ladder reads it: folded characters, tokens, and numbers by value.

A text becomes a list of tokens, each a plain string whose first character says what it is: a run of letters ('tv'), a
number as it was written ('0142', '1.5', '4.12.0'), or something that means only itself: a symbol ('%', '€', a plus
after a letter), an e-mail address with its dots. Everything else only separates. Marks that writers leave out are
dropped (Latin and Greek diacritics, Arabic and Hebrew points); marks that make another letter stay (Japanese voicing,
Indic vowels, the breve of й).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from gnl_core.identity import fold_case

_LETTER = r"a-z\x80-\U0010ffff"
_SIGN_AFTER = r"\s(=:\[<>\"'"
"""What may stand before a minus that is a sign; behind anything else it is a hyphen."""
_TOKEN = re.compile(
    rf"""
      (?<![\w.,/-]) (?P<first>\d{{1,2}}) (?P<sep>[./-]) (?P<second>\d{{1,2}}) (?P=sep) (?P<year>(?:19|20)\d\d)
          (?! \d | [.,/-]\d )                                # a date with its year last
    | (?<![\w.,/-]) (?P<ymd>(?:19|20)\d\d\.\d{{1,2}}\.\d{{1,2}}) (?! \d | [.,/-]\d )
    | (?<![\w.+-]) (?P<address>[\w.+-]{{1,64}}@[\w-]+(?:\.[\w-]+)+)
    | (?<![\w.,/]) (?P<fraction>[.,]\d+)                      # .5, which is not 5
    | \d+(?:[.,]\d+)*
    | [{_LETTER}]+
    | \x02[0-9a-f]+ | \x03\d+                                # what clean() wrote for a symbol, and a list entry
    | (?P<forward>[-=]{{0,3}}>) | (?P<back><[-=]{{0,3}})                 # arrows: the way goods move
    | [%$^]
    | (?<=[0-9{_LETTER}])\++ | \+\++                         # S12+, C++; a plus that stands free only joins
    | (?<=[{_LETTER}])\#(?!\d) | (?<=\b[a-z])\#              # C#; elsewhere it announces a number
    | (?<![^{_SIGN_AFTER}])-(?=[.,]?\d) | (?<=[0-9{_LETTER}])-(?!\S)   # -5, and the negative of a blood group
    | (?<=\d)(?:\'\'|["\'])(?![{_LETTER}])                      # feet and inches
    """,
    re.VERBOSE,
)
_PLAIN = re.compile(rf"\d+(?:[.,]\d+)*|[{_LETTER}]+")
_RICH = frozenset("%$^<>+#@\"'\x02\x03")
_RICH_DIGITS = re.compile(
    rf"-(?!\w) | -(?<![^{_SIGN_AFTER}]-)(?=[.,\d]) | [.,](?<![\w.,/].)(?=\d) | \d[./-](?:19|20)\d\d | \d{{4}}\.\d",
    re.VERBOSE,
)
"""What needs the whole of `_TOKEN`; most texts have none of it, and `_PLAIN` reads them in half the time."""
_GROUPED = re.compile(r"([1-9]\d{0,2}(?:([.,])\d{3})(?:\2\d{3})*)(?:(?!\2)[.,](\d+))?")
_SAME_LETTER = {"ى": "ي", "ی": "ي", "ک": "ك", "ة": "ه", "ٱ": "ا"}
"""Letters that the keyboards and habits of one script exchange: Farsi and Arabic ye and kaf, final forms."""
_SYMBOL_AS = {
    "−": "-", "→": ">", "⇒": ">", "➔": ">", "➜": ">", "⟶": ">", "←": "<", "⇐": "<", "⟵": "<",
    "′": "'", "″": '"', "’": "'", "”": '"', "٪": "%", "٫": ".", "٬": ",", "،": ",", "~": " \x027e ",
}  # fmt: skip
_NO_MEANING = frozenset("°®©|`=¦´¨¬˜¯¸゛゜")
_DIGRAPHS = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "å": "aa", "ø": "oe", "æ": "ae"})


class _Characters(dict[int, str]):
    """What each code point of an NFKC text becomes; filled as code points are met."""

    def __missing__(self, code: int) -> str:
        folded = "".join(map(_character, fold_case(chr(code))))
        self[code] = folded
        return folded


def _character(char: str) -> str:
    if char in _SYMBOL_AS:
        return _SYMBOL_AS[char]
    match unicodedata.category(char):
        case "Nd":
            return str(unicodedata.decimal(char))
        case "Mn" | "Mc" | "Me":
            return "" if _may_be_left_out(char) else char
        case "Cf":
            return ""
        case "Pd":
            return "-"
        case category if category[0] in "LN":
            return _base_letter(char)
        case category if category[0] == "S" and char not in _NO_MEANING:
            return char if char.isascii() else f" \x02{ord(char):x} "
        case _:
            return char if char.isascii() and char.isprintable() else " "


def _base_letter(char: str) -> str:
    """Return a letter without the marks that its writers leave out."""
    if char == "ـ":  # the Arabic tatweel only stretches a word
        return ""
    char = _SAME_LETTER.get(char, char)
    if char < "\u0250":
        # The name also knows ł, ø and đ, to which Unicode gives no decomposition.
        plain, mark, _ = unicodedata.name(char, "").partition(" WITH ")
        return unicodedata.lookup(plain) if mark else char
    if char < "\u0400" or "\u0621" <= char <= "\u06ff" or "\u1e00" <= char <= "\u1fff" or char == "ё":
        # Of Cyrillic only ё, which careful writers write for е; й and ї are letters of their own.
        return unicodedata.normalize("NFD", char)[0]
    return char


def _may_be_left_out(mark: str) -> bool:
    code = ord(mark)
    return (
        0x0300 <= code <= 0x036F  # Latin and Greek, what composition has left over
        or 0x0591 <= code <= 0x05C7  # Hebrew points
        or 0x0610 <= code <= 0x061A  # Arabic signs and vowels
        or 0x064B <= code <= 0x065F
        or code == 0x0670
        or 0xFE00 <= code <= 0xFE0F  # variation selectors
    )


_CHARACTERS = _Characters()


def clean(text: str, *, digraphs: bool = False) -> str:
    """Return any text case-folded, without optional marks, in ASCII digits; symbols beyond ASCII as escapes.

    Args:
        text: Any text, normalised or raw.
        digraphs: Write ä, ö, ü, å, ø, æ as two letters each, instead of leaving the mark out.
    """
    if text.isascii() and text.isprintable() and "~" not in text:
        return text.lower()
    text = fold_case(text).translate(_DIGRAPHS) if digraphs else unicodedata.normalize("NFKC", text)
    if "×" in text and any(map(str.isdigit, text)):
        text = text.replace("×", "x")  # by itself it is no letter
    return text.translate(_CHARACTERS)


def tokens(text: str) -> list[str]:
    """Return the tokens of a text that `clean` returned; numbers as they were written."""
    if _RICH.isdisjoint(text) and not _RICH_DIGITS.search(text):
        return _PLAIN.findall(text)
    found: list[str] = []
    for match in _TOKEN.finditer(text):
        match match.lastgroup:
            case None:
                found.append(match.group())
            case "forward" | "back" as arrow:
                found.append(">" if arrow == "forward" else "<")
            case "ymd":
                found.extend(match.group().split("."))
            case "address":
                found.append(f"\x04{match.group()}")
            case "fraction":
                found.append(f"0{match.group()}")
            case _:
                found.extend(_date(match))
    return found


def is_letters(token: str) -> bool:
    """Tell whether a token is a run of letters; else it is a number or a symbol."""
    return token[0] >= "a"


def is_number(token: str) -> bool:
    """Tell whether a token is a number."""
    return "0" <= token[0] <= "9"


def is_currency(token: str) -> bool:
    """Tell whether a token is the sign of a currency."""
    return token[0] == "$" or (token[0] == "\x02" and unicodedata.category(chr(int(token[1:], 16))) == "Sc")


def touches_digit(letters: str, text: str) -> bool:
    """Tell whether a run of letters stands next to a digit in a text that `clean` returned."""
    return re.search(rf"\d{re.escape(letters)}(?![{_LETTER}])|(?<![{_LETTER}]){re.escape(letters)}\d", text) is not None


def values(found: Iterable[str]) -> list[str]:
    """Return tokens with each number as its value: equal ones say the same."""
    return [token if token[0] >= "a" else number_value(token) if is_number(token) else token for token in found]


def _date(match: re.Match[str]) -> list[str]:
    """Return a date with its year last as year, month, day; as it stands where day and month may be exchanged."""
    first, second, year = match["first"], match["second"], match["year"]
    one, two = int(first), int(second)
    if 1 <= two <= 12 < one <= 31 or (one == two and 1 <= one <= 12):
        return [year, second, first]
    if 1 <= one <= 12 < two <= 31:
        return [year, first, second]
    if match["sep"] == ".":
        return [f"{one}.{two}.{year}"]
    return [first, second, year]


def number_value(number: str) -> str:
    """Return a number token so that two spellings of one value are equal; ambiguous ones are returned as written.

    Works on the text: a reference of thirty digits keeps each of them. 1.250,00 is 1250 and 75.00 is 75, but 1.250 may
    be 1250 or 1.25, and 2.10 may be a version.
    """
    if number.isdigit():
        return number.lstrip("0") or "0"
    grouped = _GROUPED.fullmatch(number)
    if grouped and (grouped[3] is not None or number.count(grouped[2]) > 1):
        whole = grouped[1].replace(grouped[2], "")
        if grouped[3] is None or grouped[3] == "00":
            return whole
        return whole + number[len(grouped[1])] + grouped[3]
    if number[-3] in ".," and number[-2:] == "00" and number[:-3].isdigit():
        return number[:-3].lstrip("0") or "0"
    return number


def contradict(x: str, y: str) -> bool:
    """Tell whether two number tokens, in whatever notation, cannot stand for one number.

    False where they may be one: 10,000 and 10000, 1,5 and 1.5, 26 and 2026 (a year), 4.12 and 4.12.0 (one is less
    precise), 5324187706 and 905324187706 (a prefix), or where a slip of the pen may lie between: 1.5 and 15.
    """
    if not _readings(x).isdisjoint(_readings(y)):
        return False
    groups_x, groups_y = _groups(x), _groups(y)
    short, long = sorted((groups_x, groups_y), key=len)
    if len(short) < len(long) and (long[: len(short)] == short or _digits(x) == _digits(y)):
        return False
    if len(long) > 2 and len(long[-1]) == 4 and sorted(groups_x) == sorted(groups_y):
        return False  # two dates of which one may have the month first
    if len(long) > 1:
        return True
    x, y = sorted((short[0], long[0]), key=len)
    if len(x) <= 2 and len(y) == 4 and y[:2] in ("19", "20"):
        return int(y[2:]) != int(x)
    return not (len(x) >= 5 and len(x) < len(y) and (y.startswith(x) or y.endswith(x)))


def _groups(number: str) -> list[str]:
    return [group.lstrip("0") or "0" for group in re.split("[.,]", number)]


def _digits(number: str) -> str:
    return re.sub("[.,]", "", number).lstrip("0")


def _readings(number: str) -> set[str]:
    """Return what a number may mean: its value, its groups by value, thousands, a decimal fraction."""
    groups = re.split("[.,]", number)
    found = {number_value(number), ".".join(_groups(number))}
    if len(groups) > 1 and all(len(group) == 3 for group in groups[1:]):
        found.add("".join(groups).lstrip("0") or "0")
    if len(groups) == 2:
        found.add(f"{groups[0].lstrip('0') or '0'}.{groups[1].rstrip('0')}".rstrip("."))
    return found


def fold_key(found: Sequence[str]) -> str:
    """Return tokens as one text: letters joined across gaps, digits never; '' without a letter or digit."""
    parts: list[str] = []
    joins = usable = False
    for token in found:
        letters = token[0] >= "a"
        if not (letters and joins):
            parts.append(" ")
        parts.append(token)
        joins = letters
        usable = usable or letters or token[0] in "0123456789"
    return "".join(parts) if usable else ""


class Reading(NamedTuple):
    """One text as the rules read it.

    Attributes:
        source: The text itself.
        text: What `clean` returned.
        tokens: Numbers as they were written.
        values: The same tokens, numbers by value.
        letters: All letters in one run.
        key: The values as one text; '' without a letter or digit.
    """

    source: str
    text: str
    tokens: tuple[str, ...]
    values: tuple[str, ...]
    letters: str
    key: str


def read(text: str, *, digraphs: bool = False) -> Reading:
    """Return how any text reads. Short ones are remembered: one new call is compared with many records."""
    return (_remembered if len(text) <= _REMEMBERED_LENGTH else _read)(text, digraphs)


def read_clean(text: str) -> Reading:
    """Return how a text reads that `clean` returned."""
    return _reading(text, text)


def _read(text: str, digraphs: bool) -> Reading:
    return _reading(text, clean(text, digraphs=digraphs))


def _reading(source: str, text: str) -> Reading:
    found = tuple(tokens(text))
    by_value = tuple(values(found))
    letters = "".join([token for token in found if token[0] >= "a"])
    return Reading(source, text, found, by_value, letters, fold_key(by_value))


_remembered = lru_cache(maxsize=8_192)(_read)
_REMEMBERED_LENGTH = 256
