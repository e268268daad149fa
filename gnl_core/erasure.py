"""Erase for good: a run, a conversation, a person, an organisation, or work recorded across runs.

The journal is written for keeps, and this is the deliberate exception. Every function says what is gone, and which
repeats are not recognised any more because of it. One that was broken off, by a kill or by the store, is called again
and ends what it began; an error never stands as "nothing was there". What is asked for by name is erased as whole
segments: 'r-1' keeps 'r-10', 'bob' keeps 'bob:evil'.

Deleted rows stay readable in backups, in replicas that lag, and in SQLite's write-ahead log until its next checkpoint.
A cache of vectors in another process forgets a conversation at its next call there, or after ten idle minutes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gnl_core import keys
from gnl_core.claims import parse_claim
from gnl_core.eraser import Eraser
from gnl_core.errors import ChildRunError, ConfigError, JournalError, RunDrivenError
from gnl_core.journal import get, scan_all
from gnl_core.journal.port import Entry, Journal, JsonValue, Key, Put
from gnl_core.look import may_still_run
from gnl_core.records import FORMAT, read_call
from gnl_core.segments import segments_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Purged:
    """What was erased, or would be.

    Attributes:
        what: What was asked for: "run 'r-1'".
        rows: Deleted rows by family: 'run', 'ix', 'xthr/dup' …
        runs: Root runs among it, each with its sub-agents.
        threads: Conversations among it.
        dry_run: Whether nothing was deleted, only counted.
    """

    what: str
    rows: Mapping[str, int] = field(default_factory=dict)
    runs: int = 0
    threads: int = 0
    dry_run: bool = False

    @property
    def deleted(self) -> int:
        """Rows in all; 0 means that nothing of that name was there."""
        return sum(self.rows.values())

    @property
    def windows(self) -> tuple[str, ...]:
        """Which repeats are not recognised any more, one sentence each."""
        counts = {
            "runs": self.runs,
            "equal": self.rows.get("xthr/dup", 0) + self.rows.get("xthr/args", 0),
            "alike": self.rows.get("xthr/sem", 0),
            "channel": self.rows.get("xid", 0),
            "keyed": self.rows.get("xrun", 0),
        }
        return tuple(_WINDOWS[name].format(count) for name, count in counts.items() if count)

    def to_json(self) -> dict[str, JsonValue]:
        """Return it for programs; every member is there."""
        return {
            "what": self.what,
            "deleted": self.deleted,
            "rows": dict(self.rows),
            "runs": self.runs,
            "threads": self.threads,
            "windows": list(self.windows),
            "dry_run": self.dry_run,
        }


_WINDOWS = {
    "runs": "runs: {}. One that is begun again under its id runs everything again",
    "equal": "calls of conversations: {}. The same arguments run again there, and nobody is asked",
    "alike": "jobs of conversations: {}. What looks like them is not asked about any more",
    "channel": "jobs of persons: {}. The same job from another channel is not asked about any more",
    "keyed": "calls recorded across runs: {}. The next call of the same work runs it again",
}


def purged(what: str, eraser: Eraser) -> Purged:
    """Return what an eraser did."""
    return Purged(
        what=what,
        rows={name: count for name, count in sorted(eraser.counts.items()) if count},
        runs=eraser.runs,
        threads=eraser.threads,
        dry_run=eraser.dry_run,
    )


async def purge_run(journal: Journal, run_id: str, *, force: bool = False, dry_run: bool = False) -> Purged:
    """Erase one run with its sub-agents, answers, incidents and indexes.

    What it left for others stays: records across runs, its conversation, its person's jobs, refusals in the ledger.

    Args:
        journal: The store.
        run_id: The root run.
        force: Whether to take it from a driver that is alive. An effect that is under way then is never recorded.
        dry_run: Whether to count only.

    Raises:
        RunDrivenError: Somebody drives it.
        ChildRunError: It is a sub-agent's, which goes with its root.
        IdInvalidError: It can be no run's id.
        JournalError: The store failed; call it again.
    """
    root, part = keys.split_run_id(keys.check_id("run_id", run_id))
    if part != keys.ROOT:
        raise ChildRunError(
            f"run {run_id!r} is a sub-agent's and is erased with its root run: purge {root!r}", run_id=run_id, root=root
        )
    eraser = Eraser(journal, force=force, dry_run=dry_run)
    await eraser.run(root)
    return purged(f"run {root!r}", eraser)


async def purge_thread(journal: Journal, thread_id: str, *, force: bool = False, dry_run: bool = False) -> Purged:
    """Erase what is remembered in a conversation: markers, semantic records, verdicts, taint, who worked in it.

    Its runs stay; `purge_run` erases them. What was said is the caller's to keep or delete.

    Args:
        journal: The store.
        thread_id: The conversation.
        force: Whether to do so while one of its runs is driven.
        dry_run: Whether to count only.

    Raises:
        RunDrivenError: One of its runs is driven.
        IdInvalidError: It can be no conversation's id.
        JournalError: The store failed; call it again.
    """
    keys.check_id("thread_id", thread_id)
    eraser = Eraser(journal, force=force, dry_run=dry_run)
    what = f"thread {thread_id!r}"
    await eraser.refuse_driven(await eraser.runs_in(thread_id), what)
    await refuse_claimed(eraser, (*keys.thread_scope(thread_id), "args"), what)
    await eraser.thread(thread_id)
    traces = [entry.key async for entry in scan_all(journal, keys.all_traces()) if entry.key[2:] == (thread_id,)]
    await eraser.rows(traces)
    return purged(what, eraser)


async def purge_cross_run(
    journal: Journal, *, tool: str, key: str | None = None, force: bool = False, dry_run: bool = False
) -> Purged:
    """Erase what is recorded of a tool's work across runs.

    Args:
        journal: The store.
        tool: Name of the tool.
        key: Which work: the record's key as `gnl claims list` shows it, or its last segment; None for all of the tool.
        force: Whether to erase claims that may still be executing: the same work may then run twice at once.
        dry_run: Whether to count only.

    Raises:
        RunDrivenError: A claim may still be executing.
        ConfigError: The key is another tool's, or no record's.
        JournalError: The store failed; call it again.
    """
    prefix = keys.xrun_args(tool, "x")[:-1]
    if key is not None:
        place = parse_claim(key) if "/" in key else (*prefix, key)
        if place[:-1] != prefix:
            raise ConfigError(f"key {key!r} names no work of {tool} across runs; it begins with {keys.encode(prefix)}/")
        prefix = place
    eraser = Eraser(journal, force=force, dry_run=dry_run)
    what = f"cross-run work of {tool}"
    await refuse_claimed(eraser, prefix, what)
    await eraser.beside(prefix)
    await eraser.under(prefix)
    return purged(what, eraser)


async def purge_organization(journal: Journal, org: str, *, force: bool = False, dry_run: bool = False) -> Purged:
    """Erase everything of one organisation; that it was erased, and when, stays noted outside of it.

    Args:
        journal: The store's own journal, of no organisation.
        org: The organisation.
        force: Whether to do so while runs of it are driven.
        dry_run: Whether to count only.

    Raises:
        RunDrivenError: Runs of it are driven.
        ConfigError: The journal is an organisation's own, or there can be no such organisation.
        JournalError: The store failed; call it again.
    """
    eraser = Eraser(journal.scoped(org), force=force, dry_run=dry_run)
    what = f"organization {org!r}"
    await eraser.refuse_driven(await eraser.indexed("status", "running"), what)
    await refuse_claimed(eraser, ("xrun",), what)
    noted = await get(journal, keys.erased_org(org))
    if not dry_run and (noted is not None or (await eraser.journal.scan((), limit=1)).entries):
        await eraser.note(journal, Put(keys.erased_org(org), {"f": FORMAT, "state": "begun"}))
    eraser.runs = len([root async for root in segments_of(eraser.journal, ("run",)) if not root.startswith("__")])
    async for thread in segments_of(eraser.journal, ("xthr",)):
        await eraser.thread(thread)
    after: Key | None = None
    while page := (await eraser.journal.scan((), after=after, limit=1)).entries:
        family = page[0].key[:1]
        await eraser.under(family)
        after = keys.beyond(family)
    if not dry_run and (noted is not None or eraser.counts):
        await eraser.note(journal, Put(keys.erased_org(org), {"f": FORMAT, "state": "done"}))
    return purged(what, eraser)


async def refuse_claimed(eraser: Eraser, prefix: Key, what: str) -> None:
    """Raise if work that is recorded below a prefix may be executing.

    Raises:
        RunDrivenError: The error names the first claim.
    """
    if eraser.force:
        return
    now = await eraser.journal.now()
    async for entry in scan_all(eraser.journal, prefix):
        if is_claimed(entry, now):
            raise claimed_error(entry.key, what)


def is_claimed(entry: Entry, now: int) -> bool:
    """Return whether a record of keyed work is one that may be executing; one that cannot be read is none."""
    try:
        record = read_call(entry)
    except JournalError:
        return False
    return record.status == "running" and may_still_run(record, entry, now)


def claimed_error(key: Key, what: str) -> RunDrivenError:
    """Return the error of an erasure that would take a claim from under its body."""
    text = keys.encode(key)
    return RunDrivenError(
        f"{what} is not erased: {text} may be executing. Wait until it has ended; with force it is erased, and the "
        "same work may then run twice at once",
        key=text,
    )
