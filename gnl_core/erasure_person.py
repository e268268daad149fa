"""Erase a person: their runs, their conversations, their jobs, and what is recorded for them elsewhere.

The order lets a broken-off erasure be taken up by the same call: what leads to other rows goes after them. First what
stands outside of the person's runs, which name it; then the runs; last the traces that retention left.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gnl_core import keys
from gnl_core.batch.report import forget_items
from gnl_core.belonging import thread_owner
from gnl_core.eraser import Eraser, driven_error
from gnl_core.erasure import Purged, claimed_error, is_claimed, purged
from gnl_core.journal import get, scan_all
from gnl_core.journal.port import Add, Delete, Entry, Expect, Journal, Key, Op, Put
from gnl_core.outcome import read_head
from gnl_core.segments import segments_of

_ROUNDS = 5
_SOME = 50
"""Semantic records of one batch; each takes a handful of other rows along."""


async def purge_resource(journal: Journal, resource_id: str, *, force: bool = False, dry_run: bool = False) -> Purged:
    """Erase a person.

    That is: their runs with sub-agents, answers, incidents and indexes; the conversations that no other person's runs
    worked in, and of the others their own part; their jobs across channels; work recorded for them across runs and in
    conversations; their items in the reports of batches; the traces of swept runs, which lead to both. Refusals in the
    ledger stay: they hold no content.

    Rows that name nobody cannot be found: `list_orphan_thread_state` counts them. The head of every run and every
    conversation's records are read for it once, which takes its time in a large journal.

    Args:
        journal: The store.
        resource_id: The person.
        force: Whether to take runs from drivers that are alive, and claims from bodies that may be executing.
        dry_run: Whether to count only.

    Raises:
        RunDrivenError: A run of theirs, or of a conversation that would be erased, is driven; nothing was erased
            unless the error says so.
        IdInvalidError: It can be no person's id.
        JournalError: The store failed; call it again.
    """
    keys.check_id("resource_id", resource_id)
    what = f"person {resource_id!r}"
    eraser = Eraser(journal, force=force, dry_run=dry_run)
    for _ in range(_ROUNDS):
        person = _Person(eraser, resource_id, what)
        await person.find()
        await person.refuse()
        await person.erase()
        if dry_run or not await eraser.indexed("res", resource_id):
            break
    else:
        raise driven_error(what, await eraser.indexed("res", resource_id))
    await eraser.under(keys.jobs_of(resource_id))
    for thread in person.shared:
        if await thread_owner(journal, thread) == resource_id:
            await eraser.under(keys.thread_owner(thread))
        await eraser.under(keys.worked(thread, resource_id))  # last: it is what leads to the conversation
    await eraser.under(keys.traces_of(resource_id))
    await eraser.under(keys.item_traces_of(resource_id))
    return purged(what, eraser)


class _Person:
    """What is there of one person, found before anything of it is erased."""

    def __init__(self, eraser: Eraser, resource: str, what: str) -> None:
        self.eraser = eraser
        self.resource = resource
        self.what = what
        self.roots: list[str] = []
        self.threads: list[str] = []
        self.shared: list[str] = []
        self.records: list[Key] = []
        self.late: list[Entry] = []
        self._involved: list[str] = []
        self._claimed: Key | None = None

    async def find(self) -> None:
        """Read which runs, conversations and records are theirs."""
        eraser, journal = self.eraser, self.eraser.journal
        self.roots = await eraser.indexed("res", self.resource)
        self.roots += await self._unlisted(set(self.roots))
        threads = {entry.key[2] async for entry in scan_all(journal, keys.traces_of(self.resource))}
        for looked in await eraser.look(self.roots):
            head = read_head(looked.head)
            if head is not None and isinstance(head.get("thread"), str):
                threads.add(head["thread"])
        async for thread in segments_of(journal, ("mem",)):
            if await get(journal, keys.worked(thread, self.resource)) is not None:
                threads.add(thread)
        self._involved = list(self.roots)
        for thread in sorted(threads):
            runs = await eraser.runs_in(thread)
            if await self._is_shared(thread, runs):
                self.shared.append(thread)
            else:
                self.threads.append(thread)
                self._involved += [root for root in runs if root not in self._involved]
        await self._find_records()

    async def _unlisted(self, listed: set[str]) -> list[str]:
        """Return their runs that stand in no index: forks whose copying was broken off."""
        roots = [root async for root in segments_of(self.eraser.journal, ("run",)) if root not in listed]
        heads = [read_head(looked.head) or {} for looked in await self.eraser.look(roots)]
        return [root for root, head in zip(roots, heads, strict=True) if head.get("resource") == self.resource]

    async def _is_shared(self, thread: str, runs: list[str]) -> bool:
        own = keys.worked(thread, self.resource)
        async for entry in scan_all(self.eraser.journal, keys.workers_of(thread)):
            if len(entry.key) == len(own) and entry.key != own:
                return True
        heads = [read_head(looked.head) for looked in await self.eraser.look(runs)]
        return any((head or {}).get("resource") not in (None, self.resource) for head in heads)

    async def _find_records(self) -> None:
        """Find what is recorded for them under keys of its own."""
        journal, roots = self.eraser.journal, set(self.roots)
        now = await journal.now()
        async for entry in scan_all(journal, ("xrun",)):
            self._take(entry, roots, now)
        whole = set(self.threads)
        async for thread in segments_of(journal, ("xthr",)):
            async for entry in scan_all(journal, (*keys.thread_scope(thread), "args")):
                self._take(entry, roots, now, kept=thread not in whole)
        for thread in self.shared:
            for part in ("dup", "semtomb"):
                async for entry in scan_all(journal, (*keys.thread_scope(thread), part)):
                    if _root(entry.value) in roots:
                        self.records.append(entry.key)

    def _take(self, entry: Entry, roots: set[str], now: int, *, kept: bool = True) -> None:
        value: Any = entry.value
        if kept and not (isinstance(value, dict) and (value.get("resource") == self.resource or _root(value) in roots)):
            return
        if is_claimed(entry, now) and self._claimed is None:
            self._claimed = entry.key
        if kept:
            self.records.append(entry.key)
            self.late.append(entry)

    async def refuse(self) -> None:
        """Raise if some of it is being worked on.

        Raises:
            RunDrivenError: It is.
        """
        await self.eraser.refuse_driven(self._involved, self.what)
        if self._claimed is not None and not self.eraser.force:
            raise claimed_error(self._claimed, self.what)

    async def erase(self) -> None:
        """Erase what was found, the runs last."""
        eraser, roots = self.eraser, set(self.roots)
        for thread in self.threads:
            await eraser.thread(thread)
        for thread in self.shared:
            scope = keys.thread_scope(thread)
            tools = {tool async for tool in segments_of(eraser.journal, (*scope, "sem"))}
            for tool in sorted(tools):
                await _erase_similar(eraser, scope, tool, roots)
        for entry in self.late:
            await eraser.late(entry)
        await eraser.rows(self.records)
        await self._leave_batches()
        for root in self.roots:
            await eraser.run(root)
        # An index row whose run is gone is nobody's any more.
        gone = [root for root in self.roots if root in set(await eraser.indexed("res", self.resource))]
        if gone and not eraser.dry_run:
            looked = dict(zip(gone, await eraser.look(gone), strict=True))
            index = scan_all(eraser.journal, ("ix", "res", self.resource))
            await eraser.rows(
                [row.key async for row in index if row.key[-1] in looked and not looked[row.key[-1]].head]
            )

    async def _leave_batches(self) -> None:
        """Take their items out of the reports of batches, before the runs go that lead to them."""
        batches: dict[str, set[str]] = {}
        for root in self.roots:
            batch = keys.batch_of(root)
            if batch is not None:
                batches.setdefault(batch, set()).add(root.rpartition(":")[2])
        async for entry in scan_all(self.eraser.journal, keys.item_traces_of(self.resource)):
            batches.setdefault(entry.key[2], set()).add(entry.key[3])
        if not self.eraser.dry_run:
            for batch, items in batches.items():
                await forget_items(self.eraser.journal, batch, items)


def _root(value: object) -> str:
    """Return the root run that a record of earlier work names; '' where it names none."""
    run = value.get("run") if isinstance(value, Mapping) else None
    return keys.split_run_id(run)[0] if isinstance(run, str) else ""


async def _erase_similar(eraser: Eraser, scope: Key, tool: str, roots: set[str]) -> None:
    """Erase the semantic records of some runs in a conversation that others go on with.

    The generation changes in the batch that takes the records, so that every cache reads the rest anew. Copies of
    vectors go first and whole: a block holds those of many records, and is written again when it is due.
    """
    journal = eraser.journal
    gone = {
        entry.key[-1] async for entry in scan_all(journal, keys.similar_of(scope, tool)) if _root(entry.value) in roots
    }
    if not gone:
        return
    await eraser.under((*scope, "semvec", tool))
    beside = [
        entry.key
        for part in ("semfold", "semtomb", "semjudge")
        async for entry in scan_all(journal, (*scope, part, tool))
        if gone.intersection(entry.key[4:])
    ]
    await eraser.rows(beside)
    wanted = [keys.similar(scope, tool, digest) for digest in sorted(gone)]
    for start in range(0, len(wanted), _SOME):
        some = wanted[start : start + _SOME]
        eraser.counts["xthr/sem"] += len(some)
        if not eraser.dry_run:
            await eraser.apply([*await _counted(journal, scope, tool, len(some)), *map(Delete, some)], scope[1])


async def _counted(journal: Journal, scope: Key, tool: str, gone: int) -> list[Op]:
    """Return the operations that count records out of a scope's generation."""
    key = keys.generation(scope, tool)
    row = await get(journal, key)
    if row is None:
        return [Expect(key, "absent")]
    count: Any = row.value.get("n") if isinstance(row.value, dict) else None
    if type(count) is not int or not isinstance(row.value, dict):
        return [Put(key, {})]
    if count <= gone:
        return [Delete(key, row.version)]
    return [Add(key, {"n": -gone})]
