"""What a run costs, as counts: reads, syncs, rows, bytes. No clock is asked."""

import math
from itertools import pairwise

import pytest

from gnl_core import (
    Context,
    Duplicates,
    RunLimits,
    SqliteStorage,
    agent_tool,
    durable_context,
    durable_tools,
    keys,
    run_durable,
    tool,
    with_durable_model,
)
from gnl_core.model.messages import Message, ModelRequest, ModelResponse, TextPart, ToolCallPart
from gnl_core.testing.faulty import FaultyJournal


class Worker:
    """A model that asks for one tool, step by step, without looking at the conversation's whole length."""

    spec = "scripted/worker"

    def __init__(self, steps, name="act", calls=1):
        self.steps, self.name, self.calls, self.asked = steps, name, calls, 0

    async def generate(self, request):
        self.asked += 1
        number = (
            sum(message.role == "assistant" for message in request.messages) if self.steps < 500 else self.next(request)
        )
        if number >= self.steps:
            return ModelResponse((TextPart("done"),))
        parts = tuple(
            ToolCallPart("", self.name, {"number": 1_000_000 * place + number}) for place in range(1, self.calls + 1)
        )
        return ModelResponse(parts, stop_reason="tool_calls")

    def next(self, request):
        """The step that follows the last answer's."""
        calls = (
            [part for part in request.messages[-2].parts if isinstance(part, ToolCallPart)]
            if request.messages[1:]
            else []
        )
        return int(calls[0].id[1:].partition("p")[0]) + 1 if calls else 0

    async def stream(self, request):
        raise NotImplementedError
        yield


@pytest.fixture
def witness():
    """Bodies that ran; nothing here is killed, so a list will do."""
    return []


@pytest.fixture
def act(witness):
    @tool
    def act(context: Context, number: int) -> str:
        witness.append(context.tool_call_id)
        return f"result {number}"

    return act


@pytest.fixture
def look(witness):
    @tool(side_effect=False)
    def look(context: Context, number: int) -> str:
        witness.append(context.tool_call_id)
        return f"result {number}"

    return look


@pytest.fixture
def sqlite(place):
    with SqliteStorage(place / "growth.sqlite") as storage:
        yield storage


async def cost(storage, model, tools, run_id="r", **options):
    """Drive a run and return what it cost."""
    before = storage.statistics
    result = await run_durable(
        run_id=run_id, journal=storage.runs, model=model, tools=tools, prompt="go", max_steps=100_000, **options
    )
    after = storage.statistics
    assert result.text == "done"
    return {name: getattr(after, name) - getattr(before, name) for name in after.__slots__}


ENDS = 2  # admission (the lock, the head, the input), and the end (the last answer, the head, the lock given back)


@pytest.mark.parametrize("steps", [1, 7])
async def test_a_side_effect_is_two_syncs_and_its_model_step_rides_along(sqlite, act, steps):
    spent = await cost(sqlite, Worker(steps), [act])
    assert spent["transactions"] == ENDS + 2 * steps
    assert (spent["scans"], spent["reads"], spent["rows_read"], spent["refused"]) == (1, 0, 0, 0)


@pytest.mark.parametrize("steps", [1, 7])
async def test_a_read_only_call_is_one_sync_and_its_model_step_another(sqlite, look, steps):
    spent = await cost(sqlite, Worker(steps, "look"), [look])
    assert spent["transactions"] == ENDS + 2 * steps
    assert (spent["scans"], spent["reads"], spent["rows_read"]) == (1, 0, 0)


@pytest.mark.parametrize("steps", [1, 7])
async def test_a_conversations_marker_is_one_read_a_call_and_no_sync_of_its_own(sqlite, act, steps):
    limits = RunLimits(side_effect_duplicates=Duplicates(scope="thread"))
    spent = await cost(sqlite, Worker(steps), [act], thread_id="t", limits=limits)
    assert (spent["transactions"], spent["reads"], spent["scans"]) == (ENDS + 2 * steps, steps, 1)


async def test_three_side_effects_of_one_step_are_six_syncs(sqlite, act):
    spent = await cost(sqlite, Worker(2, calls=3), [act])
    assert spent["batches"] == ENDS + 2 * 6
    assert spent["transactions"] <= spent["batches"]  # siblings that end at once may share a sync


