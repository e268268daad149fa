"""A workflow's steps: done at most once, replayed by name, and never a branch that a later drive would not take."""

import asyncio
import contextlib
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from gnl_core import (
    Allow,
    Approval,
    Context,
    Deny,
    NotPerformedError,
    RequireApproval,
    RunLimits,
    StepOutcome,
    StepRetryBlockedError,
    ToolError,
    args_hash,
    decide,
    keys,
    list_interrupts,
    run_workflow,
    tool,
)
from gnl_core.errors import (
    ConfigError,
    DivergenceError,
    IdInvalidError,
    JournalGapError,
    ResultNotRepresentableError,
    RunLimitExceededError,
    ToolArgumentsError,
    ToolDeclarationError,
)


class Shop:
    """Tools that write down each effect, and fail for as long as they are told to."""

    def __init__(self, effects):
        self.effects = effects
        self.broken = None
        self.asked = 0
        self.provider_keys = []

        @tool(side_effect=True)
        async def charge(ctx: Context, order: str, amount: int = 5) -> dict:
            self.provider_keys.append(ctx.idempotency_key)
            if self.broken is not None:
                raise self.broken
            return effects.fire("charge", order, {"receipt": order, "amount": amount})

        @tool(side_effect=True, confirm=True)
        async def refund(order: str) -> str:
            return effects.fire("refund", order, f"refunded {order}")

        @tool(side_effect=False)
        async def stock(order: str) -> int:
            self.asked += 1
            if self.broken is not None:
                raise self.broken
            return 7

        self.charge, self.refund, self.stock = charge, refund, stock


@pytest.fixture
def shop(effects):
    return Shop(effects)


def driver(journal, run_id="order-1", **options):
    async def drive(workflow, **more):
        return await run_workflow(workflow, journal=journal, run_id=run_id, name="pay", **{**options, **more})

    return drive


# Steps -------------------------------------------------------------------------------------------------------------


async def test_a_workflow_is_done_once_and_its_result_is_read_ever_after(journal, shop, effects):
    calls = []

    async def pay(flow, order):
        calls.append(flow.run_id)
        left = await flow.step("stock", shop.stock, order=order)
        paid = await flow.step("charge", shop.charge, order=order)
        return {"left": left, **paid}

    drive = driver(journal, input={"order": "A"})
    first, second = await drive(pay), await drive(pay)
    assert first.status == second.status == "completed"
    assert first.output == second.output == {"left": 7, "receipt": "A", "amount": 5}
    assert (calls, shop.asked, effects.count()) == (["order-1"], 1, 1)
    assert first.replayed_tool_calls == ()
    assert [(one.tool_call_id, one.tool_name, one.status) for one in second.replayed_tool_calls] == [
        ("s0p0", "stock", "succeeded"),
        ("s1p0", "charge", "succeeded"),
    ]
    assert shop.provider_keys == ["order-1:s1p0"]
    assert repr(second) == "WorkflowResult(run_id='order-1', status='completed', interrupts=0, waits=0, warnings=0)"


async def test_a_plain_function_is_taken_for_a_side_effect(journal, rows):
    def send_mail(to: str) -> str:
        return f"sent to {to}"

    async def pay(flow):
        return await flow.step("mail", send_mail, to="ann")

    assert (await driver(journal)(pay)).output == "sent to ann"
    ((record, _),) = (await rows.values(("run", "order-1", "~", "tool"))).values()
    assert (record["tool"], record["side_effect"], record["attempts"]) == ("send_mail", True, 1)


async def test_names_and_not_places_say_which_record_is_whose(journal, shop, effects):
    order = ["a", "b"]

    async def pay(flow):
        done = {one: await flow.step(f"charge/{one}", shop.charge, order=one) for one in order}
        await flow.wait("go")
        return {one: done[one]["receipt"] for one in sorted(done)}

    drive = driver(journal)
    await drive(pay)
    order.reverse()
    assert (await drive(pay, send={"go": 1})).output == {"a": "a", "b": "b"}
    assert effects.count() == 2


async def test_under_nests_names(journal, shop, rows):
    async def pay(flow):
        inner = flow.under("par").under("left")
        await inner.step("charge", shop.charge, order="A")
        return await flow.step("charge", shop.stock, order="A")

    await driver(journal)(pay)
    assert await rows.values(("run", "order-1", "~", "step")) == {
        "run/order-1/~/step/charge": ({"f": 1, "step": 1}, None),
        "run/order-1/~/step/par%2Fleft%2Fcharge": ({"f": 1, "step": 0}, None),
    }


