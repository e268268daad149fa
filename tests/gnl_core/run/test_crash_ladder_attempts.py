"""How often a call begins, all in all: processes that die in its body, failures, takeovers, two drivers at once."""

import asyncio
import dataclasses
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from gnl_core import (
    Context,
    SideEffectRetryBlockedError,
    decide,
    keys,
    list_interrupts,
    run_durable,
    tool,
)
from gnl_core.errors import NotPerformedError, RetryLimitExceededError, RunBusyError, RunFencedError
from gnl_core.journal import Create, Replace
from gnl_core.owner import new_owner, register, unregister
from gnl_core.testing.faulty import FaultyJournal
from gnl_core.testing.scripted import ScriptedModel

ROOT = Path(__file__).parents[3]
KEY = keys.encode(keys.tool("r", "~", 0, 0))


def charging(effects, *, fails=0, **options):
    @tool(**options)
    def charge(amount: int, ctx: Context) -> str:
        effects.fire("charge", ctx)
        if effects.fired <= fails:
            raise RuntimeError("the line went dead")
        return f"receipt, attempt {ctx.attempt}"

    return charge


async def drive(journal, charge, **options):
    model = ScriptedModel([[("charge", {"amount": 1})], "done"])
    return await run_durable(run_id="r", journal=journal, model=model, tools=[charge], prompt="pay", **options)


def told(result):
    (message,) = [message for message in result.messages if message.role == "tool"]
    return message.parts[0].text


# Failures ------------------------------------------------------------------------------------------------------------


async def test_line_18_the_first_failure_is_told_to_the_model_and_the_next_drive_asks(journal, rows, effects):
    charge = charging(effects, fails=1)
    first = await drive(journal, charge)
    assert (first.text, told(first)) == ("done", "RuntimeError: the line went dead")
    kept = (await rows.values())[KEY][0]
    assert (kept["status"], kept["attempts"], kept["error"]["type"]) == ("failed", 1, "RuntimeError")
    for _ in range(2):
        with pytest.raises(SideEffectRetryBlockedError) as blocked:
            await drive(journal, charge)
    assert blocked.value.detail["attempts"] == 1
    assert (await rows.values())[KEY][0] == kept, "a blocked drive writes no attempt"
    assert effects.count() == 1


async def test_line_15_a_tool_that_always_fails_begins_as_often_as_it_may(journal, rows, effects):
    charge = charging(effects, fails=99, idempotent=True, side_effect=True, max_retries=3)
    for _ in range(3):
        await drive(journal, charge)
    for _ in range(3):
        with pytest.raises(RetryLimitExceededError) as over:
            await drive(journal, charge)
        assert (over.value.detail["attempts"], over.value.detail["max_retries"]) == (3, 3)
    assert ((await rows.values())[KEY][0]["attempts"], effects.count()) == (3, 3)
    # The way out that the message names: raise it.
    await drive(journal, charging(effects, fails=99, idempotent=True, side_effect=True, max_retries=4))
    assert effects.count() == 4


async def test_no_yes_of_a_person_lifts_the_limit_and_their_own_result_ends_it(journal, effects):
    charge = charging(effects, fails=9, max_retries=2)
    await drive(journal, charge)
    await decide(journal, "r/s0p0/in_doubt/1", True)
    await drive(journal, charge)
    await decide(journal, "r/s0p0/in_doubt/2", True)
    for _ in range(2):
        with pytest.raises(RetryLimitExceededError):
            await drive(journal, charge)
    assert effects.count() == 2
    await decide(journal, "r/s0p0/in_doubt/2", False, output="by hand")
    assert told(await drive(journal, charge)) == "by hand"
    assert effects.count() == 2


async def test_lookup_is_asked_before_a_first_begin_only(journal, effects):
    asked = []

    def lookup(amount: int):
        asked.append(amount)
        return {"exists": False}

    charge = charging(effects, fails=1, lookup=lookup, confirm=True)
    await drive(journal, charge)
    await decide(journal, "r/s0p0/confirm/0", True)
    await drive(journal, charge)
    await decide(journal, "r/s0p0/in_doubt/1", True)
    await drive(journal, charge)
    assert (asked, effects.count()) == ([1], 2)


async def test_lookup_that_finds_the_work_done_is_the_calls_result(journal, effects):
    charge = charging(effects, lookup=lambda amount: {"exists": True, "output": f"found {amount}"})
    for _ in range(2):
        assert told(await drive(journal, charge)) == "found 1"
    assert effects.count() == 0


@pytest.mark.parametrize("answer", [None, {"exists": 1}, {"found": True}, OSError("away")])
async def test_lookup_that_says_nothing_does_not_keep_the_call_from_running(journal, effects, answer):
    def lookup(amount: int):
        if isinstance(answer, Exception):
            raise answer
        return answer

    result = await drive(journal, charging(effects, lookup=lookup))
    assert (result.text, effects.count()) == ("done", 1)
    assert [warning for warning in result.warnings if "lookup" in warning]


