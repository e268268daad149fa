"""The program `gnl` as tests call it, and journals in real files."""

import asyncio
import json
import os
import subprocess
import sys
from typing import NamedTuple

import pytest

from gnl_core import keys
from gnl_core.cli import main
from gnl_core.journal import Put, new_batch
from gnl_core.journal.sqlite import SqliteStorage
from gnl_core.model.messages import ModelResponse, Usage
from gnl_core.owner import new_owner
from gnl_core.records import CallRecord, StepRecord


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

    def __init__(self, path):
        self.path = path

    def write(self, *ops):
        async def do():
            async with SqliteStorage(self.path) as storage:
                await storage.runs.apply(ops, batch=new_batch())

        asyncio.run(do())

    def head(self, run_id, *, status="completed", at=1_000, part=keys.ROOT, **head):
        value = {"f": 1, "status": status, "created_at": at, "changed_at": at, "steps": 0, "calls": 0, **head}
        ops = [Put(keys.head(run_id, part), value)]
        if part == keys.ROOT:
            ops.append(Put(keys.index("status", status, at, run_id), {}))
            ops += [
                Put(keys.index(name, value[member], at, run_id), {})
                for name, member in (("agent", "agent"), ("res", "resource"), ("thr", "thread"))
                if value.get(member)
            ]
        return ops

    def dead_lock(self, run_id):
        return Put(keys.lock(run_id), {"f": 1, "owner": new_owner().to_json(), "ttl_ms": 600_000, "released": False})

    def step(self, run_id, number, *parts, add=(), part=keys.ROOT):
        step = StepRecord(
            response=ModelResponse(tuple(parts), Usage(10, 2), "tool_calls", "m", "test"),
            keep=0,
            add=tuple(add),
            chain="0" * 64,
            system="",
            tools="",
            settings="",
            entry="generate",
            model="test/m",
        )
        return Put(keys.model(run_id, part, number), step.to_json())

    def call(self, run_id, call, *, status="succeeded", part=keys.ROOT, blob=None, **members):
        known = {"tool": "pay", "args": {"amount": 5}, "digest": "d", "side_effect": True}
        record = CallRecord(**{**known, **members}, status=status, call=call)
        return Put(keys.tool(run_id, part, *keys.parse_call_id(call)), record.to_json(), blob)


@pytest.fixture
def book(tmp_path):
    return Book(tmp_path / "journal.sqlite")
