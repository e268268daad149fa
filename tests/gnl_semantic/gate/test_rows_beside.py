"""What is kept beside a call's record keeps nothing of it from being written: what a row refuses is left out alone."""

import asyncio

import pytest

from gnl_core import Context, SemanticIdentity, args_hash, decide, keys, tool
from gnl_core.errors import SideEffectRetryBlockedError, StepTimeoutError
from gnl_core.journal import Put, new_batch

pytestmark = pytest.mark.stores()

ABC = {"sku": "abc"}
SCOPE, NAME = ("xthr", "t"), "createProduct"
GENERATION = keys.generation(SCOPE, NAME)
MARKER = keys.marker(SCOPE, NAME, args_hash(ABC))
OURS = keys.tool("first", keys.ROOT, 0, 0)
NO_COUNTERS = ["garbage", {"n": "many"}, 7]


@pytest.fixture
def made(shop):
    """Make the tool; `stuck` never ends by itself, `meanwhile` is done while the body is at work."""

    def make(*, stuck=False, meanwhile=None, **options):
        @tool(name=NAME, semantic_identity=SemanticIdentity(keys=("sku",)), timeout=0.1 if stuck else None, **options)
        async def create(ctx: Context, sku: str) -> str:
            """Make a product."""
            if stuck:
                await asyncio.Event().wait()
            shop.effects.fire(NAME, ctx)
            if meanwhile is not None:
                await meanwhile()
            return "made"

        return create

    return make


async def kept(shop):
    """The kinds of rows of the conversation that hold what a finder or a repeat needs."""
    return {key[2]: entry.value for key, entry in (await shop.rows(*SCOPE)).items()}


async def status(shop):
    return (await shop.get(OURS)).value["status"]


def refusals(caplog):
    return [record.getMessage() for record in caplog.records if "was refused at" in record.getMessage()]


@pytest.mark.parametrize("counter", NO_COUNTERS, ids=str)
async def test_a_generation_that_is_no_counter_is_left_out_alone(shop, made, caplog, counter):
    await shop.put(GENERATION, counter)
    result = await shop.run(ABC, run="first", tools=[made()])
    assert (result.text, shop.effects.count(), await status(shop)) == ("done", 1, "succeeded")
    rows = await kept(shop)
    assert set(rows) == {"dup", "sem", "semfold", "semgen", "semvec"}
    assert (rows["semgen"], rows["dup"]["state"]) == (counter, "done")
    assert refusals(caplog) == [
        f"what belongs to a record of run first was refused at {keys.encode(GENERATION)}",
    ]


@pytest.mark.parametrize("counter", NO_COUNTERS, ids=str)
@pytest.mark.parametrize("settled_by", ["recover", "person"])
async def test_a_doubt_is_settled_beside_a_generation_that_is_no_counter(shop, made, clock, settled_by, counter):
    await shop.put(GENERATION, counter)
    with pytest.raises(StepTimeoutError):
        await shop.run(ABC, run="first", tools=[made(stuck=True)])
    clock.seconds(3600)
    known = {}
    if settled_by == "recover":
        known["recover"] = lambda sku: {"done": True, "output": "found"}
    else:
        with pytest.raises(SideEffectRetryBlockedError):
            await shop.run(ABC, run="first", tools=[made()])
        await decide(shop.journal, "first/s0p0/in_doubt/1", False, output="found")
    result = await shop.run(ABC, run="first", tools=[made(**known)])
    assert (result.text, result.steps[0].calls[0].output) == ("done", "found")
    assert (await status(shop), shop.effects.count()) == ("succeeded", 0)
    rows = await kept(shop)
    assert (rows["semgen"], rows["dup"]["state"]) == (counter, "done")
    assert set(rows) == {"dup", "sem", "semfold", "semgen", "semvec"}


async def test_a_marker_that_was_replaced_meanwhile_is_left_out_alone(shop, made, caplog):
    theirs = {"f": 1, "run": "other", "call": "s0p0", "state": "in_flight"}

    async def take():
        await shop.journal.apply((Put(MARKER, theirs),), batch=new_batch())

    result = await shop.run(ABC, run="first", tools=[made(meanwhile=take)])
    assert (result.text, await status(shop)) == ("done", "succeeded")
    rows = await kept(shop)
    assert (rows["dup"], rows["semgen"]) == (theirs, {"n": 1})
    assert set(rows) == {"dup", "sem", "semfold", "semgen", "semvec"}
    assert refusals(caplog) == [f"what belongs to a record of run first was refused at {keys.encode(MARKER)}"]


async def test_two_rows_that_refuse_are_both_left_out(shop, made, asked):
    async def take():
        await shop.put(MARKER, {"f": 1, "run": "other", "call": "s0p0", "state": "done"})

    await shop.put(GENERATION, "garbage")
    result = await shop.run(ABC, run="first", tools=[made(meanwhile=take)])
    assert (result.text, await status(shop)) == ("done", "succeeded")
    assert set(await kept(shop)) == {"dup", "sem", "semfold", "semgen", "semvec"}
    replayed = await shop.run(ABC, run="first", tools=[made()])
    assert [call.status for call in replayed.replayed_tool_calls] == ["succeeded"]
    assert shop.effects.count() == 1
    assert asked(await shop.run({"sku": " ABC "}, tools=[made()])).prior["run_id"] == "first", "and it is found"


async def test_a_record_of_keyed_work_is_written_beside_a_generation_that_is_no_counter(shop, made):
    await shop.put(GENERATION, "garbage")
    tools = [made(idempotency="args")]
    await shop.run(ABC, run="first", tools=tools)
    assert (await shop.run(ABC, ABC, run="second", tools=tools)).text == "done"
    assert shop.effects.count() == 2, "once a run: its window is the run"
    assert {"sem", "semfold", "semvec"} <= set(await kept(shop))


# A no of keyed work ---------------------------------------------------------------------------------------------------


KEYED = {"plain": {}, "args": {"idempotency": "args"}, "key": {"idempotency_key": lambda args: f"make {args['sku']}"}}


@pytest.mark.parametrize("keyed", KEYED)
async def test_a_refused_question_is_not_asked_again_in_the_same_request(shop, made, asked, keyed):
    tools = [made(**KEYED[keyed])]
    await shop.run(ABC, run="first", tools=tools)
    calls = ({"sku": " ABC "}, {"sku": " ABC "})
    question = asked(await shop.run(*calls, run="second", tools=tools))
    assert question.question == "second/s0p0/semantic/0"
    await decide(shop.journal, question.question, False)
    result = await shop.run(*calls, run="second", tools=tools)
    assert (result.text, result.interrupts, shop.effects.count()) == ("done", (), 1)
    assert [call.status for step in result.steps for call in step.calls] == ["denied", "denied"]
    third = asked(await shop.run({"sku": " ABC "}, run="third", tools=tools))
    assert third.kind == "semantic", "another request is asked anew"
