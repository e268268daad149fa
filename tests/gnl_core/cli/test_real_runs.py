"""The program over runs that the runtime made: answers, resumes, forks, cancels, kills."""

import getpass
import importlib
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

SHOP = '''
import os, sys
from pathlib import Path
from gnl_core import SqliteStorage, run_durable, run_durable_sync, tool
from gnl_core.testing.scripted import ScriptedModel

HERE = Path(__file__).parent

def note(text):
    with (HERE / "effects").open("a") as file:
        file.write(text + chr(10))

@tool(side_effect=True)
def pay(amount: int) -> dict:
    """Pay."""
    note(f"pay {amount}")
    if (HERE / "die").exists():
        os.kill(os.getpid(), 9)
    return {"id": f"tr-{amount}"}

@tool(confirm=True)
def ship(to: str) -> str:
    """Ship."""
    note(f"ship {to}")
    return "on its way"

def agent():
    turns = [[("pay", {"amount": 5})], [("ship", {"to": "Ayşe"})], "all done"]
    return {"model": ScriptedModel(turns), "tools": [pay, ship]}

async def async_agent():
    return agent()

async def whole(journal, run_id):
    return await run_durable(run_id=run_id, journal=journal, prompt="go", **agent())

async def failing(journal, run_id):
    raise OSError("no network")

def number():
    return 7

def unknown_option():
    return {**agent(), "modle": 1}

def frozen_option():
    return {**agent(), "prompt": "other"}

def raising():
    raise OSError("no key")

def begin(run_id):
    with SqliteStorage(HERE / "journal.sqlite") as storage:
        run_durable_sync(run_id=run_id, journal=storage.runs, prompt="go", agent="shop", **agent())
'''


@pytest.fixture
def shop(tmp_path, gnl, monkeypatch):
    """A program whose run pays, then waits for a person before it ships."""
    (tmp_path / "shop.py").write_text(SHOP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "shop", raising=False)

    class Shop:
        path = tmp_path / "journal.sqlite"

        def begin(self, run_id="order", *, die=False):
            if not die:
                importlib.import_module("shop").begin(run_id)
                return
            (tmp_path / "die").touch()
            ended = subprocess.run([sys.executable, "-c", f"import shop; shop.begin({run_id!r})"], check=False)
            (tmp_path / "die").unlink()
            assert ended.returncode == -signal.SIGKILL

        def resume(self, run_id="order", function="agent", *options):
            return gnl("runs", "resume", run_id, "--agent", f"shop:{function}", "--db", self.path, *options)

        @property
        def effects(self):
            file = tmp_path / "effects"
            return file.read_text().splitlines() if file.exists() else []

        def content(self):
            with closing(sqlite3.connect(self.path)) as connection:
                return list(connection.iterdump())

    return Shop()


def test_a_run_waits_is_approved_and_goes_on(gnl, shop):
    shop.begin()
    listed = gnl("approvals", "list", "--db", shop.path)
    assert listed.out.splitlines()[:2] == ["order/s1p0/confirm/0", '  ship({"to": "Ayşe"})']

    waits = shop.resume()
    assert waits.code == 1
    assert "waits: order/s1p0/confirm/0" in waits.err

    approved = gnl("approvals", "approve", "order", "s1p0", "--db", shop.path)
    assert (approved.code, approved.out) == (0, "approved order/s1p0/confirm/0\n")
    assert f"answered as {getpass.getuser()}" in approved.err
    assert gnl("approvals", "list", "--db", shop.path) == (0, "", "nothing waits for a person\n")
    (answered,) = [
        finding
        for finding in gnl("doctor", "--json", "--db", shop.path).json["findings"]
        if finding["level"] not in ("ok", "note")
    ]
    assert answered["check"] == "runs.answered"

    done = shop.resume()
    assert (done.code, done.out) == (0, "all done\n")
    assert shop.effects == ["pay 5", "ship Ayşe"]
    shown = gnl("runs", "show", "order", "--db", shop.path)
    assert (shown.code, "order: completed" in shown.out) == (0, True)
    assert gnl("doctor", "--db", shop.path).code == 0