async def test_three_read_only_calls_of_one_step_share_the_step_s_sync(sqlite, look):
    spent = await cost(sqlite, Worker(2, "look", calls=3), [look])
    assert spent["batches"] == ENDS + 2 * (1 + 3)


async def test_an_answer_without_calls_costs_nothing_of_its_own(sqlite):
    assert (await cost(sqlite, Worker(0), []))["transactions"] == ENDS


async def test_a_replay_syncs_nothing_but_the_lock_and_reads_each_row_once(sqlite, act, witness):
    """300 steps: one scan, no read, no model call, no row but the lock."""
    await cost(sqlite, Worker(300), [act])
    rows = [entry async for entry in _rows(sqlite.runs)]
    model = Worker(300)
    spent = await cost(sqlite, model, [act])
    assert (model.asked, len(witness)) == (0, 300)
    assert (spent["scans"], spent["reads"], spent["rows_read"]) == (1, 0, len(rows))
    assert (spent["transactions"], spent["rows_written"]) == (2, 2)  # the lock is taken and given back
    after = [entry async for entry in _rows(sqlite.runs)]
    assert [entry for entry in after if entry.key[-1] != "lock"] == [entry for entry in rows if entry.key[-1] != "lock"]


async def test_a_resume_reads_its_rows_once_and_then_none_of_them(sqlite, act, witness):
    await run_durable(run_id="r", journal=sqlite.runs, model=Worker(40), tools=[act], prompt="go", max_steps=25)
    rows = [entry async for entry in _rows(sqlite.runs)]
    spent = await cost(sqlite, Worker(40), [act])
    assert len(witness) == 40
    assert (spent["scans"], spent["reads"], spent["rows_read"]) == (1, 0, len(rows))
    assert spent["transactions"] == ENDS + 2 * 15


async def test_several_pages_are_one_scan_of_each_row(sqlite, act):
    """A run larger than a page: pages are read on, no row twice."""

    @tool(side_effect=False)
    def look(number: int) -> str:
        return "x" * 60_000

    await cost(sqlite, Worker(150, "look"), [look])  # 9 MB
    rows = [entry async for entry in _rows(sqlite.runs)]
    spent = await cost(sqlite, Worker(150, "look"), [look])
    assert spent["scans"] > 1
    assert spent["rows_read"] == len(rows)


async def test_work_keyed_across_runs_reads_its_own_row_alone(sqlite, witness):
    @tool(name="act", idempotency="args", window="cross-run")
    def shared(context: Context, number: int) -> str:
        witness.append(context.run_id)
        return "result"

    await cost(sqlite, Worker(3), [shared], run_id="r1")
    spent = await cost(sqlite, Worker(3), [shared], run_id="r2")
    assert witness == ["r1"] * 3
    assert (spent["scans"], spent["reads"], spent["rows_read"]) == (1, 3, 3)


async def test_bytes_and_rows_of_a_step_are_flat(sqlite, act):
    """The 400th step writes what the 50th does: a delta, never the history again."""
    written = []

    def on_write(number, ops):
        written.append(sqlite.statistics.bytes_written)

    journal = FaultyJournal(sqlite.runs, on_write=on_write)
    await run_durable(run_id="r", journal=journal, model=Worker(400), tools=[act], prompt="go", max_steps=1000)
    steps = [after - before for before, after in zip(written[1::2], written[3::2], strict=False)]
    assert len(steps) >= 399
    at = {number: steps[number] for number in (50, 100, 200, 399)}
    # The digits of step numbers grow, in a handful of places.
    assert max(at.values()) - min(at.values()) <= 16, at
    assert at[50] < 2_000


async def test_a_step_writes_its_two_rows_twice_over_and_no_other(sqlite, act):
    two, three = [await cost(sqlite, Worker(steps), [act], run_id=f"r{steps}") for steps in (12, 13)]
    # The model's row, the call's row as a claim, the call's row as done.
    assert three["rows_written"] - two["rows_written"] == 3


