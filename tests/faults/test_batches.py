"""Processes that run a batch are killed at every write and at every effect; run again, each item is done once."""

import tempfile
import time
from collections import Counter
from pathlib import Path

import pytest

from gnl_core.testing.effects import EffectLog


@pytest.fixture
def batch(lab, place):
    """A folder with a batch in it; each call is a process of its own."""
    return Batch(lab, tempfile.mkdtemp(dir=place))


class Batch:
    """One batch on one journal."""

    def __init__(self, lab, folder):
        self.lab, self.folder = lab, Path(folder)

    def start(self, **options):
        return self.lab.start("batch", folder=str(self.folder), **options)

    def together(self, *several):
        """Start several processes, and let them go at once when all of them stand ready."""
        jobs = [self.lab.start("batch_together", folder=str(self.folder), **options) for options in several]
        give_up = time.monotonic() + 60
        while len(list(self.folder.glob("ready-*"))) < len(several):
            assert time.monotonic() < give_up, "they do not start"
            time.sleep(0.001)
        (self.folder / "go").touch()
        return jobs

    def run(self, **options):
        return self.start(**options).answer()

    def die(self, fault, **options):
        self.start(fault=fault, **options).killed()

    def effects(self):
        """How often each call took effect."""
        return Counter(effect.key for effect in EffectLog(self.folder / "effects.jsonl").read())


ONCE = {f"batch:march:k{number}/s0p0": 1 for number in range(3)}
OVER = {"done", "replayed"}


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_at_any_write_and_run_again_every_item_is_done_once(lab, place, when):
    undisturbed = Batch(lab, tempfile.mkdtemp(dir=place)).run()
    assert undisturbed["outcomes"] == dict.fromkeys(("k0", "k1", "k2"), "done"), "own items are no repeats"
    assert undisturbed["writes"] >= 14
    for number in range(1, undisturbed["writes"] + 1):
        batch = Batch(lab, tempfile.mkdtemp(dir=place))
        batch.die({"number": number, "when": when})
        again = batch.run()
        assert set(again["outcomes"].values()) <= OVER, f"killed {when} write {number}: {again}"
        assert again["outputs"] == {key: {"created": key} for key in ("k0", "k1", "k2")}
        assert again["token"] == undisturbed["token"]
        assert batch.effects() == ONCE, f"killed {when} write {number}"
        assert set(batch.run()["outcomes"].values()) == {"replayed"}


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_at_an_effect_that_nobody_can_look_up_the_item_becomes_a_question_and_the_others_run(batch, when):
    batch.die({"at": "effect", "number": 2, "when": when}, recovers=False)
    happened = when == "after"
    again = batch.run(recovers=False)
    assert again["outcomes"] == {"k0": "replayed", "k1": "suspended", "k2": "done"}
    assert (again["questions"], again["codes"]) == (["batch:march:k1/s0p0/in_doubt/1"], ["side_effect_retry_blocked"])
    assert batch.effects()["batch:march:k1/s0p0"] == happened
    output = {"output": {"created": "k1"}} if happened else {}
    (question,) = again["questions"]
    batch.lab.run("answer", folder=str(batch.folder), question=question, approved=not happened, **output)
    assert batch.run(recovers=False)["outcomes"]["k1"] in OVER
    assert batch.effects() == ONCE


def test_killed_over_and_over_a_batch_comes_to_its_end(batch):
    for number in (3, 4, 5, 6, 7, 3, 2):
        batch.start(fault={"number": number, "when": "after"}).wait()
    assert set(batch.run()["outcomes"].values()) <= OVER
    assert batch.effects() == ONCE


def test_a_failed_batch_is_killed_and_stays_within_its_plan(batch):
    batch.die({"number": 6, "when": "after"}, on_duplicate="fail-batch")
    other = batch.run(on_duplicate="fail-batch", items=[{"key": "k0", "sku": "another"}])
    assert other["error"] == "batch_plan_mismatch"
    assert set(batch.run(on_duplicate="fail-batch")["outcomes"].values()) <= OVER, "its own items are no repeats"
    assert batch.effects() == ONCE


def test_four_processes_at_one_batch_run_each_item_once(batch):
    items = [{"key": f"k{number}", "sku": f"sku-{number}"} for number in range(12)]
    workers = batch.together(*[{"items": items, "concurrency": 4}] * 4)
    told = [worker.answer() for worker in workers]
    assert set(batch.effects().values()) == {1}
    assert len(batch.effects()) == 12
    for one in told:
        assert set(one["outcomes"].values()) <= {*OVER, "not-run"}
        assert set(one["codes"]) <= {"run_busy"}
    assert set(batch.run(items=items)["outcomes"].values()) == {"replayed"}


def test_a_worker_that_is_killed_leaves_its_items_to_the_other(batch):
    items = [{"key": f"k{number}", "sku": f"sku-{number}"} for number in range(8)]
    fault = {"at": "effect", "number": 2, "when": "after"}
    dying, living = batch.together({"items": items, "fault": fault}, {"items": items})
    dying.wait()
    living.answer()
    assert set(batch.run(items=items)["outcomes"].values()) <= OVER
    assert set(batch.effects().values()) == {1}
    assert len(batch.effects()) == 8
