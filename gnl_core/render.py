"""What the model reads of a call's record.

The text enters the fingerprint of later steps, so its form is a version of its own: a release that words it otherwise
adds a version and keeps this one for the records that were made under it. Golden files hold it.
"""

from __future__ import annotations

import json

from gnl_core.codec import plain
from gnl_core.journal.port import JsonValue
from gnl_core.model.messages import Message, ToolCallPart, ToolResultPart
from gnl_core.records import CallRecord

_to_text = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

RENDER = 1
"""Number of the wording below."""


def result_text(record: CallRecord, output: JsonValue) -> tuple[str, bool]:
    """Return what the model reads of a settled call, and whether it tells of a failure.

    Args:
        record: A record that is settled: succeeded, failed, denied or reflected.
        output: Its output in the codec's form, from the record or its blob.
    """
    match record.status:
        case "succeeded" if record.unrepresentable:
            return f"The tool ran. Its result could not be kept: {record.unrepresentable}", False
        case "succeeded":
            return output_text(output), False
        case "failed":
            error = record.error or {}
            return f"{error.get('type', 'Error')}: {error.get('message', '')}", True
        case "denied":
            return record.text, True
        case _:
            return record.text, False


def output_text(output: JsonValue) -> str:
    """Return a tool's output as text: a text as it stands, anything else as JSON."""
    value = plain(output)
    return value if isinstance(value, str) else _to_text(value)


def tool_message(call: ToolCallPart, text: str, is_error: bool) -> Message:
    """Return the message that carries a call's result to the model."""
    return Message("tool", (ToolResultPart(call.id, call.name, text, is_error, call.provider_id),))
