"""Conversations whose time is over, and those whose state nobody owns; and the ledger's old entries.

What is remembered in a conversation is data of the people in it, so nothing here runs by itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from gnl_core import keys
from gnl_core.eraser import Eraser
from gnl_core.errors import ConfigError, JournalFormatError, StoreCorruptError
from gnl_core.journal import scan_all
from gnl_core.journal.port import Entry, Journal, JsonValue, Key
from gnl_core.lock import holder
from gnl_core.outcome import read_head
from gnl_core.records import read_call
from gnl_core.segments import segments_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadState:
    """What is remembered in one conversation that no erasure of a person finds.

    Attributes:
        thread_id: The conversation.
        rows: Rows of it.
        last_activity: When the last of them was written, in milliseconds of the store's clock.
    """

    thread_id: str
    rows: int
    last_activity: int

    def to_json(self) -> dict[str, JsonValue]:
        """Return it for programs."""
        return {"thread_id": self.thread_id, "rows": self.rows, "last_activity": self.last_activity}


@dataclass(frozen=True, slots=True, kw_only=True)
class SweptThreads:
    """What a sweep of conversations did, or would do.

    Attributes:
        scanned: Conversations.
        purged: Conversations whose state was deleted.
        deleted_rows: Rows deleted.
        kept_active: Conversations younger than the limit.
        kept_waiting: Conversations kept since a run of theirs is driven, or waits for a person, or since work of
            theirs began and nobody knows how it ended.
        kept_no_ts: Conversations kept since how old they are cannot be measured.
        orphan_thread_state: Those that nobody owned, before the sweep.
        dry_run: Whether nothing was deleted.
    """

    scanned: int = 0
    purged: int = 0
    deleted_rows: int = 0
    kept_active: int = 0
    kept_waiting: int = 0
    kept_no_ts: int = 0
    orphan_thread_state: tuple[ThreadState, ...] = ()
    dry_run: bool = False

    def to_json(self) -> dict[str, JsonValue]:
        """Return it for programs; every member is there."""
        counts = {name: getattr(self, name) for name in SweptThreads.__slots__ if name != "orphan_thread_state"}
        return counts | {"orphan_thread_state": [one.to_json() for one in self.orphan_thread_state]}


@dataclass(frozen=True, slots=True, kw_only=True)
class SweptLog:
    """What a sweep of one namespace of the ledger did, or would do.

    Attributes:
        scanned: Entries.
        deleted_rows: Entries deleted.
        kept_no_ts: Entries kept since how old they are cannot be measured.
        dry_run: Whether nothing was deleted.
    """

    scanned: int = 0
    deleted_rows: int = 0
    kept_no_ts: int = 0
    dry_run: bool = False

    def to_json(self) -> dict[str, JsonValue]:
        """Return it for programs; every member is there."""
        return {name: getattr(self, name) for name in SweptLog.__slots__}


async def list_orphan_thread_state(journal: Journal) -> list[ThreadState]:
    """List the conversations whose state no erasure of a person finds: no run of a person worked there. Reading only.

    Raises:
        JournalError: The store cannot be read.
    """
    eraser = Eraser(journal)
    traced = {entry.key[2] async for entry in scan_all(journal, keys.all_traces()) if len(entry.key) == 3}
    return [
        await _state(journal, thread)
        for thread in await _threads(journal, "thread", "xthr")
        if thread not in traced and not await _is_owned(eraser, thread)
    ]


async def sweep_threads(journal: Journal, *, older_than_ms: int, dry_run: bool = False) -> SweptThreads:
    """Delete what is remembered in conversations whose last activity is older than a limit.

    Their runs stay; `sweep_runs` deletes those. Work in doubt stays until it is settled: whoever asks for it next would
    begin it again. The last activity is what was last written of the conversation, or the last change of status of its
    runs.

    Args:
        journal: The store's journal, or one organisation's: the other ones' part is not looked at.
        older_than_ms: Age in milliseconds, 0 or more.
        dry_run: Whether to count only.

    Raises:
        ConfigError: The age is below 0.
        JournalError: The store failed; call it again.
    """
    check_age("older_than_ms", older_than_ms)
    orphans = await list_orphan_thread_state(journal)
    eraser = Eraser(journal, dry_run=dry_run)
    now = await journal.now()
    counts = {"scanned": 0, "purged": 0, "kept_active": 0, "kept_waiting": 0, "kept_no_ts": 0}
    gone = set[str]()
    for thread in await _threads(journal, "mem", "thread", "xthr"):
        counts["scanned"] += 1
        kept = await _kept(eraser, thread, now - older_than_ms)
        counts[kept or "purged"] += 1
        if kept is None:
            await eraser.thread(thread)
            gone.add(thread)
    if gone:
        await eraser.rows([entry.key async for entry in scan_all(journal, keys.all_traces()) if entry.key[-1] in gone])
    return SweptThreads(
        **counts, deleted_rows=eraser.counts.total(), orphan_thread_state=tuple(orphans), dry_run=dry_run
    )


async def sweep_log(journal: Journal, namespace: str, *, older_than_ms: int, dry_run: bool = False) -> SweptLog:
    """Delete a namespace's entries of the ledger that are older than a limit. Neither sweeps nor erasures do.

    Args:
        journal: The store's journal, or one organisation's: the other ones' part is not looked at.
        namespace: For instance 'conflict', the refusals.
        older_than_ms: Age in milliseconds, 0 or more.
        dry_run: Whether to count only.

    Raises:
        ConfigError: The age is below 0.
        JournalError: The store failed; call it again.
    """
    check_age("older_than_ms", older_than_ms)
    eraser = Eraser(journal, dry_run=dry_run)
    before = await journal.now() - older_than_ms
    scanned = unknown = 0
    prefix, after = keys.ledger(keys.check_id("namespace", namespace)), None
    while True:
        page = await journal.scan(prefix, after=after)
        scanned += len(page.entries)
        unknown += sum(entry.updated_at <= 0 for entry in page.entries)
        await eraser.rows([entry.key for entry in page.entries if 0 < entry.updated_at < before])
        after = page.after
        if after is None:
            return SweptLog(scanned=scanned, deleted_rows=eraser.counts.total(), kept_no_ts=unknown, dry_run=dry_run)


def check_age(name: str, age: int) -> None:
    """Refuse what is no age.

    Raises:
        ConfigError: It is below 0, or no int.
    """
    if type(age) is not int or age < 0:
        raise ConfigError(f"{name} is {age!r}, must be an age in milliseconds, 0 or more")


async def _threads(journal: Journal, *families: str) -> list[str]:
    """Return every conversation of which something stands in one of these families."""
    return sorted({thread for family in families async for thread in segments_of(journal, (family,))})


def _prefixes(thread: str) -> tuple[Key, ...]:
    return keys.workers_of(thread), keys.thread_of(thread), keys.thread_scope(thread)


async def _state(journal: Journal, thread: str) -> ThreadState:
    times = [entry.updated_at for prefix in _prefixes(thread) async for entry in scan_all(journal, prefix)]
    return ThreadState(thread_id=thread, rows=len(times), last_activity=max(times, default=0))


async def _is_owned(eraser: Eraser, thread: str) -> bool:
    async for entry in scan_all(eraser.journal, keys.workers_of(thread)):
        if entry.key[2:3] == ("of",):
            return True
    if await _names_persons(eraser.journal, thread):
        return True
    heads = [read_head(looked.head) for looked in await eraser.look(await eraser.runs_in(thread))]
    return any(head is not None and head.get("resource") for head in heads)


async def _names_persons(journal: Journal, thread: str) -> bool:
    """Return whether each row of a conversation is work that names its person, as that of no run may."""
    seen = False
    for prefix in (keys.thread_of(thread), keys.thread_scope(thread)):
        async for entry in scan_all(journal, prefix):
            seen = entry.key[2] == "args" and isinstance(entry.value, dict) and bool(entry.value.get("resource"))
            if not seen:
                return False
    return seen


async def _kept(eraser: Eraser, thread: str, before: int) -> str | None:
    """Return what a conversation counts as that is kept."""
    state = await _state(eraser.journal, thread)
    if state.last_activity <= 0:
        return "kept_no_ts"
    last = state.last_activity
    for looked in await eraser.look(await eraser.runs_in(thread)):
        head = read_head(looked.head) or {}
        if head.get("status") == "suspended" or holder(looked.lock, looked.beat, looked.now) is not None:
            return "kept_waiting"
        changed = head.get("changed_at")
        last = max(last, changed if isinstance(changed, int) else 0)
    if last >= before:
        return "kept_active"
    work = scan_all(eraser.journal, (*keys.thread_scope(thread), "args"))
    return "kept_waiting" if any([_is_unsettled(entry) async for entry in work]) else None


def _is_unsettled(entry: Entry) -> bool:
    """Whether nobody knows how work ended that acts on the world, or its record cannot be read."""
    try:
        record = read_call(entry)
    except (StoreCorruptError, JournalFormatError):
        return True
    return record.side_effect and not record.terminal and record.status not in ("suspended", "released")
