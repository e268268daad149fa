"""`gnl claims`: work recorded under a key of its own whose end nobody knows, and what an operator says of it."""

from __future__ import annotations

from typing import Any

import click

from gnl_core.approvals import MISSING
from gnl_core.claims import Claim, free_claim, list_claims, parse_claim
from gnl_core.cli.database import json_option, org_option, with_journal
from gnl_core.cli.result import read_result, result_option
from gnl_core.cli.terminal import DONE, WAITS, age, complain, plain, short, tell, tell_json
from gnl_core.journal.port import Journal
from gnl_core.opening import Place


@click.group()
def claims() -> None:
    """Work named by a key, of with_idempotency or across runs, whose end nobody knows; and the way out of it."""


@claims.command("list")
@org_option
@json_option
@click.pass_context
def list_(ctx: click.Context, /, db: Place, as_json: bool) -> None:
    """List keyed work that acts on the world and is in doubt, or failed, so that its next call is refused.

    It reads every record of keyed work. A claim that a run made, and can still be asked about, is that run's question:
    gnl approvals answers it.

    Exit status: 0, also where claims are open; 1 if rows could not be read (they are told on standard error).
    """
    problems: list[str] = []

    async def read(journal: Journal) -> tuple[list[Claim], int]:
        return await list_claims(journal, unreadable=problems), await journal.now()

    found, now = with_journal(db, read)
    if as_json:
        tell_json([claim.to_json() for claim in found])
    else:
        for claim in found:
            tell_claim(claim, now)
        if not found:
            complain("no claim is in doubt or failed")
    for problem in problems:
        complain(f"unreadable: {problem}")
    ctx.exit(WAITS if problems else DONE)


def tell_claim(claim: Claim, now: int) -> None:
    """Write one claim on three lines, or four."""
    tell(plain(claim.key))
    tell(f"  {plain(claim.tool)}({short(dict(claim.args))})")
    who = f"by run {plain(claim.run_id)}" if claim.run_id else "by with_idempotency, in no run"
    person = f", on behalf of {plain(claim.resource_id)}" if claim.resource_id else ""
    tell(f"  {claim.status.replace('_', ' ')}, begun {age(claim.began_at, now)} ago {who}{person}")
    if claim.error is not None:
        tell(f"  failed: {short(claim.error.get('type'))}: {short(claim.error.get('message'))}")
    if claim.question:
        tell(f"  asks {plain(claim.question)}")


@claims.command()
@click.argument("key")
@org_option
@json_option
def release(key: str, db: Place, as_json: bool) -> None:
    """Say that the work under KEY did not happen: its next call begins afresh, and acts.

    KEY stands in the list. Refused while the claim is fresh or its process lives.

    Exit status: 0 released; 2 no such claim, it is done, or it may still be executing.
    """
    _free(key, MISSING, db, as_json)


@claims.command()
@click.argument("key")
@result_option
@org_option
@json_option
def settle(key: str, result: str, db: Place, as_json: bool) -> None:
    """Say that the work under KEY happened, and what it came to: every next call is given that result, and none acts.

    KEY stands in the list. What is recorded cannot be corrected afterwards; it is echoed. Refused while the claim is
    fresh or its process lives.

    Exit status: 0 recorded; 2 no such claim, it is done, or it may still be executing.
    """
    _free(key, read_result(result), db, as_json)


def _free(key: str, output: Any, db: Place, as_json: bool) -> None:
    place = parse_claim(key)

    async def do(journal: Journal) -> bool:
        return await free_claim(journal, place, output=output)

    if not with_journal(db, do, write=True):
        raise click.ClickException(f"no claim {key} in this journal; `gnl claims list` shows those that wait")
    released = output is MISSING
    if as_json:
        tell_json({"key": key, "released": True} if released else {"key": key, "released": False, "output": output})
    elif released:
        tell(f"released {plain(key)}")
    else:
        tell(f"settled {plain(key)}: {short(output)}")
