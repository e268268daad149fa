"""`gnl runs resume`: drive a run on, with the tools and the model of a program's own."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from gnl_core.cli.database import json_option, org_option, with_journal
from gnl_core.cli.target import load
from gnl_core.cli.terminal import DONE, WAITS, complain, plain, short, tell, tell_json
from gnl_core.codec import encode
from gnl_core.errors import ConfigError, GnlError
from gnl_core.journal.port import Journal, JsonValue
from gnl_core.opening import Place

if TYPE_CHECKING:
    from gnl_core.results import DurableResult, ReplayedCall
    from gnl_core.workflow.results import WorkflowResult


@click.command()
@click.argument("run")
@click.option(
    "--agent", required=True, metavar="MODULE:FUNCTION", help="What gives the model and the tools; see above."
)
@org_option
@json_option
@click.pass_context
def resume(ctx: click.Context, /, run: str, agent: str, db: Place, as_json: bool) -> None:
    """Drive RUN on: recorded steps and calls are replayed, the rest is done now.

    MODULE:FUNCTION is looked for in the working folder first. Called without arguments, it returns the options of
    resume_run, for instance dict(model="openai/gpt-5", tools=[send_invoice]). Or it takes (journal, run_id), drives
    the run itself, and returns its result. Both may be async. A workflow's run takes the second form, with its input
    left out: def go_on(journal, run_id): return run_workflow(settle_order, journal=journal, run_id=run_id).

    Exit status: 0 the run is completed; 1 it waits for a person, or failed; 2 no such run, refused, or MODULE:FUNCTION
    cannot be used.
    """
    function = load(agent)

    async def do(journal: Journal) -> DurableResult | WorkflowResult:
        return await _drive(journal, run, agent, function)

    result = with_journal(db, do, write=True)
    if as_json:
        tell_json(_to_json(result))
    else:
        for line in _text(result).splitlines():
            tell(plain(line))
    for warning in result.warnings:
        complain(f"warning: {warning}")
    for question in result.interrupts:
        complain(f"waits: {question.question}  ({question.tool_name}: {question.reason})")
    waits = getattr(result, "waits", ())
    for wait in waits:
        complain(f"waits to be sent {wait.name}: gnl workflow send {run} {wait.name} --json DATA  ({wait.reason})")
    ctx.exit(WAITS if result.interrupts or waits else DONE)


def _text(result: DurableResult | WorkflowResult) -> str:
    from gnl_core.results import DurableResult  # noqa: PLC0415 - help must not wait for the runtime

    if isinstance(result, DurableResult):
        return result.text
    return short(encode(result.output)) if result.status == "completed" else ""


def _to_json(result: DurableResult | WorkflowResult) -> dict[str, JsonValue]:
    from gnl_core.results import DurableResult  # noqa: PLC0415 - ditto

    value: dict[str, JsonValue] = {
        "run_id": result.run_id,
        "interrupts": [question.to_json() for question in result.interrupts],
        "replayed_tool_calls": [_call_to_json(call) for call in result.replayed_tool_calls],
        "warnings": [str(warning) for warning in result.warnings],
    }
    if isinstance(result, DurableResult):
        usage: JsonValue = {"input_tokens": result.usage.input_tokens, "output_tokens": result.usage.output_tokens}
        return {**value, "finish_reason": result.finish_reason, "text": result.text, "usage": usage}
    waits: list[JsonValue] = [
        {"name": wait.name, "reason": wait.reason, "asked_at": wait.asked_at} for wait in result.waits
    ]
    return {**value, "status": result.status, "output": encode(result.output), "waits": waits}


def _call_to_json(call: ReplayedCall) -> JsonValue:
    return {
        "tool_call_id": call.tool_call_id,
        "tool_name": call.tool_name,
        "status": call.status,
        "origin": call.origin,
        "run_id": call.run_id,
    }


async def _drive(journal: Journal, run: str, spec: str, function: Callable[..., Any]) -> DurableResult | WorkflowResult:
    from gnl_core.results import DurableResult  # noqa: PLC0415 - help must not wait for the runtime
    from gnl_core.run import resume_run, run_durable  # noqa: PLC0415
    from gnl_core.workflow.results import WorkflowResult  # noqa: PLC0415

    drives = _takes_two(function)
    if drives and next(iter(inspect.signature(function).parameters)) == "flow":
        raise ConfigError(
            f"{spec} is the function of a workflow, which is called with a flow: name a function of (journal, run_id) "
            "that returns run_workflow(…, journal=journal, run_id=run_id)"
        )
    try:
        given = function(journal, run) if drives else function()
        if inspect.isawaitable(given):
            given = await given
    except GnlError:
        raise
    except Exception as error:
        if not drives:
            raise ConfigError(f"{spec} raised {type(error).__name__}: {error}") from error
        for line in traceback.format_exc().splitlines():
            complain(line)
        raise click.exceptions.Exit(WAITS) from None
    if isinstance(given, DurableResult | WorkflowResult):
        return given
    if not isinstance(given, Mapping):
        raise ConfigError(
            f"{spec} returned {type(given).__name__}; it must return the options of resume_run as a dict, or, taking "
            "(journal, run_id), the result of the run"
        )
    options = {str(name): value for name, value in given.items()}
    known = set(inspect.signature(run_durable).parameters) - {"journal", "run_id"}
    if unknown := sorted(set(options) - known):
        raise ConfigError(f"{spec} returned the option {unknown[0]!r}; resume_run takes {', '.join(sorted(known))}")
    return await resume_run(journal=journal, run_id=run, **options)


def _takes_two(function: Callable[..., Any]) -> bool:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return False
    try:
        signature.bind()
    except TypeError:
        return True
    return False