def test_a_denied_call_never_runs_and_the_model_reads_why(gnl, shop):
    shop.begin()
    denied = gnl(
        "approvals",
        "deny",
        "order/s1p0/confirm/0",
        "--actor",
        "ayşe",
        "--reason",
        "too far",
        "--json",
        "--db",
        shop.path,
    )
    assert (denied.json["approved"], denied.json["actor"], denied.json["reason"]) == (False, "ayşe", "too far")
    assert shop.resume().code == 0
    assert shop.effects == ["pay 5"]
    assert "too far" in gnl("runs", "show", "order", "--db", shop.path).out


def test_a_call_in_doubt_is_shown_refused_and_settled(gnl, shop):
    shop.begin(die=True)
    (run,) = gnl("runs", "list", "--json", "--db", shop.path).json["runs"]
    assert (run["status"], run["agent"], run["in_doubt"]) == ("interrupted", "shop", ["order/s0p0/in_doubt/1"])
    assert "order/s0p0/in_doubt/1" in gnl("approvals", "list", "--db", shop.path).out
    assert "running, in doubt" in gnl("runs", "show", "order", "--db", shop.path).out
    found = {finding["check"] for finding in gnl("doctor", "--json", "--db", shop.path).json["findings"]}
    assert {"runs.interrupted", "runs.in_doubt", "locks.dead"} <= found

    blocked = shop.resume()
    assert blocked.code == 1
    assert "waits: order/s0p0/in_doubt/1" in blocked.err
    assert [run["status"] for run in gnl("runs", "list", "--json", "--db", shop.path).json["runs"]] == ["suspended"]

    settled = gnl("approvals", "settle", "order", "s0p0", "--result", '{"id": "tr-known"}', "--db", shop.path)
    assert (settled.code, settled.out) == (0, 'settled order/s0p0/in_doubt/1: {"id": "tr-known"}\n')
    assert shop.resume().code == 1  # the shipment asks now
    assert shop.effects == ["pay 5"]
    call = gnl("runs", "show", "order", "--json", "--db", shop.path).json["model_steps"][0]["calls"][0]
    assert (call["status"], call["output"], call["settled_by"]) == ("succeeded", {"id": "tr-known"}, "person")


def test_a_call_in_doubt_that_is_approved_runs_once_more(gnl, shop):
    shop.begin(die=True)
    assert gnl("approvals", "approve", "order/s0p0/in_doubt/1", "--db", shop.path).code == 0
    assert shop.resume().code == 1
    assert shop.resume().code == 1
    assert shop.effects == ["pay 5", "pay 5"]


def test_a_result_may_stand_in_a_file(gnl, shop, tmp_path):
    shop.begin(die=True)
    (tmp_path / "result.json").write_text('"paid"')
    ended = gnl(
        "approvals",
        "settle",
        "order/s0p0/in_doubt/1",
        "--result",
        f"@{tmp_path / 'result.json'}",
        "--json",
        "--db",
        shop.path,
    )
    assert ended.json["output"] == "paid"


def test_s35_an_unknown_question_is_refused_with_the_open_ones_and_nothing_is_stored(gnl, shop):
    shop.begin()
    before = shop.content()
    for args in (
        ["order/s1p0/confirm/1"],
        ["order/s0p0/confirm/0"],
        ["order/s9p0/guard/0"],
        ["order", "s0p0"],
    ):
        ended = gnl("approvals", "approve", *args, "--db", shop.path)
        assert (ended.code, ended.out) == (2, "")
        assert "order/s1p0/confirm/0" in ended.err
    for args in (["other/s1p0/confirm/0"], ["other", "s1p0"], ["nonsense"], ["order/s1p0"]):
        assert gnl("approvals", "approve", *args, "--db", shop.path).code == 2
    assert shop.content() == before


def test_a_question_that_is_decided_keeps_its_answer(gnl, shop):
    shop.begin()
    assert gnl("approvals", "deny", "order/s1p0/confirm/0", "--actor", "ayşe", "--db", shop.path).code == 0
    assert gnl("approvals", "deny", "order/s1p0/confirm/0", "--actor", "bob", "--db", shop.path).code == 0
    ended = gnl("approvals", "approve", "order/s1p0/confirm/0", "--db", shop.path)
    assert (ended.code, ended.out) == (2, "")
    assert "was denied by ayşe already" in ended.err


