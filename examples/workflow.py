"""A workflow pays an order, dies right after the charge, waits for the bank, and ends with one charge.

Runs without a key and without a network: a file plays the payment provider, and the kill is a real one. Start it with:

    python examples/workflow.py
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from gnl_core import Context, Flow, SqliteStorage, run_workflow_sync, send_to_workflow_sync, tool

WORK = {"work_key": "order A-17", "resource_id": "ann", "input": {"order": "A-17"}}


def drive(folder: Path, *, dies: bool) -> None:
    """Drive the work of one order, and say where it stands."""
    ledger = folder / "ledger.txt"

    def recover(context: Context) -> dict[str, Any]:
        charged = ledger.exists() and context.idempotency_key in ledger.read_text().split()
        return {"done": True, "output": "receipt"} if charged else {"done": False}

    @tool(side_effect=True, recover=recover)
    def charge_card(order: str, context: Context) -> str:
        """Charge the card of an order."""
        with ledger.open("a") as file:
            file.write(f"{context.idempotency_key} {order}\n")
            file.flush()
            os.fsync(file.fileno())
        if dies:
            os._exit(9)  # the card is charged, and nobody has written that down
        return "receipt"

    async def pay(flow: Flow, order: str) -> dict[str, Any]:
        receipt = await flow.step("charge", charge_card, order=order)
        cleared = await flow.wait("bank", reason="the bank clears the payment")
        return {"order": order, "receipt": receipt, "cleared": cleared}

    with SqliteStorage(folder / "runs.db") as storage:
        result = run_workflow_sync(pay, journal=storage.runs, **WORK)  # type: ignore[arg-type] # options by name
        print(f"  {result.status}: waits for {[wait.name for wait in result.waits]}, output {result.output}")
    if result.waits:
        with SqliteStorage(folder / "runs.db") as storage:
            send_to_workflow_sync(storage.runs, run_id=result.run_id, wait="bank", data="on 2 April")


def main() -> None:
    """Kill one drive, then drive on until the work is done."""
    with tempfile.TemporaryDirectory(prefix="gnl-workflow-") as name:
        died = subprocess.run([sys.executable, __file__, name], check=False)  # noqa: S603 - this very program
        print(f"The first drive ended with status {died.returncode}, after it had charged the card. Driven again:")
        drive(Path(name), dies=False)
        print("The bank has sent its word. Driven again:")
        drive(Path(name), dies=False)
        print(f"Charges: {len((Path(name) / 'ledger.txt').read_text().splitlines())}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        drive(Path(sys.argv[1]), dies=True)
    else:
        main()
