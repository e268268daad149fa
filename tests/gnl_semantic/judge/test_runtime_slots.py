"""What a request may pay for: so many calls, however it crashes, races or is resumed."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnl_core import keys
from gnl_core.journal import Put, new_batch
from gnl_core.journal.memory import InMemoryStorage
from gnl_core.testing import FaultyJournal
from gnl_semantic.judge import write_certificate
from gnl_semantic.judge.slots import take_slot


async def test_s53_two_calls_for_four_pairs(desk, judge_of, says):
    model = says("DIFFERENT")
    judge = judge_of(model, max_calls_per_run=2)
    causes = [(await desk.ask(judge, pair=pair)).cause for pair in range(4)]
    assert causes == ["", "", "budget", "budget"]
    assert model.calls == 2
    assert await desk.slots() == {0: "run-1/s0p0", 1: "run-1/s1p0"}


async def test_ten_calls_unless_said_otherwise(desk, judge_of, says):
    model = says("DIFFERENT")
    judge = judge_of(model)
    causes = [(await desk.ask(judge, pair=pair)).cause for pair in range(11)]
    assert causes == [""] * 10 + ["budget"]
    assert (model.calls, sorted(await desk.slots())) == (10, list(range(10)))


async def hang(system, user):
    await asyncio.Event().wait()


async def fail(system, user):
    raise ValueError


async def mumble(system, user):
    return "well"


@pytest.mark.parametrize(("complete", "cause"), [(hang, "timeout"), (fail, "error"), (mumble, "parse-fail")])
async def test_s54_what_comes_to_nothing_has_cost_the_only_call(desk, judge_of, says, complete, cause):
    assert (await desk.ask(judge_of(complete, max_calls_per_run=1, timeout=0.03))).cause == cause
    model = says("SAME")
    assert (await desk.ask(judge_of(model, max_calls_per_run=1))).cause == "budget"
    assert (await desk.ask(judge_of(model, max_calls_per_run=1), pair=1)).cause == "budget"
    assert model.calls == 0


async def test_s55_two_pairs_race_for_one_slot(desk, judge_of, says):
    model = says("SAME")
    judge = judge_of(model, max_calls_per_run=1)
    both = await asyncio.gather(desk.ask(judge, pair=1), desk.ask(judge, pair=2))
    assert sorted(one.cause for one in both) == ["", "budget"]
    assert (model.calls, len(await desk.slots())) == (1, 1)


async def test_many_at_once_pay_for_no_more_than_there_are(desk, judge_of, says):
    model = says("SAME")
    judge = judge_of(model, max_calls_per_run=5)
    many = await asyncio.gather(*(desk.ask(judge, pair=pair) for pair in range(12)))
    assert [one.cause for one in many].count("") == model.calls == 5
    assert sorted(await desk.slots()) == list(range(5))


async def test_a_resumed_request_goes_on_counting_and_another_one_has_its_own(desk, new_desk, judge_of, says):
    model = says("SAME")
    judge = judge_of(model, max_calls_per_run=1)
    await desk.ask(judge)
    resumed = await new_desk(desk.journal)
    assert resumed.fence != desk.fence
    assert (await resumed.ask(judge, pair=1)).cause == "budget"
    assert (await (await new_desk(desk.journal, "run-2")).ask(judge, pair=1)).cause == ""


async def test_a_smaller_budget_counts_the_calls_that_were_made(desk, judge_of, says):
    for pair in range(3):
        await desk.ask(judge_of(says("SAME"), max_calls_per_run=3), pair=pair)
    assert (await desk.ask(judge_of(says("SAME"), max_calls_per_run=2), pair=4)).cause == "budget"


async def test_a_thousand_calls_can_be_counted(desk):
    rows = [Put(keys.judge_slot(desk.root, number), {"f": 1}) for number in range(999)]
    await desk.journal.apply(rows, batch=new_batch())
    counting = FaultyJournal(desk.journal)
    assert await take_slot(desk.subject(journal=counting), 1000) == 999
    assert await take_slot(desk.subject(journal=counting), 1000) is None
    assert (counting.reads, counting.applies) == (2, 1)


class Slow:
    """A journal that lets others come in between wherever a schedule says so."""

    def __init__(self, journal, pauses):
        self._journal, self._pauses = journal, pauses

    async def _give_way(self):
        for _ in range(self._pauses.pop() if self._pauses else 0):
            await asyncio.sleep(0)

    async def get_many(self, wanted):
        read = await self._journal.get_many(wanted)
        await self._give_way()
        return read

    async def apply(self, ops, *, batch):
        await self._give_way()
        return await self._journal.apply(ops, batch=batch)


@settings(deadline=None, max_examples=60)
@given(
    limit=st.integers(1, 6),
    schedules=st.lists(st.lists(st.integers(0, 4), max_size=8), min_size=1, max_size=8),
    used=st.sets(st.integers(0, 7)),
)
def test_no_slot_is_ever_handed_out_twice(new_desk, limit, schedules, used):
    async def race():
        desk = await new_desk(InMemoryStorage().runs)
        planted = [Put(keys.judge_slot(desk.root, number), {"f": 1, "call": "x"}) for number in used]
        if planted:
            await desk.journal.apply(planted, batch=new_batch())
        takers = [
            desk.subject(journal=Slow(desk.journal, list(pauses)), call=f"s{i}p0") for i, pauses in enumerate(schedules)
        ]
        taken = await asyncio.gather(*(take_slot(subject, limit) for subject in takers))
        return [number for number in taken if number is not None], await desk.slots()

    taken, rows = asyncio.run(race())
    free = set(range(limit)) - used
    assert len(taken) == len(set(taken)) == min(len(free), len(schedules))
    assert set(taken) <= free
    assert set(rows) == used | set(taken)


# Crashes -----------------------------------------------------------------------------------------------------------

CRASHING = """
import asyncio, contextlib, os, signal, sys
from pathlib import Path
import gnl_core
for driver in ("psycopg", "redis.asyncio", "redis.backoff", "redis.retry"):
    with contextlib.suppress(ImportError):
        __import__(driver)
