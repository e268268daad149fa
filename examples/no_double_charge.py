"""A process is killed right after it charged a card. What happens when the work is driven again?

Runs without a key and without a network: a scripted model plays the agent, a file plays the payment provider, and the
kill is a real one. Start it with:

    python examples/no_double_charge.py
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from gnl_core import Context, SideEffectRetryBlockedError, SqliteStorage, decide, run_durable, tool
from gnl_core.testing import ScriptedModel


class Provider:
    """Stands for the payment provider: one line a charge, written by whoever charges."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def charge(self, order_id: str, amount: int, key: str) -> dict[str, Any]:
        """Charge a card. A real provider would refuse the second charge under one key; this one does not."""
        receipt = {"order_id": order_id, "amount": amount, "key": key}
        with self.path.open("a") as ledger:
            ledger.write(json.dumps(receipt) + "\n")
            ledger.flush()
            os.fsync(ledger.fileno())
        return receipt

    def charges(self) -> list[dict[str, Any]]:
        """Return every charge that was made."""
        return [json.loads(line) for line in self.path.read_text().splitlines()] if self.path.exists() else []


def agent(provider: Provider, *, dies: bool, recovers: bool) -> dict[str, Any]:
    """Return what drives the run: a model and a tool that charges a card."""

    async def recover(context: Context) -> dict[str, Any]:
        found = [charge for charge in provider.charges() if charge["key"] == context.idempotency_key]
        return {"done": True, "output": found[0]} if found else {"done": False}

    @tool(side_effect=True, recover=recover if recovers else None)
    async def charge_card(order_id: str, amount: int, context: Context) -> dict[str, Any]:
        """Charge the customer's card."""
        receipt = provider.charge(order_id, amount, context.idempotency_key)
        if dies:
            os._exit(9)  # the card is charged, and nobody has written that down
        return receipt

    model = ScriptedModel([[("charge_card", {"order_id": "A-17", "amount": 4200})], "The order is paid."])
    return {"model": model, "tools": [charge_card]}


async def drive(folder: Path, run_id: str, *, dies: bool = False, recovers: bool = False) -> str:
    """Drive the run once; returns what the agent said."""
    with SqliteStorage(folder / "runs.db") as storage:
        result = await run_durable(
            run_id=run_id,
            journal=storage.runs,
            prompt="Process order A-17.",
            **agent(Provider(folder / "ledger.jsonl"), dies=dies, recovers=recovers),
        )
    return result.text


def killed(folder: Path, run_id: str, **options: bool) -> int:
    """Drive the run in a child process that dies in the middle of it; returns its exit status."""
    child = os.fork()
    if child == 0:
        asyncio.run(drive(folder, run_id, dies=True, **options))
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


async def settle(folder: Path, question: str) -> None:
    """Answer the question as an operator who has looked at the provider's ledger."""
    charge = Provider(folder / "ledger.jsonl").charges()[-1]
    with SqliteStorage(folder / "runs.db") as storage:
        await decide(storage.runs, question, False, actor="operator", output=charge)


def main() -> None:
    """Show both ways out of the doubt: a person, and the tool's own `recover`."""
    folder = Path(tempfile.mkdtemp(prefix="no-double-charge-"))
    provider = Provider(folder / "ledger.jsonl")

    print("1. The agent charges the card, and its process is killed before that is written down.")
    print(f"   exit status {killed(folder, 'order-A-17')}, charges so far: {len(provider.charges())}")

    print("2. The work is driven again. Was the card charged? Nobody knows, so nothing runs:")
    question = ""
    try:
        asyncio.run(drive(folder, "order-A-17"))
    except SideEffectRetryBlockedError as error:
        question = str(error.detail["question"])
        print(f"   {type(error).__name__}, question {question}")

    print("3. An operator finds the charge in the provider's ledger and settles the question with it.")
    asyncio.run(settle(folder, question))
    print(f"   {asyncio.run(drive(folder, 'order-A-17'))} Charges: {len(provider.charges())}")

    print("4. The same crash with a tool that can ask the provider itself: recover() settles it, no person needed.")
    killed(folder, "order-A-17-again", recovers=True)
    print(f"   {asyncio.run(drive(folder, 'order-A-17-again', recovers=True))} Charges: {len(provider.charges())}")

    expected = 2  # one a run
    print(f"\nTwo runs, two kills, {len(provider.charges())} charges. The journal: {folder / 'runs.db'}")
    sys.exit(0 if len(provider.charges()) == expected else 1)


if __name__ == "__main__":
    main()
