"""The page about live questions: its figures, its empty states, and hostile texts that stay texts."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from gnl_reports.live import render_live_html
from gnl_reports.live_words import headline, moment
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

NOW = 1_796_000_000_000
SETTINGS = Settings(settings={"embed_model_id": "e5", "rules": {"disable": []}, "judge": None}, runs=40, newest=NOW)
JUDGED = Settings(settings={"embed_model_id": "e5", "rules": None, "judge": {"model_id": "m"}}, runs=2, newest=NOW - 9)


def asked(number: int, **members: object) -> Asked:
    known = {
        "run_id": f"run-{number}",
        "call": "s0p0",
        "kind": "semantic",
        "attempt": 0,
        "at": NOW - number * 3_600_000,
        "tool": "createOrder",
        "origin": "rule",
        "asked_by": "gate",
        "decision": "denied",
        "identity_keys": ("sku", "warehouse"),
        "sentence": f"createOrder: tv-42 izmir {number}",
        "present": f"createOrder: tv 42 İzmir {number}",
    }
    return Asked(**{**known, **members})  # type: ignore[arg-type] # members of a test's own making


@pytest.fixture
def full() -> Telemetry:
    """Every part has something to show."""
    decisions = Decisions(approved=5, denied=15, pending=3, different_work=2, deliberate_repeat=1)
    identity = Decisions(approved=3, denied=7, pending=1, different_work=1)
    channel = Decisions(approved=1, denied=2)
    rule = Decisions(approved=1, denied=8, pending=2, different_work=1)
    judge = Decisions(approved=1, deliberate_repeat=1)
    return Telemetry(
        now=NOW,
        since=NOW - 30 * 86_400_000,
        by_action={"suspend": 23, "warn": 31},
        tools=(ToolRow(tool="createOrder", suspend=23, warn=31, decisions=decisions),),
        decisions=decisions,
        by_origin={"identity": identity, "rule": rule, "judge": judge},
        channel=channel,
        by_asker={
            "gate": replace(decisions, pending=0),
            "confirm": Decisions(pending=2),
            "guard": Decisions(pending=1),
        },
        exact=Exact(by_action={"suspend": 4, "block": 2}, decisions=Decisions(approved=1, denied=3)),
        scan=Scan(calls=31, dropped_identity=17, dropped_by_rule=8, dropped_discriminator=2, gray_calls=12),
        judge=JudgeTally(
            same=1, different=9, skipped={"timeout": 2}, cached=3, latency_p50=140, latency_p95=900, timed=7
        ),
        declarations=(
            DeclarationRow(tool="createOrder", keys=("sku",), decisions=Decisions(approved=4, different_work=2)),
            DeclarationRow(tool="createOrder", keys=("sku", "warehouse"), decisions=Decisions(approved=1, denied=15)),
        ),
        series=(
            Bucket(start="2026-11-02", identity=4, channel=1, rule=2, judge=0, decisions=Decisions(denied=6)),
            Bucket(
                start="2026-11-09", identity=7, channel=2, rule=9, judge=1, decisions=Decisions(approved=5, denied=9)
            ),
        ),
        unit="week",
        trouble=Trouble(
            embedder_outages=1,
            unusable={"adjustStock: list": 3},
            recent=((NOW - 5_000, "createOrder", "embedder-outage"), (NOW - 9_000, "adjustStock", "identity-unusable")),
        ),
        runs=RunFigures(
            runs=60,
            with_gate=42,
            counts={"guarded": 126, "embedded": 90, "embed_hits": 36, "gray": 14, "judged": 12, "judge_ms": 4_100},
            settings=(SETTINGS, JUDGED),
        ),
        recent=tuple(asked(number) for number in range(1, 5)),
    )


def text_of(html: str) -> str:
    body = re.sub(r"<style>.*?</style>|<svg.*?</svg>", " ", html, flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", body))


def test_every_number_stands_with_its_denominator_and_interval(full) -> None:
    text = text_of(render_live_html(full))
    assert "precision@suspend 0.750" in text
    assert "A person refused 15 of 20 answered calls as the same job again, 95 % interval [0.531, 0.888]" in text
    assert "3 questions wait for an answer" in text
    assert "0.750 15 of 20 [0.531, 0.888]" in text
    assert "0.095 12 of 126 [0.055, 0.159]" in text, "judge calls a guarded call"
    assert "createOrder · sku: 4 of 4 questions ran anyway" in text
    assert "17" in text
    assert "Dropped by identity is no second quote" in text
    assert "Its meaning shifts when rules go on" in text


def test_groups_and_their_parts_are_told_apart(full) -> None:
    text = text_of(render_live_html(full))
    assert "Found by equal identity 11 7 3 1 0 2 1 0.700 7 of 10" in text
    assert "– of these, in another channel 3 2 1 0 0 1 0 0.667 2 of 3" in text
    assert "Shown beside a tool&#39;s own question 2 0 0 0 0 0 2 not measured" in text.replace("&#x27;", "&#39;")


def test_exact_repeats_stand_apart(full) -> None:
    text = text_of(render_live_html(full))
    assert "suspend 4 3 refused, 1 ran anyway, 0 waiting block 2" in text


def test_other_settings_are_told(full) -> None:
    text = text_of(render_live_html(full))
    assert "2 of 42 runs with a gate began with others, so figures of this page mix them" in text


RUNS = RunFigures(runs=9, with_gate=4, counts={"guarded": 31}, settings=(SETTINGS,))
STATES = {
    "no runs": (Telemetry(now=NOW), "Nothing to show yet", "There are no runs in this journal"),
    "no runs since": (Telemetry(now=NOW, since=5), "Nothing to show yet", "There are no runs in this time"),
    "no gate": (
        Telemetry(now=NOW, runs=RunFigures(runs=9)),
        "The semantic gate was never configured",
        "None of the 9 runs read here began with one",
    ),
    "no questions": (
        Telemetry(now=NOW, runs=RUNS),
        "No questions yet",
        "4 of 9 runs began with a semantic gate, which looked at 31 guarded calls and found nothing to ask about",
    ),
    "no decisions": (
        Telemetry(now=NOW, runs=RUNS, by_action={"suspend": 2}, decisions=Decisions(pending=2), recent=(asked(1),)),
        "2 questions, no decision yet",
        "Nobody has answered one yet",
    ),
    "rules without judge": (
        Telemetry(now=NOW, runs=RUNS, scan=Scan(calls=7, gray_calls=7)),
        "No questions yet",
        "Rules are on and no judge is: the quote for one is 7 gray calls in this time",
    ),
}


@pytest.mark.parametrize("state", STATES)
def test_nothing_to_show_yet_is_a_page_that_says_why(state) -> None:
    told, title, sentence = STATES[state]
    html = render_live_html(told)
    assert headline(told).title == title
    assert f"<h1>{title}</h1>" in html
    assert sentence in text_of(html)
    assert "Traceback" not in html
    assert "None" not in re.sub(r"None (of|was)", "", text_of(html))


def test_rules_that_are_off_are_told_before_a_judge_is_bought() -> None:
    off = replace(SETTINGS, settings={"rules": None, "judge": None})
    told = Telemetry(now=NOW, runs=replace(RUNS, settings=(off,)))
    assert "Turn them on before a judge is bought" in " ".join(headline(told).next_steps)


@pytest.fixture
def attack(full: Telemetry, attacks: tuple[str, ...]) -> Callable[[str], Telemetry]:
    def made(text: str) -> Telemetry:
        return replace(
            full,
            org=text,
            tools=(replace(full.tools[0], tool=text),),
            declarations=(replace(full.declarations[0], tool=text, keys=(text,)),),
            exact=Exact(by_action={text: 1}),
            judge=replace(full.judge, skipped={text: 1}),
            trouble=Trouble(unusable={text: 1}, build_failed={text: 1}, recent=((NOW, text, text),)),
            runs=replace(full.runs, settings=(Settings(settings={text: text}, runs=1, newest=NOW),)),
            recent=(asked(1, tool=text, sentence=text, present=text, identity_keys=(text,), run_id=text, call=text),),
        )

    return made


def test_hostile_texts_stay_texts(attack, attacks) -> None:
    for text in attacks:
        html = render_live_html(attack(text))
        assert not re.search(r"<(script|img|iframe|svg onload|a href=.?javascript)", html, re.IGNORECASE), text
        assert "\u202e" not in html
        assert "\x00" not in html


def test_redaction_hides_what_calls_were_about_and_nothing_else(full) -> None:
    html = render_live_html(full, redact=True)
    assert "tv-42" not in html
    assert "tv 42" not in html
    assert "characters, sha256" in html
    assert "run-1/s0p0/semantic/0" in html
    assert "warehouse" in html


def test_redaction_hides_the_names_of_gazetteers(full) -> None:
    listed = replace(SETTINGS, settings={"rules": {"gazetteers": [["ahmet", "mehmet"], ["izmir"]], "disable": []}})
    told = replace(full, recent=(), runs=replace(full.runs, settings=(listed,)))
    assert "ahmet" in render_live_html(told)
    html = render_live_html(told, redact=True)
    assert "ahmet" not in html
    assert "[2 names]" in html


def test_the_same_counts_make_the_same_page(full) -> None:
    assert render_live_html(full) == render_live_html(full)


def test_times_beyond_the_calendar_are_told_as_numbers() -> None:
    assert moment(0) == "1970-01-01 00:00 UTC"
    assert moment(10**17) == f"{10**17} ms"
