"""Requests as splices: growth stays linear, and what is rebuilt is what was asked."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnl_core.model.messages import Message, TextPart, ToolCallPart, ToolResultPart
from gnl_core.splice import EMPTY_CHAIN, Transcript, digest_json, digest_message, extend, rebuild

texts = st.text(max_size=5)
messages = st.lists(st.builds(lambda text: Message("user", (TextPart(text),)), texts), max_size=8)


def user(text):
    return Message("user", (TextPart(text),))


def test_digests_are_pinned():
    """They stand in the journal: a release that digests otherwise takes every recorded request for another one."""
    assert digest_json({"b": 1, "a": [None, True, 1.5, "é"]}) == "a58c374a10cc07a81b8457724f102455"
    assert digest_json({"a": [None, True, 1.5, "é"], "b": 1}) == "a58c374a10cc07a81b8457724f102455"
    call = Message(
        "assistant", (TextPart("hi"), ToolCallPart("s0p0", "act", {"a": 1}, "", "call_0")), "openai", {"x": 1}
    )
    result = Message("tool", (ToolResultPart("s0p0", "act", "done", True, "call_0"),))
    assert [digest_message(one) for one in (user("hello"), call, result)] == [
        "4dec407ec861f93cde88d38e8d718956",
        "6715821575ab18d0c1deb0c2685f4a2e",
        "4ecb24be45150efff6506e65e247933b",
    ]
    transcript = Transcript.start([user("hello"), call, result])
    assert EMPTY_CHAIN == "b1ef839fa4f3bd72c81eab27814000d093a8b8ddde2d63e98e608440f50927cf"
    assert transcript.chain == "ab93f7d59724eb065c28736f4fae533911df4f1c6350d23d6e3483a6a9a3259c"


@pytest.mark.parametrize(
    "other",
    [
        Message("assistant", (TextPart("a"),)),
        Message("user", (TextPart("b"),)),
        Message("user", (TextPart("a"), TextPart(""))),
        Message("user", (TextPart("a"),), "openai"),
        Message("user", (TextPart("a"),), "", {"x": 1}),
        Message("user", (ToolResultPart("s0p0", "a", "a"),)),
        Message("user", (TextPart("a\u0301"),)),
        Message("user", (TextPart("\ud800"),)),
    ],
)
def test_any_difference_of_two_messages_is_one_of_their_digests(other):
    assert digest_message(other) != digest_message(user("a"))


def test_keys_and_texts_do_not_run_into_each_other():
    assert digest_json({"a": "b"}) != digest_json({"ab": ""})
    assert digest_json([1, 2]) != digest_json([12])
    assert digest_json("1") != digest_json(1)
    assert digest_json(True) != digest_json(1)
    assert digest_json(None) != digest_json("")


@given(messages)
def test_a_chain_is_the_fold_over_its_messages(made):
    transcript = Transcript.start(made)
    chain = EMPTY_CHAIN
    for message in made:
        chain = extend(chain, digest_message(message))
    assert transcript.chain == chain
    assert transcript.chains[0] == EMPTY_CHAIN
    assert len(transcript.chains) == len(made) + 1


@given(messages, messages)
def test_equal_chains_are_equal_conversations(one, other):
    assert (Transcript.start(one).chain == Transcript.start(other).chain) == (one == other)


@given(messages, messages)
def test_what_is_kept_and_what_is_new_give_back_the_caller_s_messages(mine, theirs):
    transcript = Transcript.start(mine)
    keep, rest = transcript.splice(theirs)
    assert mine[:keep] + [message for message, _ in rest] == theirs
    assert keep == next(
        (at for at, pair in enumerate(zip(mine, theirs, strict=False)) if pair[0] != pair[1]),
        min(len(mine), len(theirs)),
    )
    assert [digest for _, digest in rest] == [digest_message(message) for message in theirs[keep:]]
    transcript.cut(keep)
    for message, _ in rest:
        transcript.append(message, None)
    fresh = Transcript.start(theirs)
    assert (transcript.messages, transcript.digests, transcript.chains) == (fresh.messages, fresh.digests, fresh.chains)
    assert len(transcript.references) == len(theirs)


@given(messages, st.integers(0, 9))
def test_a_cut_leaves_the_beginning(made, keep):
    transcript = Transcript.start(made)
    transcript.cut(keep)
    fresh = Transcript.start(made[:keep])
    assert (transcript.messages, transcript.chains, transcript.chain) == (fresh.messages, fresh.chains, fresh.chain)


def test_references_stand_beside_their_messages():
    transcript = Transcript.start([user("a")])
    transcript.append(user("b"), {"step": 0})
    assert transcript.references == [None, {"step": 0}]


def test_rebuilding_folds_references_in_order():
    before = [user("a"), user("b"), user("c")]
    made = rebuild(before, 2, [{"step": 0}, {"msg": "x"}], lambda reference: user(str(reference)))
    assert made == [user("a"), user("b"), user("{'step': 0}"), user("{'msg': 'x'}")]
    assert rebuild(before, 3, [], pytest.fail) == before
    assert rebuild(before, 0, [], pytest.fail) == []


def test_a_step_that_keeps_more_than_there_is_is_refused():
    with pytest.raises(ValueError, match="keeps 2 messages of 1"):
        rebuild([user("a")], 2, [], pytest.fail)
