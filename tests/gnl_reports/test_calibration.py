"""The page of a calibration: every figure with its denominator, every drawing with words, nothing from outside raw."""

import re
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from gnl_reports.calibration import render_calibration_html
from gnl_reports.calibration_model import Listing
from gnl_reports.calibration_plots import draw_arms, draw_histogram, draw_levels, draw_roc


def words(html):
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html))


def test_the_page_says_threshold_interval_and_what_it_lets_through(calibration):
    text = words(render_calibration_html(calibration))
    row = calibration.thresholds[0]
    assert f"Candidate threshold {row.value:.3f}" in text
    assert f"{row.kept.k} of {row.kept.n}" in text
    assert f"{row.unrelated.k} of {row.unrelated.n}" in text
    assert "not known" in text  # 20 paraphrases have no lower end
    for warning in calibration.warnings:
        assert warning.split(":")[0] in text


@pytest.mark.parametrize("kind", ["calibration", "hostile_calibration"])
def test_a_page_runs_nothing_and_loads_nothing(kind, request):
    html = render_calibration_html(request.getfixturevalue(kind))
    assert not re.search(r"<(script|img|iframe|object|embed|form|base)\b", html)
    assert not re.search(r"<[^>]*\s(on\w+|style|srcset)=", html)
    assert re.findall(r'(?:href|src)="(?!#|data:,)[^"]*"', html) == []


def test_every_id_stands_once_and_every_reference_is_met(calibration):
    html = render_calibration_html(calibration)
    ids = re.findall(r'\sid="([^"]+)"', html)
    assert len(ids) == len(set(ids))
    named = re.findall(r'aria-labelledby="([^"]+)"', html) + re.findall(r'href="#([^"]+)"', html)
    assert {name for names in named for name in names.split()} <= set(ids)


def test_what_is_drawn_stands_in_a_table_too(calibration):
    text = words(render_calibration_html(calibration))
    for caption in ("Pairs at or above a threshold", "Pairs by cosine", "Points of the ROC curves", "Ways of asking"):
        assert caption in text
    row = next(row for row in calibration.arms if row.arm == "ladder")
    assert f"{row.recall.k} of {row.recall.n}" in text


def test_long_lists_say_how_long_they_are(hostile_calibration):
    text = words(render_calibration_html(hostile_calibration))
    assert "900 pairs, of which the first" in text


def test_empty_lists_say_what_that_means(calibration):
    nothing = Listing(total=0, pairs=())
    report = replace(calibration, ladder_wrong=nothing, blind_spots=nothing, below=nothing)
    text = words(render_calibration_html(report))
    assert "settled no pair against its label" in text
    assert "every repeat in two languages is a candidate" in text


def test_a_redacted_page_shows_no_text_of_a_pair(calibration):
    listed = calibration.ladder_wrong.pairs[0]
    assert (listed.a, listed.b) == ("TV 42", "tv-42")
    html = render_calibration_html(calibration, redact=True)
    assert "TV 42" not in html
    assert "tv-42" not in html
    assert "wrong" in html
    assert "sha256" in html


def test_two_pages_of_one_report_are_one_text(calibration):
    assert render_calibration_html(calibration) == render_calibration_html(calibration)


def test_each_drawing_is_named_and_described_with_counts(calibration):
    drawings = {
        "histogram": draw_histogram([row for row in calibration.histogram if row.form == "bare"], key="h"),
        "levels": draw_levels([row for row in calibration.levels if row.form == "bare"], 0.5, key="l"),
        "roc": draw_roc([row for row in calibration.roc if row.form == "bare"], key="r"),
        "arms": draw_arms(calibration.arms, key="a"),
    }
    for name, drawing in drawings.items():
        root = ET.fromstring(drawing)
        title, description = (root.find(tag).text for tag in ("title", "desc"))
        assert title, name
        assert re.search(r"\d+(/| of )\d+", description), name
        assert "style" not in {attribute for element in root.iter() for attribute in element.attrib}


def test_lines_differ_in_pattern_and_not_in_colour_alone(calibration):
    root = ET.fromstring(draw_levels([row for row in calibration.levels if row.form == "bare"], 0.5, key="l"))
    patterns = {
        (element.get("stroke-dasharray"), element.get("stroke"))
        for element in root.iter()
        if element.tag.endswith("path") and (element.get("stroke") or "").startswith("var(--")
    }
    by_pattern = {pattern for pattern, colour in patterns if colour != "var(--line)"}
    assert len(by_pattern) >= 4


@pytest.mark.parametrize(("threshold", "side"), [(0.35, "start"), (0.95, "end")])
def test_the_marked_threshold_is_written_on_the_side_that_has_room(calibration, threshold, side):
    rows = [row for row in calibration.levels if row.form == "bare"]
    drawing = draw_levels(rows, threshold, key="l")
    assert f"{threshold:.3f}" in drawing
    element = next(one for one in ET.fromstring(drawing).iter() if (one.text or "").strip() == f"{threshold:.3f}")
    assert (element.get("text-anchor") or "start") == side
