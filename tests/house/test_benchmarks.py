"""The benchmarks run, in small: the floor of the durable one alone, and of the others what needs no peer."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(program, *words):
    command = [sys.executable, str(ROOT / "benchmarks" / program), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)


def durable(*words):
    return run("durable.py", *words)


@pytest.fixture
def open_folder(new_cluster):
    """A folder that the server's own user may enter; `new_cluster` tells what a server needs."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


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


def test_load_measures_each_contender_at_each_number_of_runs_and_names_who_is_left_out(open_folder):
    words = ["--only", "ours-sqlite", "ours-postgres", "dbos-sqlite", "--at-once", "1", "3"]
    sizes = ["--steps", "3", "--total", "18", "--rounds", "2", "--connections", "4"]
    done = run("load.py", *words, *sizes, "--dir", str(open_folder), "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert list(result["rounds"]) == ["1", "3"]
    for by_name in result["rounds"].values():
        for name in ("ours-sqlite", "ours-postgres"):
            assert [one["steps"] for one in by_name[name]] == [18, 18]
            for one in by_name[name]:
                assert 0 < one["p50_ms"] <= one["p95_ms"] <= one["p99_ms"]
                assert one["steps_per_s"] > 0
    server = result["facts"]["server"]
    assert (server["fsync"], server["synchronous_commit"]) == ("on", "on")
    assert ("dbos-sqlite" in result["missing"]) != ("dbos-sqlite" in result["rounds"]["1"])
    assert list(open_folder.iterdir()) == []


def test_load_prints_a_table_with_what_is_compared(tmp_path):
    words = ["--only", "ours-sqlite", "--at-once", "2", "--steps", "2", "--total", "4", "--rounds", "1"]
    done = run("load.py", *words, "--dir", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "gnl, SQLite" in done.stdout
    assert "medians of 1 interleaved rounds" in done.stdout
    assert "only gnl's say that an effect was begun" in done.stdout


def test_scale_reads_the_same_rows_in_both_stores_before_and_after(open_folder):
    sizes = ["--runs", "30", "--rows", "2000", "--records", "40", "--rounds", "1"]
    done = run("scale.py", *sizes, "--dir", str(open_folder), "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert list(result["lists"]) == list(result["points"]) == ["sqlite", "postgres"]
    for one in result["points"].values():
        before, after = one["rows"]
        assert after >= before + 2000
        assert set(one["ratio"]) == {"point read, median", "point read, p95", "recall, cold", "recall, warm"}
    assert list(open_folder.iterdir()) == []


def test_a_run_is_watched_in_every_round_and_the_looks_are_counted(open_folder):
    done = run("watch.py", "--steps", "4", "--rounds", "2", "--dir", str(open_folder), "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert list(result) == ["sqlite", "postgres"]
    for one in result.values():
        assert len(one["ratios"]) == 2
        assert one["looks"] >= 2
        assert min(one["alone_ms"], one["watched_ms"], one["look_ms"]) > 0
    assert list(open_folder.iterdir()) == []
