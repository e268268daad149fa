"""Work named by its arguments whose end is not known: whose question it is, and who may answer it."""

import asyncio
import threading

import pytest

from gnl_core import (
    Approval,
    Context,
    args_hash,
    decide,
    fork_run,
    keys,
    list_interrupts,
    release_failed_claim,
    run_durable,
    tool,
)
from gnl_core.errors import (
    RunBusyError,
    SideEffectRetryBlockedError,
    StepTimeoutError,
    UnknownQuestionError,
)
from gnl_core.journal import get
from gnl_core.testing.scripted import ScriptedModel

ONE = [[("charge", {"order": 1})], "Done."]
WINDOWS = [
    {"idempotency": "args"},
    {"idempotency": "args", "window": "thread"},
    {"idempotency": "args", "window": "cross-run"},
]
ACROSS = WINDOWS[1:]
TTL_S = 0.05


@pytest.fixture
def release():
    """Lets a body in a thread end, at the latest with its test: a thread that waits keeps the process alive."""
    event = threading.Event()
    yield event
    event.set()


def charging(effects, **options):
    @tool(**options)
    async def charge(ctx: Context, order: int, note: str = "") -> dict:
        """Charge an order."""
        return effects.fire("charge", f"order-{order}", {"receipt": order})

    return charge


def drive(journal, tools, turns=ONE, run_id="r", **options):
    options.setdefault("thread_id", "t")
    options.setdefault("prompt", "Go.")
    return run_durable(run_id=run_id, journal=journal, model=ScriptedModel(turns), tools=tools, **options)


def outputs(result):
    return [call.output for step in result.steps for call in step.calls]


async def value(journal, key):
    entry = await get(journal, key)
    return None if entry is None else entry.value


# In doubt ----------------------------------------------------------------------------------------------------------


def hanging(effects, **options):
    """A charge that acts and is never heard of again, the first time; nothing is run beside it for `TTL_S`."""

    @tool(timeout=0.02, claim_ttl=TTL_S, **options)
    async def charge(ctx: Context, order: int, note: str = "") -> dict:
        """Charge."""
        effects.fire("charge", f"order-{order}")
        if ctx.attempt == 1:
            await asyncio.Event().wait()
        return {"receipt": order}

    return charge


@pytest.mark.parametrize("options", WINDOWS)
async def test_a_doubt_of_the_runs_own_is_asked_answered_and_settled(journal, effects, options):
    charge = hanging(effects, **options)
    with pytest.raises(StepTimeoutError) as late:
        await drive(journal, [charge])
    assert [one.question for one in late.value.interrupts] == ["r/s0p0/in_doubt/1"]
    assert [one.question for one in await list_interrupts(journal)] == ["r/s0p0/in_doubt/1"]
    with pytest.raises(SideEffectRetryBlockedError):
        await drive(journal, [charge])
    await decide(journal, "r/s0p0/in_doubt/1", True)
    assert await list_interrupts(journal) == []
    await asyncio.sleep(TTL_S)
    assert outputs(await drive(journal, [charge])) == [{"receipt": 1}]
    assert effects.count() == 2


@pytest.mark.parametrize("note", ["", "from b"], ids=["same arguments", "other arguments, same key"])
@pytest.mark.parametrize("answer", ["again", "settled", "never"])
async def test_a_doubt_of_another_run_is_named_answered_there_and_binds_every_run(journal, effects, note, answer):
    charge = hanging(effects, idempotency_key=lambda args: args["order"], window="cross-run")
    turns = [[("charge", {"order": 1, "note": note} if note else {"order": 1})], "Done."]
    with pytest.raises(StepTimeoutError):
        await drive(journal, [charge], run_id="a")
    for _ in range(2):
        with pytest.raises(SideEffectRetryBlockedError) as blocked:
            await drive(journal, [charge], turns, run_id="b")
        assert blocked.value.detail["question"] == "a/s0p0/in_doubt/1"
        (asked,) = blocked.value.interrupts
        assert (asked.question, dict(asked.args)) == ("a/s0p0/in_doubt/1", {"order": 1}), "as run a asked for it"
        assert asked.args_digest == args_hash({"order": 1})
    assert [one.question for one in await list_interrupts(journal)] == ["a/s0p0/in_doubt/1"]
    match answer:
        case "again":
            await decide(journal, asked.question, True)
            await asyncio.sleep(TTL_S)
        case "settled":
            await decide(journal, asked.question, False, output={"receipt": 1})
        case _:
            await decide(journal, asked.question, False, reason="leave it")
    if answer == "again" and note:
        # The yes was given to run a's arguments: run b's are other bytes, so run a carries it out.
        with pytest.raises(SideEffectRetryBlockedError, match="driving that run"):
            await drive(journal, [charge], turns, run_id="b")
        assert effects.count() == 1
        await drive(journal, [charge], run_id="a")
    result = await drive(journal, [charge], turns, run_id="b")
    other = await drive(journal, [charge], run_id="a")
    if answer == "never":
        assert [call.status for call in result.steps[0].calls] == ["denied"]
        assert [call.status for call in other.steps[0].calls] == ["denied"]
    else:
        assert outputs(result) == outputs(other) == [{"receipt": 1}]
    assert effects.count() == (2 if answer == "again" else 1)
    assert await list_interrupts(journal) == []


