"""A batch is erased with its items and without its neighbours, however often that is broken off."""

import asyncio

import pytest

from gnl_core import (
    Context,
    RunDrivenError,
    SemanticIdentity,
    create_batch,
    keys,
    list_runs,
    purge_batch,
    purge_resource,
    read_batch,
    sweep_runs,
    tool,
)
from gnl_core.doctor_leftovers import examine_leftovers
from gnl_core.errors import IdInvalidError, StoreUnavailableError
from gnl_core.journal import Delete, Put, new_batch, scan_all
from gnl_core.testing.faulty import Fault, FaultyJournal

ITEMS = [{"key": f"k{number}", "sku": f"sku-{number}"} for number in range(3)]


@tool(semantic_identity=SemanticIdentity(keys=("sku",)))
def create(key: str, sku: str) -> str:
    return f"created {sku}"


def batch_of(journal, **options):
    return create_batch(journal=journal, tool=create, item_key="key", **{"resource_id": "ann", **options})


async def go(batch, batch_id, items=ITEMS):
    return await batch.run(batch_id, items, plan_token=(await batch.preflight(batch_id, items)).token)


async def runs(journal):
    return sorted(run.run_id for run in (await list_runs(journal)).runs)


async def test_a_batch_goes_with_its_items_and_keeps_its_neighbours(journal):
    batch = batch_of(journal, resource_id=None, thread_id="t", on_duplicate="skip")
    for batch_id in ("a", "a-b", "ab", "a_"):
        await go(batch_of(journal, resource_id=None), batch_id)
    await go(batch, "z")
    told = await purge_batch(journal, "a", dry_run=True)
    assert (told.runs, told.dry_run) == (3, True)
    assert len(await runs(journal)) == 15
    done = await purge_batch(journal, "a")
    assert done.rows == told.rows
    assert done.rows["batch"] == 2
    assert (done.what, done.runs) == ("batch 'a'", 3)
    assert await runs(journal) == sorted(
        f"batch:{name}:{item['key']}" for name in ("a-b", "ab", "a_", "z") for item in ITEMS
    )
    assert await read_batch(journal, "a") is None
    assert (await read_batch(journal, "a-b")).items == 3
    left = [entry.key async for entry in scan_all(journal, ()) if "batch:a:k0" in entry.key]
    assert left == []
    assert (await purge_batch(journal, "a")).deleted == 0


async def test_what_others_know_of_its_work_stays(journal):
    await go(batch_of(journal, thread_id="t"), "a")
    await purge_batch(journal, "a")
    families = {entry.key[0] async for entry in scan_all(journal, ())}
    assert {"xid", "xthr"} <= families
    assert (await go(batch_of(journal, thread_id="t"), "a")).counts == {"suspended": 3}


async def test_an_erasing_that_broke_off_anywhere_is_ended_by_the_same_call(journal):
    await go(batch_of(journal, resource_id=None), "a")
    writes = 0
    while True:
        writes += 1
        faulty = FaultyJournal(journal, fault=Fault(number=writes, action="unavailable"))
        try:
            await purge_batch(faulty, "a")
        except StoreUnavailableError:
            found = [one.check for one in await examine_leftovers(journal, "")]
            assert "batches.orphans" not in found, "the plan goes last"
            continue
        break
    assert writes > 5
    assert [entry.key async for entry in scan_all(journal, ())] == []


async def test_a_batch_that_is_being_run_is_refused(journal):
    begun, release = asyncio.Event(), asyncio.Event()

    @tool(side_effect=True)
    async def slow(key: str) -> None:
        begun.set()
        await release.wait()

    batch = create_batch(journal=journal, tool=slow, item_key="key")
    running = asyncio.create_task(go(batch, "a", [{"key": "k"}]))
    await asyncio.wait_for(begun.wait(), 30)
    with pytest.raises(RunDrivenError, match="batch:a:k"):
        await purge_batch(journal, "a")
    release.set()
    assert (await running).counts == {"done": 1}
    assert (await purge_batch(journal, "a")).runs == 1


async def test_a_batch_that_is_erased_while_it_runs_leaves_no_report(journal):
    begun, release = asyncio.Event(), asyncio.Event()

    @tool(side_effect=True)
    async def slow(key: str) -> None:
        begun.set()
        await release.wait()

    batch = create_batch(journal=journal, tool=slow, item_key="key")
    running = asyncio.create_task(go(batch, "a", [{"key": "k"}]))
    await asyncio.wait_for(begun.wait(), 30)
    await purge_batch(journal, "a", force=True)
    release.set()
    report = await running
    assert "was erased while it ran" in report.warnings[-1]
    assert [entry.key async for entry in scan_all(journal, keys.batch("a"))] == []


