"""The program as its users meet it: real processes, real files, real judges."""

import json
import os
import pty
import re
import signal
import subprocess

import pytest

from gnl_qualify.cli import PROGRAM, main
from gnl_qualify.transcript import read_transcript
from gnl_semantic.judge.certificate import read_certificate

CAVEAT = "precision@suspend"

# Answers so many calls, then none until the environment says go.
STALLING = """
import itertools, os, re, threading

calls = itertools.count(1)

def complete(system, user):
    if next(calls) > int(os.environ.get("ROOM_CALLS", "1000000")):
        threading.Event().wait()
    one, two = (re.findall(r"\\d+", line.partition(": ")[2]) for line in user.splitlines()[1:])
    return "SAME" if one == two else "DIFFERENT"
"""


@pytest.fixture
def desk(room, tmp_path):
    """A folder with spaces and letters of other alphabets in its name, with a set and a perfect judge in it."""
    folder = tmp_path / "sınav odası 日本"
    folder.mkdir()
    room.write_set(folder / "çiftler, bir.json", room.set_of(10))
    (folder / "yargıç.py").write_text(room.PERFECT, encoding="utf-8")
    return folder


@pytest.fixture
def sit(room, desk):
    def sit(*args, judge="yargıç.py", **options):
        base = ("--judge", judge, "--model", "test-1", "--fixtures", "çiftler, bir.json")
        return room.run(*base, *args, cwd=desk, stdin=subprocess.DEVNULL, **options)

    return sit


def judge_file(desk, body):
    (desk / "other.py").write_text(body, encoding="utf-8")
    return "other.py"


def test_a_pass_writes_everything_and_exits_0(sit, desk, room):
    done = sit("--html", "rapor.html", "--json", "rapor.json", "--valid-days", "30")
    assert done.returncode == 0, done.stderr
    certificate = read_certificate(desk / "gnl-judge-cert.json")
    assert (certificate.judge_model_id, certificate.status) == ("test-1", "provisional")
    assert json.loads((desk / "rapor.json").read_text(encoding="utf-8"))["status"] == "provisional"
    assert "<html" in (desk / "rapor.html").read_text(encoding="utf-8")
    assert read_transcript(desk / "gnl-judge-cert.transcript.jsonl").finished_at
    line = room.run("sitting", "rapor.json", "--commit", "c0ffee", cwd=desk).stdout
    assert line.endswith(" | c0ffee | 20/20/0/0/0 | 10/10 | 0/10 | provisional |\n")
    assert {path.name for path in desk.iterdir()} == {
        "çiftler, bir.json", "yargıç.py", "gnl-judge-cert.json", "gnl-judge-cert.transcript.jsonl",
        "rapor.html", "rapor.json",
    }  # fmt: skip


def test_the_report_names_everything_it_rests_on(sit, room):
    lines = sit().stdout.splitlines()
    assert lines[0] == f"judge test-1, prompt version 1, set çiftler, bir {room.set_of(10).set_id}, 40 pairs"
    assert "PROVISIONAL" in lines
    assert "near-miss       100.0 % (10/10)" in lines
    (recall,) = (line for line in lines if line.startswith("paraphrase recall:"))
    assert "over 10 pairs (10/10), 95 % interval [72.2, 100.0] %" in recall
    assert "required at least 70 %: holds" in recall
    (alarms,) = (line for line in lines if line.startswith("near-miss false alarms:"))
    assert "over 10 pairs (0/10), 95 % interval [0.0, 27.8] %" in alarms
    assert "required at most 5 %: holds" in alarms
    assert [line for line in lines if line.startswith("baseline ladder only")]
    assert CAVEAT in lines[-1]


def test_a_fail_exits_1_names_the_wrong_pairs_and_writes_all_but_the_certificate(sit, desk, room):
    judge = judge_file(desk, "def complete(system, user):\n    return 'SAME'\n")
    room.write_set(desk / "çiftler, bir.json", room.set_of(15))
    done = sit("--html", "r.html", "--json", "r.json", judge=judge)
    assert done.returncode == 1
    assert not (desk / "gnl-judge-cert.json").exists()
    assert (desk / "r.html").exists()
    assert len(json.loads((desk / "r.json").read_text(encoding="utf-8"))["wrong"]) == 30
    listed = done.stdout.partition("answered wrong (30):\n")[2].splitlines()
    assert len([line for line in listed if ": expected different, answered same" in line]) == 20
    assert [line for line in listed if "and 10 more" in line]
    assert CAVEAT in done.stdout.splitlines()[-1]
    assert "on pairs of your own," in done.stdout.splitlines()[-2]


