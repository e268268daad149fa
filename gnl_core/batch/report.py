"""What became of a batch's items: as its caller reads it, and as it is kept, without a word of what was done."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from gnl_core import keys
from gnl_core.approvals import Interrupt
from gnl_core.errors import BatchPlanMismatchError, JournalFormatError, RunBusyError, StoreCorruptError
from gnl_core.journal import get
from gnl_core.journal.port import (
    Create,
    Delete,
    Entry,
    Expect,
    Journal,
    JsonValue,
    Op,
    Refused,
    Replace,
    new_batch,
)
from gnl_core.records import FORMAT, stamped

Outcome: TypeAlias = Literal["done", "replayed", "skipped", "denied", "suspended", "failed", "not-run"]
"""What became of one item.

'done': it ran. 'replayed': it had run before, and its recorded result is given. 'skipped': it repeats earlier work, and
repeats are left out. 'denied': a person or the guard said no. 'suspended': it waits for a person. 'failed': its tool
raised, or its result could not be recorded. 'not-run': nothing of it began, and its code says why.
"""

_TRIES = 20
_SETTLED = ("done", "replayed", "skipped", "denied")
_HEADS = 400
"""Rows of one read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemReport:
    """What became of one item in one run of its batch.

    Attributes:
        key: The item.
        run_id: The run that does it.
        outcome: What became of it.
        code: Code of the error that stopped it; '' where none did.
        message: The error's words, or what a model would read of a call that did not run. It is not kept.
        output: What the tool returned, as it is recorded; None where there is nothing. It is not kept in the report.
        interrupts: Questions that wait for a person.
        warnings: What you should read.
    """

    key: str
    run_id: str
    outcome: Outcome
    code: str = ""
    message: str = field(default="", repr=False)
    output: object = field(default=None, repr=False)
    interrupts: tuple[Interrupt, ...] = field(default=(), repr=False)
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReport:
    """What one run of a batch came to.

    Attributes:
        batch_id: The batch.
        token: The token of its plan.
        items: One report an item, in the order given.
        warnings: What you should read of the batch itself.
    """

    batch_id: str
    token: str
    items: tuple[ItemReport, ...]
    warnings: tuple[str, ...] = ()

    @property
    def counts(self) -> dict[str, int]:
        """Items by outcome, those that there are."""
        return dict(Counter(item.outcome for item in self.items))

    @property
    def interrupts(self) -> tuple[Interrupt, ...]:
        """Every question that waits for a person: answer it by `decide`, then run the batch again."""
        return tuple(one for item in self.items for one in item.interrupts)

    def of(self, key: str) -> ItemReport:
        """Return the report of one item.

        Raises:
            KeyError: There is no such item.
        """
        for item in self.items:
            if item.key == key:
                return item
        raise KeyError(key)

    def __repr__(self) -> str:
        # Short, and without contents: event loops and loggers write out what a task returned.
        return f"BatchReport(batch_id={self.batch_id!r}, counts={self.counts})"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchView:
    """A batch as it is kept.

    Attributes:
        batch_id: The batch.
        token: The token of the plan that it was begun with.
        tool: Name of the tool.
        items: How many there are.
        begun_at: Milliseconds of the store's clock.
        runs: How often it was run to a report.
        reported_at: When it was last; 0 where it never was.
        outcomes: (outcome, code) by item, as the last run that came to know left them: what was done stays done.
    """

    batch_id: str
    token: str
    tool: str
    items: int
    begun_at: int
    runs: int = 0
    reported_at: int = 0
    outcomes: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def counts(self) -> dict[str, int]:
        """Items by outcome, those that there are."""
        return dict(Counter(outcome for outcome, _ in self.outcomes.values()))

    @property
    def settled(self) -> frozenset[str]:
        """Keys of the items that were brought to an end."""
        return frozenset(key for key, (outcome, _) in self.outcomes.items() if outcome in _SETTLED)


async def read_batch(journal: Journal, batch_id: str) -> BatchView | None:
    """Return a batch as it is kept; None where none of this id was begun. Its items are runs, for `read_run`.

    Raises:
        IdInvalidError: It can be no batch's id.
        StoreCorruptError, JournalFormatError: A row of it cannot be read.
        JournalError: The store cannot be read.
    """
    keys.check_item("the id of a batch", batch_id)
    plan, report = (await journal.get_many([keys.batch_plan(batch_id), keys.batch_report(batch_id)])).entries
    if plan is None:
        return None
    began, told = stamped(plan), stamped(report) if report is not None else {}
    count, runs = began.get("items"), told.get("runs")
    return BatchView(
        batch_id=batch_id,
        token=str(began.get("token", "")),
        tool=str(began.get("tool", "")),
        items=count if isinstance(count, int) else 0,
        begun_at=plan.created_at,
        runs=runs if isinstance(runs, int) else 0,
        reported_at=report.updated_at if report is not None else 0,
        outcomes=_outcomes(report),
    )


async def begin_batch(journal: Journal, batch_id: str, token: str, tool: str, items: int) -> int:
    """Record the plan of a batch, unless it is; return the row's version.

    Raises:
        BatchPlanMismatchError: The batch was begun with another plan.
    """
    key = keys.batch_plan(batch_id)
    value: dict[str, JsonValue] = {"f": FORMAT, "token": token, "tool": tool, "items": items}
    found = await get(journal, key)
    if found is None:
        outcome = await journal.apply((Create(key, value),), batch=new_batch())
        if not isinstance(outcome, Refused):
            return outcome.version
        found = outcome.found
    if found is None:
        raise RunBusyError(f"batch {batch_id!r} is being erased; try again", retry_after=1, batch_id=batch_id)
    if stamped(found).get("token") != token:
        raise BatchPlanMismatchError(
            f"batch {batch_id!r} was begun with other items, or under another policy: one batch id is one plan. Run it "
            "with the items it began with, or use another id for these",
            batch_id=batch_id,
        )
    return found.version


