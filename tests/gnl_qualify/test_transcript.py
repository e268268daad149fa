"""The transcript: what stands in it, and what going on with it allows."""

import json
from pathlib import Path

import pytest

from gnl_qualify.errors import TranscriptError, TranscriptMismatchError
from gnl_qualify.plan import QuestionId
from gnl_qualify.transcript import Answer, Header, Transcript, TranscriptWriter, read_transcript
from gnl_semantic.judge.verdict import Verdict

NOW = "2030-01-01T00:00:00+00:00"


def header(**changes):
    values = {
        "set_id": "0123456789abcdef", "set_name": "x", "set_private": True, "sampled_from": None, "limit": None,
        "seed": 1, "judge_model_id": "m", "judge_spec": "./judge.py", "judge_engine": "python-file",
        "judge_parameters": {"temperature": 0}, "prompt_version": "1", "prompt_sha256": "ab", "parser_version": "1",
        "ruleset_version": "1", "library_version": "0", "timeout_s": 8.0, "concurrency": 4, "repeat_sample": 30,
        "repeats": 1, "order_sample": 30, "command": "c", "started_at": NOW,
    }  # fmt: skip
    return Header(**values | changes)


def answer(item="q00001", text="SAME", **changes):
    values = {
        "item": item, "round": "main", "repeat": 0, "prompt_sha256": "cd", "text": text, "verdict": Verdict.SAME,
        "error": None, "message": None, "latency_ms": 1.5, "tokens_in": None, "tokens_out": None,
    }  # fmt: skip
    return Answer(**values | changes)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "sınav tutanağı.jsonl"


def broken_off(path, n=2):
    with TranscriptWriter.start(path, header()) as writer:
        for i in range(n):
            writer.add(answer(f"q{i:05}"))
    return path


def test_what_is_written_is_read_back(path):
    rows = [
        answer(text="naïve \u2028 \x1b[0m\n"),
        answer(round="repeat", repeat=2, text=None, verdict=None, error="judge_failed"),
    ]
    with TranscriptWriter.start(path, header()) as writer:
        for row in rows:
            writer.add(row)
        writer.finish(NOW)
    read = read_transcript(path)
    assert (read.header, list(read.answers.values()), read.finished_at) == (header(), rows, NOW)
    assert len(path.read_bytes().split(b"\n")) == 5


def test_every_answer_is_on_disk_before_the_next_is_asked(path):
    with TranscriptWriter.start(path, header()) as writer:
        for n in range(3):
            assert len(read_transcript(path).answers) == n
            writer.add(answer(f"q{n}"))


def test_going_on_keeps_the_answers_and_the_first_header(path):
    broken_off(path)
    with TranscriptWriter.resume(
        path, header(command="other", concurrency=9, started_at="2027-01-01T00:00:00Z")
    ) as writer:
        assert list(writer.answers) == [QuestionId("q00000", "main", 0), QuestionId("q00001", "main", 0)]
        assert writer.header.command == "c"
        writer.add(answer("q00002"))
    assert len(read_transcript(path).answers) == 3


@pytest.mark.parametrize("cut", [1, 20, 100])
def test_a_last_line_cut_by_a_kill_is_dropped_and_asked_again(path, cut):
    whole = broken_off(path).read_bytes()
    path.write_bytes(whole[:-cut])
    assert len(read_transcript(path).answers) == 1
    with TranscriptWriter.resume(path, header()) as writer:
        writer.add(answer("q00001", "DIFFERENT", verdict=Verdict.DIFFERENT))
    assert [row.text for row in read_transcript(path).answers.values()] == ["SAME", "DIFFERENT"]