def test_what_the_set_can_prove_is_said_before_the_first_question(sit):
    lines = sit().stderr.splitlines()
    assert lines[0].startswith(
        "paraphrase recall: 10 dup-paraphrase pairs: at least 7 SAME for 'provisional', at least 10 "
    )
    assert "at most 0 SAME for 'provisional'; they are too few for 'certified'" in lines[1]
    assert lines[2] == "1st sitting on this set, by the ledger and the transcripts beside this one"
    assert "of 100 questions answered" in lines[3]
    assert sit().stderr.splitlines()[2].startswith("2nd sitting")


def test_a_fail_leaves_an_earlier_certificate_and_says_whose_it_is(sit, desk):
    assert sit().returncode == 0
    before = (desk / "gnl-judge-cert.json").read_bytes()
    done = sit(judge=judge_file(desk, "def complete(system, user):\n    return 'UNSURE'\n"))
    assert done.returncode == 1
    assert (desk / "gnl-judge-cert.json").read_bytes() == before
    assert "left from an earlier exam" in done.stderr


def test_a_judge_that_walks_to_another_folder_takes_no_output_along(sit, desk, room, tmp_path):
    walking = f"import os\nos.chdir({str(tmp_path)!r})\n{room.PERFECT}"
    done = sit("--json", "rapor.json", judge=judge_file(desk, walking))
    assert done.returncode == 0, done.stderr
    assert {"gnl-judge-cert.json", "gnl-judge-cert.transcript.jsonl", "rapor.json"} <= {p.name for p in desk.iterdir()}


def test_nonsense_and_broken_judges_fail_with_a_diagnosis(sit, desk):
    done = sit(judge=judge_file(desk, "def complete(system, user):\n    return 'I think SAME'\n"))
    assert (done.returncode, done.stdout.splitlines()[3][:18]) == (1, "  - format failure")
    done = sit(judge=judge_file(desk, "def complete(system, user):\n    raise OSError('no route')\n"))
    assert (done.returncode, done.stdout.splitlines()[3][:21]) == (1, "  - transport failure")
    assert "Traceback" not in done.stderr


def test_labels_notes_and_names_never_reach_the_judge(sit, desk, room):
    spy = room.PERFECT.replace(
        "    one, two",
        "    with open('seen.txt', 'a', encoding='utf-8') as file:\n        file.write(system + user)\n    one, two",
    )
    assert sit(judge=judge_file(desk, spy)).returncode == 0
    seen = (desk / "seen.txt").read_text(encoding="utf-8")
    assert seen.count("RECORD 1: placeOrder: ") == 100
    for pair in room.set_of(10).pairs:
        assert not any(
            word in seen for word in (pair.id, pair.label, pair.domain, pair.note, "çiftler", "model-variant")
        )


def test_progress_is_a_line_every_25_without_a_terminal(sit):
    done = sit()
    told = [line for line in done.stderr.splitlines() if "questions answered" in line]
    assert told == [f"{n} of 100 questions answered" for n in (25, 50, 75, 100)]
    assert "\x1b" not in done.stderr + done.stdout


def test_progress_is_a_bar_on_a_terminal(room, desk):
    ours, theirs = pty.openpty()
    command, options = room.program(
        "--judge", "yargıç.py", "--model", "m", "--fixtures", "çiftler, bir.json", env={"TERM": "xterm"}
    )
    with subprocess.Popen(command, cwd=desk, stdout=subprocess.PIPE, stderr=theirs, **options) as process:
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
    assert b"100/100" in shown
    assert b"questions answered" not in shown
    assert report.startswith("judge m,")


