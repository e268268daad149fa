import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree as ET

import matplotlib as mpl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnl_core.errors import MissingExtraError
from gnl_reports.histogram import Bin, bins
from gnl_reports.plots import draw_bar, draw_latency, range_words

samples = st.lists(st.floats(0, 1e6, allow_nan=False), min_size=1, max_size=200)


@given(samples)
def test_every_sample_is_in_one_bin(values: list[float]) -> None:
    found = bins(values)
    assert sum(piece.count for piece in found) == len(values)
    assert len(found) <= 18
    assert all(piece.high is not None for piece in found[:-1])
    for piece, after in pairwise(found):
        assert piece.low < after.low == pytest.approx(piece.high)


def test_bins_have_round_edges_and_an_open_tail() -> None:
    found = bins([100.0 + n for n in range(100)] + [90_000.0])
    assert found[0] == Bin(100.0, 120.0, 20)
    assert found[-1] == Bin(200.0, None, 1)
    assert range_words(found[-1]) == "200 ms and more"


def test_no_samples_no_bins() -> None:
    assert bins([]) == ()


def test_a_drawing_is_the_same_every_time_and_leaves_no_settings(normal) -> None:
    before = mpl.rcParams.copy()
    first = draw_bar(normal.bars[0], normal.baselines, key="k")
    with mpl.rc_context({"font.size": 30, "axes.facecolor": "red", "svg.hashsalt": "other"}):
        second = draw_bar(normal.bars[0], normal.baselines, key="k")
    assert first == second
    # Reading "backend" would choose one.
    assert not [name for name in before if name != "backend" and mpl.rcParams[name] != before[name]]


def test_a_drawing_tells_its_numbers_in_words(normal) -> None:
    root = ET.fromstring(draw_bar(normal.bars[1], normal.baselines, key="k"))
    assert root.get("role") == "img"
    assert root.get("aria-labelledby") == "k-title k-desc"
    assert root.find("title").text == "near-miss false alarms against its bar"
    told = root.find("desc").text
    assert "this judge 0.027 (2/75, 95 % [0.007, 0.092])" in told
    assert "always same 1.000 (75/75" in told


def test_a_drawing_takes_its_colours_from_the_page(normal) -> None:
    histogram = bins(normal.latency.samples)
    for svg in (
        draw_bar(normal.bars[0], normal.baselines, key="a"),
        draw_latency(normal.latency, histogram, key="b"),
    ):
        assert "currentColor" in svg
        assert "var(--accent)" in svg
        assert "style=" not in svg
        assert "<style" not in svg
        assert "metadata" not in svg
        assert "http" not in svg
        # '#' left over is a colour of Matplotlib's that no theme would change, or a reference to an id of this drawing.
        names = {element.get("id") for element in ET.fromstring(svg).iter()}
        used = {part.split('"')[0].split(")")[0] for part in svg.split("#")[1:]}
        assert used <= names


def test_ids_of_two_drawings_do_not_meet(normal) -> None:
    ids = [
        {element.get("id") for element in ET.fromstring(draw_bar(bar, (), key=key)).iter()} - {None}
        for bar, key in zip(normal.bars, "ab", strict=True)
    ]
    assert ids[0]
    assert not ids[0] & ids[1]


def test_nothing_measured_is_drawn_as_such(normal) -> None:
    bar = replace(normal.bars[0], rate=replace(normal.bars[0].rate, k=0, n=0, low=0.0, high=1.0), bound=None)
    assert "not measured" in draw_bar(bar, (), key="k")


def test_every_bin_is_told(normal) -> None:
    histogram = bins(normal.latency.samples)
    told = ET.fromstring(draw_latency(normal.latency, histogram, key="k")).find("desc").text
    for piece in histogram:
        assert (f"{piece.count} {range_words(piece)}" in told) == bool(piece.count)


def test_an_open_tail_is_named_by_where_it_begins(normal) -> None:
    histogram = bins(normal.latency.samples)
    assert histogram[-1] == Bin(900.0, None, 3)
    labels = [text.text for text in ET.fromstring(draw_latency(normal.latency, histogram, key="k")).iter("text")]
    assert "900+" in labels
    assert "200" in labels
    assert not {"1000", "1,000"} & set(labels)


def test_pyplot_is_not_loaded() -> None:
    code = (
        "import sys, gnl_reports; assert not {'jinja2', 'matplotlib'} & set(sys.modules);"
        "from gnl_reports.plots import draw_latency; from gnl_reports.model import Latency;"
        "from gnl_reports.histogram import bins;"
        "draw_latency(Latency(p50=1.0, p95=1.0, max=1.0, limit=9.0, samples=(1.0,)), bins([1.0]), key='k');"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


def test_missing_matplotlib_names_the_extra(normal, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"HTML reports needs the extra \[qualify\]"):
        draw_bar(normal.bars[0], (), key="k")
