"""Whose run a workflow's is, under what name, and what else may be done with it."""

import asyncio

import pytest

from gnl_core import (
    Gnl,
    SqliteStorage,
    cancel_run,
    compensate_run,
    decide,
    derived_run_id,
    durable_context,
    fork_run,
    list_runs,
    purge_run,
    read_run,
    resume_run,
    run_durable,
    run_workflow,
    run_workflow_sync,
    send_to_workflow,
    send_to_workflow_sync,
    stream_durable,
    sweep_runs,
    tool,
)
from gnl_core.errors import (
    AlreadyDecidedError,
    CompensatedRunError,
    ConfigError,
    ForkRefusedError,
    IdInvalidError,
    NotAnAgentRunError,
    NotCanonicalError,
    RefusedError,
    RunAgentMismatchError,
    RunBusyError,
    RunInputMismatchError,
    RunNotFoundError,
    RunOwnerMismatchError,
    RunSweptError,
    SyncInsideLoopError,
    ToolDeclarationError,
)
from gnl_core.testing.scripted import ScriptedModel

NOBODY = [AssertionError("asked")]


@pytest.fixture
def charge(effects):
    @tool(side_effect=True, compensate=lambda order: effects.fire("undo", order))
    async def charge(order: str) -> str:
        return effects.fire("charge", order, f"receipt {order}")

    return charge


@pytest.fixture
def pay(charge):
    async def pay(flow, order="A"):
        receipt = await flow.step("charge", charge, order=order)
        told = await flow.wait("bank", reason="the bank must say so")
        return {"receipt": receipt, "bank": told}

    return pay


# Waits -------------------------------------------------------------------------------------------------------------


async def test_a_wait_suspends_the_run_until_something_was_sent(journal, pay, effects, rows):
    waiting = await run_workflow(pay, journal=journal, run_id="r")
    assert (waiting.status, waiting.interrupts) == ("suspended", ())
    (wait,) = waiting.waits
    assert (wait.name, wait.reason) == ("bank", "the bank must say so")
    again = await run_workflow(pay, journal=journal, run_id="r")
    assert again.waits == waiting.waits
    assert (await read_run(journal, "r")).run.status == "suspended"
    assert await send_to_workflow(journal, run_id="r", wait="bank", data={"ok": True}, actor="ann")
    done = await run_workflow(pay, journal=journal, run_id="r")
    assert done.output == {"receipt": "receipt A", "bank": {"ok": True}}
    assert effects.count() == 1
    ((sent, _),) = (await rows.values(("run", "r", "~", "sent"))).values()
    assert (sent["data"], sent["actor"]) == ({"ok": True}, "ann")


async def test_what_is_sent_first_stands(journal, pay):
    await run_workflow(pay, journal=journal, run_id="r")
    assert await send_to_workflow(journal, run_id="r", wait="bank", data=1) is True
    assert await send_to_workflow(journal, run_id="r", wait="bank", data=1) is False
    with pytest.raises(AlreadyDecidedError) as refused:
        await send_to_workflow(journal, run_id="r", wait="bank", data=2)
    assert refused.value.detail["wait"] == "bank"
    with pytest.raises(AlreadyDecidedError):
        await run_workflow(pay, journal=journal, run_id="r", send={"bank": 2})
    assert (await read_run(journal, "r")).run.status == "suspended"
    assert (await run_workflow(pay, journal=journal, run_id="r", send={"bank": 1})).output["bank"] == 1


async def test_of_two_who_send_at_once_one_is_told(journal, pay):
    await run_workflow(pay, journal=journal, run_id="r")
    sent = await asyncio.gather(
        *(send_to_workflow(journal, run_id="r", wait="bank", data=data) for data in range(5)), return_exceptions=True
    )
    assert sent.count(True) == 1
    assert sum(isinstance(one, AlreadyDecidedError) for one in sent) == 4
    assert (await run_workflow(pay, journal=journal, run_id="r")).output["bank"] == sent.index(True)


