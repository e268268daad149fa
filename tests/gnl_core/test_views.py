"""Lists of runs, and one run, as people read them; looking runs nothing and writes nothing."""

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnl_core import keys
from gnl_core.approvals import Answer
from gnl_core.canonical import args_hash
from gnl_core.errors import ConfigError, JournalFormatError, RunNotFoundError, StoreCorruptError
from gnl_core.journal import Delete, Put, new_batch
from gnl_core.journal.memory import InMemoryStorage
from gnl_core.model.messages import ModelResponse, TextPart, ToolCallPart, Usage
from gnl_core.owner import new_owner, register, unregister
from gnl_core.records import CallRecord, StepRecord
from gnl_core.views import count_runs_by_status, list_runs, read_run


class Counting:
    """A journal that counts what is asked of it, and refuses every write."""

    def __init__(self, journal):
        self.journal = journal
        self.reads = 0
        self.rows = 0

    async def get_many(self, asked):
        self.reads += 1
        self.rows += len(asked)
        return await self.journal.get_many(asked)

    async def scan(self, prefix, **options):
        self.reads += 1
        page = await self.journal.scan(prefix, **options)
        self.rows += len(page.entries)
        return page

    async def apply(self, ops, *, batch):
        raise AssertionError("a view wrote")

    async def delete_prefix(self, prefix, *, limit=1000):
        raise AssertionError("a view deleted")


@pytest.fixture
async def journal():
    async with InMemoryStorage() as storage:
        yield storage.runs


def head_ops(run_id, *, status="completed", at=1_000, part=keys.ROOT, **head):
    """Rows of a head and of its indexes, as admission and each change of status write them."""
    value = {
        "f": 1,
        "status": status,
        "created_at": at,
        "changed_at": at,
        "steps": 0,
        "calls": 0,
        "questions": 0,
        **head,
    }
    if part != keys.ROOT:
        return [Put(keys.head(run_id, part), value)]
    ops = [Put(keys.head(run_id), value), Put(keys.index("status", status, at, run_id), {})]
    ops += [
        Put(keys.index(name, value[member], at, run_id), {})
        for name, member in (("agent", "agent"), ("res", "resource"), ("thr", "thread"))
        if value.get(member)
    ]
    return ops


def lock_op(run_id, owner, *, released=False, ttl_ms=600_000):
    value = {"f": 1, "owner": owner.to_json(), "ttl_ms": ttl_ms, "released": released}
    return Put(keys.lock(run_id), value)


def step_op(run_id, number, *parts, add=(), part=keys.ROOT):
    step = StepRecord(
        response=ModelResponse(tuple(parts), Usage(10, 2), "tool_calls", "m", "test"),
        keep=0,
        add=tuple(add),
        chain="0" * 64,
        system="",
        tools="",
        settings="",
        entry="generate",
        model="test/m",
    )
    return Put(keys.model(run_id, part, number), step.to_json())


def call_op(run_id, call, *, status="succeeded", part=keys.ROOT, blob=None, **members):
    record = CallRecord(
        **{"tool": "pay", "args": {"amount": 5}, "digest": "d", "side_effect": True, **members},
        status=status,
        call=call,
    )
    step, position = keys.parse_call_id(call)
    return Put(keys.tool(run_id, part, step, position), record.to_json(), blob)


async def write(journal, *ops):
    await journal.apply(ops, batch=new_batch())


def dead_owner():
    """An owner of this very process that it no longer has: dead for certain."""
    return new_owner()


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


async def test_runs_of_all_statuses_come_newest_first_and_in_pages(journal):
    statuses = ["running", "suspended", "completed", "failed", "canceled"]
    for number in range(23):
        await write(journal, *head_ops(f"r{number:02}", status=statuses[number % 5], at=1_000 + number))
    expected = [f"r{number:02}" for number in reversed(range(23))]
    assert await all_pages(journal, limit=4) == expected
    assert await all_pages(journal, limit=23) == expected
    assert await all_pages(journal, limit=4, newest_first=False) == expected[::-1]


