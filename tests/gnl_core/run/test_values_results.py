"""Results of tools: what is handed back live is handed back by every replay, and nothing is lost in silence."""

import enum
import json
import math
import socket
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from uuid import UUID

import pydantic
import pytest

from gnl_core import ResultNotRepresentableError, decode, run_durable, tool
from gnl_core.testing.scripted import ScriptedModel

SCRIPT = [[("act", {})], "done"]


async def act(journal, effects, value, *, run_id="r"):
    """Drive a run whose one side effect returns `value`."""

    @tool
    def act():
        effects.fire("act", run_id)
        return value

    return await run_durable(run_id=run_id, journal=journal, model=ScriptedModel(SCRIPT), tools=[act], prompt="go")


async def again(journal, effects, *, run_id="r"):
    """Drive it again; the tool must not run."""
    model = ScriptedModel([])
    before = effects.count()

    @tool
    def act():
        effects.fire("act", "again")

    result = await run_durable(run_id=run_id, journal=journal, model=model, tools=[act], prompt="go")
    assert (model.calls, effects.count()) == (0, before)
    return result


def output(result):
    return result.steps[0].calls[0].output


def read(result):
    """What the model read of the call."""
    return result.messages[2].parts[0].text


@pydantic.dataclasses.dataclass
class Shade:
    depth: int


class Paint(pydantic.BaseModel):
    class Colour(enum.Enum):
        RED = "red"

    colour: Colour
    shade: Shade
    tone: "Paint.Colour | None" = None


async def test_s49_an_enum_declared_inside_a_model_is_its_value(journal, effects):
    value = Paint(colour=Paint.Colour.RED, shade=Shade(2), tone=Paint.Colour.RED)
    live = await act(journal, effects, value)
    expected = {"colour": "red", "shade": {"depth": 2}, "tone": "red"}
    assert output(live) == expected
    assert output(await again(journal, effects)) == expected
    assert json.loads(read(live)) == expected


async def test_s51_bytes_that_are_no_text_come_back(journal, effects):
    live = await act(journal, effects, b"\xff\xfe")
    assert output(live) == b"\xff\xfe"
    assert output(await again(journal, effects)) == b"\xff\xfe"
    assert read(live) == "//4="


async def test_s51_lone_surrogates_come_back_and_never_reach_a_wire(journal, effects):
    live = await act(journal, effects, "a\ud800b")
    assert output(live) == "a\ud800b"
    assert output(await again(journal, effects)) == "a\ud800b"
    assert read(live) == "a\ufffdb"
    read(live).encode()


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
async def test_s52_numbers_that_json_has_not_are_kept_in_valid_json(journal, rows, effects, number):
    live = await act(journal, effects, {"score": number})
    back = output(await again(journal, effects))["score"]
    for one in (output(live)["score"], back):
        assert math.isnan(one) if math.isnan(number) else one == number
    record = (await rows.all())["run/r/~/tool/000000/000"].value
    assert record["status"] == "succeeded"
    json.dumps([value for value, _ in (await rows.values()).values()], allow_nan=False)
    json.loads(read(live), parse_constant=pytest.fail)


async def test_s53_nul_and_its_escape_stay_two(journal, effects):
    for run_id, text in (("nul", "a\x00b"), ("escape", "a\\u0000b")):
        assert output(await act(journal, effects, text, run_id=run_id)) == text
        replayed = await again(journal, effects, run_id=run_id)
        assert output(replayed) == text
        assert read(replayed) == text
    assert effects.count() == 2


@dataclass
class Order:
    sku: str
    qty: int


VALUES = {
    "decimal": Decimal("0.10"),
    "fraction": Fraction(1, 3),
    "aware": datetime(2026, 1, 31, 12, 30, tzinfo=timezone(timedelta(hours=3))),
    "naive": datetime(2026, 1, 31, 12, 30),
    "date": date(2026, 1, 31),
    "time": time(12, 30, tzinfo=UTC),
    "duration": timedelta(days=1, seconds=2),
    "uuid": UUID("12345678-1234-5678-1234-567812345678"),
    "path": Path("a/b"),
    "set": {1, 2},
    "frozenset": frozenset({"a"}),
    "tuple": (1, "a"),
    "tuple keys": {(1, 2): "a"},
    "int keys": {1: "a", "1": "b"},
    "nul keys": {"\0gnl:Decimal": "1"},
    "bytearray": bytearray(b"ab"),
    "big": 2**4000,
    "minus zero": -0.0,
    "none": None,
    "nested": {"a": [(Decimal("1"), {date(2026, 1, 1)})]},
}


