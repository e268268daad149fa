"""A plain tool that does the same work once, without any run."""

import asyncio
import subprocess
import sys
import textwrap

import pytest

from gnl_core import (
    Context,
    args_hash,
    keys,
    run_durable,
    tool,
)
from gnl_core.ambient import with_idempotency
from gnl_core.errors import (
    ConfigError,
    IdempotencyOwnerMismatchError,
    ResultNotRepresentableError,
    ToolError,
)
from gnl_core.journal import get
from gnl_core.testing.scripted import ScriptedModel

WORK = keys.xrun_args("charge", args_hash({"order": 1}))


def charging(effects, **options):
    @tool(**options)
    async def charge(ctx: Context, order: int, note: str = "") -> dict:
        """Charge an order."""
        return effects.fire("charge", f"order-{order}", {"receipt": order})

    return charge


async def record(journal, key=WORK):
    return (await get(journal, key)).value


async def test_equal_arguments_are_the_same_work_and_others_are_not(journal, effects):
    charge = with_idempotency(charging(effects), journal)
    assert [await charge(order=n) for n in (1, 1, 2, 1)] == [{"receipt": n} for n in (1, 1, 2, 1)]
    assert effects.counts() == {"charge order-1": 1, "charge order-2": 1}


async def test_a_plain_function_will_do_and_a_key_names_the_work(journal, effects):
    def send(to: str, text: str) -> str:
        """Send."""
        return effects.fire("send", to, f"to {to}: {text}")

    plain = with_idempotency(send, journal)
    assert [await plain(to="ann", text="hi"), await plain(text="hi", to="ann")] == ["to ann: hi"] * 2
    keyed = with_idempotency(tool(name="keyed", idempotency_key=lambda args: args["to"])(send), journal)
    assert [await keyed(to="ann", text="hi"), await keyed(to="ann", text="again")] == ["to ann: hi"] * 2
    assert effects.count() == 2


async def test_l27_a_thousand_hits_add_no_row(journal, rows, effects):
    charge = with_idempotency(charging(effects), journal)
    await charge(order=1)
    before = await rows.all()
    assert [keys.decode(key)[0] for key in before] == ["xrun"]
    for _ in range(1000):
        assert await charge(order=1) == {"receipt": 1}
    assert await rows.all() == before
    assert effects.count() == 1


async def test_a_run_and_a_plain_call_share_one_work(journal, effects):
    made = charging(effects, idempotency="args", window="cross-run")
    charge = with_idempotency(made, journal)
    assert await charge(order=1) == {"receipt": 1}
    script = ScriptedModel([[("charge", {"order": 1}), ("charge", {"order": 2})], "Done."])
    result = await run_durable(run_id="r", journal=journal, model=script, tools=[made], prompt="Go.")
    assert [call.output for call in result.steps[0].calls] == [{"receipt": 1}, {"receipt": 2}]
    assert await charge(order=2) == {"receipt": 2}
    assert effects.count() == 2


async def test_the_thread_window_is_one_conversation(journal, effects):
    made = charging(effects)
    for thread in ("t", "t", "u"):
        await with_idempotency(made, journal, window="thread", thread_id=thread)(order=1)
    assert effects.count() == 2


async def test_what_the_body_sees(journal):
    seen = []

    @tool
    def charge(ctx: Context, order: int) -> str:
        """Charge."""
        seen.append((ctx.idempotency_key, ctx.resource_id, ctx.thread_id, ctx.tool_name, ctx.attempt))
        return "ok"

    await with_idempotency(charge, journal, resource_id="ann")(order=1)
    await with_idempotency(charge, journal, window="thread", thread_id="t")(order=1)
    hashed = args_hash({"order": 1})
    assert seen == [(f"charge:{hashed}", "ann", None, "charge", 1), (f"thr:t:charge:{hashed}", None, "t", "charge", 1)]


async def test_l30_another_persons_record_is_refused(journal, effects):
    made = charging(effects)
    await with_idempotency(made, journal, resource_id="ann")(order=1)
    for other in ("bob", None):
        with pytest.raises(IdempotencyOwnerMismatchError):
            await with_idempotency(made, journal, resource_id=other)(order=1)
    assert effects.count() == 1


@pytest.mark.parametrize(
    ("options", "given", "words"),
    [
        ({}, {"window": "run"}, "'cross-run' or 'thread'"),
        ({}, {"window": "thread"}, "thread_id"),
        ({}, {"window": "thread", "thread_id": ""}, "thread_id"),
        ({}, {"window": "for ever"}, "window"),
        ({}, {"thread_id": "two words", "window": "thread"}, "thread_id"),
        ({}, {"resource_id": "two words"}, "resource_id"),
        ({"confirm": True}, {}, "nobody can be asked"),
    ],
)
def test_what_cannot_be_is_refused_where_it_is_made(journal, effects, options, given, words):
    with pytest.raises(ConfigError, match=words):
        with_idempotency(charging(effects, **options), journal, **given)


