"""Ten thousand runs that wait for a person: the first page, all pages, the counts, and the open questions."""

from __future__ import annotations

import statistics
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from gnl_core import count_runs_by_status, list_interrupts, list_runs, run_durable, tool
from gnl_core.journal import Journal
from gnl_core.testing import ScriptedModel
from scaling.stores import bounded, timed

_AT_ONCE = 64


@tool(side_effect=True, confirm=True)
async def refund(order: int, reason: str) -> str:
    """Give a customer the money back."""
    raise RuntimeError(f"nobody approved order {order}: {reason}")


async def suspend(journal: Journal, number: int) -> None:
    """Begin one run that asks a person."""
    order = {"order": number, "reason": "both chairs arrived broken, and the customer sent pictures of them"}
    result = await run_durable(
        run_id=f"order-{number:05}",
        journal=journal,
        model=ScriptedModel([[("refund", order)], "Done."]),
        tools=[refund],
        prompt=f"Refund order {number}.",
        agent="clerk",
        resource_id=f"customer-{number % 500}",
    )
    assert len(result.interrupts) == 1


async def fill(journal: Journal, runs: int) -> None:
    """Make the runs by driving them."""
    await bounded([partial(suspend, journal, number) for number in range(runs)], _AT_ONCE)


async def paged(journal: Journal, limit: int, **filters: Any) -> int:
    """Walk all pages and return how many runs they held."""
    cursor, count = None, 0
    while True:
        page = await list_runs(journal, limit=limit, cursor=cursor, **filters)
        count += len(page.runs)
        cursor = page.cursor
        if cursor is None:
            return count


async def _first(journal: Journal, **filters: Any) -> int:
    return len((await list_runs(journal, limit=50, **filters)).runs)


async def _counted(journal: Journal) -> int:
    return (await count_runs_by_status(journal))["suspended"]


async def _asked(journal: Journal) -> int:
    return len(await list_interrupts(journal))


async def measure(journal: Journal, runs: int, rounds: int) -> dict[str, dict[str, float]]:
    """Return medians in milliseconds: of the time that passed ('ms'), and of this process's processor time ('cpu')."""
    work: dict[str, tuple[Callable[[], Awaitable[int]], int]] = {
        "first page of 50": (partial(_first, journal), min(50, runs)),
        "first page of 50, suspended": (partial(_first, journal, status="suspended"), min(50, runs)),
        "all, in pages of 1,000": (partial(paged, journal, 1_000), runs),
        "all suspended, in pages of 1,000": (partial(paged, journal, 1_000, status="suspended"), runs),
        "all suspended, in pages of 50": (partial(paged, journal, 50, status="suspended"), runs),
        "counts by status": (partial(_counted, journal), runs),
        "all open questions": (partial(_asked, journal), runs),
    }
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in work}
    for _ in range(rounds):
        for name, (call, wanted) in work.items():
            processor = time.process_time()
            took, count = await timed(call)
            if count != wanted:
                raise SystemExit(f"{name}: {count} runs or questions, must be {wanted}")
            found[name].append((took, 1e3 * (time.process_time() - processor)))
    return {
        name: {"ms": statistics.median(took for took, _ in times), "cpu": statistics.median(cpu for _, cpu in times)}
        for name, times in found.items()
    }
