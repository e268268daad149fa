"""`gnl runs` of named work: found by its name, and shown with it."""

import asyncio

import pytest

from gnl_core import Gnl
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
