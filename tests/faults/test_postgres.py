"""A store on a PostgreSQL server under kills: of the process at every write, of the server, of connections."""

import asyncio

import psycopg
import pytest

from gnl_core import Context, PostgresStorage, decide, run_durable, tool
from gnl_core.errors import DoubtError, RunBusyError, StoreUnavailableError, StoreUnknownError
from gnl_core.testing.faulty import FaultyJournal
from gnl_core.testing.scripted import ScriptedModel

EFFECTS = {
    "single": {"charge order-1/s0p0": 1},
    "parallel": {"charge order-1/s0p0": 1, "ship order-1/s0p1": 1, "charge order-1/s0p2": 1},
    "approval": {"charge order-1/s0p0": 1},
    "by_args": {"charge order-1/s0p0": 1, "charge order-1/s0p1": 1},
}


@pytest.fixture(scope="module")
def dsn(new_cluster):
    """A server whose schemas nobody drops: it goes with the tests."""
    return new_cluster().start().dsn


@pytest.fixture
async def storage(dsn, effects):
    """A store of the test's own."""
    async with PostgresStorage(dsn, schema=f"gnl_{abs(hash(effects.path))}", pool_size=2) as storage:
        yield storage


def judged(report):
    faulty = [r for r in report["results"] if r["outcome"] == "stuck" or max(r["effects"].values(), default=0) > 1]
    assert report["stuck"] == 0, faulty
    assert (report["max_effects"], report["min_effects"], report["lost"]) == (1, 1, 0), faulty
    return report


# The process dies ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scenario", EFFECTS)
def test_every_call_has_one_effect_wherever_its_process_dies(lab, place, dsn, scenario):
    report = judged(lab.run("matrix", scenario=scenario, folder=str(place), server=dsn))
    assert report["effects"] == EFFECTS[scenario]
    assert report["completed"] + report["settled"] == report["points"]
    assert report["struck"] == report["points"] == 2 * (report["writes"] + sum(report["effects"].values()))
    assert report["settled"] >= 2, "right before and right after the effect, nobody can know"


def test_a_store_that_breaks_off_at_any_write_leaves_one_effect(lab, place, dsn):
    judged(lab.run("matrix", scenario="single", actions=["unavailable", "unknown"], folder=str(place), server=dsn))


def on_server(run, dsn):
    (run.folder / "server").write_text(dsn)
    return run


def test_processes_that_race_for_one_run_have_one_effect_between_them(new_run, dsn):
    run = on_server(new_run("long_held"), dsn)
    racers = [run.lab.start("race", scenario="long_held", folder=str(run.folder)) for _ in range(4)]
    run.wait_for("ready-*", 4)
    run.touch("go")
    run.wait_for("in_tool")
    run.wait_for("seen-*", 3)  # the losers
    run.touch("release")
    seen = [racer.answer() for racer in racers]
    assert [answer.get("error") for answer in seen].count("run_busy") == 3
    assert [answer.get("text") for answer in seen].count("Done.") == 1
    assert run.drive()["replayed"] == [["s0p0", "charge", "succeeded", "self"]]
    assert run.effects() == 1
    assert not (run.folder / "journal.sqlite").exists(), "it stands on the server"


def test_threads_and_processes_that_race_have_one_effect_between_them(new_run, lab, dsn):
    run = on_server(new_run("long_held"), dsn)
    crowd = lab.start("crowd", scenario="long_held", folder=str(run.folder), threads=4)
    other = run.start()
    run.wait_for("in_tool")
    run.wait_for("seen-3")
    run.touch("release")
    seen = [*crowd.answer(), other.answer()]
    live = [answer for answer in seen if answer.get("text") == "Done." and not answer["replayed"]]
    assert len(live) == 1
    assert run.effects() == 1


def test_s06_a_frozen_driver_is_overtaken_and_its_late_end_is_evidence(new_run, stopped, dsn):
    run = on_server(new_run("long_tool"), dsn)
    first = run.start()
    run.wait_for("in_tool")
    wake = stopped(first)
    while (blocked := run.drive()).get("error") == "run_busy":
        pass
    assert blocked["error"] == "side_effect_retry_blocked"
    run.touch("release")
    wake()
    assert first.answer().get("error") == "run_fenced"
    while (done := run.drive()).get("error") == "run_busy":
        pass
    assert done.get("text") == "Done."
    assert run.record("s0p0")["settled_by"] == "evidence"
    assert run.effects() == 1


# The server dies -----------------------------------------------------------------------------------------------------

TURNS = [[("charge", {"amount": 10})], [("charge", {"amount": 20}), ("charge", {"amount": 30})], "Done."]


@pytest.fixture
def charge(effects):
    @tool
    async def charge(ctx: Context, amount: int) -> dict:
        """Charge a card."""
        return effects.fire("charge", ctx, {"receipt": amount})

    return charge


def drive(journal, charge, run_id="r", **options):
    return run_durable(
        run_id=run_id, journal=journal, model=ScriptedModel(TURNS), tools=[charge], prompt="Do it.", **options
    )


