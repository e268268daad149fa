"""Which model a resumed run asks: the one that answered before, whatever the chain would choose now."""

import pytest

from gnl_core import Context, agent_tool, durable_context, run_durable, stream_durable, tool, with_durable_model
from gnl_core.errors import ModelSpecError, ModelUnavailableError
from gnl_core.model.messages import Message, ModelRequest, TextPart
from gnl_core.testing.scripted import ScriptedModel

SCRIPT = [[("charge", {"amount": 1})], [("charge", {"amount": 2})], "paid"]
DOWN = [ModelUnavailableError("down")] * 3


@pytest.fixture
def options(journal, effects):
    @tool
    def charge(context: Context, amount: int) -> str:
        return effects.fire("charge", context, f"receipt for {amount}")

    return {"run_id": "r", "journal": journal, "tools": [charge], "prompt": "pay"}


async def test_the_winner_of_a_fallback_chain_is_frozen_across_a_resume(options, rows, effects):
    first, second = ScriptedModel(DOWN, spec="a/one"), ScriptedModel(SCRIPT, spec="b/two")
    await run_durable(model=[first, second], max_steps=1, **options)
    assert (first.calls, second.calls) == (1, 1)
    assert (await rows.all())["run/r/~/cfg/model"].value["winner"] == "#1"

    # The first is up again: the run still asks the model that its history is from.
    first, second = ScriptedModel(SCRIPT, spec="a/one"), ScriptedModel(SCRIPT, spec="b/two")
    result = await run_durable(model=[first, second], replay="strict", **options)
    assert (first.calls, second.calls, effects.count()) == (0, 2, 2)
    assert {step.model for step in result.steps} == {"b/two"}
    assert result.warnings == ()


async def test_the_winner_is_written_once(options, rows):
    model = [ScriptedModel(DOWN, spec="a/one"), ScriptedModel(SCRIPT, spec="b/two")]
    await run_durable(model=model, **options)
    entries = await rows.all()
    assert entries["run/r/~/cfg/model"].version == entries["run/r/~/tool/000000/000"].version - 1


async def test_a_winner_that_fails_later_is_not_replaced_half_way(options, effects):
    first = ScriptedModel(DOWN, spec="a/one")
    second = ScriptedModel([SCRIPT[0], ModelUnavailableError("down, too")], spec="b/two")
    third = ScriptedModel(SCRIPT, spec="c/three")
    with pytest.raises(ModelUnavailableError, match="down, too"):
        await run_durable(model=[first, second, third], **options)
    assert (third.calls, effects.count()) == (0, 1)
    second = ScriptedModel(SCRIPT, spec="b/two")
    result = await run_durable(model=[first, second, third], **options)
    assert (result.text, third.calls, effects.count()) == ("paid", 0, 2)


async def test_a_winner_that_the_chain_has_no_more_is_an_error_before_anything_is_asked(options, effects):
    await run_durable(model=[ScriptedModel(DOWN), ScriptedModel(SCRIPT)], max_steps=1, **options)
    only = ScriptedModel(SCRIPT)
    with pytest.raises(ModelSpecError, match="#1"):
        await run_durable(model=[only], **options)
    assert (only.calls, effects.count()) == (0, 1)
    result = await run_durable(model=[only, ScriptedModel(SCRIPT)], **options)  # the run was given back
    assert result.text == "paid"


async def test_a_sub_agent_s_chain_has_a_winner_of_its_own(journal, rows, effects, options):
    child = [ScriptedModel(DOWN, spec="a/one"), ScriptedModel(SCRIPT, spec="b/two")]
    helper = agent_tool(name="helper", description="Helps.", model=child, tools=options["tools"], max_steps=2)
    root = ScriptedModel([[("helper", {"task": "pay"})], "done"], spec="root/model")
    await run_durable(**(options | {"tools": [helper], "model": root}))
    winners = {key: entry.value["winner"] for key, entry in (await rows.all()).items() if "/cfg/model" in key}
    assert [(key.split("/")[2].partition(":")[0], winner) for key, winner in winners.items()] == [("agent", "#1")]


@pytest.mark.parametrize("streaming", [False, True])
async def test_a_failed_model_step_is_asked_again_and_repeats_no_effect(options, effects, streaming):
    """S04: the step after a success raises; the host drives the same id again."""
    model = ScriptedModel([SCRIPT[0], ModelUnavailableError("HTTP 500")])

    async def drive(model):
        if not streaming:
            return await run_durable(model=model, **options)
        async with await stream_durable(model=model, **options) as stream:
            return await stream.result

    for _ in range(3):
        with pytest.raises(ModelUnavailableError, match="HTTP 500"):
            await drive(model)
    assert effects.counts() == {"charge r/s0p0": 1}
    good = ScriptedModel(SCRIPT)
    result = await drive(good)
    assert (result.text, good.calls) == ("paid", 2)
    assert good.requests[0].messages[2].parts[0].text == "receipt for 1"
    assert effects.counts() == {"charge r/s0p0": 1, "charge r/s1p0": 1}


async def test_a_loop_of_one_s_own_keeps_the_winner_too(journal):
    async def ask(*models):
        async with durable_context(run_id="r", journal=journal, replay="strict") as ctx:
            durable = with_durable_model(list(models), ctx)
            messages = [Message("user", (TextPart("a"),))]
            for _ in range(len(models)):
                messages += [(await durable.generate(ModelRequest(None, tuple(messages)))).message()]
            return messages

    down, up = ScriptedModel(DOWN, spec="a/one"), ScriptedModel(["one", "two"], spec="b/two")
    first = await ask(down, up)
    back = ScriptedModel(["one", "two"], spec="a/one")
    assert await ask(back, ScriptedModel([], spec="b/two")) == first
    assert back.calls == 0
