"""`export` as its users meet it: what people said of live traffic, in the fixtures' form."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gnl_core.identity import SemanticIdentity
from gnl_fixtures import Draft, FixtureError, load_files, parse_drafts, parse_pairs
from gnl_qualify.export_merge import merge
from gnl_qualify.export_pairs import Exported, Exporter
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
    done = ask("calibrate", "--fixtures", "filled.json", "--embedder", "hashing")
    assert done.returncode == 0, done.stderr
    assert "! no pair is labelled unrelated: " in done.stdout


def test_nothing_to_export_writes_no_file(ask, desk):
    done = ask("export", "--db", "runs.db", "--out", "none.json", "--since", "2200-01-01")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "there is no pair to write\n")
    assert not (desk / "none.json").exists()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--db", "runs.db"), "Missing option '--out'"),
        (("--out", "x.json"), "no store is named: pass --db"),
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


# Over an earlier export -------------------------------------------------------------------------------------------


@pytest.fixture
def mine(desk, tmp_path):
    """A folder with a copy of the export, read and written as a person would."""

    class Mine:
        path = tmp_path / "pairs.json"

        def read(self):
            return json.loads(self.path.read_text("utf-8"))

        def pair(self, b):
            return next(pair for pair in self.read()["pairs"] if pair["b"] == b)

        def write(self, change):
            content = self.read()
            change(content)
            self.path.write_text(json.dumps(content), encoding="utf-8")

        def label(self, b, /, **members):
            self.write(lambda content: next(p for p in content["pairs"] if p["b"] == b).update(members))

    mine = Mine()
    mine.path.write_bytes((desk / "pairs.json").read_bytes())
    return mine


@pytest.fixture
def export(room, desk, mine):
    return lambda *args: room.run(
        "export", "--db", desk / "runs.db", "--out", mine.path.name, *args, cwd=mine.path.parent
    )


def test_an_export_over_an_untouched_one_changes_no_byte(export, mine):
    before = mine.path.read_bytes()
    done = export()
    assert done.returncode == 0, done.stderr
    assert mine.path.read_bytes() == before
    assert "kept" not in done.stderr


def test_labels_that_a_person_filled_in_stay_and_are_counted(export, mine):
    mine.label("order of not said", label="near-miss", phenomena=["colour"], note="one is blue", lang="en")
    mine.label("payment not said", label="unrelated")
    mine.label("order of other work", label=None)
    done = export()
    assert done.returncode == 0, done.stderr
    kept = mine.pair("order of not said")
    assert (kept["label"], kept["phenomena"], kept["note"], kept["lang"]) == (
        "near-miss",
        ["colour"],
        "one is blue",
        "en",
    )
    assert mine.pair("payment not said")["label"] == "unrelated"
    assert mine.pair("order of other work")["label"] == "near-miss", "the journal's answer wins over null"
    assert "kept 2 labels of the file that the journal does not say\n" in done.stderr
    assert done.stdout == "pairs.json: 10 pairs, 1 of them without a label\n"


def test_a_label_against_the_journal_stays_and_is_named(export, mine):
    mine.label("order of other work", label="dup-paraphrase", note="I asked them")
    mine.label("order of rule denied", label="dup-exact")
    done = export()
    pair = mine.pair("order of other work")
    assert (pair["label"], pair["note"]) == ("dup-paraphrase", "I asked them")
    assert mine.pair("order of rule denied")["label"] == "dup-exact"
    assert "kept 2 labels of the file" in done.stderr
    told = [line for line in done.stderr.splitlines() if "of which the journal says" in line]
    assert told == [
        f"kept dup-paraphrase of pair '{pair['id']}', of which the journal says near-miss; look at it again"
    ], "a finer label of the same kind is no contradiction"


def test_texts_that_a_person_changed_do_not_come_back(export, mine):
    mine.label("order of not said", b="order of [a name]")
    mine.label("order of other work", a="[gone]", label=None)
    mine.label("payment not said", note="ask Ada")
    assert export().returncode == 0
    text = mine.path.read_text("utf-8")
    assert mine.pair("order of [a name]")["label"] is None
    assert mine.pair("order of other work")["label"] == "near-miss"
    assert mine.pair("payment not said")["note"] == "ask Ada"
    assert "order of first other work" not in text


def test_pairs_that_are_not_found_again_stay_where_they_have_a_label(export, mine):
    own = {"domain": "order", "tool_name": "order", "lang": "und"}

    def add(content):
        content["pairs"].insert(0, {**own, "id": "mine", "a": "x", "b": "y", "label": "unrelated"})
        content["pairs"].insert(0, {**own, "id": "open", "a": "x", "b": "z", "label": None})

    mine.write(add)
    done = export()
    assert done.returncode == 0, done.stderr
    assert [pair["id"] for pair in mine.read()["pairs"]][-1] == "mine"
    assert len(mine.read()["pairs"]) == 11
    assert "kept 1 pair of the file, with a label, that this export has not found\n" in done.stderr
    assert "left out 1 pair of the file, without a label, that this export has not found\n" in done.stderr
    again = mine.path.read_bytes()
    assert export().returncode == 0
    assert mine.path.read_bytes() == again


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "line 1, column 1"),
        ("shopping list", "line 1, column 1"),
        ('{"v": 1, "pairs": []}', "holds no pairs"),
        ('{"runs": []}', "field 'v'"),
        ("[1]", "a file is {'v': 1"),
        (
            '{"v": 1, "pairs": [{"id": "i", "domain": "d", "tool_name": "t", "a": "x", "b": "y", "label": null}]}',
            "holds pairs that no export wrote",
        ),
    ],
)
def test_a_file_that_is_no_export_is_refused_and_stays(export, mine, content, told):
    mine.path.write_text(content, encoding="utf-8")
    done = export()
    assert (done.returncode, done.stdout) == (2, "")
    assert told in done.stderr
    assert "name another file" in done.stderr
    assert done.stderr.count("\n") == 1
    assert mine.path.read_text("utf-8") == content


def test_an_export_with_a_label_that_is_none_is_refused_and_named(export, mine):
    mine.label("order of not said", label="same")
    before = mine.path.read_bytes()
    done = export()
    assert done.returncode == 2
    assert "field 'label'" in done.stderr
    assert mine.path.read_bytes() == before


def draft(number=1, **members):
    known = {"id": f"p{number}", "domain": "d", "lang": "und", "tool_name": "t", "a": f"a{number}", "b": f"b{number}"}
    return Draft(**{**known, **members})


def test_the_same_texts_are_the_same_pair_whichever_question_named_them():
    found = Exported((draft(1, id="new"),), {})
    swapped = draft(1, id="old", a="b1", b="a1", label="near-miss", note="by hand")
    other_tool = draft(1, id="apart", tool_name="u", label="unrelated")
    merged = merge(found, (other_tool, swapped))
    assert merged.exported.pairs == (swapped, other_tool)
    assert (merged.kept, merged.only_here, merged.dropped) == (1, 1, 0)


def test_a_label_is_kept_and_named_where_people_answered_both_ways():
    one, other = asked(1), asked(2, decision="approved", relation="different_work")
    found = exported(one, other)
    old = replace(found.pairs[0], label="near-miss", note="by hand")
    merged = merge(found, (old,))
    assert merged.exported.pairs == (old,)
    assert merged.against == ((old.id, "near-miss", "both, in two questions"),)


def test_no_label_is_lost_where_a_file_holds_the_same_texts_twice():
    found = Exported((draft(1, id="new", label="near-miss"),), {})
    twice = (draft(1, id="x"), draft(1, id="y", label="dup-exact"), draft(1, id="z", label="unrelated"))
    merged = merge(found, twice)
    assert [(pair.id, pair.label) for pair in merged.exported.pairs] == [("y", "dup-exact"), ("z", "unrelated")]
    assert merged.dropped == 1
