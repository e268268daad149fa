"""One id is one call: while a person is asked about it, it is the call that they were shown."""

import asyncio

import pytest

from gnl_core import Context, decide, durable_context, durable_tools, keys, list_interrupts, tool
from gnl_core.errors import ApprovalRequiredError, DivergenceError, SideEffectRetryBlockedError
from gnl_core.journal import get

ASKED = "r/s0p0/confirm/0"
DOUBT = "r/s0p0/in_doubt/1"
KEYED = {"idempotency_key": lambda args: args["order"], "window": "cross-run"}
NAMED = [{}, {"idempotency": "args"}, KEYED]


def paying(effects, name="pay", **options):
    @tool(name=name, **options)
    async def pay(ctx: Context, order: int, amount: int) -> str:
        """Pay for an order."""
        effects.fire(name, f"order-{order}-{amount}")
        if amount == 13:
            raise ConnectionError("gone")
        return f"paid {amount}"

    return pay


async def call(journal, tools, amount, *, order=1, name="pay"):
    async with durable_context(run_id="r", journal=journal) as ctx:
        return await durable_tools(tools, ctx)[name].call({"order": order, "amount": amount}, tool_call_id="s0p0")


async def diverges(journal, tools, amount, **options):
    """Call with what was not recorded; returns the questions that the error shows."""
    with pytest.raises(DivergenceError, match="call s0p0 of run r") as differs:
        await call(journal, tools, amount, **options)
    return differs.value, [(one.question, one.tool_name, one.args["amount"]) for one in differs.value.interrupts]


@pytest.mark.parametrize("options", NAMED)
async def test_a_call_that_waits_keeps_the_arguments_that_a_person_was_shown(journal, effects, options):
    tools = [paying(effects, confirm=True, **options)]
    with pytest.raises(ApprovalRequiredError) as asked:
        await call(journal, tools, 10)
    assert [one.args["amount"] for one in asked.value.interrupts] == [10]
    for order in (1, 2):
        error, shown = await diverges(journal, tools, 20, order=order)
        assert (shown, error.detail["question"]) == ([(ASKED, "pay", 10)], ASKED)
    assert [(one.question, one.args["amount"]) for one in await list_interrupts(journal)] == [(ASKED, 10)]
    assert (await get(journal, keys.head("r"))).value["status"] == "suspended"

    await decide(journal, ASKED, True)
    await diverges(journal, tools, 20)
    assert effects.count() == 0, "a yes to 10 is none to 20"
    assert await call(journal, tools, 10) == "paid 10"
    assert effects.counts() == {"pay order-1-10": 1}


@pytest.mark.parametrize("options", NAMED)
async def test_a_call_in_doubt_keeps_the_arguments_that_it_was_begun_with(journal, effects, options):
    tools = [paying(effects, **options)]
    with pytest.raises(Exception, match="gone"):
        await call(journal, tools, 13)
    for order in (1, 2):
        _, shown = await diverges(journal, tools, 20, order=order)
        assert shown == [(DOUBT, "pay", 13)]
    with pytest.raises(SideEffectRetryBlockedError) as blocked:
        await call(journal, tools, 13)
    assert [(one.question, one.args["amount"]) for one in blocked.value.interrupts] == [(DOUBT, 13)]
    await decide(journal, DOUBT, False, output="paid by hand")
    assert await call(journal, tools, 13) == "paid by hand"
    assert effects.counts() == {"pay order-1-13": 1}


async def test_a_yes_to_one_tool_lets_no_other_run_with_the_same_arguments(journal, effects):
    tools = [paying(effects, confirm=True), paying(effects, "refund")]
    with pytest.raises(ApprovalRequiredError):
        await call(journal, tools, 10)
    await decide(journal, ASKED, True)
    error, shown = await diverges(journal, tools, 10, name="refund")
    assert (shown, error.detail["tool"]) == ([(ASKED, "pay", 10)], "pay")
    assert effects.count() == 0
    assert await call(journal, tools, 10) == "paid 10"


async def test_true_is_another_argument_than_one(journal, effects):
    tools = [paying(effects, confirm=True)]
    with pytest.raises(ApprovalRequiredError):
        await call(journal, tools, 1)
    await diverges(journal, tools, True)


async def test_a_call_that_is_under_way_is_not_made_with_other_arguments(journal, effects):
    entered, go = asyncio.Event(), asyncio.Event()

    @tool
    async def pay(ctx: Context, order: int, amount: int) -> str:
        """Pay when told to."""
        entered.set()
        await go.wait()
        return effects.fire("pay", ctx, f"paid {amount}")

    async with durable_context(run_id="r", journal=journal) as ctx:
        durable = durable_tools([pay], ctx)["pay"]
        first = asyncio.ensure_future(durable.call({"order": 1, "amount": 10}, tool_call_id="s0p0"))
        await entered.wait()
        with pytest.raises(DivergenceError, match="was begun and is not over") as differs:
            await durable.call({"order": 1, "amount": 20}, tool_call_id="s0p0")
        assert differs.value.interrupts == ()
        go.set()
        assert await first == "paid 10"
    assert effects.count() == 1
