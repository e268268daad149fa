import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnl_semantic.judge.local.scripts import main_scripts, scripts_of_languages


@pytest.mark.parametrize(
    ("text", "scripts"),
    [
        ("", set()),
        ("42-43 €", set()),
        ("şişe 42", {"Latn"}),
        ("возврат заказа 12", {"Cyrl"}),
        ("pos терминал 4", {"Cyrl"}),
        ("pda手持终端固件升级", {"Hani"}),
        ("第2倉庫のセンサー", {"Hani"}),
        ("コモレビ", {"Hani"}),
        ("الشحنة kx", {"Arab"}),
        ("abcd ab эф", {"Latn", "Cyrl"}),
        ("παραγγελία", {"Grek"}),
        ("ꯃꯤꯇꯩ", {"Zyyy"}),
    ],
)
def test_a_text_is_written_in_the_script_of_most_letters_and_codes_in_it_do_not_count(text, scripts):
    assert main_scripts(text) == scripts


def test_languages_name_their_scripts():
    assert scripts_of_languages(["tr", "pt-BR"]) == {"Latn"}
    assert scripts_of_languages(["ja", "RU", "sr"]) == {"Hani", "Kana", "Cyrl", "Latn"}
    assert scripts_of_languages([]) == set()


@given(st.text())
def test_every_text_has_scripts_or_no_letter(text):
    assert bool(main_scripts(text)) == any(map(str.isalpha, text))
