"""The page in a real browser: what a person would see, and what a hostile text would like to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Route, sync_playwright

from gnl_reports import (
    CalibrationReport,
    ComparisonReport,
    ExamReport,
    render_calibration_html,
    render_comparison_html,
    render_exam_html,
)

pytestmark = pytest.mark.browser

FLAGS = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Browser]:
    # One module, not the session: while it is open its event loop would be in the way of asynchronous tests.
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=list(FLAGS))
        yield browser
        browser.close()


@dataclass
class Visit:
    """An open page with everything it tried to do.

    Attributes:
        page: The page.
        requests: What it asked for, even where its own policy refused at once.
        sent: What would have gone out; all but the page itself was stopped.
        console: Messages and uncaught errors.
        dialogs: Dialogs it opened.
    """

    page: Page
    requests: list[str] = field(default_factory=list)
    sent: list[str] = field(default_factory=list)
    console: list[str] = field(default_factory=list)
    dialogs: list[str] = field(default_factory=list)


Open = Callable[..., "contextmanager[Visit]"]


@pytest.fixture
def visit(browser: Browser, tmp_path: Path) -> Open:
    @contextmanager
    def opened(html: str, *, width: int = 1100, **options: object) -> Iterator[Visit]:
        path = tmp_path / "report.html"
        path.write_text(html, encoding="utf-8")
        context = browser.new_context(viewport={"width": width, "height": 800}, **options)
        page = context.new_page()
        seen = Visit(page)

        def stop(route: Route) -> None:
            seen.sent.append(route.request.url)
            if route.request.url == path.as_uri():
                route.continue_()
            else:
                route.abort()

        context.route("**/*", stop)
        page.on("request", lambda request: seen.requests.append(request.url))
        page.on("console", lambda message: seen.console.append(message.text))
        page.on("pageerror", lambda error: seen.console.append(str(error)))
        page.on("dialog", lambda dialog: (seen.dialogs.append(dialog.message), dialog.dismiss()))
        try:
            page.goto(path.as_uri())
            yield seen
            assert seen.sent == [path.as_uri()]
            assert seen.dialogs == []
        finally:
            context.close()

    return opened


@pytest.fixture(
    params=[
        "normal",
        "hostile",
        "empty",
        "comparison",
        "hostile_comparison",
        "empty_comparison",
        "calibration",
        "hostile_calibration",
    ]
)
def html(request: pytest.FixtureRequest) -> str:
    return _page(request.getfixturevalue(request.param))


def _page(report: ExamReport | ComparisonReport | CalibrationReport) -> str:
    match report:
        case ExamReport():
            return render_exam_html(report)
        case ComparisonReport():
            return render_comparison_html(report)
        case _:
            return render_calibration_html(report)


# Without the page's policy, only the escaping stands between a text and the browser: it must do alone.
@pytest.mark.parametrize("bypass_csp", [False, True], ids=["policy", "no-policy"])
def test_no_script_runs_and_nothing_leaves(html, visit, bypass_csp) -> None:
    with visit(html, bypass_csp=bypass_csp) as seen:
        assert seen.page.evaluate("window.ran") is None
        assert seen.page.locator("script, img, iframe").count() == 0
        assert seen.requests == [seen.page.url]
        assert seen.console == []


def test_the_policy_stops_what_would_slip_through(normal, visit) -> None:
    slipped = "<script>window.ran = 1</script><img src='https://example.invalid/x.png'><p style='color: red'>"
    html = render_exam_html(normal).replace("</main>", slipped + "</main>")
    with visit(html) as seen:
        assert seen.page.evaluate("window.ran") is None
        assert len(seen.console) == 3  # one refusal each


@pytest.mark.parametrize("width", [360, 1100])
def test_the_page_never_scrolls_sideways(html, visit, width) -> None:
    with visit(html, width=width) as seen:
        seen.page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")
        widths = seen.page.evaluate("[document.documentElement.scrollWidth, document.body.scrollWidth]")
        assert max(widths) <= width


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("normal", "By label"),
        ("comparison", "Every judge under every prompt"),
        ("calibration", "Where the chain ends: shares of each group"),
    ],
)
def test_wide_tables_scroll_in_a_box_that_the_keyboard_reaches(request, visit, kind, name) -> None:
    with visit(_page(request.getfixturevalue(kind)), width=360) as seen:
        box = seen.page.get_by_role("region", name=name)
        assert box.evaluate("box => box.scrollWidth > box.clientWidth")
        box.focus()
        seen.page.keyboard.press("End")
        box.press("ArrowRight")
        seen.page.wait_for_function("box => box.scrollLeft > 0", arg=box.element_handle())


@pytest.mark.parametrize(
    ("scheme", "ground", "ink"),
    [("light", "rgb(255, 255, 255)", "rgb(26, 34, 44)"), ("dark", "rgb(20, 24, 30)", "rgb(229, 233, 238)")],
)
@pytest.mark.parametrize("kind", ["normal", "comparison", "calibration"])
def test_both_schemes_reach_page_and_drawings(request, visit, kind, scheme, ground, ink) -> None:
    with visit(_page(request.getfixturevalue(kind)), color_scheme=scheme) as seen:
        body = "getComputedStyle(document.body)"
        assert seen.page.evaluate(f"{body}.backgroundColor") == ground
        assert seen.page.evaluate(f"{body}.color") == ink
        words = seen.page.locator("svg.plot text")
        assert words.first.evaluate("text => getComputedStyle(text).fill") in {
            ink,
            "rgb(82, 93, 107)",
            "rgb(169, 179, 192)",
        }
        accent = seen.page.evaluate("getComputedStyle(document.querySelector('nav a')).color")
        assert accent in seen.page.locator("svg.plot [stroke*='accent']").evaluate_all(
            "marks => marks.map(mark => getComputedStyle(mark).stroke)"
        )


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (
            "normal",
            ("paraphrase recall against its bar", "near-miss false alarms against its bar", "Wall time of 298 calls"),
        ),
        ("comparison", ("paraphrase recall of 3 sittings", "near-miss false alarms of 3 sittings")),
        (
            "calibration",
            (
                "Cosines by label, canonical form",
                "What passes a threshold, bare form",
                "ROC curves of the cosine, bare form",
                "Recall against questions",
            ),
        ),
    ],
)
def test_drawings_have_names_for_those_who_do_not_see_them(request, visit, kind, names) -> None:
    with visit(_page(request.getfixturevalue(kind))) as seen:
        for name in names:
            assert seen.page.get_by_role("img", name=name).count() == 1
        for landmark in ("banner", "navigation", "main"):
            assert seen.page.get_by_role(landmark).count() == 1


def test_the_keyboard_skips_to_the_report_and_opens_what_is_folded(normal, wrong, visit) -> None:
    folded = wrong(1, a="long " * 1000)
    with visit(render_exam_html(_with_wrong(normal, folded))) as seen:
        focused = "document.activeElement"
        seen.page.keyboard.press("Tab")
        assert seen.page.evaluate(f"{focused}.className") == "skip"
        assert seen.page.locator(".skip").bounding_box()["y"] >= 0
        assert seen.page.evaluate(f"getComputedStyle({focused}).outlineStyle") == "solid"
        seen.page.keyboard.press("Enter")
        assert seen.page.evaluate(f"{focused}.id") == "main"
        for _ in range(60):
            seen.page.keyboard.press("Tab")
            if seen.page.evaluate(f"{focused}.closest('.fold') !== null"):
                break
        fold = seen.page.locator("details.fold")
        assert fold.evaluate("fold => fold.open") is False
        seen.page.keyboard.press("Enter")
        assert fold.evaluate("fold => fold.open") is True
        assert len(fold.locator("> .text").inner_text()) >= 4999


def test_hidden_characters_cannot_turn_what_stands_around_them(normal, wrong, visit) -> None:
    with visit(render_exam_html(_with_wrong(normal, wrong(1, id="id\u202egnp.exe", a="\u202eabc")))) as seen:
        assert "U+202Egnp.exe" in seen.page.locator("h4").inner_text()
        chip = seen.page.locator(".pair .text .chip").first
        assert chip.get_attribute("title") == "RIGHT-TO-LEFT OVERRIDE"
        # In the order they were written: the chip stands left of the letters that follow it.
        assert chip.evaluate(
            """chip => {
                const range = document.createRange();
                range.selectNodeContents(chip.nextSibling);
                return range.getBoundingClientRect().left >= chip.getBoundingClientRect().right - 1;
            }"""
        )


def test_right_to_left_texts_begin_at_the_right(normal, wrong, visit) -> None:
    with visit(render_exam_html(_with_wrong(normal, wrong(1, a="طلب رقم ١٢٠٣", b="order 1203")))) as seen:
        directions = seen.page.locator(".pair .texts .text").evaluate_all(
            "all => all.map(one => getComputedStyle(one).direction)"
        )
        assert directions == ["rtl", "ltr"]


def test_paper_is_white_and_open(normal, wrong, visit) -> None:
    report = _with_wrong(normal, wrong(1, a="long " * 1000))
    with visit(render_exam_html(report), color_scheme="dark") as seen:
        whole = seen.page.locator("details.fold > .text")
        assert not whole.is_visible()
        seen.page.emulate_media(media="print")
        assert seen.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert seen.page.evaluate("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
        assert whole.is_visible()
        assert seen.page.locator("details.raw > .text").first.is_visible()
        assert not seen.page.locator(".skip").is_visible()
        assert seen.page.pdf(format="A4").startswith(b"%PDF")


def _with_wrong(report: ExamReport, *pairs: object) -> ExamReport:
    return replace(report, wrong=pairs)
