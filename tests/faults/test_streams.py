"""A streamed answer that breaks off."""


def steps(run):
    return [key for key, _, _ in run.rows() if "model" in key]


def test_s64_a_stream_cut_half_way_is_no_answer_and_its_calls_are_not_run(new_run):
    run = new_run("cut_stream")
    for _ in range(2):
        broken = run.drive()
        assert broken["error"] == "upstream_response_invalid"
        assert steps(run) == []
        assert run.effects() == 0
    run.touch("provider_up")
    assert run.drive()["text"] == "Done."
    assert len(steps(run)) == 2
    assert run.effects() == 1


def test_s64_a_process_killed_in_a_stream_recorded_no_part_of_it(new_run):
    run = new_run("killed_in_stream")
    run.start().killed()
    assert steps(run) == []
    assert run.drive()["text"] == "Done."
    assert run.effects() == 1


def test_a_stream_killed_after_its_effect_is_in_doubt_as_a_plain_run_is(new_run):
    run = new_run("streamed")
    run.die(at="effect", when="after")
    for _ in range(2):
        blocked = run.drive()
        assert blocked["error"] == "side_effect_retry_blocked"
        assert blocked["detail"]["question"] == "order-1/s0p0/in_doubt/1"
    assert run.effects() == 1
