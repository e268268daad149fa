"""The program as a whole: help, exit statuses, files that are no journal, terminals, and what strangers wrote."""

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from gnl_core import keys
from gnl_core.cli.terminal import age, plain, short
from gnl_core.journal import Put
from gnl_core.model.messages import TextPart, ToolCallPart

COMMANDS = [
    ["runs"],
    ["runs", "list"],
    ["runs", "show"],
    ["runs", "count"],
    ["runs", "resume"],
    ["runs", "fork"],
    ["runs", "cancel"],
    ["approvals"],
    ["approvals", "list"],
    ["approvals", "approve"],
    ["approvals", "deny"],
    ["approvals", "settle"],
    ["claims"],
    ["claims", "list"],
    ["claims", "release"],
    ["claims", "settle"],
    ["incidents"],
    ["doctor"],
    ["crashtest"],
]
READING = [["runs", "list"], ["runs", "count"], ["runs", "show", "r"], ["approvals", "list"], ["claims", "list"]]
READING += [["incidents"], ["doctor"]]


@pytest.mark.parametrize("command", [[], *COMMANDS])
def test_every_command_has_help_both_ways(gnl, command):
    long, short_ = gnl(*command, "--help"), gnl(*command, "-h")
    assert (long.code, long.err) == (0, "")
    assert long.out == short_.out
    assert "Exit status" in long.out or command in (["runs"], ["approvals"], ["claims"])


@pytest.mark.parametrize("command", READING)
def test_everything_that_reads_prints_json(gnl, book, command):
    book.write(*book.head("r"))
    ended = gnl(*command, "--db", book.path, "--json")
    assert ended.code == 0
    assert ended.json is not None


@pytest.mark.parametrize("command", READING)
@pytest.mark.parametrize("kind", ["missing", "folder", "text", "empty", "other database"])
def test_a_file_that_is_no_journal_is_refused_and_left_alone(gnl, tmp_path, command, kind):
    path = tmp_path / "it"
    match kind:
        case "folder":
            path.mkdir()
        case "text":
            path.write_text("not a database at all, but long enough to look like one" * 20)
        case "empty":
            path.touch()
        case "other database":
            with closing(sqlite3.connect(path)) as other:
                other.execute("CREATE TABLE t (x)")
    before = path.read_bytes() if path.is_file() else None
    ended = gnl(*command, "--db", path)
    assert (ended.code, ended.out) == (2, "")
    assert str(path) in ended.err
    assert (path.read_bytes() if path.is_file() else None) == before
    assert [item.name for item in tmp_path.iterdir()] == ([] if kind == "missing" else ["it"])


def test_the_journal_is_named_by_option_or_environment(gnl, book, monkeypatch):
    book.write(*book.head("r"))
    assert gnl("runs", "list").code == 2
    assert gnl("--db", book.path, "runs", "list").out == gnl("runs", "list", "--db", book.path).out
    monkeypatch.setenv("GNL_DB", str(book.path))
    assert "r" in gnl("runs", "list").out
    assert gnl("runs", "list", "--db", "elsewhere").code == 2


@pytest.mark.parametrize(
    "args",
    [
        ["nonsense"],
        ["runs", "list", "--status", "asleep"],
        ["runs", "list", "--limit", "0"],
        ["runs", "list", "--cursor", "x"],
        ["runs", "show", "nobody"],
        ["incidents", "nobody"],
        ["approvals", "list", "nobody"],
        ["runs", "resume", "r", "--agent", "nomodule"],
        ["runs", "resume", "r", "--agent", "no.such.module:agent"],
        ["runs", "resume", "r", "--agent", "json:nothing"],
        ["approvals", "settle", "r/s0p0/in_doubt/1", "--result", "{"],
        ["approvals", "settle", "r/s0p0/in_doubt/1", "--result", "NaN"],
        ["approvals", "settle", "r/s0p0/in_doubt/1", "--result", "@/no/such/file"],
        ["crashtest", "json:nothing"],
    ],
)
def test_bad_options_are_status_two_and_one_clear_line(gnl, book, monkeypatch, args):
    book.write(*book.head("r"))
    monkeypatch.setenv("GNL_DB", str(book.path))
    ended = gnl(*args)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("gnl: ")
    assert "Traceback" not in ended.err


def test_a_fault_of_the_program_is_no_failed_run(gnl, book, monkeypatch):
    book.write(*book.head("r"))
    monkeypatch.setattr("gnl_core.cli.runs.list_runs", lambda *_, **__: 1 / 0)
    ended = gnl("runs", "list", "--db", book.path)
    assert ended.code == 70
    assert "ZeroDivisionError" in ended.err