async def test_arguments_that_do_not_fit_reach_no_body_and_no_row(journal, rows, effects):
    charge = with_idempotency(charging(effects), journal)
    for given in ({"order": "many"}, {}, {"order": 1, "no_such": 2}):
        with pytest.raises(ToolError):
            await charge(**given)
    assert (await rows.all(), effects.count()) == ({}, 0)


async def test_a_result_that_cannot_be_kept_is_handed_out_once_and_done_all_the_same(journal, effects):
    @tool
    def charge(order: int) -> object:
        """Charge."""
        return effects.fire("charge", f"order-{order}", None) or object()

    run = with_idempotency(charge, journal)
    with pytest.raises(ResultNotRepresentableError) as lost:
        await run(order=1)
    assert type(lost.value.output) is object
    assert (await record(journal))["status"] == "succeeded"
    await run(order=1)
    assert effects.count() == 1


# Races -------------------------------------------------------------------------------------------------------------


async def test_callers_at_once_wait_for_the_one_result(journal, effects):
    looked, all_looked = [], asyncio.Event()

    class Seen:
        """Tells when each of ten callers has looked for the record."""

        def __getattr__(self, name):
            return getattr(journal, name)

        async def get_many(self, wanted):
            if list(wanted) == [WORK]:
                looked.append(asyncio.current_task())
            if len(set(looked)) == 10:
                all_looked.set()
            return await journal.get_many(wanted)

    @tool
    async def charge(order: int) -> dict:
        """Charge, once all have looked."""
        async with asyncio.timeout(30):
            await all_looked.wait()
        return effects.fire("charge", f"order-{order}", {"receipt": order})

    run = with_idempotency(charge, Seen())
    assert await asyncio.gather(*(run(order=1) for _ in range(10))) == [{"receipt": 1}] * 10
    assert effects.count() == 1


async def test_work_that_ends_while_it_is_looked_at_is_no_doubt(journal, effects):
    entered, go_on = asyncio.Event(), asyncio.Event()

    @tool
    async def charge(order: int) -> dict:
        """Charge, slowly."""
        entered.set()
        await go_on.wait()
        return effects.fire("charge", f"order-{order}", {"receipt": order})

    first = asyncio.ensure_future(with_idempotency(charge, journal)(order=1))
    await entered.wait()

    class Late:
        """Lets the first caller end between the read of its record and what is made of it."""

        def __getattr__(self, name):
            return getattr(journal, name)

        async def get_many(self, wanted):
            read = await journal.get_many(wanted)
            if list(wanted) == [WORK]:
                go_on.set()
                await first
            return read

    assert await with_idempotency(charge, Late())(order=1) == {"receipt": 1}
    assert effects.count() == 1


async def test_processes_at_once_do_the_work_once(place, common, effects):
    program = f"""
        import asyncio, gnl_core, pathlib, sys, time
        from gnl_core import with_idempotency
        from gnl_core.testing.effects import EffectLog

        class Seen:
            def __init__(self, journal):
                self.journal, self.told = journal, False

            def __getattr__(self, name):
                return getattr(self.journal, name)

            async def get_many(self, wanted):
                if not self.told:
                    print("looks", flush=True)
                self.told = True
                return await self.journal.get_many(wanted)

        def charge(order: int) -> dict:
            while not pathlib.Path({str(place / "go")!r}).exists():
                time.sleep(0.002)
            return EffectLog({str(effects.path)!r}).fire("charge", f"order-{{order}}", {{"receipt": order}})

        async def main():
            async with {common.spelled} as storage:
                run = with_idempotency(charge, Seen(storage.runs))
                print("ready", flush=True)
                sys.stdin.readline()
                print(await run(order=1), flush=True)

        asyncio.run(main())
    """
    async with common.open() as storage:
        await storage.runs.now()
    children = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", textwrap.dedent(program), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for _ in range(3)
    ]
    for child in children:
        assert await child.stdout.readline() == b"ready\n"
    for child in children:
        child.stdin.write(b"\n")
    for child in children:
        assert await child.stdout.readline() == b"looks\n"
    (place / "go").touch()
    assert [(await child.communicate())[0] for child in children] == [b"{'receipt': 1}\n"] * 3
    assert effects.count() == 1


async def test_a_caller_that_is_cancelled_before_its_body_began_leaves_the_work_free(journal, effects):
    claiming = asyncio.Event()

    class Slow:
        def __getattr__(self, name):
            return getattr(journal, name)

        async def apply(self, ops, *, batch):
            claiming.set()
            await asyncio.sleep(0)
            return await journal.apply(ops, batch=batch)

    task = asyncio.ensure_future(with_idempotency(charging(effects), Slow())(order=1))
    await claiming.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert effects.count() == 0
    assert await with_idempotency(charging(effects), journal)(order=1) == {"receipt": 1}
