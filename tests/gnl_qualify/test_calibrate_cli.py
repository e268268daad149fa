"""The program's `calibrate`, run as a person runs it."""

import csv
import json
import os
import pty
import re
import subprocess

import pytest

from gnl_qualify.calibration.frames import NAMES


@pytest.fixture
def folder(room, tmp_path):
    room.write_set(tmp_path / "mine.json", room.set_of(12))
    return tmp_path


def test_every_output_is_written(room, folder):
    outputs = ("--html", "c.html", "--json", "c.json", "--csv", "tables")
    done = room.run("calibrate", "--fixtures", "mine.json", "--embedder", "hashing", *outputs, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("embedder test:hashing@1, set mine ")
    assert "embedding: 48 of 48" in done.stderr
    report = json.loads((folder / "c.json").read_text(encoding="utf-8"))
    assert report["by_label"] == dict.fromkeys(("dup-exact", "dup-paraphrase", "near-miss", "unrelated"), 12)
    assert (folder / "c.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert {path.stem for path in (folder / "tables").iterdir()} == set(NAMES)
    with (folder / "tables" / "pairs.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 48
    assert rows[0]["rung"] == "identity"


def test_a_judge_answers_the_gray_pairs(room, folder):
    (folder / "judge.py").write_text(room.PERFECT, encoding="utf-8")
    judge = ("--judge", "judge.py", "--model", "perfect-1")
    done = room.run(
        "calibrate", "--fixtures", "mine.json", "--embedder", "hashing", *judge, "--json", "c.json", cwd=folder
    )
    assert done.returncode == 0, done.stderr
    report = json.loads((folder / "c.json").read_text(encoding="utf-8"))
    asked = {row["group"]: row["pairs"]["k"] for row in report["chain"] if row["outcome"] == "asked: judge says same"}
    assert asked["repeats"] > 0
    assert asked["look-alikes"] == asked["unrelated"] == 0
    assert "with the judge perfect-1" in done.stdout


def test_the_built_in_embedder_is_the_default(room, tmp_path):
    room.write_set(tmp_path / "mine.json", room.set_of(5))
    done = room.run("calibrate", "--fixtures", "mine.json", "--json", "c.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "c.json").read_text(encoding="utf-8"))
    assert report["embedder"].startswith("local:")
    assert (report["threshold"], report["threshold_source"]) == (0.895, "profile")
    means = {row["label"]: row["mean"] for row in report["cosines"] if row["form"] == "canonical"}
    assert means["dup-exact"] == pytest.approx(1.0, abs=1e-3)
    assert means["unrelated"] < means["dup-paraphrase"]


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("--fixtures", "none.json"), "none.json"),
        (("--fixtures", "few.json"), "no pair is labelled near-miss: a calibration needs"),
        (("--fixtures", "mine.json", "--json", "mine.json"), "is an input too"),
        (("--fixtures", "mine.json", "--json", "x.json", "--html", "x.json"), "is the output of"),
        (("--fixtures", "mine.json", "--html", "no/c.html"), "there is no folder"),
        (("--fixtures", "mine.json", "--csv", "few.json"), "is a file"),
        (("--fixtures", "mine.json", "--csv", "no/such/folder"), "cannot be made"),
        (("--fixtures", "mine.json", "--judge", "judge.py"), "needs a model id"),
        (("--fixtures", "mine.json", "--embedder", "nowhere"), "--embedder nowhere: there is no such embedder"),
    ],
)
def test_what_cannot_work_is_one_line_before_anything_is_embedded(room, folder, args, told):
    room.write_set(folder / "few.json", room.set_of(dup_exact=2, dup_paraphrase=2, unrelated=2))
    (folder / "judge.py").write_text(room.PERFECT, encoding="utf-8")
    before = {path.name for path in folder.iterdir()}
    embedder = () if "--embedder" in args else ("--embedder", "hashing")
    done = room.run("calibrate", *args, *embedder, cwd=folder)
    assert done.returncode == 2
    assert told in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""
    assert {path.name for path in folder.iterdir()} == before


def test_hostile_texts_reach_the_terminal_as_text(room, tmp_path):
    pairs = [
        {"id": f"{label} {n}", "domain": "d", "tool_name": "t", "a": f"Lamp {n}", "b": other, "label": label}
        for label, other in (
            ("dup-exact", "lamp 1"),
            ("dup-paraphrase", "\x1b[2Jzzz\u202e"),
            ("near-miss", "LAMP  1"),
            ("unrelated", "rent"),
        )
        for n in (1,)
    ]
    (tmp_path / "mine.json").write_text(json.dumps({"v": 1, "pairs": pairs}), encoding="utf-8")
    done = room.run("calibrate", "--fixtures", "mine.json", "--embedder", "hashing", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    assert "\u202e" not in done.stdout
    assert "near-miss 1" in done.stdout


def test_progress_is_a_bar_on_a_terminal(room, folder):
    ours, theirs = pty.openpty()
    command, options = room.program(
        "calibrate", "--fixtures", "mine.json", "--embedder", "hashing", env={"TERM": "xterm"}
    )
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=theirs, **options) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                shown += os.read(ours, 65536)
            except OSError:  # Linux says so when the other end is closed
                break
        report = process.stdout.read()
    os.close(ours)
    assert process.returncode == 0
    assert b"searching threads" in shown
    assert b"12/12" in shown
    assert report.startswith("embedder test:hashing@1")


def test_no_folder_is_left_behind_by_a_fault_in_another_output(room, folder):
    args = ("--fixtures", "mine.json", "--embedder", "hashing", "--csv", "tables", "--json", "no/c.json")
    assert room.run("calibrate", *args, cwd=folder).returncode == 2
    assert not (folder / "tables").exists()


def test_what_an_export_holds_is_enough_and_what_it_lacks_is_told_everywhere(room, folder):
    room.write_set(folder / "pairs.json", room.set_of(dup_paraphrase=6, near_miss=6))
    outputs = ("--html", "c.html", "--json", "c.json", "--csv", "tables")
    done = room.run("calibrate", "--fixtures", "pairs.json", "--embedder", "hashing", *outputs, cwd=folder)
    assert done.returncode == 0, done.stderr
    report = json.loads((folder / "c.json").read_text(encoding="utf-8"))
    assert report["by_label"] == {"dup-paraphrase": 6, "near-miss": 6, "dup-exact": 0, "unrelated": 0}
    assert [row["separates"] for row in report["thresholds"]] == [None, None]
    page = (folder / "c.html").read_text(encoding="utf-8")
    for warning in (
        "no pair is labelled dup-exact: how equal repeats fare is not measured",
        "no pair is labelled unrelated",
    ):
        assert any(one.startswith(warning) for one in report["warnings"])
        assert f"! {warning}" in done.stdout
        assert warning in page
    assert "6 paraphrases are too few for the lower end of the threshold's interval (about 370 have one)" in done.stdout
    for text in (done.stdout, page):
        assert not re.search(r"\b(nan|None)\b", text)
