"""`gnl runs show`: one run as it stands. It executes nothing."""

from __future__ import annotations

from collections.abc import Iterator

import click

from gnl_core.cli.approvals import labelled
from gnl_core.cli.database import json_option, org_option, with_journal
from gnl_core.cli.terminal import age, complain, plain, short, tell, tell_json
from gnl_core.cli.workflow import workflow_lines
from gnl_core.decisions import verb
from gnl_core.journal.port import Journal
from gnl_core.opening import Place
from gnl_core.views import CallView, RunView, read_run

_WHOLE = 1 << 30


@click.command()
@click.argument("run")
@click.option("--full", is_flag=True, help="Texts, arguments and outputs at full length, those over 64 KB too.")
@org_option
@json_option
@click.pass_context
def show(ctx: click.Context, /, run: str, full: bool, db: Place, as_json: bool) -> None:
    """Show RUN: its steps and calls in order, its questions, its sub-agents. No model and no tool runs.

    Exit status: 0; 1 if it has gaps or rows that cannot be read; 2 no such run.
    """

    async def read(journal: Journal) -> tuple[RunView, int]:
        return await read_run(journal, run, blobs=full), await journal.now()

    view, now = with_journal(db, read)
    if as_json:
        tell_json(view.to_json())
    else:
        for line in _lines(view, now, _WHOLE if full else 200):
            tell(line)
    for problem in view.problems:
        complain(f"problem: {problem}")
    ctx.exit(1 if view.problems else 0)


def _lines(view: RunView, now: int, most: int) -> Iterator[str]:
    yield from _head_lines(view, now, most)
    for message in view.messages:
        yield f"  {plain(message.role)}: {short(message.text, most)}"
    for step in view.steps:
        yield (
            f"step {step.number}: {plain(step.model)}, {plain(step.stop_reason)}, "
            f"{step.usage.input_tokens} + {step.usage.output_tokens} tokens"
        )
        if step.text:
            yield f"  says: {short(step.text, most)}"
        for call in step.calls:
            yield from _call_lines(call, most)
    if view.calls:
        yield "calls" if view.workflow is not None else "calls outside of recorded steps"
        for call in view.calls:
            yield from _call_lines(call, most)
    yield from workflow_lines(view, most)
    for child in view.children:
        # A head counts at the end of a drive.
        counts = "" if child.status in ("running", "interrupted") else f", {child.steps} steps, {child.calls} calls"
        yield f"sub-agent {plain(child.run_id)}: {child.status}{counts}"
    for question in view.questions:
        yield f"asks {plain(question.question)}: {short(question.reason, most)}"
    for name, answer in view.answers:
        by = f" by {short(answer.actor, most)}" if answer.actor else ""
        why = f": {short(answer.reason, most)}" if answer.reason else ""
        yield f"answered {plain(name)}: {verb(answer)}{labelled(answer)}{by}{why}"


def _head_lines(view: RunView, now: int, most: int) -> Iterator[str]:
    run = view.run
    yield f"{plain(run.run_id)}: {run.status}, for {age(run.changed_at, now)}"
    if run.error is not None:
        yield f"  error: {short(run.error.get('code'), most)}: {short(run.error.get('message'), most)}"
    facts = {
        "agent": run.agent,
        "work": run.work_key,
        "model": run.model,
        "thread": run.thread_id,
        "person": run.resource_id,
        "actor": run.actor,
        "channel": run.channel,
        "parent": _join(run.parent),
        "forked from": _join(run.forked_from),
        "does anew": run.follows,
        "done anew by": run.followed_by,
        "halted": _join(view.halted),
        "incidents": str(view.incidents or ""),
        "system": view.system or "",
    }
    for name, text in facts.items():
        if text:
            yield f"  {name}: {short(text, most)}"


def _call_lines(call: CallView, most: int) -> Iterator[str]:
    args = short(dict(call.args), most) if call.args is not None else "arguments that are no JSON object"
    status = f"{call.status}, in doubt" if call.in_doubt and call.status != "in_doubt" else call.status
    notes = [
        f"{call.attempts} attempts" if call.attempts > 1 else "",
        f"cause {short(call.cause, most)}" if call.cause else "",
        f"settled by {short(call.settled_by, most)}" if call.settled_by else "",
        f"replayed from {short(call.replayed_from, most)}" if call.replayed_from else "",
        f"copied from {short(call.copied_from, most)}" if call.copied_from else "",
        f"sub-agent {plain(call.child)}" if call.child else "",
    ]
    yield f"  {plain(call.id)} {short(call.tool, most)}({args}): {', '.join([status, *filter(None, notes)])}"
    if call.in_blob:
        yield "    returned: over 64 KB, shown with --full"
    elif call.status == "succeeded":
        yield f"    returned: {short(call.output, most)}"
    if call.error is not None:
        yield f"    failed: {short(call.error.get('type'), most)}: {short(call.error.get('message'), most)}"
    if call.text:
        yield f"    told the model: {short(call.text, most)}"


def _join(value: object) -> str:
    if not isinstance(value, dict):
        return ""
    return ", ".join(f"{name} {member}" for name, member in value.items() if name != "f" and member is not None)
