"""Words that this project never claims, in anything a user reads."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CLAIMS = [
    "exactly-once",
    "exactly once",
    "AI-verified",
    "AI-powered",
    "meaning engine",
    "intent detection",
    "duplicate prevention",
    "catches duplicates",
    "the judge decides",
    "reliable protection",
]
ROOMS = ["gnl_core", "gnl_semantic", "qualify/gnl_qualify", "reports/gnl_reports", "fixtures/gnl_fixtures"]
PAGES = [
    *ROOT.glob("*.md"),
    *(page for room in ("benchmarks", "docs", "examples", "fixtures") for page in sorted((ROOT / room).rglob("*.md"))),
    ROOT / "pyproject.toml",
    *(
        path
        for room in ROOMS
        for path in (ROOT / room).rglob("*")
        if path.suffix in {".jinja", ".html", ".css", ".sql"}
    ),
]
SOURCES = [path for room in (*ROOMS, "benchmarks", "examples") for path in (ROOT / room).rglob("*.py")]


def claims_in(text):
    flat = re.sub(r"\s+", " ", text).casefold()
    return [claim for claim in CLAIMS if claim.casefold() in flat]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_page_claims_nothing_that_was_not_measured(path):
    assert claims_in(path.read_text(encoding="utf-8")) == []


def test_the_templates_are_among_the_pages():
    assert [path for path in PAGES if path.suffix == ".jinja"]


def test_every_page_for_readers_is_among_them():
    names = {str(path.relative_to(ROOT)) for path in PAGES}
    assert {"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "benchmarks/README.md", "docs/errors.md"} <= names
    assert ROOT / "examples" / "no_double_charge.py" in SOURCES


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_page_is_written_to_its_end(path):
    assert re.findall(r"@@\w*", path.read_text(encoding="utf-8")) == []


def test_no_text_in_the_code_does_either():
    assert SOURCES
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert claims_in(node.value) == [], f"{path}:{node.lineno}"


def test_the_search_finds_a_claim_broken_over_lines():
    assert claims_in("this is Exactly\n  once") == ["exactly once"]
