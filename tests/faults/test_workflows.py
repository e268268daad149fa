"""A workflow whose process is killed at each write and around each effect: every effect happens once, none is lost."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("fault_workflows.py")
STEPS = {"stock": "look", "par/a": "charge", "par/b": "charge", "extra": "refuses", "ship": "ship"}
OUTPUT = {"left": 7, "charged": ["charged a", "charged b"], "extra": False, "told": "yes", "shipped": "shipped"}


def points(spelled, folder, mode):
    """Let the program die at each of its points; return what became of them."""
    command = [sys.executable, "-W", "error", str(PROGRAM), spelled, str(folder), mode]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert told, done.stderr
    return told


def assert_done_once(told):
    """Killed, driven on, and done: each effect once, each name beside its call."""
    assert told["killed"] == 9, told
    assert told["drives"][-1].get("status") == "completed", told
    assert told["drives"][-1]["output"] == OUTPUT, told
    assert sorted(told["end"]["effects"].values()) == [1, 1, 1], told
    assert told["end"]["steps"] == STEPS, told
    assert (told["end"]["parted"], told["end"]["problems"]) == ([], []), told


@pytest.mark.parametrize(
    ("kind", "mode", "count"), [("sqlite", "recover", 34), ("postgres", "told", 17), ("redis", "told", 17)]
)
def test_killed_at_every_write_and_effect_recover_lets_it_end_with_each_effect_once(
    new_store, tmp_path, kind, mode, count
):
    told = points(new_store(kind).spelled, tmp_path, mode)
    assert len(told) == count
    for one in told:
        assert_done_once(one)
        assert len(one["drives"]) == 1, f"no person was needed: {one}"


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "redis"])
def test_killed_around_an_effect_a_person_is_asked_and_each_effect_happens_once(new_store, tmp_path, kind):
    for one in points(new_store(kind).spelled, tmp_path, "person"):
        blocked = one["drives"][0]
        assert (blocked["error"], blocked["state"]) == ("step_retry_blocked", "unresolved"), one
        assert blocked["asked"], one
        assert_done_once(one)


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "redis"])
def test_killed_where_it_begins_to_wait_it_waits_again(new_store, tmp_path, kind):
    for one in points(new_store(kind).spelled, tmp_path, "waits"):
        assert_done_once(one)
        assert [drive.get("waits") for drive in one["drives"] if drive.get("waits")] == [["bank"]], one


@pytest.mark.parametrize("fault", ["unavailable before", "unknown after"])
def test_a_store_that_breaks_off_at_any_write_leads_to_no_second_effect(tmp_path, fault):
    told = points("", tmp_path, f"store {fault}")
    assert len(told) >= 7
    assert any(one["broken"] for one in told)
    for one in told:
        assert one["output"] == OUTPUT, one
        assert sorted(one["effects"].values()) == [1, 1, 1], one
