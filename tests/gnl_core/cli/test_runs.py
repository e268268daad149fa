"""`gnl runs`: lists, one run, and looking at a journal that others write."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from gnl_core import keys
from gnl_core.journal import Delete, Put
from gnl_core.model.messages import TextPart, ToolCallPart


def pay(call, amount=5):
    return ToolCallPart(call, "pay", {"amount": amount})


@pytest.fixture
def filled(shelf):
    """A completed run, a suspended one, and one whose program was killed in a payment."""
    child = keys.child_id("waits", keys.ROOT, "s0p0")
    shelf.write(
        *shelf.head("done", at=1_000, agent="mail", thread="t1", resource="ayşe", steps=1, calls=1),
        Put(keys.input_of("done"), {"f": 1, "messages": [{"role": "user", "content": "pay"}], "system": None}),
        shelf.step("done", 0, TextPart("paid"), pay("s0p0")),
        shelf.call("done", "s0p0", output={"id": "tr-1"}, attempts=1, settled_by="recover"),
        *shelf.head("waits", at=2_000, status="suspended", agent="billing", questions=1),
        shelf.step("waits", 0, pay("s0p0"), pay("s0p1")),
        shelf.call("waits", "s0p0", side_effect=False, output="x"),
        shelf.call("waits", "s0p1", status="suspended", question={"kind": "confirm", "reason": "why", "at": 9}),
        *shelf.head("waits", part=child, parent={"run": "waits", "call": "s0p0"}),
        *shelf.head("killed", at=3_000, status="running", agent="billing"),
        shelf.dead_lock("killed"),
        shelf.step("killed", 0, pay("s0p0", 7)),
        shelf.call("killed", "s0p0", status="running", attempts=1),
        Put(
            keys.incident("waits", keys.ROOT, "s0p1", "duplicate-guard", "suspend"), {"f": 1, "message": "seen before"}
        ),
    )
    return shelf


def test_the_list_shows_the_newest_first_and_calls_in_doubt(gnl, filled):
    ended = gnl("runs", "list", *filled.db)
    assert ended.code == 0
    head, *lines = ended.out.splitlines()
    assert head.split() == ["STATUS", "SINCE", "STEPS", "CALLS", "ASKED", "AGENT", "PERSON", "THREAD", "RUN"]
    cells = [line.split() for line in lines]
    # What a head counts at the end of a drive is not known of a run that was killed in one.
    assert [(cell[0], *cell[3:6], cell[-1]) for cell in cells] == [
        ("interrupted", "-", "-", "1", "killed"),
        ("suspended", "0", "0", "1", "waits"),
        ("completed", "1", "1", "0", "done"),
    ]
    assert "in doubt: killed/s0p0/in_doubt/1" in ended.err


def test_the_list_for_programs(gnl, filled):
    ended = gnl("runs", "list", "--json", *filled.db)
    assert ended.out.isascii()
    runs = ended.json["runs"]
    assert [(run["run_id"], run["status"]) for run in runs] == [
        ("killed", "interrupted"),
        ("waits", "suspended"),
        ("done", "completed"),
    ]
    assert runs[0]["in_doubt"] == ["killed/s0p0/in_doubt/1"]
    assert runs[2]["resource_id"] == "ayşe"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--status", "interrupted"], ["killed"]),
        (["--status", "running"], []),
        (["--agent", "billing"], ["killed", "waits"]),
        (["--agent", "billing", "--oldest-first"], ["waits", "killed"]),
        (["--resource", "ayşe"], ["done"]),
        (["--thread", "t1", "--status", "completed"], ["done"]),
    ],
)
def test_filters(gnl, filled, options, expected):
    ended = gnl("runs", "list", "--json", *filled.db, *options)
    assert [run["run_id"] for run in ended.json["runs"]] == expected


def test_pages_follow_each_other(gnl, filled):
    first = gnl("runs", "list", "--json", "--limit", "2", *filled.db).json
    second = gnl("runs", "list", "--json", "--limit", "2", "--cursor", first["cursor"], *filled.db).json
    assert [run["run_id"] for run in first["runs"] + second["runs"]] == ["killed", "waits", "done"]
    assert second["cursor"] is None
    assert first["cursor"] in gnl("runs", "list", "--limit", "2", *filled.db).err


def test_an_empty_list_says_so(gnl, filled):
    ended = gnl("runs", "list", "--agent", "nobody", *filled.db)
    assert ended == (0, "", "no such run\n")


def test_counts(gnl, filled):
    assert gnl("runs", "count", "--json", *filled.db).json == {
        "running": 0,
        "suspended": 1,
        "completed": 1,
        "failed": 0,
        "canceled": 0,
        "interrupted": 1,
        "ready": 0,
    }
    assert ["interrupted", "1"] in [line.split() for line in gnl("runs", "count", *filled.db).out.splitlines()]


def test_one_run_is_shown(gnl, filled):
    ended = gnl("runs", "show", "done", *filled.db)
    assert (ended.code, ended.err) == (0, "")
    assert "done: completed" in ended.out
    assert 's0p0 pay({"amount": 5}): succeeded, settled by recover' in ended.out
    assert 'returned: {"id": "tr-1"}' in ended.out
    waits = gnl("runs", "show", "waits", *filled.db).out
    assert "asks waits/s0p1/confirm/0: why" in waits
    assert f"sub-agent {keys.child_id('waits', keys.ROOT, 's0p0')}: completed" in waits
    assert "incidents: 1" in waits
    killed = gnl("runs", "show", "killed", "--json", *filled.db).json
    assert killed["model_steps"][0]["calls"][0]["in_doubt"] is True
    assert killed["open_questions"][0]["question"] == "killed/s0p0/in_doubt/1"


def test_a_long_output_is_cut_unless_all_of_it_is_asked_for(gnl, book):
    text = "x" * 70_000
    book.write(
        *book.head("r"),
        book.step("r", 0, pay("s0p0"), pay("s0p1")),
        book.call("r", "s0p0", output="y" * 500),
        book.call("r", "s0p1", in_blob=True, blob=json.dumps(text).encode()),
    )
    brief, full = (
        gnl("runs", "show", "r", *book.db).out,
        gnl("runs", "show", "r", "--full", *book.db).out,
    )
    assert "y" * 200 + "… (500 characters)" in brief
    assert "over 64 KB, shown with --full" in brief
    assert "y" * 500 in full
    assert text in full


def test_s44_a_gap_is_shown_and_is_status_one(gnl, filled):
    filled.write(Delete(keys.model("done", keys.ROOT, 0)))
    ended = gnl("runs", "show", "done", *filled.db)
    assert ended.code == 1
    assert "has a gap: model step 0 of 1 is missing" in ended.err


def test_rows_that_cannot_be_read_are_told_and_are_status_one(gnl, filled):
    filled.write(Put(keys.head("done"), {"f": 7}))
    ended = gnl("runs", "list", *filled.db)
    assert ended.code == 1
    assert "format 7" in ended.err
    assert "killed" in ended.out


def test_incidents(gnl, filled):
    ended = gnl("incidents", "waits", "--json", *filled.db)
    assert [(item["tool_call_id"], item["source"], item["message"]) for item in ended.json] == [
        ("s0p1", "duplicate-guard", "seen before")
    ]
    assert "duplicate-guard/suspend  waits s0p1: seen before" in gnl("incidents", *filled.db).out
    assert gnl("incidents", "done", *filled.db) == (0, "", "no incidents\n")


WRITER = """
import asyncio, os, signal, sys
from gnl_core import keys
from gnl_core.journal import Put, new_batch
from gnl_core.journal.sqlite import SqliteStorage

