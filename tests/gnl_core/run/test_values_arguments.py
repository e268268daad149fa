"""Arguments of calls: which of them are one piece of work, and which never reach a tool."""

import json
import unicodedata
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from gnl_core import (
    ToolError,
    durable_context,
    durable_tools,
    run_durable,
    tool,
    with_idempotency,
)
from gnl_core.errors import ModelResponseError
from gnl_core.model.messages import ModelResponse, ToolCallPart
from gnl_core.testing.scripted import ScriptedModel


def keyed(effects, name="charge"):
    """A side effect that happens once for its arguments."""

    @tool(name=name, idempotency="args")
    def charge(amount: Any = 0, to: str = "", extra: dict | None = None) -> str:
        effects.fire("charge", f"{amount!r} {to}")
        return f"receipt {effects.count()}"

    return charge


async def drive(journal, charge, *calls, run_id="r"):
    """One call a turn; the last turn ends the run."""
    model = ScriptedModel([*([("charge", args)] for args in calls), "done"])
    return await run_durable(run_id=run_id, journal=journal, model=model, tools=[charge], prompt="go")


def outputs(result):
    return [call.output for step in result.steps for call in step.calls]


async def test_s18_the_order_of_keys_is_no_difference(journal, effects):
    result = await drive(
        journal,
        keyed(effects),
        '{"amount": 1, "to": "ann", "extra": {"a": 1, "b": 2}}',
        '{"extra": {"b": 2, "a": 1}, "to": "ann", "amount": 1}',
    )
    assert effects.count() == 1
    assert outputs(result) == ["receipt 1", "receipt 1"]
    assert [(one.tool_call_id, one.origin) for one in result.replayed_tool_calls] == [("s1p0", "window")]


async def test_s19_100_and_100_0_are_one_and_the_text_is_another(journal, effects):
    result = await drive(journal, keyed(effects), '{"amount": 100}', '{"amount": 100.0}', '{"amount": "100"}')
    assert outputs(result) == ["receipt 1", "receipt 1", "receipt 2"]
    assert effects.counts() == {"charge 100 ": 1, "charge '100' ": 1}


async def test_s19_integers_keep_every_digit(journal, effects):
    big = 2**53
    await drive(journal, keyed(effects), f'{{"amount": {big}}}', f'{{"amount": {big + 1}}}')
    assert effects.counts() == {f"charge {big} ": 1, f"charge {big + 1} ": 1}


async def test_s19_true_is_not_one(journal, effects):
    @tool(idempotency="args")
    def charge(amount: bool | int) -> str:
        return effects.fire("charge", repr(amount), "done")

    await drive(journal, charge, '{"amount": true}', '{"amount": 1}')
    assert effects.counts() == {"charge True": 1, "charge 1": 1}


async def test_s19_decimals_are_two_texts_to_the_hash_and_one_value_to_a_key(journal, effects):
    @tool(name="charge", idempotency="args")
    def by_text(amount: Decimal) -> str:
        return effects.fire("text", str(amount), "done")

    await drive(journal, by_text, '{"amount": "0.10"}', '{"amount": "0.1"}')
    assert effects.counts() == {"text 0.10": 1, "text 0.1": 1}

    @tool(name="charge", idempotency_key=lambda args: args["amount"])
    def by_value(amount: Decimal) -> str:
        return effects.fire("value", str(amount), "done")

    await drive(journal, by_value, '{"amount": "0.10"}', '{"amount": "0.1"}', run_id="r2")
    assert effects.count("value") == 1


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e400", "-1e400"])
async def test_s19_numbers_that_json_has_not_reach_no_tool(journal, effects, number):
    result = await drive(journal, keyed(effects), f'{{"amount": {number}}}')
    assert effects.count() == 0
    (call,) = result.steps[0].calls
    assert (call.status, call.error.type) == ("failed", "ToolArgumentsError")
    assert number in str(call.error)  # the model reads what it wrote
    replayed = await drive(journal, keyed(effects))
    assert outputs(replayed) == [None]
    assert replayed.messages == result.messages


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
async def test_s19_a_model_of_one_s_own_that_gives_them_parsed_reaches_no_tool_either(journal, effects, number):
    part = ToolCallPart("", "charge", {"amount": number})
    model = ScriptedModel([ModelResponse((part,), stop_reason="tool_calls"), "done"])
    result = await run_durable(run_id="r", journal=journal, model=model, tools=[keyed(effects)], prompt="go")
    (call,) = result.steps[0].calls
    assert (call.status, call.error.type) == ("failed", "ToolArgumentsError")
    assert json.dumps(number) in str(call.error)
    assert effects.count() == 0


