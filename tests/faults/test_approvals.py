"""Approvals across crashes."""

import pytest

ASKED = "order-1/s0p0/confirm/0"


def ask(run):
    (question,) = run.drive()["interrupts"]
    assert question["kind"] == "confirm"
    return question


def test_s25_a_sibling_that_is_done_does_not_run_again_when_the_other_is_approved(new_run):
    run = new_run("half_gated")
    (question,) = run.drive()["interrupts"]
    assert (question["tool_name"], question["tool_call_id"]) == ("charge", "s0p1")
    assert (run.effects("ship"), run.effects("charge")) == (1, 0)
    for _ in range(2):
        run.drive()
    run.decide(question["question"], True)
    assert run.drive()["text"] == "Done."
    assert (run.effects("ship"), run.effects("charge")) == (1, 1)


def test_s28_a_refused_call_never_runs_also_after_a_crash_before_the_models_next_turn(new_run):
    run = new_run("guarded")
    question = ask(run)
    run.decide(question["question"], False, actor="ana", reason="over the limit")
    # The denial is recorded, and the process dies before the model hears of it.
    run.die(match="denied", when="after")
    record = run.record("s0p0")
    assert record["status"] == "denied"
    for _ in range(2):
        done = run.drive()
        assert done["text"].startswith("It says")
        assert "over the limit" in done["text"], "the model reads the reason"
        assert done["interrupts"] == []
    assert run.effects() == 0
    (answer,) = [value for key, value, _ in run.rows() if "answer" in key]
    assert (answer["actor"], answer["reason"], answer["approved"]) == ("ana", "over the limit", False)
    assert answer["at"] > 0
    assert run.record("s0p0")["status"] == "denied"


def test_s28_a_refused_call_never_runs_also_after_a_crash_before_its_record(new_run):
    run = new_run("guarded")
    run.decide(ask(run)["question"], False)
    run.die(match="denied", when="before")
    assert run.drive()["text"].startswith("It says")
    assert run.effects() == 0


@pytest.mark.parametrize(("when", "effects"), [("before", 0), ("after", 1)])
def test_s30_s37_an_approval_is_no_licence_to_run_again_after_a_crash(new_run, when, effects):
    run = new_run("approval")
    asked = ask(run)
    run.decide(asked["question"], True)
    run.die(at="effect", when=when)
    for _ in range(2):
        blocked = run.drive()
        assert blocked["error"] == "side_effect_retry_blocked"
    assert run.effects() == effects
    (question,) = blocked["interrupts"]
    assert question["kind"] == "in_doubt"
    assert question["question"] != asked["question"]
    reason = question["reason"].casefold()
    assert reason != asked["reason"].casefold()
    assert "may" in reason or "nobody knows" in reason, f"it must say that it may have happened: {reason}"
    assert [q["question"] for q in run.open_questions()] == [question["question"]]


def test_s30_the_spent_approval_cannot_be_given_again(new_run):
    run = new_run("approval")
    asked = ask(run)
    run.decide(asked["question"], True)
    run.die(at="effect", when="after")
    run.drive()
    again = run.decide(asked["question"], True)
    assert again["error"] == "already_decided", "the same answer does not cover what came after it"
    assert run.drive()["error"] == "side_effect_retry_blocked"
    assert run.effects() == 1


def test_a_decision_that_was_written_survives_the_process_that_wrote_it(new_run):
    run = new_run("approval")
    run.decide(ask(run)["question"], True)
    run.die(match="running", when="before")
    assert run.effects() == 0
    done = run.drive()
    assert done["text"] == "Done.", "it had not begun, so nothing new is asked"
    assert run.effects() == 1
