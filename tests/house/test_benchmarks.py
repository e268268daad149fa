"""The benchmark of the durable runtime runs: its floor alone, which needs no peer."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def durable(*words):
    command = [sys.executable, str(ROOT / "benchmarks" / "durable.py"), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def test_help_names_every_contender():
    done = durable("--help")
    assert done.returncode == 0, done.stderr
    for name in ("raw", "ours", "call4agents", "langgraph", "dbos"):
        assert name in done.stdout


def test_the_floor_is_measured_round_by_round(tmp_path):
    done = durable("--only", "raw", "raw-ready", "--steps", "7", "--rounds", "2", "--dir", str(tmp_path), "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert list(result["rounds"]) == ["raw", "raw-ready"]
    for rounds in result["rounds"].values():
        assert [(one["durable"], one["effects"], one["settings"]) for one in rounds] == [(7, 7, "wal, FULL")] * 2
    assert list(tmp_path.iterdir()) == []
