"""`report` as its users meet it, over journals that the engine wrote."""

import json
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

WRITER = Path(__file__).with_name("live_journal.py")
HOSTILE = "<script>window.ran=1</script>\x1b[2J\u202e"
RULE = {"origin": "rule", "sentence": "order of tv-42"}
CALLS = [
    {"tool": "order", "args": {"sku": "tv 42", "note": "SECRET"}, "found": RULE, "answer": False},
    {"tool": "order", "args": {"sku": "tv/42"}, "found": RULE, "answer": True, "relation": "different_work"},
    {"tool": "order", "args": {"sku": "TV42"}, "found": {**RULE, "origin": "judge", "judge": {"model": "m"}}},
    {"tool": "order", "args": {"sku": "lamp"}},
    {"tool": "order", "args": {"sku": "lamp"}, "answer": False},
    {"tool": "order", "args": {"sku": "chair"}, "found": "gray"},
    {"tool": "order", "args": {"sku": HOSTILE}, "found": {**RULE, "sentence": HOSTILE}, "answer": False},
    {"tool": "pay", "args": {"invoice": "7 a"}, "found": {"origin": "identity", "sentence": "pay: 7a"}, "answer": True},
]


def write(path, calls):
    done = subprocess.run(
        [sys.executable, str(WRITER), str(path)],
        input=json.dumps(calls),
        text=True,
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return path


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """A folder with a journal in which everything happened once."""
    desk = tmp_path_factory.mktemp("canlı sorular 日本")
    write(desk / "runs.db", CALLS)
    return desk


@pytest.fixture
def ask(room, desk):
    return lambda *args, **options: room.run("report", *args, cwd=options.pop("cwd", desk), **options)


def test_the_figures_stand_on_standard_output(ask):
    done = ask("--db", "runs.db")
    assert (done.returncode, done.stderr) == (0, "")
    text = done.stdout
    assert "precision@suspend 0.500" in text
    assert (
        "A person refused 2 of 4 answered calls as the same job again, 95 % interval [0.150, 0.850]; 1 question" in text
    )
    assert re.search(r"by a rule +3 asked: 2 refused, 1 ran anyway \(other work 1, on purpose 0, not said 0\)", text)
    assert re.search(r"beside a tool's question +1 asked: 0 refused, 1 ran anyway \(.*not said 1\)", text)
    assert "equal arguments, no part of precision@suspend: suspend 1" in text
    assert "Rules are on and no judge is: the quote for one is 1 gray call in this time" in text
    assert "settings in force: embedder e5, rules on, judge none" in text
    assert "Dropped by identity is no second quote" in text
    assert re.search(r"tool order: \d+ asked, [1-9]\d* noted;", text)
    assert text.count("Noted: incidents that no question came of") == 1
    assert "SECRET" not in text, "no argument leaves the journal"


def test_page_and_json_hold_the_same_and_strangers_text_stays_text(ask, desk):
    done = ask("--db", "runs.db", "--html", "r.html", "--json", "r.json")
    assert (done.returncode, done.stderr) == (0, "report: r.html\n")
    raw = json.loads((desk / "r.json").read_text("utf-8"))
    assert raw["precision"]["rate"]["value"] == 0.5
    assert raw["precision"]["rate"]["n"] == 4
    assert raw["by_origin"] == {"identity": 1, "rule": 3, "judge": 1, "channel": 0}
    assert raw["runs"]["guarded"] >= 7
    assert len(raw["recent"]) == 5
    page = (desk / "r.html").read_text("utf-8")
    assert "precision@<wbr>suspend 0.500" in page
    assert page.index("Noted, not asked") < page.index("Noted: incidents that no question came of")
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "\x1b" not in page + done.stdout
    assert "\u202e" not in page + done.stdout
    assert "SECRET" not in page


def test_a_redacted_report_shows_no_text_of_a_call(ask, desk):
    done = ask("--db", "runs.db", "--html", "x.html", "--json", "x.json", "--redact")
    assert done.returncode == 0
    for text in (done.stdout, (desk / "x.html").read_text("utf-8"), (desk / "x.json").read_text("utf-8")):
        assert "tv-42" not in text
        assert "script>window" not in text
    assert "characters, sha256 " in (desk / "x.html").read_text("utf-8")


def test_reading_changes_no_row(ask, desk):
    def rows():
        with sqlite3.connect(desk / "runs.db") as connection:
            found = connection.execute("SELECT * FROM gnl_rows ORDER BY row_id").fetchall()
        connection.close()
        return found

    before = rows()
    assert ask("--db", "runs.db", "--since", "1h").returncode == 0
    assert rows() == before


@pytest.mark.parametrize(
    ("since", "asked"),
    [("7d", 5), ("30m", 5), ("2020-01-01", 5), ("2020-01-01T00:00+03:00", 5), ("2200-01-01", 0)],
)
def test_since_takes_a_day_a_time_or_a_span(ask, desk, since, asked):
    done = ask("--db", "runs.db", "--since", since, "--json", "s.json")
    assert done.returncode == 0, done.stderr
    assert json.loads((desk / "s.json").read_text("utf-8"))["totals"]["suspend"] == asked
    if not asked:
        assert "There are no runs in this time." in done.stdout


def test_the_journal_is_also_taken_from_the_environment(ask):
    assert "precision@suspend 0.500" in ask(env={"GNL_DB": "runs.db"}).stdout


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), "no store is named: pass --db"),
        (("--db", "none.db"), "none.db: no such file"),
        (("--db", "."), "is no file"),
        (("--db", "text.txt"), "text.txt: cannot be read as an SQLite database"),
        (("--db", "other.db"), "other.db: is an SQLite database that holds no journal"),
        (("--db", "runs.db", "--since", "soon"), "'soon' is no day"),
        (("--db", "runs.db", "--since", "-7d"), "'-7d' is no day"),
        (("--db", "runs.db", "--since", "9999-01-01"), "since is"),
        (("--db", "runs.db", "--html", "runs.db"), "is an input too"),
        (("--db", "runs.db", "--json", "no/x.json"), "there is no folder"),
        (("--db", "runs.db", "--html", "a", "--json", "a"), "name another file"),
        (("--db", "runs.db", "--org", "not an org"), "org"),
    ],
)
def test_what_cannot_be_read_exits_2_with_one_line(ask, desk, args, message):
    (desk / "text.txt").write_text("no journal, and long enough to be none" * 99, encoding="utf-8")
    with sqlite3.connect(desk / "other.db") as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS things (id INTEGER)")
    connection.close()
    done = ask(*args)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert (desk / "runs.db").stat().st_size > 10_000


