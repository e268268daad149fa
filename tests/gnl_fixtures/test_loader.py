"""Reading labelled pairs: every fault is named with file, pair and field."""

import json

import pytest

from gnl_fixtures import FixtureError, FixtureSet, Pair, load_files, load_shipped, parse_pairs, set_id

PAIR = {
    "id": "p1",
    "domain": "orders",
    "tool_name": "createOrder",
    "a": "TV-42",
    "b": "tv 42",
    "label": "dup-paraphrase",
}


def write(path, pairs, **top):
    path.write_text(json.dumps({"v": 1, "pairs": pairs, **top}), encoding="utf-8")
    return path


def test_a_minimal_pair_gets_its_defaults(tmp_path):
    loaded = load_files([write(tmp_path / "mine.json", [PAIR])])
    assert loaded.name == "mine"
    assert loaded.private
    assert loaded.pairs == (
        Pair(
            id="p1", domain="orders", lang="und", tool_name="createOrder", a="TV-42", b="tv 42", label="dup-paraphrase"
        ),
    )
    assert loaded.pairs[0].same_job


def test_the_camel_case_name_of_the_tool_is_accepted(tmp_path):
    pair = {"toolName" if key == "tool_name" else key: value for key, value in PAIR.items()}
    assert load_files([write(tmp_path / "x.json", [pair])]).pairs[0].tool_name == "createOrder"


def test_a_byte_order_mark_and_foreign_members_at_the_top_are_no_fault(tmp_path):
    path = write(tmp_path / "x.json", [PAIR], source="somebody")
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert len(load_files([path]).pairs) == 1


def test_several_files_are_one_set(tmp_path):
    one = write(tmp_path / "one.json", [PAIR])
    two = write(tmp_path / "two.json", [PAIR | {"id": "p2"}])
    loaded = load_files([one, two])
    assert loaded.name == "one+two"
    assert [pair.id for pair in loaded.pairs] == ["p1", "p2"]


def test_an_id_in_two_files_names_both(tmp_path):
    one, two = write(tmp_path / "one.json", [PAIR]), write(tmp_path / "two.json", [PAIR])
    with pytest.raises(FixtureError, match=r"two\.json: pair 'p1'.*one\.json"):
        load_files([one, two])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"label": "duplicate"}, ["'p1'", "'label'", "near-miss"]),
        ({"a": ""}, ["'p1'", "'a'"]),
        ({"a": 5}, ["'a'", "string"]),
        ({"b": None}, ["'b'"]),
        ({"b": "x" * 10_001}, ["'b'", "10000"]),
        ({"a": "\ud800"}, ["'a'", "unicode"]),
        ({"a": "x\0y"}, ["'p1'", "'a'"]),
        ({"b": "x\0near-miss\x01t\0y\0z"}, ["'p1'", "'b'"]),
        ({"tool_name": "x\x01"}, ["tool"]),
        ({"id": ""}, ["pair 0", "'id'"]),
        ({"extra": 1}, ["'extra'"]),
        ({"phenomena": ["colour"]}, ["'phenomena'", "'colour'", "dup-paraphrase", "word-order"]),
        ({"phenomena": "case"}, ["'phenomena'"]),
        ({"tool_name": ""}, ["tool"]),
    ],
)
def test_a_faulty_field_is_named_with_its_pair_and_file(tmp_path, change, words):
    path = write(tmp_path / "x.json", [PAIR | change])
    with pytest.raises(FixtureError) as error:
        load_files([path])
    assert all(word in str(error.value) for word in ["x.json", *words])
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("missing", ["id", "domain", "tool_name", "a", "b", "label"])
def test_a_missing_field_is_named(tmp_path, missing):
    path = write(tmp_path / "x.json", [{key: value for key, value in PAIR.items() if key != missing}])
    with pytest.raises(FixtureError, match=missing):
        load_files([path])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"v": 1,\n"pairs": [}', ["line 2", "column"]),
        (b'{"v": 2, "pairs": []}', ["'v'"]),
        (b'{"v": true, "pairs": []}', ["'v'"]),
        (b'{"pairs": []}', ["'v'"]),
        (b'{"v": 1, "pairs": []}', ["no pairs"]),
        (b'{"v": 1, "pairs": {}}', ["'pairs'"]),
        (b'{"v": 1, "pairs": [1]}', ["pair 0"]),
        (b"[1]", ["'v'"]),
        (b'{"v": 1, "v": 1, "pairs": []}', ["'v' twice"]),
        (b"\xff\xfe", ["byte 0", "UTF-8"]),
        (b"[" * 100_000, ["nested"]),
        (b'{"v": 1, "pairs": [' + b"9" * 5_000 + b"]}", ["digits"]),
    ],
)
def test_a_broken_file_says_where(content, words):
    with pytest.raises(FixtureError) as error:
        parse_pairs(content, "bad.json")
    assert all(word in str(error.value) for word in ["bad.json", *words])


