"""What a plain call leaves in doubt, and how an operator frees or settles it."""

import asyncio
import logging
import subprocess
import sys
import textwrap
import threading

import pytest

from gnl_core import (
    Context,
    args_hash,
    keys,
    list_interrupts,
    release_failed_claim,
    run_durable,
    tool,
)
from gnl_core.ambient import with_idempotency
from gnl_core.errors import (
    ConfigError,
    NotCanonicalError,
    NotPerformedError,
    RefusedError,
    SideEffectRetryBlockedError,
    StepTimeoutError,
    ToolError,
)
from gnl_core.journal import get
from gnl_core.testing.scripted import ScriptedModel

WORK = keys.xrun_args("charge", args_hash({"order": 1}))


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


async def record(journal, key=WORK):
    return (await get(journal, key)).value


# Failures and doubts -----------------------------------------------------------------------------------------------


async def test_a_failure_is_raised_and_then_in_doubt_until_an_operator_frees_it(journal, effects):
    class PaymentError(Exception):
        pass

    down = True

    @tool
    async def charge(order: int) -> dict:
        """Charge."""
        effects.fire("charge", f"order-{order}")
        if down:
            raise PaymentError("declined")
        return {"receipt": order}

    run = with_idempotency(charge, journal)
    with pytest.raises(ToolError, match="declined") as failed:
        await run(order=1)
    assert failed.value.type == "PaymentError"
    for _ in range(2):
        with pytest.raises(SideEffectRetryBlockedError, match="release_failed_claim") as blocked:
            await run(order=1)
        assert blocked.value.detail["question"] == ""
    assert (effects.count(), await list_interrupts(journal)) == (1, [])
    assert await release_failed_claim(journal, tool_name="charge", args={"order": 1}) is True
    down = False
    assert await run(order=1) == {"receipt": 1}
    assert effects.count() == 2


async def test_what_did_not_happen_for_sure_is_tried_again_and_freed_where_it_was_tried_too_often(journal, effects):
    begun = []

    @tool(max_retries=2)
    async def charge(order: int) -> str:
        """Charge."""
        begun.append(order)
        if len(begun) < 3:
            raise NotPerformedError("the bank is closed")
        return effects.fire("charge", f"order-{order}", "paid")

    run = with_idempotency(charge, journal)
    for tries in (1, 2, 2):
        with pytest.raises(ToolError, match="the bank is closed"):
            await run(order=1)
        assert len(begun) == tries
    assert await release_failed_claim(journal, tool_name="charge", args={"order": 1}) is True
    assert [await run(order=1), await run(order=1)] == ["paid", "paid"]
    assert (len(begun), effects.count()) == (3, 1)
    with pytest.raises(RefusedError):
        await release_failed_claim(journal, tool_name="charge", args={"order": 1})


async def test_a_read_that_failed_is_done_again(journal):
    reads = []

    @tool(side_effect=False)
    async def stock(order: int) -> int:
        """Read."""
        reads.append(order)
        if len(reads) == 1:
            raise ConnectionError("lost")
        return 3

    run = with_idempotency(stock, journal)
    with pytest.raises(ToolError):
        await run(order=1)
    assert [await run(order=1), await run(order=1)] == [3, 3]
    assert reads == [1, 1]


async def test_recover_settles_a_doubt_and_runs_nothing(journal, effects):
    async def recover(order: int):
        return {"done": True, "output": {"receipt": order}}

    @tool(recover=recover)
    async def charge(order: int) -> dict:
        """Charge and fail."""
        effects.fire("charge", f"order-{order}")
        raise ConnectionError("lost")

    run = with_idempotency(charge, journal)
    with pytest.raises(ToolError):
        await run(order=1)
    assert [await run(order=1), await run(order=1)] == [{"receipt": 1}] * 2
    assert effects.count() == 1


async def test_s61_a_timeout_is_a_doubt_that_late_evidence_settles(journal, effects, release, appears, begun):
    @tool(timeout=0.02)
    def charge(order: int) -> dict:
        """Charge, late."""
        release.wait()
        return effects.fire("charge", f"order-{order}", {"receipt": order})

    run = with_idempotency(charge, journal)
    with pytest.raises(StepTimeoutError):
        await run(order=1)
    found = await record(journal)
    assert (found["status"], found["cause"]) == ("in_doubt", "timeout")
    release.set()
    evidence = keys.evidence(found["run"], keys.ROOT, "s0p0", 1)
    await appears(evidence)
    assert await run(order=1) == {"receipt": 1}
    assert effects.count() == 1


async def test_late_evidence_of_one_work_settles_no_other(journal, effects, release, appears, begun):
    hang = threading.Event()

    @tool(timeout=0.02)
    def charge(order: int) -> dict:
        """Charge late, or never."""
        if order != 1:
            hang.wait()
            return {}  # the test is over by then
        release.wait()
        return effects.fire("charge", f"order-{order}", {"receipt": order})

    other = with_idempotency(tool(name="refund", timeout=0.02)(charge.function), journal)
    thread = with_idempotency(charge, journal, window="thread", thread_id="t")
    run = with_idempotency(charge, journal)
    try:
        for call, order in ((run, 1), (run, 2), (other, 2), (thread, 2)):
            with pytest.raises(StepTimeoutError):
                await call(order=order)
        release.set()
        found = await record(journal)
        await appears(keys.evidence(found["run"], keys.ROOT, "s0p0", 1))
        assert await run(order=1) == {"receipt": 1}
        for call in (run, other, thread):
            with pytest.raises(Exception) as unknown:
                await call(order=2)
            assert unknown.value.code in ("run_busy", "side_effect_retry_blocked")
    finally:
        hang.set()


