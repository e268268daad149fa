"""Folding and tokens: what is one text written twice, and what only looks like it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnl_core.identity import normalize_identity_value
from gnl_semantic.folds import clean, contradict, number_value, read, tokens, values


def key(text: str) -> str:
    return read(text).key


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("TV42-Pro", ["tv", "42", "pro"]),
        ("INV-2026-0142", ["inv", "2026", "0142"]),
        ("9kg / 1,5 lt", ["9", "kg", "1,5", "lt"]),
        ("firmware 4.12.0", ["firmware", "4.12.0"]),
        ("4+128GB C++ C#", ["4", "+", "128", "gb", "c", "++", "c", "#"]),
        ("Fatura#2026 No #7 A + B", ["fatura", "2026", "no", "7", "a", "b"]),
        ("-20 kg, 10-12, B-4", ["-", "20", "kg", "10", "12", "b", "4"]),
        ("A -> B → C <- D", ["a", ">", "b", ">", "c", "<", "d"]),
        ("40' HC, 14\" TV, 40'lık", ["40", "'", "hc", "14", '"', "tv", "40", "lik"]),
        ("%95 5% 10$", ["%", "95", "5", "%", "10", "$"]),
        ("13.04.2026 04/13/2026 2026-04-13", ["2026", "04", "13"] * 3),
        ("05.04.2026", ["5.4.2026"]),
        ("05/04/2026", ["05", "04", "2026"]),
        ("99.99.2026", ["99.99.2026"]),
        ("a.b_c@x.example .5 no.5 1,5", ["\x04a.b_c@x.example", "0.5", "no", "5", "1,5"]),
        ("", []),
        ("--- !!", []),
    ],
)
def test_tokens(text: str, expected: list[str]) -> None:
    assert tokens(clean(text)) == expected


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("Danışmanlık A.Ş.", "danismanlik as"),
        ("Łódź, Ørsted, Đorđe", "lodz orsted dorde"),
        ("Straße", "STRASSE"),
        ("Ελλάδα Άγιος", "ελλαδα αγιοσ"),
        ("счёт", "счет"),
        ("مُحَمَّد الـدمّام", "محمد الدمام"),
        ("أحمد", "احمد"),
        ("שָׁלוֹם", "שלום"),
        ("ＴＶ－４２", "tv 42"),
        ("٤٢ koli", "42 koli"),
        ("४२ पेटी", "42 पेटी"),
        ("ﬁrma", "firma"),
        ("ﾊﾝﾃﾞｨ", "ハンディ"),
        ("İNV", "ınv"),
        ("Nu\u0308tze", "nutze"),
        ("soft\u00adware", "software"),
        ("women\u2019s", "womens"),
        ("50×90", "50x90"),
    ],
)
def test_one_text_in_two_spellings(a: str, b: str) -> None:
    assert key(a) == key(b)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("か", "が"),
        ("は", "ぱ"),
        ("कि", "की"),
        ("май", "маи"),
        ("їх", "іх"),
        ("c", "c++"),
        ("c", "c#"),
        ("s12", "s12+"),
        ("-5", "5"),
        ("A+ blood", "A- blood"),
        ("5 %", "5"),
        ("5 $", "5 €"),
        ("~5", "5"),
        ("½", "1/2"),
        ("A → B", "A ← B"),
        ("20'", '20"'),
        ("pizza 🍕", "pizza 🍔"),
        ("1.5", "1 5"),
        ("1-12", "11-2"),
        ("2.10", "2.1"),
    ],
)
def test_texts_that_stay_apart(a: str, b: str) -> None:
    assert key(a) != key(b)


@pytest.mark.parametrize(
    ("number", "value"),
    [
        ("0142", "142"),
        ("000", "0"),
        ("9" * 40, "9" * 40),
        ("1.250,00", "1250"),
        ("1,250.00", "1250"),
        ("12.480,50", "12480,50"),
        ("4.471.902", "4471902"),
        ("75.00", "75"),
        ("1.250", "1.250"),
        ("10,000", "10,000"),
        ("4.12.0", "4.12.0"),
        ("1.05", "1.05"),
        ("0.125.000", "0.125.000"),
    ],
)
def test_number_value(number: str, value: str) -> None:
    assert number_value(number) == value


@pytest.mark.parametrize(
    ("x", "y", "expected"),
    [
        ("42", "43", True),
        ("600", "6000", True),
        ("4417", "4471", True),
        ("12,50", "125,00", True),
        ("4.12.1", "4.1.21", True),
        ("11.0", "1.10", True),
        ("25", "2026", True),
        ("26", "2026", False),  # a year
        ("10,000", "10000", False),  # grouped or decimal
        ("1.5", "1,5", False),
        ("1.5", "15", False),  # a lost point
        ("1.05", "1.5", False),  # padded or decimal
        ("4.12", "4.12.0", False),  # less precise
        ("5", "5.6", False),
        ("5324187706", "905324187706", False),  # a prefix
        ("3.4.2026", "4.3.2026", False),  # month first
    ],
)
def test_contradict(x: str, y: str, expected: bool) -> None:
    assert contradict(x, y) is expected
    assert contradict(y, x) is expected


def test_a_key_never_joins_digits() -> None:
    assert key("air fryer 4 2") == " airfryer 4 2"
    assert key("a-1-23") != key("a-12-3")


@given(st.text())
def test_any_text_has_tokens_of_three_kinds(text: str) -> None:
    for token in tokens(clean(text)):
        assert token
        assert token[0] in "0123456789%$^+#-<>'\"\x02\x04" or token[0] >= "a"


@given(st.one_of(st.text(), st.text("a7-., (/2026'x ")))
def test_plain_texts_read_as_rich_ones_do(text: str) -> None:
    assert tokens(clean(text) + " %") == [*tokens(clean(text)), "%"]


@given(st.text())
def test_normalising_first_changes_no_key(text: str) -> None:
    assert key(normalize_identity_value(text)) == key(text)


@given(st.from_regex(r"[0-9]{1,20}([.,][0-9]{1,4}){0,3}", fullmatch=True))
def test_a_number_never_contradicts_itself(number: str) -> None:
    assert not contradict(number, number)
    assert values([number]) == [number_value(number)]


@given(st.integers(0, 10**30), st.integers(0, 5))
def test_padding_changes_no_value(number: int, zeros: int) -> None:
    assert number_value("0" * zeros + str(number)) == str(number)
