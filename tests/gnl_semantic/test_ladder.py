"""The ladder's outcomes: worked examples, the counter-examples of each rule, and what holds for any text."""

import sys
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnl_core.identity import normalize_identity_value
from gnl_fixtures import SAME_JOB, load_shipped
from gnl_semantic.alignment import differences
from gnl_semantic.folds import read
from gnl_semantic.ladder import DEFAULT_RULES, Rules, Trace, evaluate, evaluate_field, ladder_fold
from gnl_semantic.normalizers import NORMALIZERS
from gnl_semantic.rules import NORMALIZER_IDS, RULE_IDS, SEPARATOR_IDS
from gnl_semantic.separators import PAIR_SEPARATORS, PLACE_SEPARATORS

NAMES = Rules(gazetteers=(("ahmet", "mehmet", "şevval"), ("new york", "newark", "boston"), ("depo 1", "depo 2")))


def say(a: str, b: str, rules: Rules = DEFAULT_RULES) -> str:
    """Return 'outcome' or 'outcome by rule', after checking both orders and the trace."""
    result = evaluate_field(a, b, rules, field="sku")
    assert evaluate_field(b, a, rules, field="sku") == result
    if not result.traces:
        return result.outcome
    (trace,) = result.traces
    assert trace == Trace(trace.rule, trace.rule_class, "sku", result.outcome)
    assert trace.rule_class == ("normalizer" if result.outcome == "match" else "separator")
    return f"{result.outcome} by {trace.rule}"


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("abc", "abc", "match"),
        ("inv-2026-0142", "inv 2026 142", "match by digit-value"),
        ("tv-42", "tv-43", "separate by shortcode-edit1"),
        ("inv202600142", "inv-2026-00142", "match by digit-concat"),
        ("inv-26-0142", "inv-2026-0142", "gray"),
        ("danışmanlık a.ş.", "danismanlik as", "match by punct-space"),
        ("philips airfryer", "philips air fryer", "match by punct-space"),
        ("arc-bzd-nf", "arc-bzdnf", "match by punct-space"),
        ("lot 1 box 23", "lot 12 box 3", "separate by number-value"),
        ("fiyat 1.5 kg", "fiyat 15 kg", "gray"),
        ("1,5 lt", "15 lt", "gray"),
        ("model 1.05", "model 1.5", "gray"),
        ("doz 0.5 mg", "doz 0.05 mg", "gray"),
        ("fatura 0142", "fatura 142", "match by digit-value"),
        ("phi-af-xxl / trabzon depo", "phi-af-xl / trabzon depo", "separate by size-ladder"),
        ("abc-42", "abd-42", "separate by shortcode-edit1"),
        ("selin yıldız - mu danışmanlık", "selin yıldız - nu danışmanlık", "separate by shortcode-edit1"),
        ("ahmet yılmaz", "mehmet yılmaz", "gray"),
        ("jane bergman - acme", "jane berg - acme", "gray"),
        ("cleaner pro", "cleaner proheat", "gray"),
        ("samsung 42 inc tv", "smsng tv42", "gray"),
        ("dys-v15 / gaziantep depo", "dys-v15 / gaziantep ambar", "gray"),
        ("ab-rec-2031-0042", "abrec20310042", "match by digit-concat"),
        ("2026-1-12", "2026-11-2", "separate by number-value"),
        ("a-1-23", "a-12-3", "separate by number-value"),
        ("a-1-23", "a-123", "gray"),
    ],
)
def test_worked_examples(a: str, b: str, expected: str) -> None:
    assert say(a, b) == expected


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("ahmet yılmaz", "mehmet yılmaz", "separate by gazetteer"),
        ("ahmet yılmaz", "sevval yilmaz", "separate by gazetteer"),
        ("ahmet yılmaz", "hakan yılmaz", "gray"),
        ("invoice ahmet", "fatura mehmet", "separate by gazetteer"),
        ("new york office", "boston office", "separate by gazetteer"),
        ("new-york office", "newark office", "separate by gazetteer"),
        ("new york office", "newyork office", "match by punct-space"),
        ("new york office", "newyork ofis", "gray"),
        ("jane berg", "ahmet berg", "gray"),
        ("mal depo 01 de", "mal depo 2 de", "separate by shortcode-edit1"),
        ("dys-v15 / gaziantep depo", "dys-v15 / gaziantep ambar", "gray"),
    ],
)
def test_lists_of_the_caller(a: str, b: str, expected: str) -> None:
    assert say(a, b, NAMES) == expected


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        # Values without letters or digits, and what dropping punctuation must not do.
        ("---", "///", "gray"),
        ("🍕", "🍔", "gray"),
        ("c++ developer", "c developer", "gray"),
        ("c# developer", "c developer", "gray"),
        ("-5 °c", "5 °c", "gray"),
        ("5 %", "5", "gray"),
        ("nova s12+", "nova s12", "gray"),
        ("j.smith@acme.example", "js.mith@acme.example", "gray"),
        ("ada, j.smith@acme.example.", "ADA (J.Smith@ACME.example)", "match by punct-space"),
        # Decimals.
        ("1.5", "1 5", "gray"),
        ("1.5", "1-5", "gray"),
        ("1.5", "1/5", "gray"),
        ("v1.2", "v1,2", "gray"),
        (".5 mg", "5 mg", "gray"),
        (".5 mg", "0.5 mg", "match by punct-space"),
        ("no.5 mg", "no 5 mg", "match by punct-space"),
        ("1.250 kg", "1250 kg", "gray"),
        ("1.250,00 tl", "1250 tl", "match by digit-value"),
        ("€1.200,00", "€ 1,200.00", "match by digit-value"),
        ("order 125,00", "order 12,50", "separate by number-value"),
        ("fw 4.12.0", "fw 4.12.1", "separate by number-value"),
        ("hdmi 2.1", "hdmi 2", "gray"),
        # Dates.
        ("13.04.2026", "2026-04-13", "match by punct-space"),
        ("03.04.2026", "2026-04-03", "gray"),
        ("03.04.2026", "3.4.2026", "match by punct-space"),
        ("03.04.2026", "04.03.2026", "gray"),
        ("build 20250611", "build 2025-06-11", "match by digit-concat"),
        # Digits are joined in one way only, or not at all.
        ("colis 1/2", "colis 12", "gray"),
        ("mix 1:10", "mix 110", "gray"),
        ("f/2026/312", "f2026312", "match by digit-concat"),
        ("box 1-24 of 5", "box 124 of 5", "gray"),
        ("tel 0532 418 77 06", "tel 053 241 877 06", "gray"),
        ("49.99 order 70-118-532", "49.99 order 70118532", "gray"),
        ("sku 88-140-2, 1 adet", "sku 881402 / 1 adet", "gray"),
        ("1.5-20", "1520", "gray"),
        ("sizes 5-10", "sizes 510", "gray"),
        ("open 24 7", "open 247", "gray"),
        ("6 12 oz cans", "612 oz cans", "gray"),
        ("x=-5", "x=5", "gray"),
        ("[-5]", "[5]", "gray"),
        # Sizes.
        ("gloves 2xl", "gloves 3xl", "separate by shortcode-edit1"),
        ("gloves 2xl", "gloves xl", "separate by size-ladder"),
        ("gloves 2xl", "gloves xxl", "gray"),
        ("2 xl gloves", "xl gloves", "gray"),
        ("gloves m", "gloves l", "separate by size-ladder"),
        # Short codes: a word is none, nor is a letter of another alphabet that looks alike.
        ("merkez depo", "merkez depa", "gray"),
        ("bay a-12", "bay а-12", "gray"),
        ("invx12", "invy12", "separate by shortcode-edit1"),
        ("invx 12", "invy 12", "gray"),
        ("uk branch", "ie branch", "gray"),
        ("mr smith", "mrs smith", "gray"),
        ("سعد خالد", "سعل خالد", "gray"),
        ("8:30 ص", "8:30 م", "separate by shortcode-edit1"),
        ("左膝", "右膝", "gray"),
        ("花瓶 2件", "花平 2件", "gray"),
        # Aligned: the same short token elsewhere is a moved word, not another code.
        ("from bay a to bay b", "from bay b to bay a", "gray"),
        ("inv-0142-2026", "inv-2026-0142", "gray"),
        ("omsk - tomsk", "tomsk - omsk", "gray"),
        ("no 5 of ab, 7 of ac", "ac: 7, ab: 5", "gray"),
        # Units and hours may be converted; a new word may say so.
        ("1500 m cable", "1.5 km cable", "gray"),
        ("500 ml", "50 cl", "gray"),
        ("500 ml", "500 cl", "separate by shortcode-edit1"),
        ("flu jab 2:30 pm", "flu jab 14:30", "gray"),
        ("panel 120 x 80", "panel 1200 x 800 mm", "gray"),
        ("bench 148 cm", "garden bench 170 cm", "separate by number-value"),
        ("set of 12, box 4", "set of 12", "gray"),
        ("10 boxes", "12 boxes 3 crates", "gray"),
        # Words that differ leave a number undecided, but not a neighbour in one series.
        ("ramen 88", "klima 12", "gray"),
        ("order 70415 refund", "заказ 70451 возврат", "separate by reference-slip"),
        ("order 70415 refund", "заказ 90238 возврат", "gray"),
        ("fridge nrk6192axl4", "lednice nrk6202axl4 + 15 let", "separate by reference-slip"),
        ("order 70415 of 70416", "заказ 70417 из 70418", "gray"),
        ("order 70 415, was 70451", "заказ 70415", "gray"),
        # Symbols, arrows, numerals.
        ("refund 49 €", "refund 49 $", "separate by symbol"),
        ("hull → york", "hull ← york", "separate by symbol"),
        ("hull -> york", "hull → york", "match by punct-space"),
        ("pizza 🍕", "pizza 🍔", "gray"),
        ("phase ii", "phase iii", "separate by roman-numeral"),
        ("phase ii", "phase two", "gray"),
        ("phase xl", "phase iii", "gray"),
        # Order of words.
        ("doe, jane", "jane doe", "gray"),
        ("note 12 (acme)", "acme note 12", "gray"),
        ("ankara, izmir", "izmir ankara", "gray"),
        ("hull, york", "york, hull", "gray"),
        ("2, 5", "5 2", "gray"),
        # Letters of passports.
        ("müller", "mueller", "match by umlaut-digraph"),
        ("müller", "muller", "match by punct-space"),
        ("muller", "mueller", "gray"),
    ],
)
def test_counter_examples(a: str, b: str, expected: str) -> None:
    assert say(normalize_identity_value(a), normalize_identity_value(b)) == expected


