"""A newcomer's first hour: a file of one's own, a kill inside a side effect, and the program's way out of it."""

import json
import os
import signal
import subprocess
import sys

import pytest

AGENT = '''
import asyncio
import json
import os
import sys

from gnl_core import SideEffectRetryBlockedError, SqliteStorage, run_durable, tool
from gnl_core.testing import ScriptedModel


@tool(side_effect=False)
def stock(sku: str) -> int:
    """Look how many there are."""
    return 3


@tool
def charge(order: str, amount: int) -> dict:
    """Charge the customer's card."""
    with open("ledger.jsonl", "a") as ledger:
        ledger.write(json.dumps({"order": order, "amount": amount}) + "\\n")
        ledger.flush()
        os.fsync(ledger.fileno())
    if os.environ.get("STOP_HERE"):
        print("charged", flush=True)
        sys.stdin.read()  # the process is killed while it waits here
    return {"receipt": amount}


async def main():
    model = ScriptedModel([[("stock", {"sku": "book"})], [("charge", {"order": "7", "amount": 42})], "It is paid."])
    async with SqliteStorage("runs.db") as storage:
        try:
            result = await run_durable(
                run_id="order-7", journal=storage.runs, model=model, tools=[stock, charge], prompt="Sell the book."
            )
        except SideEffectRetryBlockedError as blocked:
            sys.exit("; ".join(question.question for question in blocked.interrupts))
        print(result.text, [(call.tool_name, call.status) for call in result.replayed_tool_calls])


if __name__ == "__main__":
    asyncio.run(main())
'''


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "agent.py").write_text(AGENT, encoding="utf-8")
    return tmp_path


def environment(**more):
    return {**{name: value for name, value in os.environ.items() if name != "GNL_DB"}, **more}


def drive(folder):
    return subprocess.run(
        [sys.executable, "agent.py"],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
        check=False,
    )


def drive_and_kill(folder):
    """Kill the agent's process while its tool has acted and has not returned."""
    with subprocess.Popen(
        [sys.executable, "agent.py"],
        cwd=folder,
        env=environment(STOP_HERE="1"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout.readline() == "charged\n"
        finally:
            process.kill()
        return process.wait()


def gnl(folder, *args):
    """Call the program; return its exit status and what it printed."""
    ended = subprocess.run(
        [sys.executable, "-m", "gnl_core.cli", *args],
        cwd=folder,
        env=environment(GNL_DB="runs.db"),
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
        check=False,
    )
    assert "Traceback" not in ended.stderr
    return ended.returncode, ended.stdout


def ledger(folder):
    return [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()]


def levels(text):
    """What the doctor says that needs somebody, by check."""
    lines = [line.split("  ", 1) for line in text.splitlines() if line.startswith(("WAITS", "FAULT"))]
    return {(level, rest.partition(":")[0]) for level, rest in lines}


CHARGED = [{"order": "7", "amount": 42}]
QUESTION = "order-7/s1p0/in_doubt/1"


def test_a_killed_side_effect_is_asked_about_settled_and_never_done_again(folder):
    assert drive_and_kill(folder) == -signal.SIGKILL
    assert ledger(folder) == CHARGED
    code, text = gnl(folder, "doctor")
    assert (code, levels(text)) == (1, {("WAITS", "runs.interrupted"), ("WAITS", "runs.in_doubt")})

    for _ in range(2):
        blocked = drive(folder)
        assert (blocked.returncode, blocked.stdout) == (1, "")
        assert blocked.stderr.strip().endswith(QUESTION)
        assert ledger(folder) == CHARGED

    code, text = gnl(folder, "approvals", "list")
    assert (code, text.splitlines()[:2]) == (0, [QUESTION, '  charge({"order": "7", "amount": 42})'])
    code, text = gnl(folder, "approvals", "list", "--json")
    (question,) = json.loads(text)
    assert (question["question"], question["tool_name"]) == (QUESTION, "charge")
    code, text = gnl(folder, "runs", "show", "order-7")
    assert code == 0
    assert QUESTION in text

    code, text = gnl(folder, "approvals", "settle", QUESTION, "--actor", "ann", "--result", '{"receipt": 42}')
    assert (code, text) == (0, f'settled {QUESTION}: {{"receipt": 42}}\n')
    code, text = gnl(folder, "doctor")
    assert (code, levels(text)) == (1, {("WAITS", "runs.answered")})

    done = drive(folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "It is paid. [('stock', 'succeeded')]\n"
    assert ledger(folder) == CHARGED

    code, text = gnl(folder, "runs", "show", "order-7", "--json")
    shown = json.loads(text)
    assert (code, shown["status"], shown["open_questions"], shown["problems"]) == (0, "completed", [], [])
    (charge,) = shown["model_steps"][1]["calls"]
    assert (charge["status"], charge["output"], charge["settled_by"]) == ("succeeded", {"receipt": 42}, "person")
    assert [(one["question"], one["actor"]) for one in shown["answers"]] == [(QUESTION, "ann")]
    code, text = gnl(folder, "doctor")
    assert (code, levels(text)) == (0, set())
    assert "1 runs looked at" in text

    again = drive(folder)
    assert (again.returncode, again.stdout) == (0, "It is paid. [('stock', 'succeeded'), ('charge', 'succeeded')]\n")
    assert ledger(folder) == CHARGED