async def test_s56_bytes_grow_as_the_work_does(sqlite):
    """200 calls with 5 KB results and a 100 KB prompt."""

    @tool
    def act(number: int) -> str:
        return f"{number}" + "x" * 5_000

    prompt, system = "p" * 100_000, "s" * 100_000
    sizes = {}
    for steps in (25, 50, 100, 200):
        before = sqlite.statistics.bytes_written
        await run_durable(
            run_id=f"r{steps}",
            journal=sqlite.runs,
            model=Worker(steps),
            tools=[act],
            prompt=prompt,
            system=system,
            max_steps=1000,
        )
        sizes[steps] = sqlite.statistics.bytes_written - before
    base = 2 * sizes[25] - sizes[50]  # what the run writes whatever its length
    assert 200_000 < base < 320_000  # prompt and system prompt, once or twice, not once a step
    exponent = math.log((sizes[200] - base) / (sizes[50] - base)) / math.log(4)
    assert exponent < 1.05, sizes
    assert sizes[200] < base + 200 * 7_000


async def test_10_000_steps_grow_linearly(place, witness):
    """Rows, bytes and syncs of the last thousand steps are those of any thousand."""
    marks = []

    @tool(side_effect=False)
    async def look(number: int) -> str:
        witness.append(number)
        if len(witness) % 1_000 == 0:
            marks.append(storage.statistics)
        return "seen"

    with SqliteStorage(place / "long.sqlite", durability="normal") as storage:
        await run_durable(
            run_id="r", journal=storage.runs, model=Worker(10_000, "look"), tools=[look], prompt="go", max_steps=20_000
        )
        spent = [
            {
                name: getattr(after, name) - getattr(before, name)
                for name in ("rows_written", "transactions", "bytes_written")
            }
            for before, after in pairwise(marks)
        ]
        assert len(witness) == 10_000
        assert {(one["rows_written"], one["transactions"]) for one in spent} == {(2_000, 2_000)}
        assert max(one["bytes_written"] for one in spent) < 1.02 * min(one["bytes_written"] for one in spent)

        before = storage.statistics
        model = Worker(10_000, "look")
        result = await run_durable(
            run_id="r", journal=storage.runs, model=model, tools=[look], prompt="go", max_steps=20_000
        )
        after = storage.statistics
        assert (len(result.steps), model.asked, len(witness)) == (10_001, 0, 10_000)
        assert after.rows_read - before.rows_read == 20_001 + 4  # steps and calls; input, head, lock, tools
        assert after.reads == before.reads


async def test_a_sub_agent_s_steps_cost_what_a_root_s_do(sqlite, act):
    costs = []
    for steps in (3, 4):
        helper = agent_tool(name="helper", description="Helps.", model=Worker(steps), tools=[act], max_steps=50)
        costs.append(await cost(sqlite, _Asks(), [helper], run_id=f"r{steps}"))
    assert costs[1]["transactions"] - costs[0]["transactions"] == 2
    assert [(one["scans"], one["reads"]) for one in costs] == [(1, 0), (1, 0)]


class _Asks(Worker):
    def __init__(self):
        super().__init__(1, "helper")

    async def generate(self, request):
        if len(request.messages) > 1:
            return ModelResponse((TextPart("done"),))
        return ModelResponse((ToolCallPart("", "helper", {"task": "go"}),), stop_reason="tool_calls")


async def _rows(journal):
    after = None
    while True:
        page = await journal.scan(("run",), after=after)
        for entry in page.entries:
            yield entry
        after = page.after
        if after is None:
            return


def test_keys_of_a_step_are_as_long_as_any_other_s():
    assert {len(keys.encode(keys.model("r", "~", step))) for step in (0, 9, 10, 399, 99_999)} == {
        len("run/r/~/model/000000")
    }


async def test_a_loop_of_one_s_own_stores_its_own_messages_alone(sqlite, look):
    """Answers and results are references to their records; what the loop says itself is stored once, by its digest."""
    messages = [Message("user", (TextPart("x" * 5_000),))]
    model = Worker(30, "look")
    async with durable_context(run_id="r", journal=sqlite.runs) as ctx:
        durable, tools = with_durable_model(model, ctx), durable_tools([look], ctx)
        while True:
            response = await durable.generate(ModelRequest("s" * 5_000, tuple(messages), (look.spec,)))
            messages.append(response.message())
            if not response.tool_calls:
                break
            messages += [await tools[call.name].answer(call) for call in response.tool_calls]
            messages.append(Message("user", (TextPart("go on"),)))
    names = [entry.key[3] async for entry in _rows(sqlite.runs)]
    assert {name: names.count(name) for name in ("model", "tool", "msg", "body")} == {
        "model": 31,
        "tool": 30,
        "msg": 2,  # the question, and 'go on'
        "body": 2,  # the system prompt, the tools
    }
    assert sqlite.statistics.bytes_written < 70_000