def test_a_server_killed_before_any_one_write_is_waited_for(new_cluster, effects, charge):
    cluster = new_cluster().start()
    with PostgresStorage(cluster.dsn, schema="s", reconnect_wait=30.0) as storage, asyncio.Runner() as runner:
        counted = FaultyJournal(storage.runs)
        assert runner.run(drive(counted, charge, "r-0")).text == "Done."
        for number in range(1, counted.writes + 1):

            def kill(written, ops, number=number):
                if written == number:
                    cluster.kill()
                    cluster.start()

            journal = FaultyJournal(storage.runs, on_write=kill)
            assert runner.run(drive(journal, charge, f"r-{number}")).text == "Done."
        assert storage.statistics.losses >= counted.writes
    cluster.stop()
    assert set(effects.counts().values()) == {1}
    assert effects.count() == 3 * (counted.writes + 1)


async def test_a_server_killed_in_the_middle_of_many_runs_costs_no_effect_and_repeats_none(
    new_cluster, effects, charge
):
    cluster = new_cluster().start()
    runs = [f"r-{number}" for number in range(16)]
    moments = {5: asyncio.Event(), 20: asyncio.Event(), 35: asyncio.Event()}
    # Right after an effect: its record is not written yet, and others are at every other place.
    effects.after = lambda number: moments[number].set() if number in moments else None

    async def upset():
        for moment in moments.values():
            await moment.wait()
            cluster.kill()
            await asyncio.to_thread(cluster.start)

    async def until_done(storage, run_id):
        while True:
            try:
                return await drive(storage.runs, charge, run_id, lock_ttl=1.0)
            except DoubtError as doubt:
                for question in doubt.interrupts:
                    fired = effects.find(f"{run_id}/{question.tool_call_id}")
                    output = {} if fired is None else {"output": fired.output}
                    await decide(storage.runs, question.question, fired is None, **output)
            except (StoreUnavailableError, StoreUnknownError):
                await asyncio.sleep(0.02)
            except RunBusyError as busy:
                await asyncio.sleep(busy.retry_after)

    async with PostgresStorage(cluster.dsn, schema="s", pool_size=4) as storage:
        _, *results = await asyncio.gather(upset(), *(until_done(storage, run_id) for run_id in runs))
        assert [result.text for result in results] == ["Done."] * len(runs)
        assert set(effects.counts().values()) == {1}
        assert effects.count() == 3 * len(runs)
        for run_id in runs:  # what was recorded is replayed, and nothing of it happens again
            assert len((await drive(storage.runs, charge, run_id)).replayed_tool_calls) == 3
        assert effects.count() == 3 * len(runs)
    cluster.stop()


# Connections break ---------------------------------------------------------------------------------------------------


async def test_s69_connections_that_the_server_killed_while_a_tool_ran_lose_no_result(dsn, storage, effects):
    ended = []

    @tool
    async def charge(ctx: Context, amount: int) -> dict:
        """Charge a card, slowly: meanwhile the server ends every idle session."""
        with psycopg.connect(dsn, autocommit=True) as other:
            ended.extend(
                other.execute(
                    "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
                    " WHERE application_name = 'gnl' AND state LIKE 'idle%'"
                ).fetchall()
            )
        return effects.fire("charge", ctx, {"receipt": amount})

    result = await drive(storage.runs, charge)
    assert result.text == "Done."
    assert set(effects.counts().values()) == {1}
    assert effects.count() == 3
    assert len(ended) >= 2, "one a step at least: of two calls at once the first may leave none to the second"
    assert storage.statistics.losses >= 2
    assert {call.status for call in (await drive(storage.runs, charge)).replayed_tool_calls} == {"succeeded"}


async def once_more(journal, charge, run_id):
    """Drive a run as a host does, who asks again if he was not told whether it was begun."""
    try:
        return await drive(journal, charge, run_id)
    except StoreUnknownError:
        return await drive(journal, charge, run_id)


@pytest.mark.parametrize("fate", ["lose", "hide"])
async def test_s70_a_connection_that_breaks_at_any_commit_costs_no_effect_and_repeats_none(
    postgres_proxy, new_schema, effects, charge, fate
):
    async with PostgresStorage(postgres_proxy.dsn, schema=new_schema(), pool_size=2) as storage:
        counted = FaultyJournal(storage.runs)
        assert (await drive(counted, charge, "r-0")).text == "Done."
        for number in range(1, counted.writes + 1):

            def cut(written, ops, number=number):
                if written == number:
                    postgres_proxy.on_commit = fate

            result = await once_more(FaultyJournal(storage.runs, on_write=cut), charge, f"r-{number}")
            assert result.text == "Done."
    assert postgres_proxy.cut == counted.writes
    assert set(effects.counts().values()) == {1}
    assert effects.count() == 3 * (counted.writes + 1)


async def test_s71_a_pool_of_two_finishes_fifty_runs_at_once(storage, effects, charge):
    results = await asyncio.gather(*(drive(storage.runs, charge, f"r-{number}") for number in range(50)))
    assert [result.text for result in results] == ["Done."] * 50
    assert set(effects.counts().values()) == {1}
    assert effects.count() == 150
    assert storage._engine.thread._served._pool.made <= 2
