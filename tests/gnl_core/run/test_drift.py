"""A recorded run that is driven with another prompt, other tools, other settings or another model."""

import pytest

from gnl_core import Context, ModelSettings, decide, keys, list_interrupts, run_durable, stream_durable, tool
from gnl_core.composable import durable_context, durable_tools, with_durable_model
from gnl_core.errors import DivergenceError
from gnl_core.journal import Put, get, new_batch
from gnl_core.model.messages import Message, ModelRequest, TextPart
from gnl_core.testing.scripted import ScriptedModel

SCRIPT = [[("charge", {"amount": 1})], [("charge", {"amount": 2})], "paid"]


@pytest.fixture
def drive(journal, effects):
    """Drive one run; options replace what it began with."""

    @tool
    def charge(amount: int) -> str:
        return effects.fire("charge", str(amount), f"receipt for {amount}")

    async def drive(**options):
        begun = {
            "run_id": "r",
            "journal": journal,
            "model": ScriptedModel(SCRIPT),
            "tools": [charge],
            "prompt": "pay",
            "system": "You pay bills.",
            "settings": ModelSettings(temperature=0.0, seed=7),
        }
        return await run_durable(**(begun | options))

    drive.charge = charge
    return drive


async def strictly(drive, **options):
    """The error of strict replay; the run must have begun with other options."""
    with pytest.raises(DivergenceError) as raised:
        await drive(replay="strict", **options)
    return raised.value


async def leniently(drive, effects, **options):
    """The one warning of lenient replay, after the recorded answer was replayed and nothing was done."""
    model = options.pop("model", None) or ScriptedModel([])
    before = effects.count()
    result = await drive(model=model, **options)
    assert (result.text, model.calls, effects.count()) == ("paid", 0, before)
    (warning,) = result.warnings
    return warning


async def test_no_change_is_no_drift(drive):
    await drive()
    for replay in ("strict", "lenient"):
        assert (await drive(replay=replay)).warnings == ()


async def test_s43_a_system_prompt_that_changed(drive, effects):
    await drive()
    error = await strictly(drive, system="You pay bills twice.")
    assert error.detail == {"run_id": "r", "step": 0, "differs": ["system"]}
    assert "system: recorded 'You pay bills.', now 'You pay bills twice.'" in str(error)
    assert "lenient" in str(error)  # the way out
    warning = await leniently(drive, effects, system="You pay bills twice.")
    assert "step 0 of run r" in warning
    assert "system: recorded 'You pay bills.', now 'You pay bills twice.'" in warning
    assert "the recorded answer is what counts" in warning


async def test_s43_long_prompts_are_shown_where_they_differ(drive, effects):
    rules = "Rule: be kind. " * 500
    await drive(system=rules + "Never refund." + rules)
    warning = await leniently(drive, effects, system=rules + "Always refund." + rules)
    assert "Never refund." in warning
    assert "Always refund." in warning
    assert len(warning) < 500


async def test_s43_a_prompt_that_went_away(drive, effects):
    await drive()
    assert "system: recorded 'You pay bills.', now ''" in await leniently(drive, effects, system="")


async def test_s43_a_system_prompt_that_is_not_given_again_is_the_recorded_one(drive):
    await drive()
    assert (await drive(system=None, replay="strict")).warnings == ()


async def test_s43_another_model(drive, effects):
    await drive()
    error = await strictly(drive, model=ScriptedModel(SCRIPT, spec="other/model"))
    assert error.detail["differs"] == ["model"]
    assert "model: recorded 'scripted/model', now 'other/model'" in str(error)
    result = await drive(model=ScriptedModel([], spec="other/model"))
    assert ["model: recorded 'scripted/model', now 'other/model'" in one for one in result.warnings] == [True]
    assert {step.model for step in result.steps} == {"scripted/model"}  # the one that answered


async def test_s43_a_setting_that_changed_is_named_with_both_values(drive, effects):
    await drive()
    warning = await leniently(drive, effects, settings=ModelSettings(temperature=0.5, seed=7))
    assert "settings: temperature was 0.0, is 0.5" in warning
    assert "seed" not in warning
    assert "settings: seed was 7, is None, temperature was 0.0, is None" in await leniently(
        drive, effects, settings=ModelSettings()
    )


