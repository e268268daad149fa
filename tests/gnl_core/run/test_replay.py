"""A run that is driven again reads what is recorded: no model call, no tool call, no other row, nothing in silence."""

import asyncio
import json
import random

import pytest

from gnl_core import (
    Context,
    InMemoryStorage,
    agent_tool,
    run_durable,
    stream_durable,
    tool,
)
from gnl_core.model.messages import ModelResponse, ReasoningPart, TextPart, ToolCallPart, Usage
from gnl_core.records import read_step
from gnl_core.splice import rebuild
from gnl_core.testing.scripted import ScriptedModel


class Never:
    """A model that must not be asked."""

    spec = "scripted/model"

    async def generate(self, request):
        pytest.fail("the model was asked")

    async def stream(self, request):
        pytest.fail("the model was asked")
        yield


def never(name):
    """A tool that must not run."""

    @tool(name=name)
    def body(amount: int = 0) -> str:
        pytest.fail(f"{name} ran")

    return body


def work(effects):
    """A side effect, and a tool that looks only."""

    @tool
    def charge(context: Context, amount: int = 0) -> str:
        return effects.fire("charge", context, f"receipt for {amount}")

    @tool(side_effect=False)
    def look(context: Context) -> dict:
        return effects.fire("look", context, {"seen": 1})

    return [charge, look]


SCRIPT = [
    ["I pay.", ("charge", {"amount": 1}), ("look", {})],
    [("charge", {"amount": 2})],
    "paid twice",
]


def standing(values):
    """All rows but the lock and its beat."""
    return {key: value for key, value in values.items() if not key.endswith(("/req/lock", "/req/beat"))}


# S45 ---------------------------------------------------------------------------------------------------------------


async def test_s45_a_finished_run_is_read_and_says_so(journal, rows, effects):
    options = {"run_id": "r", "journal": journal, "prompt": "pay"}
    live = await run_durable(model=ScriptedModel(SCRIPT, usage=Usage(5, 2)), tools=work(effects), **options)
    before = standing(await rows.all())
    told = []
    again = await run_durable(
        model=Never(), tools=[never("charge"), never("look")], on_event=told.append, replay="lenient", **options
    )

    assert effects.count() == 3
    assert (again.text, again.messages, again.usage) == (live.text, live.messages, live.usage)
    assert [
        (one.tool_call_id, one.tool_name, one.status, one.origin, one.run_id) for one in again.replayed_tool_calls
    ] == [
        ("s0p0", "charge", "succeeded", "self", "r"),
        ("s0p1", "look", "succeeded", "self", "r"),
        ("s1p0", "charge", "succeeded", "self", "r"),
    ]
    assert live.replayed_tool_calls == ()
    assert all(step.replayed and all(call.replayed for call in step.calls) for step in again.steps)
    assert not any(step.replayed or any(call.replayed for call in step.calls) for step in live.steps)
    assert standing(await rows.all()) == before  # entries: versions and times too

    assert [(event.kind, event.step, event.tool_call_id, event.text) for event in told] == [
        ("step-started", 0, "", ""),
        ("text-delta", 0, "", "I pay."),
        ("step-finished", 0, "", ""),
        ("tool-finished", 0, "s0p0", ""),
        ("tool-finished", 0, "s0p1", ""),
        ("step-started", 1, "", ""),
        ("step-finished", 1, "", ""),
        ("tool-finished", 1, "s1p0", ""),
        ("step-started", 2, "", ""),
        ("text-delta", 2, "", "paid twice"),
        ("step-finished", 2, "", ""),
        ("finished", 0, "", "paid twice"),
    ]
    assert all(event.replayed for event in told)


async def test_s45_what_is_live_is_marked_as_live_beside_what_is_not(journal, effects):
    options = {"run_id": "r", "journal": journal, "prompt": "pay", "tools": work(effects)}
    await run_durable(model=ScriptedModel(SCRIPT), max_steps=1, **options)
    told = []
    result = await run_durable(model=ScriptedModel(SCRIPT), on_event=told.append, **options)
    marks = {
        (event.kind, event.step): event.replayed for event in told if event.kind in ("step-started", "tool-finished")
    }
    assert marks == {
        ("step-started", 0): True,
        ("tool-finished", 0): True,
        ("step-started", 1): False,
        ("tool-finished", 1): False,
        ("step-started", 2): False,
    }
    assert told[-1].kind == "finished"
    assert not told[-1].replayed
    assert [step.replayed for step in result.steps] == [True, False, False]