async def test_a_name_is_written_in_the_batch_of_its_claim(journal, shop, rows):
    async def pay(flow):
        return await flow.step("charge", shop.charge, order="A")

    await driver(journal)(pay)
    named = (await rows.all(("run", "order-1", "~", "step")))["run/order-1/~/step/charge"]
    call = (await rows.all(("run", "order-1", "~", "tool")))["run/order-1/~/tool/000000/000"]
    assert named.created_at <= call.created_at
    assert named.version < call.version  # the record was replaced by its end; the name stands as the claim wrote it


async def test_typed_arguments_reach_the_function_as_they_were_given(journal):

    seen = []

    @tool(side_effect=False)
    def rate(day: date, amount: Decimal, factor: float) -> Decimal:
        seen.append((day, amount, factor))
        return amount * 2

    async def pay(flow, day):
        return await flow.step("rate", rate, day=day, amount=Decimal("1.10"), factor=2)

    result = await driver(journal, input={"day": date(2026, 4, 1)})(pay)
    assert (result.output, seen) == (Decimal("2.20"), [(date(2026, 4, 1), Decimal("1.10"), 2.0)])


async def test_an_argument_whose_record_would_be_something_else_is_refused_before_anything_begins(journal, rows):
    def send(when: Any):
        raise AssertionError("called")

    async def pay(flow):

        return await flow.step("send", send, when=date(2026, 4, 1))

    with pytest.raises(ToolArgumentsError, match="would give the tool str instead"):
        await driver(journal)(pay)
    assert await rows.values(("run", "order-1", "~", "tool")) == {}
    assert await rows.values(("run", "order-1", "~", "step")) == {}


async def test_arguments_that_do_not_fit_leave_nothing_behind_and_may_be_mended(journal, shop, effects):
    given = {"oder": "A"}

    async def pay(flow):
        return await flow.step("charge", shop.charge, **given)

    with pytest.raises(ToolArgumentsError):
        await driver(journal)(pay)
    given = {"order": "A"}
    assert (await driver(journal)(pay)).status == "completed"
    assert effects.count() == 1


async def test_one_name_twice_is_an_error_that_nothing_swallows(journal, shop, effects):
    async def pay(flow):
        for _ in range(2):
            with contextlib.suppress(Exception):
                await flow.step("charge", shop.charge, order="A")

    with pytest.raises(ConfigError, match=r'f"charge/\{i\}"'):
        await driver(journal)(pay)
    assert effects.count() == 1


@pytest.mark.parametrize("name", ["", "a b", "x" * 513, 7])
async def test_a_name_that_may_not_become_a_key_is_refused(journal, shop, effects, name):
    async def pay(flow):
        return await flow.step(name, shop.charge, order="A")

    with pytest.raises(IdInvalidError, match="the name of a step"):
        await driver(journal)(pay)
    assert effects.count() == 0


async def test_what_makes_no_tool_is_refused(journal):
    async def pay(flow):
        return await flow.step("charge", lambda: 1)

    with pytest.raises(ToolDeclarationError):
        await driver(journal)(pay)


async def test_other_arguments_under_a_recorded_name_replay_the_record_with_a_warning(journal, shop, effects):
    amount = 5

    async def pay(flow):
        paid = await flow.step("charge", shop.charge, order="A", amount=amount)
        await flow.wait("go")
        return paid

    drive = driver(journal)
    await drive(pay)
    amount = 9
    with pytest.raises(DivergenceError):
        await drive(pay, replay="strict")
    result = await drive(pay, send={"go": 1})
    assert result.output == {"receipt": "A", "amount": 5}
    assert any("recorded with another arguments" in warning for warning in result.warnings)
    assert effects.count() == 1


async def test_a_recorded_step_that_is_not_reached_any_more_is_told(journal, shop):
    way = "old"

    async def pay(flow):
        await flow.step(way, shop.charge, order=way)
        await flow.wait("go")

    drive = driver(journal)
    await drive(pay)
    way = "new"
    result = await drive(pay, send={"go": 1})
    assert result.status == "completed"
    assert any("step 'old'" in warning and "never came to it" in warning for warning in result.warnings)