async def test_runs_of_one_millisecond_are_neither_lost_nor_repeated(journal):
    names = ["a", "a-1", "a.1", "a:b", "ş", "a/b", "A"]
    for name in names:
        await write(journal, *head_ops(name, at=7))
    for newest_first in (True, False):
        listed = await all_pages(journal, limit=1, newest_first=newest_first)
        assert sorted(listed) == sorted(names)


async def test_the_last_page_has_no_cursor(journal):
    for number in range(4):
        await write(journal, *head_ops(f"r{number}", at=number))
    first = await list_runs(journal, limit=2)
    second = await list_runs(journal, limit=2, cursor=first.cursor)
    assert first.cursor is not None
    assert second.cursor is None
    assert [run.run_id for run in (*first.runs, *second.runs)] == ["r3", "r2", "r1", "r0"]


async def test_ten_thousand_suspended_runs_cost_two_reads_a_page(journal):
    for start in range(0, 10_000, 500):
        ops = []
        for number in range(start, start + 500):
            ops += head_ops(f"r{number}", status="suspended", at=number, questions=1)
        await write(journal, *ops)
    counting = Counting(journal)
    page = await list_runs(counting, status="suspended", limit=50)
    assert [run.run_id for run in page.runs] == [f"r{number}" for number in range(9_999, 9_949, -1)]
    assert (counting.reads, counting.rows) == (2, 100)

    counting = Counting(journal)
    assert len(set(await all_pages(counting, status="suspended", limit=1_000))) == 10_000
    assert counting.reads == 20

    counting = Counting(journal)
    assert (await count_runs_by_status(counting))["suspended"] == 10_000
    assert counting.rows == 10_000  # index rows alone


async def test_a_page_reads_no_more_where_a_million_other_runs_would_be(journal):
    for number in range(300):
        await write(journal, *head_ops(f"c{number}", at=number, agent="billing"))
    await write(journal, *head_ops("mine", status="suspended", at=1, agent="billing", thread="t1"))
    counting = Counting(journal)
    page = await list_runs(counting, agent="billing", status="suspended")
    assert [run.run_id for run in page.runs] == ["mine"]
    assert counting.rows < 150  # the walk went along the status, not along the agent

    counting = Counting(journal)
    assert [run.run_id for run in (await list_runs(counting, thread_id="t1", agent="billing")).runs] == ["mine"]
    assert counting.rows < 150


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
    ],
)
async def test_filters(journal, filters, expected):
    await write(journal, *head_ops("b1", at=1, agent="billing", resource="ayşe", thread="t-1"))
    await write(journal, *head_ops("b2", at=2, agent="billing", status="failed", resource="b", thread="t-10"))
    await write(journal, *head_ops("m1", at=3, agent="mail", resource="ayşe"))
    assert await all_pages(journal, limit=1, **filters) == expected


@given(
    runs=st.lists(
        st.tuples(
            st.sampled_from(["suspended", "completed", "failed"]),
            st.sampled_from(["", "a", "b"]),
            st.sampled_from(["", "t"]),
            st.integers(0, 5),
        ),
        max_size=12,
    ),
    status=st.sampled_from([None, "suspended", "completed"]),
    agent=st.sampled_from([None, "a", "b"]),
    thread=st.sampled_from([None, "t"]),
    limit=st.integers(1, 5),
    newest_first=st.booleans(),
)
async def test_pages_together_are_the_filtered_list(runs, status, agent, thread, limit, newest_first):
    async with InMemoryStorage() as storage:
        for number, (its_status, its_agent, its_thread, at) in enumerate(runs):
            ops = head_ops(f"r{number}", status=its_status, agent=its_agent, thread=its_thread, at=at)
            await write(storage.runs, *ops)
        listed = await all_pages(
            storage.runs, status=status, agent=agent, thread_id=thread, limit=limit, newest_first=newest_first
        )
    expected = [
        f"r{number}"
        for number, (its_status, its_agent, its_thread, _) in enumerate(runs)
        if status in (None, its_status) and agent in (None, its_agent) and thread in (None, its_thread)
    ]
    times = [runs[int(name[1:])][3] for name in listed]
    assert sorted(listed) == sorted(expected)
    assert times == sorted(times, reverse=newest_first)


