"""One store is the one home of its work: a second journal knows nothing of the first, and nobody can tell."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from gnl_core import SqliteStorage
from gnl_core.doctor import examine_runs

DOCS = ("README.md", "docs/retention.md")
"""Where it must be said that both journals run the work."""

WORKER = """
import asyncio, sys
from gnl_core import Context, Gnl, SqliteStorage, tool
from gnl_core.testing import EffectLog, ScriptedModel

path, effects = sys.argv[1], EffectLog(sys.argv[2])

@tool(idempotency="args", window="cross-run")
async def charge(order: int, ctx: Context) -> str:
    "Charge an order."
    return effects.fire("charge", ctx, "charged")

async def main():
    async with SqliteStorage(path) as storage:
        model = ScriptedModel([[("charge", {"order": 7})], "done"])
        agents = Gnl(storage.runs, agents={"billing": {"model": model, "tools": [charge]}})
        result = await agents.run("billing", work_key="order-7", resource_id="ann", prompt="Charge it.")
        print(result.run_id, result.text)

asyncio.run(main())
"""


async def work(journal, effects):
    """Do the work in a process of its own; return what it printed."""
    command = [sys.executable, "-c", WORKER, str(journal), str(effects.path)]
    ended = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


async def test_s79_one_work_key_in_two_journals_is_done_twice_and_the_doctor_cannot_know(place, effects):
    first, second = place / "one.db", place / "two.db"
    said = {await work(first, effects), await work(second, effects)}
    assert len(said) == 1, "one name, one run id"
    assert effects.count("charge") == 2, "each journal is a home of its own"
    for path in (first, second):
        async with SqliteStorage(path) as storage:
            troubles = [one async for one in examine_runs(storage.runs) if one.level not in ("ok", "note")]
            assert troubles == []
    assert await work(first, effects) == said.pop()
    assert effects.count("charge") == 2, "in its own journal it is the same work, and replayed"


@pytest.mark.parametrize("page", DOCS)
def test_s79_the_docs_say_that_two_journals_run_it_twice(page):
    text = " ".join((Path(__file__).parents[3] / page).read_text(encoding="utf-8").split())
    assert "One store is the one home of its work" in text
    assert "the same work key against two journals runs twice" in text
