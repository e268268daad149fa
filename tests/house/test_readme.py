"""The README's examples run as they stand, and its commands exist."""

import asyncio
import re
import shlex
from importlib.resources import files
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from gnl_core import SqliteStorage, read_run
from gnl_core.cli.app import cli as gnl
from gnl_qualify.cli import cli

README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
RUN, RECOVER, STREAM, OWN_LOOP, GATE, WORK, WORKFLOW, BATCH, JUDGE, LIBRARY = BLOCKS

PAYMENTS = """
class Payments:
    def __init__(self):
        self.charges = {}

    async def find(self, key):
        return self.charges.get(key)

    async def charge(self, order_id, amount, *, idempotency_key):
        return self.charges.setdefault(idempotency_key, {"receipt": f"r-{order_id}", "amount": amount})


payments = Payments()
"""
FIRST_TOOL = RUN[RUN.index("@tool") : RUN.index("async def main")]
AROUND = """
import asyncio

from gnl_core import *
from gnl_core.testing import ScriptedModel


async def main(journal, model):
"""


def around(body, tools=RECOVER):
    indented = "".join(f"    {line}\n" for line in body.splitlines())
    turns = [[("charge_card", {"order_id": "7", "amount": 4200})], "The order is paid."]
    drive = f"asyncio.run(main(storage.runs, ScriptedModel({turns!r})))"
    end = f"\n\nwith SqliteStorage('runs.db') as storage:\n    {drive}\n"
    return PAYMENTS + tools + AROUND + indented + end


def test_the_first_example_runs_and_runs_again(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        exec(compile(RUN, "README.md", "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out == "The order is paid.\n" * 2
    with SqliteStorage("runs.db") as storage:
        assert len(asyncio.run(read_run(storage.runs, "order-123")).steps) == 2


@pytest.mark.parametrize("block", [STREAM, OWN_LOOP, WORK, WORKFLOW])
def test_the_other_ways_to_run_do_the_work_once(block, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    scope = {"__name__": "__main__"}
    for _ in range(2):
        exec(compile(around(block), "README.md", "exec"), scope)
        assert capsys.readouterr().out.endswith("The order is paid.\n")
    # The payments of the second time are empty: nothing was charged again.
    assert scope["payments"].charges == {}


def test_the_workflow_takes_the_first_example_s_tool_as_well(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code = around(WORKFLOW, "from gnl_core import tool\n" + FIRST_TOOL)
    exec(compile(code, "README.md", "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out == "r-7: delivered. The order is paid.\n"


def test_the_batch_of_the_readme_does_each_item_once(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for told, charged in (("{'done': 2}", 2), ("{'replayed': 2}", 0)):
        scope = {"__name__": "__main__"}
        exec(compile(around(BATCH), "README.md", "exec"), scope)
        assert (capsys.readouterr().out.strip(), len(scope["payments"].charges)) == (told, charged)


def test_the_semantic_gate_of_the_readme_asks_about_the_second_wording(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    turns = ("Refund order 4471, both chairs arrived broken", "order 4471: two broken chairs arrived, refund it")
    for number, words in enumerate(turns):
        call = ("open_ticket", {"subject": words, "customer": "Ada"})
        around_it = around(GATE).replace("chat-7-turn-12", f"turn-{number}")
        code = re.sub(r"ScriptedModel\(.*\)\)\)", f"ScriptedModel({[[call], 'Done.']!r})))", around_it)
        code = "from gnl_semantic import Judge, SemanticGate\nopened = []\n" + code
        hand_over = "\ndef send_to_help_desk(subject: str, customer: str) -> str:\n    return 'ticket 1'\n"
        exec(compile(hand_over + code, "README.md", "exec"), {"__name__": "__main__"})
    (told,) = capsys.readouterr().out.splitlines()
    assert "refund order 4471" in told.casefold()
    assert "Ada: Refund order 4471, both chairs arrived broken" in told


def test_the_judge_of_the_readme_sits_the_exam(tmp_path):
    judge = "async def my_model(system, user):\n    return 'UNSURE'\n\n" + JUDGE
    (tmp_path / "my_judge.py").write_text(judge, encoding="utf-8")
    out = ["--out", str(tmp_path / "cert.json"), "--limit", "20"]
    done = CliRunner().invoke(cli, ["--judge", str(tmp_path / "my_judge.py"), "--model", "m", *out])
    assert done.exit_code == 1
    assert "paraphrase recall" in done.stdout


def test_the_library_example_runs_to_its_end(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("GNL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out").mkdir()
    # What `make run` writes is the certificate that ships with the judge, but for its date.
    shipped = files("gnl_semantic.judge.local") / "certificate.json"
    (tmp_path / "out" / "gnl-judge-cert.json").write_bytes(shipped.read_bytes())
    exec(compile(LIBRARY, "README.md", "exec"), {"__name__": "__main__"})
    outcome, similarity, verdict = capsys.readouterr().out.splitlines()
    assert (outcome, verdict) == ("match", "same")
    assert 0.9 < float(similarity.strip("[]")) <= 1


@pytest.mark.parametrize("line", re.findall(r"\.venv/bin/gnl-semantic-qualify (.*)", README))
def test_every_option_named_is_one_of_the_programs(line):
    words = shlex.split(line.split(" # ")[0], comments=True)
    command = cli.commands[words[0]] if words and words[0] in cli.commands else cli
    known = {name for parameter in command.params for name in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known


GNL = [*re.findall(r"\.venv/bin/gnl ([^`\n]+)", README), *re.findall(r"`gnl ([^`]+)`", README)]


@pytest.mark.parametrize("line", sorted(set(GNL)))
def test_every_command_of_gnl_that_is_named_exists_and_takes_what_it_is_given(line):
    command, known, words = gnl, {name for one in gnl.params for name in one.opts}, shlex.split(line)
    for word in words:
        if word.startswith("-"):
            continue
        names = [name for name in word.split("|") if isinstance(command, click.Group) and name in command.commands]
        if isinstance(command, click.Group) and re.fullmatch(r"[a-z|-]+", word):
            assert len(names) == len(word.split("|")), word
        if len(names) == 1:
            command = command.commands[names[0]]
            known |= {name for one in command.params for name in one.opts}
    assert {word.partition("=")[0] for word in words if word.startswith("--")} <= known


def test_commands_of_gnl_are_named():
    assert len(GNL) > 15