async def test_something_may_be_sent_before_the_wait_is_reached(journal, pay):
    done = await run_workflow(pay, journal=journal, run_id="r", send={"bank": b"\0yes", "other": 1})
    assert done.output["bank"] == b"\0yes"


async def test_large_data_is_sent(journal, pay):
    await run_workflow(pay, journal=journal, run_id="r")
    for first in (True, False):
        assert await send_to_workflow(journal, run_id="r", wait="bank", data=["x" * 90_000]) is first
    with pytest.raises(AlreadyDecidedError):
        await send_to_workflow(journal, run_id="r", wait="bank", data=["y" * 90_000])
    assert (await run_workflow(pay, journal=journal, run_id="r")).output["bank"] == ["x" * 90_000]


async def test_waits_are_listed_as_they_were_reached_however_reads_answer(journal):
    answered = asyncio.Event()

    class Crossing:
        """Answers what is asked of the right wait first."""

        def __getattr__(self, name):
            return getattr(journal, name)

        async def get_many(self, wanted, **options):
            if any("left" in key for key in wanted):
                await answered.wait()
            read = await journal.get_many(wanted, **options)
            if any("right" in key for key in wanted):
                answered.set()
            return read

    async def pay(flow):
        await asyncio.gather(flow.wait("left"), flow.wait("right"))

    asked = await run_workflow(pay, journal=Crossing(), run_id="r")
    assert [wait.name for wait in asked.waits] == ["left", "right"]


async def test_waits_side_by_side_are_all_listed(journal):
    async def pay(flow):
        inner = flow.under("par")
        async with asyncio.TaskGroup() as group:
            left = group.create_task(inner.wait("left"))
            right = group.create_task(inner.wait("right"))
        return [left.result(), right.result()]

    asked = await run_workflow(pay, journal=journal, run_id="r")
    assert [wait.name for wait in asked.waits] == ["par/left", "par/right"]
    asked = await run_workflow(pay, journal=journal, run_id="r", send={"par/right": 2})
    assert [wait.name for wait in asked.waits] == ["par/left"]
    assert (await run_workflow(pay, journal=journal, run_id="r", send={"par/left": 1})).output == [1, 2]


async def test_nothing_is_sent_to_what_reads_nothing(journal, pay, charge):
    with pytest.raises(RunNotFoundError):
        await send_to_workflow(journal, run_id="nobody", wait="bank", data=1)
    await run_durable(run_id="agent", journal=journal, model=ScriptedModel(["Done."]), prompt="Go.")
    with pytest.raises(RunAgentMismatchError):
        await send_to_workflow(journal, run_id="agent", wait="bank", data=1)
    await run_workflow(pay, journal=journal, run_id="r", send={"bank": 1})
    with pytest.raises(RefusedError, match="has ended"):
        await send_to_workflow(journal, run_id="r", wait="late", data=1)
    over = await run_workflow(pay, journal=journal, run_id="r", send={"late": 1})
    assert any("not sent: late" in warning for warning in over.warnings)
    await run_workflow(pay, journal=journal, run_id="canceled")
    await cancel_run(journal, "canceled")
    with pytest.raises(RefusedError, match="has ended"):
        await send_to_workflow(journal, run_id="canceled", wait="bank", data=1)


async def test_what_cannot_be_sent_is_refused_before_anything_is_written(journal, pay, rows):
    with pytest.raises(ConfigError, match="send is list"):
        await run_workflow(pay, journal=journal, run_id="r", send=["bank"])
    with pytest.raises(ConfigError, match="cannot be stored"):
        await run_workflow(pay, journal=journal, run_id="r", send={"bank": object()})
    with pytest.raises(IdInvalidError):
        await run_workflow(pay, journal=journal, run_id="r", send={"": 1})
    assert await rows.all() == {}
    with pytest.raises(NotCanonicalError):
        await send_to_workflow(journal, run_id="r", wait="bank", data=object())


