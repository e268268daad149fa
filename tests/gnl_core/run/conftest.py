"""What the tests of runs share: a store of each kind, a witness outside the journal, and its rows by hand."""

import asyncio
import os
import tempfile
import threading
from pathlib import Path

import pytest
import pytest_asyncio

from gnl_core import body, keys
from gnl_core.journal import Delete, Put, new_batch, scan_all
from gnl_core.testing.effects import EffectLog


@pytest.fixture
def place():
    """A folder in memory where there is one: journals are synced at every write."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as folder:
        yield Path(folder)


@pytest_asyncio.fixture(params=["memory", "sqlite", "postgres", "redis"])
async def storage(request, new_store):
    """An empty store of each kind; closed after the test."""
    async with new_store(request.param).open() as storage:
        yield storage


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def common(request, new_store):
    """Where an empty store is that any number of processes may open: `common.open()`, in a program `common.spelled`."""
    return new_store(request.param)


@pytest.fixture
def journal(storage):
    """The journal of the store."""
    return storage.runs


@pytest.fixture
def effects(place):
    """The witness: a file that holds one line for each effect that happened, whatever the journal believes."""
    return EffectLog(place / "effects.jsonl")


class Rows:
    """The rows of a journal, read and written behind the runtime's back."""

    def __init__(self, journal):
        self.journal = journal

    async def all(self, prefix=()):
        """Every row as {encoded key: entry}."""
        return {keys.encode(entry.key): entry async for entry in scan_all(self.journal, prefix, blobs=True)}

    async def values(self, prefix=()):
        """Every row as {encoded key: (value, blob)}."""
        return {key: (entry.value, entry.blob) for key, entry in (await self.all(prefix)).items()}

    async def put(self, key, value, blob=None):
        """Write one row; the key is a tuple or its text."""
        key = keys.decode(key) if isinstance(key, str) else key
        await self.journal.apply((Put(key, value, blob),), batch=new_batch())

    async def change(self, key, **members):
        """Change members of one row's object; its blob stays."""
        key = keys.decode(key) if isinstance(key, str) else key
        entry = (await self.journal.get_many([key])).entries[0]
        await self.put(key, {**entry.value, **members}, entry.blob)

    async def delete(self, key):
        """Delete one row."""
        key = keys.decode(key) if isinstance(key, str) else key
        await self.journal.apply((Delete(key),), batch=new_batch())


@pytest.fixture
def appears(journal):
    """Wait until a row is in the journal; fail where none comes."""

    async def wait(key):
        async with asyncio.timeout(30):
            while (await journal.get_many([key])).entries[0] is None:  # noqa: ASYNC110 - it appears in the store
                await asyncio.sleep(0.002)

    return wait


@pytest.fixture
def begun(monkeypatch):
    """Hold up the loop until a body that was handed to a thread has begun: however busy this machine is, a tool's short
    timeout then is the body's alone, and never that of a body which no thread has come to."""
    submit = body._THREADS.submit

    def hand_over(run, call, late):
        entered = threading.Event()

        def enter():
            entered.set()
            return call()

        submit(run, enter, late)
        assert entered.wait(30)

    monkeypatch.setattr(body._THREADS, "submit", hand_over)


@pytest.fixture
def rows(journal):
    """The journal's rows by hand."""
    return Rows(journal)