@pytest.mark.parametrize(
    ("a", "b", "outcome"),
    [
        ({"sku": "tv-42", "depo": "izmir"}, {"sku": "tv 42", "depo": "İzmir"}, "match"),
        ({"sku": "tv-42", "depo": "izmir"}, {"sku": "tv-43", "depo": "izmir"}, "separate"),
        ({"sku": "tv-42", "depo": "izmir"}, {"sku": "tv 42", "depo": "ambar 3"}, "gray"),
        ({"sku": "tv-42", "depo": "izmir"}, {"sku": "tv-43", "depo": "ambar"}, "separate"),
        ({"sku": "tv-42", "depo": ""}, {"sku": "tv 42", "depo": ""}, "match"),
        ({"sku": "tv-42", "depo": ""}, {"sku": "tv 42"}, "match"),
        ({"sku": "tv-42", "depo": "izmir"}, {"sku": "tv 42", "depo": ""}, "gray"),
        ({"sku": "", "depo": ""}, {"sku": "", "depo": ""}, "gray"),
        ({}, {}, "gray"),
        ({"sku": "---"}, {"sku": "///"}, "gray"),
    ],
)
def test_fields_are_combined(a: dict[str, str], b: dict[str, str], outcome: str) -> None:
    assert evaluate(a, b).outcome == outcome
    assert evaluate(b, a).outcome == outcome


