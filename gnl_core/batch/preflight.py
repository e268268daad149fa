"""Look at the items of a batch without a write: which are new, which repeat earlier work, which cannot be told.

The rows are read a chunk at a time, so that ten thousand items take some hundred reads and the memory of their keys.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gnl_core import keys
from gnl_core.batch.items import Job
from gnl_core.batch.plan import Alike, BatchPlan, PlanItem
from gnl_core.batch.report import settled_items
from gnl_core.canonical import digest
from gnl_core.errors import JournalError, NotCanonicalError, ToolArgumentsError
from gnl_core.findings import Findings
from gnl_core.identity import Identity, amounts_differ, amounts_of
from gnl_core.journal.port import Entry, Journal, JsonValue, Key, Read
from gnl_core.model.messages import ToolCallPart
from gnl_core.outcome import read_head
from gnl_core.owner import new_owner
from gnl_core.prior import Prior
from gnl_core.records import read_call
from gnl_core.repeats import age_text, warning_of
from gnl_core.request import Request
from gnl_core.resolve import resolve

if TYPE_CHECKING:
    from gnl_core.options import Options
    from gnl_core.tools import Tool
    from gnl_core.verdicts import Call

CALL = keys.call_id(0, 0)
"""The id of the one call that an item's run makes."""

CHUNK = 100
"""Items whose rows are read together, some five rows each."""


@dataclass(slots=True)
class _Sorted:
    """Where items have been put so far."""

    fresh: list[str] = field(default_factory=list)
    exact_repeats: list[PlanItem] = field(default_factory=list)
    xid_hits: list[PlanItem] = field(default_factory=list)
    amount_mismatches: list[PlanItem] = field(default_factory=list)
    suspended: list[PlanItem] = field(default_factory=list)
    unfinished: list[PlanItem] = field(default_factory=list)
    already_done: list[PlanItem] = field(default_factory=list)
    unfit: list[PlanItem] = field(default_factory=list)
    xid_scope_disabled: list[str] = field(default_factory=list)
    xid_identity_unusable: list[PlanItem] = field(default_factory=list)
    warnings: dict[str, None] = field(default_factory=dict)


class Planner:
    """Looks at the items of one batch.

    Args:
        journal: The store; it is only read.
        tool: What does an item.
        options: How an item's run is driven, but for its person.
    """

    def __init__(self, journal: Journal, tool: Tool, options: Options) -> None:
        self._journal = journal
        self._tool = tool
        self._options = options
        self._owner = new_owner()
        self._found = _Sorted()
        self._alike = _Groups()
        self._settled: set[str] = set()

    async def plan(self, batch_id: str, token: str, jobs: Sequence[Job]) -> BatchPlan:
        """Return the plan of these items.

        Raises:
            JournalError: The store cannot be read.
        """
        self._settled = await settled_items(self._journal, batch_id)
        for start in range(0, len(jobs), CHUNK):
            await self._look([self._resolved(job) for job in jobs[start : start + CHUNK]])
        lists: dict[str, Any] = {
            name: tuple(getattr(self._found, name)) for name in _Sorted.__dataclass_fields__ if name != "warnings"
        }
        lists["xid_identity_unusable"] = lists["xid_identity_unusable"] or None
        return BatchPlan(
            token=token,
            batch_id=batch_id,
            intra_batch_duplicates=tuple(self._alike.found()),
            warnings=tuple(self._found.warnings),
            **lists,
        )

    def _resolved(self, job: Job) -> _Looked:
        options = dataclasses.replace(self._options, resource_id=job.resource)
        # It holds no run and writes nothing: what it is told of the fence only says that a run would be driven.
        request = Request(journal=self._journal, root=job.run_id, fence=0, owner=self._owner, options=options, now=0)
        part = ToolCallPart(CALL, self._tool.name, dict(job.args))
        try:
            call = resolve(request, keys.ROOT, part, self._tool, (0, 0))
        except (ToolArgumentsError, NotCanonicalError) as error:
            return _Looked(job, request, None, None, str(error))
        return _Looked(job, request, call, Findings(request, call))

    async def _look(self, chunk: Sequence[_Looked]) -> None:
        wanted = [looked.wanted for looked in chunk]
        read = await self._journal.get_many([key for some in wanted for key in some])
        start = 0
        for looked, some in zip(chunk, wanted, strict=True):
            rows = read.entries[start : start + len(some)]
            start += len(some)
            await self._sort(looked, rows, read.now)

    async def _sort(self, looked: _Looked, rows: Sequence[Entry | None], now: int) -> None:
        found, job = self._found, looked.job
        identity = looked.findings.identity if looked.findings is not None else None
        self._alike.add(job, identity)
        head = read_head(rows[0])
        if head is not None:
            self._begun(job, head, now)
            return
        if rows[1] is not None:
            text = f"It was here and a sweep removed it {age_text(now - rows[1].updated_at)}: it is not run again."
            found.already_done.append(PlanItem(key=job.key, text=text, at=rows[1].updated_at))
            return
        if job.key in self._settled:
            text = "The batch brought it to an end, and its run was deleted since: it is not run again."
            found.already_done.append(PlanItem(key=job.key, text=text))
            return
        if looked.findings is None or looked.call is None:
            found.unfit.append(PlanItem(key=job.key, text=looked.unfit))
            return
        findings = looked.findings
        findings.take(findings.window, Read(tuple(rows[2 : 2 + len(findings.window)]), now))
        prior = self._recorded(looked.call, rows[-1]) if looked.call.keyed else await _prior(findings)
        if prior is not None and looked.call.keyed and await findings.is_of_own_batch(rows[-1]):
            prior = None
        if prior is None:
            found.fresh.append(job.key)
        else:
            item = _repeat(job.key, prior, self._tool, now, given=looked.call.keyed)
            exact = found.amount_mismatches if prior.amounts_differ else found.xid_hits
            (found.exact_repeats if prior.origin == "exact" else exact).append(item)
        if self._tool.semantic_identity is not None and self._tool.side_effect:
            self._compared(job, findings)

    def _begun(self, job: Job, head: Mapping[str, Any], now: int) -> None:
        status, at, asked = head.get("status"), head.get("changed_at"), head.get("questions")
        at = at if isinstance(at, int) else 0
        when = age_text(now - at)
        item = PlanItem(key=job.key, text="", run_id=job.run_id, tool_call_id=CALL, at=at)
        if head.get("erasing"):
            place, text = self._found.unfinished, "Its run is being erased, or that was broken off: purge the batch."
        elif status == "completed":
            place, text = self._found.already_done, f"It was over {when}: what is recorded of it is given."
        elif status == "suspended":
            count = f"{asked} questions are" if isinstance(asked, int) and asked > 1 else "a question is"
            place, text = self._found.suspended, f"It waits for a person since {when}: {count} open."
        else:
            place, text = (
                self._found.unfinished,
                f"It was begun and is not done ({status}, {when}): it goes on from what is recorded.",
            )
        place.append(dataclasses.replace(item, text=text))

    def _recorded(self, call: Call, row: Entry | None) -> Prior | None:
        """Return the work that is recorded under the key which names this item's, if there is any."""
        if row is None or call.record_key[0] == "run":
            return None
        try:
            record = read_call(row)
        except JournalError as error:  # the item stops there, if it is run
            self._found.warnings[str(error)] = None
            return None
        if record.status not in ("succeeded", "running", "in_doubt", "failed"):
            return None
        in_flight = record.status != "succeeded"
        at = row.updated_at if not in_flight else record.started_at or row.updated_at
        return Prior(origin="exact", run_id=record.run, tool_call_id=record.call, at=at, in_flight=in_flight)

    def _compared(self, job: Job, findings: Findings) -> None:
        """Note why an item's identity is compared with nobody's."""
        notes = [one for one in findings.incidents if one.source == "semantic-guard"]
        if findings.identity is None and notes:
            names = notes[0].detail.get("identity_keys")
            fields = tuple(map(str, names)) if isinstance(names, list) else ()
            self._found.xid_identity_unusable.append(PlanItem(key=job.key, text=notes[0].message, fields=fields))
        elif job.resource is None:
            self._found.xid_scope_disabled.append(job.key)


