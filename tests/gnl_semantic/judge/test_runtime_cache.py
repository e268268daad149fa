"""A pair is paid for once: who is served the recorded verdict, and who may write over it."""

import asyncio
import sqlite3

import pytest

from gnl_core.journal import Delete, Put, new_batch
from gnl_core.journal.sqlite import SqliteStorage
from gnl_semantic.judge import PROMPT_VERSION

pytestmark = pytest.mark.stores()

GOOD = {"f": 1, "verdict": "same", "judge": "judge@1", "prompt": PROMPT_VERSION, "rules": "1"}


def summary(judged):
    return judged.outcome, judged.cached, judged.called, judged.stale_replaced


async def plant(desk, value, pair=0):
    await desk.journal.apply([Put(desk.key(pair), value)], batch=new_batch())


async def test_s51_the_second_time_it_comes_from_the_journal_whichever_is_new(desk, judge_of, says):
    model = says("SAME")
    judge = judge_of(model)
    there, back = desk.subject(args_hash="1" * 16), desk.subject(args_hash="2" * 16)
    assert summary(await judge.ask(there, desk.past(args_hash="2" * 16), score=0.5, ruleset_version="1")) == (
        "same", False, True, False,
    )  # fmt: skip
    again = await judge.ask(back, desk.past(args_hash="1" * 16), score=0.5, ruleset_version="1")
    assert summary(again) == ("same", True, False, False)
    assert (again.latency_ms, again.evidence) == (0, judge.certificate.evidence())
    assert (model.calls, len(await desk.rows()), len(await desk.slots())) == (1, 1, 1)


async def test_s58_a_recorded_verdict_costs_no_slot_even_where_none_is_left(desk, judge_of, says):
    model = says("DIFFERENT")
    judge = judge_of(model, max_calls_per_run=1)
    await desk.ask(judge, pair=1)
    assert (await desk.ask(judge, pair=2)).cause == "budget"
    assert summary(await desk.ask(judge, pair=1)) == ("different", True, False, False)


async def test_skips_are_not_kept(desk, judge_of, says):
    model = says("hm", "SAME")
    judge = judge_of(model)
    assert (await desk.ask(judge)).cause == "parse-fail"
    assert summary(await desk.ask(judge)) == ("same", False, True, False)


@pytest.mark.parametrize("stamp", [{"judge": "judge@0"}, {"prompt": "0"}, {"rules": "0"}])
async def test_s52_a_verdict_under_another_stamp_is_asked_for_again_and_replaced(desk, judge_of, says, stamp):
    await plant(desk, GOOD | stamp)
    before, model = await desk.row(), says("DIFFERENT")
    judge = judge_of(model)
    assert summary(await desk.ask(judge)) == ("different", False, True, True)
    (row,) = await desk.rows()
    assert (row.value["verdict"], row.value["judge"], row.value["prompt"], row.value["rules"]) == (
        "different", "judge@1", PROMPT_VERSION, "1",
    )  # fmt: skip
    assert row.version > before.version
    assert summary(await desk.ask(judge)) == ("different", True, False, False)
    assert model.calls == 1


async def test_a_swapped_model_is_not_served_the_other_ones_answers(desk, judge_of, says):
    await desk.ask(judge_of(says("SAME")))
    judged = await desk.ask(judge_of(says("DIFFERENT"), judge_model_id="judge@2"))
    assert summary(judged) == ("different", False, True, True)


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        "same",
        {},
        {**GOOD, "f": 2},
        {**GOOD, "f": True},
        {**GOOD, "verdict": "SAME"},
        {**GOOD, "verdict": "skipped"},
        {**GOOD, "verdict": ["same"]},
        {**GOOD, "judge": None},
        {name: GOOD[name] for name in GOOD if name != "rules"},
    ],
)
async def test_a_row_that_cannot_be_read_is_no_verdict_and_in_nobodys_way(desk, judge_of, says, value):
    await plant(desk, value)
    judge = judge_of(says("DIFFERENT"))
    assert summary(await desk.ask(judge)) == ("different", False, True, False)
    assert summary(await desk.ask(judge)) == ("different", True, False, False)


