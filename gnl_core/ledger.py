"""The ledger of refusals: who was turned away from a run, and why. It outlives the run, and holds no content."""

from __future__ import annotations

import itertools
import logging
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gnl_core import keys
from gnl_core.errors import ConfigError, RefusedError, StoreCorruptError
from gnl_core.journal.port import Create, Entry, Journal, JsonValue, Key, new_batch
from gnl_core.records import FORMAT, stamped
from gnl_core.work import work_key_hash

if TYPE_CHECKING:
    from gnl_core.admission import Asked

logger = logging.getLogger(__name__)

_sequence = itertools.count()
"""Keeps one process's refusals of one run and one millisecond in their order; those of several runs go by run then."""

NOTED = frozenset(
    (
        "not_an_agent_run",
        "run_actor_mismatch",
        "run_agent_mismatch",
        "run_busy",
        "run_followed",
        "run_input_mismatch",
        "run_owner_mismatch",
        "run_swept",
        "run_thread_mismatch",
        "thread_owner_mismatch",
    )
)
"""Codes of the refusals that are noted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """One refusal.

    Attributes:
        run_id: The run that was asked for.
        code: The refusal's code.
        at: When, in milliseconds of the store's clock.
        actor: Who was refused, where the call named anybody.
        work_key_hash: 16 hex digits of the work key's SHA-256, where the call named work. A pseudonym: whoever can
            guess the key can compute it.
    """

    run_id: str
    code: str
    at: int
    actor: str | None = None
    work_key_hash: str | None = None


async def note_refusal(asked: Asked, refusal: RefusedError) -> None:
    """Note that a caller was refused.

    Raises:
        JournalError: The ledger cannot be written, and the terms require it.
    """
    terms = asked.terms
    if not terms.conflict_ledger or refusal.code not in NOTED:
        return
    value: dict[str, JsonValue] = {"f": FORMAT, "code": refusal.code}
    if asked.options.actor is not None:
        value["actor"] = asked.options.actor
    if terms.work is not None:
        value["work_key_hash"] = work_key_hash(terms.work.key)
    try:
        tag = f"{next(_sequence) % 1_000_000:06d}-{secrets.token_hex(4)}"
        key = keys.conflict(await asked.journal.now(), asked.run_id, tag)
        await asked.journal.apply((Create(key, value),), batch=new_batch())
    except Exception as error:
        if terms.audit_on_reject == "require":
            raise
        logger.warning("run %r was refused (%s), which could not be noted: %s", asked.run_id, refusal.code, error)


async def read_idem_ledger(journal: Journal, *, run_id: str | None = None, limit: int = 1_000) -> list[LedgerEntry]:
    """Read the refusals that were noted, newest first.

    Args:
        journal: The store.
        run_id: Those of one run; None: of all.
        limit: Entries at most, at least 1.

    Raises:
        ConfigError: `limit` is below 1.
        StoreCorruptError: An entry cannot be read.
        JournalError: The ledger cannot be listed; it is never taken for empty.
    """
    if type(limit) is not int or limit < 1:
        raise ConfigError(f"limit is {limit!r}, must be an int of at least 1", option="limit")
    found: list[LedgerEntry] = []
    after: Key | None = None
    while len(found) < limit:
        page = await journal.scan(keys.conflicts(), after=after, reverse=True)
        read = [_read(entry) for entry in page.entries]
        found += [one for one in read if run_id is None or one.run_id == run_id]
        after = page.after
        if after is None:
            break
    return found[:limit]


def _read(entry: Entry) -> LedgerEntry:
    value = stamped(entry)
    code, actor, digest = value.get("code"), value.get("actor"), value.get("work_key_hash")
    at = entry.key[2] if len(entry.key) == 5 else ""
    if not isinstance(code, str) or not at.isdecimal() or not all(isinstance(m, str | None) for m in (actor, digest)):
        key = keys.encode(entry.key)
        raise StoreCorruptError(f"the row {key} holds no refusal that can be read; run `gnl doctor`", key=key)
    return LedgerEntry(run_id=entry.key[3], code=code, at=int(at), actor=actor, work_key_hash=digest)
