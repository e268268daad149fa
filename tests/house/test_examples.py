"""The examples run as they stand."""

import os
import subprocess
import sys
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