async def test_s43_settings_where_there_were_none(drive, effects):
    await drive(settings=None)
    assert "settings: top_p was None, is 0.9" in await leniently(drive, effects, settings=ModelSettings(top_p=0.9))


async def test_s43_tools_that_came_went_and_changed_are_named(drive, effects):
    @tool(name="charge", description="Another description.")
    def described(amount: int) -> str: ...

    @tool(side_effect=False)
    def look() -> str: ...

    await drive()
    assert "tools: look is new" in await leniently(drive, effects, tools=[drive.charge, look])
    assert "tools: charge is described otherwise" in await leniently(drive, effects, tools=[described])
    both = await leniently(drive, effects, tools=[look, described])
    assert "tools: look is new and charge is described otherwise" in both

    await drive(run_id="r2", tools=[drive.charge, look])
    assert "tools: look is gone" in await leniently(drive, effects, run_id="r2")
    assert "the same in another order" in await leniently(drive, effects, run_id="r2", tools=[look, drive.charge])


async def test_s41_a_tool_list_that_is_cold_after_a_restart_does_not_stop_the_run(drive, effects, rows):
    """The list is part of the recorded request: the run goes on, says so, and records the list it went on with."""

    @tool(side_effect=False)
    def from_server() -> str: ...

    await drive(tools=[drive.charge, from_server], max_steps=1)
    assert effects.count() == 1
    model = ScriptedModel(SCRIPT)
    result = await drive(model=model, tools=[drive.charge])
    assert (result.text, model.calls, effects.count()) == ("paid", 2, 2)
    assert ["tools: from_server is gone" in warning for warning in result.warnings] == [True]
    recorded = [(await rows.all())[f"run/r/~/model/{step:06d}"].value["tools"] for step in range(3)]
    assert recorded[0] != recorded[1] == recorded[2]
    for digest in {*recorded}:
        assert f"run/r/~/body/{digest}" in await rows.all()  # whole, once each


async def test_all_that_differs_is_said_in_one_sentence(drive, effects):
    await drive()
    error = await strictly(drive, system="other", settings=ModelSettings(), tools=[])
    assert error.detail["differs"] == ["system", "tools", "settings"]
    for word in ("system: ", "tools: charge is gone", "settings: "):
        assert word in str(error)


async def test_strict_drift_changes_nothing_and_gives_the_run_back(drive, effects, rows):
    await drive()
    before = {key: value for key, value in (await rows.values()).items() if "/req/" not in key}
    await strictly(drive, system="other")
    assert {key: value for key, value in (await rows.values()).items() if "/req/" not in key} == before
    assert (await drive(replay="strict")).text == "paid"


async def test_a_drift_that_begins_later_names_its_step(drive, effects):
    await drive(max_steps=1)
    await drive(system="second half")
    error = await strictly(drive, system="You pay bills.")
    assert error.detail["step"] == 1
    error = await strictly(drive, system="second half")
    assert error.detail["step"] == 0


async def test_drift_of_every_step_is_one_warning_and_of_two_kinds_two(drive, effects):
    await drive(max_steps=1)
    await drive(system="second half")
    result = await drive(system="third")
    assert [warning[:6] for warning in result.warnings] == ["step 0", "step 1"]


async def test_s12_another_prompt_under_a_used_id_is_said_and_not_asked(drive, effects, journal):
    await drive()
    warning = await leniently(drive, effects, prompt="pay somebody else")
    assert "began with other messages" in warning
    assert (await drive(prompt="pay somebody else")).messages[0].parts[0].text == "pay"


async def test_strict_replay_refuses_other_arguments_than_were_recorded(drive, rows):
    """The journal's call and the record of it must tell the same; one of both was changed by hand."""
    await drive()
    await rows.change("run/r/~/tool/000000/000", args={"amount": 99}, digest="0" * 16)
    with pytest.raises(DivergenceError) as raised:
        await drive(replay="strict")
    assert raised.value.detail["tool_call_id"] == "s0p0"
    result = await drive()
    assert any("call s0p0 of run r was recorded with another arguments" in warning for warning in result.warnings)
    assert result.steps[0].calls[0].output == "receipt for 1"