async def test_a_run_with_an_actor_is_told_who_sends(journal, pay):
    await run_workflow(pay, journal=journal, run_id="r", actor="bob")
    with pytest.raises(ConfigError, match="actor"):
        await send_to_workflow(journal, run_id="r", wait="bank", data=1)
    assert await send_to_workflow(journal, run_id="r", wait="bank", data=1, actor="ann")


# Names and persons -------------------------------------------------------------------------------------------------


def test_l62_agents_and_workflows_of_one_name_do_other_work():
    agent = derived_run_id("agent:pay", "resource", "ann", "order A")
    workflow = derived_run_id("wf:pay", "resource", "ann", "order A")
    assert workflow == "run1_31c412f2693211f33831b85923b3d488"
    assert agent != workflow


async def test_the_same_work_is_one_run(journal, pay, effects):
    gnl = Gnl(journal, workflows={"pay": pay})
    asked = {"work_key": "order A", "resource_id": "ann", "input": {"order": "A"}}
    first = await gnl.run_workflow("pay", **asked)
    assert first.run_id == derived_run_id("wf:pay", "resource", "ann", "order A")
    second = await gnl.run_workflow("pay", **asked, send={"bank": 1})
    assert (second.run_id, second.status, effects.count()) == (first.run_id, "completed", 1)
    direct = await run_workflow(pay, journal=journal, work_key="order A", resource_id="ann", input={"order": "A"})
    assert (direct.output, effects.count()) == (second.output, 1)
    page = await list_runs(journal, agent="wf:pay")
    assert [run.run_id for run in page.runs] == [first.run_id]


async def test_work_that_is_being_done_is_busy(journal, effects):
    entered, go = asyncio.Event(), asyncio.Event()

    @tool(side_effect=True)
    async def slow(order: str) -> str:
        entered.set()
        await go.wait()
        return effects.fire("slow", order, "done")

    async def pay(flow):
        return await flow.step("slow", slow, order="A")

    first = asyncio.ensure_future(run_workflow(pay, journal=journal, run_id="r"))
    await entered.wait()
    with pytest.raises(RunBusyError):
        await run_workflow(pay, journal=journal, run_id="r")
    go.set()
    assert (await first).output == "done"
    assert effects.count() == 1


async def test_other_input_under_one_name_is_refused(journal, pay, effects):
    gnl = Gnl(journal, workflows={"pay": pay})
    await gnl.run_workflow("pay", work_key="k", resource_id="ann", input={"order": "A"})
    with pytest.raises(RunInputMismatchError):
        await gnl.run_workflow("pay", work_key="k", resource_id="ann", input={"order": "B"})
    await run_workflow(pay, journal=journal, run_id="r", input={"order": "A"})
    with pytest.raises(RunInputMismatchError):
        await run_workflow(pay, journal=journal, run_id="r", input={"order": "B"}, strict_input=True)
    result = await run_workflow(pay, journal=journal, run_id="r", input={"order": "B"}, send={"bank": 1})
    assert result.output["receipt"] == "receipt A"
    assert any("began with another input" in warning for warning in result.warnings)


async def test_nothing_is_asked_of_whoever_goes_on(journal, charge):
    async def pay(flow, order):
        await flow.wait("go")
        return order

    with pytest.raises(RunNotFoundError):
        await run_workflow(pay, journal=journal, run_id="r")
    await run_workflow(pay, journal=journal, run_id="r", input={"order": ("A", 1)})
    assert (await run_workflow(pay, journal=journal, run_id="r", send={"go": 1})).output == ("A", 1)


async def test_another_persons_run_is_nobody_elses(journal, pay, effects):
    await run_workflow(pay, journal=journal, run_id="r", resource_id="ann")
    with pytest.raises(RunOwnerMismatchError):
        await run_workflow(pay, journal=journal, run_id="r", resource_id="bob", send={"bank": 1})
    assert (await run_workflow(pay, journal=journal, run_id="r", resource_id="ann")).status == "suspended"


