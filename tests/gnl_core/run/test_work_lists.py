"""Runs by the name of their work: exact, before the limit, and gone with the run; and what a refusal says of it."""

import asyncio

import pytest

from gnl_core import Context, Gnl, keys, list_runs, purge_run, read_idem_ledger, read_run, run_durable, sweep_runs, tool
from gnl_core.errors import (
    IdInvalidError,
    ModelUnavailableError,
    RunBusyError,
    RunInputMismatchError,
    RunNotFoundError,
    RunSweptError,
)
from gnl_core.testing.scripted import ScriptedModel
from gnl_core.work import work_key_hash

ONE = [[("charge", {"order": 1})], "Done."]
PEOPLE = ("ann", "bob", "eve")


def firm(journal, turns=("Done.",), *, model=None, tools=()):
    agents = {name: {"model": model or ScriptedModel(turns), "tools": tools} for name in ("billing", "mail")}
    return Gnl(journal, agents=agents)


async def listed(journal, **filters):
    """Every run of a list, page by page."""
    found, cursor = [], None
    while True:
        page = await list_runs(journal, cursor=cursor, **filters)
        found += page.runs
        cursor = page.cursor
        if cursor is None:
            return found


# Lists -------------------------------------------------------------------------------------------------------------


async def test_runs_of_one_name_are_found_whoever_s_they_are(journal):
    gnl = firm(journal)
    april = {(await gnl.run("billing", work_key="april", resource_id=who, prompt="Go.")).run_id for who in PEOPLE}
    mail = (await gnl.run("mail", work_key="april", resource_id="ann", prompt="Go.")).run_id
    for number in range(5):
        await gnl.run("billing", work_key=f"other {number}", resource_id="ann", prompt="Go.")
    await run_durable(run_id="raw", journal=journal, model=ScriptedModel(["Done."]), prompt="Go.")
    assert {run.run_id for run in await listed(journal, work_key="april")} == {*april, mail}
    assert {run.run_id for run in await listed(journal, work_key="april", limit=1)} == {*april, mail}
    assert {run.run_id for run in await listed(journal, work_key="april", agent="billing", limit=1)} == april
    (anns,) = await listed(journal, work_key="april", agent="billing", resource_id="ann", limit=1)
    assert (anns.resource_id, anns.work_key) == ("ann", "april")
    assert await listed(journal, work_key="April") == []
    assert (await read_run(journal, mail)).run.work_key == "april"
    assert {run.run_id: run.work_key for run in await listed(journal)}["raw"] == ""


async def test_the_key_itself_is_compared_and_not_its_digest_alone(journal, rows):
    run_id = (await firm(journal).run("billing", work_key="april", resource_id="ann", prompt="Go.")).run_id
    other = work_key_hash("may")
    for key in await rows.all(("ix", "work")):
        _, _, _, at, root = keys.decode(key)
        await rows.put(("ix", "work", other, at, root), {})
    assert await listed(journal, work_key="may") == []
    assert [run.run_id for run in await listed(journal, work_key="april")] == [run_id]


async def test_a_run_is_found_by_its_name_in_every_status(journal, rows):
    work = {"work_key": "invoice 2026-04 / 7742", "resource_id": "ann", "prompt": "Go."}

    async def statuses():
        assert len(await rows.all(("ix", "work"))) == 1
        return [run.status for run in await listed(journal, work_key=work["work_key"])]

    model = ScriptedModel([ModelUnavailableError("down")], gate=(gate := asyncio.Event()))
    task = asyncio.ensure_future(firm(journal, model=model).run("billing", **work))
    await model.entered.wait()
    assert await statuses() == ["running"]
    gate.set()
    with pytest.raises(ModelUnavailableError):
        await task
    assert await statuses() == ["failed"]
    await firm(journal).run("billing", **work)
    assert await statuses() == ["completed"]


async def test_no_trace_of_a_name_is_left_once_its_run_is_gone(journal, rows):
    gnl = firm(journal)
    for number, who in enumerate(PEOPLE):
        await gnl.run("billing", work_key="april", resource_id=who, prompt="Go.")
        if number == 0:
            await purge_run(journal, gnl.run_id_of("billing", "april", resource_id=who))
            assert await rows.all(("ix",)) == {}
    async with asyncio.timeout(30):
        while await rows.all(("run",)):  # until the store's clock has moved on
            await sweep_runs(journal, older_than_ms=0)
    assert await rows.all(("ix",)) == {}
    assert await listed(journal, work_key="april") == []


@pytest.mark.parametrize("key", ["", 7, "k" * 2_049, "\ud800"])
async def test_what_is_no_work_key_is_refused(journal, key):
    with pytest.raises(IdInvalidError):
        await list_runs(journal, work_key=key)


# Refusals ----------------------------------------------------------------------------------------------------------


async def test_a_refusal_names_the_work_to_whoever_named_it(journal, rows, effects):
    @tool
    async def charge(ctx: Context, order: int) -> dict:
        """Charge an order."""
        return effects.fire("charge", f"order-{order}", {"receipt": order})

    work = {"work_key": "april", "resource_id": "ann", "prompt": "Go."}
    model = ScriptedModel(ONE, gate=(gate := asyncio.Event()))
    task = asyncio.ensure_future(firm(journal, model=model, tools=[charge]).run("billing", **work))
    await model.entered.wait()
    gnl = firm(journal)
    for door in (gnl.run, gnl.stream):
        with pytest.raises(RunBusyError) as busy:
            await door("billing", **work, conflict_ledger=True)
        assert busy.value.detail["work_key"] == "april"
        assert 1 <= busy.value.detail["retry_after"] == busy.value.retry_after
    run_id = gnl.run_id_of("billing", "april", resource_id="ann")
    with pytest.raises(RunBusyError) as busy:
        await gnl.run("billing", run_id=run_id, prompt="Go.")
    assert "work_key" not in busy.value.detail
    gate.set()
    await task
    with pytest.raises(RunInputMismatchError) as other:
        await gnl.run("billing", **{**work, "prompt": "Stop."})
    assert other.value.detail["work_key"] == "april"
    with pytest.raises(RunNotFoundError) as missing:
        await gnl.resume("billing", work_key="may", resource_id="ann")
    assert missing.value.detail["work_key"] == "may"
    await purge_run(journal, run_id)
    await rows.put(keys.swept(run_id), {"f": 1, "at": 1})
    with pytest.raises(RunSweptError) as swept:
        await gnl.run("billing", **work)
    assert swept.value.detail["work_key"] == "april"
    assert [entry.work_key_hash for entry in await read_idem_ledger(journal)] == [work_key_hash("april")] * 2
    assert all("april" not in str(value) for value in (await rows.values(("idem",))).values())