async def main():
    async with SqliteStorage(sys.argv[1]) as storage:
        for number in range(int(sys.argv[2])):
            head = {"f": 1, "status": "completed", "created_at": number, "changed_at": number}
            ops = [Put(keys.head(f"w{number}"), head), Put(keys.index("status", "completed", number, f"w{number}"), {})]
            await storage.runs.apply(ops, batch=new_batch())
            if number == 0:
                print("ready", flush=True)
        if len(sys.argv) > 3:
            os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


def test_s89_looking_while_others_write_never_fails_nor_stops_them(gnl, book):
    book.write()
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(book.path), "400"], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout.readline() == "ready\n"
        looks = 0
        while writer.poll() is None:
            assert gnl("runs", "list", "--json", *book.db).code == 0
            assert gnl("runs", "show", "w0", "--json", *book.db).code == 0
            looks += 1
        assert writer.returncode == 0
    assert looks > 0
    assert gnl("runs", "count", "--json", *book.db).json["completed"] == 400


def test_the_journal_of_a_program_that_was_killed_can_be_read_at_once(gnl, book):
    book.write()
    ended = subprocess.run(
        [sys.executable, "-c", WRITER, str(book.path), "5", "die"], stdout=subprocess.DEVNULL, check=False
    )
    assert ended.returncode == -signal.SIGKILL
    assert os.path.getsize(f"{book.path}-wal") > 0  # noqa: PTH202 - the log's name is no file of ours
    assert gnl("runs", "count", "--json", *book.db).json["completed"] == 5


def test_looking_changes_nothing_in_the_store(gnl, filled):
    def content():
        if filled.options:
            return filled.rows_and_versions()
        with closing(sqlite3.connect(filled.path)) as connection:
            return list(connection.iterdump())

    before = content()
    for command in (["runs", "list"], ["runs", "show", "killed"], ["runs", "count"], ["incidents"], ["doctor"]):
        gnl(*command, *filled.db)
    assert content() == before
