"""A short soak: workers, their operator and the server are killed at random, and no effect happens twice."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SOAK = Path(__file__).resolve().parents[2] / "benchmarks" / "soak.py"


@pytest.mark.parametrize("store", ["sqlite", "postgres", "redis"])
def test_whoever_is_killed_at_random_each_effect_of_a_job_happens_once(request, place, store):
    if store == "postgres":
        request.getfixturevalue("new_cluster")  # it says what is missing
    if store == "redis":
        request.getfixturevalue("redis_binary")
    place.chmod(0o755)  # the server may run as another user
    options = ["--store", store, "--seconds", "7", "--seed", "8", "--pause", "0.35", "--dir", str(place), "--json"]
    done = subprocess.run(
        [sys.executable, str(SOAK), *options], capture_output=True, text=True, check=False, timeout=240
    )
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)
    assert (found["stuck"], found["broken"]) == ([], [])
    assert found["most_effects"] == 1
    assert found["completed"] + found["waiting"] == found["jobs"] > 0
    assert found["effects"] >= 3 * found["completed"]
    assert found["kills"] >= 3
    assert (found["restarts"] >= 1) == (store != "sqlite")
    assert (found["ok"], done.returncode) == (True, 0)
    assert list(place.iterdir()) == []