@pytest.mark.parametrize("start", [b"", b'{"kind":"hea'])
def test_an_exam_killed_before_its_header_stood_starts_anew(path, start):
    path.write_bytes(start)
    with TranscriptWriter.resume(path, header()) as writer:
        writer.add(answer())
    assert len(read_transcript(path).answers) == 1


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"set_id": "f" * 16}, "set"),
        ({"limit": 20}, "set"),
        ({"seed": 2}, "seed"),
        ({"judge_model_id": "n"}, "judge"),
        ({"judge_parameters": {"temperature": 1}}, "judge"),
        ({"timeout_s": 9.0}, "judge"),
        ({"prompt_version": "2"}, "prompt"),
        ({"prompt_sha256": "ef"}, "prompt"),
        ({"repeats": 2}, "samples"),
        ({"order_sample": 0}, "samples"),
    ],
)
def test_another_exam_is_not_gone_on_with_and_the_file_stays_as_it_is(path, change, word):
    before = broken_off(path).read_bytes()
    with pytest.raises(TranscriptMismatchError, match=rf"another exam: {word} \({next(iter(change))} is") as caught:
        TranscriptWriter.resume(path, header(**change))
    assert caught.value.detail["differs"] == [word]
    assert path.read_bytes() == before


def test_only_one_exam_writes_a_file(path):
    broken_off(path)
    with TranscriptWriter.resume(path, header()), pytest.raises(TranscriptError, match="another exam is writing it"):
        TranscriptWriter.resume(path, header())
    TranscriptWriter.resume(path, header()).__exit__(None, None, None)


def test_there_must_be_something_to_go_on_with(path):
    with pytest.raises(TranscriptError, match="no transcript to resume"):
        TranscriptWriter.resume(path, header())


def test_a_broken_off_exam_is_not_overwritten(path):
    before = broken_off(path).read_bytes()
    with pytest.raises(TranscriptError, match="--resume"):
        TranscriptWriter.start(path, header())
    assert path.read_bytes() == before


def test_a_strangers_file_is_not_overwritten(path):
    path.write_text("dear diary\n", encoding="utf-8")
    with pytest.raises(TranscriptError, match="no transcript"):
        TranscriptWriter.start(path, header())
    assert path.read_text(encoding="utf-8") == "dear diary\n"


def test_a_finished_one_is_kept_beside_the_new_one(path):
    with TranscriptWriter.start(path, header()) as writer:
        writer.finish(NOW)
    before = path.read_bytes()
    with TranscriptWriter.start(path, header(seed=2)) as writer:
        writer.finish(NOW)
    with TranscriptWriter.start(path, header(seed=3)):
        pass
    assert path.with_name(path.name + ".previous").read_bytes() == before
    assert [read_transcript(path.with_name(path.name + end)).header.seed for end in (".previous.2", "")] == [2, 3]


def lines(path):
    return path.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda rows: [rows[0], "{oops", *rows[2:]], "line 2: .*JSON"),
        (lambda rows: [rows[0], "[" * 100_000, *rows[2:]], "line 2"),
        (lambda rows: rows[1:], "line 1: is no header"),
        (lambda rows: [*rows, rows[1]], "line 4: answers item q00000, round main 0 a second time"),
        (lambda rows: [*rows, rows[0]], "line 4: a row of kind 'header'"),
        (lambda rows: [rows[0], json.dumps(json.loads(rows[1]) | {"label": "near-miss"})], "line 2: field 'label'"),
        (lambda rows: [rows[0], rows[1].replace("1.5", "NaN")], "line 2: field 'latency_ms'"),
        (lambda rows: [rows[0].replace('"format":1', '"format":2')], "line 1: field 'format'"),
        (lambda rows: [rows[0], rows[1].replace('"main"', '"mian"')], "line 2: field 'round'"),
    ],
)
def test_a_spoilt_file_names_the_line(path, spoil, message):
    rows = spoil(lines(broken_off(path)))
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    with pytest.raises(TranscriptError, match=message):
        read_transcript(path)


def test_an_empty_or_missing_file_is_no_transcript(path):
    with pytest.raises(TranscriptError, match="cannot be read"):
        read_transcript(path)
    path.touch()
    with pytest.raises(TranscriptError, match="is empty"):
        read_transcript(path)


def test_a_full_disk_says_how_to_go_on():
    with Path("/dev/full").open("ab", buffering=0) as full:
        writer = TranscriptWriter(full, Transcript(header()))
        with pytest.raises(TranscriptError, match=r"No space left.*--resume"):
            writer.add(answer())
