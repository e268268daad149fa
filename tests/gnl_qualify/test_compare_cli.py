"""`compare` as its users meet it."""

import json

import pytest

WEAK = "def complete(system, user):\n    return 'SAME' if '100' in user else 'UNSURE'\n"


@pytest.fixture(scope="module")
def desk(room, tmp_path_factory):
    """A folder where three exams were sat, one of them on another set."""
    desk = tmp_path_factory.mktemp("karşılaştırma 日本")
    (desk / "good.py").write_text(room.PERFECT, encoding="utf-8")
    (desk / "weak.py").write_text(WEAK, encoding="utf-8")
    (desk / "other.json").write_text("{}", encoding="utf-8")
    room.write_set(desk / "pairs.json", room.set_of(10))
    room.write_set(desk / "more.json", room.set_of(11))
    for judge, pairs, model in (("good", "pairs", "<b>good"), ("weak", "pairs", "weak"), ("good", "more", "good")):
        files = ("--judge", f"{judge}.py", "--fixtures", f"{pairs}.json", "--out", f"{judge}-{pairs}.json")
        sat = room.run(*files, "--model", model, cwd=desk)
        assert sat.returncode < 2, sat.stderr
    return desk


@pytest.fixture
def ask(room, desk):
    return lambda *args: room.run("compare", *args, cwd=desk)


PAIRS = ("--fixtures", "pairs.json")
GOOD, WEAK_ONE, MORE = (f"{name}.transcript.jsonl" for name in ("good-pairs", "weak-pairs", "good-more"))


def test_a_comparison_writes_text_page_and_json(ask, desk):
    done = ask(GOOD, WEAK_ONE, *PAIRS, "--html", "c.html", "--json", "c.json")
    assert (done.returncode, done.stderr) == (0, "")
    assert "A less B, on the same pairs:" in done.stdout
    raw = json.loads((desk / "c.json").read_text(encoding="utf-8"))
    assert [row["name"] for row in raw["rows"]] == ["A", "B"]
    assert [duel["right"]["n"] for duel in raw["duels"]] == [40]
    page = (desk / "c.html").read_text(encoding="utf-8")
    assert "&lt;b&gt;good" in page
    assert "<b>good" not in page
    assert "Lamp 1000 green" in page


def test_a_redacted_comparison_shows_no_text_of_a_pair(ask, desk):
    done = ask(GOOD, WEAK_ONE, *PAIRS, "--html", "r.html", "--json", "r.json", "--redact")
    assert done.returncode == 0
    for text in (done.stdout, (desk / "r.html").read_text("utf-8"), (desk / "r.json").read_text("utf-8")):
        assert "amp 1" not in text
        assert "characters, sha256 " in text


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), "name 2 to 26 transcripts, not 0"),
        ((GOOD,), "name 2 to 26 transcripts, not 1"),
        ((GOOD, GOOD, *PAIRS), "name it once"),
        ((GOOD, MORE, *PAIRS), "of the set 'more'"),
        ((GOOD, WEAK_ONE), "none of the shipped ones: name its files with --fixtures"),
        ((GOOD, WEAK_ONE, "--fixtures", "more.json"), "field set_id"),
        ((GOOD, "none.jsonl", *PAIRS), "none.jsonl"),
        ((GOOD, "other.json", *PAIRS), "other.json"),
        ((GOOD, WEAK_ONE, *PAIRS, "--html", WEAK_ONE), "is an input too"),
        ((GOOD, WEAK_ONE, *PAIRS, "--json", "no/x.json"), "there is no folder"),
    ],
)
def test_what_cannot_be_compared_exits_2_with_one_line(ask, args, message):
    done = ask(*args)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
