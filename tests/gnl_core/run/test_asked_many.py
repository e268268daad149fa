"""Open questions of many runs: the list of all is what each run asks, and costs a few reads."""

import asyncio

import pytest

from gnl_core import SqliteStorage, decide, list_interrupts, run_durable, tool
from gnl_core.asked import CHUNK, load_asked, waiting_roots
from gnl_core.errors import StoreCorruptError, StoreUnavailableError
from gnl_core.journal import new_batch, scan_all
from gnl_core.journal.port import Put
from gnl_core.testing import Call, ScriptedModel


@tool(side_effect=True, confirm=True)
async def refund(order: int) -> str:
    """Give the money back."""
    return f"refunded {order}"


@tool(side_effect=True)
async def ship(order: int) -> str:
    """Ship, or fail half-way."""
    raise ConnectionError("nobody knows whether it went out")


def drive(journal, number):
    order = {"order": number}
    steps = [[[("refund", order)]], [[("refund", order), ("refund", {"order": -number})]], [[("ship", order)]]]
    model = ScriptedModel([*steps[number % 3], "Done."])
    return run_durable(run_id=f"r-{number}", journal=journal, model=model, tools=[refund, ship], prompt="go")


@pytest.fixture
async def storage(tmp_path):
    async with SqliteStorage(tmp_path / "runs.db", "normal") as storage:
        yield storage


async def one_by_one(journal, count):
    found = [one for number in range(count) for one in await list_interrupts(journal, f"r-{number}")]
    return sorted(one.question for one in found)


async def names(journal):
    return sorted(one.question for one in await list_interrupts(journal))


async def test_the_list_of_all_is_what_each_run_asks_whatever_was_answered(storage):
    journal, count = storage.runs, 24
    for number in range(count):
        await drive(journal, number)
    asked = await names(journal)
    assert asked == await one_by_one(journal, count)
    assert len(asked) == 8 + 2 * 8 + 8, "one of a kind, two at once, and one in doubt each"
    for number, question in enumerate(asked):
        if number % 3 == 0:
            await decide(journal, question, bool(number % 2))
        if number % 6 == 1 and not question.endswith("in_doubt/1"):
            await decide(journal, question, True, expires_at=1)  # long ago: it is open again
    left = await names(journal)
    assert left == await one_by_one(journal, count) == [one for number, one in enumerate(asked) if number % 3]


async def test_rows_that_cannot_be_read_hide_no_other_runs_questions(storage):
    journal = storage.runs
    for number in range(0, 12, 3):
        await drive(journal, number)
    (broken,) = [entry.key async for entry in scan_all(journal, ("run", "r-3", "~", "tool"))]
    await journal.apply([Put(broken, {"f": 1, "status": "?"})], batch=new_batch())
    ask = [entry.key async for entry in scan_all(journal, ("ix", "ask"))][-1]
    await journal.apply([Put(ask, {"question": "nonsense"})], batch=new_batch())
    unreadable = []
    found = await list_interrupts(journal, unreadable=unreadable)
    assert [one.run_id for one in found] == ["r-0", "r-6", "r-9"]
    assert [type(one) for one in unreadable] == [StoreCorruptError]
    with pytest.raises(StoreCorruptError):
        await list_interrupts(journal)


async def test_many_runs_cost_a_few_reads(storage):
    journal, count = storage.runs, CHUNK + 20
    await asyncio.gather(*(drive(journal, 3 * number) for number in range(count)))
    before = storage.statistics
    assert len(await list_interrupts(journal)) == count
    after = storage.statistics
    assert after.reads - before.reads == 2
    assert after.scans - before.scans < 10


async def test_each_question_names_the_providers_id_of_its_call(storage):
    journal = storage.runs
    model = ScriptedModel(
        [[Call("refund", {"order": n}, provider_id=name) for n, name in enumerate(["toolu_1", "toolu_2", ""])]]
    )
    await run_durable(run_id="r", journal=journal, model=model, tools=[refund], prompt="go")
    listed = {one.tool_call_id: one.provider_call_id for one in await list_interrupts(journal)}
    assert listed == {"s0p0": "toolu_1", "s0p1": "toolu_2", "s0p2": ""}
    (row,) = [entry.key async for entry in scan_all(journal, ("run", "r", "~", "model"))]
    await journal.apply([Put(row, {"f": 1, "response": {"parts": [{"type": "tool_call"}]}})], batch=new_batch())
    with pytest.raises(StoreCorruptError, match="model step"):
        await list_interrupts(journal)


async def test_a_store_that_fails_while_the_next_chunk_is_read_leaves_nothing_behind(storage, caplog):
    journal, count = storage.runs, 2 * CHUNK + 20
    await asyncio.gather(*(drive(journal, 3 * number) for number in range(count)))
    before = asyncio.all_tasks()

    class Failing(type(journal)):
        def _get_many(self, names, asked):
            raise StoreUnavailableError("gone")

    with pytest.raises(StoreUnavailableError, match="gone"):
        await list_interrupts(Failing(journal._engine))
    reading = load_asked(journal, await waiting_roots(journal))
    await anext(reading)
    await reading.aclose()  # as one does who had enough
    assert asyncio.all_tasks() == before
    assert caplog.records == []
