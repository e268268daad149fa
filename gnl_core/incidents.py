"""Incidents: what a guard noticed, kept for an operator to read.

An incident is advisory: it is written beside a verdict and never changes one. Its key is made of what it is about
(call, source, action), so a replay that comes to the same conclusion finds the row there and leaves it alone.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from gnl_core import keys
from gnl_core.errors import JournalFormatError, StoreCorruptError
from gnl_core.journal import scan_all
from gnl_core.journal.port import Create, Entry, Journal, JsonValue
from gnl_core.records import FORMAT, stamped

logger = logging.getLogger(__name__)

_NO_CALL = "~"  # no segment of a key is empty; our call ids begin with 's'


class AboutCall(Protocol):
    """What an incident needs to know of a call."""

    @property
    def run(self) -> str:
        """Id of the run whose call it is."""
        ...

    @property
    def id(self) -> str:
        """Our id of the call."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """Something that an operator may want to read.

    Attributes:
        run_id: The run whose call it is: the root run, or a sub-agent's.
        tool_call_id: Our id of the call, 's<step>p<position>'; '' where it is about the run.
        source: Who noticed, for instance 'duplicate-guard', 'taint-guard', 'semantic-guard', 'limit-guard',
            'crash-guard'.
        action: What was done about it, for instance 'warn', 'reflect', 'block', 'suspend'.
        message: One sentence for the operator: names and numbers, no contents of a call.
        at: When it was noticed, in milliseconds of the store's clock; read back, when it was first written.
        detail: Facts for programs.
    """

    run_id: str
    tool_call_id: str
    source: str
    action: str
    message: str
    at: int = 0
    detail: Mapping[str, JsonValue] = field(default_factory=dict)

    @classmethod
    def of(cls, call: AboutCall, source: str, action: str, message: str, at: int = 0, **detail: JsonValue) -> Incident:
        """Return an incident about a call."""
        return cls(
            run_id=call.run, tool_call_id=call.id, source=source, action=action, message=message, at=at, detail=detail
        )

    def to_json(self) -> dict[str, JsonValue]:
        """Return the incident for programs."""
        return {
            "run_id": self.run_id,
            "tool_call_id": self.tool_call_id,
            "source": self.source,
            "action": self.action,
            "message": self.message,
            "at": self.at,
            "detail": dict(self.detail),
        }


def incident_ops(root: str, part: str, call: str, incident: Incident) -> tuple[Create, Create]:
    """Return the operations that record an incident, once, and find it by its time.

    Args:
        root: Id of the root run.
        part: Part of the request, `keys.ROOT` for the root run.
        call: Our id of the call; '' where it is about the run.
        incident: What to record; who and when are told by the row itself, `at` by its place among the others.
    """
    value: dict[str, JsonValue] = {"f": FORMAT, "message": incident.message, "detail": dict(incident.detail)}
    key = keys.incident(root, part, call or _NO_CALL, incident.source, incident.action)
    return (
        Create(key, value, if_present="keep"),
        Create(keys.incident_index(incident.at, key), {}, if_present="keep"),
    )


async def read_incidents(journal: Journal, run_id: str | None = None) -> list[Incident]:
    """Return incidents in the order in which they were first written.

    A row that cannot be read is left out, and a warning is logged that names it.

    Args:
        journal: The store.
        run_id: A root run's id for those of its whole request, a sub-agent's for those of its own part, None for those
            of every run: this reads every row of the store, page by page.

    Raises:
        JournalError: The store cannot be read.
    """
    if run_id is None:
        prefix: tuple[str, ...] = ("run",)
    else:
        root, part = keys.split_run_id(run_id)
        prefix = keys.request(root) if part == keys.ROOT else (*keys.request(root), part, "incident")
    found = [
        ((entry.created_at, entry.version), incident)
        async for entry in scan_all(journal, prefix)
        if len(entry.key) == _LENGTH and entry.key[3] == "incident" and (incident := _read(entry)) is not None
    ]
    # A store's clock tells milliseconds, and several incidents fall into one of them: batches tell which was first.
    return [incident for _, incident in sorted(found, key=lambda one: one[0])]


_LENGTH = len(keys.incident("r", keys.ROOT, "c", "s", "a"))


def _read(entry: Entry) -> Incident | None:
    _, root, part, _, call, source, action = entry.key
    try:
        value = stamped(entry)
        message, detail = value.get("message"), value.get("detail", {})
        if not isinstance(message, str) or not isinstance(detail, dict):
            raise StoreCorruptError("it holds no incident", key=keys.encode(entry.key))
    except (StoreCorruptError, JournalFormatError) as error:
        logger.warning("the incident %s is left out: %s", keys.encode(entry.key), error)
        return None
    return Incident(
        run_id=keys.run_id_of(root, part),
        tool_call_id="" if call == _NO_CALL else call,
        source=source,
        action=action,
        message=message,
        at=entry.created_at,
        detail=detail,
    )
