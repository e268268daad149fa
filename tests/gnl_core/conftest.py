"""Rows of runs as the runtime writes them, for tests of what reads them."""

import pytest

from gnl_core import keys
from gnl_core.journal import Put
from gnl_core.model.messages import ModelResponse, Usage
from gnl_core.owner import new_owner
from gnl_core.records import CallRecord, StepRecord
from gnl_core.splice import EMPTY_CHAIN
from gnl_core.work import work_key_hash


class Rows:
    """Operations that write one row, or a head with its indexes."""

    def head(self, run_id, *, status="completed", at=1_000, part=keys.ROOT, **head):
        counts = {"steps": 0, "calls": 0, "questions": 0}
        value = {"f": 1, "status": status, "created_at": at, "changed_at": at, **counts, **head}
        ops = [Put(keys.head(run_id, part), value)]
        if part == keys.ROOT:
            ops.append(Put(keys.index("status", status, at, run_id), {}))
            ops += [
                Put(keys.index(name, value[member], at, run_id), {})
                for name, member in (("agent", "agent"), ("res", "resource"), ("thr", "thread"))
                if value.get(member)
            ]
            if value.get("work_key"):
                ops.append(Put(keys.index("work", work_key_hash(value["work_key"]), at, run_id), {}))
        return ops

    def lock(self, run_id, owner, *, released=False, ttl_ms=600_000):
        return Put(keys.lock(run_id), {"f": 1, "owner": owner.to_json(), "ttl_ms": ttl_ms, "released": released})

    def dead_lock(self, run_id):
        return self.lock(run_id, self.dead_owner())

    def dead_owner(self):
        """An owner of this very process that it does not have: dead for certain."""
        return new_owner()

    def step(self, run_id, number, *parts, add=(), part=keys.ROOT):
        step = StepRecord(
            response=ModelResponse(tuple(parts), Usage(10, 2), "tool_calls", "m", "test"),
            keep=0,
            add=tuple(add),
            # Right for a step that was asked nothing; what another one was asked is not said here.
            chain=EMPTY_CHAIN,
            system="",
            tools="",
            settings="",
            entry="generate",
            model="test/m",
        )
        return Put(keys.model(run_id, part, number), step.to_json())

    def call(self, run_id, call, *, status="succeeded", part=keys.ROOT, blob=None, **members):
        known = {"tool": "pay", "args": {"amount": 5}, "digest": "d", "side_effect": True}
        record = CallRecord(**{**known, **members}, status=status, call=call)
        return Put(keys.tool(run_id, part, *keys.parse_call_id(call)), record.to_json(), blob)


@pytest.fixture(scope="session")
def rows():
    return Rows()


class Counting:
    """A journal that counts what is asked of it, and refuses every write."""

    def __init__(self, journal):
        self.journal = journal
        self.reads = 0
        self.rows = 0

    async def get_many(self, asked):
        self.reads += 1
        self.rows += len(asked)
        return await self.journal.get_many(asked)

    async def scan(self, prefix, **options):
        self.reads += 1
        page = await self.journal.scan(prefix, **options)
        self.rows += len(page.entries)
        return page

    async def apply(self, ops, *, batch):
        raise AssertionError("a view wrote")

    async def delete_prefix(self, prefix, *, limit=1000):
        raise AssertionError("a view deleted")


@pytest.fixture(scope="session")
def counting():
    """The class of a journal that counts reads and refuses writes."""
    return Counting
