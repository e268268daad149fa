"""Models, listeners and exceptions of other people, which are not what they should be."""

import asyncio
import subprocess
import sys

import pytest

from gnl_core import Usage, run_durable, tool
from gnl_core.errors import ModelResponseError
from gnl_core.model.messages import ModelResponse, TextPart, ToolCallPart
from gnl_core.testing import ScriptedModel
from gnl_core.views import read_run


class Answers:
    """A model of one's own that answers what it was made with, then a text."""

    spec = "own/model"

    def __init__(self, first):
        self.first = first

    async def generate(self, request):
        asked_before = any(message.role == "assistant" for message in request.messages)
        return ModelResponse((TextPart("done"),)) if asked_before else self.first

    def stream(self, request):
        raise NotImplementedError


CALL = ToolCallPart("", "pay", {}, "", "")


@pytest.mark.parametrize(
    "answer",
    [
        None,
        "done",
        ModelResponse((ToolCallPart("", "pay", {}, "", 7),), stop_reason="tool_calls"),
        ModelResponse((ToolCallPart("", None, {}),)),
        ModelResponse((ToolCallPart("", "pay", [1]),)),
        ModelResponse((TextPart(b"done"),)),
        ModelResponse((object(),)),
        ModelResponse((CALL,), usage=Usage("3", 4)),
        ModelResponse((CALL,), stop_reason="tired"),
        ModelResponse((CALL,), model=None),
    ],
)
async def test_an_answer_that_could_not_be_read_again_is_not_recorded(journal, effects, answer):
    @tool
    def pay() -> str:
        """Pay."""
        return effects.fire("pay", "key")

    for _ in range(2):
        with pytest.raises(ModelResponseError, match="no part of it counts"):
            await run_durable(run_id="r", journal=journal, model=Answers(answer), tools=[pay], prompt="go")
    assert effects.count() == 0
    result = await run_durable(run_id="r", journal=journal, model=ScriptedModel(["well"]), tools=[pay])
    assert result.text == "well"


def cyclic():
    args = {}
    args["self"] = args
    return args


def deep(levels):
    args = {}
    for _ in range(levels):
        args = {"deeper": args}
    return args


@pytest.mark.parametrize("args", [cyclic(), deep(100_000), {"amount": 10**5_000}], ids=["cyclic", "deep", "long int"])
async def test_arguments_that_no_text_can_hold_go_back_to_the_model(journal, effects, args):
    @tool
    def pay(amount: int = 0) -> str:
        """Pay."""
        return effects.fire("pay", "key")

    answer = ModelResponse((ToolCallPart("", "pay", args),), stop_reason="tool_calls")
    result = await run_durable(run_id="r", journal=journal, model=Answers(answer), tools=[pay], prompt="go")
    assert (result.text, result.steps[0].calls[0].status) == ("done", "failed")
    assert effects.count() == 0
    again = await run_durable(run_id="r", journal=journal, model=Answers(None), tools=[pay])
    assert again.messages == result.messages


class Unreadable(Exception):
    @property
    def __dict__(self):
        raise RuntimeError("no members")


async def test_a_failure_whose_members_cannot_be_read_is_recorded_all_the_same(journal, effects):
    @tool
    def pay() -> str:
        """Pay."""
        effects.fire("pay", "key")
        raise Unreadable("lost")

    model = ScriptedModel([[("pay", {})], "done"])
    result = await run_durable(run_id="r", journal=journal, model=model, tools=[pay], prompt="go")
    (call,) = result.steps[0].calls
    assert (call.status, call.error.type, str(call.error)) == ("failed", "Unreadable", "lost")


ABANDONED = """
import asyncio, gc
from gnl_core import InMemoryStorage, run_durable
from gnl_core.testing import ScriptedModel

async def pay(key: str) -> str:
    await asyncio.sleep(3600)

journal = InMemoryStorage().runs
loop = asyncio.new_event_loop()

async def begin():
    model = ScriptedModel([[("pay", {"key": "a"})], "done"])
    asyncio.ensure_future(run_durable(run_id="r", journal=journal, model=model, tools=[pay], prompt="go"))
    await asyncio.sleep(0.1)

loop.run_until_complete(begin())
loop.close()
del loop

async def other():
    gc.collect()
    await asyncio.sleep(0)

asyncio.run(other())
print("the next loop ended")
"""


def test_a_drive_whose_loop_was_closed_under_it_holds_up_no_other_loop():
    done = subprocess.run([sys.executable, "-c", ABANDONED], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "the next loop ended\n", done.stderr


class TextDetail(Exception):
    detail = "Not found"


class MethodCode(Exception):
    def code(self):
        return 5


class NoText(Exception):
    def __str__(self):
        raise ValueError("no text")


class Surrogate(Exception):
    def __str__(self):
        return "\ud800\0"


@pytest.mark.parametrize("kind", [TextDetail, MethodCode, NoText, Surrogate])
async def test_a_foreign_exception_comes_out_as_it_is_and_the_run_goes_on_later(journal, kind):
    def stop(steps):
        raise kind

    @tool(side_effect=False)
    def look() -> str:
        """Look."""
        return "seen"

    events = []
    model = ScriptedModel([[("look", {})], "done"])
    with pytest.raises(kind):
        await run_durable(
            run_id="r", journal=journal, model=model, tools=[look], prompt="go", stop_when=stop, on_event=events.append
        )
    assert events[-1].kind == "error"
    assert events[-1].detail["code"] == kind.__name__
    assert (await read_run(journal, "r")).run.status == "failed"
    assert (await run_durable(run_id="r", journal=journal, model=model, tools=[look])).text == "done"


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, asyncio.CancelledError])
async def test_a_listener_that_interrupts_leaves_nothing_held(journal, kind):
    def listen(event):
        raise kind

    with pytest.raises(kind):
        await run_durable(run_id="r", journal=journal, model=ScriptedModel(["done"]), prompt="go", on_event=listen)
    assert (await run_durable(run_id="r", journal=journal, model=ScriptedModel(["done"]))).text == "done"
