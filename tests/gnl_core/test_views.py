"""One run as people read it; looking runs nothing and writes nothing."""

import dataclasses
import json

import pytest

from gnl_core import keys
from gnl_core.approvals import Answer
from gnl_core.canonical import args_hash
from gnl_core.errors import JournalFormatError, RunNotFoundError, StoreCorruptError
from gnl_core.journal import Delete, Put, new_batch
from gnl_core.model.messages import TextPart, ToolCallPart, Usage
from gnl_core.records import CallRecord
from gnl_core.views import read_run


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis"])
async def journal(request, new_store):
    async with new_store(request.param).open() as storage:
        yield storage.runs


async def write(journal, *ops):
    await journal.apply(ops, batch=new_batch())


def pay(call, amount=5, provider_id=""):
    return ToolCallPart(call, "pay", {"amount": amount}, provider_id=provider_id)


async def full_run(journal, rows):
    child = keys.child_id("r", keys.ROOT, "s1p0")
    await write(
        journal,
        *rows.head("r", status="suspended", at=5, agent="billing", steps=2, calls=3, questions=1, model="test/m"),
        Put(keys.input_of("r"), {"f": 1, "messages": [{"role": "user", "content": "pay"}], "system": "careful"}),
        rows.step("r", 0, TextPart("first"), pay("s0p0"), pay("s0p1", 7)),
        rows.call("r", "s0p0", output={"id": "tr-1"}, attempts=1),
        rows.call("r", "s0p1", status="failed", error={"type": "Declined", "message": "no money"}, certain=True),
        rows.step("r", 1, pay("s1p0"), pay("s1p1", 9, "call_1"), add=[{"step": 0}, {"call": "s0p0"}, {"call": "s0p1"}]),
        rows.call("r", "s1p0", side_effect=False, output="done"),
        rows.call(
            "r",
            "s1p1",
            status="suspended",
            args={"amount": 9},
            question={"kind": "confirm", "reason": "money leaves", "at": 4},
        ),
        *rows.head("r", part=child, status="completed", steps=1, parent={"run": "r", "call": "s1p0"}),
        rows.step("r", 0, TextPart("child"), part=child),
        Put(keys.incident("r", keys.ROOT, "s1p1", "duplicate-guard", "suspend"), {"f": 1, "message": "m"}),
    )
    return child


async def test_s46_a_run_is_shown_whole_and_nothing_is_run_or_written(journal, rows, counting):
    child = await full_run(journal, rows)
    view = await read_run(counting(journal), "r")
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


async def test_a_sub_agents_run_is_shown_by_its_own_id(journal, rows):
    child = await full_run(journal, rows)
    view = await read_run(journal, child)
    assert (view.run.run_id, view.run.parent, view.steps[0].text) == (child, {"run": "r", "call": "s1p0"}, "child")


async def test_a_question_that_is_answered_no_longer_waits(journal, rows):
    await full_run(journal, rows)
    answer = Answer(kind="confirm", attempt=0, approved=True, args_digest=args_hash({"amount": 9}), at=9, actor="ayşe")
    await write(journal, Put(keys.answer("r", keys.ROOT, "s1p1", "confirm", 0), answer.to_json()))
    view = await read_run(journal, "r")
    assert view.questions == ()
    assert view.answers == (("r/s1p1/confirm/0", answer),)


async def test_an_answer_that_cannot_be_read_is_a_problem_and_no_answer(journal, rows):
    await full_run(journal, rows)
    await write(journal, Put(keys.answer("r", keys.ROOT, "s1p1", "confirm", 0), {"f": 1, "approved": "yes"}))
    view = await read_run(journal, "r")
    assert len(view.questions) == 1
    assert "counts as none" in view.problems[0]


async def test_calls_of_a_loop_of_ones_own_are_shown_without_steps(journal, rows):
    await write(journal, *rows.head("r"), rows.call("r", "s0p0", output=1), rows.call("r", "s1p0", output=2))
    view = await read_run(journal, "r")
    assert (view.steps, [call.id for call in view.calls], view.problems) == ((), ["s0p0", "s1p0"], ())


