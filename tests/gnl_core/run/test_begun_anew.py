"""A step or an item that certainly did nothing is tried again: with the arguments that its tool's types make."""

import asyncio
from datetime import date
from decimal import Decimal

import pytest

from gnl_core import (
    Approval,
    Context,
    NotPerformedError,
    StepRetryBlockedError,
    args_hash,
    cancel_run,
    create_batch,
    decide,
    list_interrupts,
    run_workflow,
    tool,
)
from gnl_core.errors import (
    DivergenceError,
    IdempotencyOwnerMismatchError,
    ToolArgumentsError,
    ToolError,
)

ARGS = {"order": "a", "on": date(2026, 2, 2), "amount": Decimal("2.50")}
ITEM = {"order": "a", "on": "2026-02-02", "amount": "2.50"}


class Bank:
    """Refuses for as long as it is told to, and notes what it was called with."""

    def __init__(self, effects):
        self.closed, self.seen = True, []

        @tool(name="pay", side_effect=True)
        async def pay(ctx: Context, order: str, on: date, amount: Decimal) -> str:
            self.seen.append((on, amount))
            if self.closed:
                raise NotPerformedError("the bank is closed")
            return effects.fire("pay", ctx, "paid")

        @tool(name="pay", side_effect=True)
        async def lax(ctx: Context, order: str, on: str = "", amount: str = "") -> str:
            self.seen.append((on, amount))
            return effects.fire("pay", ctx, "paid")

        self.pay, self.lax = pay, lax


@pytest.fixture
def bank(effects):
    return Bank(effects)


async def go(journal, bank, items, tool=None, name="march", **options):
    batch = create_batch(journal=journal, tool=tool or bank.pay, item_key="order", **options)
    return await batch.run(name, items, plan_token=(await batch.preflight(name, items)).token)


async def test_a_step_is_tried_again_with_values_of_its_types(journal, bank, effects):
    async def work(flow):
        return await flow.step("pay", bank.pay, **ARGS)

    with pytest.raises(ToolError, match="the bank is closed"):
        await run_workflow(work, journal=journal, run_id="r")
    bank.closed = False
    assert (await run_workflow(work, journal=journal, run_id="r")).output == "paid"
    assert set(bank.seen) == {(date(2026, 2, 2), Decimal("2.50"))}
    assert effects.count() == 1


async def test_a_step_is_not_tried_again_with_what_does_not_fit(journal, bank, effects):
    async def work(flow, on):
        return await flow.step("pay", bank.pay, **{**ARGS, "on": on})

    with pytest.raises(ToolError, match="the bank is closed"):
        await run_workflow(lambda_of(work, ARGS["on"]), journal=journal, run_id="r", name="work")
    bank.closed = False
    with pytest.raises(ToolArgumentsError, match="on: Input should be a valid date"):
        await run_workflow(lambda_of(work, "never"), journal=journal, run_id="r", name="work")
    assert (len(bank.seen), effects.count()) == (1, 0)


def lambda_of(work, on):
    async def bound(flow):
        return await work(flow, on)

    return bound


async def test_an_item_is_tried_again_with_values_of_its_types(journal, bank, effects):
    assert (await go(journal, bank, [ITEM])).of("a").code == "not_performed"
    bank.closed = False
    assert (await go(journal, bank, [ITEM])).counts == {"done": 1}
    assert (await go(journal, bank, [ITEM])).counts == {"replayed": 1}
    assert set(bank.seen) == {(date(2026, 2, 2), Decimal("2.50"))}
    assert effects.count() == 1


@pytest.mark.parametrize("wrong", [{"on": "never"}, {"extra": 1}, {"amount": [1]}])
async def test_an_item_whose_arguments_do_not_fit_reaches_no_tool_however_often_it_is_run(
    journal, bank, effects, wrong
):
    bank.closed = False
    for _ in range(3):
        item = (await go(journal, bank, [{**ITEM, **wrong}])).of("a")
        assert (item.outcome, item.code) == ("failed", "tool_arguments_invalid")
    assert (bank.seen, effects.count()) == ([], 0)


async def test_an_item_that_fits_by_now_is_done_and_known_by_its_arguments(journal, bank, effects):
    """What its tool could not read, and can by now, is as much that work as if it had been read at once."""
    odd = {**ITEM, "on": "never"}
    conversation = {"thread_id": "t", "resource_id": "ann"}
    assert (await go(journal, bank, [odd], **conversation)).counts == {"failed": 1}
    assert (await go(journal, bank, [odd], tool=bank.lax, **conversation)).counts == {"done": 1}
    again = await go(journal, bank, [odd], tool=bank.lax, name="april", **conversation)
    assert (again.counts, effects.count()) == ({"suspended": 1}, 1), "the very arguments of earlier work"
    (question,) = await list_interrupts(journal)
    await decide(journal, question.question, False)
    assert (await go(journal, bank, [odd], tool=bank.lax, name="april", **conversation)).counts == {"denied": 1}


