"""A sub-agent's call that is in doubt: its question reaches whoever drives the root."""

AFTER = {"at": "effect", "when": "after"}


def test_the_doubt_of_a_sub_agents_call_is_raised_with_its_question(new_run):
    run = new_run("sub_agent")
    run.die(**AFTER)
    for _ in range(2):
        blocked = run.drive()
        assert blocked["error"] == "side_effect_retry_blocked"
        (question,) = blocked["interrupts"]
        child, call, kind, attempt = question["question"].split("/")
        assert child.startswith("agent:order-1:")
        assert (call, kind, attempt) == ("s0p0", "in_doubt", "1")
        assert blocked["detail"]["question"] == question["question"]
        assert blocked["detail"]["run_id"] == child
    assert run.effects() == 1


def test_the_doubt_of_a_sub_agents_call_is_listed_and_can_be_settled(new_run):
    run = new_run("sub_agent")
    run.die(**AFTER)
    (listed,) = run.open_questions()
    assert listed["kind"] == "in_doubt", "also before anybody drove the run again"
    run.drive()
    (question,) = run.open_questions()
    assert question["question"] == listed["question"]
    run.decide(question["question"], False, output={"receipt": 10})
    assert run.drive()["text"] == "Done."
    assert (run.effects("charge"), run.effects("ship")) == (1, 1)


def test_an_approval_written_for_a_sub_agents_call_is_found_by_the_next_process(new_run):
    run = new_run("sub_agent_approval")
    (question,) = run.drive()["interrupts"]
    assert (question["kind"], question["run_id"].startswith("agent:order-1:")) == ("confirm", True)
    run.decide(question["question"], True)
    assert run.drive()["text"] == "Done."
    assert run.effects() == 1