def test_an_interrupted_command_ends_with_130(gnl, book, monkeypatch):
    book.write(*book.head("r"))

    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("gnl_core.cli.runs.list_runs", stop)
    assert gnl("runs", "list", "--db", book.path).code == 130


def test_the_installed_script_runs(book):
    book.write(*book.head("r"))
    script = Path(sys.executable).with_name("gnl")
    if not script.exists():
        pytest.skip("the distribution is not installed")
    ended = subprocess.run([script, "runs", "list", "--json", "--db", book.path], capture_output=True, check=True)
    assert [run["run_id"] for run in json.loads(ended.stdout)["runs"]] == ["r"]


def test_a_reader_that_has_gone_is_no_error(book):
    book.write(*[op for number in range(800) for op in book.head(f"run-with-a-long-name-{number:050}", at=number)])
    with subprocess.Popen(
        [sys.executable, "-m", "gnl_core.cli", "runs", "list", "--limit", "800", "--db", book.path],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as process:
        process.stdout.readline()
        process.stdout.close()
        errors = process.stderr.read()
        assert process.wait(30) == 0
    assert b"Traceback" not in errors
    assert b"BrokenPipe" not in errors


def test_a_full_disk_is_told(book):
    book.write(*book.head("r"))
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "gnl_core.cli", "runs", "list", "--db", book.path],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert b"cannot be written" in ended.stderr
    assert ended.returncode == 2


HOSTILE = "\x1b[2J\x1b]0;owned\x07\r\n\x9b31m\u202e\u2066\x7f\x00evil"


def test_what_strangers_wrote_moves_no_cursor(gnl, book):
    run_id = "r\u202e\u200bx"
    book.write(
        *book.head(
            run_id,
            status="failed",
            agent=HOSTILE,
            thread="t\u2028",
            resource=HOSTILE,
            model=HOSTILE,
            error={"code": HOSTILE, "message": HOSTILE},
            parent={"run": HOSTILE, "call": HOSTILE},
        ),
        Put(keys.input_of(run_id), {"f": 1, "messages": [{"role": "user", "content": HOSTILE}], "system": HOSTILE}),
        book.step(run_id, 0, TextPart(HOSTILE), ToolCallPart("s0p0", HOSTILE, {HOSTILE: HOSTILE})),
        book.call(run_id, "s0p0", status="failed", error={"type": HOSTILE, "message": HOSTILE}, text=HOSTILE),
        book.call(
            run_id,
            "s0p1",
            status="suspended",
            tool=HOSTILE,
            question={"kind": HOSTILE, "attempt": 0, "reason": HOSTILE, "at": 1},
        ),
        Put(keys.incident(run_id, keys.ROOT, HOSTILE, HOSTILE, HOSTILE), {"f": 1, "message": HOSTILE}),
        Put(("run", HOSTILE, "~", "head"), {"f": 1, "status": "completed"}),
        Put(keys.index("status", "completed", 5, HOSTILE), {}),
    )
    for command in (
        ["runs", "list"],
        ["runs", "show", run_id],
        ["runs", "show", run_id, "--full"],
        ["approvals", "list"],
        ["incidents"],
        ["doctor"],
    ):
        for extra in ([], ["--json"]):
            ended = gnl(*command, *extra, "--db", book.path)
            assert ended.code in (0, 1)
            text = ended.out + ended.err
            assert "evil" in text
            assert not set(text) & set("\x1b\x07\r\x9b\u202e\u2066\u2028\u200b\x7f\x00")
    ended = gnl("runs", "show", "\x1b[2J", "--db", book.path)
    assert (ended.code, "\x1b" in ended.err) == (2, False)


def test_long_texts_are_cut_with_their_length():
    assert short("a" * 201) == "a" * 200 + "… (201 characters)"
    assert short({"a": "b" * 5_000}) == '{"a": "' + "b" * 193 + "… (5,009 characters)"
    assert short("a\nb") == "a\\nb"
    assert plain("می‌خواهم") == "می‌خواهم"


@pytest.mark.parametrize(
    ("ms", "text"),
    [(0, "0 s"), (59_999, "59 s"), (60_000, "1 min"), (3_600_000, "1 h"), (2_592_000_000, "30 d"), (-5, "0 s")],
)
def test_ages(ms, text):
    assert age(1_000_000, 1_000_000 + ms) == text
    assert age(0, 5) == "?"
