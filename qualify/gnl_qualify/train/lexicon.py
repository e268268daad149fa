"""Write `lexicon.json` anew: names of months, weekdays, units, currencies and numbers in nine languages.

Needed only when a language is added: `pip install babel==2.19.0 num2words==0.5.14`, then
`python -m gnl_qualify.train.lexicon`, `make train`, and a new sitting, since every answer may change. Months, weekdays,
units and currencies are data of the Unicode CLDR, read through babel; number words are spelt by num2words.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

from gnl_semantic.folds import clean, is_letters, tokens

LANGUAGES = ("en", "tr", "de", "fr", "es", "ar", "ru", "zh", "ja")
_UNITS = frozenset({
    "gram", "kilogram", "milligram", "tonne", "pound", "ounce", "liter", "milliliter", "centiliter", "meter",
    "centimeter", "millimeter", "kilometer", "inch", "foot", "mile", "square-meter", "square-centimeter",
    "cubic-meter", "cubic-centimeter", "byte", "kilobyte", "megabyte", "gigabyte", "terabyte", "second", "minute",
    "hour", "day", "week", "month", "quarter", "year", "watt", "kilowatt", "volt", "ampere", "milliampere",
    "kilowatt-hour", "celsius", "fluid-ounce", "gallon", "horsepower", "night", "pixel",
})  # fmt: skip
_UNIT_KINDS = ("mass", "length", "volume", "digital", "duration", "temperature", "power", "energy", "electric", "area")
_CURRENCIES = ("EUR", "USD", "GBP", "TRY", "JPY", "CNY", "RUB", "CHF", "SAR", "AED", "MXN")
_Entry = tuple[str, str, int | str]


def entries(language: str) -> Iterator[_Entry]:
    """Yield kind, name and value of everything that one language names."""
    from babel import Locale  # noqa: PLC0415
    from babel.dates import get_day_names, get_month_names  # noqa: PLC0415

    for context in ("format", "stand-alone"):
        for width in ("wide", "abbreviated"):
            for month, name in get_month_names(width, context, language).items():
                if not re.search(r"\d", name):
                    yield "month", name, month
            for day, name in get_day_names(width, context, language).items():
                yield "weekday", name, day
    locale = Locale(language)
    yield from _units(locale._data["unit_patterns"])
    for currency in _CURRENCIES:
        for name in locale._data["currency_names_plural"].get(currency, {}).values():
            yield "currency", name, currency
        for name in (locale.currencies.get(currency), locale.currency_symbols.get(currency), currency):
            yield "currency", name or currency, currency
    if language != "zh":  # the judge computes Chinese numbers from their characters
        yield from _numbers(language)


def _units(patterns: dict[str, dict[str, dict[str, str]]]) -> Iterator[_Entry]:
    for unit, widths in patterns.items():
        kind, _, name = unit.partition("-")
        if kind not in _UNIT_KINDS or name not in _UNITS:
            continue
        for width in ("long", "short", "narrow"):
            for pattern in widths.get(width, {}).values():
                if isinstance(pattern, str):
                    yield "unit", pattern.replace("{0}", ""), name


def _numbers(language: str) -> Iterator[_Entry]:
    from num2words import num2words  # noqa: PLC0415

    def spelt(number: int, form: str = "cardinal") -> list[str]:
        try:
            return str(num2words(number, lang=language, to=form)).split()
        except Exception:  # it raises what it likes where a language lacks a form
            return []

    for number in (*range(101), *range(200, 1000, 100), 1000, 1_000_000):
        words = spelt(number)
        yield "number", " ".join(words), number
        if number in (100, 1000, 1_000_000) and words:
            yield "number", words[-1], number
    for scale, many in ((100, range(2, 10)), (1000, (2, 5))):
        for words in (spelt(times * scale) for times in many):
            if len(words) == 2:
                yield "number", words[1], scale
    for number in range(1, 13):
        yield "number", " ".join(spelt(number, "ordinal")), number


def main() -> None:
    """Write the file."""
    found: dict[str, dict[str, set[int | str]]] = {
        kind: defaultdict(set) for kind in ("month", "weekday", "number", "unit", "currency")
    }
    for language in LANGUAGES:
        for kind, name, value in entries(language):
            words = tokens(clean(name).strip(" ."))
            if len(words) == 1 and is_letters(words[0]):
                found[kind][words[0]].add(value)
    data = {kind: {word: sorted(of) for word, of in sorted(words.items())} for kind, words in found.items()}
    Path(str(files("gnl_semantic.judge.local") / "lexicon.json")).write_text(
        json.dumps(data, ensure_ascii=False), encoding="utf-8"
    )


if __name__ == "__main__":
    main()