STATES = {
    "no runs": ([], "Nothing to show yet", "There are no runs in this journal."),
    "no gate": (
        [{"tool": "order", "args": {"sku": "x"}, "plain": True}],
        "The semantic gate was never configured",
        "None of the 1 run read here began with one.",
    ),
    "no questions": (
        [{"tool": "order", "args": {"sku": "x"}}],
        "No questions yet",
        "1 of 1 run began with a semantic gate, which looked at 1 guarded call and found nothing to ask about.",
    ),
    "no decisions": (
        [{"tool": "order", "args": {"sku": "x"}, "found": RULE}],
        "1 question, no decision yet",
        "Answer them with `gnl approvals`",
    ),
    "gray without judge": (
        [{"tool": "order", "args": {"sku": "x"}, "found": "gray"}],
        "No questions yet",
        "Rules are on and no judge is: the quote for one is 1 gray call",
    ),
}


@pytest.mark.parametrize("state", STATES)
def test_nothing_to_show_yet_is_told_in_text_and_on_a_page(ask, tmp_path, state):
    calls, title, sentence = STATES[state]
    write(tmp_path / "j.db", calls)
    done = ask("--db", "j.db", "--html", "j.html", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert title in done.stdout
    assert sentence in done.stdout
    assert f"<h1>{title}</h1>" in (tmp_path / "j.html").read_text("utf-8")


def test_an_organisation_reads_its_own_rows_and_others_are_told_of(ask, tmp_path):
    call = {"tool": "order", "args": {"sku": "x"}, "found": RULE, "answer": False, "org": "acme"}
    write(tmp_path / "j.db", [call])
    done = ask("--db", "j.db", cwd=tmp_path)
    assert "There are no runs in this journal." in done.stdout
    assert done.stderr == "this journal has rows of organisations too (acme); --org reads theirs\n"
    done = ask("--db", "j.db", "--org", "acme", cwd=tmp_path)
    assert "precision@suspend 1.000" in done.stdout
    assert "organisation acme" in done.stdout
    assert done.stderr == ""
    assert "no runs of the organisation else" in ask("--db", "j.db", "--org", "else", cwd=tmp_path).stdout


def test_a_page_that_cannot_be_written_costs_neither_the_text_nor_the_json(ask, desk):
    (desk / "full").mkdir(exist_ok=True)
    done = ask("--db", "runs.db", "--html", "full")
    assert done.returncode == 2
    assert "is a directory: name a file" in done.stderr


def test_a_store_on_a_server_is_told_and_exported_like_a_file(
    ask, room, postgres_dsn, new_schema, monkeypatch, tmp_path
):
    monkeypatch.setenv("GNL_SCHEMA", new_schema())
    write(postgres_dsn, CALLS[:2])
    done = ask("--db", postgres_dsn, "--json", str(tmp_path / "told.json"))
    assert (done.returncode, done.stderr) == (0, "")
    assert "precision@suspend 0.500" in done.stdout
    exported = room.run("export", "--db", postgres_dsn, "--out", str(tmp_path / "pairs.json"), cwd=tmp_path)
    assert exported.returncode == 0
    assert len(json.loads((tmp_path / "pairs.json").read_text())["pairs"]) == 2
    missing = ask("--db", postgres_dsn, "--schema", "none_of_this_name")
    assert (missing.returncode, "holds no journal" in missing.stderr) == (2, True)
