"""The page about live questions in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from gnl_reports.live import render_live_html
from gnl_semantic.telemetry import (
    Asked,
    Bucket,
    Decisions,
    DeclarationRow,
    Exact,
    JudgeTally,
    RunFigures,
    Scan,
    Settings,
    Telemetry,
    ToolRow,
    Trouble,
)

pytestmark = pytest.mark.browser

NOW = 1_796_000_000_000
DECISIONS = Decisions(approved=5, denied=15, pending=3, different_work=2)


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Browser]:
    # One module, not the session: while it is open its event loop would be in the way of asynchronous tests.
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--disable-gpu", "--no-first-run"])
        yield browser
        browser.close()


@pytest.fixture
def visit(browser: Browser, tmp_path: Path) -> Iterator[object]:
    contexts = []
    sent: list[str] = []

    def opened(html: str, *, width: int = 1100, **options: object) -> tuple[Page, list[str]]:
        path = tmp_path / "live.html"
        path.write_text(html, encoding="utf-8")
        context = browser.new_context(viewport={"width": width, "height": 800}, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("request", lambda request: sent.append(request.url))
        page.on("console", lambda message: sent.append(message.text))
        page.on("dialog", lambda dialog: (sent.append(dialog.message), dialog.dismiss()))
        page.goto(path.as_uri())
        assert sent == [path.as_uri()], "the page asks for nothing, and says nothing"
        return page, sent

    yield opened
    for context in contexts:
        context.close()


def page_of(*texts: str) -> Telemetry:
    """A full page, with texts of strangers wherever one can stand."""
    asked = [
        Asked(
            run_id=text,
            call="s0p0",
            kind="semantic",
            attempt=0,
            at=NOW - 60_000,
            tool=text,
            origin="judge",
            asked_by="gate",
            decision="approved",
            relation="different_work",
            identity_keys=(text, "warehouse"),
            sentence=text,
            present=text * 20,
        )
        for text in texts
    ]
    bucket = Bucket(start="2026-11-02", identity=4, channel=1, rule=2, judge=1, decisions=DECISIONS)
    return Telemetry(
        now=NOW,
        org=texts[0],
        by_action={"suspend": 23, "warn": 31},
        tools=tuple(ToolRow(tool=text, suspend=23, warn=31, decisions=DECISIONS) for text in texts),
        decisions=DECISIONS,
        by_origin=dict.fromkeys(("identity", "rule", "judge"), DECISIONS),
        declarations=tuple(DeclarationRow(tool=text, keys=(text,), decisions=DECISIONS) for text in texts),
        scan=Scan(calls=31, dropped_identity=17, gray_calls=12),
        judge=JudgeTally(different=1, skipped=dict.fromkeys(texts, 1)),
        exact=Exact(by_action=dict.fromkeys(texts, 1)),
        series=(bucket, replace(bucket, start="2026-11-20")),
        trouble=Trouble(unusable=dict.fromkeys(texts, 1), recent=tuple((NOW, text, text) for text in texts)),
        runs=RunFigures(
            runs=60,
            with_gate=42,
            counts={"guarded": 126, "gray": 14, "judged": 12},
            settings=tuple(Settings(settings={text: text}, runs=42, newest=NOW) for text in texts),
        ),
        recent=tuple(asked),
    )


def test_the_page_shows_its_figures(visit) -> None:
    page, _ = visit(render_live_html(page_of("order")))
    assert page.locator("h1").inner_text() == "precision@suspend 0.750"
    row = page.locator("#groups-table").locator("..").locator("tbody tr").first
    assert "15 of 20 [0.531, 0.888]" in " ".join(row.inner_text().split())
    assert page.get_by_role("img", name="precision@suspend").count() == 1
    assert page.get_by_role("img", name="Questions by day and rung").count() == 1
    for landmark in ("banner", "navigation", "main"):
        assert page.get_by_role(landmark).count() == 1


# Without the page's policy, only the escaping stands between a text and the browser: it must do alone.
@pytest.mark.parametrize("bypass_csp", [False, True], ids=["policy", "no-policy"])
def test_hostile_record_text_stays_text(visit, attacks, bypass_csp) -> None:
    page, _ = visit(render_live_html(page_of(*attacks)), bypass_csp=bypass_csp)
    assert page.evaluate("window.ran") is None
    assert page.locator("script, img, iframe").count() == 0
    assert page.locator("article.pair").count() == len(attacks)


@pytest.mark.parametrize("width", [360, 1100])
def test_the_page_never_scrolls_sideways(visit, width) -> None:
    for told in (page_of("order", "x" * 180, "طلب رقم ١٢٠٣", "\u202eabc"), Telemetry(now=NOW)):
        page, sent = visit(render_live_html(told), width=width)
        page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")
        widths = page.evaluate("[document.documentElement.scrollWidth, document.body.scrollWidth]")
        assert max(widths) <= width
        sent.clear()


@pytest.mark.parametrize(("scheme", "ground"), [("light", "rgb(255, 255, 255)"), ("dark", "rgb(20, 24, 30)")])
def test_both_schemes_reach_the_page_and_its_drawings(visit, scheme, ground) -> None:
    page, _ = visit(render_live_html(page_of("order")), color_scheme=scheme)
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == ground
    accent = page.evaluate("getComputedStyle(document.querySelector('nav a')).color")
    strokes = page.locator("svg.plot [stroke*='accent']").evaluate_all(
        "marks => marks.map(mark => getComputedStyle(mark).stroke)"
    )
    assert accent in strokes


def test_the_keyboard_skips_to_the_report_and_reaches_wide_tables(visit) -> None:
    page, _ = visit(render_live_html(page_of("order")), width=360)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.keyboard.press("Tab")
    box = page.get_by_role("region", name="Decisions by what found the earlier work, and by who asked")
    assert box.evaluate("box => box === document.activeElement && box.scrollWidth > box.clientWidth")