async def test_another_workflow_under_the_run_is_refused(journal, pay, rows):
    async def other(flow):
        raise AssertionError("called")

    await run_workflow(pay, journal=journal, run_id="r")
    before = await rows.values(("run", "r", "~"))
    with pytest.raises(RunAgentMismatchError):
        await run_workflow(other, journal=journal, run_id="r")
    assert await rows.values(("run", "r", "~")) == before


async def test_a_run_without_a_name_is_anonymous_and_says_so(journal, pay):
    first, second = [await run_workflow(pay, journal=journal) for _ in range(2)]
    assert first.run_id.startswith("wf-pay-")
    assert first.run_id != second.run_id
    assert any("anonymous" in warning for warning in first.warnings)
    assert (await run_workflow(pay, journal=journal, run_id=first.run_id, send={"bank": 1})).status == "completed"


async def test_both_names_are_refused(journal, pay):
    with pytest.raises(ConfigError, match="both"):
        await run_workflow(pay, journal=journal, run_id="r", work_key="k")
    with pytest.raises(ConfigError, match="resource_id"):
        await run_workflow(pay, journal=journal, work_key="k")
    assert (await run_workflow(pay, journal=journal, work_key="k", work_scope="org")).status == "suspended"


async def test_what_is_no_workflow_is_refused(journal, charge, rows):
    def plain(flow):
        return 1

    async def no_flow():
        return 1

    for function in (plain, no_flow, charge, None):
        with pytest.raises(ConfigError):
            await run_workflow(function, journal=journal, run_id="r", name="pay")

    async def pay(flow, order):
        return order

    with pytest.raises(ConfigError, match="cannot be called with the input"):
        await run_workflow(pay, journal=journal, run_id="r", input={"oder": "A"})
    with pytest.raises(TypeError, match="there is no option 'tools'"):
        await run_workflow(pay, journal=journal, run_id="r", input={"order": "A"}, tools=[])
    assert await rows.all() == {}


# Doors -------------------------------------------------------------------------------------------------------------


async def test_l73_a_workflows_run_is_no_agents(journal, pay, rows):
    await run_workflow(pay, journal=journal, run_id="r")
    before = await rows.values(("run", "r", "~"))
    asked = {"run_id": "r", "journal": journal, "model": ScriptedModel(NOBODY)}
    gnl = Gnl(journal, agents={"support": {"model": ScriptedModel(NOBODY)}})
    with pytest.raises(NotAnAgentRunError):
        await run_durable(**asked, prompt="Hello.")
    with pytest.raises(NotAnAgentRunError):
        await resume_run(**asked)
    with pytest.raises(NotAnAgentRunError):
        await stream_durable(**asked, prompt="Hello.")
    with pytest.raises(NotAnAgentRunError):
        async with durable_context(run_id="r", journal=journal):
            pass
    for call in (gnl.run, gnl.stream):
        with pytest.raises(NotAnAgentRunError):
            await call("support", run_id="r", prompt="Hello.")
    with pytest.raises(NotAnAgentRunError):
        await gnl.resume("support", run_id="r")
    assert await rows.values(("run", "r", "~")) == before


async def test_an_agents_run_is_no_workflows(journal, pay, effects):
    await run_durable(run_id="r", journal=journal, model=ScriptedModel(["Done."]), prompt="Go.")
    with pytest.raises(RunAgentMismatchError):
        await run_workflow(pay, journal=journal, run_id="r")
    assert effects.count() == 0


async def test_a_canceled_workflow_begins_nothing_more(journal, pay, effects):
    await run_workflow(pay, journal=journal, run_id="r")
    assert await cancel_run(journal, "r")
    result = await run_workflow(pay, journal=journal, run_id="r", send={"bank": 1})
    assert (result.status, result.output, effects.count()) == ("canceled", None, 1)
    assert (await read_run(journal, "r")).run.status == "canceled"


