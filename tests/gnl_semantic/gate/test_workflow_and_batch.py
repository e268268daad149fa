"""The gate before steps of a workflow and items of a batch: asked once, answered for good, no second effect."""

import asyncio

import pytest

from gnl_core import create_batch, decide, purge_thread, run_workflow
from gnl_core.errors import StepRetryBlockedError, ToolError
from gnl_core.journal import scan_all

pytestmark = pytest.mark.stores()

ABC, SPACED, THIRD = {"sku": "abc"}, {"sku": " ABC "}, {"sku": "Abc"}


async def drive(shop, *calls, run="w", make=None, together=False, **options):
    """Drive a workflow with one step a call; `together` calls them side by side."""
    make = make or shop.tool()

    async def work(flow):
        if together:
            return await asyncio.gather(*(flow.step(f"make/{place}", make, **call) for place, call in enumerate(calls)))
        return [await flow.step(f"make/{place}", make, **call) for place, call in enumerate(calls)]

    options = {"limits": shop.limits(), "thread_id": "t"} | options
    return await run_workflow(work, journal=options.pop("journal", shop.journal), run_id=run, name="work", **options)


def batch_of(shop, **options):
    options = {"limits": shop.limits(), "thread_id": "t"} | options
    return create_batch(
        journal=options.pop("journal", shop.journal),
        tool=shop.tool(),
        item_key=lambda item: item["note"],
        **options,
    )


async def go(batch, name, items):
    return await batch.run(name, items, plan_token=(await batch.preflight(name, items)).token)


def items(*skus):
    return [{"sku": sku, "note": f"i{place}"} for place, sku in enumerate(skus)]


# Steps of a workflow -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("approved", [True, False])
async def test_a_step_that_looks_like_an_agents_work_is_asked_about(shop, asked, approved):
    await shop.run(ABC)
    for _ in range(2):
        waiting = await drive(shop, SPACED)
        question = asked(waiting)
        assert (question.question, question.kind, waiting.status) == ("w/s0p0/semantic/0", "semantic", "suspended")
        assert (question.prior["run_id"], question.prior["tool_call_id"]) == ("r1", "s0p0")
    await decide(shop.journal, question.question, approved, actor="deniz")
    for _ in range(2):
        if approved:
            assert (await drive(shop, SPACED)).output == ["made 2"]
        else:
            with pytest.raises(ToolError):
                await drive(shop, SPACED)
    assert shop.effects.count() == (2 if approved else 1)
    assert len(await shop.tombstones()) == int(approved)
    assert len(await shop.records()) == (2 if approved else 1)


async def test_an_agent_that_repeats_a_step_is_asked_and_so_is_another_workflow(shop, asked):
    assert (await drive(shop, ABC)).output == ["made 1"]
    assert asked(await shop.run(SPACED, run="agent")).prior["run_id"] == "w"
    assert asked(await drive(shop, SPACED, run="other")).prior["run_id"] == "w"
    assert shop.effects.count() == 1


@pytest.mark.parametrize("together", [False, True])
async def test_steps_of_one_workflow_that_look_alike_are_asked_about_one_by_one(shop, asked, together):
    first = await drive(shop, ABC, {"sku": "xyz"}, together=together)
    assert (first.output, shop.effects.count()) == (["made 1", "made 2"], 2)
    again = await drive(shop, SPACED, {"sku": " XYZ"}, run="again", together=together)
    assert (len(again.interrupts), shop.effects.count()) == (2 if together else 1, 2)
    while again.status == "suspended":
        for question in again.interrupts:
            assert question.kind == "semantic"
            await decide(shop.journal, question.question, True)
        again = await drive(shop, SPACED, {"sku": " XYZ"}, run="again", together=together)
    assert (sorted(again.output), shop.effects.count()) == (["made 3", "made 4"], 4)


async def test_a_drive_that_only_reads_what_is_recorded_asks_the_gate_nothing(shop):
    await drive(shop, ABC)
    sent = len(shop.embed.sent)
    again = await drive(shop, ABC)
    assert (again.output, len(shop.embed.sent), shop.effects.count()) == (["made 1"], sent, 1)


