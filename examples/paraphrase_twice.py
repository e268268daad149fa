"""One job is asked for twice, in other words. Who notices, and what happens then?

Runs without a key and without a network: a scripted model plays the agent, the built-in embedder, the rule ladder and
the local judge look for earlier work of the conversation. Start it with:

    python examples/paraphrase_twice.py [JOURNAL]

With a JOURNAL, the file stays, and `gnl-semantic-qualify report --db JOURNAL --html report.html` shows what was asked.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from gnl_core import Duplicates, RunLimits, SemanticIdentity, SqliteStorage, decide, run_durable, tool
from gnl_core.journal import Journal
from gnl_core.testing import ScriptedModel
from gnl_semantic import Judge, SemanticGate

TURNS = (
    "Refund order 4471, both chairs arrived broken",
    "order 4471: two broken chairs arrived, refund it",
    "Refund order 4417, both chairs arrived broken",
    "Refund order #4417 (both chairs arrived broken)",
)
"""A job, the same in other words, one that looks almost the same, and that one again in other punctuation."""

opened: list[str] = []


@tool(side_effect=True, semantic_identity=SemanticIdentity(keys=("subject",)))
async def open_ticket(subject: str) -> str:
    """Open a ticket for the support team."""
    opened.append(subject)
    return f"ticket {len(opened)}"


async def converse(journal: Journal) -> None:
    """Play the conversation: one run a turn, all of one thread."""
    gate = SemanticGate(embed="local", rules=True, judge=Judge("builtin:local"))
    limits = RunLimits(side_effect_duplicates=Duplicates(action="suspend", scope="thread", semantic=gate))
    for number, words in enumerate(TURNS, start=1):
        print(f"\n{number}. The model calls open_ticket({words!r})")
        result = await run_durable(
            run_id=f"turn-{number}",
            journal=journal,
            # Stands for a model that passes its user's words through, as models do with free text.
            model=ScriptedModel([[("open_ticket", {"subject": words})], "Done."]),
            tools=[open_ticket],
            prompt=words,
            thread_id="chat-7",
            channel="chat",
            limits=limits,
        )
        if not result.interrupts:
            print("   It ran: nothing earlier is the same job.")
        for question in result.interrupts:
            print(f"   A person is asked: {question.reason}")
            # This person reads both sentences and sees one job. The model is told that a person said no.
            await decide(journal, question.question, False, actor="Deniz", reason="the ticket is open already")


def main() -> None:
    """Play it in the named journal, or in one that is thrown away."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(folder) / "runs.db"
        with SqliteStorage(path) as storage:
            asyncio.run(converse(storage.runs))
    print(f"\n{len(TURNS)} calls, {len(opened)} tickets: {'; '.join(opened)}")


if __name__ == "__main__":
    main()
