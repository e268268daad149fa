"""Two drivers of one run: at once, one frozen, one slow."""

import time


def busy(answer):
    return answer.get("error") == "run_busy" and answer["retry_after"] >= 1


def until_not_busy(run):
    """Drive again and again until the run can be driven; return what came then."""
    give_up = time.monotonic() + 30
    while busy(answer := run.drive()):
        assert time.monotonic() < give_up, "it stayed busy"
        time.sleep(0.05)
    return answer


def test_s06_a_long_tool_with_a_healthy_heartbeat_is_not_taken_for_dead(new_run):
    run = new_run("long_beating")
    first = run.start()
    run.wait_for("in_tool")
    for times in range(1, 4):  # the lock's and the claim's time pass several times over
        before = run.beats()
        run.move_clock(50 * times)
        give_up = time.monotonic() + 60
        while run.beats() == before:
            assert time.monotonic() < give_up, "it beats no more"
        assert busy(run.drive())
    run.touch("release")
    assert first.answer()["text"] == "Done."
    assert run.drive()["replayed"] == [["s0p0", "charge", "succeeded", "self"]]
    assert run.effects() == 1


def test_s06_a_frozen_driver_is_overtaken_its_call_is_in_doubt_and_its_late_end_is_evidence(new_run, stopped):
    run = new_run("long_tool")
    first = run.start()
    run.wait_for("in_tool")
    wake = stopped(first)
    blocked = until_not_busy(run)
    assert blocked["error"] == "side_effect_retry_blocked"
    assert [q["question"] for q in blocked["interrupts"]] == ["order-1/s0p0/in_doubt/1"]
    assert run.drive()["error"] == "side_effect_retry_blocked"
    run.touch("release")
    wake()
    late = first.answer()
    assert late.get("error") == "run_fenced", f"the frozen driver lost the run and went on: {late}"
    done = until_not_busy(run)
    assert done.get("text") == "Done.", "the late result is evidence that settles the doubt"
    record = run.record("s0p0")
    assert (record["status"], record["settled_by"], record["output"]) == ("succeeded", "evidence", {"receipt": 10})
    assert run.effects() == 1


def test_s06_a_yes_runs_nothing_beside_a_frozen_driver(new_run, stopped):
    run = new_run("long_tool")
    first = run.start()
    run.wait_for("in_tool")
    wake = stopped(first)
    assert until_not_busy(run)["error"] == "side_effect_retry_blocked"
    run.decide("order-1/s0p0/in_doubt/1", True)
    for _ in range(2):
        assert busy(run.drive()), "it may wake up at any time, and its body with it"
    run.touch("release")
    wake()
    first.wait()
    assert until_not_busy(run)["text"] == "Done."
    assert run.record("s0p0")["settled_by"] == "evidence"
    assert run.effects() == 1


def test_s06_a_late_result_does_not_overwrite_what_a_person_settled(new_run, stopped):
    run = new_run("long_tool")
    first = run.start()
    run.wait_for("in_tool")
    wake = stopped(first)
    until_not_busy(run)
    run.decide("order-1/s0p0/in_doubt/1", False, output={"receipt": "by hand"})
    assert run.drive()["text"] == "Done."
    run.touch("release")
    wake()
    first.wait()
    record = run.record("s0p0")
    assert (record["output"], record["settled_by"]) == ({"receipt": "by hand"}, "person")
    assert run.drive()["text"] == "Done."
    assert run.effects() == 1


def test_s08_of_eight_processes_with_one_run_id_one_drives(new_run, lab):
    run = new_run("long_held")
    racers = [lab.start("race", scenario="long_held", folder=str(run.folder)) for _ in range(8)]
    run.wait_for("ready-*", 8)
    run.touch("go")
    run.wait_for("in_tool")
    run.wait_for("seen-*", 7)  # the losers
    assert run.effects() == 1
    run.touch("release")
    seen = [racer.answer() for racer in racers]
    assert len({racer.pid for racer in racers}) == 8
    assert sum(busy(answer) for answer in seen) == 7
    (winner,) = [answer for answer in seen if not busy(answer)]
    assert (winner["text"], winner["replayed"]) == ("Done.", [])
    assert run.drive()["replayed"] == [["s0p0", "charge", "succeeded", "self"]]
    assert run.effects() == 1


def test_s08_of_eight_threads_and_four_processes_one_drives(new_run, lab):
    run = new_run("long_held")
    crowd = lab.start("crowd", scenario="long_held", folder=str(run.folder), threads=8)
    others = [run.start() for _ in range(4)]
    run.wait_for("in_tool")
    run.wait_for("seen-7")  # the losers among the threads
    run.touch("release")
    seen = [*crowd.answer(), *(other.answer() for other in others)]
    winners = [answer for answer in seen if answer.get("text") == "Done."]
    assert all(busy(answer) for answer in seen if answer not in winners)
    assert run.effects() == 1
    live = [answer for answer in winners if not answer["replayed"]]
    assert len(live) == 1, "one drove; who came when it was over got the recorded answer"


def test_s10_a_driver_that_lost_the_record_of_its_step_stops_there(new_run, stopped):
    run = new_run("long_model")
    slow = run.start()
    run.wait_for("in_model")
    wake = stopped(slow)
    run.touch("release")
    done = until_not_busy(run)
    assert done["text"] == "Done."
    assert run.effects() == 2
    versions = [row for row in run.rows() if "tool" in row[0] or "model" in row[0]]
    wake()
    late = slow.answer()
    assert late.get("error") == "run_fenced", f"it went on beside the other: {late}"
    assert [row for row in run.rows() if "tool" in row[0] or "model" in row[0]] == versions
    assert run.effects() == 2
