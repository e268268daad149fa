"""A conversation's marker says what became of the work of whoever holds it: nobody else's end changes it."""

import asyncio

import pytest

from gnl_core import (
    Allow,
    Context,
    Duplicates,
    NotPerformedError,
    RequireApproval,
    RunLimits,
    args_hash,
    decide,
    keys,
    run_durable,
    tool,
)
from gnl_core.errors import SideEffectRetryBlockedError, StepTimeoutError
from gnl_core.journal import get
from gnl_core.testing import ScriptedModel

ONCE = [[("charge", {"amount": 1})], "done"]
BOTH = [[("charge", {"amount": 1}), ("ship", {"box": 1})], "done"]
MARKER = keys.marker(keys.thread_scope("t"), "charge", args_hash({"amount": 1}))
TTL_S = 60


@pytest.fixture
def journal(storage, clock):
    """The journal of the store, whose clock a test moves."""
    return clock.moved(storage.runs)


async def drive(journal, tools, turns=ONCE, *, run_id="a", ttl_ms=None, **options):
    return await run_durable(
        run_id=run_id,
        journal=journal,
        model=ScriptedModel(turns),
        tools=tools,
        prompt="go",
        thread_id="t",
        limits=RunLimits(side_effect_duplicates=Duplicates(scope="thread", ttl_ms=ttl_ms)),
        **options,
    )


async def held(journal):
    entry = await get(journal, MARKER)
    return None if entry is None else (entry.value["run"], entry.value["call"], entry.value["state"])


def charging(effects, *, at=None, error=None, **options):
    """A charge; with `at` it says that it has begun, and waits to be let go on."""

    @tool(**options)
    async def charge(amount: int, ctx: Context) -> str:
        """Charge."""
        if at is not None:
            at[0].set()
            await at[1].wait()
        if error is not None:
            raise error
        return effects.fire("charge", ctx, "receipt")

    return charge


def shipping(effects):
    @tool
    async def ship(box: int, ctx: Context) -> str:
        """Ship."""
        return effects.fire("ship", ctx, "shipped")

    return ship


@pytest.fixture
def at():
    return asyncio.Event(), asyncio.Event()


# The end of a call whose marker others hold ---------------------------------------------------------------------------


async def interrupted(journal, effects, at, clock, end):
    """Run a's charge until its marker counts no more; run b's is done meanwhile; then end a's."""
    slow = charging(effects, at=at, error=None if end == "succeeds" else end)
    first = asyncio.create_task(drive(journal, [slow], ttl_ms=TTL_S * 1000))
    await at[0].wait()
    clock.pass_ms(TTL_S * 1_500)
    assert (await drive(journal, [charging(effects)], run_id="b", ttl_ms=TTL_S * 1000)).text == "done"
    assert await held(journal) == ("b", "s0p0", "done")
    at[1].set()
    return first


@pytest.mark.parametrize("end", [NotPerformedError("no"), "succeeds"], ids=["not performed", "succeeds"])
async def test_the_end_of_a_call_changes_no_marker_that_others_hold_by_then(journal, effects, at, clock, end):
    first = await interrupted(journal, effects, at, clock, end)
    assert (await first).text == "done", "and its own record is written all the same"
    record = (await get(journal, keys.tool("a", keys.ROOT, 0, 0))).value
    assert record["status"] == ("succeeded" if end == "succeeds" else "failed")
    assert await held(journal) == ("b", "s0p0", "done")
    done = effects.count()
    (question,) = (await drive(journal, [charging(effects)], run_id="c", ttl_ms=TTL_S * 1000)).interrupts
    assert (question.kind, question.prior["run_id"], effects.count()) == ("duplicate", "b", done)


@pytest.mark.parametrize("settled_by", ["recover", "person"])
async def test_a_doubt_that_is_settled_late_changes_no_marker_that_others_hold_by_then(
    journal, effects, at, clock, settled_by
):
    stuck = charging(effects, at=at, timeout=0.05)
    with pytest.raises(StepTimeoutError):
        await drive(journal, [stuck], ttl_ms=TTL_S * 1000)
    clock.pass_ms(3_600_000)
    await drive(journal, [charging(effects)], run_id="b", ttl_ms=TTL_S * 1000)
    known = {"recover": lambda amount: {"done": True, "output": "receipt"}} if settled_by == "recover" else {}
    if settled_by == "person":
        with pytest.raises(SideEffectRetryBlockedError):
            await drive(journal, [charging(effects)], ttl_ms=TTL_S * 1000)
        await decide(journal, "a/s0p0/in_doubt/1", False, output="receipt")
    result = await drive(journal, [charging(effects, **known)], ttl_ms=TTL_S * 1000)
    assert (result.steps[0].calls[0].output, effects.count()) == ("receipt", 1)
    assert await held(journal) == ("b", "s0p0", "done")


async def test_a_second_attempt_ends_its_own_marker(journal, effects, at, clock):
    with pytest.raises(StepTimeoutError):
        await drive(journal, [charging(effects, at=at, timeout=0.05)])
    assert await held(journal) == ("a", "s0p0", "in_flight")
    clock.pass_ms(3_600_000)
    await decide(journal, "a/s0p0/in_doubt/1", True)
    assert (await drive(journal, [charging(effects)])).text == "done"
    assert (await held(journal), effects.count()) == (("a", "s0p0", "done"), 1)


# A second attempt that is taken back ----------------------------------------------------------------------------------


async def taken_back(journal, effects, tools, turns=BOTH, **options):
    """Drive a step whose first call is claimed, and cancel it while its sibling waits for the guard."""
    asked = asyncio.Event()

    async def guard(call):
        if call.tool_name == "ship":
            asked.set()
            await asyncio.Event().wait()
        return Allow()

    task = asyncio.create_task(drive(journal, tools, turns, guard=guard, **options))
    await asked.wait()
    assert (await get(journal, keys.tool("a", keys.ROOT, 0, 0))).value["status"] == "running"
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_taking_back_the_second_attempt_of_a_doubt_leaves_its_marker_under_way(journal, effects, at, clock):
    def guard(call):
        return RequireApproval("ship it?") if call.tool_name == "ship" else Allow()

    stuck = [charging(effects, at=at, timeout=0.05), shipping(effects)]
    with pytest.raises(StepTimeoutError):
        await drive(journal, stuck, BOTH, guard=guard)
    await decide(journal, "a/s0p0/in_doubt/1", True)
    await decide(journal, "a/s0p1/guard/0", True)
    clock.pass_ms(3_600_000)
    tools = [charging(effects), shipping(effects)]
    await taken_back(journal, effects, tools)
    assert (await get(journal, keys.tool("a", keys.ROOT, 0, 0))).value["status"] == "in_doubt"
    assert await held(journal) == ("a", "s0p0", "in_flight")
    (question,) = (await drive(journal, tools, run_id="b")).interrupts
    assert (question.kind, question.prior["run_id"], question.prior["in_flight"]) == ("duplicate", "a", True)
    assert effects.count() == 0


async def test_taking_back_a_first_attempt_frees_its_marker(journal, effects):
    tools = [charging(effects), shipping(effects)]
    await taken_back(journal, effects, tools)
    assert await held(journal) == ("a", "s0p0", "released")
    assert (await drive(journal, tools, run_id="b")).text == "done"
    assert effects.count() == 1
