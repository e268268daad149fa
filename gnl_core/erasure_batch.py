"""Erase a batch: its items' runs, then what it kept of itself, so that a broken-off erasure is found again."""

from __future__ import annotations

from gnl_core import keys
from gnl_core.eraser import Eraser, driven_error
from gnl_core.erasure import Purged, purged
from gnl_core.journal import scan_all
from gnl_core.journal.port import Journal, Key

_ROUNDS = 5


async def purge_batch(journal: Journal, batch_id: str, *, force: bool = False, dry_run: bool = False) -> Purged:
    """Erase one batch's bookkeeping: its items' runs with answers, incidents and indexes, its report, its plan.

    The effects have happened, and what others know of them stays: the conversation's markers, the persons' jobs by
    identity, records under keys of their own. A batch that is run again under this id is a new one: an item whose
    person, or conversation, remembers the work is asked about, one that is named by a key of its own is given its
    recorded result, and any other runs again without a word.

    Args:
        journal: The store.
        batch_id: The batch; 'a' keeps 'a-b'.
        force: Whether to take items from drivers that are alive. An effect that is under way then is never recorded.
        dry_run: Whether to count only.

    Raises:
        RunDrivenError: An item is driven; nothing was erased unless the error says so.
        IdInvalidError: It can be no batch's id.
        JournalError: The store failed; call it again.
    """
    keys.check_item("the id of a batch", batch_id)
    what = f"batch {batch_id!r}"
    eraser = Eraser(journal, force=force, dry_run=dry_run)
    roots = await items_of(journal, batch_id)
    for _ in range(_ROUNDS):
        await eraser.refuse_driven(roots, what)
        for root in roots:
            await eraser.run(root)
        roots = [] if dry_run else await items_of(journal, batch_id)
        if not roots:
            break
    else:
        raise driven_error(what, roots)
    traces = scan_all(journal, keys.all_item_traces())
    await eraser.rows([entry.key async for entry in traces if entry.key[2:3] == (batch_id,)])
    # Its plan goes after them: until then the batch is known, and begun with nothing else.
    await eraser.under(keys.batch(batch_id))
    return purged(what, eraser)


async def items_of(journal: Journal, batch_id: str) -> list[str]:
    """Return the runs of a batch's items, in the order of their keys: one short read each.

    Raises:
        JournalError: The store cannot be read.
    """
    start = f"batch:{batch_id}:"
    found: list[str] = []
    after: Key | None = ("run", start)  # no run: the smallest text that all of them begin with
    while after is not None:
        page = await journal.scan(("run",), after=after, limit=1)
        if not page.entries or not page.entries[0].key[1].startswith(start):
            break
        found.append(page.entries[0].key[1])
        after = keys.beyond(("run", found[-1]))
    return found
