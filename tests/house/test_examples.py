"""The examples run as they stand."""

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_no_double_charge_shows_a_real_kill_and_one_charge_a_run(tmp_path):
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "no_double_charge.py")],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "exit status 9, charges so far: 1" in done.stdout
    assert "SideEffectRetryBlockedError, question order-A-17/s0p0/in_doubt/1" in done.stdout
    assert "Two runs, two kills, 2 charges" in done.stdout
    (ledger,) = tmp_path.glob("no-double-charge-*/ledger.jsonl")
    assert len(ledger.read_text().splitlines()) == 2


def test_paraphrase_twice_asks_about_two_repeats_and_lets_a_look_alike_run(tmp_path):
    journal = tmp_path / "runs.db"
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "paraphrase_twice.py"), str(journal)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    first, second, third, fourth, last = done.stdout.strip().split("\n\n")
    assert "It ran" in first
    assert "A person is asked: Similar work was already completed" in second
    assert "identity fields (subject) differ" in second
    assert "It ran" in third, "4417 is not 4471"
    assert "A person is asked: Work with the same business identity (subject), written differently," in fourth
    assert last.startswith("4 calls, 2 tickets: ")
    assert journal.exists()


def test_two_workers_on_one_server_are_killed_at_will_and_each_job_is_done_once(tmp_path, new_cluster):
    cluster = new_cluster().start()
    luck = random.Random(3)
    log, jobs, kills = tmp_path / "log.jsonl", 10, 5
    words = ["--db", cluster.dsn, "--log", str(log), "--jobs", str(jobs), "--seconds", "0.1"]

    def begin():
        talk = (tmp_path / "talk.txt").open("a")
        command = [sys.executable, "-W", "error", str(ROOT / "examples" / "two_workers.py"), *words]
        with talk:
            return subprocess.Popen(command, stdout=talk, stderr=talk, cwd=tmp_path)

    def effects():
        return log.read_text().splitlines() if log.exists() else []

    def listed():
        command = [sys.executable, "-m", "gnl_core.cli", "--db", cluster.dsn, "runs", "list", "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["runs"]

    workers = [begin(), begin()]
    try:
        for killed in range(1, kills + 1):
            give_up = time.monotonic() + 60
            while len(effects()) < killed:
                assert time.monotonic() < give_up, (tmp_path / "talk.txt").read_text()
                time.sleep(0.002)
            time.sleep(luck.uniform(0, 0.12))  # anywhere in a job
            fallen = luck.randrange(2)
            workers[fallen].kill()
            workers[fallen].wait()
            workers[fallen] = begin()
            assert {run["status"] for run in listed()} <= {"running", "interrupted", "completed"}
        assert [worker.wait(timeout=120) for worker in workers] == [0, 0], (tmp_path / "talk.txt").read_text()
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    done = [json.loads(line)["invoice"] for line in effects()]
    assert sorted(done) == [f"invoice-{number:03}" for number in range(1, jobs + 1)]
    runs = listed()
    cluster.stop()
    assert [run["status"] for run in runs] == ["completed"] * jobs


def test_batch_shows_its_plan_and_a_person_decides_on_the_repeat(tmp_path):
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "batch.py")], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (
        "INV-2: Work with the same business identity (invoice) was already completed just now, via chat" in done.stdout
    )
    assert "One job twice in this batch: INV-3, inv-3; with another amount." in done.stdout
    assert "2. INV-1 done, INV-2 suspended, INV-3 done" in done.stdout
    assert "3. After the answer: INV-1 replayed, INV-2 denied, INV-3 replayed" in done.stdout
    assert done.stdout.endswith("Paid: inv-2, INV-1, INV-3\n")


def test_workflow_dies_waits_and_ends_with_one_charge(tmp_path):
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "workflow.py")],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "ended with status 9" in done.stdout
    assert "suspended: waits for ['bank'], output None" in done.stdout
    assert (
        "completed: waits for [], output {'order': 'A-17', 'receipt': 'receipt', 'cleared': 'on 2 April'}"
        in done.stdout
    )
    assert "Charges: 1" in done.stdout


@pytest.mark.llm
def test_chat_talks_to_a_real_server_and_keeps_each_turn_as_a_run(tmp_path, real_llm):
    command = [
        sys.executable,
        str(ROOT / "examples" / "chat.py"),
        *("--base-url", real_llm.base_url, "--model", real_llm.model, "--key-env", real_llm.key_env),
        *("--thread", "support-1"),
    ]
    done = subprocess.run(
        command, cwd=tmp_path, input="Say hello.\nSay it again.\n", capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("> ") == 2
    listed = subprocess.run(
        [sys.executable, "-m", "gnl_core.cli", "runs", "list", "--db", "chat.db"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "support-1-turn-1" in listed.stdout
    assert "support-1-turn-2" in listed.stdout
