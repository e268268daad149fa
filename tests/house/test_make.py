"""The README's first command, in a folder whose path holds a space, with what is installed already."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def copy(tmp_path):
    folder = tmp_path / "a folder with spaces"
    folder.mkdir()
    shutil.copy(ROOT / "Makefile", folder)
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


def test_the_first_command_runs_the_main_job_and_says_where_the_report_is(copy):
    (copy / ".venv" / ".installed-qualify").touch()
    done = make(copy, "run")
    assert done.returncode == 0, done.stderr
    assert "FAILED\n" in done.stdout
    assert done.stdout.rstrip().endswith("out/exam.html")
    assert (copy / "out" / "exam.html").stat().st_size > 10_000
    assert not (copy / "out" / "gnl-judge-cert.json").exists()
    assert "pip" not in done.stdout + done.stderr


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
    (copy / "out" / "exam.html").mkdir()
    done = make(copy, "exam")
    assert done.returncode != 0
    assert "exam.html" in done.stderr