async def test_a_cursor_of_another_list_is_refused(journal):
    for number in range(3):
        await write(journal, *head_ops(f"r{number}", at=number, agent="a"))
    cursor = (await list_runs(journal, limit=1)).cursor
    for options in ({"agent": "a"}, {"newest_first": False}, {"status": "completed"}):
        with pytest.raises(ConfigError, match="cursor"):
            await list_runs(journal, cursor=cursor, **options)
    for bad in ("", "x", "é", "AAAA", cursor[:-3], "bnVsbA"):
        with pytest.raises(ConfigError, match="cursor"):
            await list_runs(journal, cursor=bad)


@pytest.mark.parametrize("options", [{"limit": 0}, {"limit": 1_001}, {"status": "sleeping"}])
async def test_options_out_of_range_are_refused(journal, options):
    with pytest.raises(ConfigError):
        await list_runs(journal, **options)


async def test_an_index_row_without_its_head_is_no_run(journal):
    await write(journal, Put(keys.index("status", "completed", 1, "ghost"), {}), *head_ops("real", at=2))
    assert await all_pages(journal) == ["real"]


async def test_a_head_that_cannot_be_read_hides_no_other_run(journal):
    await write(journal, *head_ops("good", at=1), *head_ops("bad", at=2), *head_ops("newer", at=3))
    await write(journal, Put(keys.head("bad"), {"f": 1, "status": "asleep"}), Put(keys.head("newer"), {"f": 2}))
    page = await list_runs(journal)
    assert [run.run_id for run in page.runs] == ["good"]
    assert any("run/bad/~/head" in problem for problem in page.problems)
    assert any("format 2" in problem for problem in page.problems)


# Killed drivers ----------------------------------------------------------------------------------------------------


async def test_a_running_run_whose_driver_lives_is_running(journal, living_owner):
    await write(
        journal, *head_ops("r", status="running"), lock_op("r", living_owner), call_op("r", "s0p0", status="running")
    )
    (run,) = (await list_runs(journal)).runs
    assert (run.status, run.in_doubt) == ("running", ())
    assert (await read_run(journal, "r")).questions == ()
    assert (await list_runs(journal, status="interrupted")).runs == ()


async def test_a_running_run_whose_driver_is_dead_is_interrupted_with_its_calls_in_doubt(journal):
    child = keys.child_id("r", keys.ROOT, "s0p2")
    await write(
        journal,
        *head_ops("r", status="running", at=1),
        lock_op("r", dead_owner()),
        call_op("r", "s0p0", status="running", attempts=2, tool="pay"),
        call_op("r", "s0p1", status="running", attempts=1, side_effect=False, tool="look"),
        call_op("r", "s0p2", status="running", attempts=1, side_effect=False, tool="helper"),
        *head_ops("r", part=child, status="running", parent={"run": "r", "call": "s0p2"}),
        call_op("r", "s0p0", part=child, status="running", attempts=1, tool="mail"),
        call_op("r", "s1p0", part=child, status="succeeded", attempts=1),
    )
    (run,) = (await list_runs(journal)).runs
    assert run.status == "interrupted"
    assert run.in_doubt == ("r/s0p0/in_doubt/2", f"{child}/s0p0/in_doubt/1")
    assert (await list_runs(journal, status="interrupted")).runs == (run,)
    assert (await list_runs(journal, status="running")).runs == ()
    counts = await count_runs_by_status(journal)
    assert (counts["running"], counts["interrupted"], counts["ready"]) == (0, 1, 0)


