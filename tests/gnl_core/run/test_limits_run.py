"""What a request may use, and loops: bounds that hold over parallel calls, sub-agents, failures and resumes."""

import asyncio

import pytest

from gnl_core import (
    Context,
    LoopDetection,
    RunLimits,
    agent_tool,
    decide,
    read_incidents,
    resume_run,
    run_durable,
    tool,
)
from gnl_core.errors import RunLimitExceededError, ToolLoopDetectedError
from gnl_core.limits import Price
from gnl_core.model.messages import Usage
from gnl_core.testing.scripted import ScriptedModel


def charging(effects, *, fails=0, **options):
    @tool(**options)
    def charge(amount: int, ctx: Context) -> str:
        effects.fire("charge", ctx)
        if effects.fired <= fails:
            raise RuntimeError("the line went dead")
        return f"receipt {amount}"

    return charge


async def drive(journal, tools, turns, *, usage=None, spec="scripted/model", **options):
    model = ScriptedModel(turns, usage=usage, spec=spec)
    return await run_durable(run_id="r", journal=journal, model=model, tools=tools, prompt="go", **options)


def pay(*amounts):
    return [("charge", {"amount": amount}) for amount in amounts]


# Tool calls ----------------------------------------------------------------------------------------------------------


async def test_parallel_calls_pass_no_limit_together(journal, effects, rows):
    charge = charging(effects)
    turns = [pay(1, 2, 3, 4, 5), "done"]
    with pytest.raises(RunLimitExceededError) as over:
        await drive(journal, [charge], turns, limits=RunLimits(max_tool_calls=2))
    assert (over.value.detail["kind"], over.value.detail["limit"]) == ("max_tool_calls", 2)
    assert effects.counts() == {"charge r/s0p0": 1, "charge r/s0p1": 1}, "the first two, in model order"
    assert len([key for key in await rows.values() if "/tool/" in key]) == 2, "a block leaves no record of its call"
    with pytest.raises(RunLimitExceededError):
        await resume_run(run_id="r", journal=journal, model=ScriptedModel(turns), tools=[charge])
    assert effects.count() == 2, "line 58: the limits are frozen"
    result = await drive(journal, [charge], turns, limits=RunLimits(max_tool_calls=5))
    assert (result.text, effects.count()) == ("done", 5)


async def test_a_run_that_has_made_all_its_calls_may_still_say_its_last_word(journal, effects):
    result = await drive(journal, [charging(effects)], [pay(1), "done"], limits=RunLimits(max_tool_calls=1))
    assert result.text == "done"


async def test_side_effects_that_failed_count_and_harmless_ones_do_not(journal, effects):
    @tool(side_effect=False)
    def look() -> str:
        raise RuntimeError("nothing there")

    charge = charging(effects, fails=9)
    turns = [[("look", {})], [("look", {})], pay(1), pay(2), "done"]
    with pytest.raises(RunLimitExceededError):
        await drive(journal, [charge, look], turns, limits=RunLimits(max_tool_calls=1))
    assert effects.counts() == {"charge r/s2p0": 1}


async def test_calls_that_did_not_run_count_for_nothing(journal, effects):
    turns = [[("nothing", {}), ("charge", {}), *pay(1)], "done"]
    result = await drive(journal, [charging(effects)], turns, limits=RunLimits(max_tool_calls=1))
    assert (result.text, effects.count()) == ("done", 1)


async def test_an_approved_call_meets_the_limits(journal, effects):
    charge = charging(effects, confirm=True)
    limits = RunLimits(max_tool_calls=1)
    turns = [pay(1, 2), "done"]
    await drive(journal, [charge], turns, limits=limits)
    for position in range(2):
        await decide(journal, f"r/s0p{position}/confirm/0", True)
    with pytest.raises(RunLimitExceededError):
        await drive(journal, [charge], turns)
    assert effects.counts() == {"charge r/s0p0": 1}
    assert (await drive(journal, [charge], turns, limits=RunLimits(max_tool_calls=2))).text == "done"
    assert effects.count() == 2, "the answer was not spent by the block"


