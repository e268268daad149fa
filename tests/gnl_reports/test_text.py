import hashlib
import re
import unicodedata
from html import unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnl_reports.text import plain, redacted, shown, shown_value

anything = st.text(st.characters())  # control characters, private use and unassigned code points included
surrogates = st.text(st.characters(categories=["Cs", "L"]))


@pytest.mark.parametrize(
    "char", ["\u202e", "\u2066", "\u200b", "\u00a0", "\u00ad", "\x00", "\ufe0f", "\u3164", "\ud83d", "\U000e0041"]
)
def test_a_character_nobody_sees_is_named(char: str) -> None:
    html = shown(f"a{char}b")
    assert f"U+{ord(char):04X}</span>b" in html
    assert char not in html


@given(anything | surrogates)
def test_nothing_hidden_and_no_markup_survives(text: str) -> None:
    html = shown(text)
    outside = re.sub(r'<span class="chip" dir="ltr"[^<>]*>[^<>]*</span>', "", html)
    assert "<" not in outside
    assert ">" not in outside
    assert not [c for c in outside if unicodedata.category(c) in {"Cf", "Co", "Cs", "Cn"}]
    html.encode("utf-8")


@given(st.text(st.characters(categories=["L", "N", "P", "S"], exclude_characters="\u115f\u1160\u3164\uffa0\u2800")))
def test_what_is_seen_comes_through_unchanged(text: str) -> None:
    assert unescape(shown(text)) == text


def test_a_run_becomes_one_chip_with_its_length() -> None:
    assert shown("\u200b" * 5000).count("chip") == 1
    assert "U+200B ×5000" in shown("\u200b" * 5000)


def test_a_pile_of_marks_is_counted_not_drawn() -> None:
    html = shown("a" + "\u0336" * 200 + "b")
    assert html.count("\u0336") == 6
    assert "+194 marks" in html
    assert shown("e\u0301") == "e\u0301"


def test_lines_stay_lines_where_they_are_meant() -> None:
    assert shown("a\n\tb", lines=True) == "a\n\tb"
    assert "U+000A</span>\nb" in shown("a\nb")


def test_spaces_at_the_edges_of_a_value_are_content() -> None:
    html = shown_value("  AB 1 ")
    assert html.startswith("<span")
    assert "U+0020 ×2</span>AB 1<span" in html
    assert "U+0020 ×3" in shown_value("   ")
    assert shown_value("AB 1") == "AB 1"
    assert shown_value("") == ""


@given(anything | surrogates)
def test_a_title_has_nothing_hidden_either(text: str) -> None:
    assert not [c for c in plain(text) if unicodedata.category(c) in {"Cc", "Cf", "Co", "Cs", "Cn"}]
    assert plain("a\u202eb") == "a[U+202E]b"


def test_redaction_tells_length_and_hash_only() -> None:
    digest = hashlib.sha256(b"order 4711").hexdigest()
    assert redacted("order 4711") == f"[10 characters, sha256 {digest[:12]}]"
    assert "\ud83d" not in redacted("\ud83d")