async def test_a_call_whose_own_time_has_not_passed_may_still_end_by_itself(journal, living_owner):
    await write(
        journal,
        *head_ops("r", status="running"),
        lock_op("r", dead_owner()),
        call_op("r", "s0p0", status="running", attempts=1, ttl_ms=600_000, owner=living_owner.to_json()),
        call_op("r", "s0p1", status="running", attempts=1, ttl_ms=600_000, owner=dead_owner().to_json()),
    )
    assert [run.in_doubt for run in (await list_runs(journal)).runs] == [("r/s0p1/in_doubt/1",)]
    assert [question.tool_call_id for question in (await read_run(journal, "r")).questions] == ["s0p1"]


async def test_a_failed_side_effect_is_in_doubt_unless_nothing_happened_for_certain(journal, living_owner):
    await write(
        journal,
        *head_ops("r", status="failed"),
        call_op("r", "s0p0", status="failed", attempts=1),
        call_op("r", "s0p1", status="failed", attempts=1, certain=True),
        call_op("r", "s0p2", status="failed", attempts=1, side_effect=False),
        call_op("r", "s0p3", status="in_doubt", attempts=3, cause="timeout"),
    )
    asked = [question.question for question in (await read_run(journal, "r")).questions]
    assert asked == ["r/s0p0/in_doubt/1", "r/s0p3/in_doubt/3"]


async def test_a_call_recorded_outside_the_run_is_in_doubt_until_any_run_settles_it(journal):
    outside = keys.xrun_args("pay", "d")
    record = CallRecord(
        status="running", tool="pay", call="s0p0", args={"amount": 5}, digest="d", side_effect=True, attempts=1, run="r"
    )
    shadow = dataclasses.replace(record, mirror_of=keys.encode(outside), run="")
    await write(
        journal,
        *head_ops("r", status="running"),
        lock_op("r", dead_owner()),
        Put(outside, record.to_json()),
        Put(keys.tool("r", keys.ROOT, 0, 0), shadow.to_json()),
    )
    assert [run.in_doubt for run in (await list_runs(journal)).runs] == [("r/s0p0/in_doubt/1",)]
    assert [question.question for question in (await read_run(journal, "r")).questions] == ["r/s0p0/in_doubt/1"]

    await write(journal, Put(outside, dataclasses.replace(record, status="succeeded", output="tr-9").to_json()))
    assert [run.in_doubt for run in (await list_runs(journal)).runs] == [()]
    view = await read_run(journal, "r")
    assert (view.questions, view.calls[0].status, view.calls[0].output) == ((), "succeeded", "tr-9")


async def test_a_running_run_whose_lock_is_released_is_interrupted(journal, living_owner):
    await write(journal, *head_ops("r", status="running"), lock_op("r", living_owner, released=True))
    assert [run.status for run in (await list_runs(journal)).runs] == ["interrupted"]


# One run -----------------------------------------------------------------------------------------------------------


def pay(call, amount=5, provider_id=""):
    return ToolCallPart(call, "pay", {"amount": amount}, provider_id=provider_id)


async def full_run(journal):
    child = keys.child_id("r", keys.ROOT, "s1p0")
    await write(
        journal,
        *head_ops("r", status="suspended", at=5, agent="billing", steps=2, calls=3, questions=1, model="test/m"),
        Put(keys.input_of("r"), {"f": 1, "messages": [{"role": "user", "content": "pay"}], "system": "careful"}),
        step_op("r", 0, TextPart("first"), pay("s0p0"), pay("s0p1", 7)),
        call_op("r", "s0p0", output={"id": "tr-1"}, attempts=1),
        call_op("r", "s0p1", status="failed", error={"type": "Declined", "message": "no money"}, certain=True),
        step_op("r", 1, pay("s1p0"), pay("s1p1", 9, "call_1"), add=[{"step": 0}, {"call": "s0p0"}, {"call": "s0p1"}]),
        call_op("r", "s1p0", side_effect=False, output="done"),
        call_op(
            "r",
            "s1p1",
            status="suspended",
            args={"amount": 9},
            question={"kind": "confirm", "reason": "money leaves", "at": 4},
        ),
        *head_ops("r", part=child, status="completed", steps=1, parent={"run": "r", "call": "s1p0"}),
        step_op("r", 0, TextPart("child"), part=child),
        Put(keys.incident("r", keys.ROOT, "s1p1", "duplicate-guard", "suspend"), {"f": 1, "message": "m"}),
    )
    return child


