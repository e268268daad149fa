"""Kill an agent at every journal write and around every effect, resume it, and count effects outside the journal.

    python benchmarks/kill_matrix.py [--json] [--dsn postgresql://…]

With a DSN each journal is a schema of its own on that PostgreSQL server, and stays there.

The scenarios are those of tests/faults; `gnl crashtest module:function` does the same to an agent of your own.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import sys
import time
from functools import partial
from pathlib import Path

from gnl_core import PostgresStorage
from gnl_core.testing import CrashReport, crashtest

SCENARIOS = {
    "single": "one side effect",
    "two_steps": "two steps, one effect each",
    "parallel": "three effects in one step",
    "approval": "an effect that a person approves",
    "quiet": "an approved effect, by an agent that tells nobody that it waits",
    "half_gated": "two in one step, one of them approved",
    "mixed": "a read and an effect in one step",
    "streamed": "a streamed run",
    "sub_agent": "a sub-agent's effect",
    "sub_agent_approval": "a sub-agent's effect, approved",
    "sub_agents_in_parallel": "two sub-agents in one step",
    "recover": "a tool with recover()",
    "recover_parallel": "two such calls in one step",
    "keyed": "one job named by two calls, across runs",
    "by_args": "calls keyed by their arguments",
    "looked_up": "a tool with lookup()",
    "declined": "a tool that says nothing happened",
    "own_loop": "a loop of one's own",
    "without_a_run": "with_idempotency, no run",
    "repeated": "the same effect again, which a person approves",
    "twins": "two equal calls in one step, the second approved",
    "left_out": "two runs that ask for one effect, the second left out",
}


def main() -> None:
    """Run the matrix and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--dsn", help="keep the journals on this PostgreSQL server")
    options = parser.parse_args()
    factory = None if options.dsn is None else partial(_on_server, options.dsn)
    path = Path(__file__).resolve().parents[1] / "tests" / "faults" / "fault_agents.py"
    spec = importlib.util.spec_from_file_location("fault_agents", path)
    assert spec is not None
    assert spec.loader is not None
    agents = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(agents)
    began = time.monotonic()
    rows = {name: crashtest(getattr(agents, name), storage_factory=factory) for name in SCENARIOS}
    if options.json:
        print(json.dumps({name: report.to_json() for name, report in rows.items()}))
    else:
        _print(rows, time.monotonic() - began)
    sys.exit(0 if all(report.ok for report in rows.values()) else 1)


def _on_server(dsn: str, folder: Path) -> PostgresStorage:
    return PostgresStorage(dsn, schema=f"gnl_{hashlib.sha256(bytes(folder)).hexdigest()[:16]}")


def _print(rows: dict[str, CrashReport], seconds: float) -> None:
    print("| run | kills | finished by itself | settled by a person | most effects of one call | stuck |")
    print("|---|---|---|---|---|---|")
    total = dict.fromkeys(("struck", "completed", "settled", "stuck"), 0)
    most = 0
    for name, report in rows.items():
        figures = report.to_json()
        counts = {key: int(str(figures[key])) for key in total}
        total = {key: total[key] + counts[key] for key in total}
        highest = int(str(figures["max_effects"]))
        most = max(most, highest)
        print(
            f"| {SCENARIOS[name]} | {counts['struck']} | {counts['completed']} | {counts['settled']} | {highest} | "
            f"{counts['stuck']} |"
        )
    print(
        f"| **all** | **{total['struck']}** | **{total['completed']}** | **{total['settled']}** | **{most}** | "
        f"**{total['stuck']}** |"
    )
    print(f"\n{total['struck']} processes killed in {seconds:.0f} s")


if __name__ == "__main__":
    main()