async def test_s54_every_type_of_the_table_comes_back_live_and_replayed(journal, effects):
    live = await act(journal, effects, VALUES)
    replayed = await again(journal, effects)
    for result in (live, replayed):
        back = output(result)
        assert back == VALUES
        assert {name: type(value) for name, value in back.items()} == {
            name: type(value) for name, value in VALUES.items()
        }
        assert math.copysign(1, back["minus zero"]) == -1
    assert replayed.messages == live.messages


async def test_s54_records_come_back_as_what_the_table_says(journal, effects):
    live = await act(journal, effects, [Order("a", 2)])
    assert output(live) == [{"sku": "a", "qty": 2}]
    assert output(await again(journal, effects)) == [{"sku": "a", "qty": 2}]


async def test_s55_a_socket_is_refused_at_the_call_by_tool_path_and_type(journal, rows, effects):
    with socket.socket() as plug:
        with pytest.raises(ResultNotRepresentableError) as refused:
            await act(journal, effects, {"order": {"via": plug}})
        error = refused.value
        assert error.output == {"order": {"via": plug}}  # the only copy
    assert "act (call s0p0 of run r)" in str(error)
    assert "$.order.via" in str(error)
    assert "socket" in str(error)
    assert error.detail["tool"] == "act"
    record = (await rows.all())["run/r/~/tool/000000/000"].value
    assert record["status"] == "succeeded"  # the effect has happened
    assert "socket" in record["unrepresentable"]

    model = ScriptedModel(SCRIPT)

    @tool(name="act")
    def act_again():
        effects.fire("act", "again")

    result = await run_durable(run_id="r", journal=journal, model=model, tools=[act_again], prompt="go")
    assert (result.text, effects.count(), model.calls) == ("done", 1, 1)
    assert read(result) == f"The tool ran. Its result could not be kept: {record['unrepresentable']}"
    assert output(result) is None


async def test_s55_siblings_of_such_a_call_stand(journal, effects):
    @tool
    def bad():
        effects.fire("bad", "b")
        return object()

    @tool
    def good():
        return effects.fire("good", "g", "fine")

    script = [[("bad", {}), ("good", {})], "done"]

    async def drive(model):
        return await run_durable(run_id="r", journal=journal, model=model, tools=[bad, good], prompt="go")

    with pytest.raises(ResultNotRepresentableError):
        await drive(ScriptedModel(script))
    result = await drive(ScriptedModel(script))
    assert effects.counts() == {"bad b": 1, "good g": 1}
    assert [call.status for call in result.steps[0].calls] == ["succeeded", "succeeded"]
    assert result.steps[0].calls[1].output == "fine"


async def test_s56_20_mb_come_back(journal, rows, effects):
    big = "ü" * 10_000_000  # 20 MB of UTF-8
    live = await act(journal, effects, big)
    assert output(live) == big
    replayed = await again(journal, effects)
    assert output(replayed) == big
    assert read(replayed) == big
    entry = (await rows.all())["run/r/~/tool/000000/000"]
    assert len(entry.value) < 20  # it stands beside the record, not in its text
    assert len(entry.blob) > 20_000_000


@pytest.mark.parametrize("size", [64 * 1024 - 2, 64 * 1024 - 1, 64 * 1024, 64 * 1024 + 1])
@pytest.mark.parametrize("shape", ["text", "list"])
async def test_results_around_the_size_that_moves_them_to_the_blob_come_back(journal, effects, size, shape):
    value = "x" * size if shape == "text" else ["x" * (size - 4)]
    assert output(await act(journal, effects, value)) == value
    assert output(await again(journal, effects)) == value


async def test_what_a_tool_returned_is_not_what_it_changes_afterwards(journal, effects):
    kept = []

    @tool
    def act():
        effects.fire("act", "r")
        return kept

    live = await run_durable(run_id="r", journal=journal, model=ScriptedModel(SCRIPT), tools=[act], prompt="go")
    kept.append("later")
    assert output(live) == []
    assert output(await again(journal, effects)) == []


async def test_a_replayed_value_is_the_caller_s_own(journal, effects):
    await act(journal, effects, {"a": [1]})
    first = await again(journal, effects)
    output(first)["a"].append(2)
    assert output(await again(journal, effects)) == {"a": [1]}


async def test_no_row_holds_a_pickle_or_a_repr(journal, rows, effects):
    await act(journal, effects, VALUES)
    text = json.dumps([value for value, _ in (await rows.values()).values()])
    for trace in ("Decimal(", "PosixPath(", "object at 0x", "\\u0080\\u0004", "gASV"):
        assert trace not in text
    record = (await rows.all())["run/r/~/tool/000000/000"].value
    assert decode(record["output"]) == VALUES