async def test_s45_a_stream_of_a_finished_run_tells_it_once(journal, effects):
    thinking = ModelResponse((ReasoningPart("hm"), TextPart("done")))
    options = {"run_id": "r", "journal": journal, "prompt": "pay", "tools": work(effects)}
    async with await stream_durable(model=ScriptedModel([[("charge", {})], thinking]), **options) as stream:
        live = [event async for event in stream.events]
    async with await stream_durable(model=Never(), **options) as stream:
        again = [event async for event in stream.events]
    told = [(event.kind, event.step, event.tool_call_id) for event in live if event.kind != "tool-started"]
    assert [(event.kind, event.step, event.tool_call_id) for event in again] == told
    assert ("reasoning-delta", 1, "") in told
    assert {event.replayed for event in live} == {False}
    assert {event.replayed for event in again} == {True}


async def test_s45_work_of_another_run_is_told_as_such(journal, effects):
    @tool(idempotency="args", window="cross-run")
    def charge(amount: int) -> str:
        return effects.fire("charge", str(amount), "receipt")

    script = [[("charge", {"amount": 1})], "paid"]
    await run_durable(run_id="r1", journal=journal, model=ScriptedModel(script), tools=[charge], prompt="pay")
    for _ in range(2):  # the first drive found it, the second reads what the first found
        result = await run_durable(
            run_id="r2", journal=journal, model=ScriptedModel(script), tools=[charge], prompt="pay"
        )
        assert [(one.run_id, one.origin) for one in result.replayed_tool_calls] == [("r2", "window")]
    assert effects.count() == 1


async def test_a_call_that_a_model_cannot_make_is_replayed_as_the_failure_it_was(journal, effects):
    options = {"run_id": "r", "journal": journal, "prompt": "pay"}
    script = [[("gone", {}), ("charge", "{no json"), ("charge", {"wrong": 1})], "sorry"]
    live = await run_durable(model=ScriptedModel(script), tools=work(effects), **options)
    assert [call.error.type for call in live.steps[0].calls] == ["ToolArgumentsError"] * 3
    # The tool exists by now: what the model was told stays what it was told.
    again = await run_durable(model=Never(), tools=[*work(effects), never("gone")], **options)
    assert again.messages == live.messages
    assert effects.count() == 0


# Explain notes -----------------------------------------------------------------------------------------------------


async def test_s45_explain_tells_the_model_once_and_the_journal_never(journal, rows, effects):
    """The note is in the next step's prompt only, and in no stored record."""

    @tool(idempotency="args", window="cross-run")
    def charge(amount: int) -> str:
        return effects.fire("charge", str(amount), "receipt")

    script = [[("charge", {"amount": 1})], [("charge", {"amount": 9})], "paid"]
    first = [[("charge", {"amount": 1})], "paid"]
    await run_durable(run_id="r1", journal=journal, model=ScriptedModel(first), tools=[charge], prompt="pay")
    model = ScriptedModel(script)
    options = {"run_id": "r2", "journal": journal, "tools": [charge], "prompt": "pay", "replay_disclosure": "explain"}
    await run_durable(model=model, system="Be brief.", **options)
    told = [request.system for request in model.requests]
    assert told[0] == told[2] == "Be brief."
    assert told[1].startswith("Be brief.\n\nFor your information: ")
    assert "charge" in told[1]
    text = json.dumps([value for value, _ in (await rows.values()).values()])
    assert "For your information" not in text
    again = await run_durable(model=Never(), system="Be brief.", **(options | {"replay": "strict"}))
    assert again.warnings == ()  # the note is in no fingerprint


