"""Keys: spelt and parsed in one place, never confused with one another, whatever an id holds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnl_core import keys
from gnl_core.errors import IdInvalidError

segments = st.text(min_size=1, max_size=30).filter(lambda text: not any("\ud800" <= one <= "\udfff" for one in text))


def test_the_spelling_of_every_family_is_pinned():
    """The journal of a release is read by the next: these texts never change."""
    r, part = "r-1", "agent:r-1:0123456789abcdef"
    spelt = {
        keys.lock(r): "run/r-1/req/lock",
        keys.beat(r): "run/r-1/req/beat",
        keys.halt(r): "run/r-1/req/halt",
        keys.taint(r): "run/r-1/req/taint",
        keys.head(r): "run/r-1/~/head",
        keys.head(r, part): "run/r-1/agent:r-1:0123456789abcdef/head",
        keys.input_of(r): "run/r-1/~/input",
        keys.model(r, "~", 7): "run/r-1/~/model/000007",
        keys.message(r, "~", "ab"): "run/r-1/~/msg/ab",
        keys.body(r, "~", "ab"): "run/r-1/~/body/ab",
        keys.tool(r, "~", 7, 12): "run/r-1/~/tool/000007/012",
        keys.args(r, "~", "charge", "ab"): "run/r-1/~/args/charge/ab",
        keys.answer(r, "~", "s7p0", "confirm", 2): "run/r-1/~/answer/s7p0/confirm/002",
        keys.evidence(r, "~", "s7p0", 1): "run/r-1/~/evidence/s7p0/001",
        keys.nudge(r, "~", "charge", "loop", "ab"): "run/r-1/~/nudge/charge/loop/ab",
        keys.incident(r, "~", "s7p0", "taint-guard", "warn"): "run/r-1/~/incident/s7p0/taint-guard/warn",
        keys.compensation(r, "~", "s7p0"): "run/r-1/~/comp/s7p0",
        keys.model_claim(r, "~", 7): "run/r-1/~/claim/000007",
        keys.winner(r, "~"): "run/r-1/~/cfg/model",
        keys.xrun_args("charge", "ab"): "xrun/args/charge/ab",
        keys.xthr_args("t 1", "charge", "ab"): "xthr/t%201/args/charge/ab",
        keys.thread_taint("model"): "thread/model/taint",
        keys.index("status", "completed", 7, r): "ix/status/completed/0000000000007/r-1",
        keys.ask(7, r, "~", "s7p0"): "ix/ask/0000000000007/r-1/~/s7p0",
        keys.worked("t 1", "bob"): "mem/t%201/of/bob",
        keys.worked("t 1", None): "mem/t%201/nobody",
        keys.trace("bob", "t 1"): "resthr/bob/t%201",
        keys.item_trace("bob", "march", "k-1"): "resbatch/bob/march/k-1",
        keys.erased_org("a"): "org/a",
        keys.ledger("conflict"): "idem/conflict",
    }
    assert {keys.encode(key): text for key, text in spelt.items()} == {text: text for text in spelt.values()}
    for key, text in spelt.items():
        assert keys.decode(text) == key


@given(st.lists(segments, min_size=1, max_size=5).map(tuple))
def test_a_key_and_its_spelling_are_one(key):
    text = keys.encode(key)
    assert keys.decode(text) == key
    assert text.isascii()
    assert text.count("/") == len(key) - 1


@given(st.text(alphabet="ab/%2F0~:-. é", max_size=12))
def test_what_is_no_spelling_of_a_key_is_refused(text):
    try:
        key = keys.decode(text)
    except (ValueError, IdInvalidError):
        return
    assert keys.encode(key) == text


@given(st.lists(segments, min_size=1, max_size=3).map(tuple), st.lists(segments, min_size=1, max_size=3).map(tuple))
def test_a_prefix_covers_whole_segments_and_nothing_else(prefix, key):
    own, low, high = keys.prefix_range(prefix)
    text = keys.encode(key)
    covered = text == own or low <= text < high
    assert covered == (key[: len(prefix)] == prefix)


def test_r_1_is_no_prefix_of_r_10():
    _, low, high = keys.prefix_range(keys.request("r-1"))
    for other in ("r-10", "r-1:x", "r-1.", "r-1-", "r-1~", "r-1 ", "r-1%", "r-1_", "r-1/x"):
        text = keys.encode(keys.head(other))
        assert not low <= text < high
    assert low <= keys.encode(keys.head("r-1")) < high


@pytest.mark.parametrize("text", ["", "a//b", "/a", "a/", "a%2f", "a%41", "a b", "é", "a%", "a%ZZ"])
def test_texts_that_two_readers_could_read_differently_are_refused(text):
    with pytest.raises((ValueError, IdInvalidError)):
        keys.decode(text)


def test_segments_that_have_no_spelling_are_refused():
    for segment in ("", "\ud800"):
        with pytest.raises(IdInvalidError):
            keys.encode(("run", segment))


def test_a_key_that_is_too_long_is_refused_with_its_length():
    longest = ("a" * 1_000, "b" * (keys.MAX_KEY - 1_001))
    assert len(keys.encode(longest)) == keys.MAX_KEY
    with pytest.raises(IdInvalidError, match=f"{keys.MAX_KEY + 1} bytes"):
        keys.encode((*longest[:1], longest[1] + "b"))


@pytest.mark.parametrize(
    "value", [None, 7, "", "a b", "a\n", "a\x00", "a\x7f", "a\u00a0", "a\u2028", "\ud800", "x" * 513, "ü" * 400]
)
def test_ids_that_cannot_be_segments_are_refused(value):
    with pytest.raises(IdInvalidError, match="run_id"):
        keys.check_id("run_id", value)


@pytest.mark.parametrize("value", ["a", "x" * 512, "ü" * 170, "a/b", "a%", "agent:x", "a\u0301", "~", "__x"])
def test_other_ids_are_taken_as_they_are(value):
    assert keys.check_id("thread_id", value) == value


@pytest.mark.parametrize(
    "value",
    [
        "agent:r:0",
        "wf:a",
        "net:a",
        "batch:a",
        "mem:a",
        "xrun:a",
        "xthr:a",
        "thread:a",
        "res:a",
        "idem:a",
        "__a",
        "__a:b",
    ],
)
def test_names_that_the_runtime_keeps_are_refused(value):
    with pytest.raises(IdInvalidError, match="keeps for itself"):
        keys.check_run_id(value)


@pytest.mark.parametrize(
    "value", ["agents", "agent", "wf", "mem", "xrun-1", "_a", "a:__b", "order:agent:1", "run1", "my-run1_abc"]
)
def test_names_that_only_look_like_it_are_taken(value):
    assert keys.check_run_id(value) == value


def test_a_child_s_id_is_short_at_any_depth_and_names_its_root():
    part, ids = keys.ROOT, set()
    for depth in range(50):
        part = keys.child_id("order-1", part, f"s{depth}p0")
        assert len(part) == len("agent:order-1:") + 16
        assert keys.split_run_id(part) == ("order-1", part)
        ids.add(part)
    assert len(ids) == 50


def test_a_child_s_id_is_pinned():
    """Runs that were recorded find their sub-agents' runs by it."""
    assert keys.child_id("order-1", "~", "s0p0") == "agent:order-1:14b2491b644452bf"


