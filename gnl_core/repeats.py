"""How a repeat is told to people and to models: the words of its question, its nudge, its incident."""

from __future__ import annotations

from gnl_core.incidents import Incident
from gnl_core.journal.port import JsonValue
from gnl_core.prior import Prior
from gnl_core.tools import Tool
from gnl_core.verdicts import CallContext

MAX_SHOWN = 500
"""Most characters of an earlier sentence that a question quotes; the whole of it stands beside it, in `prior`."""

NUDGE = (
    "This call did not run: the same work was begun before, or is done. Go on from what is known of it, or tell the "
    "user what is still missing."
)
"""What the model reads once under 'reflect'. It names no way around: not to change the arguments, nor to call again.

The earlier work may be under way, or another run's, or equal by its identity only: so it promises no result above.
"""

SKIPPED = (
    "This call did not run: the same work was begun before, or is done, and repeats are left out. Go on from what is "
    "known of it."
)

REFUSED = "This call did not run: a person refused this very call earlier in this request, and is not asked again."


def question_about(prior: Prior, tool: Tool, now: int) -> str:
    """Return what a person is asked about a repeat: what was found, when and where, and what the answer means."""
    text = f"{warning_of(prior, tool, now)} Run it all the same?"
    if prior.origin == "exact" and not tool.declared:
        text += (
            f" ({tool.name} does not say whether it acts on the world: a tool that only reads is declared with "
            "side_effect=False, and is never asked about.)"
        )
    return text


def warning_of(prior: Prior, tool: Tool, now: int) -> str:
    """Return what is known of earlier work, in one or two sentences."""
    when = f"{age_text(now - prior.at)}{f', via {prior.channel}' if prior.channel else ''}"
    first = f"first result: call {prior.tool_call_id} of run {prior.run_id}"
    fields = ", ".join(prior.identity_keys)
    match prior.origin:
        case "exact" if prior.in_flight:
            return (
                f"{tool.name} with these very arguments was begun {when} by another call (call {prior.tool_call_id} of "
                f"run {prior.run_id}), which had not ended when this was asked."
            )
        case "exact":
            return (
                f"Identical work was already completed: {tool.name} ran with these very arguments {when} ({first}). "
                "Approve only if a deliberate repeat is intended."
            )
        case "channel":
            text = f"Work with the same business identity ({fields}) was already completed {when} ({first})."
        case "identity":
            text = f"Work with the same business identity ({fields}) was already completed {when} ({first})"
            text += f": {_shown(prior.sentence)}, {_alike(prior)}."
        case "rule":
            text = f"Work with the same business identity ({fields}), written differently, was already completed {when}"
            text += f" ({first}): {_shown(prior.sentence)}, {_alike(prior)}."
        case _:
            text = (
                f"Similar work was already completed {when} ({first}): {_shown(prior.sentence)}, {_alike(prior)}. Its "
            )
            differ = "differ" if len(prior.identity_keys) == 1 else "are not all equal"
            text += f"identity fields ({fields}) {differ}; the configured judge called both the same thing."
    if prior.amounts_differ:
        fields = ", ".join(prior.amounts_differ)
        text += f" The amounts differ ({fields}): a new job, or a typing error? Check carefully."
    return text


def _shown(sentence: str) -> str:
    """Return a record's sentence for people to read: in quotes, its control characters visible, and not endless."""
    if len(sentence) <= MAX_SHOWN:
        return repr(sentence)
    return f"{sentence[:MAX_SHOWN]!r}\u2026 (the first {MAX_SHOWN} of {len(sentence)} characters)"


def _alike(prior: Prior) -> str:
    return "alike" if prior.score is None else f"{round(prior.score * 100)} % alike"


def age_text(milliseconds: int) -> str:
    """Return how long ago something was, for people.

    >>> age_text(59_000), age_text(61_000), age_text(7_200_000)
    ('just now', '1 min ago', '2 h ago')
    """
    minutes = milliseconds / 60_000
    if minutes < 1:
        return "just now"
    if minutes < 60:
        return f"{round(minutes)} min ago"
    if minutes < 1_440:
        return f"{round(minutes / 60)} h ago"
    days = round(minutes / 1_440)
    return f"{days} day{'s' if days > 1 else ''} ago"


_SOURCES = {"exact": "duplicate-guard", "judge": "semantic-judge"}


def incident_of(ctx: CallContext, prior: Prior, action: str, message: str, **detail: JsonValue) -> Incident:
    """Return the incident of a repeat. It holds addresses, names of fields and figures, and nothing that was said."""
    facts: dict[str, JsonValue] = {
        "origin": prior.origin,
        "first_run": prior.run_id,
        "first_call": prior.tool_call_id,
        "args_hash": ctx.call.args_digest,
    }
    if prior.identity_keys:
        facts["identity_keys"] = list(prior.identity_keys)
    if prior.prior_hash:
        facts["prior_hash"] = prior.prior_hash
    if prior.score is not None:
        facts["score"] = prior.score
    if prior.amounts_differ:
        facts["amounts_differ"] = list(prior.amounts_differ)
    if prior.traces:
        facts["traces"] = [dict(trace) for trace in prior.traces]
    if prior.judge is not None:
        facts["judge"] = dict(prior.judge)
    source = _SOURCES.get(prior.origin, "semantic-guard")
    return Incident.of(ctx.call, source, action, message, ctx.now, tool=ctx.call.tool.name, **facts, **detail)
