"""Write the golden journal of a release: python tests/gnl_core/golden/make_golden.py 0.1.0

Every later release must list, answer and drive the runs in it, so a file that was released is never made again. The
tests drive them with the tools and scripts below.
"""

import asyncio
import itertools
import os
import socket
import sqlite3
import sys
from decimal import Decimal
from pathlib import Path

from gnl_core import ModelSettings, SqliteStorage, Usage, agent_tool, fork_run, run_durable, tool
from gnl_core.errors import ModelUnavailableError
from gnl_core.testing.scripted import ScriptedModel

BEGAN = 1_767_225_600  # 2026-01-01, in seconds: long ago for every later release


class Work:
    """The tools of the golden runs; every body that runs is noted.

    Attributes:
        ran: Names and amounts of the bodies that ran, in order.
        die: End the process inside the body of `charge`.
    """

    def __init__(self, *, die=False):
        self.ran = []
        self.die = die

    def tools(self):
        @tool
        def charge(amount: int) -> str:
            """Charge a card."""
            self.ran.append(("charge", amount))
            if self.die:
                os._exit(9)
            return f"receipt for {amount}"

        @tool(side_effect=False)
        def look() -> dict:
            """Look at the bill."""
            self.ran.append(("look", 0))
            return {"sum": Decimal("12.50"), "items": ("tea", b"\xff")}

        @tool(side_effect=False)
        def broken() -> str:
            """Fail."""
            self.ran.append(("broken", 0))
            raise LookupError("no such bill")

        @tool(side_effect=False)
        def book() -> str:
            """Return a text that stands in the blob."""
            self.ran.append(("book", 0))
            return "ü" * 11_000

        @tool(idempotency="args", window="cross-run")
        def ship(to: str) -> str:
            """Ship the goods."""
            self.ran.append(("ship", 0))
            return f"shipped to {to}"

        @tool(confirm=True)
        def refund(amount: int) -> str:
            """Give money back."""
            self.ran.append(("refund", amount))
            return f"refunded {amount}"

        child = ScriptedModel([[("charge", {"amount": 7})], "the helper paid"], spec="golden/child")
        helper = agent_tool(name="helper", description="Pays.", model=child, tools=[charge], system="Pay.")
        return [charge, look, broken, book, ship, refund, helper]


SCRIPTS = {
    "completed": [
        ["I look.", ("look", {}), ("broken", {}), ("gone", {}), ("book", {})],
        [("charge", {"amount": 1}), ("ship", {"to": "Zoë"}), ("ship", {"to": "Zoë"})],
        "done",
    ],
    "suspended": [[("charge", {"amount": 2}), ("refund", {"amount": 2})], "refunded"],
    "in-doubt": [[("charge", {"amount": 3})], "charged"],
    "failed": [[("charge", {"amount": 4})], ModelUnavailableError("down")],
    "parent": [[("helper", {"task": "pay 7"})], "the helper was asked"],
    "source": [[("charge", {"amount": 5})], [("charge", {"amount": 6})], "both"],
}
SCRIPTS["fork"] = SCRIPTS["source"]


async def drive(storage, name, work, *, model=None, **options):
    """Drive one of the golden runs."""
    model = model or ScriptedModel(SCRIPTS[name], spec="golden/model", usage=Usage(10, 2))
    return await run_durable(
        run_id=f"golden-{name}",
        journal=storage.runs,
        model=model,
        tools=work.tools(),
        prompt=f"the {name} run",
        system="Be exact.",
        settings=ModelSettings(temperature=0.0),
        agent="golden",
        thread_id="golden-thread",
        resource_id="ann",
        actor="bob",
        channel="chat",
        **options,
    )


async def write(path, ticks):
    async with SqliteStorage(path, clock=lambda: BEGAN + next(ticks) / 1000) as storage:
        for name in ("completed", "suspended", "parent", "source"):
            await drive(storage, name, Work())
        try:
            await drive(storage, "failed", Work())
        except ModelUnavailableError:
            await fork_run(journal=storage.runs, run_id="golden-source", step=1, new_run_id="golden-fork")


def main(version):
    path = Path(__file__).with_name(f"journal-{version}.sqlite")
    if path.exists():
        sys.exit(f"{path} is there already; what was released is never made again")
    socket.gethostname = lambda: "golden"  # no name of a machine in the file
    ticks = itertools.count()
    child = os.fork()
    if not child:
        asyncio.run(_die(path, ticks))
    os.waitpid(child, 0)
    asyncio.run(write(path, itertools.count(10_000)))
    file = sqlite3.connect(path)
    file.execute("VACUUM")
    file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    file.close()


async def _die(path, ticks):
    async with SqliteStorage(path, clock=lambda: BEGAN + next(ticks) / 1000) as storage:
        await drive(storage, "in-doubt", Work(die=True))


if __name__ == "__main__":
    main(sys.argv[1])
