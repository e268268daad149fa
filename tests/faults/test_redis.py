"""A store on a Redis server under kills: of the process at every write, and of the server in the middle of runs."""

import asyncio

import pytest

from gnl_core import Context, RedisStorage, decide, run_durable, tool
from gnl_core.errors import DoubtError, RunBusyError, StoreUnavailableError, StoreUnknownError
from gnl_core.testing.faulty import FaultyJournal
from gnl_core.testing.scripted import ScriptedModel

EFFECTS = {
    "single": {"charge order-1/s0p0": 1},
    "parallel": {"charge order-1/s0p0": 1, "ship order-1/s0p1": 1, "charge order-1/s0p2": 1},
    "approval": {"charge order-1/s0p0": 1},
}


def judged(report):
    faulty = [r for r in report["results"] if r["outcome"] == "stuck" or max(r["effects"].values(), default=0) > 1]
    assert report["stuck"] == 0, faulty
    assert (report["max_effects"], report["min_effects"], report["lost"]) == (1, 1, 0), faulty
    return report


@pytest.mark.parametrize("scenario", EFFECTS)
def test_every_call_has_one_effect_wherever_its_process_dies(lab, place, new_redis, scenario):
    report = judged(lab.run("matrix", scenario=scenario, folder=str(place), server=new_redis().url))
    assert report["effects"] == EFFECTS[scenario]
    assert report["completed"] + report["settled"] == report["points"]
    assert report["struck"] == report["points"] == 2 * (report["writes"] + sum(report["effects"].values()))
    assert report["settled"] >= 2, "right before and right after the effect, nobody can know"


def test_a_store_that_breaks_off_at_any_write_leaves_one_effect(lab, place, new_redis):
    judged(
        lab.run(
            "matrix",
            scenario="single",
            actions=["unavailable", "unknown"],
            folder=str(place),
            server=new_redis().url,
        )
    )


def test_processes_that_race_for_one_run_have_one_effect_between_them(new_run, new_redis):
    run = new_run("long_held")
    (run.folder / "server").write_text(new_redis().url)
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


# The server dies -----------------------------------------------------------------------------------------------------

TURNS = [[("charge", {"amount": 10})], [("charge", {"amount": 20}), ("charge", {"amount": 30})], "Done."]


@pytest.fixture
def charge(effects):
    @tool
    async def charge(ctx: Context, amount: int) -> dict:
        """Charge a card."""
        return effects.fire("charge", ctx, {"receipt": amount})

    return charge


def drive(journal, charge, run_id="r"):
    return run_durable(run_id=run_id, journal=journal, model=ScriptedModel(TURNS), tools=[charge], prompt="Do it.")


async def test_a_server_killed_before_any_one_write_is_waited_for(new_redis, effects, charge):
    server = new_redis()
    async with RedisStorage(server.url, accept_async_replication=True) as storage:
        counted = FaultyJournal(storage.runs)
        assert (await drive(counted, charge, "r-0")).text == "Done."
        for number in range(1, counted.writes + 1):

            def kill(written, ops, number=number):
                if written == number:
                    server.kill()
                    server.start()

            journal = FaultyJournal(storage.runs, on_write=kill)
            assert (await drive(journal, charge, f"r-{number}")).text == "Done."
        calls = 3 * (counted.writes + 1)
    assert set(effects.counts().values()) == {1}
    assert effects.count() == calls


async def test_a_server_killed_in_the_middle_of_many_runs_costs_no_effect_and_repeats_none(new_redis, effects, charge):
    server = new_redis()
    runs = [f"r-{number}" for number in range(24)]
    moments = {5: asyncio.Event(), 20: asyncio.Event(), 35: asyncio.Event(), 50: asyncio.Event()}
    # Right after an effect: its record is not written yet, and others are at every other place.
    effects.after = lambda number: moments[number].set() if number in moments else None

    async def upset():
        for moment in moments.values():
            await moment.wait()
            server.kill()
            await asyncio.to_thread(server.start)

    async def until_done(storage, run_id):
        while True:
            try:
                return await drive(storage.runs, charge, run_id)
            except DoubtError as doubt:
                for question in doubt.interrupts:
                    fired = effects.find(f"{run_id}/{question.tool_call_id}")
                    await decide(
                        storage.runs,
                        question.question,
                        fired is None,
                        **({} if fired is None else {"output": fired.output}),
                    )
            except (StoreUnavailableError, StoreUnknownError):
                await asyncio.sleep(0.02)
            except RunBusyError as busy:  # its lock was left behind: the server's clock goes on
                await move_clock(server, busy.retry_after)

    async with RedisStorage(server.url, accept_async_replication=True) as storage:
        _, *results = await asyncio.gather(upset(), *(until_done(storage, run_id) for run_id in runs))
        assert [result.text for result in results] == ["Done."] * len(runs)
        assert set(effects.counts().values()) == {1}
        assert effects.count() == 3 * len(runs)
        for run_id in runs:  # what was recorded is replayed, and nothing of it happens again
            assert len((await drive(storage.runs, charge, run_id)).replayed_tool_calls) == 3
        assert effects.count() == 3 * len(runs)


async def move_clock(server, seconds):
    """Set the store's clock ahead; it never goes back."""
    async with RedisStorage(server.url, accept_async_replication=True) as storage:
        now = await storage.runs.now()
    server.ask("HSET", "{gnl}:store", "clock", str(now + 1000 * seconds))
