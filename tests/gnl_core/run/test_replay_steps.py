"""What counts as an answer, and who may ask for one."""

import pytest

from gnl_core import InMemoryStorage, StepTimeoutError, Timeouts, run_durable, stream_durable, tool
from gnl_core.errors import ModelResponseError, ModelUnavailableError, RunBusyError
from gnl_core.journal import Put, new_batch
from gnl_core.keys import model_claim
from gnl_core.model.messages import ModelResponse, TextDelta, TextPart, ToolCallPart
from gnl_core.testing.scripted import ScriptedModel


async def test_an_answer_with_more_calls_than_positions_is_no_answer(journal, rows):
    @tool
    def act() -> str:
        pytest.fail("it ran")

    def answer(calls):
        return ScriptedModel([ModelResponse(tuple(ToolCallPart("", "gone", {}) for _ in range(calls))), "done"])

    with pytest.raises(ModelResponseError, match="1001 tool calls, at most 1000"):
        await run_durable(run_id="r", journal=journal, model=answer(1_001), tools=[act], prompt="go")
    assert "run/r/~/model/000000" not in await rows.all()
    result = await run_durable(run_id="r", journal=journal, model=answer(1_000), tools=[act], prompt="go")
    assert (result.text, result.steps[0].calls[-1].tool_call_id) == ("done", "s0p999")


class Cut:
    """A stream that ends without saying that the answer is whole."""

    spec = "scripted/model"

    async def generate(self, request):
        raise NotImplementedError

    async def stream(self, request):
        yield TextDelta("half an ans")


async def test_a_stream_that_ends_without_a_whole_answer_is_no_answer(journal, rows):
    told = []
    async with await stream_durable(
        run_id="r", journal=journal, model=Cut(), prompt="go", on_event=told.append
    ) as stream:
        with pytest.raises(ModelResponseError, match="before the answer was whole"):
            await stream.result
    assert [event.text for event in told if event.kind == "text-delta"] == ["half an ans"]
    assert "run/r/~/model/000000" not in await rows.all()
    result = await run_durable(run_id="r", journal=journal, model=ScriptedModel(["whole"]), prompt="go")
    assert result.text == "whole"
    assert not result.steps[0].replayed


async def test_a_model_s_own_timeout_is_not_the_step_s(journal):
    async def late(request):
        raise TimeoutError("the model's own")

    model = ScriptedModel([late])
    with pytest.raises(TimeoutError, match="the model's own") as raised:
        await run_durable(run_id="r", journal=journal, model=model, prompt="go", timeouts=Timeouts(model_step=60))
    assert not isinstance(raised.value, StepTimeoutError)


FAR = {"id": "0" * 32, "boot": "elsewhere", "pid": 7, "started": "1", "namespace": "1", "host": "far"}


@pytest.fixture
def clock():
    class Hands:
        now = 1_800_000_000.0

        def __call__(self):
            return self.now

    return Hands()


async def test_a_step_that_another_worker_is_asking_for_is_not_paid_for_twice(clock):
    with InMemoryStorage(clock=clock) as storage:
        options = {"run_id": "r", "journal": storage.runs, "prompt": "go", "exclusive_model_step": True}
        with pytest.raises(ModelUnavailableError):
            await run_durable(model=ScriptedModel([ModelUnavailableError("down")]), **options)
        claim = Put(model_claim("r", "~", 0), {"f": 1, "owner": FAR})
        await storage.runs.apply((claim,), batch=new_batch())
        clock.now += 10
        model = ScriptedModel([ModelResponse((TextPart("done"),))])
        with pytest.raises(RunBusyError) as busy:
            await run_durable(model=model, **options)
        assert (busy.value.retry_after, busy.value.detail["step"], model.calls) == (20, 0, 0)
        clock.now += 20  # the other's time has passed
        assert (await run_durable(model=model, **options)).text == "done"


async def test_a_claim_of_a_driver_that_is_gone_holds_nobody_up(journal):
    """The same process, an earlier drive: its hold is over, whatever its claim's time."""
    options = {"run_id": "r", "journal": journal, "prompt": "go", "exclusive_model_step": True}
    for _ in range(3):
        with pytest.raises(ModelUnavailableError):
            await run_durable(model=ScriptedModel([ModelUnavailableError("down")]), **options)
    assert (await run_durable(model=ScriptedModel(["done"]), **options)).text == "done"