@pytest.mark.parametrize("parallel", [False, True])
async def test_sub_agents_calls_count(journal, effects, parallel):
    entered, go_on = asyncio.Event(), asyncio.Event()

    @tool
    async def charge(amount: int, ctx: Context) -> str:
        effects.fire("charge", ctx)
        if parallel and not entered.is_set():
            entered.set()
            await go_on.wait()
        go_on.set()
        return "ok"

    helper = agent_tool(name="helper", description="pays", model=ScriptedModel([pay(1, 2), "paid"]), tools=[charge])
    calls = [("helper", {"task": "pay"}), ("helper", {"task": "pay too"})]
    turns = [calls, "done"] if parallel else [calls[:1], calls[1:], "done"]
    # Two calls of helper and three of charge: the second helper's second charge is one too many.
    with pytest.raises(RunLimitExceededError):
        await drive(journal, [helper], turns, limits=RunLimits(max_tool_calls=5, side_effect_duplicates="off"))
    assert effects.count() == 3
    six = RunLimits(max_tool_calls=6, side_effect_duplicates="off")
    assert (await drive(journal, [helper], turns, limits=six)).text == "done"
    assert effects.count() == 4


async def test_a_block_waits_for_its_siblings_and_shows_their_questions(journal, effects):
    @tool(confirm=True)
    def ship(item: str) -> str:
        return "shipped"

    turns = [[*pay(1), ("ship", {"item": "x"}), *pay(2)], "done"]
    with pytest.raises(RunLimitExceededError) as over:
        await drive(journal, [charging(effects), ship], turns, limits=RunLimits(max_tool_calls=1))
    assert [one.question for one in over.value.interrupts] == ["r/s0p1/confirm/0"]
    assert effects.count() == 1


# Tokens and money ----------------------------------------------------------------------------------------------------


async def test_tokens_stop_the_run_after_the_step_that_passed_them_and_nothing_is_lost(journal, effects):
    usage, charge = Usage(60, 40), charging(effects)
    turns = [pay(1), pay(2), "done"]
    for _ in range(2):
        with pytest.raises(RunLimitExceededError) as over:
            await drive(journal, [charge], turns, usage=usage, limits=RunLimits(max_tokens=199))
        assert (over.value.detail["kind"], over.value.detail["used"]) == ("max_tokens", 200)
        assert effects.count() == 1, "the second step is recorded, and its calls do not begin"
    result = await drive(journal, [charge], turns, usage=usage, limits=RunLimits(max_tokens=300))
    assert (result.text, result.usage.total_tokens, effects.count()) == ("done", 300, 2)


async def test_exactly_as_many_tokens_as_allowed_are_allowed(journal, effects):
    result = await drive(
        journal, [charging(effects)], [pay(1), "done"], usage=Usage(60, 40), limits=RunLimits(max_tokens=200)
    )
    assert result.text == "done"


async def test_money_is_counted_by_the_models_price_and_an_unpriced_one_is_said(journal, effects):
    prices = {"scripted/model": Price(10.0, 30.0)}  # 60 * 10 + 40 * 30 = 1,800 micro-USD a step
    charge, turns = charging(effects), [pay(1), pay(2), "done"]
    with pytest.raises(RunLimitExceededError) as over:
        await drive(
            journal, [charge], turns, usage=Usage(60, 40), limits=RunLimits(max_cost_usd=0.0036 - 1e-6, prices=prices)
        )
    assert (over.value.detail["kind"], over.value.detail["used"]) == ("max_cost_usd", 0.0036)
    assert effects.count() == 1
    result = await drive(
        journal,
        [charge],
        turns,
        usage=Usage(60, 40),
        limits=RunLimits(max_cost_usd=0.0001, prices={"other/model": Price(1, 1)}),
    )
    assert result.text == "done"
    assert [warning for warning in result.warnings if "scripted/model" in warning and "free" in warning]


async def test_a_sub_agents_tokens_count(journal, effects):
    helper = agent_tool(
        name="helper",
        description="pays",
        model=ScriptedModel([pay(1), "paid"], usage=Usage(50, 50)),
        tools=[charging(effects)],
    )
    turns = [[("helper", {"task": "pay"})], "done"]
    with pytest.raises(RunLimitExceededError):
        await drive(journal, [helper], turns, usage=Usage(50, 50), limits=RunLimits(max_tokens=199))
    assert effects.count() == 0
    result = await drive(journal, [helper], turns, usage=Usage(50, 50), limits=RunLimits(max_tokens=400))
    assert (result.text, result.usage.total_tokens, effects.count()) == ("done", 400, 1)


