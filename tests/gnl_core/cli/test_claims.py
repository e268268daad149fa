"""Work that is named by a key: what a killed program leaves of it, for another run and for a person."""

import asyncio
import importlib
import signal
import subprocess
import sys

import pytest

from gnl_core import SqliteStorage, keys
from gnl_core.errors import SideEffectRetryBlockedError, ToolError
from gnl_core.journal import Delete, Put, new_batch, scan_all

BANK = '''
import asyncio, os
from pathlib import Path
from gnl_core import Context, SqliteStorage, run_durable_sync, tool, with_idempotency
from gnl_core.testing.effects import EffectLog
from gnl_core.testing.scripted import ScriptedModel

HERE = Path(__file__).parent
EFFECTS = EffectLog(HERE / "effects.jsonl")

def act(ctx: Context, order: str) -> str:
    """Pay an order."""
    if (HERE / "decline").exists():
        raise OSError("the line broke")
    EFFECTS.fire("pay", ctx, "paid")
    if (HERE / "die").exists():
        os.kill(os.getpid(), 9)
    return "paid"

def recover(order: str) -> dict:
    return {"done": True, "output": "found"}

def pay(*, knows=False, **options):
    hook = {"recover": recover} if knows else {}
    return tool(act, name="pay", idempotency_key=lambda args: args["order"], window="cross-run", **hook, **options)

def drive(run_id, *, knows=False):
    with SqliteStorage(HERE / "journal.sqlite") as storage:
        model = ScriptedModel([[("pay", {"order": "o-1"})], "done"])
        return run_durable_sync(run_id=run_id, journal=storage.runs, model=model, tools=[pay(knows=knows)], prompt="go")

def alone(order="o-1", claim_ttl=None, **options):
    async def do():
        async with SqliteStorage(HERE / "journal.sqlite") as storage:
            return await with_idempotency(pay(claim_ttl=claim_ttl), storage.runs, **options)(order=order)

    return asyncio.run(do())
'''


class Bank:
    """A program that pays an order once, whoever asks; and its journal."""

    def __init__(self, folder, gnl):
        self.folder, self.path, self._gnl = folder, folder / "journal.sqlite", gnl

    def __getattr__(self, name):
        return getattr(importlib.import_module("bank"), name)

    def killed_in(self, code):
        (self.folder / "die").touch()
        ended = subprocess.run([sys.executable, "-c", f"import bank; {code}"], cwd=self.folder, check=False)
        (self.folder / "die").unlink()
        assert ended.returncode == -signal.SIGKILL

    def gnl(self, *args):
        return self._gnl(*args, "--db", self.path)

    @property
    def paid(self):
        return self.EFFECTS.count("pay")

    def calls(self, run_id):
        return self.gnl("runs", "show", run_id, "--json").json["model_steps"][0]["calls"]

    def on(self, work):
        async def do():
            async with SqliteStorage(self.path) as storage:
                return await work(storage.runs)

        return asyncio.run(do())

    def write(self, *ops):
        self.on(lambda journal: journal.apply(ops, batch=new_batch()))

    def rows(self):
        async def read(journal):
            return {entry.key: entry.value async for entry in scan_all(journal, ())}

        return self.on(read)

    def findings(self, level):
        return [one for one in self.gnl("doctor", "--json").json["findings"] if one["level"] == level]


@pytest.fixture
def bank(tmp_path, gnl, monkeypatch):
    (tmp_path / "bank.py").write_text(BANK)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "bank", raising=False)
    return Bank(tmp_path, gnl)


@pytest.mark.parametrize("way", ["settle", "deny", "recover"])
def test_a_claim_settled_through_another_run_is_whole_in_both(bank, way):
    bank.killed_in("bank.drive('r1')")
    if way == "settle":
        bank.gnl("approvals", "settle", "r1/s0p0/in_doubt/1", "--result", '"known"')
    elif way == "deny":
        bank.gnl("approvals", "deny", "r1/s0p0/in_doubt/1")
    for run_id in ("r2", "r1"):
        assert bank.drive(run_id, knows=way == "recover").text == "done"
        (call,) = bank.calls(run_id)
        assert call["status"] == ("denied" if way == "deny" else "succeeded")
        assert call["output"] == {"settle": "known", "deny": None, "recover": "found"}[way]
        assert bank.gnl("runs", "show", run_id).code == 0
        assert bank.findings("fault") == []
    assert bank.paid == 1


KEY = "xrun/args/pay/"


def only(bank):
    (claim,) = bank.gnl("claims", "list", "--json").json
    return claim


def blocked(do):
    with pytest.raises(SideEffectRetryBlockedError) as error:
        do()
    return error.value


def test_work_in_no_run_left_in_doubt_is_listed_and_settled(bank):
    bank.killed_in("bank.alone()")
    claim = only(bank)
    assert claim["key"].startswith(KEY)
    assert (claim["tool"], claim["args"], claim["status"]) == ("pay", {"order": "o-1"}, "in_doubt")
    assert (claim["run_id"], claim["question"], claim["attempts"]) == ("", "", 1)
    listed = bank.gnl("claims", "list")
    assert listed.code == 0
    assert listed.out.splitlines()[0] == claim["key"]
    assert "by with_idempotency, in no run" in listed.out
    (waits,) = bank.findings("waits")
    assert (waits["check"], waits["key"]) == ("claims.open", claim["key"])
    assert f"gnl claims release {claim['key']}" in waits["advice"]

    settled = bank.gnl("claims", "settle", claim["key"], "--result", '{"receipt": 7}')
    assert (settled.code, settled.out) == (0, f'settled {claim["key"]}: {{"receipt": 7}}\n')
    assert bank.alone() == {"receipt": 7}
    assert (bank.paid, bank.gnl("claims", "list").err) == (1, "no claim is in doubt or failed\n")
    assert bank.gnl("doctor").code == 0