def test_a_question_that_is_settled_is_said_to_be_settled_and_no_mistake_is_corrected(gnl, shop):
    shop.begin(die=True)
    question = ("order/s0p0/in_doubt/1", "--actor", "ayşe", "--db", shop.path)
    assert gnl("approvals", "settle", "--result", "[1, 2]", *question).out == "settled order/s0p0/in_doubt/1: [1, 2]\n"
    for verb in (["deny"], ["approve"], ["settle", "--result", "[1]"]):
        ended = gnl("approvals", *verb, *question)
        assert (ended.code, ended.out) == (2, "")
        assert "was settled by ayşe already" in ended.err
    again = gnl("approvals", "settle", "--result", "[1, 2]", *question)
    assert (again.code, "it was settled by ayşe already, and stays so" in again.err) == (0, True)
    assert "cannot be corrected" in " ".join(gnl("approvals", "settle", "--help").out.split())


def test_a_no_takes_the_place_of_a_yes_and_says_so(gnl, shop):
    shop.begin()
    question = ("order/s1p0/confirm/0", "--db", shop.path)
    assert "takes the place" not in gnl("approvals", "approve", *question, "--actor", "ayşe").err
    denied = gnl("approvals", "deny", *question)
    assert (denied.code, denied.out) == (0, "denied order/s1p0/confirm/0\n")
    assert "this takes the place of an earlier answer: approved by ayşe" in denied.err


def test_only_a_call_in_doubt_is_settled(gnl, shop):
    shop.begin()
    ended = gnl("approvals", "settle", "order/s1p0/confirm/0", "--result", "1", "--db", shop.path)
    assert ended.code == 2
    assert "use gnl approvals approve, or deny" in ended.err
    assert "approved=" not in ended.err


def test_the_help_says_where_status_one_holds(gnl, shop):
    shop.begin()
    assert gnl("approvals", "list", "--db", shop.path).code == 0
    told = " ".join(gnl("--help").out.split())
    assert "0 done, also for a list with open questions in it" in told
    assert "0, also where questions are open" in " ".join(gnl("approvals", "list", "--help").out.split())


def test_a_process_without_a_login_name_must_say_who_answers(gnl, shop, monkeypatch):
    shop.begin()

    def nobody():
        raise OSError("no login name")

    monkeypatch.setattr(getpass, "getuser", nobody)
    assert gnl("approvals", "approve", "order", "s1p0", "--db", shop.path).code == 2
    assert gnl("approvals", "approve", "order", "s1p0", "--actor", "ci", "--db", shop.path).code == 0


def test_the_agent_is_found_in_the_working_folder(shop, gnl_process, tmp_path):
    shop.begin()
    ended = gnl_process(
        "runs", "resume", "order", "--agent", "shop:agent", env={"GNL_DB": str(shop.path)}, cwd=tmp_path
    )
    assert (ended.code, "waits: order/s1p0/confirm/0" in ended.err) == (1, True)


def test_the_agent_may_be_async_or_drive_the_run_itself(gnl, shop):
    shop.begin()
    assert shop.resume("order", "async_agent").code == 1
    ended = shop.resume("order", "whole", "--json")
    assert ended.code == 1
    assert ended.json["finish_reason"] == "suspended"
    assert [question["question"] for question in ended.json["interrupts"]] == ["order/s1p0/confirm/0"]
    assert [(call["tool_call_id"], call["origin"]) for call in ended.json["replayed_tool_calls"]] == [("s0p0", "self")]


@pytest.mark.parametrize(
    ("function", "told"),
    [
        ("number", "returned int"),
        ("unknown_option", "'modle'"),
        ("frozen_option", "prompt"),
        ("raising", "OSError: no key"),
    ],
)
def test_an_agent_that_cannot_be_used_is_status_two(shop, function, told):
    shop.begin()
    ended = shop.resume("order", function)
    assert (ended.code, ended.out) == (2, "")
    assert told in ended.err


