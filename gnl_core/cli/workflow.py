"""`gnl workflow`: what an operator does with a workflow's run, and how one is shown."""

from __future__ import annotations

from collections.abc import Iterator

import click

from gnl_core.cli.database import org_option, with_journal
from gnl_core.cli.result import read_result
from gnl_core.cli.terminal import complain, plain, short
from gnl_core.journal.port import Journal
from gnl_core.opening import Place
from gnl_core.views import RunView


@click.group()
def workflow() -> None:
    """Runs of workflows: send them what they wait for."""


@workflow.command()
@click.argument("run")
@click.argument("wait")
@click.option("--json", "data", required=True, metavar="DATA", help="What is sent: JSON, or @FILE that holds it.")
@click.option("--actor", metavar="NAME", help="Who sends it; needed where the run names an actor.")
@org_option
def send(run: str, wait: str, data: str, actor: str | None, db: Place) -> None:
    """Send DATA to the place called WAIT of the workflow's RUN; its next drive reads it.

    It may be sent before the run gets there. What was sent first stands.

    Exit status: 0 it was sent, now or before; 2 no such run, it has ended, or something else was sent before.
    """
    value = read_result(data, "--json")

    async def do(journal: Journal) -> bool:
        from gnl_core.workflow.sending import send_to_workflow  # noqa: PLC0415 - help must not wait for the runtime

        return await send_to_workflow(journal, run_id=run, wait=wait, data=value, actor=actor)

    sent = with_journal(db, do, write=True)
    complain(f"sent to {wait}; the run's next drive reads it" if sent else f"the very same was sent to {wait} before")


def workflow_lines(view: RunView, most: int) -> Iterator[str]:
    """Yield what `gnl runs show` tells of a workflow: its steps by name, its waits, its result."""
    if view.workflow is None:
        return
    for step in view.workflow.steps:
        yield f"step {plain(step.name)} is call {step.call}{', failed for good' if step.failed else ''}"
    for wait in view.workflow.waits:
        why = f": {short(wait.reason, most)}" if wait.reason else ""
        by = f" by {short(wait.actor, most)}" if wait.actor else ""
        yield f"{'was sent' if wait.sent_at else 'waits for'} {plain(wait.name)}{by}{why}"
    if view.workflow.over:
        yield f"returned: {short(view.workflow.output, most)}"