async def test_s46_a_run_is_shown_whole_and_nothing_is_run_or_written(journal):
    child = await full_run(journal)
    view = await read_run(Counting(journal), "r")
    assert (view.run.status, view.messages[0].text, view.system, view.incidents) == ("suspended", "pay", "careful", 1)
    assert [(step.number, step.text, step.usage) for step in view.steps] == [
        (0, "first", Usage(10, 2)),
        (1, "", Usage(10, 2)),
    ]
    assert [(call.id, call.status, call.args, call.output) for step in view.steps for call in step.calls] == [
        ("s0p0", "succeeded", {"amount": 5}, {"id": "tr-1"}),
        ("s0p1", "failed", {"amount": 7}, None),
        ("s1p0", "succeeded", {"amount": 5}, "done"),
        ("s1p1", "suspended", {"amount": 9}, None),
    ]
    assert view.steps[1].calls[0].child == child
    assert [run.run_id for run in view.children] == [child]
    (question,) = view.questions
    assert question.question == "r/s1p1/confirm/0" == view.steps[1].calls[1].question
    assert (question.reason, question.asked_at, question.args, question.provider_call_id) == (
        "money leaves",
        4,
        {"amount": 9},
        "call_1",
    )
    assert view.problems == ()
    assert json.loads(json.dumps(view.to_json()))["model_steps"][0]["calls"][1]["error"]["message"] == "no money"


async def test_a_sub_agents_run_is_shown_by_its_own_id(journal):
    child = await full_run(journal)
    view = await read_run(journal, child)
    assert (view.run.run_id, view.run.parent, view.steps[0].text) == (child, {"run": "r", "call": "s1p0"}, "child")


async def test_a_question_that_is_answered_no_longer_waits(journal):
    await full_run(journal)
    answer = Answer(kind="confirm", attempt=0, approved=True, args_digest=args_hash({"amount": 9}), at=9, actor="ayşe")
    await write(journal, Put(keys.answer("r", keys.ROOT, "s1p1", "confirm", 0), answer.to_json()))
    view = await read_run(journal, "r")
    assert view.questions == ()
    assert view.answers == (("r/s1p1/confirm/0", answer),)


async def test_an_answer_that_cannot_be_read_is_a_problem_and_no_answer(journal):
    await full_run(journal)
    await write(journal, Put(keys.answer("r", keys.ROOT, "s1p1", "confirm", 0), {"f": 1, "approved": "yes"}))
    view = await read_run(journal, "r")
    assert len(view.questions) == 1
    assert "counts as none" in view.problems[0]


async def test_calls_of_a_loop_of_ones_own_are_shown_without_steps(journal):
    await write(journal, *head_ops("r"), call_op("r", "s0p0", output=1), call_op("r", "s1p0", output=2))
    view = await read_run(journal, "r")
    assert (view.steps, [call.id for call in view.calls], view.problems) == ((), ["s0p0", "s1p0"], ())


async def test_a_record_keyed_by_arguments_answers_each_call_it_resolved(journal):
    record = CallRecord(
        status="succeeded",
        tool="pay",
        call="s0p0",
        args={"amount": 5},
        digest="d",
        side_effect=True,
        output="tr-1",
        resolved=("s0p1",),
    )
    await write(
        journal,
        *head_ops("r"),
        step_op("r", 0, pay("s0p0"), pay("s0p1")),
        Put(keys.args("r", keys.ROOT, "pay", "d"), record.to_json()),
    )
    first, second = (await read_run(journal, "r")).steps[0].calls
    assert (first.output, first.replayed_from) == ("tr-1", "")
    assert (second.output, second.replayed_from) == ("tr-1", "s0p0")