async def test_a_record_keyed_by_arguments_answers_each_call_it_resolved(journal, rows):
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
        *rows.head("r"),
        rows.step("r", 0, pay("s0p0"), pay("s0p1")),
        Put(keys.args("r", keys.ROOT, "pay", "d"), record.to_json()),
    )
    first, second = (await read_run(journal, "r")).steps[0].calls
    assert (first.output, first.replayed_from) == ("tr-1", "")
    assert (second.output, second.replayed_from) == ("tr-1", "s0p0")


async def test_work_of_another_run_is_shown_as_replayed_from_there(journal, rows):
    outside = keys.xrun_args("pay", "d")
    record = CallRecord(
        status="succeeded", tool="pay", call="s4p2", args={"amount": 5}, digest="d", side_effect=True, run="earlier"
    )
    shadow = dataclasses.replace(record, mirror_of=keys.encode(outside), run="", call="s0p0", output="tr-1")
    await write(
        journal,
        *rows.head("r"),
        rows.step("r", 0, pay("s0p0")),
        Put(outside, record.to_json()),
        Put(keys.tool("r", keys.ROOT, 0, 0), shadow.to_json()),
    )
    view = await read_run(journal, "r")
    assert view.calls == ()
    assert [(c.id, c.output, c.replayed_from) for c in view.steps[0].calls] == [("s0p0", "tr-1", "earlier/s4p2")]


async def test_a_large_output_is_read_when_it_is_asked_for(journal, rows):
    await write(
        journal,
        *rows.head("r"),
        rows.step("r", 0, pay("s0p0")),
        rows.call("r", "s0p0", in_blob=True, blob=b'{"rows": 3}'),
    )
    assert [(c.output, c.in_blob) for c in (await read_run(journal, "r")).steps[0].calls] == [(None, True)]
    whole = await read_run(journal, "r", blobs=True)
    assert [(c.output, c.in_blob) for c in whole.steps[0].calls] == [({"rows": 3}, False)]


async def test_a_blob_that_is_no_json_is_a_problem(journal, rows):
    await write(
        journal,
        *rows.head("r"),
        rows.step("r", 0, pay("s0p0")),
        rows.call("r", "s0p0", in_blob=True, blob=b"\x80\x04pickle"),
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
async def test_s44_a_missing_record_is_a_gap(journal, removed, told, rows):
    await full_run(journal, rows)
    await write(journal, Delete(removed))
    assert any("has a gap" in problem and told in problem for problem in (await read_run(journal, "r")).problems)


async def test_a_count_of_steps_that_no_run_has_is_told_and_not_counted_out(journal):
    await write(journal, Put(keys.head("r"), {"f": 1, "status": "completed", "steps": 10**25}))
    problems = (await read_run(journal, "r")).problems
    assert len(problems) == 101
    assert f"{10**25} model steps of {10**25} are missing" in problems[-1]


async def test_s44_a_missing_message_is_a_gap(journal, rows):
    await write(journal, *rows.head("r"), rows.step("r", 0, TextPart("x"), add=[{"msg": "ab"}]))
    assert "builds on a message that is missing" in (await read_run(journal, "r")).problems[0]
    await write(journal, Put(keys.message("r", keys.ROOT, "ab"), {"f": 1}))
    assert (await read_run(journal, "r")).problems == ()


async def test_rows_that_cannot_be_read_do_not_hide_the_rest(journal, rows):
    await full_run(journal, rows)
    await write(
        journal,
        Put(keys.tool("r", keys.ROOT, 0, 1), {"f": 1, "status": "dreaming"}),
        Put(("run", "r", "~", "model", "second"), {"f": 1}),
        Put(("run", "r", "~", "tool", "x", "y"), {"f": 1}),
    )
    view = await read_run(journal, "r")
    assert len(view.steps) == 2
    assert sum("run/r/~/" in problem for problem in view.problems) >= 3