async def test_what_is_left_behind_late_makes_no_run_appear(journal, effects, release, appears, begun):
    @tool(timeout=0.02)
    def charge(order: int) -> dict:
        """Charge, late."""
        release.wait()
        return effects.fire("charge", f"order-{order}", {"receipt": order})

    with pytest.raises(StepTimeoutError):
        await with_idempotency(charge, journal)(order=1)
    release.set()
    evidence = keys.evidence((await record(journal))["run"], keys.ROOT, "s0p0", 1)
    await appears(evidence)
    assert await list_interrupts(journal) == []


async def test_a_run_that_meets_a_plain_calls_doubt_is_told_the_way_out(journal, effects):
    made = tool(name="charge", idempotency="args", window="cross-run")

    async def body(order: int) -> dict:
        """Charge and fail."""
        effects.fire("charge", f"order-{order}")
        raise ConnectionError("lost")

    charge = made(body)
    with pytest.raises(ToolError):
        await with_idempotency(charge, journal)(order=1)
    script = [[("charge", {"order": 1})], "Done."]
    options = {"run_id": "r", "journal": journal, "tools": [charge], "prompt": "Go."}
    with pytest.raises(SideEffectRetryBlockedError, match="release_failed_claim") as blocked:
        await run_durable(model=ScriptedModel(script), **options)
    assert blocked.value.interrupts == ()
    await release_failed_claim(journal, tool_name="charge", args={"order": 1}, output={"receipt": 1})
    result = await run_durable(model=ScriptedModel(script), **options)
    assert [call.output for call in result.steps[0].calls] == [{"receipt": 1}]
    assert effects.count() == 1


async def test_a_process_killed_inside_the_body_is_a_doubt(common, effects):
    program = f"""
        import asyncio, gnl_core, os
        from gnl_core import with_idempotency
        from gnl_core.testing.effects import EffectLog

        def charge(order: int) -> dict:
            EffectLog({str(effects.path)!r}).fire("charge", f"order-{{order}}")
            os._exit(9)

        asyncio.run(with_idempotency(charge, {common.spelled}.runs)(order=1))
    """
    killed = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", textwrap.dedent(program)], check=False)
    assert killed.returncode == 9
    async with common.open() as storage:
        run = with_idempotency(charging(effects), storage.runs)
        for _ in range(2):
            with pytest.raises(SideEffectRetryBlockedError):
                await run(order=1)
        assert await release_failed_claim(storage.runs, tool_name="charge", args={"order": 1}, output=7) is True
        assert await run(order=1) == 7
    assert effects.count() == 1


# release_failed_claim ----------------------------------------------------------------------------------------------


async def test_l32_what_is_done_is_not_freed(journal, effects):
    await with_idempotency(charging(effects), journal)(order=1)
    with pytest.raises(RefusedError, match="succeeded"):
        await release_failed_claim(journal, tool_name="charge", args={"order": 1})


async def test_l32_what_is_not_there_is_false_and_names_its_siblings(journal, effects, caplog):
    await with_idempotency(charging(effects), journal)(order=1)
    with caplog.at_level(logging.WARNING):
        assert await release_failed_claim(journal, tool_name="charge", args={"order": 9}) is False
    assert keys.encode(WORK) in caplog.text


async def test_l32_what_runs_now_is_not_freed(journal, effects):
    entered, go_on = asyncio.Event(), asyncio.Event()

    @tool
    async def charge(order: int) -> dict:
        """Charge, slowly."""
        entered.set()
        await go_on.wait()
        return {"receipt": order}

    task = asyncio.ensure_future(with_idempotency(charge, journal)(order=1))
    await entered.wait()
    with pytest.raises(RefusedError, match="running"):
        await release_failed_claim(journal, tool_name="charge", args={"order": 1})
    go_on.set()
    assert await task == {"receipt": 1}


@pytest.mark.parametrize("given", [{"window": "run"}, {"window": "thread"}, {"window": "for ever"}])
async def test_a_window_that_is_not_possible(journal, given):
    with pytest.raises(ConfigError, match="window"):
        await release_failed_claim(journal, tool_name="charge", args={"order": 1}, **given)


async def test_it_frees_by_key_and_thread_and_refuses_an_output_that_cannot_be_stored(journal, effects):
    @tool(idempotency_key=lambda args: args["order"])
    async def charge(order: int, note: str = "") -> dict:
        """Charge and fail."""
        effects.fire("charge", f"order-{order}")
        raise ConnectionError("lost")

    with pytest.raises(ToolError):
        await with_idempotency(charge, journal, window="thread", thread_id="t")(order=1, note="x")
    where = {"tool_name": "charge", "args": {"order": 1, "note": "y"}, "window": "thread", "thread_id": "t"}
    assert await release_failed_claim(journal, **where) is False, "the tool names its work by a key"
    with pytest.raises(NotCanonicalError):
        await release_failed_claim(journal, key=1, output=object(), **where)
    assert await release_failed_claim(journal, key=1, **where) is True
    with pytest.raises(ToolError, match="lost"):
        await with_idempotency(charge, journal, window="thread", thread_id="t")(order=1)
    assert effects.count() == 2


async def test_a_claim_is_freed_once_by_two_operators(journal, effects):
    @tool
    async def charge(order: int) -> dict:
        """Charge and fail."""
        raise ConnectionError("lost")

    with pytest.raises(ToolError):
        await with_idempotency(charge, journal)(order=1)
    both = [release_failed_claim(journal, tool_name="charge", args={"order": 1}) for _ in range(2)]
    answers = await asyncio.gather(*both, return_exceptions=True)
    assert sorted(type(answer).__name__ for answer in answers) == ["RefusedError", "bool"]
