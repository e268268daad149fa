import json
import re
from dataclasses import replace

import pytest

from gnl_reports import comparison_to_json, redacted_comparison, render_comparison_html, render_exam_html
from gnl_reports.text import ordinal, p_value

KINDS = ["comparison", "hostile_comparison", "empty_comparison"]


def text_of(html: str) -> str:
    body = re.sub(r"<style>.*?</style>", "", html, flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", "", body))


@pytest.mark.parametrize("kind", KINDS)
def test_ids_are_unique_and_links_lead_somewhere(kind, request) -> None:
    html = render_comparison_html(request.getfixturevalue(kind))
    ids = re.findall(r' id="([^"]*)"', html)
    assert len(ids) == len(set(ids))
    named = set(re.findall(r'href="#([^"]*)"', html))
    for value in re.findall(r'aria-labelledby="([^"]*)"', html):
        named |= set(value.split())
    assert named <= set(ids)


@pytest.mark.parametrize("kind", KINDS)
def test_tables_have_captions_and_heads_a_scope(kind, request) -> None:
    html = render_comparison_html(request.getfixturevalue(kind))
    assert html.count("<table>") == html.count("<caption ") >= 4
    assert len(re.findall(r"<th[ >]", html)) == len(re.findall(r'<th scope="(?:row|col)"', html))


def test_every_row_has_its_rates_with_denominator_and_interval(comparison) -> None:
    text = text_of(render_comparison_html(comparison))
    for row in comparison.rows:
        for rate in (*(bar.rate for bar in row.bars), *(group.right for group in row.languages)):
            assert f"{rate.value:.3f} {rate.k} of {rate.n} [{rate.low:.3f}, {rate.high:.3f}]" in text
        for bar in row.bars:
            assert f"[{bar.by_domain.low:.3f}, {bar.by_domain.high:.3f}] 6 domains" in text
    assert "✕ failed" in text
    assert "✓ certified" in text
    assert "the 7th sitting on this set when it began" in text


def test_every_duel_has_its_interval_its_discordant_pairs_and_its_p(comparison) -> None:
    text = text_of(render_comparison_html(comparison))
    for names in ("A less B", "A less C", "B less C"):
        assert f"{names}+0.133 [+0.033, +0.233] 12 against 2 of 75, p below 0.001-0.027 [-0.127, +0.073]" in text
    assert "3 pairs of rows are compared" in text


def test_judges_by_prompts_stand_in_a_grid_where_there_are_several_prompts(comparison) -> None:
    html = render_comparison_html(comparison)
    grid = text_of(html[html.index('id="grid-table"') : html.index('<div class="plots">')])
    assert grid.count("not sat") == 1
    assert [grid.index(name) for name in ("A: 0.880", "B: 0.533", "C: 0.987")]
    single = replace(comparison, rows=tuple(replace(row, prompt_version="1") for row in comparison.rows))
    assert "grid-table" not in render_comparison_html(single)


def test_every_pair_answered_differently_is_there_with_all_answers(comparison) -> None:
    html = render_comparison_html(comparison)
    assert html.count("<article") == len(comparison.disagreements) == 24
    pair = comparison.disagreements[0]
    assert f"expected {pair.expected}; A {pair.answers['A']}, B {pair.answers['B']}" in text_of(html)
    assert pair.a in text_of(html)


def test_agreement_is_said(empty_comparison) -> None:
    assert "All rows gave the same answer to each of the 0 pairs." in text_of(render_comparison_html(empty_comparison))


def test_hostile_texts_stay_texts(hostile_comparison) -> None:
    html = render_comparison_html(hostile_comparison)
    assert not re.search(r"<(script|img|iframe)", html)
    assert not set("\u202e\u202c\u2066\u2069\u200b\x00\x07\u00ad\ud83d") & set(html)
    html.encode("utf-8")


def test_redaction_leaves_no_content(comparison) -> None:
    secret = replace(comparison.disagreements[0], a="secret alpha", b="secret beta")
    hidden = redacted_comparison(replace(comparison, disagreements=(secret,)))
    html = render_comparison_html(hidden, redact=True)
    assert "secret" not in html
    assert "[12 characters, sha256 " in html
    assert "Redacted." in html
    assert secret.id in html


def test_a_comparison_survives_json(hostile_comparison) -> None:
    assert len(json.loads(json.dumps(comparison_to_json(hostile_comparison)))["rows"]) == 2


def test_the_exam_says_what_its_set_can_prove_and_which_sitting_it_was(normal) -> None:
    text = text_of(render_exam_html(normal))
    assert "75 near-miss pairs: at most 3 SAME for" in text
    assert "becomes provisional in 48 of 100 sittings, certified in 2.1" in text
    assert "The 7th sitting on this set" in text
    assert "+0.493 [+0.393, +0.593] 40 against 3 of 75, p below 0.001" in text
    assert "pair-004near-missordersdifferent, same" in text.replace(" near", "near")
    assert "0.963 289 of 300 [0.940, 0.980] 300 pairs" in text


@pytest.mark.parametrize(
    ("number", "word"),
    [(1, "1st"), (2, "2nd"), (3, "3rd"), (4, "4th"), (11, "11th"), (12, "12th"), (113, "113th"), (121, "121st")],
)
def test_ordinals(number, word) -> None:
    assert ordinal(number) == word


def test_a_p_value_is_never_nothing() -> None:
    assert [p_value(p) for p in (1.0, 0.04999, 0.001, 0.0009999, 0.0)] == [
        "1.000",
        "0.050",
        "0.001",
        "below 0.001",
        "below 0.001",
    ]