def test_children_of_two_parents_and_of_two_calls_never_share_an_id():
    ids = [keys.child_id("r", parent, call) for parent in ("~", "agent:r:1", "agent:r:2") for call in ("s0p0", "s0p1")]
    ids += [keys.child_id("r2", "~", "s0p0")]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("value", [None, 5, b"r", ["r"]])
def test_what_is_no_text_names_no_run(value):
    with pytest.raises(IdInvalidError, match="must be a non-empty str"):
        keys.split_run_id(value)


@pytest.mark.parametrize("root", ["r", "a:b", "agentx:1", "r:0123456789abcdef", "agents:x"])
def test_a_root_s_id_is_its_own_root(root):
    assert keys.split_run_id(root) == (root, keys.ROOT)
    child = keys.child_id(root, keys.ROOT, "s0p0")
    assert keys.split_run_id(child) == (root, child)
    assert keys.run_id_of(root, keys.ROOT) == root
    assert keys.run_id_of(root, child) == child


@given(st.integers(0, 999_999), st.integers(0, 999))
def test_call_ids_are_read_back(step, position):
    assert keys.parse_call_id(keys.call_id(step, position)) == (step, position)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "s",
        "s1",
        "s1p",
        "s01p0",
        "s1p00",
        "s-1p0",
        "s1p0 ",
        "S1P0",
        "s1p0x",
        "s1000000p0",
        "s0p1000",
        "s١p0",
        "call_0",
    ],
)
def test_other_texts_are_no_call_ids(text):
    assert keys.parse_call_id(text) is None


def test_steps_and_times_sort_as_numbers():
    for made in (
        lambda n: keys.model("r", "~", n),
        lambda n: keys.ask(n, "r", "~", "s0p0"),
        lambda n: keys.tool("r", "~", n, 0),
    ):
        texts = [keys.encode(made(n)) for n in (0, 1, 9, 10, 99, 100, 99_999)]
        assert texts == sorted(texts)
