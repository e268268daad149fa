"""The doctor rebuilds what each step was asked from the rows, and names the step that its rows do not yield."""

import pytest

from gnl_core import (
    RunLimits,
    agent_tool,
    decide,
    durable_context,
    durable_tools,
    fork_run,
    keys,
    run_durable,
    tool,
    with_durable_model,
)
from gnl_core.doctor import examine_runs
from gnl_core.doctor_chain import Difference, check_chain
from gnl_core.errors import SideEffectRetryBlockedError
from gnl_core.model.messages import Message, ModelRequest, TextPart
from gnl_core.testing.faulty import FaultyJournal
from gnl_core.testing.scripted import ScriptedModel

SCRIPT = [
    ["I pay.", ("charge", {"amount": 1}), ("big", {}), ("gone", {})],
    [("charge", {"amount": 2}), ("broken", {})],
    [("charge", {"amount": 1})],
    "paid",
]

PAYS_TWICE = RunLimits(side_effect_duplicates="off")


@tool
def charge(amount: int) -> dict:
    """Charge."""
    return {"receipt": amount}


@tool(side_effect=False)
def big() -> str:
    """Read more than a row holds beside its record."""
    return "ü" * 70_000


@tool(side_effect=False)
def broken() -> str:
    """Fail."""
    raise ValueError("no such order")


async def drive(journal, run_id="r", script=SCRIPT, **options):
    options = {"tools": [charge, big, broken], "prompt": "pay", "limits": PAYS_TWICE, **options}
    return await run_durable(run_id=run_id, journal=journal, model=ScriptedModel(script), **options)


async def own_loop(journal):
    """A loop that says something itself, and forgets its first message later."""
    messages = [Message("user", (TextPart("hello"),)), Message("user", (TextPart("pay"),))]
    async with durable_context(run_id="r", journal=journal, limits=PAYS_TWICE) as ctx:
        model, tools = with_durable_model(ScriptedModel(SCRIPT), ctx), durable_tools([charge, big, broken], ctx)
        while True:
            response = await model.generate(ModelRequest(None, tuple(messages)))
            messages.append(response.message())
            if not response.tool_calls:
                return
            messages += [await tools[call.name].answer(call) for call in response.tool_calls if call.name in tools]
            messages.append(Message("user", (TextPart("go on"),)))
            if len(messages) > 8:
                del messages[0]


def the_findings(found):
    return [(one.level, one.run_id, one.text) for one in found if one.check == "runs.chain"]


async def doctor(journal):
    return the_findings([one async for one in examine_runs(journal)])


async def test_a_run_as_it_was_recorded_differs_in_nothing(journal):
    await drive(journal, max_steps=2)
    assert (await drive(journal)).text == "paid"
    assert await check_chain(journal, "r") == []
    await fork_run(journal=journal, run_id="r", step=2, new_run_id="f")
    await drive(journal, "f", prompt=None)
    assert await check_chain(journal, "f") == []
    assert await doctor(journal) == []


async def test_a_loop_of_one_s_own_that_says_the_same_twice_differs_in_nothing(journal):
    await own_loop(journal)
    assert await check_chain(journal, "r") == []


DAMAGE = [
    ("run/r/~/tool/000000/000", {"output": {"receipt": 9}}, 1),
    ("run/r/~/tool/000001/000", {"output": "nothing"}, 2),
    ("run/r/~/tool/000001/001", {"error": {"type": "ValueError", "message": "no such box"}}, 2),
    ("run/r/~/model/000001", {"keep": 0}, 1),
    ("run/r/~/model/000002", {"keep": 99}, 2),
    ("run/r/~/model/000003", {"add": []}, 3),
    ("run/r/~/model/000002", {"chain": "0" * 64}, 2),
    ("run/r/~/input", {"messages": [{"role": "user", "parts": [{"type": "text", "text": "pay twice"}]}]}, 0),
]