async def test_a_yes_to_a_lookalike_is_none_to_a_doubt(shop):
    """What a person said of the likeness says nothing of an effect that may have happened."""
    await shop.run(ABC)
    make = shop.tool(fails=2)
    waiting = await drive(shop, SPACED, make=make)
    await decide(shop.journal, waiting.interrupts[0].question, True)
    with pytest.raises(ToolError, match="the line went dead"):
        await drive(shop, SPACED, make=make)
    for _ in range(2):
        with pytest.raises(StepRetryBlockedError) as blocked:
            await drive(shop, SPACED, make=make)
    assert shop.effects.count() == 2
    (question,) = blocked.value.interrupts
    await decide(shop.journal, question.question, False, output="made 2")
    assert (await drive(shop, SPACED, make=make)).output == ["made 2"]
    assert shop.effects.count() == 2


async def test_a_gate_that_is_out_of_order_costs_no_step(shop):
    await shop.run(ABC)
    shop.embed.error = RuntimeError("no model")
    done = await drive(shop, {"sku": "quite another"})
    assert (done.output, shop.effects.count()) == (["made 2"], 2)


async def test_other_conversations_and_other_tenants_are_not_looked_at(shop, shop_of):
    await drive(shop, ABC)
    assert (await drive(shop, SPACED, run="elsewhere", thread_id="u")).status == "completed"
    assert (await drive(shop, SPACED, journal=shop.journal.scoped("acme"))).status == "completed"
    assert shop.effects.count() == 3


async def test_an_erased_conversation_leaves_nothing_that_looks_like_it(shop):
    await shop.run(ABC)
    waiting = await drive(shop, SPACED)
    await decide(shop.journal, waiting.interrupts[0].question, True)
    await drive(shop, SPACED)
    await purge_thread(shop.journal, "t")
    left = [entry.key async for entry in scan_all(shop.journal, ())]
    assert [key for key in left if {"sem", "semtomb"} & set(key)] == []
    assert (await drive(shop, THIRD, run="after")).status == "completed", "nothing is left that it looks like"


async def test_the_built_in_model_and_the_ladder_stand_before_steps_and_items(shop, asked):
    shop.gate = shop.gated(embed="local", embed_model_id=None, rules=True)
    tv = {"sku": "Samsung 42 inch TV"}
    assert (await drive(shop, tv)).output == ["made 1"]
    assert asked(await drive(shop, {"sku": "samsung-42-inch-tv"}, run="again")).prior["run_id"] == "w"
    assert (await drive(shop, {"sku": "oak dining table"}, run="table")).status == "completed"
    report = await go(batch_of(shop), "march", items("Samsung 42inch TV", "garden hose"))
    assert [one.outcome for one in report.items] == ["suspended", "done"]
    assert [one.kind for one in report.interrupts] == ["semantic"]
    assert shop.effects.count() == 3


# Items of a batch ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("approved", [True, False])
async def test_an_item_that_looks_like_earlier_work_becomes_a_question(shop, approved):
    await drive(shop, ABC)
    batch = batch_of(shop)
    for first in (True, False):
        report = await go(batch, "march", items(" ABC ", "else"))
        assert [one.outcome for one in report.items] == ["suspended", "done" if first else "replayed"]
        (question,) = report.interrupts
        assert (question.kind, question.prior["run_id"]) == ("semantic", "w")
    await decide(shop.journal, question.question, approved)
    for first in (True, False):
        outcome = (await go(batch, "march", items(" ABC ", "else"))).of("i0").outcome
        assert outcome == ({True: "done", False: "replayed"}[first] if approved else "denied")
    assert shop.effects.count() == (3 if approved else 2)


async def test_a_gate_that_is_out_of_order_costs_no_item(shop):
    shop.embed.error = RuntimeError("no model")
    report = await go(batch_of(shop), "march", items("a1", "b2", "c3"))
    assert (report.counts, shop.effects.count()) == ({"done": 3}, 3)


async def test_items_of_another_tenant_are_not_looked_at(shop):
    await go(batch_of(shop), "march", items("abc"))
    report = await go(batch_of(shop, journal=shop.journal.scoped("acme")), "march", items(" ABC "))
    assert (report.counts, shop.effects.count()) == ({"done": 1}, 2)
