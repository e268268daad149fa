"""Work that is done at the same time, by processes that die, and by two processes at once: what the layer then sees."""

import asyncio
import subprocess
import sys

import pytest

from gnl_core import args_hash, decide, keys, list_interrupts
from gnl_core.testing.faulty import KILLED

pytestmark = pytest.mark.stores()

ABC, SPACED = {"sku": "abc"}, {"sku": " ABC "}

CHILD = """
import asyncio, sys
import gnl_core
from gnl_core import Context, Duplicates, RunLimits, SemanticIdentity, run_durable, tool
from gnl_core.testing import EffectLog, Fault, FaultyJournal, ScriptedModel
from gnl_semantic import SemanticGate

folder, run, sku, dies = sys.argv[1:]
effects = EffectLog(folder + "/effects.jsonl")

@tool(name="createProduct", side_effect=True, semantic_identity=SemanticIdentity(keys=("sku",)))
async def make(sku: str, ctx: Context) -> str:
    "Make a product."
    effects.fire("createProduct", ctx)
    return "made"

async def embed(texts):
    return [[2.0, 0.0] for _ in texts]

def records_success(ops):
    return any("tool" in op.key and (getattr(op, "value", None) or {}).get("status") == "succeeded" for op in ops)

async def main():
    gate = SemanticGate(embed=embed, embed_model_id="fake@1")
    limits = RunLimits(side_effect_duplicates=Duplicates(scope="thread", semantic=gate))
    async with STORE as storage:
        fault = Fault(match=records_success) if dies == "dies" else None
        result = await run_durable(
            run_id=run, journal=FaultyJournal(storage.runs, fault=fault), tools=[make], prompt="go", thread_id="t",
            model=ScriptedModel([[("createProduct", {"sku": sku})], "done"]), limits=limits,
        )
        print([question.kind for question in result.interrupts])

asyncio.run(main())
"""


@pytest.fixture
def child(place, any_store):
    """Do one run in a process of its own; return what it was asked."""

    def do(run, sku, *, dies=False):
        program = CHILD.replace("STORE", any_store.spelled)
        command = [sys.executable, "-c", program, str(place), run, sku, "dies" if dies else "lives"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == (KILLED if dies else 0), done.stderr
        return done.stdout.strip()

    return do


# At the same time ----------------------------------------------------------------------------------------------------


async def test_l28_paraphrase_twins_of_one_step_both_run_and_are_both_remembered(shop, asked):
    """A named bound: neither can see the other's record, for there is none yet."""
    turns = [[("createProduct", ABC), ("createProduct", SPACED)], "done"]
    result = await shop.run(turns=turns)
    assert (result.text, result.interrupts, shop.effects.count()) == ("done", (), 2)
    assert len(await shop.records()) == 2
    assert asked(await shop.run({"sku": "Abc"})).kind == "semantic"


async def test_l28_paraphrase_twins_of_two_runs_that_are_in_flight_together_both_run(shop):
    both, reached = asyncio.Event(), []
    shop.embed.place("createProduct: abc", 1.0)

    class Meeting(type(shop.embed)):
        async def __call__(self, texts):
            reached.append(texts)
            if len(reached) == 2:
                both.set()
            await both.wait()
            return await super().__call__(texts)

    shop.gate = shop.gated(embed=Meeting())
    results = await asyncio.gather(shop.run(ABC, run="one"), shop.run(SPACED, run="two"))
    assert [result.text for result in results] == ["done", "done"]
    assert (shop.effects.count(), len(await shop.records())) == (2, 2)
    assert (await shop.get(keys.generation(("xthr", "t"), "createProduct"))).value == {"n": 2}


async def test_many_runs_of_one_conversation_at_once_lose_no_record(shop):
    results = await asyncio.gather(*(shop.run({"sku": f"product {number}"}, run=f"p{number}") for number in range(12)))
    assert all(result.text == "done" for result in results)
    assert len(await shop.records()) == 12
    assert (await shop.get(keys.generation(("xthr", "t"), "createProduct"))).value == {"n": 12}


async def test_separated_in_time_the_second_of_one_request_is_asked_about(shop, asked):
    result = await shop.run(ABC, SPACED)
    question = asked(result)
    assert (question.tool_call_id, question.kind, question.prior["tool_call_id"]) == ("s1p0", "semantic", "s0p0")
    assert shop.effects.count() == 1


# Processes -----------------------------------------------------------------------------------------------------------


SHARED = pytest.mark.stores("sqlite", "postgres", "redis")


@pytest.fixture
async def disk(any_store, shop_of):
    """The shop over a store that children open too."""
    async with any_store.open() as storage:
        yield shop_of(storage.runs)


@SHARED
async def test_what_another_process_did_is_found_also_by_a_gate_that_is_warm(disk, child, asked):
    await disk.run({"sku": "something else"})
    await disk.run({"sku": "a third thing"})
    assert child("theirs", "abc") == "[]"
    question = asked(await disk.run(SPACED, run="ours"))
    assert (question.kind, question.prior["run_id"]) == ("semantic", "theirs")
    assert child("theirs-again", "ABC ") == "['semantic']"


@SHARED
async def test_recovered_work_of_a_process_that_died_leaves_its_record(disk, child, asked):
    child("dead", "abc", dies=True)
    assert (disk.effects.count(), await disk.records()) == (1, [])
    told = []

    async def recover(sku):
        told.append(sku)
        return {"done": True, "output": "made 1"}

    result = await disk.run(ABC, run="dead", tools=[disk.tool(recover=recover)])
    assert (result.text, disk.effects.count(), told) == ("done", 1, ["abc"])
    (record,) = await disk.records()
    assert (record["run"], record["identity"]) == ("dead", {"sku": "abc"})
    assert asked(await disk.run(SPACED)).prior["run_id"] == "dead"


@SHARED
async def test_work_that_a_person_settled_after_a_death_leaves_its_record(disk, child, asked):
    child("dead", "abc", dies=True)
    (question,) = await list_interrupts(disk.journal, "dead")
    assert question.kind == "in_doubt"
    await decide(disk.journal, question.question, False, actor="deniz", output="made 1")
    assert (await disk.run(ABC, run="dead")).text == "done"
    assert (disk.effects.count(), len(await disk.records())) == (1, 1)
    assert asked(await disk.run(SPACED)).prior["run_id"] == "dead"


@SHARED
async def test_work_that_did_not_happen_leaves_no_record_until_it_does(disk, child):
    child("dead", "abc", dies=True)

    async def recover(sku):
        return {"done": False}

    made = disk.tool(recover=recover)
    assert (await disk.run(ABC, run="dead", tools=[made])).text == "done"
    assert (disk.effects.count(), len(await disk.records())) == (2, 1)


@SHARED
async def test_a_call_in_doubt_is_no_ones_semantic_question(disk, child):
    """A named bound: what is not known to have succeeded is not remembered; the exact layer knows of it."""
    child("dead", "abc", dies=True)
    assert (await disk.run(SPACED, run="other")).text == "done"
    key = keys.marker(("xthr", "t"), "createProduct", args_hash(ABC))
    assert (await disk.get(key)).value["state"] == "in_flight"