async def test_a_record_that_is_missing_is_not_filled_by_a_second_effect(journal, shop, effects, rows):
    async def pay(flow):
        await flow.step("charge", shop.charge, order="A")
        await flow.wait("go")

    drive = driver(journal)
    await drive(pay)
    await rows.delete("run/order-1/~/tool/000000/000")
    with pytest.raises(JournalGapError, match="step 'charge'"):
        await drive(pay, send={"go": 1})
    assert effects.count() == 1


# Failures ----------------------------------------------------------------------------------------------------------


async def test_a_failed_harmless_step_is_tried_again_by_the_next_drive(journal, shop):
    shop.broken = OSError("no line")

    async def pay(flow):
        return await flow.step("stock", shop.stock, order="A")

    drive = driver(journal)
    with pytest.raises(ToolError, match="no line") as failed:
        await drive(pay)
    assert (failed.value.type, failed.value.detail["step"]) == ("OSError", "stock")
    shop.broken = None
    assert (await drive(pay)).output == 7


async def test_a_failed_side_effect_is_in_doubt_until_somebody_knows(journal, shop, effects):
    shop.broken = OSError("broken pipe")

    async def pay(flow):
        return await flow.step("charge", shop.charge, order="A")

    drive = driver(journal)
    with pytest.raises(ToolError, match="broken pipe"):
        await drive(pay)
    shop.broken = None
    with pytest.raises(StepRetryBlockedError) as blocked:
        await drive(pay)
    assert blocked.value.code == "step_retry_blocked"
    assert blocked.value.detail["step"] == "charge"
    assert blocked.value.detail["state"] == "unresolved"
    assert blocked.value.detail["question"] == "order-1/s0p0/in_doubt/1"
    assert type(blocked.value.__cause__).__name__ == "SideEffectRetryBlockedError"
    (question,) = blocked.value.interrupts
    await decide(journal, question.question, True)
    assert (await drive(pay)).output == {"receipt": "A", "amount": 5}
    assert effects.count() == 1
    assert shop.provider_keys == ["order-1:s0p0"] * 2  # the provider is told that it is the same work


async def test_recover_settles_a_failed_side_effect(journal, effects):
    @tool(side_effect=True, recover=lambda order: {"done": True, "output": f"receipt of {order}"})
    def charge(order: str) -> str:
        effects.fire("charge", order)
        raise OSError("the answer was lost")

    async def pay(flow):
        return await flow.step("charge", charge, order="A")

    with pytest.raises(ToolError):
        await driver(journal)(pay)
    assert (await driver(journal)(pay)).output == "receipt of A"
    assert effects.count() == 1


async def test_after_a_failure_was_handed_on_nothing_new_begins(journal, shop, effects):
    shop.broken = OSError("no line")

    async def pay(flow):
        try:
            await flow.step("stock", shop.stock, order="A")
        except ToolError:
            try:
                await flow.step("charge", shop.charge, order="A")
            except Exception:
                return "swallowed"

    with pytest.raises(ConfigError, match=r"flow\.attempt"):
        await driver(journal)(pay)
    assert effects.count() == 0


async def test_a_function_that_returns_in_spite_of_a_failure_is_not_over(journal, shop):
    shop.broken = OSError("no line")

    async def pay(flow):
        try:
            await flow.step("stock", shop.stock, order="A")
        except ToolError:
            return "done"

    with pytest.raises(ToolError, match="no line") as failed:
        await driver(journal)(pay)
    assert "flow.attempt" in failed.value.__notes__[0]


async def test_an_attempt_that_failed_is_the_same_failure_in_every_later_drive(journal, shop, rows):
    shop.broken = OSError("no line")
    outcomes = []

    async def pay(flow):
        outcome = await flow.attempt("stock", shop.stock, order="A")
        outcomes.append(outcome)
        await flow.step("mail" if outcome.ok else "alarm", shop.charge, order="A")

    drive = driver(journal)
    with pytest.raises(ToolError):
        await drive(pay)
    assert (await rows.values(("run", "order-1", "~", "step", "stock")))["run/order-1/~/step/stock"][0] == {
        "f": 1,
        "step": 0,
        "failed": True,
    }
    shop.broken = None
    with pytest.raises(StepRetryBlockedError):
        await drive(pay)
    first, second = outcomes
    assert not first.ok
    assert not second.ok
    assert (str(first.error), first.error.type, first.output) == ("no line", "OSError", None)
    assert (str(second.error), second.error.type, second.error.detail) == ("no line", "OSError", first.error.detail)
    assert shop.asked == 1


