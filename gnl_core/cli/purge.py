"""`gnl purge`: erase for good what is named. Without --yes it only says what would go."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import click

from gnl_core.cli.database import cache_option, checkpoint, db_option, json_option, org_option, with_journal
from gnl_core.cli.terminal import complain, plain, tell, tell_json
from gnl_core.journal.port import Journal
from gnl_core.opening import Place

Command = TypeVar("Command", bound=Callable[..., Any])

yes_option: Callable[[Command], Command] = click.option(
    "--yes", is_flag=True, help="Delete. Without it nothing is, and what would go is told."
)
_force: Callable[[Command], Command] = click.option(
    "--force", is_flag=True, help="Also what is being worked on: an effect that is under way is then never recorded."
)


@click.group()
def purge() -> None:
    """Erase a run, a conversation, a batch, a person, an organisation, or work recorded across runs, for good.

    Without --yes nothing is deleted, and what would go is told. What is being driven is refused. An erasure that was
    broken off is ended by the same command.

    Exit status: 0 done, also where nothing of that name was there; 2 refused.
    """


@purge.command("run")
@click.argument("run_id", metavar="RUN")
@yes_option
@_force
@org_option
@json_option
def run_(*, run_id: str, yes: bool, force: bool, db: Place, as_json: bool) -> None:
    """Erase RUN with its sub-agents, questions, answers, incidents and indexes."""
    from gnl_core.erasure import purge_run  # noqa: PLC0415 - help must not wait for the runtime

    _do(db, as_json, yes, lambda journal: purge_run(journal, run_id, force=force, dry_run=not yes))


@purge.command()
@click.argument("thread_id", metavar="THREAD")
@yes_option
@_force
@org_option
@cache_option
@json_option
def thread(*, thread_id: str, yes: bool, force: bool, db: Place, as_json: bool) -> None:
    """Erase what is remembered in the conversation THREAD; its runs stay."""
    from gnl_core.erasure import purge_thread  # noqa: PLC0415 - as above

    _do(db, as_json, yes, lambda journal: purge_thread(journal, thread_id, force=force, dry_run=not yes))


@purge.command()
@click.argument("batch_id", metavar="ID")
@yes_option
@_force
@org_option
@json_option
def batch(*, batch_id: str, yes: bool, force: bool, db: Place, as_json: bool) -> None:
    """Erase the batch ID: its items' runs, its report, its plan; what others know of its work stays."""
    from gnl_core.erasure_batch import purge_batch  # noqa: PLC0415 - as above

    _do(db, as_json, yes, lambda journal: purge_batch(journal, batch_id, force=force, dry_run=not yes))


@purge.command()
@click.argument("resource_id", metavar="PERSON")
@yes_option
@_force
@org_option
@cache_option
@json_option
def person(*, resource_id: str, yes: bool, force: bool, db: Place, as_json: bool) -> None:
    """Erase PERSON: their runs, their conversations, their work across channels and runs."""
    from gnl_core.erasure_person import purge_resource  # noqa: PLC0415 - as above

    _do(db, as_json, yes, lambda journal: purge_resource(journal, resource_id, force=force, dry_run=not yes))


@purge.command("org")
@click.argument("org", metavar="ORG")
@yes_option
@_force
@db_option
@cache_option
@json_option
def org_(*, org: str, yes: bool, force: bool, db: Place, as_json: bool) -> None:
    """Erase everything of the organisation ORG; that it was erased stays noted."""
    from gnl_core.erasure import purge_organization  # noqa: PLC0415 - as above

    _do(db, as_json, yes, lambda journal: purge_organization(journal, org, force=force, dry_run=not yes))


@purge.command("cross-run")
@click.option("--tool", required=True, help="Name of the tool.")
@click.option("--key", help="Which work: a record's key as gnl claims list shows it, or its last part.")
@yes_option
@_force
@org_option
@json_option
def cross_run(*, tool: str, key: str | None, yes: bool, force: bool, db: Place, as_json: bool) -> None:
    """Erase what is recorded of a tool's work across runs: the same work then runs again."""
    from gnl_core.erasure import purge_cross_run  # noqa: PLC0415 - as above

    _do(
        db,
        as_json,
        yes,
        lambda journal: purge_cross_run(journal, tool=tool, key=key, force=force, dry_run=not yes),
    )


def _do(db: Place, as_json: bool, yes: bool, work: Callable[[Journal], Awaitable[Any]]) -> None:
    done = with_journal(db, work, write=yes)
    if yes:
        checkpoint(db)
    if as_json:
        tell_json(done.to_json())
        return
    tell(f"{plain(done.what)}: {done.deleted} rows {'deleted' if yes else 'would be deleted'}")
    for name, count in done.rows.items():
        tell(f"  {count:>8}  {plain(name)}")
    for sentence in done.windows:
        tell(f"  {'gone' if yes else 'would be gone'}: {sentence}")
    if not done.deleted:
        complain("nothing of that name is in this journal")
    elif not yes:
        complain("nothing was deleted; --yes deletes it")
