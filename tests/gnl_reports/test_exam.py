import base64
import hashlib
import json
import re
import sys
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from gnl_core.errors import MissingExtraError
from gnl_reports import page, to_json
from gnl_reports.exam import render_exam_html
from gnl_reports.model import Latency

VOID = {"meta", "link", "br", "img", "hr", "input"}


class Page(HTMLParser):
    """Elements with their attributes, all text, and whether tags close in the order they opened."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.style = ""
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert not self._open

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        if self._open[-1:] == ["style"]:
            self.style += data
        else:
            self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", "".join(self.words))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.mark.parametrize("kind", ["normal", "hostile", "empty"])
def test_a_page_runs_nothing_and_loads_nothing(kind, request) -> None:
    parsed = Page(render_exam_html(request.getfixturevalue(kind)))
    tags = {tag for tag, _ in parsed.elements}
    assert not tags & {"script", "img", "iframe", "object", "embed", "form", "base", "image", "audio", "video"}
    for tag, attributes in parsed.elements:
        assert not [name for name in attributes if name.startswith("on") or name in {"style", "srcset", "action"}]
        for name in ("href", "src", "xlink:href"):
            assert re.match(r"#[\w-]+$|data:,$", attributes.get(name) or "#x"), (tag, attributes)
    assert not re.search(r"url\(|@import|https?:", parsed.style)


@pytest.mark.parametrize("kind", ["normal", "hostile", "empty"])
def test_the_policy_allows_this_style_and_nothing_else(kind, request) -> None:
    parsed = Page(render_exam_html(request.getfixturevalue(kind)))
    policy = next(m["content"] for m in parsed.all("meta") if m.get("http-equiv") == "Content-Security-Policy")
    digest = base64.b64encode(hashlib.sha256(parsed.style.encode()).digest()).decode()
    assert policy == (
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
    )


@pytest.mark.parametrize("kind", ["normal", "hostile", "empty"])
def test_ids_are_unique_and_links_lead_somewhere(kind, request) -> None:
    parsed = Page(render_exam_html(request.getfixturevalue(kind)))
    ids = [attributes["id"] for _, attributes in parsed.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    named = {link["href"].removeprefix("#") for link in parsed.all("a")}
    for _, attributes in parsed.elements:
        named |= set((attributes.get("aria-labelledby") or "").split())
    assert named <= set(ids)


def test_tables_have_captions_and_scopes(normal) -> None:
    parsed = Page(render_exam_html(normal))
    assert len(parsed.all("table")) == len(parsed.all("caption")) == 10
    assert all(cell.get("scope") in {"row", "col"} for cell in parsed.all("th"))
    assert {tag for tag, _ in parsed.elements} >= {"header", "nav", "main", "section", "article", "figure"}


@pytest.mark.parametrize("status", ["failed", "provisional", "certified"])
def test_the_verdict_comes_first_with_its_reason_and_meaning(normal, status) -> None:
    text = Page(render_exam_html(replace(normal, status=status))).text
    places = [
        text.index(part) for part in (status.capitalize(), normal.reasons[0], normal.reasons[1], "What this means")
    ]
    assert text.index(normal.reasons[0]) < text.index("Contents")
    assert places == sorted(places)


def test_every_rate_has_its_denominator_and_interval(normal) -> None:
    text = Page(render_exam_html(normal)).text
    rates = [bar.rate for bar in normal.bars]
    rates += [rate for one in normal.baselines for rate in (one.recall, one.false_alarms)]
    rates += [
        rate
        for groups in normal.groups.values()
        for g in groups
        for rate in (g.right, g.recall, g.false_alarms)
        if rate
    ]
    rates += [normal.repeat.flips, normal.order.flips]
    for rate in rates:
        assert f"{rate.k / rate.n:.3f} {rate.k} of {rate.n} [{rate.low:.3f}, {rate.high:.3f}]" in text
    assert "at least 0.70" in text
    assert "at most 0.05" in text
    assert "24 of 300 pairs were answered against their label" in text
    assert "Over 298 measured calls of 650" in text
    # Counts in the tables: every kind of answer of every group over the pairs put.
    assert "66/75" in text
    assert "9/75" in text


def test_a_bound_never_looks_equal_to_a_bar_it_misses(normal) -> None:
    bar = replace(normal.bars[1], bound=0.05004)
    assert "at most 0.05004" in Page(render_exam_html(replace(normal, bars=(bar,)))).text


@pytest.mark.parametrize("kind", ["normal", "hostile"])
def test_every_wrong_pair_is_there_under_its_label(kind, request) -> None:
    report = request.getfixturevalue(kind)
    html = render_exam_html(report)
    parsed = Page(html)
    assert len(parsed.all("article")) == len(report.wrong)
    by_label = {}
    for pair in report.wrong:
        by_label.setdefault(pair.label, []).append(pair)
    sections = html.split('<details class="group"')[1:]
    assert len(sections) == len(by_label)
    assert sorted(section.count("<article") for section in sections) == sorted(map(len, by_label.values()))
    for number in range(1, len(report.wrong) + 1):
        assert f'id="wrong-{number}"' in html


def test_a_wrong_pair_shows_both_texts_what_was_expected_and_answered(normal, wrong) -> None:
    pair = wrong(1, a="Müşteri <Öz> & Söhne", b="musteri oz", raw="They differ,\nI think.", answered="unparsed")
    text = Page(render_exam_html(replace(normal, wrong=(pair,)))).text
    for part in (pair.a, pair.b, "expected different, answered unparsed", "They differ, I think.", pair.note, pair.id):
        assert part in text


def test_wrong_pairs_stand_by_domain_with_their_answers_counted(normal) -> None:
    html = render_exam_html(normal)
    near_miss = html.split('<details class="group"')[2]
    domains = re.findall(r'<p class="meta"><bdi>(.*?)</bdi>', near_miss)
    assert domains == sorted(domains)
    assert set(domains) == {"field service", "invoices"}
    assert "Answered unparsed 6 of 12, same 6 of 12." in Page(html).text


def test_a_long_text_is_folded_and_whole(normal, wrong) -> None:
    long = "".join(chr(0x4E00 + n) for n in range(5000))
    html = render_exam_html(replace(normal, wrong=(wrong(1, a=long),)))
    assert f">{long}</div></details>" in html
    assert "… 5,000 characters" in html


def test_hostile_texts_stay_texts(hostile, attacks) -> None:
    html = render_exam_html(hostile)
    text = "".join(Page(html).words)
    for attack in attacks[:4]:
        assert attack in text
    assert not set("\u202e\u202c\u2066\u2069\u200b\x00\x07\u00ad\ud83d") & set(html)
    assert "U+202E" in text
    assert "<title>Failed: exam of &lt;script&gt;" in html
    assert "[U+202E]" in html[html.index("<title>") : html.index("</title>")]
    html.encode("utf-8")


def test_redaction_leaves_no_content(normal, wrong) -> None:
    pair = wrong(1, a="secret alpha", b="secret beta", note="secret gamma", raw="secret delta", answered="unparsed")
    html = render_exam_html(replace(normal, wrong=(pair,)), redact=True)
    assert "secret" not in html
    assert f"[12 characters, sha256 {hashlib.sha256(b'secret alpha').hexdigest()[:12]}]" in html
    assert pair.id in html
    bare = replace(normal, wrong=(wrong(1, raw="SAME\n", answered="same"),))
    assert "Raw answer" not in render_exam_html(bare, redact=True)
    assert "secret" in render_exam_html(replace(normal, wrong=(pair,)))


def test_what_is_missing_is_said(empty) -> None:
    text = Page(render_exam_html(empty)).text
    for sentence in (
        "No requirement was measured in this sitting.",
        "No baseline was scored on these pairs",
        "No pair was put, so there is nothing to group.",
        "nothing is known about steadiness",
        "No call was answered, so there is no time to show.",
        "No pair was put, so none was answered wrongly.",
        "does not tell how many tokens",
        "No ledger of sittings is kept",
        "No transcript was kept",
    ):
        assert sentence in text


def test_no_wrong_pair_and_no_latency_have_their_sentences(normal) -> None:
    latency = Latency(p50=None, p95=None, max=None, limit=8000.0, samples=())
    text = Page(render_exam_html(replace(normal, wrong=(), latency=latency))).text
    assert "Every one of the 300 pairs was answered as its label expects." in text
    assert "0 of 300 pairs ran into it" in text


def test_provenance_tells_how_to_get_the_report_again(normal) -> None:
    text = Page(render_exam_html(normal)).text
    origin = normal.provenance
    for part in (
        normal.fixtures.set_id,
        origin.command,
        str(origin.seed),
        origin.prompt_sha256,
        origin.prompt_version,
        origin.library_version,
        origin.transcript_sha256,
        origin.started_at,
        "The ledger has 3 sittings",
        "max_tokens",
        "Answer with one word",
    ):
        assert part in text


def test_the_weakest_domain_is_named_with_its_share(normal) -> None:
    text = Page(render_exam_html(normal)).text
    assert "The weakest domain is invoices: right in 0.780 39 of 50 [0.648, 0.872]" in text
    assert text.count("weakest") == 2


@pytest.mark.parametrize(("private", "words"), [(True, "your own"), (False, "synthetic and published")])
def test_the_limits_say_whose_pairs_they_are(normal, private, words) -> None:
    text = Page(render_exam_html(replace(normal, fixtures=replace(normal.fixtures, private=private)))).text
    assert words in text[text.rindex("What this report cannot say") :]


def test_the_page_ends_with_the_one_number_that_counts(normal) -> None:
    text = Page(render_exam_html(normal)).text
    assert text.rstrip(" .").endswith("precision@suspend")


def test_the_same_report_gives_the_same_page(normal) -> None:
    assert render_exam_html(normal) == render_exam_html(normal)


def test_a_report_survives_json(hostile) -> None:
    assert json.loads(json.dumps(to_json(hostile)))["status"] == "failed"


def test_missing_jinja2_names_the_extra(empty, monkeypatch) -> None:
    page._environment.cache_clear()
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'gnl-semantic\[qualify\]'"):
        render_exam_html(empty)


def _luminance(colour: str) -> float:
    parts = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", [0, 1, 2], ids=["light", "dark", "print"])
def test_text_stands_out_from_its_ground(empty, scheme) -> None:
    blocks = re.findall(r":root \{(.*?)\}", Page(render_exam_html(empty)).style, re.DOTALL)
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", blocks[scheme]))
    pairs = [
        (ink, ground) for ink in ("ink", "muted", "accent", "good", "warn", "bad") for ground in ("page", "raised")
    ]
    for ink, ground in [*pairs, ("chip-ink", "chip")]:
        light, dark = sorted((_luminance(colours[ink]), _luminance(colours[ground])), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, (ink, ground)
