"""What a model reads of a call's record: these texts enter the fingerprint of later steps, so they never change."""

from datetime import datetime, timedelta
from decimal import Decimal

import pytest

from gnl_core.codec import encode
from gnl_core.model.messages import Message, ToolCallPart, ToolResultPart
from gnl_core.records import CallRecord
from gnl_core.render import RENDER, output_text, result_text, tool_message


def record(status, **members):
    return CallRecord(status=status, tool="act", call="s0p0", args={}, digest="d", side_effect=True, **members)


def test_the_version_of_the_wording():
    """A new wording is a new version; this one stays for the records that were made under it."""
    assert RENDER == 1


@pytest.mark.parametrize(
    ("made", "text", "is_error"),
    [
        (record("succeeded", output="as it stands\n"), "as it stands\n", False),
        (record("succeeded", output=""), "", False),
        (record("succeeded", output=None), "null", False),
        (record("succeeded", output={"b": [1, 2.5], "a": "é"}), '{"b":[1,2.5],"a":"é"}', False),
        (
            record("succeeded", unrepresentable="$.a: socket.socket cannot be stored"),
            "The tool ran. Its result could not be kept: $.a: socket.socket cannot be stored",
            False,
        ),
        (record("failed", error={"type": "PaymentError", "message": "no funds"}), "PaymentError: no funds", True),
        (record("failed", error={"type": "X", "message": ""}), "X: ", True),
        (record("failed"), "Error: ", True),
        (
            record("denied", text="A person refused this call and it did not run."),
            "A person refused this call and it did not run.",
            True,
        ),
        (record("reflected", text="This call did not run: …"), "This call did not run: …", False),
    ],
)
def test_the_texts(made, text, is_error):
    assert result_text(made, made.output) == (text, is_error)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (7, "7"),
        (1.0, "1.0"),
        (-0.0, "-0.0"),
        ("7", "7"),
        ([], "[]"),
        (Decimal("0.10"), "0.10"),
        (b"\xff", "/w=="),
        ((1, "a"), '[1,"a"]'),
        (datetime(2026, 1, 31, 12, 30), "2026-01-31T12:30:00"),
        (timedelta(days=1, hours=2), "P1DT2H"),
        ({1: "a"}, '{"1":"a"}'),
        ({"n": float("nan"), "i": float("-inf")}, '{"n":"NaN","i":"-Infinity"}'),
        ("a\x00b", "a\x00b"),
        ({"k": "a\x00b"}, '{"k":"a\\u0000b"}'),
        ({"k": "\ud800"}, '{"k":"\ufffd"}'),
        ({"\0gnl:Decimal": "1"}, '{"\\u0000gnl:Decimal":"1"}'),
    ],
)
def test_outputs_of_every_kind(value, text):
    assert output_text(encode(value)) == text


def test_the_message_carries_both_ids_and_the_name_the_model_used():
    call = ToolCallPart("s3p1", "act", {"a": 1}, "", "call_0")
    assert tool_message(call, "done", False) == Message(
        "tool", (ToolResultPart("s3p1", "act", "done", False, "call_0"),)
    )
    assert tool_message(call, "no", True).parts[0].is_error