async def test_explicit_limits_win_over_the_frozen_ones_and_do_not_replace_them(journal, effects):
    charge, turns = charging(effects), [pay(1), pay(2), "done"]
    with pytest.raises(RunLimitExceededError):
        await drive(journal, [charge], turns, limits=RunLimits(max_tool_calls=0))
    with pytest.raises(RunLimitExceededError):
        await resume_run(
            run_id="r", journal=journal, model=ScriptedModel(turns), tools=[charge], limits=RunLimits(max_tool_calls=1)
        )
    assert effects.count() == 1
    with pytest.raises(RunLimitExceededError) as over:
        await resume_run(run_id="r", journal=journal, model=ScriptedModel(turns), tools=[charge])
    assert over.value.detail["limit"] == 0, "what was frozen at the first start"


# Loops ---------------------------------------------------------------------------------------------------------------

LOOP = LoopDetection(max_repeats=2)
LOOPS = RunLimits(loop_detection=LOOP, side_effect_duplicates="off")


async def test_a_loop_is_stopped_before_the_call_that_is_one_too_many(journal, effects):
    charge, turns = charging(effects), [pay(1), pay(1), pay(1), "done"]
    for _ in range(2):
        with pytest.raises(ToolLoopDetectedError) as loop:
            await drive(journal, [charge], turns, limits=LOOPS)
        assert loop.value.detail["repeats"] == 2
        assert effects.count() == 2
    (incident,) = await read_incidents(journal, "r")
    assert (incident.source, incident.action, incident.tool_call_id) == ("limit-guard", "loop", "s2p0")
    free = RunLimits(side_effect_duplicates="off")
    assert (await drive(journal, [charge], turns, limits=free)).text == "done"


async def test_other_arguments_or_another_tool_between_end_a_row(journal, effects):
    @tool(side_effect=False)
    def look() -> str:
        return "nothing new"

    turns = [pay(1), pay(1), pay(2), pay(1), pay(1), [("look", {})], pay(1), pay(1), "done"]
    result = await drive(journal, [charging(effects), look], turns, limits=LOOPS)
    assert (result.text, effects.count()) == ("done", 7)


async def test_failures_are_no_loop(journal, effects):
    @tool(side_effect=False)
    def look() -> str:
        raise RuntimeError("not yet")

    turns = [[("look", {})]] * 4 + ["gave up"]
    assert (await drive(journal, [look], turns, limits=RunLimits(loop_detection=LOOP))).text == "gave up"


async def test_reflect_asks_the_model_once_and_then_blocks(journal, effects):
    charge = charging(effects)
    reflects = LoopDetection(max_repeats=2, on_repeat="reflect")
    limits = RunLimits(loop_detection=reflects, side_effect_duplicates="off")
    good = [pay(1), pay(1), pay(1), "done"]
    result = await drive(journal, [charge], good, limits=limits)
    (call,) = result.steps[2].calls
    assert (result.text, call.status, effects.count()) == ("done", "reflected", 2)
    text = result.messages[-2].parts[0].text
    assert "did not run" in text
    again = await drive(journal, [charge], good, limits=limits)
    assert again.messages == result.messages
    assert [one.action for one in await read_incidents(journal, "r")] == ["loop-reflect"], "once, also after a replay"


async def test_reflect_of_a_stubborn_model_blocks(journal, effects):
    charge = charging(effects)
    reflects = LoopDetection(max_repeats=2, on_repeat="reflect")
    limits = RunLimits(loop_detection=reflects, side_effect_duplicates="off")
    with pytest.raises(ToolLoopDetectedError):
        await drive(journal, [charge], [pay(1)] * 5, limits=limits)
    assert effects.count() == 2
    assert {one.action for one in await read_incidents(journal, "r")} == {"loop-reflect", "loop"}


async def test_loops_are_seen_across_a_resume(journal, effects):
    charge = charging(effects, confirm=True)
    turns = [pay(1), pay(1), pay(1), "done"]
    for step in range(2):
        await drive(journal, [charge], turns, limits=RunLimits(loop_detection=LOOP))
        await decide(journal, f"r/s{step}p0/confirm/0", True)
    # The third is asked about before loops are looked at; a yes to it is a yes to the repeat.
    result = await drive(journal, [charge], turns)
    assert [one.question for one in result.interrupts] == ["r/s2p0/confirm/0"]
    await decide(journal, "r/s2p0/confirm/0", True)
    assert (await drive(journal, [charge], turns)).text == "done"
    assert effects.count() == 3