async def test_a_row_that_the_store_itself_cannot_read(tmp_path, new_desk, judge_of, says):
    path = tmp_path / "runs.db"
    with SqliteStorage(path) as storage:
        desk = await new_desk(storage.runs)
        await plant(desk, GOOD)
    with sqlite3.connect(path) as connection:
        assert connection.execute("UPDATE gnl_rows SET value = 'no JSON' WHERE key LIKE '%semjudge%'").rowcount == 1
    connection.close()
    with SqliteStorage(path) as storage:
        desk.journal = storage.runs
        judged = await desk.ask(judge_of(says("DIFFERENT")))
    assert (judged.outcome, judged.cached, judged.called) == ("different", False, True)


# Two at once -------------------------------------------------------------------------------------------------------


class Rendezvous:
    """Two judges that answer once both were asked."""

    def __init__(self, judge_of, *answers):
        self._barrier = asyncio.Barrier(len(answers))
        self.judges = [judge_of(self._says(answer)) for answer in answers]

    def _says(self, answer):
        async def complete(system, user):
            await self._barrier.wait()
            return answer

        return complete


async def both(desk, judge_of, *answers):
    meeting = Rendezvous(judge_of, *answers)
    return await asyncio.gather(*(desk.ask(judge, call=f"s0p{i}") for i, judge in enumerate(meeting.judges)))


async def test_s56_two_workers_with_opposite_answers_report_the_one_that_is_recorded(desk, judge_of):
    one, other = await both(desk, judge_of, "SAME", "DIFFERENT")
    (row,) = await desk.rows()
    assert one.outcome == other.outcome == row.value["verdict"]
    assert sorted([one.cached, other.cached]) == [False, True]
    assert one.called
    assert other.called
    assert len(await desk.slots()) == 2


async def test_s57_the_same_over_a_stale_verdict(desk, judge_of):
    await plant(desk, GOOD | {"judge": "judge@0"})
    one, other = await both(desk, judge_of, "DIFFERENT", "UNSURE")
    (row,) = await desk.rows()
    assert one.outcome == other.outcome == row.value["verdict"]
    assert row.value["judge"] == "judge@1"
    assert sorted([(one.cached, one.stale_replaced), (other.cached, other.stale_replaced)]) == [
        (False, True),
        (True, False),
    ]


async def test_two_requests_of_one_conversation_share_a_verdict(desk, new_desk, judge_of):
    meeting = Rendezvous(judge_of, "SAME", "UNSURE")
    desks = desk, await new_desk(desk.journal, "run-2")
    one, other = await asyncio.gather(*(desk.ask(judge) for desk, judge in zip(desks, meeting.judges, strict=True)))
    (row,) = await desk.rows()
    assert one.outcome == other.outcome == row.value["verdict"]
    assert [len(await desk.slots()) for desk in desks] == [1, 1]


async def test_a_stale_row_that_is_purged_meanwhile_is_made_anew(desk, judge_of):
    await plant(desk, GOOD | {"judge": "judge@0"})

    async def slow(system, user):
        await desk.journal.apply([Delete(desk.key())], batch=new_batch())
        return "SAME"

    assert summary(await desk.ask(judge_of(slow))) == ("same", False, True, False)
    assert (await desk.row()).value["verdict"] == "same"


async def test_another_models_verdict_that_came_in_meanwhile_is_not_served(desk, judge_of):
    async def slow(system, user):
        await plant(desk, GOOD | {"judge": "judge@0"})
        return "UNSURE"

    assert summary(await desk.ask(judge_of(slow))) == ("unsure", False, True, True)
    assert (await desk.row()).value["judge"] == "judge@1"