async def test_a_workflow_canceled_on_its_way_ends_there(journal, effects):
    caught = []

    async def pay(flow):
        await flow.step("charge", charge, order="A")
        try:
            await flow.step("more", charge, order="B")
        except Exception as error:
            caught.append(error)

    @tool(side_effect=True)
    async def charge(order: str) -> str:
        await cancel_run(journal, "r")
        return effects.fire("charge", order, "done")

    assert (await run_workflow(pay, journal=journal, run_id="r")).status == "canceled"
    assert (caught, effects.count()) == ([], 1)
    assert (await read_run(journal, "r")).run.status == "canceled"


async def test_a_workflow_canceled_in_its_last_moment_is_canceled(journal):
    async def pay(flow):
        await cancel_run(journal, "r")
        return "done"

    result = await run_workflow(pay, journal=journal, run_id="r")
    assert (result.status, result.output) == ("canceled", None)
    assert (await run_workflow(pay, journal=journal, run_id="r")).status == "canceled"


async def test_the_steps_of_a_workflow_are_undone_and_nothing_begins_after_that(journal, pay, charge, effects):
    await run_workflow(pay, journal=journal, run_id="r")
    undone = await compensate_run(journal, "r", [charge])
    assert [(one.tool_call_id, one.status) for one in undone] == [("s0p0", "undone")]
    assert [effect.name for effect in effects.read()] == ["charge", "undo"]
    with pytest.raises(CompensatedRunError):
        await run_workflow(pay, journal=journal, run_id="r", send={"bank": 1})


async def test_a_workflow_is_not_forked(journal, pay):
    await run_workflow(pay, journal=journal, run_id="r")
    with pytest.raises(ForkRefusedError):
        await fork_run(journal=journal, run_id="r", step=0, new_run_id="r2")


async def test_erasure_and_retention_take_a_workflow_whole(journal, pay, rows):
    await run_workflow(pay, journal=journal, run_id="r", send={"bank": 1})
    purged = await purge_run(journal, "r")
    assert purged.rows["run"] > 0
    assert await rows.all(("run", "r")) == {}
    await run_workflow(pay, journal=journal, work_key="k", resource_id="ann", send={"bank": 1})
    ended = await journal.now()
    while await journal.now() == ended:
        pass  # a run of this very millisecond is not older than 0 ms
    swept = await sweep_runs(journal, older_than_ms=0, tombstones=True)
    assert swept.purged == 1
    with pytest.raises(RunSweptError):
        await run_workflow(pay, journal=journal, work_key="k", resource_id="ann")


async def test_a_question_is_decided_as_any_other(journal, effects):
    @tool(side_effect=True, confirm=True)
    def refund(order: str) -> str:
        return effects.fire("refund", order, "done")

    async def pay(flow):
        return await flow.step("refund", refund, order="A")

    (question,) = (await run_workflow(pay, journal=journal, run_id="r")).interrupts
    await decide(journal, question.question, True)
    assert (await run_workflow(pay, journal=journal, run_id="r")).output == "done"


# Presets -----------------------------------------------------------------------------------------------------------


async def test_critical_asks_for_a_name_and_for_recover(journal, pay, rows, effects):
    with pytest.raises(ConfigError, match="work_key or run_id"):
        await run_workflow(pay, journal=journal, preset="critical")
    with pytest.raises(ToolDeclarationError, match="recover="):
        await run_workflow(pay, journal=journal, run_id="r", preset="critical")
    assert effects.count() == 0
    assert await rows.values(("run", "r", "~", "tool")) == await rows.values(("run", "r", "~", "step")) == {}


