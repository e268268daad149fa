"""What a workflow's function, its callers and its steps may do wrong: told by a typed error, and never done twice."""

import asyncio
import contextlib
import functools
import math
from typing import Any

import pytest

from gnl_core import (
    Duplicates,
    InMemoryStorage,
    RunLimits,
    create_batch,
    list_interrupts,
    run_workflow,
    send_to_workflow,
    tool,
)
from gnl_core.errors import (
    AlreadyDecidedError,
    ConfigError,
    IdInvalidError,
    RetryLimitExceededError,
    StepRetryBlockedError,
    ToolArgumentsError,
    ToolError,
)


@pytest.fixture
async def journal():
    """One store is enough: nothing here is the store's own."""
    async with InMemoryStorage() as storage:
        yield storage.runs


@pytest.fixture
def charge(effects):
    @tool(side_effect=True)
    async def charge(order: str) -> str:
        return effects.fire("charge", order, f"receipt {order}")

    return charge


# Names ---------------------------------------------------------------------------------------------------------------


async def test_functions_without_a_name_are_not_one_work(journal, charge, effects):
    async def pay(flow, order):
        return await flow.step("charge", charge, order=order)

    for order in ("A", "B"):
        with pytest.raises(ConfigError, match="partial, which has no name of its own"):
            await run_workflow(functools.partial(pay, order=order), journal=journal, run_id="r")
    done = await run_workflow(functools.partial(pay, order="A"), journal=journal, run_id="r", name="pay")
    assert (done.output, effects.count()) == ("receipt A", 1)


@pytest.mark.parametrize("name", ["", "a b", "\ud800", "a\0", 7, None, ["a"], b"a"])
@pytest.mark.parametrize("what", ["step", "attempt", "wait", "part"])
async def test_what_can_be_no_name_is_an_error_that_nothing_swallows(journal, charge, effects, name, what):
    async def pay(flow):
        with contextlib.suppress(Exception):
            match what:
                case "wait":
                    await flow.wait(name)
                case "part":
                    flow.under(name)
                case _:
                    await getattr(flow, what)(name, charge, order="A")
        await flow.step("charge", charge, order="B")

    with pytest.raises(IdInvalidError, match=f"the name of a {'step' if what == 'attempt' else what}"):
        await run_workflow(pay, journal=journal, run_id="r")
    assert effects.count() == 0


# Steps ---------------------------------------------------------------------------------------------------------------


async def test_a_body_that_waits_for_its_own_workflow_is_told_so(journal, effects):
    async def pay(flow):
        @tool(side_effect=True)
        async def outer() -> str:
            effects.fire("outer", "A")
            return await flow.wait("bank")

        return await flow.step("outer", outer)

    with pytest.raises(ConfigError, match="the body of step 'outer' of run 'r'"):
        await run_workflow(pay, journal=journal, run_id="r")
    with pytest.raises(StepRetryBlockedError):
        await run_workflow(pay, journal=journal, run_id="r", send={"bank": "yes"})
    assert effects.count() == 1


@pytest.mark.parametrize("what", ["step", "wait"])
async def test_another_event_loop_is_refused(journal, charge, effects, what):
    async def pay(flow):
        async def go():
            return await (flow.step("charge", charge, order="A") if what == "step" else flow.wait("bank"))

        with contextlib.suppress(Exception):
            return await asyncio.to_thread(lambda: asyncio.run(go()))

    with pytest.raises(ConfigError, match="was called in another event loop than its workflow's"):
        await run_workflow(pay, journal=journal, run_id="r", send={"bank": "yes"})
    assert effects.count() == 0


async def test_nothing_new_begins_in_a_drive_that_was_cancelled(journal, charge, effects):
    holding, go_on = asyncio.Event(), asyncio.Event()

    async def pay(flow):
        try:
            holding.set()
            await go_on.wait()
            return await flow.step("charge", charge, order="charged")
        finally:
            await flow.step("unlock", charge, order="unlocked")

    drive = asyncio.ensure_future(run_workflow(pay, journal=journal, run_id="r"))
    await holding.wait()
    drive.cancel()
    with pytest.raises(asyncio.CancelledError):
        await drive
    assert effects.count() == 0, "it would have come before what it is to come after"
    go_on.set()
    assert (await run_workflow(pay, journal=journal, run_id="r")).output == "receipt charged"
    assert list(effects.counts()) == ["charge charged", "charge unlocked"]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
