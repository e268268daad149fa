"""`gnl sweep`: delete what is older than its time. Without --yes it only says what would go."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

import click

from gnl_core.cli.database import cache_option, checkpoint, json_option, org_option, with_journal
from gnl_core.cli.purge import yes_option
from gnl_core.cli.terminal import complain, plain, tell, tell_json
from gnl_core.journal.port import Journal
from gnl_core.opening import Place

_UNITS = {"ms": 1, "s": 1_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


class _Age(click.ParamType):  # type: ignore[type-arg] # generic in the newest click alone
    name = "age"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return milliseconds of a text like '90d'."""
        if isinstance(value, int):
            return value
        match = re.fullmatch(r"([0-9]{1,9})(ms|s|min|h|d)", str(value))
        if match is None:
            self.fail(f"{value!r} is no age; write for instance 90d, 12h, 30min, 45s", param, ctx)
        return int(match[1]) * _UNITS[match[2]]


_AGE = _Age()
_OLDER = click.option("--older-than", type=_AGE, required=True, metavar="AGE", help="For instance 90d, 12h, 30min.")


@click.group()
def sweep() -> None:
    """Delete runs, conversations or noted refusals that are older than an age you name. None is right for everybody.

    Without --yes nothing is deleted, and what would go is told.

    Exit status: 0 done; 2 refused.
    """


@sweep.command()
@_OLDER
@click.option("--suspended-ttl", type=_AGE, metavar="AGE", help="Also runs that have waited for a person so long.")
@click.option(
    "--tombstones",
    is_flag=True,
    help="Leave a time and hashes: named work, and tombstone_policy='reject', then refuse a late retry.",
)
@yes_option
@org_option
@json_option
def runs(
    *,
    older_than: int,
    suspended_ttl: int | None,
    tombstones: bool,
    yes: bool,
    db: Place,
    as_json: bool,
) -> None:
    """Delete runs by their last activity. What waits for a person is kept, and so is what cannot be measured."""
    from gnl_core.retention import sweep_runs  # noqa: PLC0415 - help must not wait for the runtime

    done = _do(
        db,
        yes,
        lambda journal: sweep_runs(
            journal, older_than_ms=older_than, suspended_ttl_ms=suspended_ttl, tombstones=tombstones, dry_run=not yes
        ),
    )
    if as_json:
        tell_json(done.to_json())
        return
    tell(f"{done.scanned} runs looked at, {done.purged} {_verb(yes)} with {done.deleted_rows} rows")
    for sentence in done.why:
        tell(f"  {sentence}")
    if done.untraceable:
        tell(f"  {done.untraceable} named a conversation and nobody: no erasure of a person finds it")
    _remind(yes)


@sweep.command()
@_OLDER
@yes_option
@org_option
@cache_option
@json_option
def threads(*, older_than: int, yes: bool, db: Place, as_json: bool) -> None:
    """Delete what is remembered in conversations by its last activity; their runs stay."""
    from gnl_core.retention_threads import sweep_threads  # noqa: PLC0415 - as above

    done = _do(db, yes, lambda journal: sweep_threads(journal, older_than_ms=older_than, dry_run=not yes))
    if as_json:
        tell_json(done.to_json())
        return
    tell(f"{done.scanned} conversations looked at, {done.purged} {_verb(yes)} with {done.deleted_rows} rows")
    for count, why in (
        (done.kept_active, "something happened there lately"),
        (done.kept_waiting, "a run is driven there, or waits for a person, or a call is in doubt"),
        (done.kept_no_ts, "how old they are cannot be measured"),
    ):
        if count:
            tell(f"  {count} kept: {why}")
    for state in done.orphan_thread_state:
        tell(f"  nobody's: {plain(state.thread_id)}, {state.rows} rows")
    _remind(yes)


@sweep.command()
@click.argument("namespace")
@_OLDER
@yes_option
@org_option
@json_option
def log(*, namespace: str, older_than: int, yes: bool, db: Place, as_json: bool) -> None:
    """Delete the ledger's entries of NAMESPACE, for instance 'conflict', the refusals."""
    from gnl_core.retention_threads import sweep_log  # noqa: PLC0415 - as above

    done = _do(db, yes, lambda journal: sweep_log(journal, namespace, older_than_ms=older_than, dry_run=not yes))
    if as_json:
        tell_json(done.to_json())
        return
    tell(f"{done.scanned} entries looked at, {done.deleted_rows} {_verb(yes)}")
    if not done.scanned:
        complain(f"nothing is noted under {namespace!r}; refusals are under 'conflict'")
    _remind(yes)


def _do(db: Place, yes: bool, work: Callable[[Journal], Awaitable[Any]]) -> Any:
    done = with_journal(db, work, write=yes)
    if yes:
        checkpoint(db)
    return done


def _verb(yes: bool) -> str:
    return "deleted" if yes else "would be deleted"


def _remind(yes: bool) -> None:
    if not yes:
        complain("nothing was deleted; --yes deletes it")