async def test_an_answer_passed_to_the_run_that_merely_met_the_doubt_is_refused_with_the_way_out(journal, effects):
    charge = hanging(effects, idempotency="args", window="cross-run")
    with pytest.raises(StepTimeoutError):
        await drive(journal, [charge], run_id="a")
    with pytest.raises(SideEffectRetryBlockedError):
        await drive(journal, [charge], run_id="b")
    with pytest.raises(UnknownQuestionError):
        await drive(journal, [charge], run_id="b", approvals={"s0p0": True})
    await asyncio.sleep(TTL_S)
    assert outputs(await drive(journal, [charge], run_id="a", approvals={"s0p0": True})) == [{"receipt": 1}]
    assert outputs(await drive(journal, [charge], run_id="b")) == [{"receipt": 1}]
    assert effects.count() == 2


async def test_a_doubt_whose_run_is_gone_names_the_operators_way_out(journal, rows, effects):
    charge = hanging(effects, idempotency="args", window="cross-run")
    with pytest.raises(StepTimeoutError):
        await drive(journal, [charge], run_id="a")
    while await journal.delete_prefix(keys.request("a")):
        pass
    for _ in range(2):
        with pytest.raises(SideEffectRetryBlockedError, match="release_failed_claim") as blocked:
            await drive(journal, [charge], run_id="b")
        assert (blocked.value.detail["question"], blocked.value.interrupts) == ("", ())
    await asyncio.sleep(TTL_S)
    assert await release_failed_claim(journal, tool_name="charge", args={"order": 1}, output={"receipt": 1}) is True
    assert outputs(await drive(journal, [charge], run_id="b")) == [{"receipt": 1}]
    assert effects.count() == 1


async def test_a_twin_of_a_call_that_timed_out_is_in_doubt_with_it_and_does_not_run(journal, effects):
    charge = hanging(effects, idempotency="args")
    turns = [[("charge", {"order": 1})] * 3, "Done."]
    with pytest.raises(StepTimeoutError):
        await drive(journal, [charge], turns)
    assert effects.count() == 1
    assert [one.question for one in await list_interrupts(journal)] == ["r/s0p0/in_doubt/1"]
    await decide(journal, "r/s0p0/in_doubt/1", False, output={"receipt": 1})
    assert outputs(await drive(journal, [charge], turns)) == [{"receipt": 1}] * 3
    assert effects.count() == 1


@pytest.mark.parametrize("options", WINDOWS)
async def test_late_evidence_settles_keyed_work(journal, effects, options, release, appears, begun):
    @tool(timeout=0.02, **options)
    def charge(ctx: Context, order: int) -> dict:
        """Charge, late."""
        release.wait()
        return effects.fire("charge", f"order-{order}", {"receipt": order})

    with pytest.raises(StepTimeoutError):
        await drive(journal, [charge])
    release.set()
    evidence = keys.evidence("r", keys.ROOT, "s0p0", 1)
    await appears(evidence)
    assert outputs(await drive(journal, [charge])) == [{"receipt": 1}]
    assert effects.count() == 1


@pytest.mark.parametrize("options", ACROSS)
async def test_a_run_that_waits_for_another_runs_work_takes_its_result(journal, effects, options, appears):
    entered, go_on = asyncio.Event(), asyncio.Event()

    @tool(**options)
    async def charge(ctx: Context, order: int) -> dict:
        """Charge, slowly."""
        entered.set()
        await go_on.wait()
        return effects.fire("charge", f"order-{order}", {"receipt": order})

    first = asyncio.ensure_future(drive(journal, [charge], run_id="a"))
    await entered.wait()
    second = asyncio.ensure_future(drive(journal, [charge], run_id="b"))
    await appears(keys.lock("b"))
    go_on.set()
    assert [outputs(result) for result in await asyncio.gather(first, second)] == [[{"receipt": 1}]] * 2
    assert effects.count() == 1