async def test_a_body_that_says_nothing_happened_is_in_no_doubt(journal):
    @tool
    def charge(amount: int) -> str:
        raise NotPerformedError("the card is unknown")

    for _ in range(2):
        assert told(await drive(journal, charge)) == "NotPerformedError: the card is unknown"
    assert await list_interrupts(journal, "r") == []


async def test_line_21_the_recorded_next_step_is_replayed_though_the_result_is_another_now(journal, effects):
    charge = charging(effects, fails=1)
    await drive(journal, charge)
    await decide(journal, "r/s0p0/in_doubt/1", True)
    for _ in range(2):
        result = await drive(journal, charge, replay="strict")
        assert (told(result), result.text) == ("receipt, attempt 2", "done")
        assert any("messages" in warning for warning in result.warnings), "it is said, and does not stop the run"
    assert effects.count() == 2


# Real deaths ---------------------------------------------------------------------------------------------------------

DYING = """
import asyncio, gnl_core, os, sys
from gnl_core import Context, run_durable, tool
from gnl_core.testing.effects import EffectLog
from gnl_core.testing.scripted import ScriptedModel
store, effects, declared = sys.argv[1], EffectLog(sys.argv[2]), eval(sys.argv[3])

@tool(**declared)
def charge(amount: int, ctx: Context) -> str:
    effects.fire("charge", ctx)
    os._exit(9)

async def main():
    async with eval(store) as storage:
        model = ScriptedModel([[("charge", {"amount": 1})], "done"])
        await run_durable(run_id="r", journal=storage.runs, model=model, tools=[charge], prompt="pay")
asyncio.run(main())
"""


