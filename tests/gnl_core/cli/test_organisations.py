"""An organisation's runs, questions and claims on the command line: found with --org, and never without."""

import asyncio
import shlex

import pytest

from gnl_core import SqliteStorage, run_durable, tool
from gnl_core.testing import ScriptedModel


@tool(confirm=True)
async def pay(order: int) -> str:
    """Pay an order."""
    return "paid"


@pytest.fixture
def asked(tmp_path):
    """A journal in which one organisation's run waits for a person; the unscoped one holds a run of the same id."""
    path = tmp_path / "runs.db"

    async def drive(journal, tools):
        model = ScriptedModel([[("pay", {"order": 7})], "done"] if tools else ["hello"])
        await run_durable(run_id="r", journal=journal, model=model, tools=tools, prompt="go")

    with SqliteStorage(path) as storage:
        asyncio.run(drive(storage.runs.scoped("acme"), [pay]))
        asyncio.run(drive(storage.runs, []))
    return path


def test_an_organisations_run_is_seen_and_answered_by_its_name(gnl, asked):
    assert gnl("runs", "list", "--db", asked, "--json").json["runs"][0]["status"] == "completed"
    assert gnl("runs", "list", "--db", asked, "--org", "acme", "--json").json["runs"][0]["status"] == "suspended"
    assert gnl("approvals", "list", "--db", asked, "--json").json == []
    (question,) = gnl("approvals", "list", "--db", asked, "--org", "acme", "--json").json
    refused = gnl("approvals", "approve", question["question"], "--db", asked)
    assert refused.code == 2
    assert gnl("approvals", "approve", question["question"], "--db", asked, "--org", "acme").code == 0
    assert gnl("approvals", "list", "--db", asked, "--org", "acme", "--json").json == []
    shown = gnl("runs", "show", "r", "--db", asked, "--org", "acme")
    assert "pay" in shown.out
    assert "pay" not in gnl("runs", "show", "r", "--db", asked).out


def test_the_doctors_advice_names_the_organisation(gnl, asked):
    findings = gnl("doctor", "--db", asked, "--json").json["findings"]
    (waits,) = [one for one in findings if one["level"] == "waits"]
    assert waits["org"] == "acme"
    assert waits["advice"].endswith(f"each with --org {shlex.quote('acme')}")


@pytest.mark.parametrize("words", [("claims", "list"), ("incidents",), ("runs", "count")])
def test_whatever_looks_takes_an_organisation(gnl, asked, words):
    assert gnl(*words, "--db", asked, "--org", "acme").code == 0
    refused = gnl(*words, "--db", asked, "--org", "a:b/c\n")
    assert refused.code == 2
