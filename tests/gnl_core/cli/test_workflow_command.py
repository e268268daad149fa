"""A workflow on the command line: shown by the names of its steps, sent what it waits for, looked at by the doctor."""

import asyncio
import json
import sys

import pytest

from gnl_core import SqliteStorage, keys, read_run, run_workflow, tool
from gnl_core.journal import Delete, new_batch
from gnl_core.workflow.check import check_names


@tool(side_effect=False)
def look(order: str) -> str:
    """Look an order up."""
    return f"order {order}"


@tool(side_effect=False)
def fails() -> None:
    """Fail."""
    raise OSError("no line")


async def pay(flow, order):
    found = await flow.step("look/up", look, order=order)
    await flow.attempt("extra", fails)
    told = await flow.wait("bank-approval", reason="the bank must say so")
    return {"found": found, "told": told}


@pytest.fixture
def place(tmp_path):
    return tmp_path / "runs.db"


def drive(place, **options):
    async def do():
        async with SqliteStorage(place) as storage:
            return await run_workflow(pay, journal=storage.runs, run_id="r", input={"order": "A"}, **options)

    return asyncio.run(do())


def forget(place, key):
    async def do():
        async with SqliteStorage(place) as storage:
            await storage.runs.apply((Delete(key),), batch=new_batch())

    asyncio.run(do())


def test_show_names_steps_and_waits(gnl, place):
    drive(place)
    shown = gnl("runs", "show", "r", "--db", place)
    assert shown.code == 0
    assert "step look/up is call s0p0" in shown.out
    assert "step extra is call s1p0, failed for good" in shown.out
    assert "waits for bank-approval: the bank must say so" in shown.out
    told = json.loads(gnl("runs", "show", "r", "--db", place, "--json").out)["workflow"]
    assert told["steps"] == [
        {"name": "look/up", "call": "s0p0", "failed": False},
        {"name": "extra", "call": "s1p0", "failed": True},
    ]
    assert [(wait["name"], wait["open"], wait["sent_at"]) for wait in told["waits"]] == [("bank-approval", True, 0)]
    assert told["over"] is False


def test_send_lets_a_workflow_go_on(gnl, place):
    drive(place)
    sent = gnl("workflow", "send", "r", "bank-approval", "--json", '{"ok": true}', "--actor", "ann", "--db", place)
    assert (sent.code, sent.out) == (0, "")
    again = gnl("workflow", "send", "r", "bank-approval", "--json", '{"ok": true}', "--db", place)
    assert again.code == 0
    assert "before" in again.err
    other = gnl("workflow", "send", "r", "bank-approval", "--json", "1", "--db", place)
    assert other.code == 2
    assert "the first stands" in other.err
    assert drive(place).output == {"found": "order A", "told": {"ok": True}}
    shown = gnl("runs", "show", "r", "--db", place)
    assert "was sent bank-approval by ann: " in shown.out
    assert "returned: " in shown.out
    late = gnl("workflow", "send", "r", "late", "--json", "1", "--db", place)
    assert late.code == 2


def test_what_cannot_be_sent_is_a_fault_in_the_options(gnl, place):
    drive(place)
    bad = gnl("workflow", "send", "r", "bank-approval", "--json", "{", "--db", place)
    assert (bad.code, "--json is no JSON" in bad.err) == (2, True)
    nobody = gnl("workflow", "send", "nobody", "bank-approval", "--json", "1", "--db", place)
    assert nobody.code == 2
    assert drive(place).status == "suspended"


def findings(gnl, place):
    told = json.loads(gnl("doctor", "--db", place, "--json").out)
    found = told["findings"] if isinstance(told, dict) else told
    return {one["check"]: one for one in found if one["level"] in ("waits", "fault", "note") and one["run_id"]}


def test_the_doctor_tells_what_waits_and_accepts_what_is_over(gnl, place):
    drive(place)
    found = findings(gnl, place)
    assert list(found) == ["runs.waiting"]
    assert found["runs.waiting"]["advice"] == "gnl workflow send r bank-approval --json DATA"
    gnl("workflow", "send", "r", "bank-approval", "--json", "1", "--db", place)
    found = findings(gnl, place)
    assert list(found) == ["runs.answered"]
    assert "run_workflow" in found["runs.answered"]["advice"]
    drive(place)
    assert findings(gnl, place) == {}


def test_the_doctor_finds_names_and_calls_that_have_parted(gnl, place):
    drive(place, send={"bank-approval": 1})
    forget(place, keys.tool("r", keys.ROOT, 0, 0))
    forget(place, keys.workflow_step("r", "extra"))

    async def both():
        async with SqliteStorage(place) as storage:
            return list(check_names(await read_run(storage.runs, "r")))

    (first, named), (second, unnamed) = asyncio.run(both())
    assert (first, second) == ("fault", "fault")
    assert "step 'look/up' of run 'r' is named as call s0p0, of which there is no record" in named
    assert "call s1p0 of run 'r' has no name" in unnamed
    assert findings(gnl, place)["runs.names"]["level"] == "fault"


def test_the_list_counts_what_workflows_wait_for(gnl, place):
    drive(place)
    head, line = gnl("runs", "list", "--db", place).out.splitlines()
    assert (head.split()[5], line.split()[-5]) == ("WAITS", "1")
    assert gnl("runs", "list", "--db", place, "--json").json["runs"][0]["waits"] == 1
    drive(place, send={"bank-approval": "yes"})
    head, _ = gnl("runs", "list", "--db", place).out.splitlines()
    assert "WAITS" not in head


DRIVER = """
from gnl_core import run_workflow, tool
from test_place import pay

def go_on(journal, run_id):
    return run_workflow(pay, journal=journal, run_id=run_id)

async def pay_off(flow, order):
    return order
"""


def test_a_program_s_own_driver_drives_a_workflow_on(gnl, place, tmp_path, monkeypatch):
    drive(place)
    (tmp_path / "till.py").write_text(DRIVER.replace("test_place", __name__))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    go_on = ["runs", "resume", "r", "--db", place, "--agent"]
    waits = gnl(*go_on, "till:go_on")
    assert (waits.code, waits.out) == (1, "")
    assert "gnl workflow send r bank-approval --json DATA  (the bank must say so)" in waits.err
    assert [wait["name"] for wait in gnl(*go_on, "till:go_on", "--json").json["waits"]] == ["bank-approval"]
    gnl("workflow", "send", "r", "bank-approval", "--json", '"yes"', "--db", place)
    done = gnl(*go_on, "till:go_on")
    assert (done.code, json.loads(done.out)) == (0, {"found": "order A", "told": "yes"})
    assert gnl(*go_on, "till:go_on", "--json").json["output"] == {"found": "order A", "told": "yes"}
    wrong = gnl(*go_on, "till:pay_off")
    assert (wrong.code, "name a function of (journal, run_id)" in wrong.err) == (2, True)
