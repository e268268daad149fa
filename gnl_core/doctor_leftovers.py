"""What broken-off erasures left behind, tombstones with content, batches without a plan, and what nobody owns.

All of it is told, and never deleted here.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gnl_core import keys
from gnl_core.eraser import Eraser
from gnl_core.journal import get, scan_all
from gnl_core.journal.port import Journal
from gnl_core.outcome import read_head
from gnl_core.retention_threads import list_orphan_thread_state
from gnl_core.segments import segments_of

if TYPE_CHECKING:
    from gnl_core.doctor import Finding

_SHOWN = 5
_HASHES = {"input": 32, "work_key_hash": 16}
"""What a tombstone may hold beside its format and its time: so many hex digits, and nothing that was said."""

_HEX = frozenset("0123456789abcdef")


async def examine_leftovers(journal: Journal, org: str) -> list[Finding]:
    """Tell of half erased runs, rows of runs that are gone, tombstones with content, and nobody's conversations.

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
        words = ("run", named[0])
        advice = f"end it: {_purge(*words, org=org, yes=True)}" if half else _purge(*words, org=org)
        advice += ", and so on"
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
    found += await _examine_tombstones(journal, org)
    found += await _examine_batches(journal, org, roots)
    orphans = await list_orphan_thread_state(journal)
    if orphans:
        rows = sum(one.rows for one in orphans)
        found.append(
            Finding(
                check="threads.orphans",
                level="note",
                text=f"{len(orphans)} conversations, {rows} rows, name no person: no erasure of a person finds them",
                org=org,
                advice=(
                    f"gnl sweep threads --older-than AGE{_of(org)} deletes conversations by age, "
                    f"{_purge('thread', orphans[0].thread_id, org=org)} one of them"
                ),
            )
        )
    if not org:
        found += [
            Finding(
                check="erasure.leftovers",
                level="waits",
                text=f"the erasing of organisation {name!r} was broken off",
                org=name,
                advice=f"end it: {_purge('org', name, yes=True)}",
            )
            async for name in segments_of(journal, ("org",))
            if await _is_begun(journal, name)
        ]
    return found


def _purge(*words: str, org: str = "", yes: bool = False) -> str:
    """Return a command as a shell takes it; without its organisation it would find nothing, and end well."""
    return f"{shlex.join(('gnl', 'purge', *words))}{_of(org)}{' --yes' if yes else ''}"


def _of(org: str) -> str:
    return f" --org {shlex.quote(org)}" if org else ""


async def _is_begun(journal: Journal, org: str) -> bool:
    row = await get(journal, keys.erased_org(org))
    return row is not None and isinstance(row.value, dict) and row.value.get("state") == "begun"


async def _examine_batches(journal: Journal, org: str, roots: Sequence[str]) -> list[Finding]:
    """Tell of batches whose items or whose report stand without the plan that says what they are."""
    from gnl_core.doctor import Finding  # noqa: PLC0415 - it imports this module

    batches = {batch for root in roots if (batch := keys.batch_of(root)) is not None}
    batches |= {batch async for batch in segments_of(journal, ("batch",))}
    wrong = [batch for batch in sorted(batches) if await get(journal, keys.batch_plan(batch)) is None]
    if not wrong:
        return []
    shown = ", ".join(map(repr, wrong[:_SHOWN])) + (" …" if len(wrong) > _SHOWN else "")
    return [
        Finding(
            check="batches.orphans",
            level="waits",
            text=f"{len(wrong)} batches have rows and no plan: {shown}",
            org=org,
            advice=f"end their erasing: {_purge('batch', wrong[0], org=org, yes=True)}, and so on",
        )
    ]


async def _examine_tombstones(journal: Journal, org: str) -> list[Finding]:
    from gnl_core.doctor import Finding  # noqa: PLC0415 - it imports this module

    wrong = [entry.key[-1] async for entry in scan_all(journal, keys.all_swept()) if not _holds_hashes(entry.value)]
    if not wrong:
        return []
    shown = ", ".join(map(repr, wrong[:_SHOWN])) + (" …" if len(wrong) > _SHOWN else "")
    return [
        Finding(
            check="erasure.tombstones",
            level="waits",
            text=f"{len(wrong)} tombstones of swept runs hold more than a time and hashes: {shown}",
            run_id=wrong[0],
            org=org,
            advice="no sweep of this release writes such rows: find out what wrote them; an erasure does not read them",
        )
    ]


def _holds_hashes(value: object) -> bool:
    """Return whether a tombstone holds what a sweep writes, and no content."""
    if not isinstance(value, dict) or not value.keys() <= {"f", "at", *_HASHES}:
        return False
    if any(type(value.get(name)) is not int for name in ("f", "at")):
        return False
    hashes = [(value[name], size) for name, size in _HASHES.items() if name in value]
    return all(isinstance(text, str) and len(text) == size and not set(text) - _HEX for text, size in hashes)