async def test_erasing_a_person_reaches_their_items(journal):
    persons = {"k0": "ann", "k1": "bob", "k2": "ann"}
    await go(batch_of(journal, resource_id=lambda item: persons[item["key"]]), "a")
    await purge_resource(journal, "ann")
    assert await runs(journal) == ["batch:a:k1"]
    assert "sku-0" not in str([entry async for entry in scan_all(journal, (), blobs=True)])


async def test_the_report_forgets_the_items_of_an_erased_person(journal):
    """An item's key may be a person's name; the others' outcomes stay."""
    items = [{"key": name, "sku": "x"} for name in ("ann", "bob")]
    await go(batch_of(journal, resource_id=lambda item: item["key"]), "a", items)
    await purge_resource(journal, "ann", dry_run=True)
    assert (await read_batch(journal, "a")).counts == {"done": 2}
    await purge_resource(journal, "ann")
    view = await read_batch(journal, "a")
    assert (view.outcomes, view.counts, view.runs) == ({"bob": ("done", "")}, {"done": 1}, 1)
    left = [entry async for entry in scan_all(journal, (), blobs=True)]
    assert "'ann'" not in str(left)
    assert '"ann"' not in str(left)
    await journal.apply((Put(keys.batch_report("a"), {"f": 1}, b"["),), batch=new_batch())
    await purge_resource(journal, "bob")
    assert [entry.key async for entry in scan_all(journal, ("batch",))] == [keys.batch_plan("a")]


@pytest.mark.parametrize("tombstones", [False, True])
async def test_the_report_forgets_them_also_where_their_runs_were_swept_before(storage, clock, tombstones):
    journal = clock.moved(storage.runs)
    items = [{"key": name, "sku": "x"} for name in ("ann", "bob", "cem")]
    persons = {"ann": "p1", "bob": "p2", "cem": None}
    await go(batch_of(journal, resource_id=lambda item: persons[item["key"]]), "a", items)
    clock.days(10)
    swept = await sweep_runs(journal, older_than_ms=86_400_000, tombstones=tombstones)
    assert (swept.traces, swept.tombstones) == (2, 3 if tombstones else 0)
    assert (await read_batch(journal, "a")).counts == {"done": 3}, "what was done is known as before"
    would = await purge_resource(journal, "p1", dry_run=True)
    done = await purge_resource(journal, "p1")
    assert would.rows == done.rows == {"resbatch": 1, "xid": 1}
    assert (await read_batch(journal, "a")).outcomes.keys() == {"bob", "cem"}
    left = [entry.key async for entry in scan_all(journal, ("resbatch",))]
    assert left == [keys.item_trace("p2", "a", "bob")]
    await purge_batch(journal, "a")
    assert [entry.key async for entry in scan_all(journal, ("resbatch",))] == []


async def test_the_doctor_tells_of_a_batch_without_its_plan(journal):
    await go(batch_of(journal), "a")
    assert await examine_leftovers(journal, "") == []
    await journal.apply((Delete(keys.batch_plan("a")),), batch=new_batch())
    (found,) = await examine_leftovers(journal, "")
    assert (found.check, found.level) == ("batches.orphans", "waits")
    assert "gnl purge batch a" in found.advice
    await purge_batch(journal, "a")
    assert await examine_leftovers(journal, "") == []
    await journal.apply((Put(keys.batch_report("b"), {"f": 1}),), batch=new_batch())
    assert [one.check for one in await examine_leftovers(journal, "")] == ["batches.orphans"]


async def test_an_id_that_can_be_no_batchs_is_refused(journal):
    for wrong in ("", "a:b", "a/b", None):
        with pytest.raises(IdInvalidError):
            await purge_batch(journal, wrong)
        with pytest.raises(IdInvalidError):
            await read_batch(journal, wrong)


async def test_organisations_have_batches_of_their_own(journal):
    one, other = journal.scoped("one"), journal.scoped("other")
    await go(batch_of(one), "a")
    await go(batch_of(other), "a")
    await purge_batch(one, "a")
    assert await read_batch(one, "a") is None
    assert (await read_batch(other, "a")).counts == {"done": 3}


@pytest.mark.parametrize("wrong", [b"[", b'{"k": 7}', b"[1]"])
async def test_a_report_that_cannot_be_read_is_told_and_costs_no_item(journal, wrong):
    batch = batch_of(journal)
    await go(batch, "a")
    await journal.apply((Put(keys.batch_report("a"), {"f": 1}, wrong),), batch=new_batch())
    report = await go(batch, "a")
    assert report.counts == {"replayed": 3}
    assert "gnl doctor" in report.warnings[0]


async def test_context_reaches_the_body(journal):
    seen = []

    @tool(side_effect=True)
    def look(ctx: Context, key: str) -> None:
        seen.append((ctx.run_id, ctx.idempotency_key, ctx.deps))

    batch = create_batch(journal=journal, tool=look, item_key="key", context={"db": 1})
    await go(batch, "a", [{"key": "k"}])
    assert seen == [("batch:a:k", "batch:a:k:s0p0", {"db": 1})]
