"""Recorded failures come back as they were, looks run nothing, and what is missing is never filled by a live call."""

import base64
import json
import pickle

import pytest

from gnl_core import (
    Context,
    agent_tool,
    fork_run,
    read_incidents,
    resume_run,
    run_durable,
    tool,
)
from gnl_core.errors import JournalGapError, StoreCorruptError
from gnl_core.testing.scripted import ScriptedModel
from gnl_core.views import read_run


class Never:
    """A model that must not be asked."""

    spec = "scripted/model"

    async def generate(self, request):
        pytest.fail("the model was asked")

    async def stream(self, request):
        pytest.fail("the model was asked")
        yield


def never(name):
    """A tool that must not run."""

    @tool(name=name)
    def body(amount: int = 0) -> str:
        pytest.fail(f"{name} ran")

    return body


def work(effects):
    """A side effect, and a tool that looks only."""

    @tool
    def charge(context: Context, amount: int = 0) -> str:
        return effects.fire("charge", context, f"receipt for {amount}")

    @tool(side_effect=False)
    def look(context: Context) -> dict:
        return effects.fire("look", context, {"seen": 1})

    return [charge, look]


SCRIPT = [
    ["I pay.", ("charge", {"amount": 1}), ("look", {})],
    [("charge", {"amount": 2})],
    "paid twice",
]


def standing(values):
    """All rows but the lock and its beat."""
    return {key: value for key, value in values.items() if not key.endswith(("/req/lock", "/req/beat"))}


# S46, S47 ----------------------------------------------------------------------------------------------------------


async def test_s46_looking_at_a_run_runs_nothing_and_a_fork_runs_live_by_name(journal, rows, effects):
    script = [[("charge", {"amount": 1})], [("charge", {"amount": 2})], "paid"]
    await run_durable(run_id="r", journal=journal, model=ScriptedModel(script), tools=work(effects), prompt="pay")
    before = await rows.all()
    view = await read_run(journal, "r")  # takes neither tools nor a model
    assert len(view.steps) == 3
    assert await read_incidents(journal, "r") == []
    assert await rows.all() == before
    assert effects.count() == 2

    assert await fork_run(journal=journal, run_id="r", step=1, new_run_id="f") == "f"
    assert effects.count() == 2  # a fork by itself runs nothing
    await resume_run(run_id="f", journal=journal, model=ScriptedModel(script), tools=work(effects))
    assert effects.counts() == {"charge r/s0p0": 1, "charge r/s1p0": 1, "charge f/s1p0": 1}


class PaymentError(Exception):
    def __init__(self, reason, *, code, way_out=None):
        super().__init__(f"payment failed: {reason}")
        self.code = code
        self.message = "an attribute that many clients' errors have"
        self.type = "card_error"
        self._secret = "token"
        self.response = way_out


async def test_s47_a_recorded_failure_comes_back_as_one_stable_error(journal, rows, effects):
    @tool(side_effect=False)
    def charge() -> str:
        effects.fire("charge", "c")
        raise PaymentError("x", code=7)

    options = {"run_id": "r", "journal": journal, "tools": [charge], "prompt": "pay"}
    live = await run_durable(model=ScriptedModel([[("charge", {})], "sorry"]), **options)
    again = await run_durable(model=Never(), **options)
    for result in (live, again):
        (call,) = result.steps[0].calls
        assert call.status == "failed"
        assert (type(call.error).__name__, call.error.type) == ("ToolError", "PaymentError")
        assert str(call.error) == "payment failed: x"
        assert call.error.detail["code"] == 7
        assert json.loads(json.dumps(call.error.detail)) == call.error.detail
        assert result.messages[2].parts[0].text == "PaymentError: payment failed: x"
        assert result.messages[2].parts[0].is_error
    assert again.steps[0].calls[0].error.detail == live.steps[0].calls[0].error.detail
    assert effects.count() == 1
    assert "token" not in json.dumps([value for value, _ in (await rows.values()).values()])


async def test_s47_what_cannot_be_kept_of_an_error_does_not_hide_the_rest(journal, effects):
    @tool(side_effect=False)
    def charge() -> str:
        raise PaymentError("x", code=7, way_out=object())

    options = {"run_id": "r", "journal": journal, "tools": [charge], "prompt": "pay"}
    for model in (ScriptedModel([[("charge", {})], "sorry"]), Never()):
        (call,) = (await run_durable(model=model, **options)).steps[0].calls
        assert call.error.detail["code"] == 7
        assert "response" not in call.error.detail


async def test_s47_an_error_that_cannot_even_be_printed_is_a_recorded_failure(journal, effects):
    class Mute(Exception):
        def __str__(self):
            raise RuntimeError("no")

    @tool(side_effect=False)
    def charge() -> str:
        raise Mute

    options = {"run_id": "r", "journal": journal, "tools": [charge], "prompt": "pay"}
    for model in (ScriptedModel([[("charge", {})], "sorry"]), Never()):
        (call,) = (await run_durable(model=model, **options)).steps[0].calls
        assert (call.status, call.error.type) == ("failed", "Mute")