@dataclass(slots=True)
class _Looked:
    """One item while it is looked at."""

    job: Job
    request: Request
    call: Call | None
    findings: Findings | None
    unfit: str = ""

    @property
    def wanted(self) -> list[Key]:
        """The rows that say what is known of it: its head and tombstone, earlier work, the record of named work."""
        some = [keys.head(self.job.run_id), keys.swept(self.job.run_id)]
        if self.findings is not None and self.call is not None:
            some += self.findings.window
            some += [self.call.record_key] if self.call.keyed else []
        return some


class _Groups:
    """Finds items of one batch that are the same work."""

    def __init__(self) -> None:
        self._by_arguments: dict[tuple[str, str | None], list[str]] = {}
        self._by_identity: dict[tuple[str, str | None], list[tuple[str, dict[str, JsonValue]]]] = {}

    def add(self, job: Job, identity: Identity | None) -> None:
        """Take in one item."""
        self._by_arguments.setdefault((job.digest, job.resource), []).append(job.key)
        if identity is not None:
            name = digest([dict(identity.values), dict(identity.discriminators)])
            self._by_identity.setdefault((name, job.resource), []).append((job.key, amounts_of(identity)))

    def found(self) -> Iterator[Alike]:
        """Yield the groups; equal arguments are told apart only where no identity says the same of these items."""
        covered: set[str] = set()
        for members in self._by_identity.values():
            if len(members) > 1:
                names = tuple(key for key, _ in members)
                covered.update(names)
                differ = dict.fromkeys(
                    name
                    for _, amounts in members[1:]
                    for name in amounts_differ(members[0][1], amounts, one_sided=True)
                )
                yield Alike(keys=names, by="identity", amounts_differ=tuple(differ))
        for equal in self._by_arguments.values():
            if len(equal) > 1 and not covered.issuperset(equal):
                yield Alike(keys=tuple(equal), by="arguments")


async def _prior(findings: Findings) -> Prior | None:
    if findings.rule.action == "off" or not findings.covered:
        return None
    return await findings.exact() or await findings.other_channel()


def _repeat(key: str, prior: Prior, tool: Tool, now: int, *, given: bool) -> PlanItem:
    text = warning_of(prior, tool, now)
    if given:
        end = "has not ended" if prior.in_flight else "is given, and nothing runs"
        text = (
            f"{tool.name} is recorded under the key that names this work, {age_text(now - prior.at)} (call "
            f"{prior.tool_call_id} of run {prior.run_id}): its result {end}."
        )
    return PlanItem(
        key=key,
        text=text,
        run_id=prior.run_id,
        tool_call_id=prior.tool_call_id,
        at=prior.at,
        channel=prior.channel,
        fields=prior.amounts_differ,
    )