def stalled(room, desk, *args, calls=30):
    """Start an exam whose judge answers 30 calls, and return once 25 answers are reported."""
    command, options = room.program(
        "--judge", "slow.py", "--model", "m", "--fixtures", "çiftler, bir.json", *args, env={"ROOM_CALLS": str(calls)}
    )
    (desk / "slow.py").write_text(STALLING, encoding="utf-8")
    process = subprocess.Popen(command, cwd=desk, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
    for line in process.stderr:  # after what is said beforehand
        if "questions answered" in line:
            break
    return process


def kept(desk):
    return len(read_transcript(desk / "gnl-judge-cert.transcript.jsonl").answers)


def go_on(room, desk):
    return room.run("--judge", "slow.py", "--model", "m", "--fixtures", "çiftler, bir.json", "--resume", cwd=desk)


def test_ctrl_c_keeps_the_answers_and_resume_asks_the_rest(room, desk):
    with stalled(room, desk) as process:
        process.send_signal(signal.SIGINT)
        _, talk = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "--resume" in talk
    assert "Traceback" not in talk
    before = kept(desk)
    assert 25 <= before < 100
    done = go_on(room, desk)
    assert done.returncode == 0, done.stderr
    assert kept(desk) == 100
    assert "calls: 100" in done.stdout


def test_kill_9_twice_and_two_resumes_give_the_report_of_a_straight_run(room, desk):
    with stalled(room, desk) as process:
        process.kill()
    first = kept(desk)
    with stalled(room, desk, "--resume", "--concurrency", "7") as process:
        rival = go_on(room, desk)
        assert (rival.returncode, "another exam is writing it" in rival.stderr) == (2, True)
        process.kill()
    second = kept(desk)
    assert 25 <= first < second < 100
    done = go_on(room, desk)
    assert done.returncode == 0, done.stderr
    assert kept(desk) == 100
    straight = room.run(
        "--judge", "slow.py", "--model", "m", "--fixtures", "çiftler, bir.json", "--out", "b.json", cwd=desk
    )
    timeless = [re.sub(r"latency.*|this was the .*", "", text) for text in (done.stdout, straight.stdout)]
    assert timeless[0] == timeless[1]
    assert room.run("verify", "gnl-judge-cert.json", "--transcript", "gnl-judge-cert.transcript.jsonl",
                    "--fixtures", "çiftler, bir.json", cwd=desk).returncode == 0  # fmt: skip


def test_resume_refuses_another_exam_in_one_line(room, desk, sit):
    assert sit("--limit", "20").returncode == 0
    done = sit("--limit", "20", "--resume", "--seed", "9")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "seed (seed is 1 there, 9 here)" in done.stderr


def test_a_reader_that_leaves_early_costs_nothing(room, desk):
    command, options = room.program("--judge", "yargıç.py", "--model", "m", "--fixtures", "çiftler, bir.json")
    script = 'set -o pipefail; "$@" 2>err.txt | head -1'
    done = subprocess.run(
        ["bash", "-c", script, "bash", *command], cwd=desk, capture_output=True, check=False, **options
    )
    assert done.stdout.startswith("judge m,")
    assert done.returncode == 0, (desk / "err.txt").read_text(encoding="utf-8")
    assert "Broken" not in (desk / "err.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("to", "told"), [(">/dev/full", "standard output cannot be written"), (">&-", "certificate"), (">&- 2>&-", "")]
)
def test_a_report_that_cannot_be_shown_leaves_the_exit_status_to_the_exam(room, desk, to, told):
    command, options = room.program("--judge", "yargıç.py", "--model", "m", "--fixtures", "çiftler, bir.json")
    done = subprocess.run(
        ["bash", "-c", f'"$@" {to}', "bash", *command], cwd=desk, capture_output=True, check=False, **options
    )
    assert done.returncode == 0, done.stderr
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    assert (desk / "gnl-judge-cert.json").exists()


def test_escapes_in_foreign_texts_never_reach_the_terminal(sit, desk):
    pairs = [
        {"id": f"p{i}\x1b]0;owned\x07", "domain": "d\x9b2J", "tool_name": "t", "label": "near-miss",
         "a": f"lamp \x1b[2J\u202e{i}", "b": f"lamp\r\n{i + 100}"}
        for i in range(6)
    ]  # fmt: skip
    (desk / "çiftler, bir.json").write_text(json.dumps({"v": 1, "pairs": pairs}), encoding="utf-8")
    done = sit(judge=judge_file(desk, "def complete(system, user):\n    return '\\x1b[31mSAME'\n"))
    assert done.returncode == 1
    assert not set(done.stdout + done.stderr) & set("\x1b\x07\x9b\u202e\r")
    assert "\\x1b[2J\\u202e" in done.stdout


def test_a_narrow_encoding_gets_escapes_instead_of_a_crash(sit):
    done = sit("--limit", "20", env={"PYTHONIOENCODING": "koi8-r"})
    assert done.returncode == 0, done.stderr
    assert r"set \xe7iftler, bir" in done.stdout


def test_verify_exits_0_1_and_2(room, desk, sit):
    assert sit().returncode == 0
    args = (
        "verify",
        "gnl-judge-cert.json",
        "--transcript",
        "gnl-judge-cert.transcript.jsonl",
        "--fixtures",
        "çiftler, bir.json",
    )
    assert room.run(*args, cwd=desk).returncode == 0
    raw = json.loads((desk / "gnl-judge-cert.json").read_text(encoding="utf-8"))
    (desk / "gnl-judge-cert.json").write_text(json.dumps(raw | {"nearMissFp": 0.04}), encoding="utf-8")
    done = room.run(*args, cwd=desk)
    assert done.returncode == 1
    assert [line for line in done.stdout.splitlines() if line.startswith("nearMissFp: certificate 0.04, transcript 0")]
    (desk / "gnl-judge-cert.transcript.jsonl").write_text("{}\n", encoding="utf-8")
    done = room.run(*args, cwd=desk)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "line 1" in done.stderr


def test_two_files_are_one_set_and_commas_in_names_are_kept(room, desk, sit):
    more = room.pairs_of(near_miss=20)[10:]
    room.write_set(desk / "iki.json", type(room.set_of(1))("x", more))
    room.write_set(desk / "üç.json", type(room.set_of(1))("x", room.pairs_of(dup_exact=15)[10:]))
    done = sit("--fixtures", "iki.json,üç.json", "--repeats", "0", "--order-sample", "0")
    assert done.stdout.splitlines()[0].endswith(" 55 pairs")
    done = sit("--fixtures", "çiftler, bir.json", "--out", "c.json")
    assert (done.returncode, "the id stands in" in done.stderr) == (2, True)


def test_a_recorded_exam_gives_the_figures_again(sit, desk):
    straight = sit("--out", "a.json")
    again = sit("--out", "b.json", judge="recorded:a.transcript.jsonl")
    assert again.returncode == 0, again.stderr
    figures = [re.sub(r"latency.*|this was the .*", "", done.stdout) for done in (straight, again)]
    assert figures[0] == figures[1]


# Faults in what the user typed: one line, exit 2, nothing asked, nothing written.


@pytest.fixture
def refused(desk, monkeypatch, capsys):
    """Run in this process and return the one line of complaint."""

    def refused(*args):
        monkeypatch.chdir(desk)
        before = {path: path.read_bytes() for path in desk.iterdir() if path.is_file()}
        with pytest.raises(SystemExit) as caught:
            main(list(args))
        out, err = capsys.readouterr()
        assert (caught.value.code, out) == (2, "")
        assert err.count("\n") == 1
        assert err.startswith(f"{PROGRAM}: ")
        assert {path: path.read_bytes() for path in desk.iterdir() if path.is_file()} == before
        return err

    return refused


GOOD = ("--judge", "yargıç.py", "--model", "m", "--fixtures", "çiftler, bir.json")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((), "--judge is missing"),
        (("--nonsense",), "--nonsense"),
        (("nonsense",), "nonsense"),
        (("--judge", "yargıç.py"), "--model"),
        (("--judge", "missing.py", "--model", "m", "--fixtures", "çiftler, bir.json"), "missing.py"),
        (("--judge", "builtin:oracle", "--fixtures", "çiftler, bir.json"), "oracle"),
        ((*GOOD, "--fixtures", "gone.json"), "gone.json"),
        ((*GOOD, "--fixtures", "çiftler, bir.json,"), "empty name"),
        ((*GOOD, "--fixtures", ""), "empty name"),
        ((*GOOD, "--limit", "0"), "--limit"),
        ((*GOOD, "--limit", "many"), "--limit"),
        ((*GOOD, "--concurrency", "0"), "--concurrency"),
        ((*GOOD, "--timeout", "0"), "--timeout"),
        ((*GOOD, "--timeout", "nan"), "limit"),
        ((*GOOD, "--valid-days", "0"), "--valid-days"),
        ((*GOOD, "--valid-days", "3651"), "--valid-days"),
        ((*GOOD, "--prompt", "7"), "prompt version '7'"),
        ((*GOOD, "--out", "."), "is a directory"),
        ((*GOOD, "--html", "no such/x.html"), "there is no folder"),
        ((*GOOD, "--json", "/proc/x.json"), "/proc/x.json"),
        ((*GOOD, "--json", "/dev/null"), "no regular file"),
        ((*GOOD, "--json", "çiftler, bir.json"), "is an input too"),
        ((*GOOD, "--out", "yargıç.py"), "is an input too"),
        ((*GOOD, "--json", "x", "--html", "./x"), "is the output of --html too"),
        ((*GOOD, "--resume"), "no transcript to resume"),
        ((*GOOD, "--extra-body", "{"), "no JSON"),
        ((*GOOD, "--extra-body", "[1]"), "must be a JSON object"),
        ((*GOOD, "--extra-body", "[" * 100_000), "no JSON"),
        ((*GOOD, "--extra-body", '{"a": 1e999}'), "no JSON"),
        ((*GOOD, "--extra-body", r'{"a": "\ud800"}'), "no JSON"),
        ((*GOOD, "--out", "n" * 300), "--out"),
        ((*GOOD, "--fixtures", ",".join(["gone.json"] * 50)), "gone.json"),
        (("--judge", "n" * 300 + ".py", "--model", "m"), "cannot be read"),
        ((*GOOD, "verify", "x", "--transcript", "y"), "belongs to the exam"),
        (("verify", "x"), "--transcript"),
        (("verify", "x", "--transcript", "y"), "there is no certificate"),
        (("calibrate", "--fixtures", "gone.json"), "gone.json"),
        (("sitting", "gone.json", "--commit", "c"), "gone.json"),
        (("sitting", "yargıç.py", "--commit", "c"), "yargıç.py"),
        (("calibrate", "--embedder", "/no/such/model", "--fixtures", "çiftler, bir.json"), "/no/such/model"),
    ],
)
def test_a_slip_is_one_line_and_exit_2(refused, args, words):
    assert words in refused(*args)


