"""Child processes that use a journal's file: programs given as text, run by this interpreter, killed for real."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PROLOGUE = """
import asyncio, os, resource, signal, sqlite3, sys, threading
from gnl_core.errors import *
from gnl_core.journal import *
from gnl_core.journal.sqlite import SqliteStorage
path = sys.argv[1]
"""


@pytest.fixture
def child(request):
    """Start a program beside this one: `child(text, path, *arguments)`; killed at the end if it still runs."""
    started = []

    def start(text, *arguments, **options):
        process = subprocess.Popen(
            [
                sys.executable,
                "-X",
                "dev",
                "-W",
                "error",
                "-W",
                "ignore:This process:DeprecationWarning",
                "-c",
                PROLOGUE + textwrap.dedent(text),
                *map(str, arguments),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[3],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
            **options,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def run(child):
    """Run a program to its end and return what it printed; anything on stderr, or another exit code, fails."""

    def go(text, *arguments, **options):
        process = child(text, *arguments, **options)
        out, err = process.communicate(timeout=60)
        assert (process.returncode, err) == (0, ""), err
        return out

    return go
