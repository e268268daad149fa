"""The crash window: between an effect and its record, and before it."""

import time

import pytest

AFTER = {"at": "effect", "when": "after"}
BEFORE = {"at": "effect", "when": "before"}


def assert_in_doubt(blocked, before_ms):
    assert blocked["error"] == "side_effect_retry_blocked"
    detail = blocked["detail"]
    assert (detail["run_id"], detail["tool_call_id"], detail["tool"]) == ("order-1", "s0p0", "charge")
    assert detail["attempts"] == 1
    assert detail["question"] == "order-1/s0p0/in_doubt/1"
    assert 0 <= detail["started_at"] - before_ms < 60_000, "when it began, in the store's milliseconds"
    for word in ("order-1", "s0p0", "charge"):
        assert word in blocked["message"]
    (question,) = blocked["interrupts"]
    assert (question["question"], question["args"]) == ("order-1/s0p0/in_doubt/1", {"amount": 10})


def calls(rows):
    """The rows that say what a run came to, without those of who drives it."""
    return [row for row in rows if "tool" in row[0] or "model" in row[0] or "answer" in row[0]]


@pytest.mark.parametrize(("fault", "effects"), [(AFTER, 1), (BEFORE, 0)], ids=["s01", "s02"])
def test_s01_s02_a_crash_around_the_effect_is_in_doubt_and_stays_so(new_run, fault, effects):
    run = new_run("single")
    before = int(time.time() * 1000)
    run.die(**fault)
    assert run.effects() == effects
    blocked = run.drive()
    assert_in_doubt(blocked, before)
    rows = calls(run.rows())
    for _ in range(2):
        again = run.drive()
        assert (again["error"], again["detail"], again["message"]) == (
            blocked["error"],
            blocked["detail"],
            blocked["message"],
        )
    assert calls(run.rows()) == rows, "a drive that is blocked writes no attempt"
    assert run.effects() == effects
    assert [question["question"] for question in run.open_questions()] == ["order-1/s0p0/in_doubt/1"]


def test_s01_settled_with_its_output_the_run_goes_on_and_nothing_runs_again(new_run):
    run = new_run("single")
    run.die(**AFTER)
    run.drive()
    run.decide("order-1/s0p0/in_doubt/1", False, output={"receipt": 10})
    done = run.drive()
    assert done["text"] == "Done."
    assert '"receipt": 10' in done["results"][0][1].replace('":10', '": 10')
    assert run.effects() == 1
    record = run.record("s0p0")
    assert (record["status"], record["settled_by"]) == ("succeeded", "person")


def test_s02_approved_it_runs_once_and_is_then_replayed(new_run):
    run = new_run("single")
    run.die(**BEFORE)
    run.drive()
    run.decide("order-1/s0p0/in_doubt/1", True)
    assert run.drive()["text"] == "Done."
    again = run.drive()
    assert again["text"] == "Done."
    assert again["replayed"] == [["s0p0", "charge", "succeeded", "self"]]
    assert run.effects() == 1


def test_s01_denied_it_never_runs_again_and_the_model_is_told_that_nobody_knows(new_run):
    run = new_run("single")
    run.die(**AFTER)
    run.drive()
    run.decide("order-1/s0p0/in_doubt/1", False, actor="ana", reason="the bank is asked first")
    done = run.drive()
    assert done["text"] == "Done."
    assert "the bank is asked first" in done["results"][0][1]
    assert run.effects() == 1
    assert run.record("s0p0")["status"] == "denied"


@pytest.mark.parametrize(("fault", "settled_by"), [(AFTER, "recover"), (BEFORE, None)], ids=["done", "not-done"])
def test_s02_recover_settles_it_without_a_person(new_run, fault, settled_by):
    run = new_run("recover")
    run.die(**fault)
    assert run.drive()["text"] == "Done."
    assert run.effects() == 1
    assert run.record("s0p0").get("settled_by") == settled_by


def test_an_answer_is_spent_by_the_run_that_it_allowed(new_run):
    run = new_run("single")
    for attempt in (1, 2):
        run.die(**BEFORE)
        assert run.drive()["detail"]["question"] == f"order-1/s0p0/in_doubt/{attempt}"
        run.decide(f"order-1/s0p0/in_doubt/{attempt}", True)
    assert run.drive()["text"] == "Done."
    assert run.effects() == 1
    assert run.record("s0p0")["attempts"] == 3


def test_a_call_that_killed_its_process_three_times_is_not_begun_again_and_can_be_settled(new_run):
    run = new_run("single")
    for attempt in (1, 2, 3):
        run.die(**BEFORE)
        assert run.drive()["error"] == "side_effect_retry_blocked"
        if attempt < 3:
            run.decide(f"order-1/s0p0/in_doubt/{attempt}", True)
    run.decide("order-1/s0p0/in_doubt/3", True)
    blocked = run.drive()
    assert blocked["error"] == "retry_limit_exceeded"
    assert (blocked["detail"]["attempts"], blocked["detail"]["max_retries"]) == (3, 3)
    assert run.effects() == 0
    run.decide("order-1/s0p0/in_doubt/3", False, output={"receipt": 0})
    assert run.drive()["text"] == "Done.", "what a person knows of it is a way out"


def test_s04_a_provider_that_fails_after_a_charge_does_not_charge_again(new_run):
    run = new_run("provider_fails")
    for _ in range(2):
        assert run.drive()["error"] == "upstream_unavailable"
    run.touch("provider_up")
    done = run.drive()
    assert "It says" in done["text"]
    assert "receipt" in done["text"], "the model saw the recorded result"
    assert run.effects() == 1


def test_s05_a_host_that_retries_the_whole_run_ends_with_the_providers_error(new_run):
    run = new_run("retried_by_host")
    failed = run.drive()
    assert failed["error"] == "upstream_unavailable"
    assert (run.folder / "attempt-1").exists()
    assert run.effects() == 1
