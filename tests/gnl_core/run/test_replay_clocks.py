"""Clocks that jump: nothing that was recorded changes its meaning, and no age is negative."""

import pytest
import pytest_asyncio

from gnl_core import (
    Approval,
    Context,
    InMemoryStorage,
    SqliteStorage,
    args_hash,
    decide,
    keys,
    list_interrupts,
    run_durable,
    tool,
)
from gnl_core.errors import RunBusyError, SideEffectRetryBlockedError
from gnl_core.journal import Put, get, new_batch
from gnl_core.run_list import list_runs
from gnl_core.testing.scripted import ScriptedModel

DAY = 86_400.0
SCRIPT = [[("charge", {"amount": 1})], [("refund", {"amount": 1})], "done"]


class Hands:
    """A clock that is set by hand; in seconds."""

    def __init__(self):
        self.now = 1_800_000_000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Hands()


@pytest_asyncio.fixture(params=["memory", "sqlite", "sqlite, opened again"])
async def reopened(request, place, clock):
    """A function that returns the store: the same object, or the file opened by a new one, as a new process would."""
    stores = []

    async def get():
        if stores and request.param != "sqlite, opened again":
            return stores[0].runs
        for store in stores:
            await store.aclose()
        kind = InMemoryStorage if request.param == "memory" else SqliteStorage
        path = () if request.param == "memory" else (place / "clock.sqlite",)
        stores.append(kind(*path, clock=clock))
        return stores[-1].runs

    yield get
    for store in stores:
        await store.aclose()


@pytest.fixture
def drive(effects, reopened):
    @tool
    def charge(context: Context, amount: int) -> str:
        return effects.fire("charge", context, "receipt")

    @tool(confirm=True)
    def refund(context: Context, amount: int) -> str:
        return effects.fire("refund", context, "refunded")

    async def drive(model=None, **options):
        return await run_durable(
            run_id="r",
            journal=await reopened(),
            model=model or ScriptedModel(SCRIPT),
            tools=[charge, refund],
            prompt="pay",
            **options,
        )

    return drive


@pytest.mark.parametrize("jump", [-30 * DAY, -1.0, 30 * DAY, 10_000 * DAY])
async def test_a_run_goes_on_whatever_the_clock_was_set_to(drive, clock, effects, reopened, jump):
    waits = await drive()
    clock.now += jump
    (question,) = await list_interrupts(await reopened())
    assert question == waits.interrupts[0]
    await decide(await reopened(), question.question, True)
    clock.now += jump
    result = await drive()
    assert (result.text, effects.count()) == ("done", 2)
    clock.now += jump
    again = await drive(ScriptedModel([]), replay="strict")
    assert (again.messages, again.warnings, effects.count()) == (result.messages, (), 2)
    assert await list_interrupts(await reopened()) == []
    (run,) = (await list_runs(await reopened())).runs
    assert run.status == "completed"
    assert run.changed_at >= run.created_at


async def test_times_of_one_run_never_run_backwards(drive, clock, reopened):
    await drive()
    clock.now -= 30 * DAY
    journal = await reopened()
    before = {entry.key: entry for entry in (await journal.scan(("run",))).entries}
    await drive()
    after = {entry.key: entry for entry in (await (await reopened()).scan(("run",))).entries}
    for key, entry in after.items():
        assert entry.updated_at >= entry.created_at
        if key in before:
            assert entry.updated_at >= before[key].updated_at


async def test_an_approval_that_expired_stays_expired_when_the_clock_is_set_back(drive, clock, effects, reopened):
    waits = await drive()
    now = await (await reopened()).now()
    await decide(await reopened(), waits.interrupts[0].question, True, expires_at=now + 1_000)
    clock.now += 2.0
    assert [one.kind for one in (await drive()).interrupts] == ["confirm"]
    clock.now -= 30 * DAY
    assert [one.kind for one in (await drive()).interrupts] == ["confirm"]
    assert effects.count("refund") == 0


async def test_an_answer_passed_along_expires_by_the_store_s_clock(drive, clock, effects, reopened):
    now = await (await reopened()).now()
    early = Approval(approved=True, args_digest=args_hash({"amount": 1}), expires_at=now - 1)
    result = await drive(approvals={"s1p0": early})
    assert (len(result.interrupts), effects.count("refund")) == (1, 0)
    assert result.unused_approvals == ("s1p0",)


async def test_a_call_that_may_be_running_elsewhere_is_not_freed_by_a_clock_set_back(drive, clock, effects, rows_of):
    """A claim of another host: its time passes by the store's clock alone."""
    await drive(max_steps=1)
    await rows_of(status="running", output=None, ttl_ms=30_000, owner=FAR, attempts=1, started_at=0)
    for _ in range(2):
        with pytest.raises(RunBusyError) as busy:
            await drive()
        assert 1 <= busy.value.retry_after <= 30
        clock.now -= DAY
    clock.now += 3 * DAY
    with pytest.raises(SideEffectRetryBlockedError):
        await drive()
    assert effects.count("charge") == 1


FAR = {"id": "0" * 32, "boot": "elsewhere", "pid": 7, "started": "1", "namespace": "1", "host": "far"}


@pytest.fixture
def rows_of(reopened):
    """Change the record of the charge."""

    async def change(**members):
        journal = await reopened()
        key = keys.tool("r", "~", 0, 0)
        entry = await get(journal, key)
        await journal.apply((Put(key, {**entry.value, **members}),), batch=new_batch())

    return change