async def test_an_attempt_that_certainly_did_nothing_is_an_outcome(journal, shop, effects):
    shop.broken = NotPerformedError("card refused")
    outcomes = []

    async def pay(flow):
        outcomes.append(await flow.attempt("charge", shop.charge, order="A"))
        await flow.wait("go")
        return outcomes[-1].ok

    drive = driver(journal)
    await drive(pay)
    shop.broken = None
    assert (await drive(pay, send={"go": 1})).output is False
    assert [str(one.error) for one in outcomes] == ["card refused"] * 2
    assert effects.count() == 0


async def test_an_attempt_that_may_have_acted_is_no_outcome(journal, shop):
    shop.broken = OSError("broken pipe")

    async def pay(flow):
        try:
            return await flow.attempt("charge", shop.charge, order="A")
        except Exception:
            return "swallowed"

    for _ in range(2):
        with pytest.raises(StepRetryBlockedError) as blocked:
            await driver(journal)(pay)
        assert blocked.value.detail["state"] == "unresolved"
        (question,) = blocked.value.interrupts
        assert question.question == "order-1/s0p0/in_doubt/1"


async def test_an_attempt_that_worked_is_an_outcome(journal, shop):
    async def pay(flow):
        return (await flow.attempt("stock", shop.stock, order="A")) == StepOutcome(ok=True, output=7)

    assert (await driver(journal)(pay)).output is True


async def test_what_the_guard_refuses_is_a_failure_of_the_step(journal, shop, effects):
    async def pay(flow):
        outcome = await flow.attempt("charge", shop.charge, order="A")
        return [outcome.ok, outcome.error.type]

    result = await driver(journal, guard=lambda call: Deny("not today"))(pay)
    assert result.output == [False, "denied"]
    assert effects.count() == 0


async def test_an_error_of_the_functions_own_is_raised_and_the_next_drive_goes_on(journal, shop, effects):
    bug = True

    async def pay(flow):
        await flow.step("charge", shop.charge, order="A")
        if bug:
            raise KeyError("mine")
        return "done"

    with pytest.raises(KeyError, match="mine"):
        await driver(journal)(pay)
    bug = False
    assert (await driver(journal)(pay)).output == "done"
    assert effects.count() == 1


async def test_a_limit_stops_the_workflow_and_a_higher_one_lets_it_go_on(journal, shop, effects):
    async def pay(flow):
        for order in ("A", "B"):
            try:
                await flow.step(order, shop.charge, order=order)
            except Exception:
                return "swallowed"
        return "done"

    with pytest.raises(RunLimitExceededError):
        await driver(journal, limits=RunLimits(max_tool_calls=1))(pay)
    assert effects.count() == 1
    assert (await driver(journal, limits=RunLimits(max_tool_calls=2))(pay)).output == "done"
    assert effects.count() == 2


async def test_a_result_that_cannot_be_stored_is_told_before_the_run_is_over(journal, shop, effects):
    async def pay(flow):
        await flow.step("charge", shop.charge, order="A")
        return object() if broken else "plain"

    broken = True
    with pytest.raises(ResultNotRepresentableError) as told:
        await driver(journal)(pay)
    assert type(told.value.output) is object
    broken = False
    assert (await driver(journal)(pay)).output == "plain"
    assert effects.count() == 1


async def test_a_step_whose_result_cannot_be_stored_stops_every_drive(journal, effects):
    @tool(side_effect=True)
    def charge(order: str) -> object:
        effects.fire("charge", order)
        return object()

    async def pay(flow):
        try:
            await flow.step("charge", charge, order="A")
        except Exception:
            return "swallowed"

    for _ in range(2):
        with pytest.raises(ResultNotRepresentableError):
            await driver(journal)(pay)
    assert effects.count() == 1


async def test_a_large_result_stands_in_the_blob(journal, rows):
    async def pay(flow):
        return "x" * 100_000

    for _ in range(2):
        assert (await driver(journal)(pay)).output == "x" * 100_000
    value, blob = (await rows.values(keys.workflow_output("order-1")))["run/order-1/~/output"]
    assert value == {"f": 1, "in_blob": True}
    assert len(blob) == 100_002


# Questions ---------------------------------------------------------------------------------------------------------


