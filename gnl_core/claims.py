"""Work recorded under a key of its own, outside of runs: that whose end nobody knows, and an operator's word on it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from gnl_core import keys
from gnl_core.approvals import MISSING
from gnl_core.codec import encode
from gnl_core.crash import succeeded
from gnl_core.errors import ConfigError, JournalFormatError, RefusedError, StoreCorruptError
from gnl_core.journal import get, scan_all
from gnl_core.journal.port import Applied, Entry, Journal, JsonValue, Key, Replace, new_batch
from gnl_core.look import may_still_run
from gnl_core.owner import is_dead, new_owner, read_owner
from gnl_core.records import CallRecord, read_call

FAMILIES = (("xrun",), ("xthr",))
"""Prefixes of the rows that hold such work."""

_NO_RUN = "__"
"""What stands for a run where there is none begins like this, as no caller's run id does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Work that acts on the world, was begun, and whose end nobody knows.

    Attributes:
        key: The encoded key of its record.
        tool: Name of the tool.
        args: Arguments of the call that began it.
        status: 'in_doubt', or 'failed': its body raised, which says nothing of what it had done by then.
        attempts: How often it was begun.
        began_at: Milliseconds of the store's clock; 0 where it is not known.
        run_id: The run that began it; '' for `with_idempotency`.
        question: The question of that run, if it can still be answered; '' where nobody is asked.
        thread_id: Conversation that it belongs to.
        resource_id: Person on whose behalf it was begun.
        error: {'type', 'message', …} of what a failed body raised.
    """

    key: str
    tool: str
    args: Mapping[str, JsonValue]
    status: Literal["in_doubt", "failed"]
    attempts: int
    began_at: int
    run_id: str = ""
    question: str = ""
    thread_id: str = ""
    resource_id: str = ""
    error: Mapping[str, JsonValue] | None = None

    def to_json(self) -> dict[str, JsonValue]:
        """Return the claim for programs; every member is there."""
        return {
            "key": self.key,
            "tool": self.tool,
            "args": dict(self.args),
            "status": self.status,
            "attempts": self.attempts,
            "began_at": self.began_at,
            "run_id": self.run_id,
            "question": self.question,
            "thread_id": self.thread_id,
            "resource_id": self.resource_id,
            "error": dict(self.error) if self.error is not None else None,
        }


async def list_claims(journal: Journal, *, unreadable: list[str] | None = None) -> list[Claim]:
    """List the work that is in doubt or failed, in the order of its keys. It reads every record of keyed work.

    What may still be executing is not among it, nor what is certain not to have happened.

    Args:
        journal: The store.
        unreadable: Takes a sentence for each row that cannot be read; without it the first is raised.

    Raises:
        JournalError: The store, or a row, cannot be read.
    """
    found: list[Claim] = []
    now = await journal.now()
    for family in FAMILIES:
        async for entry in scan_all(journal, family):
            try:
                record = read_call(entry)
            except (StoreCorruptError, JournalFormatError) as error:
                if unreadable is None:
                    raise
                unreadable.append(str(error))
                continue
            if record.side_effect and _is_open(record, entry, now):
                found.append(await _claim(journal, record, entry))
    return found


def _is_open(record: CallRecord, entry: Entry, now: int) -> bool:
    if record.status == "failed":
        return not record.certain
    return record.status in ("running", "in_doubt") and not may_still_run(record, entry, now)


async def _claim(journal: Journal, record: CallRecord, entry: Entry) -> Claim:
    place = keys.parse_call_id(record.call)
    own = await get(journal, keys.tool(*keys.split_run_id(record.run), *place)) if record.run and place else None
    return Claim(
        key=keys.encode(entry.key),
        tool=record.tool,
        args=record.args,
        status="failed" if record.status == "failed" else "in_doubt",
        attempts=record.attempts,
        began_at=record.started_at or (entry.updated_at if record.status == "running" else 0),
        run_id="" if record.run.startswith(_NO_RUN) else record.run,
        question=f"{record.run}/{record.call}/in_doubt/{record.attempts}" if own is not None else "",
        thread_id=entry.key[1] if entry.key[0] == "xthr" else "",
        resource_id=record.resource,
        error=record.error,
    )


def parse_claim(text: str) -> Key:
    """Return the key of a claim as lists spell it.

    Raises:
        ConfigError: The text is the spelling of no such key.
    """
    try:
        place = keys.decode(text)
    except ValueError:
        place = ()
    match place:
        case ("xrun", "args", _, _) | ("xthr", _, "args", _, _):
            return place
        case _:
            raise ConfigError(
                f"{text[:200]!r} is the key of no claim; `gnl claims list` shows them, for instance "
                "xrun/args/pay/9f86d081884c7d65"
            )


async def free_claim(journal: Journal, key: Key, *, output: Any = MISSING) -> bool:
    """Say, as an operator, what became of recorded work that failed, or whose process is gone.

    Without `output`: it did not happen, and its next call begins afresh. With it: it happened and came to this, and
    every next call is given it.

    Args:
        journal: The store.
        key: Where the record stands.
        output: What the work is known to have come to.

    Returns:
        Whether there is such a record.

    Raises:
        NotCanonicalError: `output` cannot be stored.
        RefusedError: The work is done, may still be executing, or its record changed meanwhile.
    """
    entry = await get(journal, key)
    if entry is None:
        return False
    record = read_call(entry)
    now = await journal.now()
    if record.status != "failed" and not _is_open(record, entry, now):
        left = -(-((record.started_at or entry.updated_at) + record.ttl_ms - now) // 1000)
        wait = (
            f"; it may still be executing: look again in {left} s" if record.status in ("running", "in_doubt") else ""
        )
        raise RefusedError(
            f"the record of {record.tool} is '{record.status}', and only a claim that failed, or whose process is "
            f"gone, can be freed{wait}",
            status=record.status,
        )
    if record.status != "failed" and not record.ended and (pid := _alive(record)):
        raise RefusedError(
            f"{record.tool} was begun by process {pid} of this host, which is alive and may still come to an end with "
            "it: end that process first",
            status=record.status,
            pid=pid,
        )
    blob: bytes | None = None
    if output is MISSING:
        record = dataclasses.replace(record, status="released")
    else:
        encode(output)  # refused before anything is written
        record, blob = succeeded(record, output, started_at=record.started_at or entry.updated_at, settled_by="person")
    outcome = await journal.apply((Replace(key, entry.version, record.to_json(), blob),), batch=new_batch())
    if not isinstance(outcome, Applied):
        raise RefusedError(f"the record of {record.tool} changed while it was to be freed; look at it again")
    return True


def _alive(record: CallRecord) -> int:
    """Return the pid of an owner that is certain to be alive; 0 where it is dead, or nobody can tell from here."""
    owner, here = read_owner(record.owner), new_owner()
    if owner is None or not owner.boot or (owner.boot, owner.namespace) != (here.boot, here.namespace):
        return 0
    return 0 if is_dead(owner) else owner.pid
