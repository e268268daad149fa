"""A run's head: where it stands, as lists show it, and the indexes that mirror it in the same batch.

Only the holder of the run lock writes a head, so a stale failure can bury no newer success: its batch is refused by the
fence. A run is in an index only if its admission put it there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gnl_core import keys
from gnl_core.journal.port import Create, Delete, Entry, JsonValue, Op, Put
from gnl_core.records import FORMAT, RunStatus
from gnl_core.work import work_key_hash

_INDEXED: tuple[tuple[keys.Index, str], ...] = (
    ("status", "status"),
    ("agent", "agent"),
    ("res", "resource"),
    ("thr", "thread"),
)


def new_head(
    *,
    now: int,
    model: str,
    agent: str | None = None,
    thread: str | None = None,
    resource: str | None = None,
    channel: str | None = None,
    actor: str | None = None,
    parent: Mapping[str, JsonValue] | None = None,
    forked_from: Mapping[str, JsonValue] | None = None,
    work_key: str | None = None,
    follows: str | None = None,
) -> dict[str, JsonValue]:
    """Return the head of a run that begins; members that are None are left out."""
    head: dict[str, JsonValue] = {
        "f": FORMAT,
        "status": "running",
        "model": model,
        "steps": 0,
        "calls": 0,
        "questions": 0,
        "created_at": now,
        "changed_at": now,
    }
    optional: dict[str, Any] = {
        "agent": agent,
        "thread": thread,
        "resource": resource,
        "channel": channel,
        "actor": actor,
        "parent": dict(parent) if parent is not None else None,
        "forked_from": dict(forked_from) if forked_from is not None else None,
        "work_key": work_key,
        "follows": follows,
    }
    return head | {name: value for name, value in optional.items() if value is not None}


def changed(head: Mapping[str, JsonValue], status: RunStatus, now: int, **members: JsonValue) -> dict[str, JsonValue]:
    """Return the head in another status; members that are None are taken out, an older error too."""
    value = {**head, "status": status, "changed_at": now, **members}
    if "error" not in members:
        value.pop("error", None)
    return {name: member for name, member in value.items() if member is not None}


def head_ops(root: str, part: str, old: Mapping[str, JsonValue] | None, new: Mapping[str, JsonValue]) -> list[Op]:
    """Return the operations that write a head, and for a root run the indexes that mirror it."""
    ops: list[Op] = [Put(keys.head(root, part), dict(new))]
    if part != keys.ROOT:
        return ops
    if old is not None:
        ops += [Delete(key) for key in index_keys(root, old)]
    stale = {op.key for op in ops if isinstance(op, Delete)}
    fresh = index_keys(root, new)
    ops = [op for op in ops if not (isinstance(op, Delete) and op.key in fresh)]
    return ops + [Create(key, {}, if_present="keep") for key in fresh if key not in stale]


def read_head(entry: Entry | None) -> dict[str, Any] | None:
    """Return a head's object; None where there is none. Its members come from disk: check what you rely on."""
    return entry.value if entry is not None and isinstance(entry.value, dict) else None


def index_keys(root: str, head: Mapping[str, JsonValue]) -> list[tuple[str, ...]]:
    """Return the index rows of a root run's head."""
    at = head.get("changed_at")
    found = [(name, value) for name, member in _INDEXED if isinstance(value := head.get(member), str) and value]
    work_key = head.get("work_key")
    if isinstance(work_key, str):
        found.append(("work", work_key_hash(work_key)))
    first = keys.derived_base(root)
    named = isinstance(work_key, str) or isinstance(head.get("follows"), str)
    if first is not None and first != root and named:
        # Whoever names the work finds its newest execution by this, whether or not the earlier ones are still there.
        found.append(("exec", first))
    return [keys.index(name, value, at if isinstance(at, int) else 0, root) for name, value in found]