@pytest.fixture
def die(common, effects):
    """Drive the run in a process that dies in the tool's body, after its effect."""

    def go(**declared):
        arguments = [common.spelled, str(effects.path), repr(declared)]
        child = subprocess.run(
            [sys.executable, "-W", "error", "-c", textwrap.dedent(DYING), *arguments],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert child.returncode == 9, child.stderr

    return go


async def test_line_16_crashes_and_failures_count_as_one(common, die, effects):
    declared = {"idempotent": True, "side_effect": True, "max_retries": 3}
    die(**declared)
    die(**declared)
    async with common.open() as storage:
        charge = charging(effects, fails=9, **declared)
        await drive(storage.runs, charge)
        with pytest.raises(RetryLimitExceededError) as over:
            await drive(storage.runs, charge)
        assert (over.value.detail["attempts"], effects.count()) == (3, 3)


async def test_line_19_a_dead_driver_is_taken_over_at_once_and_the_doubt_is_asked_about(common, die, effects):
    die()
    async with common.open() as storage:
        journal = storage.runs
        (listed,) = await list_interrupts(journal)
        assert (listed.question, listed.args) == ("r/s0p0/in_doubt/1", {"amount": 1})
        lock = (await journal.get_many([keys.lock("r")])).entries[0]
        with pytest.raises(SideEffectRetryBlockedError) as blocked:
            await drive(journal, charging(effects))
        assert [one.question for one in blocked.value.interrupts] == ["r/s0p0/in_doubt/1"]
        after = (await journal.get_many([keys.lock("r")])).entries[0]
        assert after.version > lock.version
        assert after.value["released"] is True
        assert effects.count() == 1
        await decide(journal, listed.question, False, output="seen at the bank")
        assert told(await drive(journal, charging(effects))) == "seen at the bank"
        assert effects.count() == 1


@pytest.mark.parametrize("approved", [True, False])
async def test_s30_a_yes_to_a_doubt_is_spent_by_the_attempt_that_dies(common, die, effects, approved):
    die()
    async with common.open() as storage:
        await decide(storage.runs, "r/s0p0/in_doubt/1", True)
    die()
    async with common.open() as storage:
        with pytest.raises(SideEffectRetryBlockedError) as blocked:
            await drive(storage.runs, charging(effects))
        (question,) = blocked.value.interrupts
        assert (question.question, effects.count()) == ("r/s0p0/in_doubt/2", 2)
        await decide(storage.runs, question.question, approved)
        await drive(storage.runs, charging(effects))
        assert effects.count() == (3 if approved else 2)


# Two drivers ---------------------------------------------------------------------------------------------------------


async def test_line_12_two_drivers_of_one_doubt_run_it_once(common, die, effects):
    die()
    async with common.open() as one, common.open() as two:
        await decide(one.runs, "r/s0p0/in_doubt/1", True)
        charge = charging(effects)
        results = await asyncio.gather(
            *(drive(storage.runs, charge) for storage in (one, two, one, two)), return_exceptions=True
        )
        won = [result for result in results if not isinstance(result, BaseException)]
        assert all(isinstance(result, RunBusyError) for result in results if isinstance(result, BaseException))
        assert won
        assert {told(result) for result in won} == {"receipt, attempt 2"}
        assert effects.count() == 2, "the one that died, and one more"


class Overtaking(FaultyJournal):
    """Lets another worker do something right before the batch that claims a call."""

    def __init__(self, inner, meanwhile):
        super().__init__(inner)
        self.meanwhile = meanwhile

    async def apply(self, ops, *, batch):
        claims = [
            op
            for op in ops
            if isinstance(op, Create | Replace) and op.key[3:4] == ("tool",) and op.value.get("status") == "running"
        ]
        if claims and self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            await meanwhile()
        return await super().apply(ops, batch=batch)


async def test_line_13_a_record_that_is_settled_meanwhile_is_never_written_over(journal, rows, effects):
    charge = charging(effects, fails=1)
    await drive(journal, charge)
    await decide(journal, "r/s0p0/in_doubt/1", True)

    async def settle():
        await rows.change(KEY, status="succeeded", output="the other one's receipt")

    result = await drive(Overtaking(journal, settle), charge)
    assert told(result) == "the other one's receipt"
    assert effects.count() == 1


async def test_line_17_attempts_that_rose_meanwhile_are_counted_from_the_fresh_row(journal, rows, effects):
    charge = charging(effects, fails=1, idempotent=True, side_effect=True, max_retries=3)
    await drive(journal, charge)

    async def rise():
        await rows.change(KEY, attempts=2)

    assert told(await drive(Overtaking(journal, rise), charge)) == "receipt, attempt 3"


async def test_recover_is_asked_once_a_drive_also_where_the_call_walks_again(journal, rows, effects):
    asked = []

    def recover(amount: int):
        asked.append(amount)
        return {"done": False}

    charge = charging(effects, fails=1, recover=recover)
    await drive(journal, charge)

    async def touch():
        await rows.change(KEY)

    assert told(await drive(Overtaking(journal, touch), charge)) == "receipt, attempt 2"
    assert (asked, effects.count()) == ([1], 2)


@pytest.mark.parametrize("ended", [True, False])
@pytest.mark.parametrize("here", [True, False])
@pytest.mark.parametrize("over", [True, False])
async def test_nothing_begins_beside_a_body_that_may_be_executing(journal, rows, effects, here, ended, over):
    charge = charging(effects, fails=1)
    await drive(journal, charge)
    owner = new_owner() if here else dataclasses.replace(new_owner(), boot="another-kernel")
    register(owner)
    began = await journal.now() - (60_001 if over else 0)
    doubt = {"status": "in_doubt", "owner": owner.to_json(), "ttl_ms": 60_000, "started_at": began}
    await rows.change(KEY, **doubt, ended=ended)
    await decide(journal, "r/s0p0/in_doubt/1", True)
    # What a body whose own code has ended left in threads has its claim's time; so has a body that cannot be seen. One
    # that can is waited for.
    try:
        if over and (ended or not here):
            assert told(await drive(journal, charge)) == "receipt, attempt 2"
        else:
            with pytest.raises(RunBusyError, match=f"this very process .pid {owner.pid}" if here else "host") as busy:
                await drive(journal, charge)
            assert busy.value.detail["pid"] == owner.pid
            assert effects.count() == 1
    finally:
        unregister(owner)


async def test_line_54_a_no_that_comes_right_before_the_claim_wins(journal, effects):
    charge = charging(effects, confirm=True)
    await drive(journal, charge)
    await decide(journal, "r/s0p0/confirm/0", True, actor="ana")

    async def refuse():
        await decide(journal, "r/s0p0/confirm/0", False, actor="bob")

    result = await drive(Overtaking(journal, refuse), charge)
    assert (effects.count(), result.interrupts) == (0, ())
    assert "refused this call" in told(result)


async def test_line_14_a_worker_that_lost_its_run_leaves_evidence_and_no_record(journal, rows, effects):
    entered, go_on = asyncio.Event(), asyncio.Event()

    @tool
    async def charge(amount: int, ctx: Context) -> str:
        effects.fire("charge", ctx)
        entered.set()
        await go_on.wait()
        return "late receipt"

    slow = asyncio.ensure_future(drive(journal, charge))
    await entered.wait()
    # Another worker takes the run for dead, and a person's result settles the call under it.
    await rows.change(keys.encode(keys.lock("r")), released=True)
    await rows.change(KEY, status="succeeded", output="the new owner's")
    go_on.set()
    with pytest.raises(RunFencedError):
        await slow
    kept = await rows.values()
    assert kept[KEY][0]["output"] == "the new owner's"
    (evidence,) = [value for key, (value, _) in kept.items() if "/evidence/" in key]
    assert (evidence["ok"], evidence["output"]) == (True, "late receipt")
    assert told(await drive(journal, charge)) == "the new owner's"
    assert effects.count() == 1


async def test_a_released_claim_begins_afresh_and_keeps_its_count(journal, rows, effects):
    charge = charging(effects, fails=1)
    await drive(journal, charge)
    await rows.change(KEY, status="released")
    assert told(await drive(journal, charge)) == "receipt, attempt 2"
    assert effects.count() == 2