async def test_a_run_that_waits_is_cancelled_without_a_trace_of_the_work(journal, effects, appears):
    entered, go_on = asyncio.Event(), asyncio.Event()

    @tool(idempotency="args", window="cross-run")
    async def charge(ctx: Context, order: int) -> dict:
        """Charge, slowly."""
        entered.set()
        await go_on.wait()
        return effects.fire("charge", f"order-{order}", {"receipt": order})

    first = asyncio.ensure_future(drive(journal, [charge], run_id="a"))
    await entered.wait()
    second = asyncio.ensure_future(drive(journal, [charge], run_id="b"))
    await appears(keys.model("b", keys.ROOT, 0))
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    assert await get(journal, keys.tool("b", keys.ROOT, 0, 0)) is None
    go_on.set()
    await first
    assert outputs(await drive(journal, [charge], run_id="b")) == [{"receipt": 1}]
    assert effects.count() == 1


async def test_a_failed_twin_is_not_run_again_by_its_siblings(journal, effects):
    @tool(idempotency="args")
    async def charge(ctx: Context, order: int) -> dict:
        """Charge and fail."""
        effects.fire("charge", f"order-{order}")
        raise ConnectionError("lost")

    with pytest.raises(SideEffectRetryBlockedError):
        await drive(journal, [charge], [[("charge", {"order": 1})] * 3, "Done."])
    assert effects.count() == 1


async def test_a_repeat_in_a_later_step_of_work_in_doubt_does_not_run(journal, effects):
    @tool(idempotency="args")
    async def charge(ctx: Context, order: int) -> dict:
        """Charge and fail."""
        effects.fire("charge", f"order-{order}")
        raise ConnectionError("lost")

    with pytest.raises(SideEffectRetryBlockedError) as blocked:
        await drive(journal, [charge], [ONE[0], ONE[0], "Done."])
    assert [one.question for one in blocked.value.interrupts] == ["r/s0p0/in_doubt/1"]
    assert effects.count() == 1


async def test_a_held_answer_for_keyed_work(journal, effects):
    charge = charging(effects, idempotency="args", confirm=True)
    ahead = Approval(approved=True, args_digest=args_hash({"order": 1}))
    result = await drive(journal, [charge], approvals={"s0p0": ahead})
    assert (outputs(result), result.unused_approvals, effects.count()) == ([{"receipt": 1}], (), 1)


async def test_keyed_work_that_a_person_is_asked_about_is_asked_once_for_all_twins(journal, effects):
    charge = charging(effects, idempotency="args", confirm=True)
    turns = [[("charge", {"order": 1})] * 2, "Done."]
    waits = await drive(journal, [charge], turns)
    questions = sorted({one.question for one in waits.interrupts})
    assert questions == ["r/s0p0/confirm/0"]
    await decide(journal, "r/s0p0/confirm/0", True)
    assert outputs(await drive(journal, [charge], turns)) == [{"receipt": 1}] * 2
    assert effects.count() == 1


async def test_a_fork_of_a_run_with_work_across_runs_reads_it(journal, effects):
    charge = charging(effects, idempotency="args", window="cross-run")
    await drive(journal, [charge], run_id="a")
    await fork_run(journal=journal, run_id="a", step=0, new_run_id="f")
    result = await drive(journal, [charge], run_id="f")
    assert (outputs(result), effects.count()) == ([{"receipt": 1}], 1)


async def test_a_run_is_busy_only_for_itself(journal, effects):
    entered, go_on = asyncio.Event(), asyncio.Event()

    @tool
    async def charge(ctx: Context, order: int) -> dict:
        """Charge, slowly."""
        entered.set()
        await go_on.wait()
        return effects.fire("charge", ctx, {"receipt": order})

    first = asyncio.ensure_future(drive(journal, [charge], run_id="a"))
    await entered.wait()
    with pytest.raises(RunBusyError):
        await drive(journal, [charge], run_id="a")
    assert (await drive(journal, [], ["Hi."], run_id="b")).text == "Hi."
    go_on.set()
    await first