async def test_critical_lets_a_step_with_recover_run_and_holds_its_input(journal, effects):
    @tool(side_effect=True, recover=lambda order: {"done": False})
    async def charge(order: str) -> str:
        return effects.fire("charge", order, "done")

    @tool(side_effect=True, idempotency_key=lambda args: args["order"])
    async def keyed(order: str) -> str:
        raise AssertionError("called")

    async def pay(flow, order):
        return await flow.step("charge", charge, order=order)

    async def other(flow):
        return await flow.step("keyed", keyed, order="A")

    gnl = Gnl(journal, workflows={"pay": pay, "other": {"workflow": other, "work_scope": "org"}}, preset="critical")
    asked = {"run_id": "r", "actor": "ann"}
    assert (await gnl.run_workflow("pay", **asked, input={"order": "A"})).output == "done"
    with pytest.raises(RunInputMismatchError):
        await gnl.run_workflow("pay", **asked, input={"order": "B"})
    with pytest.raises(ToolDeclarationError):
        await gnl.run_workflow("other", work_key="k")
    assert effects.count() == 1


async def test_gnl_names_what_is_no_workflow(journal, pay):
    with pytest.raises(ConfigError, match="there is no workflow 'x'"):
        await Gnl(journal, workflows={"pay": pay}).run_workflow("x", run_id="r")
    with pytest.raises(ConfigError, match="workflow 'pay' has no option 'tools'"):
        Gnl(journal, workflows={"pay": {"workflow": pay, "tools": []}})
    with pytest.raises(ConfigError, match="workflow 'pay' has no function"):
        Gnl(journal, workflows={"pay": {"work_scope": "org"}})
    with pytest.raises(ConfigError, match="must be an async function"):
        Gnl(journal, workflows={"pay": len})
    with pytest.raises(ConfigError):
        Gnl(journal)
    shared = Gnl(journal, workflows={"pay": pay}, preset="assistant", max_steps=3)
    assert (await shared.run_workflow("pay", run_id="r")).status == "suspended"


# Without await -----------------------------------------------------------------------------------------------------


async def test_scripts_need_no_await(journal, pay, charge):
    asked = {"journal": journal, "run_id": "r"}
    with pytest.raises(SyncInsideLoopError):
        run_workflow_sync(pay, **asked)
    with pytest.raises(SyncInsideLoopError):
        send_to_workflow_sync(journal, run_id="r", wait="bank", data=1)
    with pytest.raises(SyncInsideLoopError):
        Gnl(journal, workflows={"pay": pay}).run_workflow_sync("pay", run_id="r")


def test_scripts_run_workflows(place):
    async def pay(flow):
        return await flow.wait("bank")

    path = place / "runs.db"
    with SqliteStorage(path) as storage:
        assert run_workflow_sync(pay, journal=storage.runs, run_id="r").status == "suspended"
    with SqliteStorage(path) as storage:
        assert send_to_workflow_sync(storage.runs, run_id="r", wait="bank", data=3)
    with SqliteStorage(path) as storage:
        assert Gnl(storage.runs, workflows={"pay": pay}).run_workflow_sync("pay", run_id="r").output == 3


async def test_events_tell_of_each_step_and_of_the_end(journal, charge):
    told = []

    async def pay(flow):
        await flow.step("charge", charge, order="A")

    await run_workflow(pay, journal=journal, run_id="r", on_event=told.append)
    assert [event.kind for event in told] == ["tool-started", "tool-finished", "finished"]
    await run_workflow(pay, journal=journal, run_id="r", on_event=told.append)
    assert told[-1].replayed


async def test_what_is_sent_to_a_misspelt_wait_is_said_to_be_unread(journal, pay):
    told = "what was sent to 'bnak' was not read: the workflow has come to no wait of that name"
    asked = await run_workflow(pay, journal=journal, run_id="r", send={"bnak": "yes"})
    assert (asked.status, asked.warnings.count(told)) == ("suspended", 1)
    done = await run_workflow(pay, journal=journal, run_id="r", send={"bank": "yes"})
    assert (done.status, done.warnings.count(told)) == ("completed", 1)