def test_an_id_used_twice_in_a_file(tmp_path):
    with pytest.raises(FixtureError, match=r"pair 1 \('p1'\).*twice"):
        load_files([write(tmp_path / "x.json", [PAIR, PAIR])])


def test_texts_that_are_one_job_here_and_two_there(tmp_path):
    other = PAIR | {"id": "p2", "a": PAIR["b"], "b": PAIR["a"], "label": "near-miss"}
    with pytest.raises(FixtureError, match=r"pair 'p2'.*'label'.*'p1'"):
        load_files([write(tmp_path / "x.json", [PAIR, other])])


def test_a_missing_file_and_a_folder_are_named(tmp_path):
    with pytest.raises(FixtureError, match=r"none\.json.*No such file"):
        load_files([tmp_path / "none.json"])
    with pytest.raises(FixtureError, match="directory"):
        load_files([tmp_path])
    with pytest.raises(FixtureError, match="no fixtures file"):
        load_files([])


def test_the_set_id_of_a_small_set_is_the_references():
    # SHA-256 over 'createOrder NUL a NUL b NUL near-miss' U+0001 'payInvoice NUL x NUL y NUL dup-exact', by hand.
    pairs = [
        Pair(id="2", domain="d", lang="en", tool_name="payInvoice", a="x", b="y", label="dup-exact"),
        Pair(id="1", domain="d", lang="en", tool_name="createOrder", a="a", b="b", label="near-miss"),
    ]
    assert set_id(pairs) == "7428d93daddd1220"
    assert set_id(reversed(pairs)) == set_id(pairs)


def test_the_set_id_sees_sides_and_labels_but_no_ids_or_notes():
    pair = Pair(id="1", domain="d", lang="en", tool_name="t", a="a", b="b", label="near-miss")
    same = Pair(id="9", domain="e", lang="tr", tool_name="t", a="a", b="b", label="near-miss", note="n")
    swapped = Pair(id="1", domain="d", lang="en", tool_name="t", a="b", b="a", label="near-miss")
    other = Pair(id="1", domain="d", lang="en", tool_name="t", a="a", b="b", label="unrelated")
    assert set_id([pair]) == set_id([same])
    assert len({set_id([pair]), set_id([swapped]), set_id([other])}) == 3


def test_a_stated_set_id_must_fit(tmp_path):
    good = write(
        tmp_path / "x.json",
        [PAIR],
        set_id=FixtureSet("x", load_files([write(tmp_path / "y.json", [PAIR])]).pairs).set_id,
    )
    assert load_files([good])
    with pytest.raises(FixtureError, match="set_id"):
        load_files([write(tmp_path / "x.json", [PAIR], set_id="0" * 16)])


def test_a_copy_of_a_shipped_set_is_not_private(tmp_path):
    shipped = load_shipped("calibration")
    pairs = [
        {"id": p.id, "domain": p.domain, "tool_name": p.tool_name, "a": p.a, "b": p.b, "label": p.label}
        for p in shipped.pairs
    ]
    assert not load_files([write(tmp_path / "copy.json", pairs)]).private
