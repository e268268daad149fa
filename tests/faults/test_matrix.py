"""The kill matrix over the scripted runs: at most one effect a call, and no run without a way out."""

import importlib.util
from pathlib import Path

import pytest

SIDE_EFFECTS = {
    "single": {"charge order-1/s0p0": 1},
    "two_steps": {"charge order-1/s0p0": 1, "ship order-1/s1p0": 1},
    "parallel": {"charge order-1/s0p0": 1, "ship order-1/s0p1": 1, "charge order-1/s0p2": 1},
    "approval": {"charge order-1/s0p0": 1},
    "quiet": {"charge order-1/s0p0": 1},
    "half_gated": {"ship order-1/s0p0": 1, "charge order-1/s0p1": 1},
    "streamed": {"charge order-1/s0p0": 1},
    "recover": {"charge order-1/s0p0": 1},
    "recover_parallel": {"charge order-1/s0p0": 1, "charge order-1/s0p1": 1},
    "mixed": {"charge order-1/s0p1": 1},
    "keyed": {"charge order-1/s0p0": 1},
    "by_args": {"charge order-1/s0p0": 1, "charge order-1/s0p1": 1},
    "looked_up": {"charge order-1/s0p0": 1},
    "own_loop": {"charge order-1/s0p0": 1, "ship order-1/s1p0": 1},
    "without_a_run": {"charge __ambient:4c1375ae3033a1b88dbb5633baaf6aca/s0p0": 1},
    "declined": {"ship order-1/s1p0": 1},
    "repeated": {"charge order-1/s0p0": 1, "charge order-1/s1p0": 1},
    "twins": {"charge order-1/s0p0": 1, "charge order-1/s0p1": 1},
    "left_out": {"charge order-1/s0p0": 1},
}
SUB_AGENTS = {"sub_agent": 1, "sub_agent_approval": 1, "sub_agents_in_parallel": 2}
RECOVERING = ("recover", "recover_parallel", "without_a_run")


def headline(report):
    """The two claims, with the findings in the message of a failure."""
    faulty = "\n".join(
        f"{result['outcome']}: {result['faults']} ({result['where']}) {result['effects']} {result['error']}"
        for result in report["results"]
        if result["outcome"] == "stuck" or max(result["effects"].values(), default=0) > 1
    )
    assert report["stuck"] == 0, faulty
    assert report["max_effects"] == 1, faulty
    assert report["lost"] == 0, report["results"]


def test_the_benchmark_kills_the_same_runs():
    path = Path(__file__).parents[2] / "benchmarks" / "kill_matrix.py"
    spec = importlib.util.spec_from_file_location("kill_matrix", path)
    kill_matrix = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(kill_matrix)
    assert set(kill_matrix.SCENARIOS) == {*SIDE_EFFECTS, *SUB_AGENTS}


@pytest.mark.parametrize("scenario", [*SIDE_EFFECTS, *SUB_AGENTS])
def test_every_call_has_exactly_one_effect_once_its_doubts_are_settled(lab, place, scenario):
    report = lab.run("matrix", scenario=scenario, folder=str(place))
    headline(report)
    if scenario in SIDE_EFFECTS:
        assert report["effects"] == SIDE_EFFECTS[scenario]
    else:
        charges = [key for key in report["effects"] if key.startswith("charge agent:order-1:")]
        assert len(charges) == SUB_AGENTS[scenario], f"the sub-agent's own run did it: {report['effects']}"
    assert report["min_effects"] == 1
    assert report["waiting"] == 0
    assert report["completed"] + report["settled"] == report["points"]
    assert report["points"] == 2 * (report["writes"] + sum(report["effects"].values()))
    assert report["struck"] == report["points"], [r["faults"] for r in report["results"] if not r["struck"]]
    if scenario in RECOVERING:
        assert report["settled"] == 0, "a tool that can tell what happened leaves nothing to ask"
    else:
        assert report["settled"] >= 2, "right before and right after the effect, nobody can know"


@pytest.mark.parametrize("scenario", ["single", "parallel", "approval", "streamed", "sub_agent", "mixed"])
def test_a_doubt_that_nobody_answers_waits_under_its_name_and_nothing_is_repeated(lab, place, scenario):
    report = lab.run("matrix", scenario=scenario, policy="nobody_in_doubt", folder=str(place))
    headline(report)
    for result in report["results"]:
        assert (result["outcome"] == "waiting") == bool(result["doubts"]), result
    around = [result for result in report["results"] if result["faults"][0] in AROUND]
    assert len(around) == 2
    for result in around:
        assert result["outcome"] == "waiting"
        assert result["error"].startswith("side_effect_retry_blocked"), result


AROUND = ("kill before effect 1", "kill after effect 1")


def test_what_was_refused_never_happens_wherever_the_process_dies(lab, place):
    report = lab.run("matrix", scenario="approval", policy="refuse", folder=str(place))
    assert (report["max_effects"], report["stuck"], report["effects"]) == (0, 0, {})
    assert report["completed"] == report["points"]


def test_a_run_that_only_reads_asks_nobody_wherever_the_process_dies(lab, place):
    report = lab.run("matrix", scenario="reading", policy="nobody", folder=str(place), min_effects=0)
    assert (report["max_effects"], report["stuck"]) == (0, 0)
    assert report["completed"] == report["points"] == 2 * report["writes"] > 0


def test_a_question_that_nobody_answers_is_listed_wherever_the_process_dies(lab, place):
    report = lab.run("matrix", scenario="half_gated", policy="nobody", folder=str(place))
    headline(report)
    assert report["waiting"] == report["points"]


def test_two_crashes_in_a_row_leave_at_most_one_effect(lab, place):
    report = lab.run("matrix", scenario="single", kills=2, folder=str(place))
    headline(report)
    assert report["min_effects"] == 1
    assert report["points"] > 4 * (report["writes"] + 1) ** 2 / 2


@pytest.mark.parametrize("scenario", ["single", "parallel", "approval"])
def test_a_store_that_breaks_off_at_any_write_leaves_at_most_one_effect(lab, place, scenario):
    report = lab.run("matrix", scenario=scenario, actions=["unavailable", "unknown"], folder=str(place))
    headline(report)
    assert report["min_effects"] == 1


def test_a_store_that_goes_away_for_good_at_any_write_leaves_at_most_one_effect(lab, place):
    report = lab.run(
        "matrix",
        scenario="single",
        actions=["unavailable", "unknown"],
        outage=10_000,
        longest_pause=0.001,
        folder=str(place),
    )
    headline(report)
    assert report["min_effects"] == 1
    assert report["settled"] >= 1, "the record of the effect was lost at least once"
