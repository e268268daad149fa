"""The program `gnl` as tests call it, and journals in real files."""

import asyncio
import json
import os
import subprocess
import sys
from typing import NamedTuple

import pytest

from gnl_core.cli import main
from gnl_core.journal import new_batch, scan_all
from gnl_core.opening import open_storage


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
    """A journal, written row by row as the runtime writes it; `db` are the options that name it."""

    def __init__(self, path, rows, **options):
        self.path, self.options = path, options
        self.db = ["--db", path, *(part for name, value in options.items() for part in (f"--{name}", value))]
        self.head, self.step, self.call = rows.head, rows.step, rows.call
        self.lock, self.dead_lock = rows.lock, rows.dead_lock

    def write(self, *ops, org=""):
        async def do():
            async with self.open() as storage:
                journal = storage.runs.scoped(org) if org else storage.runs
                await journal.apply(ops, batch=new_batch())

        asyncio.run(do())

    def open(self, **options):
        return open_storage(self.path, accept_async_replication=True, **self.options, **options)

    def rows_and_versions(self):
        """What stands in the store, whoever wrote it."""

        async def read():
            async with self.open(read_only=True) as storage:
                found = []
                for org in await storage.runs.scopes():
                    scope = storage.runs.scoped(org) if org else storage.runs
                    found += [(org, entry.key, entry.version, entry.value) async for entry in scan_all(scope, ())]
                return found

        return asyncio.run(read())


@pytest.fixture
def book(tmp_path, rows):
    return Book(tmp_path / "journal.sqlite", rows)


def store_of(kind, request):
    """Where a fresh store of a kind is, and the options that name it beside."""
    if kind == "postgres":
        return request.getfixturevalue("postgres_dsn"), {"schema": request.getfixturevalue("new_schema")()}
    if kind == "redis":
        return request.getfixturevalue("redis_url"), {"prefix": request.getfixturevalue("new_prefix")()}
    return request.getfixturevalue("tmp_path") / "journal.sqlite", {}


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def shelf(request, rows):
    """A `book` in each kind of store."""
    place, options = store_of(request.param, request)
    made = Book(place, rows, **options)
    made.kind = request.param
    return made


@pytest.fixture(params=["postgres", "redis"])
def server(request, rows):
    """A `book` on each kind of server."""
    place, options = store_of(request.param, request)
    made = Book(place, rows, **options)
    made.kind = request.param
    return made