async def test_a_step_that_asks_suspends_the_run_and_nothing_swallows_it(journal, shop, effects):
    async def pay(flow):
        try:
            return await flow.step("refund", shop.refund, order="A")
        except Exception:
            return "swallowed"

    drive = driver(journal)
    asked = await drive(pay)
    assert (asked.status, asked.output, effects.count()) == ("suspended", None, 0)
    (question,) = asked.interrupts
    assert question.question == "order-1/s0p0/confirm/0"
    assert (await drive(pay)).interrupts == asked.interrupts
    await decide(journal, question.question, True)
    assert (await drive(pay)).output == "refunded A"
    assert effects.count() == 1


async def test_an_answer_may_come_along_and_one_without_a_step_is_told(journal, shop, effects):
    async def pay(flow):
        return await flow.step("refund", shop.refund, order="A")

    yes = Approval(approved=True, args_digest=args_hash({"order": "A"}))
    result = await driver(journal)(pay, approvals={"s0p0": yes, "s9p0": yes})
    assert (result.output, result.unused_approvals) == ("refunded A", ("s9p0",))


async def test_a_no_is_a_failure_that_stays(journal, shop, effects):
    async def pay(flow):
        outcome = await flow.attempt("refund", shop.refund, order="A")
        return outcome.ok

    drive = driver(journal)
    (question,) = (await drive(pay)).interrupts
    await decide(journal, question.question, False, reason="too old")
    assert (await drive(pay)).output is False
    assert effects.count() == 0


async def test_the_guard_sees_each_step_and_may_ask(journal, shop, effects):
    seen = []

    def guard(call):
        seen.append((call.tool_name, dict(call.args)))
        return RequireApproval("look at it") if call.tool_name == "charge" else Allow()

    async def pay(flow):
        await flow.step("stock", shop.stock, order="A")
        await flow.step("charge", shop.charge, order="A")

    result = await driver(journal, guard=guard)(pay)
    assert [question.kind for question in result.interrupts] == ["guard"]
    assert seen == [("stock", {"order": "A"}), ("charge", {"order": "A"})]


async def test_the_same_effect_under_two_names_is_asked_about(journal, shop, effects):
    async def pay(flow):
        await flow.step("first", shop.charge, order="A")
        await flow.step("second", shop.charge, order="A")

    result = await driver(journal, limits=RunLimits(side_effect_duplicates="suspend"))(pay)
    assert [question.kind for question in result.interrupts] == ["duplicate"]
    assert effects.count() == 1


# Side by side ------------------------------------------------------------------------------------------------------


async def test_bodies_run_side_by_side_and_replay_whatever_ends_first(journal):
    gates = {one: asyncio.Event() for one in "abc"}
    under_way = []

    @tool(side_effect=True)
    async def work(which: str) -> str:
        under_way.append(which)
        if len(under_way) == 3:
            for gate in gates.values():
                gate.set()
        await gates[which].wait()
        return which.upper()

    async def pay(flow):
        parts = await asyncio.gather(*(flow.step(f"work/{one}", work, which=one) for one in "abc"))
        await flow.wait("go")
        return parts

    drive = driver(journal)
    await drive(pay)
    assert (await drive(pay, send={"go": None})).output == ["A", "B", "C"]
    assert sorted(under_way) == ["a", "b", "c"]


@pytest.mark.parametrize("together", ["gather", "group"])
async def test_all_questions_of_steps_side_by_side_are_asked_and_the_others_are_done(journal, shop, effects, together):
    async def pay(flow):
        steps = [
            flow.step("refund/A", shop.refund, order="A"),
            flow.step("charge", shop.charge, order="C"),
            flow.step("refund/B", shop.refund, order="B"),
        ]
        if together == "gather":
            return await asyncio.gather(*steps)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(step) for step in steps]
        return [task.result() for task in tasks]

    drive = driver(journal)
    questions, asked = set(), None
    for _ in range(3):  # a group stops what has not begun when the first asks: the next drive asks that
        asked = await drive(pay)
        questions |= {question.question for question in asked.interrupts}
        if len(questions) == 2:
            break
        for question in asked.interrupts:
            await decide(journal, question.question, True)
    assert asked.status == "suspended"
    for question in asked.interrupts:
        await decide(journal, question.question, True)
    result = await drive(pay)
    if result.status == "suspended":
        for question in result.interrupts:
            await decide(journal, question.question, True)
        result = await drive(pay)
    assert result.output == ["refunded A", {"receipt": "C", "amount": 5}, "refunded B"]
    assert sorted(effect.key for effect in effects.read()) == ["A", "B", "C"]