def test_a_program_that_fails_while_it_drives_is_status_one(shop):
    shop.begin()
    ended = shop.resume("order", "failing")
    assert (ended.code, ended.out) == (1, "")
    assert "OSError: no network" in ended.err


def test_a_run_that_is_not_there_is_not_begun(gnl, shop):
    shop.begin()
    assert shop.resume("other").code == 2
    assert [run["run_id"] for run in gnl("runs", "list", "--json", "--db", shop.path).json["runs"]] == ["order"]


def test_a_fork_is_copied_warns_of_what_acted_and_goes_its_own_way(gnl, shop):
    shop.begin()
    ended = gnl("runs", "fork", "order", "--step", "0", "--new-id", "again", "--db", shop.path)
    assert (ended.code, ended.out) == (0, "again\n")
    assert "careful: s0p0 of order acted" in ended.err
    assert gnl("runs", "fork", "order", "--step", "1", "--new-id", "later", "--db", shop.path).err == ""
    runs = {run["run_id"]: run for run in gnl("runs", "list", "--json", "--db", shop.path).json["runs"]}
    assert {name: run["status"] for name, run in runs.items()} == {
        "order": "suspended",
        "again": "ready",
        "later": "ready",
    }
    assert runs["later"]["forked_from"] == {"run": "order", "step": 1}
    assert shop.effects == ["pay 5"]
    assert shop.resume("later").code == 1
    assert shop.effects == ["pay 5"]
    assert shop.resume("again").code == 1
    assert shop.effects == ["pay 5", "pay 5"]


@pytest.mark.parametrize(
    "args",
    [
        ["order", "--step", "99", "--new-id", "n"],
        ["nobody", "--step", "0", "--new-id", "n"],
        ["order", "--step", "0", "--new-id", "order"],
        ["order", "--step", "0", "--new-id", "has space"],
        ["order", "--step", "-1", "--new-id", "n"],
    ],
)
def test_a_fork_that_cannot_be_is_refused(gnl, shop, args):
    shop.begin()
    before = shop.content()
    assert gnl("runs", "fork", *args, "--db", shop.path).code == 2
    assert shop.content() == before


def test_a_canceled_run_stays_canceled(gnl, shop):
    shop.begin()
    ended = gnl("runs", "cancel", "order", "--reason", "sold out", "--json", "--db", shop.path)
    assert ended.json == {"run_id": "order", "canceled": True, "actor": getpass.getuser()}
    assert gnl("runs", "cancel", "order", "--db", shop.path).code == 2
    assert gnl("runs", "cancel", "nobody", "--db", shop.path).code == 2
    shown = gnl("runs", "show", "order", "--db", shop.path).out
    assert "order: canceled" in shown
    assert "sold out" in shown


@pytest.mark.parametrize("command", ["crashtest", "runs"])
@pytest.mark.parametrize("last", ["asyncio.run(main())", "sys.exit(asyncio.run(main()))", "sys.exit(3)", "main_sync()"])
def test_a_module_that_runs_something_when_it_is_imported_is_refused(gnl_process, shop, tmp_path, command, last):
    shop.begin()
    (tmp_path / "program.py").write_text(
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from gnl_core import InMemoryStorage, run_durable, run_durable_sync\n"
        "from gnl_core.testing.scripted import ScriptedModel\n"
        "async def agent(journal, effects): pass\n"
        "async def main(): Path('acted').touch()\n"
        "def main_sync():\n"
        "    run_durable_sync(run_id='r', journal=InMemoryStorage().runs, model=ScriptedModel(['x']), prompt='go')\n"
        "    Path('acted').touch()\n" + last + "\n"
    )
    args = ["crashtest", "program:agent"]
    if command == "runs":
        args = ["runs", "resume", "order", "--agent", "program:agent", "--db", shop.path]
    ended = gnl_process(*args, cwd=tmp_path)
    assert (ended.code, ended.out) == (2, "")
    assert "must be importable without running anything" in ended.err
    assert "never awaited" not in ended.err
    assert not (tmp_path / "acted").exists()
