"""The program over a run whose work a sub-agent does."""

import importlib
import signal
import subprocess
import sys

from gnl_core import keys

TEAM = '''
import os
from pathlib import Path
from gnl_core import SqliteStorage, agent_tool, run_durable_sync, tool
from gnl_core.testing.scripted import ScriptedModel

@tool(confirm=True)
def refund(amount: int) -> str:
    """Refund."""
    if Path("die").exists():
        os.kill(os.getpid(), 9)
    return "refunded"

def agent():
    model = ScriptedModel([[("refund", {"amount": 3})], "clerk is done"])
    clerk = agent_tool(name="clerk", description="A clerk.", model=model, tools=[refund])
    return {"model": ScriptedModel([[("clerk", {"task": "refund"})], "all done"]), "tools": [clerk]}

def begin():
    with SqliteStorage("journal.sqlite") as storage:
        run_durable_sync(run_id="boss", journal=storage.runs, prompt="go", **agent())
'''


def test_questions_and_doubts_of_sub_agents_are_shown_under_their_root(gnl, tmp_path, monkeypatch):
    (tmp_path / "team.py").write_text(TEAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "team", raising=False)
    monkeypatch.setenv("GNL_DB", "journal.sqlite")
    importlib.import_module("team").begin()
    child = keys.child_id("boss", keys.ROOT, "s0p0")

    shown = gnl("runs", "show", "boss").out
    assert f"sub-agent {child}: suspended" in shown
    assert [question["run_id"] for question in gnl("approvals", "list", "boss", "--json").json] == [child]
    assert f"asks {child}/s0p0/confirm/0" in gnl("runs", "show", child).out
    assert gnl("approvals", "approve", child, "s0p0").code == 0

    (tmp_path / "die").touch()
    killed = subprocess.run(
        [sys.executable, "-m", "gnl_core.cli", "runs", "resume", "boss", "--agent", "team:agent"], check=False
    )
    assert killed.returncode == -signal.SIGKILL
    (tmp_path / "die").unlink()
    (run,) = gnl("runs", "list", "--json").json["runs"]
    assert (run["run_id"], run["status"], run["in_doubt"]) == ("boss", "interrupted", [f"{child}/s0p0/in_doubt/1"])
    assert gnl("approvals", "settle", f"{child}/s0p0/in_doubt/1", "--result", '"refunded by hand"').code == 0
    done = gnl("runs", "resume", "boss", "--agent", "team:agent")
    assert (done.code, done.out) == (0, "all done\n")
    assert gnl("doctor").code == 0
