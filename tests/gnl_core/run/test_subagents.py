"""Sub-agents: runs of their own under one request, one lock and one set of bounds; questions at their own keys."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from gnl_core import (
    Context,
    RequireApproval,
    RunLimits,
    SideEffectRetryBlockedError,
    UnknownQuestionError,
    agent_tool,
    cancel_run,
    decide,
    fork_run,
    keys,
    list_interrupts,
    resume_run,
    run_durable,
    tool,
)
from gnl_core.approvals import Approval
from gnl_core.canonical import args_hash
from gnl_core.errors import ChildRunError, ModelUnavailableError
from gnl_core.journal import get
from gnl_core.testing.faulty import Fault, FaultyJournal
from gnl_core.testing.scripted import ScriptedModel, raise_once

ROOT = Path(__file__).parents[3]
CHARGE = [("charge", {"amount": 1})]
AGAIN = [("charge", {"amount": 2})]
ALIKE = RunLimits(side_effect_duplicates="off")  # where calls are alike by chance
INNER = [("inner", {"task": "pay"})]
OUTER = [("outer", {"task": "see to it"})]


def charging(effects, *, fails=0, **options):
    @tool(**options)
    def charge(amount: int, ctx: Context) -> str:
        effects.fire("charge", ctx)
        if effects.fired <= fails:
            raise RuntimeError("the line went dead")
        return f"receipt {amount}"

    return charge


def agent(name, tools, *turns, **options):
    return agent_tool(name=name, description=f"the {name} one", model=ScriptedModel(turns), tools=tools, **options)


def nested(charge, inner=CHARGE):
    """A charge two agents down."""
    return [agent("outer", [agent("inner", [charge], inner, "paid")], INNER, "seen to")]


async def drive(journal, tools, turns=(OUTER, "done"), **options):
    return await run_durable(
        run_id="r", journal=journal, model=ScriptedModel(list(turns)), tools=tools, prompt="go", **options
    )


def told(result, call="s0p0"):
    return next(
        part.text
        for message in result.messages
        if message.role == "tool"
        for part in message.parts
        if part.tool_call_id == call
    )


CODE = ModelUnavailableError.code
CHILD = keys.child_id("r", "~", "s0p0")
GRANDCHILD = keys.child_id("r", CHILD, "s0p0")


def test_ids_are_of_one_length_at_any_depth_and_name_their_root():
    part, seen = "~", set()
    for depth in range(30):
        part = keys.child_id("order-1", part, f"s{depth % 3}p0")
        seen.add(part)
        assert len(part) == len("agent:order-1:") + 16
        assert keys.split_run_id(part) == ("order-1", part)
    assert len(seen) == 30


def test_line_56_children_of_two_parents_never_meet():
    ids = {keys.child_id("r", part, call) for part in ("~", CHILD, GRANDCHILD) for call in ("s0p0", "s0p1", "s1p0")}
    assert len(ids) == 9
    assert keys.child_id("a:b", "~", "s0p0") != keys.child_id("a", "~", "s0p0")


async def test_a_charge_two_agents_down_runs_once_and_everything_is_replayed(journal, effects):
    first = await drive(journal, nested(charging(effects)))
    assert (first.text, told(first)) == ("done", "seen to")
    assert effects.counts() == {f"charge {GRANDCHILD}/s0p0": 1}
    again = await drive(journal, nested(charging(effects)))
    assert again.messages == first.messages
    assert effects.count() == 1


async def test_s27_a_question_two_agents_down_is_surfaced_and_answered_at_its_own_key(journal, rows, effects):
    charge = charging(effects, confirm=True)
    (question,) = (await drive(journal, nested(charge))).interrupts
    assert question.question == f"{GRANDCHILD}/s0p0/confirm/0"
    assert (question.args, question.tool_name) == ({"amount": 1}, "charge")
    for run_id in (None, "r", GRANDCHILD):
        assert await list_interrupts(journal, run_id) == [question]
    assert await list_interrupts(journal, CHILD) == []
    await decide(journal, question.question, True)
    assert [key for key in await rows.values() if "/answer/" in key] == [
        keys.encode(keys.answer("r", GRANDCHILD, "s0p0", "confirm", 0))
    ]
    result = await drive(journal, nested(charge), context={"other": "options"})
    assert (result.text, result.interrupts, effects.count()) == ("done", (), 1)


async def test_a_refusal_two_agents_down_is_read_by_the_agent_that_asked(journal, effects):
    charge = charging(effects, confirm=True)
    seen = []

    def last_word(request):
        seen.append(request.messages[-1].parts[0].text)
        return "it was refused"

    tools = [agent("outer", [agent("inner", [charge], CHARGE, last_word)], INNER, "seen to")]
    (question,) = (await drive(journal, tools)).interrupts
    await decide(journal, question.question, False, reason="not today")
    assert (await drive(journal, tools)).text == "done"
    assert effects.count() == 0
    assert len(seen) == 1
    assert "not today" in seen[0]


@pytest.mark.parametrize("name", ["s0p0", "r/s0p0", "r/s0p0/confirm/0", "call_0_0"])
async def test_line_56_a_parents_approval_opens_no_childs_call(journal, rows, effects, name):
    charge = charging(effects, confirm=True)
    await drive(journal, nested(charge))
    before = await rows.values()
    with pytest.raises(UnknownQuestionError, match=GRANDCHILD):
        await drive(journal, nested(charge), approvals={name: True})
    with pytest.raises(UnknownQuestionError):
        await decide(journal, "r/s0p0/confirm/0", True)
    assert await rows.values() == before
    ahead = Approval(approved=True, args_digest=args_hash({"amount": 1}))
    result = await drive(journal, nested(charge), approvals={name: ahead})
    assert (result.unused_approvals, len(result.interrupts), effects.count()) == ((name,), 1, 0)


@pytest.mark.parametrize("name", ["s0p0", "r/s0p0", "r/s0p0/confirm/0", "call_0_0"])
async def test_line_56_a_parents_answer_ahead_opens_no_childs_call(journal, effects, name):
    ahead = Approval(approved=True, args_digest=args_hash({"amount": 1}))
    result = await drive(journal, nested(charging(effects, confirm=True)), approvals={name: ahead})
    assert (result.unused_approvals, len(result.interrupts), effects.count()) == ((name,), 1, 0)


async def test_line_56_a_childs_answer_makes_none_of_its_parent(journal, effects):
    charge = charging(effects, confirm=True)
    (question,) = (await drive(journal, nested(charge))).interrupts
    await drive(journal, nested(charge), approvals={question.question: True})
    assert effects.count() == 1
    with pytest.raises(UnknownQuestionError):
        await drive(journal, nested(charge), approvals={"s0p0": True})
    assert (await drive(journal, nested(charge), approvals={f"{GRANDCHILD}/s0p0": True})).text == "done"


@pytest.mark.parametrize("name", [f"{GRANDCHILD}/s0p0", f"{GRANDCHILD}/s0p0/confirm/0"])
async def test_a_childs_call_can_be_answered_ahead_by_its_own_name(journal, effects, name):
    ahead = Approval(approved=True, args_digest=args_hash({"amount": 1}))
    result = await drive(journal, nested(charging(effects, confirm=True)), approvals={name: ahead})
    assert (result.text, result.unused_approvals, effects.count()) == ("done", (), 1)


async def test_the_childs_answer_opens_no_call_of_its_parent(journal, effects):
    charge = charging(effects, confirm=True)
    tools = [agent("inner", [charge], CHARGE, "paid"), charge]
    turns = (INNER, CHARGE, "done")
    (question,) = (await drive(journal, tools, turns)).interrupts
    await decide(journal, question.question, True)
    (question,) = (await drive(journal, tools, turns)).interrupts
    assert (question.question, effects.count()) == ("r/s1p0/confirm/0", 1)


async def test_two_sub_agents_of_one_step_ask_in_model_order_and_each_is_answered_alone(journal, effects):
    charge = charging(effects, confirm=True)
    tools = [agent("inner", [charge], CHARGE, "paid")]
    turns = ([*INNER, *INNER], "done")
    children = [keys.child_id("r", "~", f"s0p{n}") for n in range(2)]
    first = await drive(journal, tools, turns, limits=ALIKE)
    assert [one.run_id for one in first.interrupts] == children
    await decide(journal, first.interrupts[1].question, True)
    second = await drive(journal, tools, turns, limits=ALIKE)
    assert [one.run_id for one in second.interrupts] == children[:1]
    assert effects.counts() == {f"charge {children[1]}/s0p0": 1}
    await decide(journal, first.interrupts[0].question, True)
    assert (await drive(journal, tools, turns, limits=ALIKE)).text == "done"
    assert effects.count() == 2


async def test_two_sub_agents_of_one_step_work_side_by_side(journal, effects):
    here, there = asyncio.Event(), asyncio.Event()

    @tool
    async def charge(amount: int, ctx: Context) -> str:
        effects.fire("charge", ctx)
        # Each waits for the other: one after another they would wait for ever.
        mine, other = (here, there) if amount == 1 else (there, here)
        mine.set()
        await other.wait()
        return f"receipt {amount}"

    tools = [
        agent("inner", [charge], CHARGE, "paid one"),
        agent("other", [charge], [("charge", {"amount": 2})], "paid two"),
    ]
    turns = ([*INNER, ("other", {"task": "pay"})], "done")
    result = await drive(journal, tools, turns)
    assert (told(result), told(result, "s0p1")) == ("paid one", "paid two")
    again = await drive(journal, tools, turns)
    assert (again.messages, effects.count()) == (result.messages, 2)


async def test_a_sibling_that_is_done_stays_done_while_a_sub_agent_waits(journal, effects):
    gated = charging(effects, confirm=True)

    @tool
    def ship(ctx: Context, to: str) -> str:
        effects.fire("ship", ctx)
        return "shipped"

    tools = [agent("inner", [gated, ship], [("ship", {"to": "Rome"}), *CHARGE], "paid"), ship]
    turns = ([*INNER, ("ship", {"to": "Oslo"})], "done")
    (question,) = (await drive(journal, tools, turns)).interrupts
    await decide(journal, question.question, True)
    assert (await drive(journal, tools, turns)).text == "done"
    assert effects.counts() == {"ship r/s0p1": 1, f"ship {CHILD}/s0p0": 1, f"charge {CHILD}/s0p1": 1}


async def test_the_guard_sees_a_childs_calls_under_the_childs_id(journal, effects):
    seen = []

    def guard(call):
        seen.append((call.run_id, call.tool_name))
        return RequireApproval("?") if call.tool_name == "charge" else {"action": "allow"}

    (question,) = (await drive(journal, nested(charging(effects)), guard=guard)).interrupts
    assert seen == [("r", "outer"), (CHILD, "inner"), (GRANDCHILD, "charge")]
    assert question.question == f"{GRANDCHILD}/s0p0/guard/0"


# Doubts and errors ---------------------------------------------------------------------------------------------------


async def test_a_childs_doubt_is_raised_at_the_root_with_the_childs_id(journal, effects):
    charge = charging(effects, fails=1)
    await drive(journal, nested(charge))
    for _ in range(2):
        with pytest.raises(SideEffectRetryBlockedError) as blocked:
            await drive(journal, nested(charge))
        assert blocked.value.detail["run_id"] == GRANDCHILD
        assert [one.question for one in blocked.value.interrupts] == [f"{GRANDCHILD}/s0p0/in_doubt/1"]
    await decide(journal, blocked.value.detail["question"], False, output="by hand")
    assert (await drive(journal, nested(charge))).text == "done"
    assert effects.count() == 1


async def test_a_childs_doubt_shows_the_questions_of_its_siblings_too(journal, effects):
    doubtful, gated = charging(effects, fails=1), charging(effects, confirm=True)
    tools = [agent("inner", [doubtful], CHARGE, "paid"), agent("outer", [gated], CHARGE, "paid")]
    turns = ([*INNER, *OUTER], "done")
    await drive(journal, tools, turns)
    with pytest.raises(SideEffectRetryBlockedError) as blocked:
        await drive(journal, tools, turns)
    assert [one.question for one in blocked.value.interrupts] == [
        f"{CHILD}/s0p0/in_doubt/1",
        f"{keys.child_id('r', '~', 's0p1')}/s0p0/confirm/0",
    ]


async def test_a_childs_model_that_fails_stops_the_root_and_the_next_drive_goes_on(journal, effects):
    broken = raise_once(ModelUnavailableError("503"), "paid")
    tools = [agent("inner", [charging(effects)], CHARGE, broken)]
    with pytest.raises(ModelUnavailableError):
        await drive(journal, tools, (INNER, "done"))
    assert effects.count() == 1
    assert (await drive(journal, tools, (INNER, "done"))).text == "done"
    assert effects.count() == 1


async def child_head(journal, part=CHILD):
    return (await get(journal, keys.head("r", part))).value


@pytest.mark.parametrize("depth", [1, 2])
async def test_what_a_child_was_told_before_its_model_failed_is_not_asked_again(journal, depth):
    """An answer that asks for nothing that can run is written with the next batch, or with the end."""
    model = ScriptedModel([[("nothing", {})], raise_once(ModelUnavailableError("503"), "paid")])
    tools = [agent_tool(name="inner", description="d", model=model, tools=[])]
    parts = [CHILD]
    if depth == 2:
        tools, parts = [agent("outer", tools, INNER, "seen to")], [CHILD, GRANDCHILD]
    turns = (INNER if depth == 1 else OUTER, "done")
    with pytest.raises(ModelUnavailableError):
        await drive(journal, tools, turns)
    for part in parts:
        head = await child_head(journal, part)
        assert (head["status"], head["steps"], head["error"]["code"]) == ("failed", 1, CODE)
    assert model.calls == 2
    assert (await drive(journal, tools, turns)).text == "done"
    assert model.calls == 3, "the answer that failed, and not the one before it"
    for part in parts:
        head = await child_head(journal, part)
        assert (head["status"], "error" in head) == ("completed", False)


async def test_the_head_of_a_child_in_doubt_waits(journal, effects):
    tools = [agent("inner", [charging(effects, fails=1)], CHARGE, ModelUnavailableError("503"))]
    with pytest.raises(ModelUnavailableError):
        await drive(journal, tools, (INNER, "done"))
    assert (await child_head(journal))["status"] == "failed"
    with pytest.raises(SideEffectRetryBlockedError):
        await drive(journal, tools, (INNER, "done"))
    head = await child_head(journal)
    assert (head["status"], head["questions"]) == ("suspended", 1)


async def test_an_end_of_a_child_that_cannot_be_recorded_hides_no_error(journal, effects, caplog):
    tools = [agent("inner", [], [("nothing", {})], ModelUnavailableError("503"))]

    def childs_end(ops):
        return any(op.key == keys.head("r", CHILD) and op.value["status"] == "failed" for op in ops)

    faulty = FaultyJournal(journal, fault=Fault(action="unavailable", times=4, match=childs_end))
    with pytest.raises(ModelUnavailableError):
        await drive(faulty, tools, (INNER, "done"))
    assert f"the end of run {CHILD} could not be recorded" in caplog.text


async def test_a_child_of_a_canceled_run_records_nothing_more(journal, rows, effects):
    async def canceled(request):
        await cancel_run(journal, "r")
        raise ModelUnavailableError("503")

    tools = [agent("inner", [], [("nothing", {})], canceled)]
    with pytest.raises(ModelUnavailableError):
        await drive(journal, tools, (INNER, "done"))
    assert not [key for key in await rows.all(keys.request("r")) if "/model/" in key and CHILD in key]
    assert (await child_head(journal, keys.ROOT))["status"] == "canceled"


async def test_a_child_that_makes_its_last_step_tells_its_parent_where_it_stands(journal, effects):
    tools = [agent("inner", [charging(effects)], CHARGE, AGAIN, CHARGE, "never", max_steps=2)]
    result = await drive(journal, tools, (INNER, "done"))
    assert (result.text, effects.count()) == ("done", 2)
    assert (await drive(journal, tools, (INNER, "done"))).messages == result.messages


# Addressed by its own id ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("child", [CHILD, GRANDCHILD])
async def test_a_child_is_driven_canceled_and_forked_through_its_root_only(journal, rows, effects, child):
    tools = nested(charging(effects, confirm=True))
    await drive(journal, tools)
    before = await rows.values()
    model = ScriptedModel(["x"])
    for attempt in (
        resume_run(run_id=child, journal=journal, model=model, tools=tools),
        run_durable(run_id=child, journal=journal, model=model, prompt="x"),
        cancel_run(journal, child),
        fork_run(journal=journal, run_id=child, step=0, new_run_id="other"),
    ):
        with pytest.raises(ChildRunError) as refused:
            await attempt
        assert refused.value.detail["root"] == "r"
        assert "'r'" in str(refused.value)
    assert (await rows.values(), model.calls) == (before, 0)


async def test_a_canceled_root_begins_nothing_in_its_children(journal, effects):
    tools = nested(charging(effects, confirm=True))
    (question,) = (await drive(journal, tools)).interrupts
    await decide(journal, question.question, True)
    await cancel_run(journal, "r")
    with pytest.raises(Exception, match="canceled") as stopped:
        await drive(journal, tools)
    assert (stopped.value.code, effects.count()) == ("run_canceled", 0)


# Another process -----------------------------------------------------------------------------------------------------

DYING = """
import asyncio, gnl_core, os, sys
from gnl_core import Context, agent_tool, run_durable, tool
from gnl_core.testing.effects import EffectLog
from gnl_core.testing.scripted import ScriptedModel
store, effects = sys.argv[1], EffectLog(sys.argv[2])