async def begun_otherwise(journal: Journal, batch_id: str, token: str) -> bool:
    """Return whether a batch was begun with another plan, so that it runs with none but that.

    Raises:
        JournalError: The store cannot be read.
    """
    found = await get(journal, keys.batch_plan(batch_id))
    return found is not None and stamped(found).get("token") != token


async def settled_items(journal: Journal, batch_id: str) -> set[str]:
    """Return the keys of the items that runs of the batch have brought to an end, by its report.

    A report that cannot be read says nothing, and stops no item; whoever writes it next tells of it.

    Raises:
        JournalError: The store cannot be read.
    """
    row = await get(journal, keys.batch_report(batch_id))
    try:
        outcomes = _outcomes(row)
    except (StoreCorruptError, JournalFormatError):
        return set()
    return {key for key, (outcome, _) in outcomes.items() if outcome in _SETTLED}


async def gone_items(journal: Journal, batch_id: str, runs: Mapping[str, str]) -> set[str]:
    """Return the keys of items that an earlier run of the batch settled, and whose runs are there no more.

    A sweep, or an erasure, took them: their effects happened, and nothing of the run itself would say so.

    Args:
        journal: The store.
        batch_id: The batch.
        runs: Ids of the items' runs, by item.

    Raises:
        JournalError: The store cannot be read.
    """
    known = await settled_items(journal, batch_id)
    settled = [key for key in runs if key in known]
    gone: set[str] = set()
    for start in range(0, len(settled), _HEADS):
        some = settled[start : start + _HEADS]
        heads = (await journal.get_many([keys.head(runs[key]) for key in some])).entries
        gone |= {key for key, head in zip(some, heads, strict=True) if head is None}
    return gone


async def keep_report(journal: Journal, batch_id: str, token: str, plan: int, items: Sequence[ItemReport]) -> bool:
    """Record what became of a batch's items; False where its plan is gone, so that nothing is left without one.

    Two workers that run one batch report both: what one of them did not come to is left as the other one says.

    Raises:
        JournalError: The store did not take it.
    """
    key = keys.batch_report(batch_id)
    for _ in range(_TRIES):
        row = await get(journal, key)
        outcomes = _merged(_outcomes(row), items)
        runs: Any = stamped(row).get("runs") if row is not None else 0
        value, blob = _written({"f": FORMAT, "token": token, "runs": _count(runs) + 1}, outcomes)
        write: Op = Create(key, value, blob) if row is None else Replace(key, row.version, value, blob)
        outcome = await journal.apply((Expect(keys.batch_plan(batch_id), plan), write), batch=new_batch())
        if not isinstance(outcome, Refused):
            return True
        if outcome.op == 0:
            return False
    raise RunBusyError(f"the report of batch {batch_id!r} changes all the time", retry_after=1, batch_id=batch_id)


async def forget_items(journal: Journal, batch_id: str, items: Collection[str]) -> None:
    """Take items out of a batch's report: their keys may name the persons that they are of.

    A report that cannot be read goes whole: what the items came to is recorded with them.

    Raises:
        RunBusyError: It changes all the time.
        JournalFormatError: A later release wrote it.
        JournalError: The store did not take it.
    """
    key = keys.batch_report(batch_id)
    for _ in range(_TRIES):
        row = await get(journal, key)
        if row is None:
            return
        try:
            before = _outcomes(row)
            if not any(item in before for item in items):
                return
            after = {item: outcome for item, outcome in before.items() if item not in items}
            write: Op = Replace(key, row.version, *_written(stamped(row), after))
        except StoreCorruptError:
            write = Delete(key, row.version)
        if not isinstance(await journal.apply((write,), batch=new_batch()), Refused):
            return
    raise RunBusyError(f"the report of batch {batch_id!r} changes all the time", retry_after=1, batch_id=batch_id)


def _written(value: Mapping[str, JsonValue], outcomes: Mapping[str, tuple[str, str]]) -> tuple[JsonValue, bytes]:
    counts: dict[str, JsonValue] = dict(Counter(outcome for outcome, _ in outcomes.values()))
    return {**value, "counts": counts}, json.dumps(outcomes, separators=(",", ":")).encode()


def _count(value: object) -> int:
    return value if type(value) is int else 0


def _merged(before: Mapping[str, tuple[str, str]], items: Sequence[ItemReport]) -> dict[str, tuple[str, str]]:
    after = dict(before)
    for item in items:
        known = before.get(item.key, ("not-run", ""))[0]
        unknown = item.outcome == "not-run" and known != "not-run"
        if not unknown and not (item.outcome == "replayed" and known in _SETTLED):
            after[item.key] = (item.outcome, item.code)
    return after


def _outcomes(row: Entry | None) -> dict[str, tuple[str, str]]:
    """Return what a report's row holds.

    Raises:
        StoreCorruptError: It cannot be read.
    """
    if row is None:
        return {}
    stamped(row)
    try:
        read = json.loads(row.blob or b"{}")
        return {str(key): (str(outcome), str(code)) for key, (outcome, code) in read.items()}
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise StoreCorruptError(
            f"the row {keys.encode(row.key)} holds no report of a batch ({type(error).__name__}); run `gnl doctor`",
            key=keys.encode(row.key),
        ) from None