async def test_work_of_another_run_is_shown_as_replayed_from_there(journal):
    outside = keys.xrun_args("pay", "d")
    record = CallRecord(
        status="succeeded", tool="pay", call="s4p2", args={"amount": 5}, digest="d", side_effect=True, run="earlier"
    )
    shadow = dataclasses.replace(record, mirror_of=keys.encode(outside), run="", call="s0p0", output="tr-1")
    await write(
        journal,
        *head_ops("r"),
        step_op("r", 0, pay("s0p0")),
        Put(outside, record.to_json()),
        Put(keys.tool("r", keys.ROOT, 0, 0), shadow.to_json()),
    )
    view = await read_run(journal, "r")
    assert view.calls == ()
    assert [(c.id, c.output, c.replayed_from) for c in view.steps[0].calls] == [("s0p0", "tr-1", "earlier/s4p2")]


async def test_a_large_output_is_read_when_it_is_asked_for(journal):
    await write(
        journal,
        *head_ops("r"),
        step_op("r", 0, pay("s0p0")),
        call_op("r", "s0p0", in_blob=True, blob=b'{"rows": 3}'),
    )
    assert [(c.output, c.in_blob) for c in (await read_run(journal, "r")).steps[0].calls] == [(None, True)]
    whole = await read_run(journal, "r", blobs=True)
    assert [(c.output, c.in_blob) for c in whole.steps[0].calls] == [({"rows": 3}, False)]


async def test_a_blob_that_is_no_json_is_a_problem(journal):
    await write(
        journal,
        *head_ops("r"),
        step_op("r", 0, pay("s0p0")),
        call_op("r", "s0p0", in_blob=True, blob=b"\x80\x04pickle"),
    )
    assert "is no JSON" in (await read_run(journal, "r", blobs=True)).problems[0]


async def test_no_such_run(journal):
    for name in ("r", "agent:r:0123456789abcdef", "agent:"):
        with pytest.raises(RunNotFoundError, match="gnl runs list"):
            await read_run(journal, name)


async def test_a_head_that_cannot_be_read_is_named(journal):
    await write(journal, Put(keys.head("r"), {"f": 1, "status": "completed", "steps": "many"}))
    with pytest.raises(StoreCorruptError, match="run/r/~/head"):
        await read_run(journal, "r")


async def test_s36_a_head_of_a_newer_release_is_refused_by_name(journal):
    await write(journal, Put(keys.head("r"), {"f": 99, "status": "completed"}))
    with pytest.raises(JournalFormatError, match="update gnl-semantic"):
        await read_run(journal, "r")


@pytest.mark.parametrize(
    ("removed", "told"),
    [
        (keys.model("r", keys.ROOT, 0), "model step 0 of 2 is missing"),
        (keys.model("r", keys.ROOT, 1), "model step 1 of 2 is missing"),
        (keys.tool("r", keys.ROOT, 0, 1), "builds on call s0p1, whose record is missing"),
    ],
)
async def test_s44_a_missing_record_is_a_gap(journal, removed, told):
    await full_run(journal)
    await write(journal, Delete(removed))
    assert any("has a gap" in problem and told in problem for problem in (await read_run(journal, "r")).problems)


async def test_s44_a_missing_message_is_a_gap(journal):
    await write(journal, *head_ops("r"), step_op("r", 0, TextPart("x"), add=[{"msg": "ab"}]))
    assert "builds on a message that is missing" in (await read_run(journal, "r")).problems[0]
    await write(journal, Put(keys.message("r", keys.ROOT, "ab"), {"f": 1}))
    assert (await read_run(journal, "r")).problems == ()


async def test_rows_that_cannot_be_read_do_not_hide_the_rest(journal):
    await full_run(journal)
    await write(
        journal,
        Put(keys.tool("r", keys.ROOT, 0, 1), {"f": 1, "status": "dreaming"}),
        Put(("run", "r", "~", "model", "second"), {"f": 1}),
        Put(("run", "r", "~", "tool", "x", "y"), {"f": 1}),
    )
    view = await read_run(journal, "r")
    assert len(view.steps) == 2
    assert sum("run/r/~/" in problem for problem in view.problems) >= 3
