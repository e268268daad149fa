"""`gnl-semantic-qualify traffic`, as a program of its own."""

import json
import os
import signal
import subprocess
import sys

import pytest

from gnl_qualify.traffic.table import CAPTION, LIVE_CAPTION

PROGRAM = [sys.executable, "-m", "gnl_qualify", "traffic"]


@pytest.fixture
def run(tmp_path):
    def run(*args, **environment):
        return subprocess.run(
            [*PROGRAM, *args],
            cwd=tmp_path,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


@pytest.fixture
def mine(tmp_path, write):
    turns = [
        write.said("new", write.call("Fox"), says="Add Fox."),
        write.said("repeat-of:1", write.call("Fox"), says="Add Fox."),
    ]
    talks = [{"id": f"c-{n}", "lang": "en", "note": "a note", "turns": turns} for n in range(3)]
    file = tmp_path / "mine.json"
    file.write_text(json.dumps({"v": 1, "name": "mine", "origin": "by hand", "conversations": talks}))
    return file


def test_the_table_goes_to_standard_output_and_everything_to_json(run, tmp_path):
    done = run("--only", "ord-01", "--rungs", "exact", "--json", "out.json")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(CAPTION)
    assert "| careful | equal arguments | 3 | 1/1 [0.21, 1.00] | exact 1 |" in done.stdout
    assert "conversations: 2 of 2" in done.stderr
    value = json.loads((tmp_path / "out.json").read_text())
    assert (value["suite"], value["live"], value["whole"], len(value["scores"])) == ("traffic", False, True, 2)
    call = value["playings"][0]["conversations"][0]["turns"][2]["calls"][0]
    assert call["asked"][0]["origin"] == "exact"
    assert call["args"] == {"customer": "Yıldız Market", "sku": "LMB-12", "warehouse": "İzmir", "quantity": 3}


def test_conversations_of_ones_own_are_played(run, mine):
    done = run("--conversations", str(mine), "--rungs", "exact")
    assert done.returncode == 0, done.stderr
    assert "| careful | equal arguments | 6 | 3/3" in done.stdout


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["--only", "nothing"], "--only nothing: there is no such conversation"),
        (["--model", "m"], "--model is for --live"),
        (["--key-env", "K"], "--key-env is for --live"),
        (["--live", "http://127.0.0.1:9/v1"], "--live needs --model"),
        (["--live", "127.0.0.1", "--model", "m"], "must begin with http"),
        (
            ["--live", "http://x/v1", "--model", "m", "--key-env", "GNL_NO_SUCH"],
            "GNL_NO_SUCH: that variable is not set",
        ),
        (["--live", "http://x/v1", "--model", "m", "--rungs", "exact", "--rungs", "rules"], "give one --rungs"),
        (["--json", "no/such/folder.json"], "there is no folder"),
        (["--conversations", "none.json"], "none.json: cannot be read"),
    ],
)
def test_options_that_cannot_be_used_are_refused_before_anything_is_played(run, args, told):
    done = run(*args)
    assert (done.returncode, done.stdout) == (2, "")
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_a_live_model_plays_whole(run, mine, chat_server, live, tmp_path):
    keys = set()

    def behave(n, body):
        keys.add(body["authorization"])
        return 200, live.clerk(body)

    done = run(
        *("--conversations", str(mine), "--live", chat_server(behave), "--model", "tiny", "--rungs", "exact"),
        *("--key-env", "MY_KEY", "--json", "out.json"),
        MY_KEY="secret-key",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(LIVE_CAPTION)
    assert "| tiny | equal arguments | 6 | 3/3" in done.stdout
    assert "3 of 3 conversations" in done.stderr
    written = (tmp_path / "out.json").read_text()
    assert json.loads(written)["live"] is True
    assert "secret-key" not in written + done.stdout + done.stderr
    assert keys == {"Bearer secret-key"}


def test_a_partial_playing_is_kept_told_as_partial_and_exits_with_1(run, mine, chat_server, live, tmp_path):
    def behave(n, body):
        return (
            (400, "no more")
            if len(body["messages"]) > 3 and "Add" in str(body["messages"][-1])
            else (200, live.clerk(body))
        )

    done = run(
        *("--conversations", str(mine), "--live", chat_server(behave), "--model", "tiny", "--rungs", "exact"),
        *("--json", "out.json"),
    )
    assert done.returncode == 1, done.stderr
    assert "tiny, equal arguments: PARTIAL: 0 of 3 conversations were played whole; 3 turns count" in done.stdout
    assert "c-0 broke off at turn 2: " in done.stderr
    value = json.loads((tmp_path / "out.json").read_text())
    assert (value["whole"], value["scores"][0]["calls"]) == (False, 3)


def test_what_was_played_before_an_interrupt_is_kept(mine, chat_server, live, tmp_path):
    def behave(n, body):
        return (0, "") if n >= 4 else (200, live.clerk(body))  # the first conversation takes four requests

    command = [
        *(*PROGRAM, "--conversations", str(mine), "--live", chat_server(behave), "--model", "tiny"),
        *("--rungs", "exact", "--json", "out.json"),
    ]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        assert program.stderr.readline().startswith("1 of 3 conversations")
        program.send_signal(signal.SIGINT)
        out, err = program.communicate(timeout=60)
    assert program.returncode == 130, err
    assert "PARTIAL: 1 of 3 conversations were played whole; 2 turns count" in out
    value = json.loads((tmp_path / "out.json").read_text())
    assert [one["id"] for one in value["playings"][0]["conversations"]] == ["c-0"]