def test_every_field_is_traced_also_after_a_conflict() -> None:
    result = evaluate({"sku": "tv-42", "size": "xl", "ref": "a-07"}, {"sku": "tv-43", "size": "xxl", "ref": "A 7"})
    assert [(trace.field, trace.rule, trace.direction) for trace in result.traces] == [
        ("sku", "shortcode-edit1", "separate"),
        ("size", "size-ladder", "separate"),
        ("ref", "digit-value", "match"),
    ]


def test_the_tables_hold_the_documented_rules() -> None:
    assert tuple(NORMALIZERS) == NORMALIZER_IDS
    assert {*PLACE_SEPARATORS, *PAIR_SEPARATORS} == set(SEPARATOR_IDS)


@pytest.mark.parametrize(
    ("rule", "a", "b"),
    [
        ("punct-space", "air fryer", "airfryer"),
        ("digit-value", "a 07", "a 7"),
        ("digit-concat", "a 12 3456", "a 123456"),
        ("umlaut-digraph", "müller", "mueller"),
        ("size-ladder", "tee xl", "tee xxl"),
        ("gazetteer", "ahmet berg", "mehmet berg"),
        ("shortcode-edit1", "tv-42", "tv-43"),
        ("number-value", "tv-42", "tv-425"),
        ("roman-numeral", "phase i", "phase ii"),
        ("symbol", "49 €", "49 $"),
        ("reference-slip", "order 70415", "заказ 70451"),
    ],
)
def test_disable_turns_a_rule_off(rule: str, a: str, b: str) -> None:
    (trace,) = evaluate_field(a, b, NAMES).traces
    assert trace.rule == rule
    without = Rules(gazetteers=NAMES.gazetteers, disable=(rule,))
    assert rule not in [trace.rule for trace in evaluate_field(a, b, without).traces]