@tool(confirm=True)
def charge(amount: int, ctx: Context) -> str:
    effects.fire("charge", ctx)
    os._exit(9)

def agent(name, tools, *turns):
    return agent_tool(name=name, description=f"the {name} one", model=ScriptedModel(turns), tools=tools)

inner = agent("inner", [charge], [("charge", {"amount": 1})], "paid")
outer = agent("outer", [inner], [("inner", {"task": "pay"})], "seen to")

async def main():
    async with eval(store) as storage:
        model = ScriptedModel([[("outer", {"task": "see to it"})], "done"])
        await run_durable(run_id="r", journal=storage.runs, model=model, tools=[outer], prompt="go")
asyncio.run(main())
"""


async def test_s30_a_childs_approved_call_that_died_asks_its_own_new_question(common, effects):
    charge = charging(effects, confirm=True)
    async with common.open() as storage:
        (asked,) = (await drive(storage.runs, nested(charge))).interrupts
        await decide(storage.runs, asked.question, True)
    arguments = [common.spelled, str(effects.path)]
    command = [sys.executable, "-W", "error", "-c", DYING, *arguments]
    child = await asyncio.to_thread(subprocess.run, command, cwd=ROOT, capture_output=True, timeout=60, check=False)
    assert child.returncode == 9, child.stderr
    async with common.open() as storage:
        (listed,) = await list_interrupts(storage.runs)
        assert listed.question == f"{GRANDCHILD}/s0p0/in_doubt/1"
        with pytest.raises(SideEffectRetryBlockedError):
            await drive(storage.runs, nested(charge))
        assert effects.count() == 1
        await decide(storage.runs, listed.question, True)
        assert (await drive(storage.runs, nested(charge))).text == "done"
        assert effects.count() == 2