async def test_a_result_that_changed_in_the_journal_is_a_drift_of_messages(drive, rows):
    await drive()
    await rows.change("run/r/~/tool/000000/000", output="receipt for 1000")
    error = await strictly(drive)
    assert error.detail == {"run_id": "r", "step": 1, "differs": ["messages"]}
    (warning,) = (await drive()).warnings
    assert "messages: " in warning


@pytest.mark.parametrize("mode", ["generate", "stream"])
async def test_a_result_that_a_person_settled_is_no_drift(journal, effects, mode):
    """The model went on after 'denied'; nothing of that is another request."""
    asked = ScriptedModel([[("charge", {"amount": 1})], "done"])

    @tool(confirm=True)
    def charge(amount: int) -> str:
        return effects.fire("charge", str(amount), "paid")

    options = {"run_id": "r", "journal": journal, "tools": [charge], "prompt": "pay"}
    waits = await run_durable(model=asked, **options)
    await decide(journal, waits.interrupts[0].question, False, reason="no")
    done = await run_durable(model=asked, **options)
    if mode == "generate":
        again = await run_durable(model=ScriptedModel([]), replay="strict", **options)
    else:
        async with await stream_durable(model=ScriptedModel([]), replay="strict", **options) as stream:
            again = await stream.result
    assert (again.text, again.warnings, effects.count()) == ("done", (), 0)
    assert again.messages == done.messages


async def test_a_loop_of_one_s_own_is_told_of_drift_too(journal, effects):
    @tool
    def charge(context: Context) -> str:
        return effects.fire("charge", context, "receipt")

    async def loop(model, prompt, **options):
        async with durable_context(run_id="r", journal=journal, **options) as ctx:
            durable, tools = with_durable_model(model, ctx), durable_tools([charge], ctx)
            messages = [Message("user", (TextPart(prompt),))]
            while True:
                response = await durable.generate(ModelRequest(None, tuple(messages), (charge.spec,)))
                messages.append(response.message())
                if not response.tool_calls:
                    return response.text, ctx.warnings
                messages += [await tools[call.name].answer(call) for call in response.tool_calls]

    script = [[("charge", {})], "done"]
    assert await loop(ScriptedModel(script), "pay") == ("done", ())
    assert await loop(ScriptedModel([]), "pay", replay="strict") == ("done", ())
    text, warnings = await loop(ScriptedModel([], spec="other/one"), "pay it")
    assert (text, effects.count()) == ("done", 1)
    assert "model: recorded 'scripted/model', now 'other/one'; messages: " in warnings[0]
    with pytest.raises(DivergenceError):
        await loop(ScriptedModel([]), "pay it", replay="strict")


@pytest.mark.parametrize("other_prompt", [False, True])
async def test_only_a_result_that_was_settled_later_is_excused_by_strict_replay(journal, effects, other_prompt):
    """The model was told of a failure; a person then had the call run again. What it said of the failure stands."""
    fails = [True]

    @tool
    def charge(amount: int) -> str:
        effects.fire("charge", str(amount))
        if fails.pop() if fails else False:
            raise RuntimeError("who knows")
        return "receipt"

    options = {"run_id": "r", "journal": journal, "tools": [charge], "prompt": "pay"}
    script = [[("charge", {"amount": 1})], "sorry, it failed"]
    await run_durable(model=ScriptedModel(script), system="first", max_steps=1, **options)
    (question,) = await list_interrupts(journal, "r")
    assert question.kind == "in_doubt"
    await decide(journal, question.question, False)
    told = await run_durable(model=ScriptedModel(script), system="second" if other_prompt else "first", **options)
    assert told.text == "sorry, it failed"
    record = keys.tool("r", "~", 0, 0)
    entry = await get(journal, record)
    settled = {**entry.value, "status": "succeeded", "output": "receipt by hand", "settled_by": "person"}
    await journal.apply((Put(record, settled),), batch=new_batch())
    if other_prompt:
        with pytest.raises(DivergenceError) as raised:
            await run_durable(model=ScriptedModel([]), system="first", replay="strict", **options)
        assert raised.value.detail == {"run_id": "r", "step": 1, "differs": ["system", "messages"]}
        return
    again = await run_durable(model=ScriptedModel([]), system="first", replay="strict", **options)
    assert (again.text, effects.count()) == ("sorry, it failed", 1)
    (warning,) = again.warnings
    assert "step 1 of run r" in warning
    assert "messages: " in warning
