"""`gnl runs`: lists of runs, one run, and what may be done with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from gnl_core.cli.approvals import login_name
from gnl_core.cli.database import json_option, org_option, with_journal
from gnl_core.cli.resume import resume
from gnl_core.cli.show import show
from gnl_core.cli.terminal import age, complain, plain, tell, tell_json, tell_table
from gnl_core.journal.port import Journal
from gnl_core.opening import Place
from gnl_core.views import CallView, RunPage, RunSummary, RunView, count_runs_by_status, list_runs, read_run

_STATUSES = ("running", "interrupted", "ready", "suspended", "completed", "failed", "canceled")


@click.group()
def runs() -> None:
    """Runs: list them, look at one, resume, fork, roll over or cancel it."""


runs.add_command(show)
runs.add_command(resume)


@runs.command("list")
@click.option(
    "--status",
    type=click.Choice(_STATUSES),
    help="Only these. 'interrupted': their program was killed; 'ready': forks and rollovers not driven yet.",
)
@click.option("--agent", metavar="NAME", help="Only runs of this agent.")
@click.option("--resource", metavar="ID", help="Only runs on behalf of this person.")
@click.option("--thread", metavar="ID", help="Only runs of this conversation.")
@click.option("--work-key", metavar="KEY", help="Only runs of work of this name, whoever's; show says whose.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Runs at most.")
@click.option("--cursor", metavar="TEXT", help="Go on after an earlier page, with the same filters.")
@click.option("--oldest-first", is_flag=True, help="Ascend by time of the last change of status.")
@org_option
@json_option
@click.pass_context
def list_(
    ctx: click.Context,
    /,
    *,
    status: Any,
    agent: str | None,
    resource: str | None,
    thread: str | None,
    work_key: str | None,
    limit: int,
    cursor: str | None,
    oldest_first: bool,
    db: Place,
    as_json: bool,
) -> None:
    """List runs by the time of their last change of status, newest first.

    Steps and calls are counted when a drive ends: '-' stands for those of a run that is running or was interrupted.
    ASKED counts the questions that the last drive left, answered or not since: gnl approvals list shows the open ones.
    WAITS, of workflows, counts what they waited to be sent: gnl runs show names it. WORK is the caller's name for the
    work. Both are left out where no run has any.

    Exit status: 0; 1 if rows could not be read (they are told on standard error).
    """

    async def read(journal: Journal) -> tuple[RunPage, int]:
        page = await list_runs(
            journal,
            status=status,
            agent=agent,
            resource_id=resource,
            thread_id=thread,
            work_key=work_key,
            limit=limit,
            cursor=cursor,
            newest_first=not oldest_first,
        )
        return page, await journal.now()

    page, now = with_journal(db, read)
    if as_json:
        tell_json(page.to_json())
    else:
        if page.runs:
            tell_table(*_table(page.runs, now))
        elif page.cursor is None:
            complain("no such run")
        for run in page.runs:
            for question in run.in_doubt:
                complain(f"in doubt: {question}")
        if page.cursor is not None:
            complain(f"more: --cursor {page.cursor}")
    for problem in page.problems:
        complain(f"unreadable: {problem}")
    ctx.exit(1 if page.problems else 0)


_HEAD = ("STATUS", "SINCE", "STEPS", "CALLS", "ASKED", "WAITS", "AGENT", "PERSON", "THREAD", "WORK", "RUN")


def _table(runs: Sequence[RunSummary], now: int) -> tuple[list[str], list[list[str]]]:
    filled = {"WAITS": any(run.waits for run in runs), "WORK": any(run.work_key for run in runs)}
    shown = [number for number, name in enumerate(_HEAD) if filled.get(name, True)]
    rows = [_cells(run, now) for run in runs]
    return [_HEAD[number] for number in shown], [[cells[number] for number in shown] for cells in rows]


def _cells(run: RunSummary, now: int) -> list[str]:
    status: str = "forking" if run.forking else run.status
    under_way = run.status in ("running", "interrupted")  # a head counts at the end of a drive
    if run.error is not None:
        status += f" ({run.error.get('code')})"
    return [
        status,
        age(run.changed_at, now),
        "-" if under_way else str(run.steps),
        "-" if under_way else str(run.calls),
        "-" if run.status == "running" else str(len(run.in_doubt) if under_way else run.questions),
        "-" if under_way else str(run.waits),
        run.agent or "-",
        run.resource_id or "-",
        run.thread_id or "-",
        run.work_key or "-",
        run.run_id,
    ]


@runs.command()
@org_option
@json_option
def count(db: Place, as_json: bool) -> None:
    """Count runs by status. Exit status: 0."""
    counts = with_journal(db, count_runs_by_status)
    if as_json:
        tell_json(counts)
    else:
        tell_table(("STATUS", "RUNS"), [(status, str(counts[status])) for status in _STATUSES])  # type: ignore[index]


@runs.command()
@click.argument("run")
@click.option("--step", type=click.IntRange(min=0), required=True, help="First model step that is made anew.")
@click.option("--new-id", required=True, metavar="ID", help="Id of the new run.")
@org_option
@json_option
def fork(run: str, step: int, new_id: str, db: Place, as_json: bool) -> None:
    """Copy RUN up to a model step into a new run, which then goes its own way.

    Nothing is executed now: resume the new run for that. Calls of the steps that are not copied would act once more.
    Exit status: 0 copied, 2 no such run or step, the id is taken, or a call is in doubt before that step.
    """

    async def do(journal: Journal) -> tuple[RunView, str]:
        from gnl_core.fork import fork_run  # noqa: PLC0415 - help must not wait for the runtime

        source = await read_run(journal, run)
        return source, await fork_run(journal=journal, run_id=run, step=step, new_run_id=new_id)

    source, made = with_journal(db, do, write=True)
    acted = [
        call.id
        for model_step in source.steps
        for call in model_step.calls
        if model_step.number >= step and call.side_effect and call.status in ("succeeded", "running", "in_doubt")
    ]
    if acted:
        complain(f"careful: {', '.join(acted)} of {run} acted on the world from step {step} on; the fork may act again")
    if as_json:
        tell_json({"run_id": made, "forked_from": {"run": run, "step": step}})
    else:
        tell(plain(made))


@runs.command()
@click.argument("run")
@org_option
@json_option
def rollover(run: str, db: Place, as_json: bool) -> None:
    """Make a new execution of RUN's work, to be driven from its beginning; print the new run's id.

    What RUN did is done again. Nothing is executed now: whoever calls with the work's key goes on with the new run, and
    so does resume. A second call for RUN prints the same id.

    Exit status: 0 made, or made before; 2 no such run, it is being driven, it waits for a person, or a call of it is in
    doubt.
    """

    async def do(journal: Journal) -> tuple[RunView, str]:
        from gnl_core.rollover import rollover_run  # noqa: PLC0415 - help must not wait for the runtime

        old = await read_run(journal, run)
        return old, await rollover_run(journal, run)

    old, made = with_journal(db, do, write=True)
    if acted := [call.id for call in _calls(old) if call.side_effect and call.status == "succeeded"]:
        complain(f"careful: {', '.join(acted)} of {run} acted on the world; {made} may do the same again")
    if as_json:
        tell_json({"run_id": made, "follows": run})
    else:
        tell(plain(made))


def _calls(run: RunView) -> list[CallView]:
    return [*(call for step in run.steps for call in step.calls), *run.calls]


@runs.command()
@click.argument("run")
@click.option("--actor", metavar="NAME", help="Who cancels. [default: the login name]")
@click.option("--reason", metavar="TEXT", help="Why.")
@org_option
@json_option
def cancel(run: str, actor: str | None, reason: str | None, db: Place, as_json: bool) -> None:
    """Cancel RUN for good: what is recorded stays, nothing new starts; a call that runs now comes to its end.

    Exit status: 0 canceled; 2 no such run, or it is over or canceled already.
    """
    who = actor if actor is not None else login_name()

    async def do(journal: Journal) -> bool:
        from gnl_core.halt import cancel_run  # noqa: PLC0415 - help must not wait for the runtime

        return await cancel_run(journal, run, actor=who, reason=reason)

    if not with_journal(db, do, write=True):
        raise click.ClickException(f"run {run} is over or canceled already; nothing was done")
    if as_json:
        tell_json({"run_id": run, "canceled": True, "actor": who})
    else:
        tell(f"canceled {plain(run)}")
    complain(f"canceled as {who}")