async def test_explain_says_nothing_of_a_step_that_has_been_told(journal, effects):
    @tool(idempotency="args", window="cross-run")
    def charge(amount: int) -> str:
        return effects.fire("charge", str(amount), "receipt")

    script = [[("charge", {"amount": 1})], [("charge", {"amount": 2})], "paid"]
    await run_durable(run_id="r1", journal=journal, model=ScriptedModel([*script[:1], "x"]), tools=[charge], prompt="p")
    options = {"run_id": "r2", "journal": journal, "tools": [charge], "prompt": "p", "replay_disclosure": "explain"}
    first = ScriptedModel(script)
    await run_durable(model=first, max_steps=2, **options)
    assert "For your information" in first.requests[1].system
    later = ScriptedModel(script)
    await run_durable(model=later, **options)
    assert [request.system for request in later.requests] == [None]


async def test_envelope_tells_the_caller_and_not_the_model(journal, effects):
    @tool(idempotency="args")
    def charge(amount: int) -> str:
        return effects.fire("charge", str(amount), "receipt")

    model = ScriptedModel([[("charge", {"amount": 1})], [("charge", {"amount": 1})], "paid"])
    result = await run_durable(run_id="r", journal=journal, model=model, tools=[charge], prompt="pay")
    assert {request.system for request in model.requests} == {None}
    assert [(one.tool_call_id, one.origin) for one in result.replayed_tool_calls] == [("s1p0", "window")]


# S38 ---------------------------------------------------------------------------------------------------------------


async def test_s38_results_stand_in_model_order_whatever_ends_first():
    """Twenty runs with shuffled ends: one conversation, one fingerprint, one replay."""
    order, turns, ends = [], {}, []

    @tool
    async def act(number: int) -> str:
        await turns[number].wait()
        ends.append(number)
        for following in order[len(ends) : len(ends) + 1]:
            turns[following].set()
        return f"result {number}"

    seen = set()
    for seed in range(20):
        ends.clear()
        order[:] = [0, 1, 2, 3]
        random.Random(seed).shuffle(order)
        turns.update({call: asyncio.Event() for call in order})
        turns[order[0]].set()

        script = [[("act", {"number": number}) for number in range(4)], "done"]
        async with InMemoryStorage() as storage:
            model = ScriptedModel(script)
            options = {"run_id": "r", "journal": storage.runs, "tools": [act], "prompt": "go"}
            live = await run_durable(model=model, **options)
            again = await run_durable(model=Never(), replay="strict", **options)
            steps = [
                entry.value for step in range(2) async for entry in _row(storage.runs, f"run/r/~/model/{step:06d}")
            ]
        assert ends == order
        assert [part.text for message in live.messages[2:6] for part in message.parts] == [
            f"result {number}" for number in range(4)
        ]
        assert again.messages == live.messages
        seen.add(json.dumps([steps, repr(model.requests)]))
    assert len(seen) == 1


async def _row(journal, key):
    yield (await journal.get_many([tuple(key.split("/"))])).entries[0]


# Entry points ------------------------------------------------------------------------------------------------------


async def generated(**options):
    return await run_durable(**options)


async def streamed(**options):
    async with await stream_durable(**options) as stream:
        return await stream.result


@pytest.mark.parametrize(("begin", "go_on"), [(generated, streamed), (streamed, generated)])
async def test_a_run_may_be_begun_and_gone_on_with_through_either_door(journal, rows, effects, begin, go_on):
    options = {"run_id": "r", "journal": journal, "prompt": "pay", "tools": work(effects), "replay": "strict"}
    await begin(model=ScriptedModel(SCRIPT), max_steps=1, **options)
    result = await go_on(model=ScriptedModel(SCRIPT), **options)
    assert (result.text, result.warnings, effects.count()) == ("paid twice", (), 3)
    entries = [(await rows.all())[f"run/r/~/model/{step:06d}"].value["entry"] for step in range(3)]
    assert (
        entries
        == {
            generated: ["generate", "stream", "stream"],
            streamed: ["stream", "generate", "generate"],
        }[begin]
    )
    for door in (generated, streamed):
        again = await door(**(options | {"model": Never()}))
        assert (again.messages, effects.count()) == (result.messages, 3)


# What a replay is made of ------------------------------------------------------------------------------------------


