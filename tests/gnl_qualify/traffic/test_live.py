"""The same conversations with a model behind a real server on loopback."""

import pytest

from gnl_core.errors import ConfigError
from gnl_qualify.traffic.live import MOST_FAILURES, SYSTEM, open_model, play_live
from gnl_qualify.traffic.score import score
from gnl_qualify.traffic.suite import Playing


def turns(write):
    return [
        write.said("new", write.call("Fox"), says="Add Fox."),
        write.said("repeat-of:1", write.call("Fox"), says="Add FOX."),
        write.said("near-new:1", write.call("Hen"), says="Add Hen."),
        write.said("none", says="Thanks."),
    ]


@pytest.fixture
def play(write, chat_server):
    async def play(behave, *, count=1, setting="exact", step_seconds=20.0, conversation=None):
        talks = write.talks(*(conversation or turns(write)), count=count)
        model = open_model("m", base_url=chat_server(behave), api_key=None, timeout_s=step_seconds, retries=0)
        played = [one async for one in play_live(talks, model, setting=setting, step_seconds=step_seconds)]
        return Playing(model="m", setting=setting, conversations=tuple(played), expected=count)

    return play


async def test_a_live_model_writes_the_arguments_and_its_repeat_is_asked_about(play, live):
    seen = []

    def behave(n, body):
        seen.append(body)
        return 200, live.clerk(body)

    playing = await play(behave, setting="rules")
    result = score(playing)
    assert (result.turns, result.silent_turns, result.calls, result.executions) == (4, 1, 3, 3)
    assert result.asked["identity"] == ("c-0-t2/s0p0",)
    assert (result.missed, result.reissued, playing.whole) == ((), (), True)
    assert playing.conversations[0].turns[1].calls[0].args == {"name": "FOX", "city": "Oxford"}


async def test_the_server_is_told_the_system_prompt_the_tools_and_the_conversation_so_far(play, live):
    seen = []

    def behave(n, body):
        seen.append(body)
        return 200, live.clerk(body)

    await play(behave)
    first, last = seen[0], seen[-1]
    assert first["model"] == "m"
    assert first["messages"] == [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "Add Fox."}]
    names = {tool["function"]["name"] for tool in first["tools"]}
    assert names == {"create_order", "pay_invoice", "open_ticket", "create_customer", "adjust_stock"}
    roles = [message["role"] for message in last["messages"]]
    assert roles == ["system", *["user", "assistant", "tool", "assistant"] * 3, "user"]
    # What a question was about stays between the person and the gate: the model reads of a job that was done.
    assert all(
        "repeat" not in str(message["content"]).lower() for message in last["messages"] if message["role"] == "tool"
    )


async def test_an_earlier_call_made_again_for_other_work_is_told_as_that(play, live):
    def behave(n, body):
        if body["messages"][-1]["role"] == "tool":
            return 200, live.talk("Done.")
        return 200, live.wants("create_customer", {"name": "Fox", "city": "Oxford"})

    result = score(await play(behave))
    assert result.asked["exact"] == ("c-0-t2/s0p0",)
    assert result.reissued == ("c-0-t3/s0p0", "c-0-t4/s0p0")


async def test_calls_that_fit_no_tool_are_counted_apart(play, live):
    wrong = iter([("fly", {}), ("create_customer", {"name": "Fox"}), ("create_customer", "{oops")])

    def behave(n, body):
        if body["messages"][-1]["role"] == "tool":
            return 200, live.talk("Done.")
        return 200, live.wants(*next(wrong, ("create_customer", {"name": "Fox", "city": "Oxford"})))

    result = score(await play(behave))
    assert (result.refused_calls, result.calls, result.executions, result.unasked) == (3, 1, 1, ())


async def test_a_server_that_fails_once_costs_the_rest_of_that_conversation_alone(play, live):
    def behave(n, body):
        return (500, "out of memory") if n == 2 else (200, live.clerk(body))

    playing = await play(behave, count=2)
    first, second = playing.conversations
    assert [bool(turn.fault) for turn in first.turns] == [False, True]
    assert first.turns[1].fault.startswith("upstream_unavailable: ")
    assert (first.whole, second.whole, playing.whole) == (False, True, False)
    assert (first.executions, second.executions) == (1, 3)
    result = score(playing)
    assert (result.conversations, result.expected, result.turns) == (1, 2, 5)


async def test_a_server_that_is_gone_is_not_asked_for_ever(play, live):
    asked = []

    def behave(n, body):
        asked.append(n)
        return 503, "gone"

    playing = await play(behave, count=10)
    assert (len(playing.conversations), len(asked)) == (MOST_FAILURES, MOST_FAILURES)
    assert not playing.whole
    assert score(playing).calls == 0


async def test_a_hanging_server_is_a_fault_of_that_turn(play, live):
    playing = await play(lambda n, body: (0, ""), count=1, step_seconds=0.5)
    assert [turn.number for turn in playing.conversations[0].turns] == [1]
    assert "timeout" in playing.conversations[0].turns[0].fault


async def test_a_model_that_never_stops_calling_is_stopped(play, live):
    """Four steps a turn; each call after the first is an earlier one made again, and is asked about."""

    def behave(n, body):
        return 200, live.wants("create_customer", {"name": "Fox", "city": "Oxford"})

    result = score(await play(behave))
    assert (result.turns, result.calls, result.executions) == (4, 16, 16)
    assert len(result.reissued) + len(result.asked["exact"]) == 15


def test_an_address_that_is_none_is_refused():
    with pytest.raises(ConfigError, match="must begin with http"):
        open_model("m", base_url="localhost:8080", api_key=None, timeout_s=1.0)
