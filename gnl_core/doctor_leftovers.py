"""What erasures that were broken off left behind, and what is remembered of nobody: told, and never deleted here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnl_core import keys
from gnl_core.eraser import Eraser
from gnl_core.journal import get
from gnl_core.journal.port import Journal
from gnl_core.outcome import read_head
from gnl_core.retention_threads import list_orphan_thread_state
from gnl_core.segments import segments_of

if TYPE_CHECKING:
    from gnl_core.doctor import Finding

_SHOWN = 5


async def examine_leftovers(journal: Journal, org: str) -> list[Finding]:
    """Tell of runs that are half erased, rows of runs that are gone, and the state of conversations that nobody owns.

    Raises:
        JournalError: The store cannot be read.
    """
    from gnl_core.doctor import Finding  # noqa: PLC0415 - it imports this module

    half: list[str] = []
    headless: list[str] = []
    roots = [root async for root in segments_of(journal, ("run",)) if not root.startswith("__")]
    for root, looked in zip(roots, await Eraser(journal).look(roots), strict=True):
        head = read_head(looked.head)
        if head is None:
            headless.append(root)
        elif head.get("erasing"):
            half.append(root)
    found = []
    if half or headless:
        wrong = [f"{len(half)} runs are half erased"] * bool(half)
        wrong += [f"rows of {len(headless)} runs stand without their head"] * bool(headless)
        named = (*half, *headless)
        shown = ", ".join(map(repr, named[:_SHOWN])) + (" …" if len(named) > _SHOWN else "")
        advice = (
            f"end it: gnl purge run {named[0]} --yes, and so on" if half else f"gnl purge run {named[0]}, and so on"
        )
        found.append(
            Finding(
                check="erasure.leftovers",
                level="waits",
                text=f"{'; '.join(wrong)}: {shown}",
                run_id=named[0],
                org=org,
                advice=advice,
            )
        )
    orphans = await list_orphan_thread_state(journal)
    if orphans:
        rows = sum(one.rows for one in orphans)
        found.append(
            Finding(
                check="threads.orphans",
                level="note",
                text=f"{len(orphans)} conversations, {rows} rows, name no person: no erasure of a person finds them",
                org=org,
                advice="gnl sweep threads --older-than AGE deletes conversations by age, gnl purge thread one of them",
            )
        )
    if not org:
        found += [
            Finding(
                check="erasure.leftovers",
                level="waits",
                text=f"the erasing of organisation {name!r} was broken off",
                org=name,
                advice=f"end it: gnl purge org {name} --yes",
            )
            async for name in segments_of(journal, ("org",))
            if await _is_begun(journal, name)
        ]
    return found


async def _is_begun(journal: Journal, org: str) -> bool:
    row = await get(journal, keys.erased_org(org))
    return row is not None and isinstance(row.value, dict) and row.value.get("state") == "begun"