async def test_every_request_can_be_rebuilt_from_the_rows_alone(journal, rows, effects):
    """Input, splices, answers and call records give back each request that the model got."""
    script = [
        ["I pay.", ("charge", {"amount": 1}), ("look", {}), ("gone", {})],
        [("charge", {"amount": 2})],
        "paid",
    ]
    model = ScriptedModel(script)
    messages = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}]
    model = ScriptedModel(script, history=1)
    options = {"run_id": "r", "journal": journal, "tools": work(effects), "messages": messages, "prompt": "pay"}
    result = await run_durable(model=model, **options)
    entries = await rows.all()
    responses = [read_step(entries[f"run/r/~/model/{step:06d}"]) for step in range(3)]
    told = {
        part.tool_call_id: message for message in result.messages for part in message.parts if message.role == "tool"
    }

    def resolve(reference):
        return responses[reference["step"]].response.message() if "step" in reference else told[reference["call"]]

    current = list(result.messages[:3])
    for step, record in enumerate(responses):
        current = rebuild(current, record.keep, record.add, resolve)
        assert tuple(current) == model.requests[step].messages
        assert len(record.add) == (0 if step == 0 else 4 if step == 1 else 2)  # what is new, and nothing again


async def test_budgets_count_a_sub_agent_s_work_in_a_replay_as_they_did_live(journal, effects):
    charge, _ = work(effects)
    child = ScriptedModel([[("charge", {"amount": 1})], "child done"], usage=Usage(100, 10))
    helper = agent_tool(name="helper", description="Helps.", model=child, tools=[charge])
    options = {"run_id": "r", "journal": journal, "prompt": "pay"}
    root = ScriptedModel([[("helper", {"task": "pay"})], "done"], usage=Usage(7, 1))
    live = await run_durable(model=root, tools=[helper], **options)
    assert live.usage == Usage(2 * 107, 2 * 11)
    again = await run_durable(model=Never(), tools=[helper], **options)
    assert again.usage == live.usage
    assert child.calls == 2


async def test_a_step_names_the_model_that_answered_it_and_its_price(journal, effects):
    script = [[("charge", {"amount": 1})], "paid"]
    options = {"run_id": "r", "journal": journal, "prompt": "pay", "tools": work(effects)}
    await run_durable(model=ScriptedModel(script, spec="a/one"), max_steps=1, **options)
    result = await run_durable(model=ScriptedModel(script, spec="b/two"), **options)
    assert [step.model for step in result.steps] == ["a/one", "b/two"]
    again = await run_durable(model=ScriptedModel([], spec="b/two"), **options)
    assert [step.model for step in again.steps] == ["a/one", "b/two"]


async def test_stop_conditions_hold_in_a_replay_as_they_did_live(journal, effects):
    options = {"run_id": "r", "journal": journal, "prompt": "pay", "tools": work(effects)}
    stop = {"stop_when": lambda steps: len(steps) == 2}
    live = await run_durable(model=ScriptedModel(SCRIPT), **stop, **options)
    again = await run_durable(model=Never(), **stop, **options)
    assert (again.finish_reason, again.messages) == (live.finish_reason, live.messages) == ("stop_when", again.messages)
    assert effects.count() == 3


async def test_an_answer_with_calls_and_text_in_any_order_is_replayed_verbatim(journal, effects):
    data = {"signature": "abc", "items": [{"id": 1}]}
    parts = (ReasoningPart("hm"), ToolCallPart("", "look", {}, provider_id="call_0"), TextPart("ok"))
    answer = ModelResponse(parts, Usage(1, 2), "tool_calls", "m-1", "scripted", data)
    options = {"run_id": "r", "journal": journal, "prompt": "go", "tools": work(effects)}
    model = ScriptedModel([answer, "done"])
    live = await run_durable(model=model, **options)
    again = await run_durable(model=Never(), **options)
    message = again.messages[1]
    assert message == live.messages[1] == model.requests[1].messages[1]
    assert message.provider_data == data
    assert [type(part) for part in message.parts] == [ReasoningPart, ToolCallPart, TextPart]
    assert message.parts[1].provider_id == "call_0"


async def test_replays_can_be_repeated_and_side_by_side_they_take_turns(journal, effects):
    options = {"run_id": "r", "journal": journal, "prompt": "pay", "tools": work(effects)}
    live = await run_durable(model=ScriptedModel(SCRIPT), **options)
    for _ in range(5):
        assert (await run_durable(model=Never(), **options)).messages == live.messages
    assert effects.count() == 3
