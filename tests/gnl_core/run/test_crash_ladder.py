"""A call that was begun and whose end nobody saw: evidence, a person, `recover`, and else a question; never a guess."""

import dataclasses
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gnl_core import (
    Context,
    RunBusyError,
    RunLimits,
    SideEffectRetryBlockedError,
    decide,
    keys,
    list_interrupts,
    run_durable,
    tool,
)
from gnl_core.canonical import args_hash
from gnl_core.errors import RunLimitExceededError
from gnl_core.journal import Put, new_batch
from gnl_core.owner import new_owner, read_owner
from gnl_core.records import CallRecord
from gnl_core.testing.scripted import ScriptedModel

ROOT = Path(__file__).parents[3]
DAY_MS = 86_400_000
KEY = keys.tool("r", "~", 0, 0)
OWNER = (
    "import json; from gnl_core.owner import new_owner; print(json.dumps(new_owner().to_json()), flush=True); input()"
)


@pytest.fixture
def journal(storage, clock):
    """The journal of the store, whose clock a test moves."""
    return clock.moved(storage.runs)


@pytest.fixture(scope="module")
def owners():
    """Owners of real processes: one that is gone, one that lives."""
    processes = []
    for _ in range(2):
        process = subprocess.Popen(
            [sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        processes.append((process, read_owner(json.loads(process.stdout.readline()))))
    (gone, dead), (_, alive) = processes
    gone.kill()
    gone.communicate()
    yield {"dead": dead, "alive": alive, "elsewhere": dataclasses.replace(new_owner(), boot="another-kernel")}
    processes[1][0].kill()
    processes[1][0].communicate()


def model():
    return ScriptedModel([[("charge", {"amount": 1})], "done"])


async def drive(journal, charge, **options):
    return await run_durable(run_id="r", journal=journal, model=model(), tools=[charge], prompt="pay", **options)


def charging(effects, *, fails=0, **options):
    @tool(**options)
    def charge(amount: int, ctx: Context) -> str:
        effects.fire("charge", ctx)
        if effects.fired <= fails:
            raise RuntimeError("the line went dead")
        return f"receipt {amount}, attempt {ctx.attempt}"

    return charge


def told(result):
    (message,) = [message for message in result.messages if message.role == "tool"]
    return message.parts[0].text


@pytest.fixture
def leave(journal, owners):
    """Leave call s0p0 of run 'r' as somebody's unfinished work."""

    async def go(owner="dead", *, status="running", attempts=1, ttl=30.0, **members):
        @tool
        def charge(amount: int) -> str:
            raise AssertionError("not called")

        # The model has asked for the call, and a limit let nothing begin: what follows is written by hand.
        with pytest.raises(RunLimitExceededError):
            await drive(journal, charge, limits=RunLimits(max_tool_calls=0))
        args = {"amount": 1}
        record = CallRecord(
            status=status,
            tool="charge",
            call="s0p0",
            args=args,
            digest=args_hash(args),
            side_effect=True,
            attempts=attempts,
            owner=owners[owner].to_json(),
            fence=1,
            ttl_ms=int(ttl * 1000),
            **members,
        )
        await journal.apply((Put(KEY, record.to_json()),), batch=new_batch())

    return go


@pytest.fixture
def again(journal):
    """Drive the run again, under limits that let calls begin."""

    async def go(charge, **options):
        return await drive(journal, charge, limits=RunLimits(), **options)

    return go


async def record(rows):
    return (await rows.values())[keys.encode(KEY)][0]


# Nobody knows --------------------------------------------------------------------------------------------------------


async def test_line_1_a_call_of_a_dead_owner_is_neither_run_nor_written(leave, again, rows, effects, journal):
    await leave()
    before = await record(rows)
    for _ in range(3):
        with pytest.raises(SideEffectRetryBlockedError) as blocked:
            await again(charging(effects))
        assert await record(rows) == before, "line 18: a blocked drive writes no attempt"
    detail = blocked.value.detail
    assert (detail["run_id"], detail["tool_call_id"], detail["tool"], detail["attempts"]) == ("r", "s0p0", "charge", 1)
    assert detail["question"] == "r/s0p0/in_doubt/1"
    entry = (await rows.all())[keys.encode(KEY)]
    assert detail["started_at"] == entry.updated_at, "the row was written when the call began"
    assert [one.question for one in blocked.value.interrupts] == [detail["question"]]
    assert [one.question for one in await list_interrupts(journal)] == [detail["question"]]
    assert effects.count() == 0


async def test_line_2_a_yes_runs_it_exactly_once_and_then_it_is_replayed(leave, again, journal, effects):
    await leave()
    await decide(journal, "r/s0p0/in_doubt/1", True)
    first = await again(charging(effects))
    assert told(first) == "receipt 1, attempt 2"
    assert told(await again(charging(effects))) == "receipt 1, attempt 2"
    assert effects.count() == 1


async def test_line_3_an_idempotent_tool_runs_again_without_a_question(leave, again, effects):
    await leave()
    assert told(await again(charging(effects, idempotent=True, side_effect=True))) == "receipt 1, attempt 2"
    assert effects.count() == 1


async def test_line_4_a_tool_that_says_nothing_is_a_side_effect(leave, again, effects):
    await leave()

    def charge(amount: int) -> str:
        effects.fire("charge", "plain")
        return "ran"

    with pytest.raises(SideEffectRetryBlockedError):
        await again(charge)
    assert effects.count() == 0


# Somebody may still be at it -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("owner", ["alive", "elsewhere"])
async def test_line_5_a_fresh_call_of_a_living_owner_is_busy(leave, again, effects, journal, rows, owner):
    await leave(owner, ttl=30)
    before = await record(rows)
    with pytest.raises(RunBusyError) as busy:
        await again(charging(effects))
    assert 1 <= busy.value.retry_after <= 30
    assert (busy.value.detail["tool_call_id"], effects.count()) == ("s0p0", 0)
    assert await list_interrupts(journal, "r") == [], "it is in no doubt yet"
    assert await record(rows) == before


@pytest.mark.parametrize("owner", ["alive", "elsewhere"])
async def test_a_claim_that_is_over_is_in_doubt_though_its_owner_may_live(leave, again, effects, clock, owner):
    await leave(owner, ttl=30)
    clock.pass_ms(29_000)
    with pytest.raises(RunBusyError) as busy:
        await again(charging(effects))
    assert busy.value.retry_after == 1
    clock.pass_ms(2_000)
    with pytest.raises(SideEffectRetryBlockedError):
        await again(charging(effects))
    assert effects.count() == 0


@pytest.mark.parametrize("jump_s", [-DAY_MS / 1000, DAY_MS / 1000], ids=["back", "ahead"])
async def test_line_6_age_is_the_stores_and_not_this_processes(leave, again, effects, monkeypatch, jump_s):
    await leave("alive")
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + jump_s)  # a store has its clock already
    with pytest.raises(RunBusyError) as busy:
        await again(charging(effects))
    assert 1 <= busy.value.retry_after <= 30
    assert effects.count() == 0


async def test_a_no_or_a_yes_is_refused_while_the_body_may_run(leave, journal):
    await leave("alive")
    for approved in (True, False):
        with pytest.raises(Exception, match="no question") as refused:
            await decide(journal, "r/s0p0/in_doubt/1", approved)
        assert refused.value.code == "unknown_question"


@pytest.mark.parametrize("owner", ["alive", "elsewhere"])
async def test_an_idempotent_tool_does_not_run_beside_its_own_body(leave, again, effects, clock, owner):
    await leave(owner)
    charge = charging(effects, idempotent=True, side_effect=True)
    with pytest.raises(RunBusyError):
        await again(charge)
    clock.pass_ms(31_000)
    if owner == "alive":
        with pytest.raises(RunBusyError, match="is alive, or stopped"):
            await again(charge)
        assert effects.count() == 0
    else:
        assert (await again(charge)).text == "done"
        assert effects.count() == 1


async def test_a_yes_waits_while_the_owner_is_known_to_be_alive_and_a_no_settles(
    leave, again, effects, clock, journal, owners
):
    await leave("alive")
    clock.pass_ms(31_000)
    with pytest.raises(SideEffectRetryBlockedError, match=f"process {owners['alive'].pid} of this host"):
        await again(charging(effects))
    await decide(journal, "r/s0p0/in_doubt/1", True)
    clock.pass_ms(DAY_MS)
    with pytest.raises(RunBusyError, match="end that process") as busy:
        await again(charging(effects))
    assert busy.value.detail["pid"] == owners["alive"].pid
    await decide(journal, "r/s0p0/in_doubt/1", False, output="receipt by hand")
    assert told(await again(charging(effects))) == "receipt by hand"
    assert effects.count() == 0


# Recover -------------------------------------------------------------------------------------------------------------


def recovering(effects, answer, *, mode="sync", fails=0, **options):
    """A charge whose recover gives an answer, or raises it; `asked` lists what recover was told."""
    asked = []

    def say(amount, ctx):
        asked.append((amount, ctx.idempotency_key, ctx.attempt))
        if isinstance(answer, BaseException):
            raise answer
        return answer

    async def later(amount: int, ctx: Context):
        return say(amount, ctx)

    def at_once(amount: int, ctx: Context):
        return say(amount, ctx)

    def in_a_coroutine(amount: int, ctx: Context):
        return later(amount, ctx)

    hook = {"sync": at_once, "async": later, "awaitable": in_a_coroutine}[mode]
    return charging(effects, fails=fails, recover=hook, **options), asked


@pytest.mark.parametrize("mode", ["sync", "async", "awaitable"])
@pytest.mark.parametrize("owner", ["dead", "alive", "elsewhere"])
async def test_line_8_recover_says_done_at_any_age(leave, again, rows, effects, owner, mode):
    await leave(owner)
    charge, asked = recovering(effects, {"done": True, "output": {"receipt": 9}}, mode=mode)
    result = await again(charge)
    assert told(result) == '{"receipt":9}'
    assert (result.text, effects.count()) == ("done", 0)
    assert asked == [(1, "r:s0p0", 1)]
    kept = await record(rows)
    assert (kept["status"], kept["settled_by"], kept["attempts"]) == ("succeeded", "recover", 1)
    await again(charge)
    assert len(asked) == 1, "it is settled for ever"


@pytest.mark.parametrize("mode", ["sync", "async", "awaitable"])
async def test_line_9_recover_says_not_done_and_it_runs_once(leave, again, effects, mode):
    await leave()
    charge, asked = recovering(effects, {"done": False}, mode=mode)
    assert told(await again(charge)) == "receipt 1, attempt 2"
    await again(charge)
    assert (effects.count(), len(asked)) == (1, 1)


async def test_not_done_is_believed_only_once_the_body_cannot_run_any_more(leave, again, effects, clock):
    await leave("elsewhere", ttl=30)
    charge, asked = recovering(effects, {"done": False})
    with pytest.raises(RunBusyError):
        await again(charge)
    assert (effects.count(), len(asked)) == (0, 1)
    clock.pass_ms(31_000)
    assert (await again(charge)).text == "done"
    assert (effects.count(), len(asked)) == (1, 2)


async def test_not_done_is_never_believed_while_the_owner_is_known_to_be_alive(leave, again, effects, clock):
    await leave("alive", ttl=30)
    charge, asked = recovering(effects, {"done": False})
    for passed_ms in (0, 31_000, DAY_MS):
        clock.pass_ms(passed_ms)
        with pytest.raises(RunBusyError):
            await again(charge)
    assert (effects.count(), len(asked)) == (0, 3)
    charge, asked = recovering(effects, {"done": True, "output": "found"})
    assert told(await again(charge)) == "found"


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize(
    "answer",
    [
        None,
        True,
        {},
        {"ok": True},
        {"done": "yes"},
        {"done": 1},
        {"done": True, "ouput": 1},
        [("done", True)],
        OSError("the provider is away"),
    ],
)
async def test_line_10_any_other_answer_is_none_and_a_person_is_asked(leave, again, journal, effects, answer, mode):
    await leave()
    charge, asked = recovering(effects, answer, mode=mode)
    for _ in range(2):
        with pytest.raises(SideEffectRetryBlockedError):
            await again(charge)
    assert (effects.count(), len(asked)) == (0, 2), "recover is asked again by the next drive"
    await decide(journal, "r/s0p0/in_doubt/1", True)
    result = await again(charge)
    assert (result.text, effects.count(), len(asked)) == ("done", 1, 2)


async def test_line_10_a_recover_that_broke_is_asked_again_for_the_next_call_of_the_tool(journal, effects):
    asked = []

    def recover(amount: int):
        asked.append(amount)
        if amount == 1:
            raise OSError("broken")
        return {"done": True, "output": "found"}

    charge = charging(effects, fails=2, recover=recover)
    script = [[("charge", {"amount": 1}), ("charge", {"amount": 2})], "done"]

    async def go():
        return await run_durable(
            run_id="r", journal=journal, model=ScriptedModel(script), tools=[charge], prompt="pay both"
        )

    first = await go()
    assert [call.status for call in first.steps[0].calls] == ["failed", "failed"]
    with pytest.raises(SideEffectRetryBlockedError) as blocked:
        await go()
    assert (asked, effects.count()) == ([1, 2], 2)
    assert [one.tool_call_id for one in blocked.value.interrupts] == ["s0p0"], "the other one is settled"


async def test_line_11_a_failed_call_that_recover_finds_done_is_done(journal, effects):
    charge, _ = recovering(effects, {"done": True, "output": "found"}, fails=1)
    assert (await drive(journal, charge)).steps[0].calls[0].status == "failed"
    result = await drive(journal, charge)
    assert (told(result), effects.count()) == ("found", 1)


async def test_recover_is_asked_before_a_harmless_warning_hides_it(leave, again, effects):
    await leave()
    charge, _ = recovering(effects, OSError("away"))
    with pytest.raises(SideEffectRetryBlockedError):
        await again(charge)
    charge, _ = recovering(effects, {"done": True, "output": "x"})
    result = await again(charge)
    assert told(result) == "x"
    assert result.warnings == () or all("recover" not in warning for warning in result.warnings)


# Evidence ------------------------------------------------------------------------------------------------------------


async def test_what_a_late_body_left_behind_settles_the_doubt(leave, again, rows, effects):
    await leave("alive")
    await rows.put(keys.evidence("r", "~", "s0p0", 1), {"f": 1, "ok": True, "tool": "charge", "output": "late receipt"})
    charge, asked = recovering(effects, {"done": False})
    result = await again(charge)
    assert (told(result), effects.count(), asked) == ("late receipt", 0, [])
    assert (await record(rows))["settled_by"] == "evidence"


async def test_evidence_outweighs_a_persons_yes_and_no(leave, again, journal, rows, effects):
    for approved in (True, False):
        await leave()
        await decide(journal, "r/s0p0/in_doubt/1", approved)
        await rows.put(keys.evidence("r", "~", "s0p0", 1), {"f": 1, "ok": True, "tool": "charge", "output": "late"})
        assert told(await again(charging(effects))) == "late"
        assert effects.count() == 0
        for key in await rows.all(keys.request("r")):
            await rows.delete(key)


@pytest.mark.parametrize("left", [{"f": 1, "ok": False, "tool": "charge", "error": {}}, {"f": 1}, True])
@pytest.mark.parametrize("owner", ["dead", "alive"])
async def test_evidence_of_a_failure_or_of_nothing_settles_nothing(leave, again, rows, effects, left, owner):
    await leave(owner)  # a body that has left evidence has ended, whatever else its process does
    await rows.put(keys.evidence("r", "~", "s0p0", 1), left)
    with pytest.raises(SideEffectRetryBlockedError):
        await again(charging(effects))
    assert effects.count() == 0


async def test_evidence_of_an_earlier_attempt_settles_no_later_one(leave, again, rows, effects):
    await leave(attempts=2)
    await rows.put(keys.evidence("r", "~", "s0p0", 1), {"f": 1, "ok": True, "tool": "charge", "output": "old"})
    with pytest.raises(SideEffectRetryBlockedError):
        await again(charging(effects))
