"""What a child of the fault server can be asked to do."""

import asyncio
import hashlib
import os
import tempfile
import threading
import time
from pathlib import Path

import fault_agents
import fault_batches

from gnl_core import PostgresStorage, RedisStorage, SqliteStorage, decide, list_interrupts
from gnl_core.approvals import MISSING
from gnl_core.journal import scan_all, send
from gnl_core.testing import crash_drive
from gnl_core.testing.effects import EffectLog
from gnl_core.testing.faulty import Fault, FaultyJournal, die
from gnl_core.testing.matrix import crashtest


def open_storage(folder):
    """Open the folder's store; its clock is as many seconds ahead as the file 'ahead' says.

    The file 'server', in the folder or above it, holds the URL of a server that has the store instead.
    """
    for place in (Path(folder), Path(folder).parent):
        if (place / "server").exists():
            return open_on((place / "server").read_text(), Path(folder))
    ahead = Path(folder) / "ahead"

    def clock():
        return time.time() + (float(ahead.read_text()) if ahead.exists() else 0.0)

    return SqliteStorage(Path(folder) / "journal.sqlite", clock=clock)


def open_on(url, folder):
    """Open a store of the folder's own on a server; which kind of server, its URL says."""
    if url.startswith("postgresql:"):
        return PostgresStorage(url, schema=f"gnl_{hashlib.sha256(bytes(folder)).hexdigest()[:16]}")
    return RedisStorage(url, accept_async_replication=True, prefix=f"{folder.parent.name}.{folder.name}")


def writes_status(status):
    """Match the batch that writes a call's record of this status."""

    def match(ops):
        return any(
            "tool" in op.key and isinstance(value := getattr(op, "value", None), dict) and value.get("status") == status
            for op in ops
        )

    return match


def told(result):
    """Describe a result."""
    return {
        "text": result.text,
        "interrupts": [question.to_json() for question in result.interrupts],
        "replayed": [
            [call.tool_call_id, call.tool_name, call.status, call.origin] for call in result.replayed_tool_calls
        ],
        "results": [
            [part.tool_call_id, part.text, part.is_error]
            for message in result.messages
            if message.role == "tool"
            for part in message.parts
        ],
    }


def raised(error):
    """Describe an error of the runtime; any other leaves the child as it is."""
    if not hasattr(error, "code"):
        raise error
    return {
        "error": error.code,
        "message": str(error),
        "detail": {name: value for name, value in error.detail.items() if isinstance(value, str | int | float)},
        "interrupts": [question.to_json() for question in getattr(error, "interrupts", ())],
        "retry_after": getattr(error, "retry_after", None),
        "output": getattr(error, "output", None),
    }


async def outcome(scenario, journal, effects):
    try:
        return told(await getattr(fault_agents, scenario)(journal, effects))
    except Exception as error:
        return raised(error)


async def drive(scenario, folder, fault=None):
    """Drive a scenario once."""
    fault = dict(fault or {})
    if "match" in fault:
        fault["match"] = writes_status(fault["match"])
    fault = Fault(**fault) if fault else None
    effects = EffectLog(Path(folder) / "effects.jsonl")
    if fault is not None and fault.at == "effect":
        setattr(effects, fault.when, lambda number: die() if fault.hits(number) else None)
    storage = open_storage(folder)
    answer = await outcome(scenario, FaultyJournal(storage.runs, fault=fault), effects)
    await storage.aclose()
    return answer


async def batch(folder, **options):
    """Run the folder's batch once."""
    async with open_storage(folder) as storage:
        return await fault_batches.run_batch(storage, folder, **options)


def batch_together(folder, **options):
    """Run it once the file 'go' is there; leave 'ready-<pid>' before that."""
    folder = Path(folder)
    (folder / f"ready-{os.getpid()}").touch()
    while not (folder / "go").exists():
        time.sleep(0.001)
    return asyncio.run(batch(folder, **options))


def race(scenario, folder):
    """Drive a scenario once the file 'go' is there; leave 'ready-<pid>' before that, and 'seen-<pid>' after."""
    folder = Path(folder)
    (folder / f"ready-{os.getpid()}").touch()
    while not (folder / "go").exists():
        time.sleep(0.001)
    answer = asyncio.run(drive(scenario, folder))
    (folder / f"seen-{os.getpid()}").touch()
    return answer


def crowd(scenario, folder, threads):
    """Drive a scenario from several threads over one store, all at once; list what each saw."""
    storage = open_storage(folder)
    effects = EffectLog(Path(folder) / "effects.jsonl")
    barrier = threading.Barrier(threads)
    seen = []

    def one():
        barrier.wait()
        answer = asyncio.run(outcome(scenario, storage.runs, effects))
        seen.append(answer)
        (Path(folder) / f"seen-{len(seen)}").touch()

    workers = [threading.Thread(target=one) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    storage.close()
    return seen


async def answer(folder, question, approved, output=MISSING, **options):
    """Answer a question as an operator."""
    storage = open_storage(folder)
    try:
        stored = await decide(storage.runs, question, approved, output=output, **options)
        return {"approved": stored.approved}
    except Exception as error:
        return raised(error)
    finally:
        await storage.aclose()


async def open_questions(folder):
    """List what waits for a person."""
    storage = open_storage(folder)
    questions = [question.to_json() for question in await list_interrupts(storage.runs)]
    await storage.aclose()
    return questions


async def rows(folder):
    """List every row."""
    storage = open_storage(folder)
    found = [[list(entry.key), entry.value, entry.version] async for entry in scan_all(storage.runs, ())]
    await storage.aclose()
    return found


def matrix(scenario, policy="by_witness", longest_pause=None, server=None, **options):
    """Run the kill matrix of a scenario; a store that is away is asked again as often, after shorter pauses if so.

    With a server's URL every journal is a store of its own there.
    """
    if server is not None:
        options["storage_factory"] = lambda folder: open_on(server, folder)
    if longest_pause is not None:
        send.LONGEST_PAUSE = longest_pause
    return crashtest(getattr(fault_agents, scenario), policy=getattr(crash_drive, policy), **options).to_json()


def refused(scenario, **options):
    """Run a kill matrix that must be refused."""
    try:
        crashtest(getattr(fault_agents, scenario), **options)
    except Exception as error:
        return raised(error)
    return None


async def warm():
    """Import what the children need, which is what one undisturbed run needs."""
    with tempfile.TemporaryDirectory() as folder:
        await drive("single", folder)
        await open_questions(folder)
