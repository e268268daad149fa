"""Where nothing is asked the model learns nothing: with the layer and without it, a conversation is the same."""

import asyncio
import math

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gnl_core import Duplicates, InMemoryStorage, RunLimits, SemanticIdentity, run_durable, tool
from gnl_core.journal import scan_all
from gnl_core.testing import ScriptedModel
from gnl_semantic import SemanticGate
from gnl_semantic.vectors import VectorCache

SKUS = st.sampled_from(
    [
        "abc",
        " ABC",
        "tv-42",
        "tv 42",
        "tv-43",
        "airfryer xl",
        "airfryer xxl",
        "samsung tv",
        "smsng tv42",
        "",
        "x\n",
        "x",
    ]
)
VALUES = st.one_of(SKUS, st.none(), st.just(["abc"]), st.just({"a": 1}), st.integers(0, 2))
CALLS = st.tuples(
    st.sampled_from(["order", "order-cancel", "tell"]),
    st.fixed_dictionaries(
        {"sku": VALUES},
        optional={"price": st.sampled_from([5, 5.0, 7]), "cancel": st.booleans(), "note": st.sampled_from(["a", "b"])},
    ),
)
RUNS = st.lists(
    st.tuples(st.sampled_from(["t", "u", None]), st.lists(CALLS, min_size=1, max_size=3), st.integers(0, 90)),
    min_size=1,
    max_size=4,
)
VOLATILE = {"owner", "fence", "at", "started_at", "ttl_ms", "ended_at", "limits", "warnings"}
"""Who drives it and when; and what was configured."""


class World:
    """A store with a clock of its own, and tools that count what they did."""

    def __init__(self):
        self.now, self.done = 1_700_000_000.0, []
        self.storage = InMemoryStorage(clock=lambda: self.now)
        self.tools = [self._tool(name) for name in ("order", "order-cancel", "tell")]

    def _tool(self, name):
        identity = SemanticIdentity(keys=("sku",), amount_fields=("price",), discriminator_fields=("cancel",))

        @tool(name=name, side_effect=True, semantic_identity=identity)
        async def do(sku: object = None, price: object = None, cancel: bool = False, note: str = "") -> str:
            """Do it."""
            self.done.append((name, sku, price, cancel, note))
            return f"{name} {len(self.done)}"

        return do

    async def play(self, runs, rule):
        """Play the runs; return what each came to and what its model was sent."""
        found = []
        for number, (thread, calls, seconds) in enumerate(runs):
            self.now += seconds
            model = ScriptedModel([*([call] for call in calls), "done"])
            result = await run_durable(
                run_id=f"r{number}",
                journal=self.storage.runs,
                model=model,
                tools=self.tools,
                prompt="go",
                thread_id=thread,
                limits=RunLimits(side_effect_duplicates=rule),
            )
            found.append((result, model.requests))
        return found

    async def rows(self):
        """Return the rows of the requests that are not the layer's own, without who and when."""
        rows = [entry async for entry in scan_all(self.storage.runs, ("run",), blobs=True)]
        return {
            entry.key: (settled(entry.value), entry.blob)
            for entry in rows
            if "incident" not in entry.key
            and entry.key[2:4] not in (("req", "semantic"), ("req", "slot"), ("req", "lock"), ("req", "beat"))
        }


def settled(value):
    match value:
        case dict():
            return {name: settled(member) for name, member in value.items() if name not in VOLATILE}
        case list():
            return [settled(member) for member in value]
        case _:
            return value


async def embed(texts):
    """Place texts by their letters: some near each other, some far."""
    return [[math.cos(angle), math.sin(angle)] for angle in (sum(map(ord, text)) % 7 * 0.3 for text in texts)]


async def compare(runs, *, gate, ttl_ms):
    options = {"action": "suspend", "scope": "thread", "ttl_ms": ttl_ms}
    plain, layered = World(), World()
    without = await plain.play(runs, Duplicates(**options))
    guarded = await layered.play(runs, Duplicates(**options, semantic=gate))
    asked = [question.kind for result, _ in guarded for question in result.interrupts]
    if "semantic" in asked:
        return False
    assert layered.done == plain.done
    for (mine, sent), (theirs, expected) in zip(guarded, without, strict=True):
        assert mine.text == theirs.text
        assert mine.messages == theirs.messages
        assert sent == expected
        assert [question.reason for question in mine.interrupts] == [question.reason for question in theirs.interrupts]
        assert [[(call.status, call.output) for call in step.calls] for step in mine.steps] == [
            [(call.status, call.output) for call in step.calls] for step in theirs.steps
        ]
    assert await layered.rows() == await plain.rows()
    return True


@settings(deadline=None, max_examples=60)
@given(RUNS, st.booleans(), st.sampled_from([None, 60_000]), st.sampled_from(["works", "down", "nonsense"]))
def test_a_conversation_in_which_nothing_is_asked_is_the_same_with_the_layer_and_without(runs, rules, ttl_ms, embedder):
    async def down(texts):
        raise RuntimeError("down")

    async def nonsense(texts):
        return "nonsense"

    function = {"works": embed, "down": down, "nonsense": nonsense}[embedder]
    gate = SemanticGate(embed=function, embed_model_id="m@1", rules=rules, cache=VectorCache())
    assume(asyncio.run(compare(runs, gate=gate, ttl_ms=ttl_ms)))


async def test_a_gray_pair_that_a_judge_called_different_changes_nothing(judge_that):
    judge = judge_that("DIFFERENT")
    gate = SemanticGate(embed=embed, embed_model_id="m@1", rules=True, judge=judge, min_similarity=-1.0)
    runs = [("t", [("order", {"sku": "Samsung 42 inch TV"})], 0), ("t", [("order", {"sku": "SMSNG TV42"})], 5)]
    assert await compare(runs, gate=gate, ttl_ms=None)
    assert len(judge.says.sent) == 1
