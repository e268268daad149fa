"""Writes a journal of live runs through the engine, in a process of its own: python live_journal.py PLACE < calls.json;
GNL_SCHEMA names the schema of a place on a server.

Each call is a run: {"tool", "args", "found"?, "answer"?, "relation"?, "org"?, "person"?, "thread"?, "plain"?}.
"""

import asyncio
import json
import os
import sys

from gnl_core import Duplicates, RunLimits, SemanticIdentity, decide, open_storage, run_durable, tool
from gnl_core.prior import Found, Notice, Prior
from gnl_core.testing.scripted import ScriptedModel

SETTINGS = {"embed_model_id": "e5", "rules": {"version": "1"}, "judge": None}


@tool(semantic_identity=SemanticIdentity(keys=("sku",), describe=lambda args: f"order of {args['sku']}"))
def order(sku: str, note: str = "") -> str:
    """Order something."""
    return "ordered"


@tool(confirm=True, semantic_identity=SemanticIdentity(keys=("invoice",)))
def pay(invoice: str, note: str = "") -> str:
    """Pay an invoice."""
    return "paid"


class Finder:
    """Finds what it was told to."""

    def __init__(self, found):
        self.found = found

    def check(self):
        return ()

    def freeze(self):
        return SETTINGS

    async def find(self, subject, *, judge):
        counts = {"guarded": 1, "embedded": 1}
        if self.found is None:
            return Found(counts=counts)
        if self.found == "gray":
            detail = {"tool": subject.tool, "dropped_identity": 2, "gray_calls": 1}
            notice = Notice(source="semantic-guard", message="m", detail=detail)
            return Found(notices=(notice,), counts={**counts, "gray": 1})
        prior = {"present": subject.identity.sentence, "identity_keys": subject.identity_keys, **self.found}
        return Found(prior=Prior(run_id="first", tool_call_id="s0p0", at=1, score=0.9, **prior), counts=counts)

    async def remember(self, subject):
        return ()


async def play(journal, number, call):
    """Drive one run, answer its question where the call says how, and drive it on."""
    gate = Duplicates(action="suspend", scope="thread", semantic=Finder(call.get("found")))
    limits = None if call.get("plain") else RunLimits(side_effect_duplicates=gate)

    async def drive():
        return await run_durable(
            run_id=f"run-{number}",
            journal=journal.scoped(call["org"]) if call.get("org") else journal,
            model=ScriptedModel([[(call["tool"], call["args"])], "done"]),
            tools=[order, pay],
            prompt="go",
            thread_id=call.get("thread", "t"),
            resource_id=call.get("person"),
            limits=limits,
        )

    result = await drive()
    if call.get("answer") is not None:
        scope = journal.scoped(call["org"]) if call.get("org") else journal
        await decide(scope, result.interrupts[0].question, call["answer"], relation=call.get("relation"))
        await drive()


async def main(path, calls):
    async with open_storage(path, schema=os.environ.get("GNL_SCHEMA")) as storage:
        await storage.runs.now()
        for number, call in enumerate(calls):
            await play(storage.runs, number, call)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], json.load(sys.stdin)))