PAIR = {"id": "e", "domain": "d", "tool_name": "t", "a": "y", "b": "x", "label": "unrelated"}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"v": 1,\n "pairs": [,]}', "bad.json: line 2"),
        ('{"v": 2, "pairs": []}', "field 'v'"),
        ('{"v": 1, "pairs": [{"id": "x"}]}', "pair 0 ('x')"),
        (json.dumps({"v": 1, "pairs": [PAIR | {"a": " "}]}), "pair 'e': field 'a'"),
        (json.dumps({"v": 1, "pairs": [PAIR | {"label": "maybe"}]}), "field 'label'"),
    ],
)
def test_a_bad_fixtures_file_says_where(refused, desk, content, words):
    (desk / "bad.json").write_text(content, encoding="utf-8")
    assert words in refused("--judge", "yargıç.py", "--model", "m", "--fixtures", "bad.json")


@pytest.mark.parametrize(
    "body",
    [
        "x = 1\n",
        "complete = 'SAME'\n",
        "def complete():\n    return 'SAME'\n",
        "def complete(:\n",
        "raise SystemExit(0)\n",
    ],
)
def test_a_judge_without_a_usable_closure_is_refused(refused, desk, body):
    assert "other.py" in refused(*GOOD[2:], "--judge", judge_file(desk, body))


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_names_options_and_exit_states(capsys, flag):
    with pytest.raises(SystemExit) as caught:
        main([flag])
    text = capsys.readouterr().out
    assert caught.value.code == 0
    for word in ("--judge", "--resume", "N >= 20", "verify", "calibrate", "130"):
        assert word in text
