"""Two workers on one store go through a list of jobs. Kill them at will: each job is done once.

Runs without a key and without a network: a scripted model plays the agent, a file plays the payment provider. The store
is a file or a PostgreSQL database. In two terminals, and again after every kill (Ctrl-C, kill -9, the power plug):

    python examples/two_workers.py --db postgresql://me@localhost/jobs

and in a third one, to watch:

    watch gnl --db postgresql://me@localhost/jobs runs list

Then look at what really happened; every job stands there once:

    sort two_workers.jsonl
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gnl_core import Context, Gnl, JournalError, RunBusyError, open_storage, tool
from gnl_core.errors import ConfigError, RunFencedError
from gnl_core.model.messages import ModelRequest
from gnl_core.testing import ScriptedModel
from gnl_core.testing.scripted import Turn

LOCK_TTL_S = 5.0
"""How long a killed worker's job stays its own: then another one looks what has become of it, and goes on."""


class Provider:
    """Stands for the payment provider: one line a payment. A real one would refuse a second one under the same key."""

    def __init__(self, path: Path, seconds: float) -> None:
        self.path = path
        self.seconds = seconds

    async def pay(self, invoice: str, key: str) -> dict[str, Any]:
        """Pay, slowly enough for a hand to kill the worker meanwhile."""
        await asyncio.sleep(self.seconds / 2)
        receipt = {"invoice": invoice, "key": key, "pid": os.getpid()}
        file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(file, json.dumps(receipt).encode() + b"\n")  # one write: lines of two workers do not mix
            os.fsync(file)
        finally:
            os.close(file)
        await asyncio.sleep(self.seconds / 2)
        return receipt

    def payments(self) -> Iterator[dict[str, Any]]:
        """Return every payment that was made."""
        return map(json.loads, self.path.read_text().splitlines() if self.path.exists() else [])


def clerk(provider: Provider) -> dict[str, Any]:
    """Return the agent: a model that pays what it is told to, and a tool that can be asked what it did."""

    def recover(context: Context) -> dict[str, Any]:
        found = next((one for one in provider.payments() if one["key"] == context.idempotency_key), None)
        return {"done": False} if found is None else {"done": True, "output": found}

    @tool(side_effect=True, recover=recover)
    async def pay(invoice: str, context: Context) -> dict[str, Any]:
        """Pay an invoice."""
        return await provider.pay(invoice, context.idempotency_key)

    def call_pay(request: ModelRequest) -> Turn:
        return [("pay", {"invoice": request.messages[0].text.removeprefix("Pay ")})]

    return {"model": ScriptedModel([call_pay, "It is paid."]), "tools": [pay], "work_scope": "org"}


async def work(options: argparse.Namespace) -> None:
    """Go through the list again and again, until every job is done: by this worker or by another one."""
    left = [f"invoice-{number:03}" for number in range(1, options.jobs + 1)]
    async with open_storage(options.db) as storage:
        agents = Gnl(storage.runs, agents={"clerk": clerk(Provider(options.log, options.seconds))})  # type: ignore[dict-item]
        while left:
            before = len(left)
            for invoice in list(left):
                try:
                    # The work key makes it one job, whoever asks for it, and however often.
                    result = await agents.run("clerk", work_key=invoice, prompt=f"Pay {invoice}", lock_ttl=LOCK_TTL_S)
                except (RunBusyError, RunFencedError):
                    continue  # the other worker is at it, or was until it was killed
                except JournalError as error:
                    print(f"{invoice}: {error}", flush=True)  # the server is away
                    break
                left.remove(invoice)
                print(f"{invoice}: {result.text}", flush=True)
            if len(left) == before:
                await asyncio.sleep(0.2)


def main() -> None:
    """Read the options and work."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--db", required=True, metavar="FILE|URL", help="the store that the workers share")
    parser.add_argument("--log", type=Path, default=Path("two_workers.jsonl"), help="what really happened")
    parser.add_argument("--jobs", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=1.0, help="that a payment takes")
    try:
        asyncio.run(work(parser.parse_args()))
    except ConfigError as error:
        parser.error(str(error))  # no such store, or its driver is not installed: the message says how


if __name__ == "__main__":
    main()