from gnl_core import keys
from gnl_core.prior import Subject
from gnl_core.identity import Identity
from gnl_core.journal import Put, new_batch
from gnl_semantic.judge import Judge
from gnl_semantic.past import Past

calls, certificate = sys.argv[1:]

def complete(system, user):
    # The effect: a call that somebody else counts, and bills. Nobody comes back from it.
    with open(calls, "ab", buffering=0) as bill:
        bill.write(b"call\\n")
    os.kill(os.getpid(), signal.SIGKILL)

async def drive():
    with STORE as storage:
        journal = storage.runs
        lock = Put(keys.lock("run-1"), {"f": 1, "owner": None, "ttl_ms": 1000, "released": False})
        fence = (await journal.apply([lock], batch=new_batch())).version
        identity = Identity(values={"sku": "tv 42"}, amounts={}, discriminators={}, sentence="order: tv 42")
        subject = Subject(
            journal=journal, scope=keys.thread_scope("t-1"), root="run-1", fence=fence, run="run-1", call="s0p0",
            tool="order", args_hash="a" * 16, identity=identity, now=1,
        )
        past = Past(
            args_hash="b" * 16, model="m", template="1", sentence="order: television 42", identity={}, amounts={},
            discriminators={}, run="run-0", call="s0p0", at=1,
        )
        judge = Judge(complete, judge_model_id="judge@1", qualification=certificate)
        judged = await judge.ask(subject, past, score=0.9, ruleset_version="1")
        print(judged.outcome, judged.cause, flush=True)

# One process a drive; the program only spares them their imports.
for _ in range(12):
    child = os.fork()
    if not child:
        asyncio.run(drive())
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def crash(store, *arguments):
    root = Path(__file__).parents[3]
    return subprocess.run(
        [sys.executable, "-c", CRASHING.replace("STORE", store.spelled), *arguments],
        capture_output=True,
        check=False,
        text=True,
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        timeout=120,
    )


@pytest.mark.stores("sqlite", "postgres", "redis")
async def test_eleven_crashes_buy_no_eleventh_call(tmp_path, any_store, new_desk, issued, judge_of, says):
    calls, certificate = tmp_path / "calls", tmp_path / "cert.json"
    write_certificate(certificate, issued())
    done = await asyncio.to_thread(crash, any_store, calls, certificate)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split("\n") == ["-9"] * 10 + ["skipped budget", "0"] * 2 + [""]
    assert calls.read_text() == "call\n" * 10
    model = says("SAME")
    async with any_store.open() as storage:
        desk = await new_desk(storage.runs)
        assert await desk.slots() == dict.fromkeys(range(10), "run-1/s0p0")
        assert (await desk.ask(judge_of(model))).cause == "budget"
    assert model.calls == 0