@pytest.mark.parametrize("args", [{"amount": object()}, {"extra": {1: "a"}}, {"extra": {"a": b"b"}}])
async def test_s21_a_model_of_one_s_own_with_arguments_that_no_journal_holds(journal, rows, effects, args):
    model = ScriptedModel([ModelResponse((ToolCallPart("", "charge", args),), stop_reason="tool_calls"), "done"])
    result = await run_durable(run_id="r", journal=journal, model=model, tools=[keyed(effects)], prompt="go")
    assert result.steps[0].calls[0].error.type == "ToolArgumentsError"
    assert (result.text, effects.count()) == ("done", 0)
    assert "0x" not in json.dumps([value for value, _ in (await rows.values()).values()])


async def test_an_answer_whose_provider_data_is_no_json_is_no_answer(journal, rows):
    model = ScriptedModel([ModelResponse((), provider_data={"signature": b"raw"})])
    with pytest.raises(ModelResponseError, match="provider_data"):
        await run_durable(run_id="r", journal=journal, model=model, prompt="go")
    assert "run/r/~/model/000000" not in await rows.all()


async def test_s20_nfc_and_nfd_are_one(journal, effects):
    word = "Danışmanlık Çağrı é"
    forms = [unicodedata.normalize(form, word) for form in ("NFC", "NFD")]
    assert forms[0] != forms[1]
    result = await drive(journal, keyed(effects), *({"amount": 1, "to": form} for form in forms))
    assert effects.count() == 1
    assert outputs(result) == ["receipt 1", "receipt 1"]


async def test_s20_case_spaces_and_accents_are_differences(journal, effects):
    await drive(journal, keyed(effects), *({"to": to} for to in ("Zoe", "zoe", "Zoë", "Zoe ")))
    assert effects.count() == 4


async def test_s20_a_tool_receives_the_text_that_the_model_wrote(journal, effects):
    seen = []

    @tool
    def charge(to: str) -> str:
        seen.append(to)
        return "done"

    nfd = unicodedata.normalize("NFD", "Çağrı")
    await drive(journal, charge, {"to": nfd})
    assert seen == [nfd]


async def test_s20_two_keys_that_are_one_in_nfc_are_refused(journal, effects):
    pair = '{"extra": {"\\u00e9": 1, "e\\u0301": 2}}'
    result = await drive(journal, keyed(effects), pair)
    assert effects.count() == 0
    assert result.steps[0].calls[0].status == "failed"
    assert "one in NFC" in str(result.steps[0].calls[0].error)


class Opaque:
    """Its repr holds its address."""


async def test_s21_an_object_without_a_stable_form_is_refused_at_the_first_call(journal, effects):
    @tool
    def charge(amount: int, meta: object = None) -> str:
        return effects.fire("charge", str(amount), "done")

    with pytest.raises(ToolError) as refused:
        await with_idempotency(charge, journal)(amount=1, meta=Opaque())
    assert refused.value.type == "NotCanonicalError"
    assert "$.meta: " in str(refused.value)
    assert "Opaque" in str(refused.value)
    assert "0x" not in str(refused.value)
    assert effects.count() == 0


async def test_s21_in_a_loop_of_one_s_own_too(journal, effects):
    @tool
    def charge(amount: int, meta: object = None) -> str:
        return effects.fire("charge", str(amount), "done")

    async with durable_context(run_id="r", journal=journal) as ctx:
        tools = durable_tools([charge], ctx)
        with pytest.raises(ToolError) as refused:
            await tools["charge"].call({"amount": 1, "meta": Opaque()}, tool_call_id="s0p0")
    assert refused.value.type == "NotCanonicalError"
    assert "$.meta: " in str(refused.value)
    assert "Opaque" in str(refused.value)
    assert effects.count() == 0


async def test_typed_arguments_of_a_function_of_one_s_own_are_hashed_by_value(journal, effects):
    """Arguments that no model wrote may be of every type of the table."""

    @tool
    def charge(amount: Decimal, file: Path) -> str:
        return effects.fire("charge", str(amount), f"receipt {effects.count()}")

    call = with_idempotency(charge, journal)
    first = await call(amount=Decimal("0.10"), file=Path("a/b"))
    assert await call(amount=Decimal("0.1"), file=Path("a/b")) == first
    assert effects.count() == 1
    await call(amount=Decimal("0.2"), file=Path("a/b"))
    assert effects.count() == 2


async def test_text_that_no_store_and_no_wire_takes_reaches_no_tool(journal, effects):
    result = await drive(journal, keyed(effects), '{"to": "\\ud800"}')
    assert effects.count() == 0
    assert result.steps[0].calls[0].status == "failed"


async def test_arguments_that_are_no_object_reach_no_tool(journal, effects):
    for number, text in enumerate(["[1, 2]", "7", "null", '"a"', "{", "{'amount': 1}"]):
        result = await drive(journal, keyed(effects), text, run_id=f"r{number}")
        assert "no JSON object" in str(result.steps[0].calls[0].error)
    assert effects.count() == 0
