"""Point reads of one run, and recall of one conversation, in a store that grows by a million rows of others."""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import Any

import recall

from gnl_core import keys, run_durable, tool
from gnl_core.journal import Journal, new_batch
from gnl_core.journal.port import Op
from gnl_core.testing import ScriptedModel
from gnl_semantic.vectors import VectorCache
from scaling.stores import timed

RUN, SCOPE = ("run", "bulk"), ("xthr", "ours")
STEPS = 20
_READS = 200


@tool(side_effect=True)
async def post(line: int, note: str) -> dict[str, Any]:
    """Post a line to the ledger."""
    return {"line": line, "note": note}


async def fill(journal: Journal, records: int) -> None:
    """Drive one run, and let one conversation remember so many pieces of work."""
    note = "Invoice line, net of tax, cost centre 4711, approved by the regional office on the first working day."
    turns: list[Any] = [[("post", {"line": number, "note": note})] for number in range(STEPS)]
    await run_durable(
        run_id=RUN[1],
        journal=journal,
        model=ScriptedModel([*turns, "Done."]),
        tools=[post],
        prompt="Post them.",
        max_steps=STEPS + 1,
    )
    vectors = recall.unit_vectors(records)
    for begin in range(0, records, 32):
        ops: list[Op] = []
        count: Any = None
        for number in range(begin, min(begin + 32, records)):
            record, fold, count, copy = recall.written(journal, number, recall.STAMP, vectors[number], SCOPE)
            ops += [record, fold, copy]
        await journal.apply([*ops, replace(count, by={"n": len(ops) // 3})], batch=new_batch())
    await _recall(journal, VectorCache(), vectors[0])  # it writes the blocks


async def measure(journal: Journal, records: int) -> dict[str, float]:
    """Return medians in milliseconds."""
    root = RUN[1]
    reads = []
    for number in range(_READS):
        step = number % STEPS
        wanted = [keys.model(root, keys.ROOT, step), keys.tool(root, keys.ROOT, step, 0), keys.head(root)]
        took, read = await timed(lambda wanted=wanted: journal.get_many(wanted))  # type: ignore[misc]
        if None in read.entries:
            raise SystemExit(f"step {step} of the run is not in the store")
        reads.append(took)
    query = recall.unit_vectors(records)[0]
    cold, warm = [], []
    for _ in range(9):
        cache = VectorCache()
        took, found = await timed(lambda cache=cache: _recall(journal, cache, query))  # type: ignore[misc]
        if not found.scored:
            raise SystemExit("no record is near, and the first one is the very vector that is asked for")
        cold.append(took)
        warm.append((await timed(lambda cache=cache: _recall(journal, cache, query)))[0])  # type: ignore[misc]
    return {
        "point read, median": statistics.median(reads),
        "point read, p95": sorted(reads)[_READS * 95 // 100],
        "recall, cold": statistics.median(cold),
        "recall, warm": statistics.median(warm),
    }


async def _recall(journal: Journal, cache: VectorCache, query: Any) -> Any:
    asked = recall.subject_of(journal, -1, SCOPE)
    return await recall.ask(cache, asked, await recall.generation_of(journal, asked), query)
