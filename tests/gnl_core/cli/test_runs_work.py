"""`gnl runs` of named work: found by its name, and shown with it."""

import asyncio

import pytest

from gnl_core import Gnl, tool
from gnl_core.testing.scripted import ScriptedModel


@pytest.fixture
def april(shelf):
    """Two persons' work of one name, ann's done twice, and a run of no name: ann's two runs and bob's."""

    async def make():
        async with shelf.open() as storage:
            firm = Gnl(storage.runs, agents={"billing": {"model": ScriptedModel(["Done."])}})
            work = {"work_key": "invoice / nisan", "prompt": "Go."}
            ann = (await firm.run("billing", **work, resource_id="ann")).run_id
            bob = (await firm.run("billing", **work, resource_id="bob")).run_id
            await firm.run("billing", run_id="raw", prompt="Go.")
            return ann, await firm.rollover("billing", work_key=work["work_key"], resource_id="ann"), bob

    return asyncio.run(make())


def test_the_list_by_the_name_of_the_work(gnl, shelf, april):
    ended = gnl("runs", "list", *shelf.db, "--work-key", "invoice / nisan", "--json")
    assert ended.code == 0
    assert {run["run_id"]: run["status"] for run in ended.json["runs"]} == dict(
        zip(april, ("completed", "ready", "completed"), strict=True)
    )
    assert {run["work_key"] for run in ended.json["runs"]} == {"invoice / nisan"}
    ended = gnl("runs", "list", *shelf.db, "--work-key", "invoice / nisan", "--resource", "bob", "--limit", "1")
    assert (ended.code, ended.out.splitlines()[1].split()[-1]) == (0, april[2])
    assert gnl("runs", "list", *shelf.db, "--work-key", "invoice").err == "no such run\n"
    assert gnl("runs", "list", *shelf.db, "--work-key", "").code == 2


def test_a_run_is_shown_with_its_name_and_what_it_does_anew(gnl, shelf, april):
    first, second, _ = april
    shown = gnl("runs", "show", *shelf.db, first).out.splitlines()
    assert "  work: invoice / nisan" in shown
    assert f"  done anew by: {second}" in shown
    shown = gnl("runs", "show", *shelf.db, second).out.splitlines()
    assert {"  work: invoice / nisan", f"  does anew: {first}"} <= set(shown)


def test_the_doctor_finds_nothing_wrong_with_an_execution(gnl, shelf, april):
    ended = gnl("doctor", *shelf.db)
    assert ended.code == 0, ended.out


def test_the_list_shows_names_of_work_where_there_are_any(gnl, shelf, april):
    head, *lines = gnl("runs", "list", *shelf.db).out.splitlines()
    assert head.split() == ["STATUS", "SINCE", "STEPS", "CALLS", "ASKED", "AGENT", "PERSON", "THREAD", "WORK", "RUN"]
    at = head.index("WORK")
    assert {line.split()[-1]: line[at : head.index("RUN")].strip() for line in lines} == {
        **dict.fromkeys(april, "invoice / nisan"),
        "raw": "-",
    }
    head, _ = gnl("runs", "list", *shelf.db, "--work-key", "invoice / nisan", "--limit", "1").out.splitlines()
    assert "WAITS" not in head


def pay_rent(shelf, *, confirm):
    """Drive named work that pays, and return its run's id."""

    @tool(side_effect=True, confirm=confirm)
    async def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    async def make():
        async with shelf.open() as storage:
            agents = {"billing": {"model": ScriptedModel([[("pay", {"amount": 5})], "Done."]), "tools": [pay]}}
            work = {"work_key": "rent", "resource_id": "ann", "prompt": "Pay."}
            return (await Gnl(storage.runs, agents=agents).run("billing", **work)).run_id

    return asyncio.run(make())


def test_a_rollover_prints_the_same_new_run_each_time_and_says_what_may_be_done_again(gnl, shelf):
    paid = pay_rent(shelf, confirm=False)
    made = gnl("runs", "rollover", *shelf.db, paid)
    assert (made.code, made.out) == (0, f"{paid}#2\n")
    assert made.err == f"careful: s0p0 of {paid} acted on the world; {paid}#2 may do the same again\n"
    again = gnl("runs", "rollover", *shelf.db, paid, "--json")
    assert (again.code, again.json) == (0, {"run_id": f"{paid}#2", "follows": paid})
    assert gnl("runs", "list", *shelf.db, "--status", "ready").out.split().count(f"{paid}#2") == 1


def test_a_rollover_of_what_is_no_run_or_not_over_is_refused(gnl, shelf):
    waiting = pay_rent(shelf, confirm=True)
    refused = gnl("runs", "rollover", *shelf.db, waiting)
    assert (refused.code, refused.out) == (2, "")
    assert "waits for a person" in refused.err
    assert "no-such" in gnl("runs", "rollover", *shelf.db, "no-such").err
    assert gnl("runs", "list", *shelf.db, "--work-key", "rent").out.split().count(waiting) == 1


def test_a_rollover_of_a_run_that_was_made_so_and_not_driven_yet_is_that_run(gnl, shelf, april):
    ready = april[1]
    assert gnl("runs", "rollover", *shelf.db, ready).out == f"{ready}\n"