async def test_a_failure_in_a_group_breaks_off_no_sibling(journal, shop, effects):
    started, go = asyncio.Event(), asyncio.Event()

    @tool(side_effect=True)
    async def slow(order: str) -> str:
        started.set()
        await go.wait()
        return effects.fire("slow", order, "done")

    @tool(side_effect=False)
    async def fails() -> None:
        await started.wait()
        go.set()
        raise OSError("no line")

    async def pay(flow):
        async with asyncio.TaskGroup() as group:
            group.create_task(flow.step("slow", slow, order="A"))
            group.create_task(flow.step("fails", fails))

    with pytest.raises(ExceptionGroup) as raised:
        await driver(journal)(pay)
    assert [type(one) for one in raised.value.exceptions] == [ToolError]
    assert effects.count() == 1
    record = (await journal.get_many([keys.tool("order-1", "~", 0, 0)])).entries[0].value
    assert record["status"] == "succeeded"  # in no doubt, although the group cancelled whoever waited for it


async def test_nothing_new_begins_once_a_group_was_broken_off(journal, shop, effects):
    @tool(side_effect=False)
    async def fails() -> None:
        raise OSError("no line")

    async def pay(flow):
        try:
            async with asyncio.timeout(0):
                await flow.step("stock", shop.stock, order="A")
        except TimeoutError:
            await flow.step("charge", shop.charge, order="A")

    with pytest.raises(ConfigError, match="or was cancelled"):
        await driver(journal)(pay)
    assert effects.count() == 0


async def test_a_step_that_nobody_awaits_is_waited_for(journal, effects):
    go = asyncio.Event()
    kept = []

    @tool(side_effect=True)
    async def slow(order: str) -> str:
        await go.wait()
        return effects.fire("slow", order, "done")

    async def pay(flow):
        kept.append(asyncio.ensure_future(flow.step("slow", slow, order="A")))
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_later(0.01, go.set)
        return "early"

    result = await driver(journal)(pay)
    assert (result.status, effects.count()) == ("completed", 1)
    assert await kept[0] == "done"


async def test_a_step_after_the_end_raises(journal, shop, effects):
    flows = []

    async def pay(flow):
        flows.append(flow)

    await driver(journal)(pay)
    with pytest.raises(ConfigError, match="has ended"):
        await flows[0].step("charge", shop.charge, order="A")
    with pytest.raises(ConfigError, match="has ended"):
        await flows[0].wait("go")
    assert effects.count() == 0


async def test_a_cancelled_drive_leaves_a_doubt_and_no_body_behind(journal, effects):
    started, ended = asyncio.Event(), []

    @tool(side_effect=True)
    async def slow(order: str) -> str:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(order)

    async def pay(flow):
        return await flow.step("slow", slow, order="A")

    task = asyncio.ensure_future(driver(journal)(pay))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["A"]
    with pytest.raises(StepRetryBlockedError) as blocked:
        await driver(journal)(pay)
    assert blocked.value.detail["state"] in ("unresolved", "in-flight")


async def test_a_stop_that_everything_swallows_stops_the_run_all_the_same(journal, shop, effects):
    async def pay(flow):
        try:
            await flow.step("refund", shop.refund, order="A")
        except BaseException:
            try:
                await flow.step("charge", shop.charge, order="A")
            except BaseException:
                return "swallowed"

    result = await driver(journal)(pay)
    assert (result.status, len(result.interrupts), effects.count()) == ("suspended", 1, 0)


async def test_a_step_that_failed_says_what_the_next_drive_does_about_it(journal, shop):
    async def pay(flow):
        return await flow.step("charge/1", shop.charge, order="A")

    shop.broken = NotPerformedError("the bank is closed")
    with pytest.raises(
        ToolError, match=r"^step 'charge/1' of run order-1 failed: the bank is closed\. The next drive tries it again"
    ):
        await driver(journal)(pay)
    shop.broken = OSError("broken pipe")
    with pytest.raises(ToolError, match=r"failed: broken pipe\. .* question 'order-1/s0p0/in_doubt/2' is open"):
        await driver(journal)(pay)
    assert [one.question for one in await list_interrupts(journal)] == ["order-1/s0p0/in_doubt/2"]
