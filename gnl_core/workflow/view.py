"""What a person is shown of a workflow's run beside its calls: its steps by name, where it waits, what it came to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from gnl_core import keys
from gnl_core.errors import JournalFormatError, StoreCorruptError
from gnl_core.journal.port import Entry, JsonValue, Key
from gnl_core.records import stamped
from gnl_core.workflow.names import read_name

_FAMILIES = frozenset(("step", "wait", "sent", "output"))


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedStep:
    """One step by its name.

    Attributes:
        name: Its name.
        call: Id of its call, among the run's calls.
        failed: Whether its failure was handed on as final.
    """

    name: str
    call: str
    failed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitView:
    """One place where a workflow waits, or waited, to be sent something.

    Attributes:
        name: Its name.
        reason: What it waits for.
        asked_at: Milliseconds of the store's clock at which a drive first came there; 0 where none has.
        sent_at: Those at which something was sent; 0 where nothing was.
        actor: Who sent it.
    """

    name: str
    reason: str
    asked_at: int
    sent_at: int
    actor: str

    @property
    def open(self) -> bool:
        """Whether a drive came there and nothing has been sent."""
        return bool(self.asked_at) and not self.sent_at


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowView:
    """A workflow's run beside its calls.

    Attributes:
        steps: Its steps, in the order in which they first began.
        waits: Where it waits or waited, and what was sent ahead.
        over: Whether its result is recorded.
        output: The result, in the codec's form; None where there is none yet, or it stands in the blob.
    """

    steps: tuple[NamedStep, ...]
    waits: tuple[WaitView, ...]
    over: bool
    output: JsonValue

    def to_json(self) -> dict[str, JsonValue]:
        """Return it for programs; every member is there."""
        return {
            "steps": [{"name": one.name, "call": one.call, "failed": one.failed} for one in self.steps],
            "waits": [
                {
                    "name": one.name,
                    "reason": one.reason,
                    "asked_at": one.asked_at,
                    "sent_at": one.sent_at,
                    "actor": one.actor,
                    "open": one.open,
                }
                for one in self.waits
            ],
            "over": self.over,
            "output": self.output,
        }


def is_workflow_row(key: Key) -> bool:
    """Whether a key is one of the rows that only a workflow's run has."""
    return (
        len(key) in (4, 5) and key[2] == keys.ROOT and key[3] in _FAMILIES and (len(key) == 4) == (key[3] == "output")
    )


def workflow_view(entries: Iterable[Entry], problems: list[str]) -> WorkflowView:
    """Return what the rows of a workflow show; rows that cannot be read are told among the problems."""
    steps: list[tuple[int, NamedStep]] = []
    waits: dict[str, dict[str, Any]] = {}
    over, output = False, None
    for entry in entries:
        try:
            value = stamped(entry)
            match entry.key[3:]:
                case ("step", name):
                    named = read_name(entry)
                    shown = NamedStep(name=name, call=keys.call_id(named.step, 0), failed=named.failed)
                    steps.append((named.step, shown))
                case ("wait", name):
                    waits.setdefault(name, {}).update(reason=_text(value, "reason"), asked_at=_time(value))
                case ("sent", name):
                    waits.setdefault(name, {}).update(sent_at=_time(value), actor=_text(value, "actor"))
                case _:
                    over, output = True, value.get("data")
        except (StoreCorruptError, JournalFormatError) as error:
            problems.append(str(error))
    blank = {"reason": "", "asked_at": 0, "sent_at": 0, "actor": ""}
    return WorkflowView(
        steps=tuple(step for _, step in sorted(steps, key=lambda pair: pair[0])),
        waits=tuple(WaitView(name=name, **{**blank, **known}) for name, known in sorted(waits.items())),
        over=over,
        output=output,
    )


def _text(value: dict[str, Any], name: str) -> str:
    return text if isinstance(text := value.get(name), str) else ""


def _time(value: dict[str, Any]) -> int:
    return at if isinstance(at := value.get("at"), int) else 0