async def test_s47_a_row_that_was_edited_to_hold_a_pickle_runs_nothing(journal, rows, effects, tmp_path):
    class Bomb:
        def __reduce__(self):
            return (open, (str(tmp_path / "ran"), "w"))

    payload = pickle.dumps(Bomb())
    options = {"run_id": "r", "journal": journal, "prompt": "pay", "tools": work(effects)}
    await run_durable(model=ScriptedModel([[("charge", {})], "paid"]), **options)
    key = "run/r/~/tool/000000/000"
    original = (await rows.all())[key].value
    for changed, blob in (
        ({"output": base64.b64encode(payload).decode()}, None),
        ({"output": {"\0gnl:Bytes": base64.b64encode(payload).decode()}}, None),
        ({"output": {"\0gnl:Pickle": base64.b64encode(payload).decode()}}, None),
        ({"in_blob": True}, payload),
    ):
        await rows.put(key, original | changed, blob)
        try:
            await run_durable(model=Never(), **options)
        except Exception as error:
            assert type(error).__name__ == "StoreCorruptError"  # noqa: PT017 - either way out is right
    assert not (tmp_path / "ran").exists()


# S44 ---------------------------------------------------------------------------------------------------------------


RECORDS = [f"run/r/~/model/{step:06d}" for step in range(6)] + [f"run/r/~/tool/{step:06d}/000" for step in range(5)]


@pytest.mark.parametrize("missing", RECORDS)
async def test_s44_a_missing_record_is_a_gap_and_no_live_call_fills_it(journal, rows, effects, missing):
    script = [*([("charge", {"amount": step})] for step in range(5)), "paid"]
    options = {"run_id": "r", "journal": journal, "prompt": "pay"}
    await run_durable(model=ScriptedModel(script), tools=work(effects), **options)
    await rows.delete(missing)
    before = standing(await rows.all())
    for _ in range(2):
        with pytest.raises(JournalGapError, match="doctor") as raised:
            await run_durable(model=Never(), tools=[never("charge"), never("look")], **options)
        kind, number = missing.split("/")[3:5]
        assert ("step" if kind == "model" else "tool_call_id") in raised.value.detail
        assert str(int(number)) in str(raised.value)
    assert standing(await rows.all()) == before
    assert effects.count() == 5


@pytest.mark.parametrize("number", ["12", "00000012", "99999999999999999999", "-00001", "x"])
async def test_a_step_under_a_number_that_no_step_has_stops_the_run(journal, rows, effects, number):
    drive = {"run_id": "r", "journal": journal, "tools": work(effects), "prompt": "pay"}
    await run_durable(model=ScriptedModel(SCRIPT), **drive)
    await rows.put(("run", "r", "~", "model", number), {"f": 1})
    with pytest.raises(StoreCorruptError, match="stands where no model step can"):
        await run_durable(model=ScriptedModel(SCRIPT), **drive)


async def test_s44_a_missing_input_is_a_gap_and_no_new_beginning(journal, rows, effects):
    options = {"run_id": "r", "journal": journal, "prompt": "pay", "tools": [never("charge"), never("look")]}
    await run_durable(model=ScriptedModel(SCRIPT), **(options | {"tools": work(effects)}))
    await rows.delete("run/r/~/input")
    before = await rows.all()
    with pytest.raises(JournalGapError, match="doctor"):
        await run_durable(model=Never(), **options)
    with pytest.raises(JournalGapError):
        await resume_run(run_id="r", journal=journal, model=Never(), tools=options["tools"])
    await rows.delete("run/r/~/head")
    with pytest.raises(JournalGapError):
        await run_durable(model=Never(), **options)
    assert {key: row for key, row in (await rows.all()).items() if key in before} == {
        key: row for key, row in before.items() if key != "run/r/~/head"
    }


async def test_s44_a_gap_in_a_sub_agent_s_run(journal, rows, effects):
    charge, _ = work(effects)
    child = ScriptedModel([[("charge", {"amount": 1})], [("charge", {"amount": 2})], "child done"])
    helper = agent_tool(name="helper", description="Helps.", model=child, tools=[charge])
    options = {"run_id": "r", "journal": journal, "prompt": "pay"}
    await run_durable(model=ScriptedModel([[("helper", {"task": "pay"})], "done"]), tools=[helper], **options)
    (part,) = {key.split("/")[2] for key in await rows.all(("run", "r")) if key.split("/")[2].startswith("agent:")}
    # As if the driver had died before the parent heard of the child's end.
    await rows.delete("run/r/~/tool/000000/000")
    await rows.delete("run/r/~/model/000001")
    await rows.change("run/r/~/head", status="failed", steps=1)
    await rows.delete(f"run/r/{part}/model/000001")
    with pytest.raises(JournalGapError) as raised:
        await run_durable(model=ScriptedModel([[("helper", {"task": "pay"})], "done"]), tools=[helper], **options)
    assert raised.value.detail["run_id"] == part
    assert (child.calls, effects.count()) == (3, 2)
