"""`gnl doctor`: what is wrong with a journal, what waits, and the way out of each."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gnl_core import keys
from gnl_core.doctor_file import filesystem_of
from gnl_core.journal import Delete, Put, new_batch
from gnl_core.model.messages import TextPart, ToolCallPart


def sql(path, statement, *values):
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement, values)


def insert(path, key, value="{}", *, row_format=1, codec=0):
    sql(
        path,
        "INSERT INTO gnl_rows (scope_id, key, version, batch, created_at, updated_at, format, codec, value) "
        "VALUES (0, ?, 1, 1, 1, 1, ?, ?, ?)",
        key,
        row_format,
        codec,
        value,
    )


def examining(gnl, book):
    """Return what returns the exit status and the findings that are not ok."""

    def call():
        ended = gnl("doctor", "--json", *book.db)
        findings = [finding for finding in ended.json["findings"] if finding["level"] not in ("ok", "note")]
        assert ended.json["faults"] + ended.json["waits"] == len(findings)
        assert all(finding["advice"] for finding in findings)
        return ended.code, findings

    return call


@pytest.fixture
def examine(gnl, book):
    """Look at a file."""
    return examining(gnl, book)


@pytest.fixture
def look(gnl, shelf):
    """Look at a store of each kind."""
    return examining(gnl, shelf)


def test_a_sound_journal_needs_nothing(gnl, book, examine):
    book.write(
        *book.head("r", steps=1, calls=1),
        book.step("r", 0, TextPart("x"), ToolCallPart("s0p0", "pay", {"amount": 5})),
        book.call("r", "s0p0", output=1),
    )
    assert examine() == (0, [])
    ended = gnl("doctor", "--db", book.path)
    assert "ok     file.integrity: SQLite finds no damage" in ended.out
    assert "ok     file.wal: journal mode wal" in ended.out
    assert "1 runs looked at" in ended.out
    assert ended.err == "0 faults, 0 things that wait\n"


def test_what_waits_is_named_with_its_age_and_the_way_out(gnl, shelf, look):
    shelf.write(
        *shelf.head("waits", status="suspended", questions=1),
        shelf.call("waits", "s0p0", status="suspended", question={"kind": "confirm", "reason": "w", "at": 1}),
        *shelf.head("killed", status="running"),
        shelf.dead_lock("killed"),
        shelf.call("killed", "s0p0", status="running", attempts=1),
    )
    code, findings = look()
    assert code == 1
    assert {finding["check"]: finding["run_id"] for finding in findings} == {
        "runs.waiting": "waits",
        "runs.interrupted": "killed",
        "runs.in_doubt": "killed",
    }
    by_check = {finding["check"]: finding for finding in findings}
    assert "waits/s0p0/confirm/0: pay has waited for a person for" in by_check["runs.waiting"]["text"]
    assert "days" in by_check["runs.waiting"]["text"]
    assert "killed/s0p0/in_doubt/1" in by_check["runs.in_doubt"]["text"]
    assert "settle" in by_check["runs.in_doubt"]["advice"]
    assert "gnl runs resume killed" in by_check["runs.interrupted"]["advice"]
    assert "locks.dead: the lock of run 'killed'" in gnl("doctor", *shelf.db).out


def test_the_console_shows_the_first_of_many_findings_and_all_where_asked(gnl, shelf):
    asked = {"status": "suspended", "question": {"kind": "confirm", "reason": "w", "at": 1}}
    for run in (f"r-{number:02}" for number in range(25)):
        shelf.write(*shelf.head(run, status="suspended", questions=1), shelf.call(run, "s0p0", **asked))
    ended = gnl("doctor", *shelf.db)
    assert (ended.code, ended.err) == (1, "0 faults, 25 things that wait\n")
    assert ended.out.count("WAITS  runs.waiting: r-") == 20
    assert ended.out.splitlines()[-1] == "WAITS  runs.waiting: and 5 more; --all prints them"
    ended = gnl("doctor", "--all", *shelf.db)
    assert ended.out.count("WAITS  runs.waiting: r-") == 25
    assert "more" not in ended.out
    findings = gnl("doctor", "--json", *shelf.db).json["findings"]
    assert sum(finding["check"] == "runs.waiting" for finding in findings) == 25


def test_s44_gaps_are_found(shelf, look):
    shelf.write(
        *shelf.head("r", steps=2),
        shelf.step("r", 0, ToolCallPart("s0p0", "pay", {"amount": 5})),
        shelf.call("r", "s0p0"),
        shelf.step("r", 1, TextPart("x"), add=[{"step": 0}, {"call": "s0p0"}]),
    )
    assert look() == (0, [])
    shelf.write(Delete(keys.tool("r", keys.ROOT, 0, 0)))
    code, findings = look()
    assert (code, [finding["check"] for finding in findings]) == (1, ["runs.gaps"])
    assert "call s0p0, whose record is missing" in findings[0]["text"]


def test_gaps_of_sub_agents_are_found(shelf, look):
    child = keys.child_id("r", keys.ROOT, "s0p0")
    shelf.write(
        *shelf.head("r"),
        *shelf.head("r", part=child, steps=2, parent={"run": "r", "call": "s0p0"}),
        shelf.step("r", 0, TextPart("x"), part=child),
    )
    assert [(finding["check"], finding["run_id"]) for finding in look()[1]] == [("runs.gaps", child)]


@pytest.mark.parametrize(
    ("key", "value", "check"),
    [
        ("run/r/~/head%", "{}", "rows.keys"),
        ("run/r%2f/~/head", "{}", "rows.keys"),
        ("run//head", "{}", "rows.keys"),
        ("run/r/~/model/000000", '{"f": 1}', "rows.values"),
        ("run/r/~/tool/000000/000", '{"f": 1, "status": "dreaming"}', "rows.values"),
        ("run/r/~/answer/s0p0/confirm/000", '{"f": 1, "approved": "yes"}', "rows.values"),
        ("xrun/args/pay/ab", '{"f": 1}', "rows.values"),
        ("run/r/req/lock", '{"f": 9}', "rows.values"),
        ("run/r/~/input", "[", "rows.values"),
        ("ix/status/asleep/0000000000001/r", "{}", "rows.values"),
    ],
)
def test_rows_that_no_release_wrote_are_named(book, examine, key, value, check):
    book.write(*book.head("other"))
    insert(book.path, key, value)
    code, findings = examine()
    assert code == 1
    assert (check, key) in [(finding["check"], finding["key"]) for finding in findings]


@pytest.mark.parametrize("columns", [{"row_format": 2}, {"codec": 7}])
def test_rows_of_a_newer_release_are_named(book, examine, columns):
    book.write(*book.head("r"))
    insert(book.path, "run/r/~/comp/s0p0", "{}", **columns)
    findings = examine()[1]
    assert [finding["advice"] for finding in findings if finding["key"] == "run/r/~/comp/s0p0"] == [
        "update gnl-semantic"
    ]


def test_many_faults_of_one_kind_are_counted(book, examine):
    book.write(*book.head("r"))
    for number in range(25):
        insert(book.path, f"run/r/~/bad%g{number}")
    texts = [finding["text"] for finding in examine()[1] if finding["check"] == "rows.keys"]
    assert len(texts) == 21
    assert texts[-1] == "5 more of these"


def test_indexes_that_disagree_with_the_heads_are_named(shelf, look):
    shelf.write(*shelf.head("lost"), *shelf.head("stale"), *shelf.head("ghost"))
    shelf.write(
        Delete(keys.index("status", "completed", 1_000, "lost")),
        Delete(keys.head("ghost")),
        Put(keys.head("stale"), {"f": 1, "status": "failed"}),
    )
    texts = [finding["text"] for finding in look()[1] if finding["check"] == "rows.indexes"]
    assert texts == [
        "run 'ghost' is missing by its head and completed by the index of statuses",
        "run 'lost' is completed by its head and missing by the index of statuses",
        "run 'stale' is failed by its head and completed by the index of statuses",
    ]


def test_a_fork_that_was_broken_off_is_named(shelf, look):
    head = {"f": 1, "status": "running", "forking": True, "forked_from": {"run": "r", "step": 1}}
    shelf.write(*shelf.head("r"), Put(keys.head("half"), head))
    assert [(finding["check"], finding["run_id"]) for finding in look()[1]] == [("runs.forking", "half")]


def test_runs_of_organisations_are_looked_at_too(shelf, look):
    async def write():
        async with shelf.open() as storage:
            await storage.runs.scoped("acme").apply(shelf.head("r", steps=1), batch=new_batch())

    asyncio.run(write())
    assert [(finding["check"], finding["org"]) for finding in look()[1]] == [("runs.gaps", "acme")]


def test_a_damaged_file_is_told(gnl, book):
    book.write(*[op for number in range(300) for op in book.head(f"r{number}")])
    sql(book.path, "PRAGMA wal_checkpoint(TRUNCATE)")
    data = bytearray(book.path.read_bytes())
    data[8_192:20_480] = b"\x55" * 12_288
    book.path.write_bytes(data)
    ended = gnl("doctor", "--json", "--db", book.path)
    assert ended.code == 1
    faults = {finding["check"] for finding in ended.json["findings"] if finding["level"] == "fault"}
    assert "file.integrity" in faults


def test_a_schema_of_a_newer_release_is_told(gnl, book):
    book.write(*book.head("r"))
    sql(book.path, "UPDATE gnl_meta SET schema_version = 99")
    ended = gnl("doctor", "--json", "--db", book.path)
    assert ended.code == 1
    (schema,) = [finding for finding in ended.json["findings"] if finding["check"] == "file.schema"]
    assert (schema["level"], schema["advice"]) == ("fault", "update gnl-semantic")
    refused = gnl("runs", "list", "--db", book.path)
    assert (refused.code, "update gnl-semantic" in refused.err) == (2, True)


def test_the_file_system_is_the_one_mounted_last_and_deepest(tmp_path):
    table = tmp_path / "mountinfo"
    table.write_text(
        "1 0 8:1 / / rw shared:1 - ext4 /dev/sda rw\n"
        "2 1 0:4 / /mnt rw - nfs4 server:/x rw\n"
        "3 1 0:5 / /mnt/a\\040b rw - ext4 /dev/sdb rw\n"
        "4 1 0:6 / /mnt rw - cifs //server/y rw\n"
        "nonsense\n"
    )
    places = {"/x/j": "ext4", "/mnt/j": "cifs", "/mnt/a b/j": "ext4", "/mntx/j": "ext4"}
    assert {place: filesystem_of(Path(place), str(table)) for place in places} == places
    assert filesystem_of(Path("/x"), str(tmp_path / "none")) == ""