async def test_a_strict_drive_tries_the_step_again_that_was_recorded_and_no_other(journal, bank, effects):
    async def work(flow, amount):
        return await flow.step("pay", bank.pay, **{**ARGS, "amount": amount})

    began = {"journal": journal, "run_id": "r", "input": {"amount": 2}}
    with pytest.raises(ToolError, match="the bank is closed"):
        await run_workflow(work, **began)
    bank.closed = False

    async def work(flow, amount):  # the function was changed
        return await flow.step("pay", bank.pay, **{**ARGS, "amount": amount + 1})

    with pytest.raises(DivergenceError):
        await run_workflow(work, **began, replay="strict")
    assert effects.count() == 0
    assert (await run_workflow(work, **began)).output == "paid"
    assert bank.seen[-1][1] == Decimal(3)


async def test_a_yes_lets_one_attempt_run_and_the_next_is_asked_about_again(journal, effects):
    closed = True

    @tool(side_effect=True, confirm=True)
    async def pay(ctx: Context, order: str) -> str:
        if closed:
            raise NotPerformedError("the bank is closed")
        return effects.fire("pay", ctx, "paid")

    async def work(flow):
        return await flow.step("pay", pay, order="a")

    async def drive(**options):
        return await run_workflow(work, journal=journal, run_id="r", **options)

    assert [one.question for one in (await drive()).interrupts] == ["r/s0p0/confirm/0"]
    await decide(journal, "r/s0p0/confirm/0", True)
    with pytest.raises(ToolError, match="the bank is closed"):
        await drive()
    closed = False
    assert [one.question for one in (await drive()).interrupts] == ["r/s0p0/confirm/1"]
    assert [one.question for one in await list_interrupts(journal)] == ["r/s0p0/confirm/1"]
    await decide(journal, "r/s0p0/confirm/1", True)
    assert (await drive()).output == "paid"
    assert (await list_interrupts(journal), effects.count()) == ([], 1)


async def test_an_answer_that_was_passed_along_is_spent_and_answers_the_next_question_once_that_is_open(
    journal, effects
):
    closed = True

    @tool(side_effect=True, confirm=True)
    async def pay(ctx: Context, order: str) -> str:
        if closed:
            raise NotPerformedError("the bank is closed")
        return effects.fire("pay", ctx, "paid")

    async def work(flow):
        return await flow.step("pay", pay, order="a")

    yes = {
        "journal": journal,
        "run_id": "r",
        "approvals": {"s0p0": Approval(approved=True, args_digest=args_hash({"order": "a"}))},
    }
    with pytest.raises(ToolError, match="the bank is closed"):
        await run_workflow(work, **yes)
    closed = False
    assert [one.question for one in (await run_workflow(work, **yes)).interrupts] == ["r/s0p0/confirm/1"]
    assert effects.count() == 0
    assert (await run_workflow(work, **yes)).output == "paid"
    assert effects.count() == 1


async def test_what_came_to_nothing_for_one_person_is_not_begun_by_another_under_the_same_key(journal, effects):
    closed = True

    @tool(idempotency="args", window="cross-run")
    async def pay(ctx: Context, order: str) -> str:
        if closed:
            raise NotPerformedError("the bank is closed")
        return effects.fire("pay", ctx, "paid")

    async def work(flow):
        return await flow.step("pay", pay, order="a")

    with pytest.raises(ToolError, match="the bank is closed"):
        await run_workflow(work, journal=journal, run_id="ann's", resource_id="ann")
    closed = False
    with pytest.raises(IdempotencyOwnerMismatchError):
        await run_workflow(work, journal=journal, run_id="bob's", resource_id="bob")
    assert effects.count() == 0
    assert (await run_workflow(work, journal=journal, run_id="ann's", resource_id="ann")).output == "paid"


async def test_a_canceled_workflow_tries_nothing_again(journal, bank, effects):
    async def work(flow):
        return await flow.step("pay", bank.pay, **ARGS)

    with pytest.raises(ToolError, match="the bank is closed"):
        await run_workflow(work, journal=journal, run_id="r")
    assert await cancel_run(journal, "r") is True
    bank.closed = False
    assert (await run_workflow(work, journal=journal, run_id="r")).status == "canceled"
    assert (len(bank.seen), effects.count()) == (1, 0)


async def test_a_second_attempt_that_is_killed_is_in_doubt(journal, effects):
    """Only the first attempt is known to have come to nothing."""
    closed = True

    @tool(side_effect=True)
    async def pay(ctx: Context, order: str) -> str:
        if closed:
            raise NotPerformedError("the bank is closed")
        effects.fire("pay", ctx)
        raise asyncio.CancelledError  # as a process that ends right after its effect leaves it

    async def work(flow):
        return await flow.step("pay", pay, order="a")

    with pytest.raises(ToolError, match="the bank is closed"):
        await run_workflow(work, journal=journal, run_id="r")
    closed = False
    for _ in range(2):
        with pytest.raises((asyncio.CancelledError, StepRetryBlockedError)):
            await run_workflow(work, journal=journal, run_id="r")
    assert [one.question for one in await list_interrupts(journal)] == ["r/s0p0/in_doubt/2"]
    assert effects.count() == 1
