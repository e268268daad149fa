"""Compare a recorded model step with the request that would be made now. The recorded answer is what counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gnl_core import keys
from gnl_core.errors import DivergenceError
from gnl_core.journal.port import JsonValue
from gnl_core.records import StepRecord
from gnl_core.request import Request
from gnl_core.splice import Transcript

if TYPE_CHECKING:
    from gnl_core.step import Bodies

_SHOWN = 60
_BEFORE = 20


def check_drift(
    request: Request,
    *,
    run: str,
    step: int,
    record: StepRecord,
    transcript: Transcript,
    bodies: Bodies,
    model: str,
    settled: bool,
) -> None:
    """Compare a recorded request with the one that would be made now; say once what differs.

    Args:
        request: The request.
        run: The run whose step it is.
        step: Number of the step.
        record: What is recorded.
        transcript: The messages as they stand now.
        bodies: System prompt, tools and settings as they are now.
        model: 'provider/model' that would be asked now.
        settled: Whether a call before it was settled later, by a person or by `recover`: its result may differ.

    Raises:
        DivergenceError: With strict replay, unless only such a result differs.
    """
    differs = [name for name in ("system", "tools", "settings") if getattr(record, name) != bodies.digests[name]]
    found = [_difference(request, run, record, bodies, name) for name in differs]
    if record.model != model:
        differs.insert(0, "model")
        found.insert(0, f"model: recorded {record.model!r}, now {model!r}")
    excused = settled and not differs
    if record.chain != transcript.chain:
        differs.append("messages")
        found.append("messages: the conversation before it is not the recorded one")
    if not differs:
        return
    what = "; ".join(found)
    message = f"step {step} of run {run} was recorded for another request ({what}); the recorded answer is what counts"
    if request.options.replay == "strict" and not excused:
        raise DivergenceError(
            message + ". Drive it with replay='lenient' to accept that, or fork the run at this step",
            run_id=run,
            step=step,
            differs=differs,
        )
    # A prompt that changed has changed for every step: one sentence is read, three hundred are not.
    told = ("drift", run, what)
    if told not in request.memo:
        request.memo[told] = step
        request.warn(f"{message}. Later steps that differ in the same are not listed")


def _difference(request: Request, run: str, record: StepRecord, bodies: Bodies, name: str) -> str:
    """Name one field that differs, and show both sides from where they do."""
    root, part = keys.split_run_id(run)
    digest = getattr(record, name)
    entry = request.rows.get(keys.body(root, part, digest)) if digest else None
    recorded = entry.value.get(name) if entry is not None and isinstance(entry.value, dict) else None
    present = bodies.values[name]
    if digest and recorded is None:
        return f"{name}: what was recorded is missing from the journal, now {_short(present, 0)}"
    if name == "tools":
        return f"tools: {_tools(_by_name(recorded), _by_name(present))}"
    if name == "settings":
        before, now = _object(recorded), _object(present)
        changed = sorted(key for key in {*before, *now} if before.get(key) != now.get(key))
        return f"settings: {', '.join(f'{key} was {before.get(key)!r}, is {now.get(key)!r}' for key in changed)}"
    start = 0
    if isinstance(recorded, str) and isinstance(present, str):
        pairs = enumerate(zip(recorded, present, strict=False))
        same = next((at for at, (one, other) in pairs if one != other), min(len(recorded), len(present)))
        start = max(0, same - _BEFORE)
    return f"{name}: recorded {_short(recorded, start)}, now {_short(present, start)}"


def _tools(before: Mapping[str, JsonValue], now: Mapping[str, JsonValue]) -> str:
    kinds = {
        "gone": [name for name in before if name not in now],
        "new": [name for name in now if name not in before],
        "described otherwise": [name for name, tool in before.items() if name in now and now[name] != tool],
    }
    said = [f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} {kind}" for kind, names in kinds.items() if names]
    return " and ".join(said) or "the same in another order"


def _by_name(tools: JsonValue) -> dict[str, JsonValue]:
    return {str(one[0]): one for one in tools if isinstance(one, list) and one} if isinstance(tools, list) else {}


def _object(value: JsonValue) -> dict[str, JsonValue]:
    return value if isinstance(value, dict) else {}


def _short(value: JsonValue, start: int) -> str:
    if not isinstance(value, str):
        return "none" if not value else repr(value)[:_SHOWN]
    piece = value[start : start + _SHOWN]
    return f"{'…' if start else ''}{piece!r}{'…' if start + _SHOWN < len(value) else ''}"
