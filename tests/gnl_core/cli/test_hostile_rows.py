"""Rows that somebody else wrote into the file: every command ends with a status that says so, never with a fault."""

import sqlite3
from contextlib import closing

import pytest

from gnl_core import keys
from gnl_core.model.messages import ToolCallPart

COMMANDS = [
    ["runs", "list"],
    ["runs", "count"],
    ["runs", "show", "r", "--full"],
    ["approvals", "list"],
    ["approvals", "list", "r"],
    ["approvals", "approve", "r", "s0p0"],
    ["incidents"],
]
KEYS = [
    keys.head("r"),
    keys.input_of("r"),
    keys.lock("r"),
    keys.beat("r"),
    keys.halt("r"),
    keys.model("r", keys.ROOT, 0),
    keys.tool("r", keys.ROOT, 0, 0),
    keys.answer("r", keys.ROOT, "s0p0", "in_doubt", 1),
    keys.incident("r", keys.ROOT, "s0p0", "x", "y"),
    keys.head("r", keys.child_id("r", keys.ROOT, "s0p0")),
    keys.index("status", "running", 9, "q"),
    keys.ask(5, "r", keys.ROOT, "s0p0"),
    ("ix", "status", "running", "soon", "r"),
    ("run", "r", "~", "model", "x"),
    ("run", "r", "~", "tool", "x"),
    ("run", "r"),
]
VALUES = {
    "no json": "{",
    "null": "null",
    "stamp alone": '{"f": 1}',
    "newer": '{"f": 2}',
    "deep": '{"f": 1, "x": ' + "[" * 20_000 + "]" * 20_000 + "}",
    "nulls": '{"f": 1, "status": null, "tool": null, "call": null, "args": null, "owner": null, "response": null}',
    "other kinds": '{"f": 1, "status": "running", "steps": "x", "owner": [], "ttl_ms": "x", "released": 0}',
    "lone surrogate": '{"f": 1, "status": "running", "agent": "\\ud800", "message": "\\ud800"}',
    "not utf-8": b'{"f": 1, "status": "\xff"}',
}


@pytest.fixture
def killed(book):
    book.write(
        *book.head("r", status="running"),
        book.dead_lock("r"),
        book.step("r", 0, ToolCallPart("s0p0", "pay", {"amount": 5})),
        book.call("r", "s0p0", status="running", attempts=1),
        *book.head("good", status="suspended"),
        book.call("good", "s0p0", status="suspended", question={"kind": "confirm", "reason": "why", "at": 1}),
    )
    return book


PUT = """
INSERT INTO gnl_rows (scope_id, key, version, batch, created_at, updated_at, format, codec, value)
VALUES (0, ?, 1, 1, 1, 1, 1, 0, CAST(? AS TEXT)) ON CONFLICT DO UPDATE SET value = excluded.value
"""


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_no_row_makes_a_command_fail_without_a_reason(gnl, killed, value):
    faults = []
    with closing(sqlite3.connect(killed.path)) as connection:
        for key in KEYS:
            name = keys.encode(key)
            before = connection.execute("SELECT value FROM gnl_rows WHERE key = ?", (name,)).fetchone()
            with connection:
                connection.execute(PUT, (name, value))
            for command in COMMANDS:
                ended = gnl(*command, "--db", killed.path)
                if ended.code not in (0, 1, 2) or (ended.code and not ended.err):
                    faults.append((name, command, ended.err))
            with connection:
                connection.execute("DELETE FROM gnl_rows WHERE key LIKE 'run/r/~/answer/%'")
                if before is None:
                    connection.execute("DELETE FROM gnl_rows WHERE key = ?", (name,))
                else:
                    connection.execute(PUT, (name, before[0]))
    assert faults == []


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_the_doctor_reads_on_whatever_stands_there(gnl, killed, value):
    with closing(sqlite3.connect(killed.path)) as connection, connection:
        connection.executemany(PUT, [(keys.encode(key), value) for key in KEYS])
    ended = gnl("doctor", "--json", "--db", killed.path)
    assert ended.code == 1, ended.err
    assert any(finding["level"] == "fault" for finding in ended.json["findings"])


def test_a_run_that_cannot_be_read_does_not_hide_the_questions_of_others(gnl, killed):
    with closing(sqlite3.connect(killed.path)) as connection, connection:
        connection.execute("UPDATE gnl_rows SET value = '{\"f\": 2}' WHERE key = 'run/r/~/tool/000000/000'")
    ended = gnl("approvals", "list", "--db", killed.path)
    assert ended.code == 1
    assert "good/s0p0/confirm/0" in ended.out
    assert "update gnl-semantic" in ended.err
