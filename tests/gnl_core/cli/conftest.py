"""The program `gnl` as tests call it, and journals in real files."""

import asyncio
import json
import os
import subprocess
import sys
from typing import NamedTuple

import pytest

from gnl_core.cli import main
from gnl_core.journal import new_batch
from gnl_core.journal.sqlite import SqliteStorage


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)


@pytest.fixture
def gnl(capsys, monkeypatch):
    """Call the program in this process."""
    monkeypatch.delenv("GNL_DB", raising=False)

    def call(*args):
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(arg) for arg in args])
        out, err = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return Ended(ended.value.code, out, err)

    return call


@pytest.fixture
def gnl_process():
    """Call the program in a process of its own."""

    def call(*args, env=None, **options):
        ended = subprocess.run(
            [sys.executable, "-m", "gnl_core.cli", *map(str, args)],
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            check=False,
            **options,
        )
        return Ended(ended.returncode, ended.stdout, ended.stderr)

    return call


class Book:
    """A journal in a file, written row by row as the runtime writes it."""

    def __init__(self, path, rows):
        self.path = path
        self.head, self.step, self.call = rows.head, rows.step, rows.call
        self.lock, self.dead_lock = rows.lock, rows.dead_lock

    def write(self, *ops):
        async def do():
            async with SqliteStorage(self.path) as storage:
                await storage.runs.apply(ops, batch=new_batch())

        asyncio.run(do())


@pytest.fixture
def book(tmp_path, rows):
    return Book(tmp_path / "journal.sqlite", rows)
