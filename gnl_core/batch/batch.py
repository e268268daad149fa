"""Do one thing to many items: looked at before anything runs, each item once, whatever breaks off in between.

    batch = create_batch(journal=journal, tool=charge, item_key="invoice")
    plan = await batch.preflight("march", items)  # reads only
    report = await batch.run("march", items, plan_token=plan.token)

Every item is a run of its own, 'batch:march:<key>', with one call. It is held, asked about, claimed and recorded as the
calls of an agent are; questions are answered in the same way, and the next run of the batch goes on with the items.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Unpack

from gnl_core import keys
from gnl_core.batch.drive import drive_item
from gnl_core.batch.items import Item, ItemKey, Job, read_items, token_of
from gnl_core.batch.plan import BatchPlan
from gnl_core.batch.preflight import Planner
from gnl_core.batch.report import BatchReport, ItemReport, begin_batch, begun_otherwise, gone_items, keep_report
from gnl_core.batch.rules import BatchOptions, Rules, read_rules
from gnl_core.composable import NoModel
from gnl_core.door import Door
from gnl_core.errors import (
    BatchPlanMismatchError,
    DuplicateSideEffectError,
    JournalError,
    RunBusyError,
    RunSweptError,
)
from gnl_core.journal.port import Journal
from gnl_core.run import Plan, make_plan
from gnl_core.tools import Tool

logger = logging.getLogger("gnl_core.batch")


def create_batch(*, journal: Journal, tool: Tool, item_key: ItemKey, **options: Unpack[BatchOptions]) -> Batch:
    """Return a batch: a tool, and how its items are named and ruled on.

    Args:
        journal: Where the items' runs live.
        tool: What does an item. It says something of its work: which arguments name the job (`semantic_identity`), what
            makes two calls one (`idempotency_key`), how a call in doubt is settled (`recover`), or at least whether it
            acts on the world.
        item_key: Name of the field that holds an item's key, or a function of the item. A key is 1 to 128 of
            A-Z a-z 0-9 _ - and names one item of a batch.
        **options: `on_duplicate` says what becomes of an item that repeats earlier work: 'suspend-item' (the default)
            asks a person, 'skip' leaves it out, 'fail-batch' begins nothing more. `channel` ('batch') is told where a
            person is asked about a repeat. `resource_id` is the person of every item, or a function of the item that
            returns its person; without one nobody's earlier jobs are looked at. `thread_id` puts the items into a
            conversation: equal arguments are looked for there. `concurrency` (8) is how many items run at once, 1 to
            1,000. `preset` and the others are those of a run; `limits` that are given win over `on_duplicate`, and that
            wins over the preset. Answers are given by `decide`, or on the command line, and not passed along.

    Raises:
        ToolDeclarationError: It is no tool, says nothing of its work, or drives a run of its own.
        ConfigError: An option that cannot be.
        IdInvalidError: An id that may not become part of a key.
    """
    return make_batch(journal=journal, tool=tool, item_key=item_key, base={}, given=options)


def make_batch(
    *, journal: Journal, tool: Tool, item_key: ItemKey, base: Mapping[str, Any], given: Mapping[str, Any]
) -> Batch:
    """Return a batch whose options stand on others, which its own preset and its own options win over.

    Raises:
        GnlError: As `create_batch`.
    """
    return Batch(journal, tool, read_rules(tool, item_key, base, given))


class Batch:
    """A tool and how it is done to many items; made by `create_batch`. It holds no items and can be used again.

    Attributes:
        tool: What does an item.
        warnings: What you should read of the way it is declared.
    """

    def __init__(self, journal: Journal, tool: Tool, rules: Rules) -> None:
        self.tool = tool
        self.warnings = rules.warnings
        self._journal = journal
        self._rules = rules
        # What cannot work is told at once; and what all items have in common is what the preflight goes by.
        self._common = self._plan_of(Job("any", keys.item_run_id("any", "any"), {}, "", None)).asked.options

    async def preflight(self, batch_id: str, items: Iterable[Item]) -> BatchPlan:
        """Look at what a batch would do; nothing is written.

        Whatever else is found, only the token says that somebody has looked: `run` does what these very items and this
        batch's own rules stand for, in whatever order the items come.

        Args:
            batch_id: Name of the batch, 1 to 128 of A-Z a-z 0-9 _ -.
            items: The tool's arguments, a mapping each.

        Raises:
            ConfigError, IdInvalidError, NotCanonicalError: Items that cannot be; the message names their position.
            JournalError: The store cannot be read.
        """
        jobs = self._read(batch_id, items)
        return await self._look(batch_id, self._token(batch_id, jobs), jobs)

    async def run(self, batch_id: str, items: Iterable[Item], *, plan_token: str) -> BatchReport:
        """Do the items, each once: what is done is replayed, what waits for nobody any more goes on.

        An item that an earlier run of the batch brought to an end, and whose run was deleted since, is 'not-run' by
        'run_swept': purge the batch to do everything anew.

        Nothing that happens to one item stops another, unless repeats are to fail the batch. An item that another
        worker is at is looked at once more when the others are through, and is 'not-run' if it is at it still.

        Args:
            batch_id: As for `preflight`.
            items: As for `preflight`.
            plan_token: The token of the plan that somebody looked at.

        Raises:
            BatchPlanMismatchError: These are not the items that the token was given for, or not those that the batch
                was begun with; nothing was written.
            DuplicateSideEffectError: Items repeat earlier work, and that is to fail the batch; `detail` names them.
                Nothing was begun after that was known.
            ConfigError, IdInvalidError, NotCanonicalError: As `preflight`.
            JournalError: The store cannot be used.
        """
        jobs = self._read(batch_id, items)
        token = self._token(batch_id, jobs)
        if plan_token != token:
            raise BatchPlanMismatchError(
                f"batch {batch_id!r} was not run: plan_token is not that of these items under this batch's rules. Look "
                "at the plan that preflight gives for them now, and pass its token",
                batch_id=batch_id,
            )
        version = await begin_batch(self._journal, batch_id, token, self.tool.name, len(jobs))
        if self._rules.fails:
            repeats = [item.key for item in (await self._look(batch_id, token, jobs)).repeats]
            if repeats:
                await self._end(batch_id, token, version, [_left(job, repeats=job.key in repeats) for job in jobs])
                raise self._repeated(batch_id, repeats)
        gone = await gone_items(self._journal, batch_id, {job.key: job.run_id for job in jobs})
        found = {job.key: _gone(job) for job in jobs if job.key in gone}
        found |= await self._drive([job for job in jobs if job.key not in gone])
        busy = [job for job in jobs if found[job.key].code == RunBusyError.code]
        found |= await self._drive(busy)
        report = await self._end(batch_id, token, version, [found[job.key] for job in jobs])
        repeats = [job.key for job in jobs if _is_repeat(found[job.key])]
        if self._rules.fails and repeats:
            raise self._repeated(batch_id, repeats)
        return report

    # Parts ---------------------------------------------------------------------------------------------------------

    def _read(self, batch_id: str, items: Iterable[Item]) -> list[Job]:
        return read_items(batch_id, items, self._rules.item_key, self._rules.resource)

    def _token(self, batch_id: str, jobs: Sequence[Job]) -> str:
        return token_of({**self._rules.policy, "batch": batch_id}, jobs)

    def _plan_of(self, job: Job) -> Plan:
        door = Door(kind="item", job={"tool": self.tool.name, "digest": job.digest})
        return make_plan(
            run_id=job.run_id,
            journal=self._journal,
            model=_NoModel(),
            messages=[],
            door=door,
            resource_id=job.resource,
            **self._rules.options,
        )

    async def _look(self, batch_id: str, token: str, jobs: Sequence[Job]) -> BatchPlan:
        planner = Planner(self._journal, self.tool, self._common)
        plan = await planner.plan(batch_id, token, jobs)
        other = (
            f"batch {batch_id!r} was begun with other items, or under another policy: it runs with none but those. Use "
            "another id for these",
        )
        begun = await begun_otherwise(self._journal, batch_id, token)
        return dataclasses.replace(plan, warnings=(*(other if begun else ()), *self.warnings, *plan.warnings))

    async def _drive(self, jobs: Sequence[Job]) -> dict[str, ItemReport]:
        found: dict[str, ItemReport] = {}
        queue, repeated = iter(jobs), asyncio.Event()

        async def work() -> None:
            for job in queue:  # one iterator for all: each takes the next that nobody has taken
                if repeated.is_set():
                    found[job.key] = _left(job)
                    continue
                found[job.key] = await drive_item(job, self._plan_of(job), self.tool)
                if self._rules.fails and _is_repeat(found[job.key]):
                    repeated.set()

        workers = [asyncio.ensure_future(work()) for _ in range(min(self._rules.concurrency, len(jobs)))]
        try:
            await asyncio.gather(*workers)
        except BaseException:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
            raise
        return found

    async def _end(self, batch_id: str, token: str, version: int, items: Sequence[ItemReport]) -> BatchReport:
        """Keep the report; what the items came to is recorded with them, so that a report lost loses nothing."""
        warnings: list[str] = list(self.warnings)
        try:
            if not await keep_report(self._journal, batch_id, token, version, items):
                warnings.append(f"batch {batch_id!r} was erased while it ran; purge it once more")
        except (JournalError, RunBusyError) as error:
            warnings.append(f"the report of batch {batch_id!r} could not be kept ({error}); run it again for one")
            logger.exception("the report of batch %s could not be kept", batch_id)
        return BatchReport(batch_id=batch_id, token=token, items=tuple(items), warnings=tuple(warnings))

    def _repeated(self, batch_id: str, repeats: Sequence[str]) -> DuplicateSideEffectError:
        shown = ", ".join(repeats[:5]) + (" …" if len(repeats) > 5 else "")
        return DuplicateSideEffectError(
            f"batch {batch_id!r} was stopped: {len(repeats)} of its items repeat earlier work ({shown}), and nothing "
            "was begun after that was known. preflight says what they repeat; leave them out under another batch id, "
            "or let a person decide on each with on_duplicate='suspend-item'",
            batch_id=batch_id,
            tool=self.tool.name,
            items=list(repeats),
        )


class _NoModel(NoModel):
    """Stands where a run's model would; lists show what the run is instead."""

    spec = "batch/item"


def _is_repeat(report: ItemReport) -> bool:
    return report.outcome == "not-run" and report.code == DuplicateSideEffectError.code


def _gone(job: Job) -> ItemReport:
    return ItemReport(
        key=job.key,
        run_id=job.run_id,
        outcome="not-run",
        code=RunSweptError.code,
        message="An earlier run of the batch brought it to an end, and its run was deleted since: it is not run again.",
    )


def _left(job: Job, *, repeats: bool = False) -> ItemReport:
    return ItemReport(
        key=job.key, run_id=job.run_id, outcome="not-run", code=DuplicateSideEffectError.code if repeats else ""
    )
