"""Reports to render, and a Chromium to look at them with."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from scipy.stats import beta

from gnl_fixtures import FixtureSet, Pair
from gnl_qualify.calibration import calibrate
from gnl_qualify.hashing import HashingEmbedder
from gnl_reports.calibration_model import CalibrationReport, ListedPair, Listing
from gnl_reports.comparison_model import ComparisonReport, Disagreement, Duel, Row
from gnl_reports.model import (
    Bar,
    Baseline,
    Capacity,
    Chance,
    Clustered,
    Counts,
    ExamReport,
    FlippedPair,
    Flips,
    Group,
    Latency,
    Paired,
    Provenance,
    SetInfo,
    WrongPair,
)
from gnl_semantic.judge.transport import JudgeInfo
from gnl_semantic.rate import Rate

LABELS = ("dup-exact", "dup-paraphrase", "near-miss", "unrelated")
SAME = ("dup-exact", "dup-paraphrase")


def rate(k: int, n: int) -> Rate:
    z = 1.959964
    if not n:
        return Rate(0, 0, 0.0, 1.0)
    centre, spread = (k / n + z * z / (2 * n)), z * ((k / n * (1 - k / n) + z * z / (4 * n)) / n) ** 0.5
    scale = 1 + z * z / n
    return Rate(k, n, max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale))


def upper(k: int, n: int) -> float:
    return float(beta.ppf(0.95, k + 1, n - k)) if k < n else 1.0


def bar(k: int, n: int, *, recall: bool) -> Bar:
    limit = 0.70 if recall else 0.05
    bound = (1 - upper(n - k, n) if recall else upper(k, n)) if n else None
    return Bar(
        name="paraphrase recall" if recall else "near-miss false alarms",
        rate=rate(k, n),
        limit=limit,
        direction="at-least" if recall else "at-most",
        bound=bound,
        answered=n,
        passed=bool(n) and (k / n >= limit if recall else k / n <= limit),
        certified=bound is not None and (bound >= limit if recall else bound <= limit),
        by_domain=Clustered(k=k, n=n, clusters=6, low=max(0.0, k / n - 0.1), high=min(1.0, k / n + 0.1)) if n else None,
    )


def paired(first: int, second: int, n: int) -> Paired:
    share = (first - second) / n
    return Paired(
        n=n,
        both=0,
        first_only=first,
        second_only=second,
        neither=n - first - second,
        difference=share,
        low=max(-1.0, share - 0.1),
        high=min(1.0, share + 0.1),
        p=0.0004 if abs(first - second) > 9 else 0.25,
    )


def group(name: str, put: int, same: int, *, label: str) -> Group:
    return Group(
        name=name,
        counts=Counts(same=same, different=put - same),
        right=rate(same if label in SAME else put - same, put),
        recall=rate(same, put) if label == "dup-paraphrase" else None,
        false_alarms=rate(same, put) if label == "near-miss" else None,
    )


def wrong_pair(number: int, **changes: object) -> WrongPair:
    label = LABELS[1 + number % 2]
    pair = WrongPair(
        id=f"pair-{number:03}",
        domain=("orders", "invoices", "support tickets", "field service")[number % 4],
        lang=("en", "tr", "de", "mixed")[number % 4],
        tool_name="create_order",
        a=f"Northwind Trading Ltd. order {4400 + number} desk lamp white 2 pcs",
        b=f"northwind trading order no {4400 + number} white desk lamp, two pieces",
        label=label,
        phenomena=("abbreviation", "word-order") if label == "dup-paraphrase" else ("neighbour-number",),
        note="The order number and the goods are the same; only the wording differs.",
        expected="same" if label == "dup-paraphrase" else "different",
        answered=("different", "same", "unsure", "unparsed")[number % 4],
        raw=("DIFFERENT", "SAME", "UNSURE", "I think that these records probably describe one order.")[number % 4],
    )
    return replace(pair, **changes)


@pytest.fixture
def wrong() -> Callable[..., WrongPair]:
    """A factory of wrong pairs."""
    return wrong_pair


@pytest.fixture
def normal() -> ExamReport:
    """A sitting that the share passes and the bound does not, with 24 wrong pairs."""
    by_label = dict.fromkeys(LABELS, 75)
    return ExamReport(
        status="provisional",
        reasons=(
            "The bound of the near-miss false alarms does not clear 0.05: 2 of 75 allow a true rate up to 0.082.",
            "The worst domain, invoices, has 0.780 right answers (39 of 50).",
        ),
        judge=JudgeInfo(
            model_id="local-model-1.5b@q8",
            spec="openai-compatible:local-model-1.5b",
            engine="openai-compatible",
            parameters={"temperature": 0, "max_tokens": 8, "stop": ["\n"]},
        ),
        fixtures=SetInfo(
            name="heldout",
            set_id="0123456789abcdef",
            pairs=300,
            by_label=by_label,
            by_language={"en": 100, "tr": 100, "de": 60, "mixed": 40},
            private=False,
            sampled_from=None,
            sittings=3,
            sitting=7,
        ),
        bars=(bar(66, 75, recall=True), bar(2, 75, recall=False)),
        groups={
            "label": tuple(
                group(
                    name, 75, {"dup-exact": 75, "dup-paraphrase": 66, "near-miss": 2, "unrelated": 0}[name], label=name
                )
                for name in LABELS
            ),
            "language": (group("en", 100, 50, label="near-miss"), group("tr", 100, 48, label="dup-paraphrase")),
            "domain": tuple(
                group(name, 50, 39, label="dup-paraphrase")
                for name in ("invoices", "orders", "support tickets", "field service", "travel", "people")
            ),
            "phenomenon": tuple(
                group(name, 12, 10, label="dup-paraphrase")
                for name in ("abbreviation", "compatibility-form", "word-order")
            ),
        },
        worst_domain="invoices",
        baselines=(
            Baseline(name="always same", recall=rate(75, 75), false_alarms=rate(75, 75)),
            Baseline(name="always different", recall=rate(0, 75), false_alarms=rate(0, 75)),
            Baseline(
                name="ladder only",
                recall=rate(29, 75),
                false_alarms=rate(0, 75),
                recall_difference=paired(40, 3, 75),
                false_alarm_difference=paired(2, 0, 75),
            ),
        ),
        repeat=Flips(what="asked again", pairs=50, flips=rate(0, 50), runs=4),
        order=Flips(
            what="records in reverse order",
            pairs=300,
            flips=rate(11, 300),
            agreement=Clustered(k=289, n=300, clusters=300, low=0.94, high=0.98),
            changed=tuple(
                FlippedPair(id=f"pair-{n:03}", domain="orders", label="near-miss", answers=("different", "same"))
                for n in range(11)
            ),
        ),
        latency=Latency(
            p50=431.0,
            p95=816.5,
            max=6120.0,
            limit=8000.0,
            samples=(*(250.0 + (n * 37) % 600 for n in range(295)), 1900.0, 2600.0, 6120.0),
        ),
        calls=650,
        tokens_in=81250,
        tokens_out=650,
        wrong=tuple(wrong_pair(n) for n in range(24)),
        provenance=Provenance(
            command="gnl-semantic-qualify --judge openai:local-model-1.5b --report exam.html",
            seed=20261130,
            started_at="2026-11-30T10:00:00Z",
            finished_at="2026-11-30T10:04:31Z",
            library_version="0.1.0",
            ruleset_version="1",
            parser_version="1",
            prompt_version="1",
            prompt_sha256="ab" * 32,
            prompt_system="You compare two records.\nAnswer with one word: SAME, DIFFERENT or UNSURE.",
            transcript_sha256="cd" * 32,
            concurrency=4,
        ),
        capacity=(
            Capacity(
                name="near-miss false alarms",
                label="near-miss",
                direction="at-most",
                limit=0.05,
                n=75,
                least_provisional=5,
                least_certified=59,
                provisional=3,
                certified=0,
                chances=(
                    Chance(true=0.01, provisional=0.993, certified=0.471),
                    Chance(true=0.05, provisional=0.480, certified=0.021),
                ),
            ),
        ),
    )


@pytest.fixture
def empty() -> ExamReport:
    """A sitting in which nothing could be measured."""
    return ExamReport(
        status="failed",
        reasons=("No pair was answered.",),
        judge=JudgeInfo(model_id="m", spec="m", engine="python-file"),
        fixtures=SetInfo(
            name="none",
            set_id="0" * 16,
            pairs=0,
            by_label={},
            by_language={},
            private=True,
            sampled_from=None,
            sittings=None,
        ),
        bars=(),
        groups={},
        worst_domain=None,
        baselines=(),
        repeat=None,
        order=None,
        latency=Latency(p50=None, p95=None, max=None, limit=8000.0, samples=()),
        calls=0,
        tokens_in=None,
        tokens_out=None,
        wrong=(),
        provenance=Provenance(
            command="",
            seed=0,
            started_at="",
            finished_at="",
            library_version="",
            ruleset_version="",
            parser_version="",
            prompt_version="",
            prompt_sha256="",
            prompt_system="",
            transcript_sha256=None,
            concurrency=1,
        ),
    )


ATTACKS = (
    "<script>window.ran = 1; alert(1)</script>",
    '"><img src=x onerror="window.ran = 1">',
    "</style></title><svg onload='window.ran = 1'><a href=\"https://example.invalid/\">x</a>",
    "{{ 7 * 7 }}{% raw %}&lt;b&gt;&amp;#x3c;script&amp;#x3e;",
    "invoice \u202egnp.exe\u202c and \u2066isolate\u2069 zero\u200bwidth no\u00a0break \u00ad \x00\x07 lone \ud83d",
    "漢字かな交じり文の注文書 한국어 주문 번호 1203 طلب رقم ١٢٠٣ أبيض " * 3,
    "W" * 5000,
    "\u200b" * 5000,
    "Z\u0301" + "\u0336\u0322\u0489" * 200,
)


@pytest.fixture
def attacks() -> tuple[str, ...]:
    """Texts that must stay texts."""
    return ATTACKS


@pytest.fixture
def hostile(normal: ExamReport) -> ExamReport:
    """The normal report with an attack in every text that comes from outside, 300 wrong pairs."""
    script, image, svg, template, bidi, _scripts, long, _, _ = ATTACKS
    attacks = [ATTACKS[n % len(ATTACKS)] for n in range(300)]
    return replace(
        normal,
        status="failed",
        reasons=(script + bidi, image, "x" * 400),
        judge=JudgeInfo(
            model_id=script + bidi, spec=image + "y" * 300, engine=svg, parameters={image: svg, "\u202e" + script: long}
        ),
        fixtures=replace(
            normal.fixtures, name=image, set_id=svg, by_label={script: 300}, by_language={bidi: 300}, sampled_from=image
        ),
        bars=tuple(replace(one, name=script + image + bidi) for one in normal.bars),
        groups={
            grouping: tuple(replace(one, name=script + bidi + image + "n" * 100) for one in groups)
            for grouping, groups in normal.groups.items()
        },
        worst_domain=script + bidi + image + "n" * 100,
        baselines=(
            *(replace(one, name=image + bidi) for one in normal.baselines),
            replace(normal.baselines[0], name="$\\frac$"),
        ),
        repeat=replace(
            normal.repeat,
            what=script,
            changed=(FlippedPair(id=image, domain=svg, label=script, answers=(bidi, template)),),
        ),
        wrong=tuple(
            wrong_pair(
                n,
                id=f"{n} {attack}"[:200],
                domain=f"{n % 7} {image}",
                lang=svg,
                tool_name=template,
                a=attack,
                b=attacks[n - 1],
                label=(script, "near-miss")[n % 2],
                phenomena=(image,),
                note=attack,
                expected=script,
                answered=bidi,
                raw=attack,
            )
            for n, attack in enumerate(attacks)
        ),
        provenance=replace(
            normal.provenance,
            command=f"gnl {script} {'z' * 600}",
            started_at=script,
            finished_at=image,
            library_version=svg,
            ruleset_version=image,
            parser_version=image,
            prompt_version=image,
            prompt_sha256=image,
            prompt_system="\n".join(ATTACKS),
            transcript_sha256=image,
        ),
    )


def row(name: str, report: ExamReport, **changes: object) -> Row:
    made = Row(
        name=name,
        source=f"{name.lower()}.transcript.jsonl",
        judge=report.judge,
        prompt_version=report.provenance.prompt_version,
        prompt_sha256=report.provenance.prompt_sha256,
        finished_at=report.provenance.finished_at,
        transcript_sha256="ef" * 32,
        status=report.status,
        reason=report.reasons[0],
        bars=report.bars,
        languages=report.groups.get("language", ()),
        repeat=report.repeat,
        order=report.order,
        sitting=report.fixtures.sitting,
    )
    return replace(made, **changes)


def compared(report: ExamReport, *rows: Row, pairs: tuple[WrongPair, ...]) -> ComparisonReport:
    names = [one.name for one in rows]
    return ComparisonReport(
        fixtures=report.fixtures,
        rows=rows,
        baselines=report.baselines,
        duels=tuple(
            Duel(first=a, second=b, recall=paired(12, 2, 75), false_alarms=paired(1, 3, 75), right=paired(9, 9, 300))
            for n, a in enumerate(names)
            for b in names[n + 1 :]
        ),
        disagreements=tuple(
            Disagreement(
                id=pair.id,
                domain=pair.domain,
                lang=pair.lang,
                tool_name=pair.tool_name,
                a=pair.a,
                b=pair.b,
                label=pair.label,
                expected=pair.expected,
                answers={name: pair.answered if n else pair.expected for n, name in enumerate(names)},
            )
            for pair in pairs
        ),
        library_version="0.1.0",
    )


@pytest.fixture
def comparison(normal: ExamReport) -> ComparisonReport:
    """Two judges under two prompts, 24 pairs answered differently."""
    other = replace(normal.judge, model_id="another-model")
    rows = (
        row("A", normal),
        row(
            "B", normal, prompt_version="2", status="failed", bars=(bar(40, 75, recall=True), bar(9, 75, recall=False))
        ),
        row("C", normal, judge=other, status="certified", bars=(bar(74, 75, recall=True), bar(0, 75, recall=False))),
    )
    return compared(normal, *rows, pairs=normal.wrong)


@pytest.fixture
def hostile_comparison(hostile: ExamReport) -> ComparisonReport:
    """An attack in every text that comes from outside, 300 pairs."""
    rows = [row(name, hostile, source=hostile.judge.spec, prompt_version=hostile.judge.model_id) for name in "AB"]
    return compared(hostile, rows[0], replace(rows[1], prompt_version="1"), pairs=hostile.wrong)


@pytest.fixture
def empty_comparison(empty: ExamReport) -> ComparisonReport:
    """Two sittings in which nothing could be measured, and which agree in that."""
    bars = (bar(0, 0, recall=True), bar(0, 0, recall=False))
    return compared(empty, row("A", empty, bars=bars), row("B", empty, bars=bars), pairs=())


@pytest.fixture(scope="session")
def calibration() -> CalibrationReport:
    """A real calibration of 80 invented pairs in two languages, one of them settled wrongly."""
    shapes = (
        ("dup-exact", "Lamp {n} green", "LAMP {n} green"),
        ("dup-paraphrase", "Lamp {n} green", "green lamp no. {n}"),
        ("near-miss", "Lamp {n} green", "Lamp {m} green"),
        ("unrelated", "Lamp {n} green", "rent of flat {m}"),
    )
    pairs = [
        Pair(
            id=f"{label}-{n}",
            domain="orders",
            lang=("en", "mixed")[n % 2],
            tool_name="placeOrder",
            a=a.format(n=1000 + n),
            b=b.format(n=1000 + n, m=7000 + n),
            label=label,
        )
        for label, a, b in shapes
        for n in range(20)
    ]
    pairs.append(replace(pairs[0], id="wrong", a="TV 42", b="tv-42", label="near-miss"))
    work = calibrate(HashingEmbedder(), FixtureSet("invented", tuple(pairs)))
    # In a thread of its own, since an open browser's loop may run in this one.
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result().report


@pytest.fixture
def hostile_calibration(calibration: CalibrationReport) -> CalibrationReport:
    """An attack in every text that comes from outside."""
    script, image, svg, template, bidi, *_ = ATTACKS
    listed = tuple(
        ListedPair(
            id=f"{n} {attack}"[:200],
            label=script,
            language=svg,
            tool_name=template,
            a=attack,
            b=ATTACKS[n - 1],
            why=image + bidi,
            cosine=0.5,
        )
        for n, attack in enumerate(ATTACKS)
    )
    return replace(
        calibration,
        embedder=script + bidi + "y" * 300,
        judge=image,
        set_name=image,
        set_id=svg,
        by_label={script: 20},
        warnings=(script + bidi, image),
        languages=tuple(replace(row, language=script + bidi) for row in calibration.languages),
        ladder=tuple(replace(row, name=row.name + script) for row in calibration.ladder),
        blind_spots=Listing(total=900, pairs=listed),
        below=Listing(total=len(listed), pairs=listed),
        ladder_wrong=Listing(total=len(listed), pairs=listed),
    )


@pytest.fixture(scope="session")
def chromium() -> str:
    """Path of a Chromium; skips where there is none, fails instead where GNL_TEST_REQUIRE_ALL=1 asks for all tests."""
    named = os.environ.get("GNL_TEST_CHROMIUM")
    names = (named,) if named else ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    if found := next(filter(None, map(shutil.which, names)), None):
        return found
    reason = f"no Chromium: none of {', '.join(names)} can be run; set GNL_TEST_CHROMIUM to one"
    if os.environ.get("GNL_TEST_REQUIRE_ALL") == "1":
        pytest.fail(reason)
    pytest.skip(reason)
