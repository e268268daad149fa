"""`export` as its users meet it: what people said of live traffic, in the fixtures' form."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gnl_core.identity import SemanticIdentity
from gnl_fixtures import FixtureError, load_files, parse_drafts, parse_pairs
from gnl_qualify.export_pairs import Exporter
from gnl_semantic.telemetry import Asked

WRITER = Path(__file__).with_name("live_journal.py")


def call(sku, origin="rule", answer=None, relation=None, **members):
    found = {"origin": origin, "sentence": f"order of first {sku}"}
    return {
        "tool": "order",
        "args": {"sku": sku, "note": "SECRET"},
        "found": found | ({"judge": {"model": "m"}} if origin == "judge" else {}),
        "answer": answer,
        "relation": relation,
        **members,
    }


def payment(invoice, answer, relation=None):
    found = {"origin": "identity", "sentence": f"pay: first {invoice}"}
    return {"tool": "pay", "args": {"invoice": invoice}, "found": found, "answer": answer, "relation": relation}


CALLS = [
    call("identity denied", "identity", False),
    call("rule denied", "rule", False),
    call("judge denied", "judge", False),
    call("other work", "rule", True, "different_work"),
    call("on purpose", "rule", True, "deliberate_repeat"),
    call("not said", "rule", True),
    call("pending", "rule"),
    payment("payment refused", False),
    payment("payment apart", True, "different_work"),
    payment("payment on purpose", True, "deliberate_repeat"),
    payment("payment not said", True),
    {"tool": "order", "args": {"sku": "lamp"}},
    {"tool": "order", "args": {"sku": "lamp"}, "answer": False},
]
LABELS = {
    "order of identity denied": "dup-paraphrase",
    "order of rule denied": "dup-paraphrase",
    "order of judge denied": "dup-paraphrase",
    "order of other work": "near-miss",
    "order of on purpose": "dup-paraphrase",
    "order of not said": None,
    "payment refused": None,
    "payment apart": "near-miss",
    "payment on purpose": "dup-paraphrase",
    "payment not said": None,
}


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


@pytest.fixture(scope="module")
def desk(room, tmp_path_factory):
    """A folder with a journal, and its answered questions as pairs."""
    desk = tmp_path_factory.mktemp("pairs")
    write(desk / "runs.db", CALLS)
    (desk / "judge.py").write_text("def complete(system, user):\n    return 'SAME'\n", encoding="utf-8")
    done = room.run("export", "--db", "runs.db", "--out", "pairs.json", cwd=desk)
    assert done.returncode == 0, done.stderr
    (desk / "told.txt").write_text(done.stdout + done.stderr, encoding="utf-8")
    return desk


@pytest.fixture
def ask(room, desk):
    return lambda *args: room.run(*args, cwd=desk)


def test_each_answer_becomes_the_label_that_it_says_and_no_more(desk):
    pairs = parse_drafts((desk / "pairs.json").read_bytes(), "pairs.json")
    assert {pair.b: pair.label for pair in pairs} == LABELS
    assert {(pair.tool_name, pair.domain, pair.lang) for pair in pairs} == {
        ("order", "order", "und"),
        ("pay", "pay", "und"),
    }
    first = pairs[0]
    assert (first.a, first.b) == ("order of first identity denied", "order of identity denied")
    assert first.note == "refused; asked by a gate, found by identity; question run-0/s0p0/semantic/0"
    paid = next(pair for pair in pairs if pair.tool_name == "pay")
    assert paid.a == "first payment refused", "without the tool's name, which the exam puts in front again"


def test_no_argument_leaves_the_journal(desk):
    assert "SECRET" not in (desk / "pairs.json").read_text("utf-8")


def test_what_was_left_out_is_told(desk):
    told = (desk / "told.txt").read_text("utf-8").splitlines()
    assert told[0] == "pairs.json: 10 pairs, 3 of them without a label"
    assert "left out 1: nobody has answered the question" in told
    assert "left out 1: found by equal arguments, which teach a judge nothing" in told


def test_exam_and_calibration_refuse_pairs_without_a_label_and_name_them(ask):
    for command in (
        ("--judge", "judge.py", "--model", "m", "--fixtures", "pairs.json"),
        ("calibrate", "--fixtures", "pairs.json", "--embedder", "hashing"),
    ):
        done = ask(*command)
        assert (done.returncode, done.stdout) == (2, "")
        assert "3 pairs have no label ('live-" in done.stderr
        assert "field 'label': is null" in done.stderr
        assert "write dup-exact, dup-paraphrase, near-miss or unrelated, or remove the pair" in done.stderr
        assert done.stderr.count("\n") == 1


def test_a_file_whose_labels_are_filled_in_is_a_set_like_any_other(desk, ask):
    content = json.loads((desk / "pairs.json").read_text("utf-8"))
    with pytest.raises(FixtureError, match="no label"):
        load_files([desk / "pairs.json"])
    for pair in content["pairs"]:
        pair["label"] = pair["label"] or "near-miss"
    (desk / "filled.json").write_text(json.dumps(content), encoding="utf-8")
    fixtures = load_files([desk / "filled.json"])
    assert (len(fixtures.pairs), fixtures.private) == (10, True)
    done = ask("--judge", "judge.py", "--model", "m", "--fixtures", "filled.json", "--out", "c.json")
    assert done.returncode == 1, done.stderr
    assert "set filled" in done.stdout


def test_nothing_to_export_writes_no_file(ask, desk):
    done = ask("export", "--db", "runs.db", "--out", "none.json", "--since", "2200-01-01")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "there is no pair to write\n")
    assert not (desk / "none.json").exists()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--db", "runs.db"), "Missing option '--out'"),
        (("--out", "x.json"), "Missing option '--db'"),
        (("--db", "none.db", "--out", "x.json"), "none.db: no such file"),
        (("--db", "judge.py", "--out", "x.json"), "judge.py: cannot be read as an SQLite database"),
        (("--db", "runs.db", "--out", "runs.db"), "is an input too"),
        (("--db", "runs.db", "--out", "no/x.json"), "there is no folder"),
    ],
)
def test_what_cannot_be_exported_exits_2_with_one_line(ask, args, message):
    done = ask("export", *args)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


# One question at a time --------------------------------------------------------------------------------------------


def asked(number=1, **members):
    known = {
        "run_id": f"r{number}",
        "call": "s0p0",
        "kind": "semantic",
        "attempt": 0,
        "at": number,
        "tool": "order",
        "origin": "rule",
        "asked_by": "gate",
        "decision": "denied",
        "sentence": "order: tv-42 izmir",
        "present": "order: tv 42 izmir",
    }
    return Asked(**{**known, **members})


def exported(*questions):
    exporter = Exporter()
    for question in questions:
        exporter.add(question)
    return exporter.done()


def test_the_exam_builds_the_sentence_anew_of_what_is_exported():
    (pair,) = exported(asked()).pairs
    again = SemanticIdentity(keys=("subject",)).build(pair.tool_name, {"subject": pair.a})
    assert again.sentence == "order: tv-42 izmir"


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({"decision": "pending"}, "nobody has answered the question"),
        ({"origin": "exact"}, "found by equal arguments, which teach a judge nothing"),
        ({"sentence": ""}, "the question's row shows no two texts"),
        ({"present": "order: "}, "the question's row shows no two texts"),
        ({"present": "order: TV-42 İZMİR "}, "the two texts are equal"),
        ({"sentence": "x" * 10_000}, "a text or name does not fit"),
        ({"sentence": "a\0b"}, "a text or name does not fit"),
        ({"sentence": "a\x01b"}, "a text or name does not fit"),
        ({"sentence": "a\ud800b"}, "a text or name does not fit"),
        ({"tool": ""}, "a text or name does not fit"),
    ],
)
def test_what_is_no_pair_is_left_out_with_its_reason(members, reason):
    found = exported(asked(**members))
    assert found.pairs == ()
    ((why, number),) = found.left_out.items()
    assert why.startswith(reason)
    assert number == 1


def test_texts_that_were_answered_both_ways_get_no_label():
    one, other = asked(1), asked(2, decision="approved", relation="different_work")
    swapped = asked(3, sentence=one.present, present=one.sentence)
    found = exported(one, other, swapped)
    (pair,) = found.pairs
    assert pair.label is None
    assert "two in another" in pair.note
    assert found.left_out == {"the same two texts stand in an earlier pair": 2}
    assert found.unlabelled == 1


def test_a_later_answer_fills_in_what_an_earlier_one_did_not_say():
    unsaid, said = asked(1, decision="approved"), asked(2)
    (pair,) = exported(unsaid, said).pairs
    assert pair.label == "dup-paraphrase"
    (pair,) = exported(said, unsaid).pairs
    assert pair.label == "dup-paraphrase"


@pytest.mark.parametrize("asked_by", ["confirm", "guard"])
def test_a_no_to_a_call_that_is_always_asked_about_labels_nothing(asked_by):
    (pair,) = exported(asked(asked_by=asked_by)).pairs
    assert pair.label is None


@pytest.mark.parametrize(("count", "named"), [(1, "1 pair has no label ('p0')"), (7, "'p4' and 2 more)")])
def test_the_loader_takes_null_labels_only_where_asked(count, named):
    pairs = [
        {"id": f"p{number}", "domain": "d", "tool_name": "t", "a": f"a{number}", "b": "b", "label": None}
        for number in range(count)
    ]
    data = json.dumps({"v": 1, "pairs": pairs}).encode()
    assert [draft.label for draft in parse_drafts(data, "f.json")] == [None] * count
    with pytest.raises(FixtureError, match="field 'label': is null") as raised:
        parse_pairs(data, "f.json")
    assert named in str(raised.value)
    for broken in ({**pairs[0], "label": "maybe"}, {**pairs[0], "phenomena": ["case"]}):
        with pytest.raises(FixtureError, match="p0"):
            parse_drafts(json.dumps({"v": 1, "pairs": [broken]}).encode(), "f.json")
    with pytest.raises(FixtureError, match="label"):
        parse_drafts(json.dumps({"v": 1, "pairs": [{**pairs[0], "label": ""}]}).encode(), "f.json")


def test_hostile_texts_stay_within_their_field():
    text = '","label":"near-miss","x":"\u202e\x1b'
    found = exported(asked(sentence=text, tool="t</script>"))
    (pair,) = parse_drafts(found.to_text().encode(), "x")
    assert (pair.a, pair.label, pair.tool_name) == (text, "dup-paraphrase", "t</script>")
    assert found.to_text().isascii()
