"""Pay four invoices in one batch, one of which a chat has paid already. Who decides what becomes of it?

Runs without a key and without a network: a scripted model plays the chat. Start it with:

    python examples/batch.py
"""

from __future__ import annotations

import asyncio

from gnl_core import BatchReport, InMemoryStorage, SemanticIdentity, create_batch, decide, run_durable, tool
from gnl_core.testing import ScriptedModel

PAID: list[str] = []

INVOICES = [
    {"invoice": "INV-1", "amount": 120.0},
    {"invoice": "INV-2", "amount": 80.0},
    {"invoice": "INV-3", "amount": 45.0},
    {"invoice": "inv-3", "amount": 54.0},
]


@tool(side_effect=True, semantic_identity=SemanticIdentity(keys=("invoice",), amount_fields=("amount",)))
async def pay(invoice: str, amount: float) -> str:
    """Pay an invoice."""
    PAID.append(invoice)
    return f"paid {amount:.2f} for {invoice}"


def told(report: BatchReport) -> str:
    """Return what became of the items, in a line."""
    return ", ".join(f"{item.key} {item.outcome}" for item in report.items)


async def main() -> None:
    """Look at the batch, run it, answer its question, run it again."""
    async with InMemoryStorage() as storage:
        journal = storage.runs
        await run_durable(
            run_id="chat-7",
            journal=journal,
            model=ScriptedModel([[("pay", {"invoice": "inv-2", "amount": 80.0})], "It is paid."]),
            tools=[pay],
            prompt="Please pay invoice inv-2.",
            resource_id="ann",
            channel="chat",
        )
        batch = create_batch(journal=journal, tool=pay, item_key="invoice", resource_id="ann")

        plan = await batch.preflight("march", INVOICES)
        print(f"1. Nothing has run. New: {', '.join(plan.fresh)}.")
        for item in plan.repeats:
            print(f"   {item.key}: {item.text}")
        for alike in plan.intra_batch_duplicates:
            print(f"   One job twice in this batch: {', '.join(alike.keys)}; with another {alike.amounts_differ[0]}.")

        # The token says that somebody has looked. Here they see that the last line is a slip, and take it out.
        items = INVOICES[:3]
        token = (await batch.preflight("march", items)).token
        report = await batch.run("march", items, plan_token=token)
        print(f"2. {told(report)}")

        for question in report.interrupts:
            await decide(journal, question.question, False)
        report = await batch.run("march", items, plan_token=token)
        print(f"3. After the answer: {told(report)}")
        print(f"\nPaid: {', '.join(PAID)}")


if __name__ == "__main__":
    asyncio.run(main())