def test_work_in_no_run_left_in_doubt_is_released(bank):
    bank.killed_in("bank.alone()")
    key = only(bank)["key"]
    told = str(blocked(bank.alone))
    assert f"gnl claims release | settle {key}" in told
    assert "gnl approvals" not in told
    ended = bank.gnl("claims", "release", key, "--json")
    assert (ended.code, ended.json) == (0, {"key": key, "released": True})
    assert (bank.alone(), bank.paid) == ("paid", 2)
    assert bank.gnl("claims", "release", key).code == 2


def test_a_run_that_meets_it_names_that_way_out_and_asks_no_question_that_nobody_can_answer(bank):
    bank.killed_in("bank.alone()")
    key = only(bank)["key"]
    error = blocked(lambda: bank.drive("r1"))
    assert f"gnl claims release | settle {key}" in str(error)
    assert "in_doubt/" not in str(error)
    assert (error.interrupts, error.detail["question"]) == ((), "")
    assert bank.gnl("approvals", "list").err == "nothing waits for a person\n"
    found = {one["check"] for one in bank.findings("waits")}
    assert "claims.open" in found
    assert "runs.answered" not in found
    bank.gnl("claims", "settle", key, "--result", '"known"')
    assert bank.drive("r1").text == "done"
    assert (bank.calls("r1")[0]["output"], bank.paid) == ("known", 1)
    assert bank.gnl("doctor").code == 0


def test_a_claim_of_a_conversation_and_one_that_failed(bank, tmp_path):
    (tmp_path / "decline").touch()
    with pytest.raises(ToolError, match="the line broke"):
        bank.alone(window="thread", thread_id="talk/1", resource_id="ann")
    (tmp_path / "decline").unlink()
    claim = only(bank)
    assert claim["key"].startswith("xthr/talk%2F1/args/pay/")
    assert (claim["status"], claim["thread_id"], claim["resource_id"]) == ("failed", "talk/1", "ann")
    assert claim["error"]["type"] == "OSError"
    listed = bank.gnl("claims", "list").out
    assert "on behalf of ann" in listed
    assert "failed: OSError: the line broke" in listed
    assert bank.gnl("claims", "release", claim["key"]).code == 0
    assert bank.alone(window="thread", thread_id="talk/1", resource_id="ann") == "paid"


@pytest.mark.parametrize("verb", ["release", "settle"])
def test_a_claim_that_a_run_made_names_its_question_and_may_be_freed_all_the_same(bank, verb):
    bank.killed_in("bank.drive('r1')")
    claim = only(bank)
    assert (claim["run_id"], claim["question"]) == ("r1", "r1/s0p0/in_doubt/1")
    assert "asks r1/s0p0/in_doubt/1" in bank.gnl("claims", "list").out
    assert "claims.open" not in {one["check"] for one in bank.findings("waits")}
    option = ("--result", '"known"') if verb == "settle" else ()
    assert bank.gnl("claims", verb, claim["key"], *option).code == 0
    assert bank.gnl("approvals", "list").err == "nothing waits for a person\n"
    assert bank.drive("r1").text == "done"
    assert bank.paid == (1 if verb == "settle" else 2)
    assert bank.gnl("doctor").code == 0


@pytest.mark.parametrize(("ttl", "listed"), [(600, False), (0.001, True)])
def test_a_claim_is_left_alone_while_it_is_fresh_or_its_process_lives(bank, tmp_path, ttl, listed):
    (tmp_path / "die").touch()
    code = "import bank, os, sys; os.kill = lambda *_: (print('in', flush=True), sys.stdin.read())"
    with subprocess.Popen(
        [sys.executable, "-c", f"{code}; print(bank.alone(claim_ttl={ttl}))"],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout.readline() == "in\n"
        key = next(keys.encode(key) for key in bank.rows() if key[0] == "xrun")
        refused = bank.gnl("claims", "release", key)
        assert (refused.code, refused.out) == (2, "")
        if listed:
            assert f"process {process.pid} of this host, which is alive" in refused.err
        else:
            assert "may still be executing: look again in" in refused.err
        assert (bank.gnl("claims", "list", "--json").json != []) is listed
        process.stdin.close()
        assert process.stdout.read() == "paid\n"
    done = bank.gnl("claims", "release", key)
    assert (done.code, "'succeeded'" in done.err) == (2, True)
    assert bank.paid == 1


@pytest.mark.parametrize("key", ["nonsense", "xrun/args/pay", "run/r/~/head", "xrun/args/pay/none", "%"])
def test_what_is_no_claim_is_refused(bank, key):
    bank.alone()
    for args in (["release", key], ["settle", key, "--result", "1"]):
        ended = bank.gnl("claims", *args)
        assert (ended.code, ended.out) == (2, "")
        assert "gnl claims list" in ended.err


def test_a_claim_that_cannot_be_read_hides_no_other(bank):
    bank.killed_in("bank.alone()")
    bank.write(Put(("xrun", "args", "pay", "broken"), {"f": 1}))
    ended = bank.gnl("claims", "list")
    assert ended.code == 1
    assert ended.out.startswith(KEY)
    assert "unreadable: the row xrun/args/pay/broken" in ended.err


def test_a_missing_record_is_not_first_looked_for_in_a_copy(bank):
    bank.drive("r1")
    bank.write(Delete(keys.tool("r1", keys.ROOT, 0, 0)))
    (fault,) = bank.findings("fault")
    assert "call s0p0, whose record is missing" in fault["text"]
    assert "Fork the run at step 0" in fault["text"]
    assert fault["advice"].index("gnl runs fork r1 --step N") < fault["advice"].index("copy of the journal")
