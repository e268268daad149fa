"""Lists of runs: pages, filters, killed drivers, and how many rows a page reads."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnl_core import keys
from gnl_core.errors import ConfigError
from gnl_core.journal import Put, new_batch
from gnl_core.journal.memory import InMemoryStorage
from gnl_core.owner import new_owner, register, unregister
from gnl_core.records import CallRecord
from gnl_core.views import count_runs_by_status, list_runs, read_run


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis"])
async def journal(request, new_store):
    async with new_store(request.param).open() as storage:
        yield storage.runs


async def write(journal, *ops):
    await journal.apply(ops, batch=new_batch())


@pytest.fixture
def living_owner():
    owner = new_owner()
    register(owner)
    yield owner
    unregister(owner)


async def all_pages(journal, **options):
    found, cursor = [], None
    while True:
        page = await list_runs(journal, cursor=cursor, **options)
        found += [run.run_id for run in page.runs]
        cursor = page.cursor
        if cursor is None:
            return found


# Lists -------------------------------------------------------------------------------------------------------------


async def test_an_empty_journal_lists_nothing(journal):
    page = await list_runs(journal)
    assert (page.runs, page.cursor, page.problems) == ((), None, ())
    assert set((await count_runs_by_status(journal)).values()) == {0}


async def test_runs_of_all_statuses_come_newest_first_and_in_pages(journal, rows):
    statuses = ["running", "suspended", "completed", "failed", "canceled"]
    for number in range(23):
        await write(journal, *rows.head(f"r{number:02}", status=statuses[number % 5], at=1_000 + number))
    expected = [f"r{number:02}" for number in reversed(range(23))]
    assert await all_pages(journal, limit=4) == expected
    assert await all_pages(journal, limit=23) == expected
    assert await all_pages(journal, limit=4, newest_first=False) == expected[::-1]


async def test_runs_of_one_millisecond_are_neither_lost_nor_repeated(journal, rows):
    names = ["a", "a-1", "a.1", "a:b", "ş", "a/b", "A"]
    for name in names:
        await write(journal, *rows.head(name, at=7))
    for newest_first in (True, False):
        listed = await all_pages(journal, limit=1, newest_first=newest_first)
        assert sorted(listed) == sorted(names)


async def test_the_last_page_has_no_cursor(journal, rows):
    for number in range(4):
        await write(journal, *rows.head(f"r{number}", at=number))
    first = await list_runs(journal, limit=2)
    second = await list_runs(journal, limit=2, cursor=first.cursor)
    assert first.cursor is not None
    assert second.cursor is None
    assert [run.run_id for run in (*first.runs, *second.runs)] == ["r3", "r2", "r1", "r0"]


async def test_ten_thousand_suspended_runs_cost_two_reads_a_page(journal, rows, counting):
    for start in range(0, 10_000, 500):
        ops = []
        for number in range(start, start + 500):
            ops += rows.head(f"r{number}", status="suspended", at=number, questions=1)
        await write(journal, *ops)
    counted = counting(journal)
    page = await list_runs(counted, status="suspended", limit=50)
    assert [run.run_id for run in page.runs] == [f"r{number}" for number in range(9_999, 9_949, -1)]
    assert (counted.reads, counted.rows) == (2, 100)

    counted = counting(journal)
    assert len(set(await all_pages(counted, status="suspended", limit=1_000))) == 10_000
    assert counted.reads == 20

    counted = counting(journal)
    assert (await count_runs_by_status(counted))["suspended"] == 10_000
    assert counted.rows == 10_000  # index rows alone


async def test_a_page_reads_no_more_where_a_million_other_runs_would_be(journal, rows, counting):
    for number in range(300):
        await write(journal, *rows.head(f"c{number}", at=number, agent="billing"))
    await write(journal, *rows.head("mine", status="suspended", at=1, agent="billing", thread="t1"))
    counted = counting(journal)
    page = await list_runs(counted, agent="billing", status="suspended")
    assert [run.run_id for run in page.runs] == ["mine"]
    assert counted.rows < 150  # the walk went along the status, not along the agent

    counted = counting(journal)
    assert [run.run_id for run in (await list_runs(counted, thread_id="t1", agent="billing")).runs] == ["mine"]
    assert counted.rows < 150


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"agent": "billing"}, ["b2", "b1"]),
        ({"resource_id": "ayşe"}, ["m1", "b1"]),
        ({"thread_id": "t-1"}, ["b1"]),
        ({"thread_id": "t"}, []),
        ({"status": "failed"}, ["b2"]),
        ({"agent": "billing", "resource_id": "ayşe"}, ["b1"]),
        ({"agent": "billing", "status": "completed", "thread_id": "t-1"}, ["b1"]),
        ({"agent": "mail", "status": "failed"}, []),
        ({"work_key": "april"}, ["m1", "b1"]),
        ({"work_key": "april", "agent": "billing"}, ["b1"]),
        ({"work_key": "April"}, []),
    ],
)
async def test_filters(journal, filters, expected, rows):
    await write(journal, *rows.head("b1", at=1, agent="billing", resource="ayşe", thread="t-1", work_key="april"))
    await write(journal, *rows.head("b2", at=2, agent="billing", status="failed", resource="b", thread="t-10"))
    await write(journal, *rows.head("m1", at=3, agent="mail", resource="ayşe", work_key="april"))
    assert await all_pages(journal, limit=1, **filters) == expected


@given(
    runs=st.lists(
        st.tuples(
            st.sampled_from(["suspended", "completed", "failed"]),
            st.sampled_from(["", "a", "b"]),
            st.sampled_from(["", "t"]),
            st.sampled_from(["", "april", "may"]),
            st.integers(0, 5),
        ),
        max_size=12,
    ),
    status=st.sampled_from([None, "suspended", "completed"]),
    agent=st.sampled_from([None, "a", "b"]),
    thread=st.sampled_from([None, "t"]),
    work_key=st.sampled_from([None, "april", "may", "June"]),
    limit=st.integers(1, 5),
    newest_first=st.booleans(),
)
async def test_pages_together_are_the_filtered_list(runs, status, agent, thread, work_key, limit, newest_first, rows):
    async with InMemoryStorage() as storage:
        for number, (its_status, its_agent, its_thread, its_key, at) in enumerate(runs):
            ops = rows.head(
                f"r{number}", status=its_status, agent=its_agent, thread=its_thread, work_key=its_key, at=at
            )
            await write(storage.runs, *ops)
        listed = await all_pages(
            storage.runs,
            status=status,
            agent=agent,
            thread_id=thread,
            work_key=work_key,
            limit=limit,
            newest_first=newest_first,
        )
    expected = [
        f"r{number}"
        for number, (its_status, its_agent, its_thread, its_key, _) in enumerate(runs)
        if status in (None, its_status)
        and agent in (None, its_agent)
        and thread in (None, its_thread)
        and work_key in (None, its_key)
    ]
    times = [runs[int(name[1:])][4] for name in listed]
    assert sorted(listed) == sorted(expected)
    assert times == sorted(times, reverse=newest_first)


async def test_a_cursor_of_another_list_is_refused(journal, rows):
    for number in range(3):
        await write(journal, *rows.head(f"r{number}", at=number, agent="a"))
    cursor = (await list_runs(journal, limit=1)).cursor
    for options in ({"agent": "a"}, {"newest_first": False}, {"status": "completed"}, {"work_key": "k"}):
        with pytest.raises(ConfigError, match="cursor"):
            await list_runs(journal, cursor=cursor, **options)
    for bad in ("", "x", "é", "AAAA", cursor[:-3], "bnVsbA"):
        with pytest.raises(ConfigError, match="cursor"):
            await list_runs(journal, cursor=bad)


@pytest.mark.parametrize("options", [{"limit": 0}, {"limit": 1_001}, {"status": "sleeping"}])
async def test_options_out_of_range_are_refused(journal, options):
    with pytest.raises(ConfigError):
        await list_runs(journal, **options)


async def test_an_index_row_without_its_head_is_no_run(journal, rows):
    await write(journal, Put(keys.index("status", "completed", 1, "ghost"), {}), *rows.head("real", at=2))
    assert await all_pages(journal) == ["real"]


async def test_a_head_that_cannot_be_read_hides_no_other_run(journal, rows):
    await write(journal, *rows.head("good", at=1), *rows.head("bad", at=2), *rows.head("newer", at=3))
    await write(journal, Put(keys.head("bad"), {"f": 1, "status": "asleep"}), Put(keys.head("newer"), {"f": 2}))
    page = await list_runs(journal)
    assert [run.run_id for run in page.runs] == ["good"]
    assert any("run/bad/~/head" in problem for problem in page.problems)
    assert any("format 2" in problem for problem in page.problems)


# Killed drivers ----------------------------------------------------------------------------------------------------


async def test_a_running_run_whose_driver_lives_is_running(journal, living_owner, rows):
    await write(
        journal,
        *rows.head("r", status="running"),
        rows.lock("r", living_owner),
        rows.call("r", "s0p0", status="running"),
    )
    (run,) = (await list_runs(journal)).runs
    assert (run.status, run.in_doubt) == ("running", ())
    assert (await read_run(journal, "r")).questions == ()
    assert (await list_runs(journal, status="interrupted")).runs == ()


async def test_a_running_run_whose_driver_is_dead_is_interrupted_with_its_calls_in_doubt(journal, rows):
    child = keys.child_id("r", keys.ROOT, "s0p2")
    await write(
        journal,
        *rows.head("r", status="running", at=1),
        rows.lock("r", rows.dead_owner()),
        rows.call("r", "s0p0", status="running", attempts=2, tool="pay"),
        rows.call("r", "s0p1", status="running", attempts=1, side_effect=False, tool="look"),
        rows.call("r", "s0p2", status="running", attempts=1, side_effect=False, tool="helper"),
        *rows.head("r", part=child, status="running", parent={"run": "r", "call": "s0p2"}),
        rows.call("r", "s0p0", part=child, status="running", attempts=1, tool="mail"),
        rows.call("r", "s1p0", part=child, status="succeeded", attempts=1),
    )
    (run,) = (await list_runs(journal)).runs
    assert run.status == "interrupted"
    assert run.in_doubt == ("r/s0p0/in_doubt/2", f"{child}/s0p0/in_doubt/1")
    assert (await list_runs(journal, status="interrupted")).runs == (run,)
    assert (await list_runs(journal, status="running")).runs == ()
    counts = await count_runs_by_status(journal)
    assert (counts["running"], counts["interrupted"], counts["ready"]) == (0, 1, 0)


async def test_a_call_whose_own_time_has_not_passed_may_still_end_by_itself(journal, living_owner, rows):
    await write(
        journal,
        *rows.head("r", status="running"),
        rows.lock("r", rows.dead_owner()),
        rows.call("r", "s0p0", status="running", attempts=1, ttl_ms=600_000, owner=living_owner.to_json()),
        rows.call("r", "s0p1", status="running", attempts=1, ttl_ms=600_000, owner=rows.dead_owner().to_json()),
    )
    assert [run.in_doubt for run in (await list_runs(journal)).runs] == [("r/s0p1/in_doubt/1",)]
    assert [question.tool_call_id for question in (await read_run(journal, "r")).questions] == ["s0p1"]


async def test_a_failed_side_effect_is_in_doubt_unless_nothing_happened_for_certain(journal, living_owner, rows):
    await write(
        journal,
        *rows.head("r", status="failed"),
        rows.call("r", "s0p0", status="failed", attempts=1),
        rows.call("r", "s0p1", status="failed", attempts=1, certain=True),
        rows.call("r", "s0p2", status="failed", attempts=1, side_effect=False),
        rows.call("r", "s0p3", status="in_doubt", attempts=3, cause="timeout"),
    )
    asked = [question.question for question in (await read_run(journal, "r")).questions]
    assert asked == ["r/s0p0/in_doubt/1", "r/s0p3/in_doubt/3"]


async def test_a_call_recorded_outside_the_run_is_in_doubt_until_any_run_settles_it(journal, rows):
    outside = keys.xrun_args("pay", "d")
    record = CallRecord(
        status="running", tool="pay", call="s0p0", args={"amount": 5}, digest="d", side_effect=True, attempts=1, run="r"
    )
    shadow = dataclasses.replace(record, mirror_of=keys.encode(outside), run="")
    await write(
        journal,
        *rows.head("r", status="running"),
        rows.lock("r", rows.dead_owner()),
        Put(outside, record.to_json()),
        Put(keys.tool("r", keys.ROOT, 0, 0), shadow.to_json()),
    )
    assert [run.in_doubt for run in (await list_runs(journal)).runs] == [("r/s0p0/in_doubt/1",)]
    assert [question.question for question in (await read_run(journal, "r")).questions] == ["r/s0p0/in_doubt/1"]

    await write(journal, Put(outside, dataclasses.replace(record, status="succeeded", output="tr-9").to_json()))
    assert [run.in_doubt for run in (await list_runs(journal)).runs] == [()]
    view = await read_run(journal, "r")
    assert (view.questions, view.calls[0].status, view.calls[0].output) == ((), "succeeded", "tr-9")


async def test_a_running_run_whose_lock_is_released_is_interrupted(journal, living_owner, rows):
    await write(journal, *rows.head("r", status="running"), rows.lock("r", living_owner, released=True))
    assert [run.status for run in (await list_runs(journal)).runs] == ["interrupted"]