@pytest.mark.parametrize(("key", "members", "step"), DAMAGE, ids=lambda value: str(value)[:40])
async def test_a_row_that_was_changed_is_told_with_its_run_and_the_step_after_it(journal, rows, key, members, step):
    await drive(journal)
    await rows.change(key, **members)
    first, *_ = found = await doctor(journal)
    assert {level for level, _, _ in found} == {"fault"}
    assert first[1] == "r"
    assert f"step {step} of run 'r'" in first[2]


async def test_an_answer_that_was_changed_is_told_at_the_step_after_it(journal, rows):
    await drive(journal)
    key = "run/r/~/model/000000"
    response = (await rows.all())[key].value["response"]
    (index,) = [number for number, part in enumerate(response["parts"]) if part["type"] == "text"]
    response["parts"][index]["text"] = "I steal."
    await rows.change(key, response=response)
    since = ("the answer of step 0", "the result of s0p0", "the result of s0p1", "the result of s0p2")
    assert await check_chain(journal, "r") == [Difference(step=1, since=since, settled=())], "and at no later one"


async def test_a_result_beside_its_row_that_was_changed_is_told(journal, rows):
    await drive(journal)
    key = "run/r/~/tool/000000/001"
    entry = (await rows.all())[key]
    await rows.put(key, entry.value, entry.blob.replace(b"\\u00fc", b"\\u00e9", 1))
    assert [one.step for one in await check_chain(journal, "r")] == [1]


async def test_a_message_of_one_s_own_that_was_changed_is_told(journal, rows):
    await own_loop(journal)
    changed = next(key for key, entry in (await rows.all()).items() if "/msg/" in key and "go on" in str(entry.value))
    message = (await rows.all())[changed].value["message"]
    await rows.change(changed, message={**message, "parts": [{"type": "text", "text": "stop"}]})
    assert [one.step for one in await check_chain(journal, "r")][:1] == [1]


async def test_a_sub_agent_s_run_is_looked_at_under_its_own_name(journal, rows):
    helper = agent_tool(name="helper", description="Helps.", model=ScriptedModel(SCRIPT), tools=[charge, big, broken])
    await drive(journal, script=[[("helper", {"task": "pay"})], "done"], tools=[helper])
    assert await doctor(journal) == []
    child = keys.child_id("r", keys.ROOT, "s0p0")
    await rows.change(keys.tool("r", child, 1, 0), output="nothing")
    ((level, run_id, text),) = await doctor(journal)
    assert (level, run_id) == ("fault", child)
    assert f"step 2 of run {child!r}" in text


async def test_a_call_that_was_settled_after_the_next_step_is_told_and_is_no_fault(journal):
    @tool
    def pay(amount: int) -> dict:
        """Pay, or not: the connection broke."""
        raise ConnectionError("lost")

    script = [[("pay", {"amount": 1})], [("charge", {"amount": 1})], "paid"]
    options = {"script": script, "tools": [pay, charge]}
    await drive(journal, max_steps=2, **options)
    with pytest.raises(SideEffectRetryBlockedError) as blocked:
        await drive(journal, **options)
    assert await doctor(journal) == [], "what the model read once of a call that waits is not there"
    await decide(journal, blocked.value.interrupts[0].question, False, output={"receipt": 1})
    assert (await drive(journal, **options)).text == "paid"
    ((level, run_id, text),) = await doctor(journal)
    assert (level, run_id) == ("note", "r")
    assert text == "step 1 of run 'r' was asked before s0p0 (by person) ended as recorded now"


async def test_what_is_missing_is_told_as_a_gap_and_nothing_else(journal, rows):
    await drive(journal)
    await rows.delete("run/r/~/tool/000000/000")
    found = [one async for one in examine_runs(journal)]
    assert the_findings(found) == []
    assert "runs.gaps" in {one.check for one in found}


async def test_rows_are_read_once_and_page_by_page(journal):
    script = [*([("charge", {"amount": number})] for number in range(60)), "paid"]
    await drive(journal, script=script, max_steps=100)
    counted = FaultyJournal(journal)
    assert await check_chain(counted, "r") == []
    assert (counted.reads, counted.scans, counted.writes) == (1, 3, 0)