async def test_a_number_that_its_record_gives_as_a_text_is_refused(journal, effects, value):
    @tool(side_effect=True)
    async def note(value: Any) -> str:
        return effects.fire("note", "x", type(value).__name__)

    async def pay(flow):
        return await flow.step("note", note, value=value)

    with pytest.raises(ToolArgumentsError, match="is float, and its record would give the tool str"):
        await run_workflow(pay, journal=journal, run_id="r")
    assert effects.count() == 0


async def test_a_failure_without_words_is_told_by_its_type(journal):
    @tool(side_effect=False)
    async def look() -> int:
        raise MemoryError

    async def pay(flow):
        return await flow.step("look", look)

    for _ in range(3):
        with pytest.raises(ToolError, match=r"^step 'look' of run r failed: MemoryError\. The next drive"):
            await run_workflow(pay, journal=journal, run_id="r")
    with pytest.raises(RetryLimitExceededError) as over:
        await run_workflow(pay, journal=journal, run_id="r")
    assert str(over.value).endswith("raise it")
    assert await list_interrupts(journal) == [], "it names no question, for there is none"


@pytest.mark.parametrize(
    "limits",
    [
        RunLimits(tainted_side_effects="reflect"),
        RunLimits(side_effect_duplicates="reflect"),
        RunLimits(side_effect_duplicates=Duplicates(action="reflect", scope="thread")),
    ],
)
async def test_what_asks_a_model_to_reconsider_is_refused_where_there_is_none(journal, charge, effects, limits):
    async def pay(flow):
        return [await flow.step(name, charge, order="A") for name in ("one", "two")]

    with pytest.raises(ConfigError, match="='reflect' asks a model to reconsider charge"):
        await run_workflow(pay, journal=journal, run_id="r", thread_id="t", limits=limits)
    with pytest.raises(ConfigError, match="asks a model to reconsider"):
        create_batch(journal=journal, tool=charge, item_key="order", thread_id="t", limits=limits)
    assert effects.count() == 0
    others = RunLimits(tainted_side_effects="warn", side_effect_duplicates="suspend")
    waiting = await run_workflow(pay, journal=journal, run_id="r", thread_id="t", limits=others)
    assert (waiting.status, effects.count()) == ("suspended", 1), "the run goes on under other limits"


# What is sent --------------------------------------------------------------------------------------------------------


async def listen(flow):
    return await flow.wait("bank")


@pytest.mark.parametrize(("first", "second"), [(1, True), (0, False), ([1], [True]), ({"a": 0}, {"a": False})])
async def test_a_truth_is_no_number(journal, first, second):
    await run_workflow(listen, journal=journal, run_id="r")
    assert await send_to_workflow(journal, run_id="r", wait="bank", data=first)
    with pytest.raises(AlreadyDecidedError):
        await send_to_workflow(journal, run_id="r", wait="bank", data=second)
    with pytest.raises(AlreadyDecidedError):
        await run_workflow(listen, journal=journal, run_id="r", send={"bank": second})


@pytest.mark.parametrize("text", ["x", "x" * 70_000])
async def test_no_order_of_names_makes_what_is_sent_another(journal, text):
    await run_workflow(listen, journal=journal, run_id="r")
    assert await send_to_workflow(journal, run_id="r", wait="bank", data={"a": text, "b": 2})
    assert not await send_to_workflow(journal, run_id="r", wait="bank", data={"b": 2, "a": text})


async def test_what_contradicts_what_was_sent_to_a_run_that_is_over_is_told(journal):
    await run_workflow(listen, journal=journal, run_id="r", send={"bank": "yes"})
    again = await run_workflow(listen, journal=journal, run_id="r", send={"bank": "yes"})
    assert (again.output, again.warnings) == ("yes", ())
    other = await run_workflow(listen, journal=journal, run_id="r", send={"bank": "no"})
    assert other.output == "yes"
    (warning,) = other.warnings
    assert "was sent something else before, and the first stands" in warning
