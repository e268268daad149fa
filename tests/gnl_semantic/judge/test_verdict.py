import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnl_semantic.judge import Verdict, parse_verdict


@pytest.mark.parametrize("word", list(Verdict))
@pytest.mark.parametrize("form", ["{}", " {}\n", "\t{} \r\n"])
def test_the_three_words_in_any_case(word, form):
    for spelling in (word.name, word.name.lower(), word.name.title()):
        assert parse_verdict(form.format(spelling)) is word


@pytest.mark.parametrize(
    "answer",
    [
        "", " ", "SAME.", "SAME SAME", "SAME\nSAME", "SAME\nbecause", "Answer: SAME", '"SAME"', "**SAME**", "`SAME`",
        '{"verdict": "SAME"}', "SAME!", "NOT SAME", "YES", "GLEICH", "S A M E", "<think>hm</think>SAME", "SÅME", "SAМE",
        "UNSURE/DIFFERENT", "DIFFERENT UNSURE", "SAME\x00", "ſame\u200b",
    ],
)  # fmt: skip
def test_anything_else_is_no_verdict(answer):
    assert parse_verdict(answer) is None


@given(st.text())
def test_a_verdict_is_only_ever_its_own_word(answer):
    verdict = parse_verdict(answer)
    assert verdict is None or answer.strip().upper() == verdict.name