def test_with_all_rules_off_only_identical_values_match() -> None:
    nothing = Rules(disable=RULE_IDS)
    assert evaluate_field("tv-42", "tv 42", nothing).outcome == "gray"
    assert evaluate_field("tv-42", "tv-43", nothing).outcome == "gray"
    assert evaluate_field("tv-42", "tv-42", nothing).outcome == "match"


@pytest.mark.parametrize(("longest", "outcome"), [(0, "gray"), (1, "gray"), (2, "separate")])
def test_short_code_max_len(longest: int, outcome: str) -> None:
    assert evaluate_field("tv-42", "tv-43", Rules(short_code_max_len=longest)).outcome == outcome


# The shipped calibration set


def test_calibration_set() -> None:
    found: Counter[tuple[str, str]] = Counter()
    totals: Counter[str] = Counter()
    wrong: list[str] = []
    for pair in load_shipped("calibration").pairs:
        result = evaluate_field(normalize_identity_value(pair.a), normalize_identity_value(pair.b))
        found[pair.label, result.outcome] += 1
        totals[pair.label] += 1
        same = pair.label in SAME_JOB
        if (same and result.outcome == "separate") or (not same and result.outcome == "match"):
            wrong.append(pair.id)
    assert wrong == []
    assert found["dup-exact", "match"] == totals["dup-exact"]
    assert found["dup-paraphrase", "match"] >= 0.15 * totals["dup-paraphrase"]
    assert found["near-miss", "separate"] >= 0.29 * totals["near-miss"]


# What holds for any text

