"""The harness itself: it must be able to fail."""

import asyncio
import json
import threading

import pytest

from gnl_core.errors import ConfigError
from gnl_core.testing.crash_report import CrashReport, PointResult
from gnl_core.testing.matrix import crashtest, load_scenario


def test_an_agent_without_a_journal_is_found_out(lab, place):
    report = lab.run("matrix", scenario="careless", folder=str(place))
    assert report["max_effects"] == 2
    assert not report["ok"]
    twice = [result for result in report["results"] if result["effects"] == {"charge order-1/s0p0": 2}]
    assert [result["faults"][0] for result in twice] == [
        "kill before write 2",
        "kill after write 2",
        "kill after effect 1",
    ]
    worst = twice[0]
    assert (place / worst["folder"] / "effects.jsonl").exists(), "the evidence of a fault is kept"


def test_an_agent_that_loses_an_effect_is_found_out(lab, place):
    report = lab.run("matrix", scenario="forgetful", folder=str(place))
    assert (report["max_effects"], report["min_effects"], report["lost"]) == (1, 0, 2)
    assert not report["ok"]


def test_an_agent_that_loses_an_effect_whose_doubt_was_settled_is_found_out(lab, place):
    report = lab.run("matrix", scenario="forgetful_when_settled", folder=str(place))
    assert not report["ok"]
    assert (report["max_effects"], report["stuck"], report["waiting"]) == (1, 0, 0)
    lost = [result for result in report["results"] if not result["effects"]]
    assert [result["faults"][0] for result in lost] == ["kill after write 3", "kill before effect 1"]
    assert {result["outcome"] for result in lost} == {"settled"}
    assert report["lost"] == len(lost)
    assert (place / lost[0]["folder"]).is_dir(), "the evidence of a fault is kept"


def test_a_run_without_a_way_out_is_found_out(lab, place):
    report = lab.run("matrix", scenario="dead_end", folder=str(place), resume_limit=2)
    assert not report["ok"]
    stuck = [result["faults"][0] for result in report["results"] if result["outcome"] == "stuck"]
    assert stuck == ["kill after write 1", "kill before effect 1", "kill after effect 1"]
    assert "it was begun before" in report["results"][1]["error"]
    assert report["results"][0]["outcome"] == "completed"


def test_a_child_that_hangs_is_killed_and_reported(lab, place):
    report = lab.run("matrix", scenario="hanging", folder=str(place), child_timeout=0.5, min_effects=0)
    assert [result["outcome"] for result in report["results"]] == ["completed", "stuck"]
    assert "hung for 0.5 s" in report["results"][1]["error"]


def test_a_scenario_that_never_ends_is_refused(lab, place):
    refusal = lab.run("refused", scenario="never_ends", folder=str(place))
    assert refusal["error"] == "config_invalid"
    assert "not even undisturbed" in refusal["message"]


def test_store_faults_are_a_matrix_too(lab, place):
    report = lab.run("matrix", scenario="forgetful", folder=str(place), actions=["unavailable", "unknown"])
    assert [result["faults"] for result in report["results"]] == [
        ["unavailable before write 1"],
        ["unknown before write 1"],
        ["unknown after write 1"],
    ]
    assert [result["effects"] for result in report["results"]][2] == {}, "it believed a note that it had not to"


def test_two_kills_in_a_row_hit_the_resumption_too(lab, place):
    report = lab.run("matrix", scenario="forgetful", folder=str(place), kills=2)
    pairs = {tuple(result["faults"]) for result in report["results"]}
    assert ("kill before write 1", "kill after effect 1") in pairs
    assert report["struck"] == report["points"]


def test_what_cannot_be_run_is_refused():
    async def agent(journal, effects):
        return None

    def plain(journal, effects):
        return None

    with pytest.raises(ConfigError, match="must be an async function"):
        crashtest(plain)
    with pytest.raises(ConfigError, match="at least 1"):
        crashtest(agent, kills=0)


def test_it_does_not_fork_beside_threads_or_a_loop():
    async def agent(journal, effects):
        return None

    release = threading.Event()
    thread = threading.Thread(target=release.wait, name="the-other")
    thread.start()
    try:
        with pytest.raises(ConfigError, match="the-other"):
            crashtest(agent)
    finally:
        release.set()
        thread.join()


def test_a_scenario_is_named_by_module_and_function():
    assert load_scenario("asyncio:sleep") is asyncio.sleep
    for spec in ("asyncio", "asyncio:nothing", "no_such_module_here:agent", ":agent", "json:dumps"):
        with pytest.raises(ConfigError, match=r"module:function|async def"):
            load_scenario(spec)


def a_report(*, witnessed=False, **result):
    base = {"faults": ("kill after write 1",), "where": "Put note/a", "struck": True, "outcome": "completed"}
    return CrashReport(
        scenario="app:agent",
        writes=1,
        effects={"charge r/s0p0": 1},
        results=(PointResult(**{**base, "effects": {"charge r/s0p0": 1}, **result}),),
        seconds=0.1,
        witnessed=witnessed,
    )


def test_a_report_says_what_it_is_about():
    assert a_report().ok
    assert a_report().text().startswith("crash test of app:agent: passed")
    twice = a_report(effects={"charge r/s0p0": 2}, folder="/somewhere")
    assert "FAILED" in twice.text()
    assert "kill after write 1 (Put note/a); charge r/s0p0: 2" in twice.text()
    assert "kept in /somewhere" in twice.text()
    assert not a_report(outcome="stuck").ok
    assert not a_report(effects={}).ok
    assert a_report(effects={}, outcome="settled").ok, "a person may say that it is not to run"
    assert not a_report(effects={}, outcome="settled", witnessed=True).ok, "the log says so of nothing"
    assert json.loads(json.dumps(twice.to_json()))["max_effects"] == 2
