"""The README's first command, in a folder whose path holds a space, with what is installed already."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gnl_fixtures import load_shipped
from gnl_semantic.judge import read_certificate

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def copy(tmp_path):
    folder = tmp_path / "a folder with spaces"
    folder.mkdir()
    shutil.copy(ROOT / "Makefile", folder)
    shutil.copytree(ROOT / "examples", folder / "examples")
    for name in ("pyproject.toml", "constraints.txt"):
        shutil.copy2(ROOT / name, folder)
    # The environment that runs these tests stands in for the installed one; its stamp says so.
    (folder / ".venv" / "bin").mkdir(parents=True)
    python = folder / ".venv" / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    return folder


def make(folder, *words):
    # These tests are run by make themselves, whose flags its children would take for their own.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    environment["GNL_CACHE_DIR"] = str(folder / "cache")
    return subprocess.run(["make", *words], cwd=folder, env=environment, capture_output=True, text=True, check=False)


def some_pairs(path):
    """Write every tenth pair of the calibration set, so that the calibration takes seconds."""
    pairs = load_shipped("calibration").pairs[::10]
    names = ("id", "domain", "lang", "tool_name", "a", "b", "label")
    rows = [{name: getattr(pair, name) for name in names} for pair in pairs]
    path.write_text(json.dumps({"v": 1, "pairs": rows}), encoding="utf-8")


def test_the_first_command_runs_the_main_job_and_says_where_the_reports_are(copy):
    (copy / ".venv" / ".installed-qualify").touch()
    some_pairs(copy / "some.json")
    done = make(copy, "run", "CALIBRATION=--fixtures some.json")
    assert done.returncode == 0, done.stderr
    assert "FAILED\n" in done.stdout
    assert "CERTIFIED\n" in done.stdout
    assert "out/comparison.html" in done.stdout
    assert "4 calls, 2 tickets" in done.stdout
    for name in ("calibration", "ladder", "local", "comparison", "live"):
        assert (copy / "out" / f"{name}.html").stat().st_size > 10_000
    assert not (copy / "out" / "ladder-cert.json").exists()
    certificate = read_certificate(copy / "out" / "gnl-judge-cert.json")
    assert certificate.judge_model_id.startswith("builtin:local")
    assert "pip" not in done.stdout + done.stderr
    # The console is read by whoever tunes, the held-out pairs are not.
    texts = {text for pair in load_shipped("heldout").pairs for text in (pair.a, pair.b) if len(text) > 12}
    assert not [text for text in texts if text in done.stdout + done.stderr]


def test_what_is_installed_is_not_installed_again(copy):
    (copy / ".venv" / ".installed-qualify").touch()
    dry = make(copy, "-n", "run")
    assert "pip install" not in dry.stdout
    (copy / ".venv" / ".installed-qualify").unlink()
    dry = make(copy, "-n", "run")
    assert "pip install" in dry.stdout


def test_an_exam_that_could_not_be_sat_fails_the_command(copy):
    (copy / ".venv" / ".installed-qualify").touch()
    (copy / "out").mkdir()
    (copy / "out" / "ladder.html").mkdir()
    done = make(copy, "exam")
    assert done.returncode != 0
    assert "ladder.html" in done.stderr