_PIECES = st.one_of(
    st.sampled_from(
        ["tv", "xl", "xxl", "2xl", "ab", "ac", "depo", "ğ", "İ", "ü", "ue", "が", "か", "कि", "c++", "nrk6192"]
    ),
    st.sampled_from(["42", "43", "1.5", "15", "٤", "2026", "26", "0", "70415", "70451", "13.04.2026"]),
    st.sampled_from(list("-/ ,()→€$~\x03")),
)
TEXTS = st.one_of(st.text(max_size=40), st.lists(_PIECES, max_size=12).map("".join))
FIELDS = st.dictionaries(st.sampled_from(["sku", "depot", "ref"]), TEXTS, max_size=3)


@given(TEXTS, TEXTS)
def test_symmetric(a: str, b: str) -> None:
    assert evaluate_field(a, b) == evaluate_field(b, a)
    assert evaluate_field(a, b, NAMES) == evaluate_field(b, a, NAMES)


@given(TEXTS, st.sampled_from([str.upper, str.lower, str.title, normalize_identity_value, lambda text: f" {text}. "]))
def test_reflexive_over_case_and_space(text: str, change) -> None:
    assert evaluate_field(text, text).outcome == "match"
    if any(char.isalnum() for char in text):
        assert (
            evaluate_field(normalize_identity_value(text), normalize_identity_value(change(text))).outcome != "separate"
        )


@given(TEXTS, TEXTS)
def test_equal_folds_are_a_match(a: str, b: str) -> None:
    if ladder_fold(a) == ladder_fold(b):
        assert evaluate_field(a, b).outcome == "match"


@given(TEXTS, st.sampled_from([" ", "-", "/", "."]))
def test_folds_meet_over_separators(text: str, separator: str) -> None:
    """Spellings that do meet, so that the property above is not empty."""
    for a, b in ((f"tv{separator}pro {text}", f"TV pro {text}"), (f"no 07 {text}", f"no 7 {text}")):
        assert ladder_fold(a) == ladder_fold(b)
        assert evaluate_field(a, b).outcome == "match"


@given(st.text(st.characters(blacklist_categories=["L", "N", "M"])), TEXTS)
def test_nothing_to_read_matches_nothing_else(empty: str, other: str) -> None:
    expected = "match" if empty == other else "gray"
    assert evaluate_field(empty, other).outcome == expected
    assert (ladder_fold(empty) == ladder_fold(other)) == (empty == other)


@given(FIELDS, FIELDS, TEXTS, TEXTS)
def test_separate_is_monotone_over_fields(a: dict[str, str], b: dict[str, str], x: str, y: str) -> None:
    if evaluate(a, b).outcome == "separate":
        assert evaluate(a | {"more": x}, b | {"more": y}).outcome == "separate"
    if evaluate_field(x, y).outcome == "separate":
        assert evaluate(a | {"more": x}, b | {"more": y}).outcome == "separate"


@given(FIELDS, FIELDS, st.sets(st.sampled_from(RULE_IDS)))
def test_normalizers_match_and_separators_separate(a: dict[str, str], b: dict[str, str], off: set[str]) -> None:
    for trace in evaluate(a, b, Rules(disable=tuple(off))).traces:
        assert trace.rule not in off
        assert (trace.rule in NORMALIZER_IDS) == (trace.direction == "match") == (trace.rule_class == "normalizer")


@pytest.mark.parametrize(
    "piece", ["a", "7", "-", "a 1 ", "+", "#", "1.", "(", "ab,", "=", "ж1", "が", "\u0301", "🍕", "<", "xl ", "x1"]
)
def test_work_is_bounded_for_long_texts(piece: str) -> None:
    a = (piece * 10_000)[:10_000]
    b = "9" + a[:5_000] + "q" + a[5_000:]
    calls = 0

    def count(_frame, event: str, _argument) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        evaluate_field(a, b)
    finally:
        sys.setprofile(None)
    assert calls < 60 * len(a)


def test_texts_too_long_to_align_stay_gray() -> None:
    a = " ".join(f"word{n} {n}" for n in range(200))
    b = " ".join(f"wort{n} {n + 1}" for n in range(200))
    assert differences(read(a), read(b)) is None
    assert evaluate_field(a, b).outcome == "gray"
