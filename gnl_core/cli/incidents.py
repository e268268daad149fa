"""`gnl incidents`: what guards noticed."""

from __future__ import annotations

import click

from gnl_core.cli.database import json_option, org_option, require_run, with_journal
from gnl_core.cli.terminal import age, complain, plain, short, tell, tell_json
from gnl_core.incidents import Incident, read_incidents
from gnl_core.journal.port import Journal
from gnl_core.opening import Place


@click.command()
@click.argument("run", required=False)
@org_option
@json_option
def incidents(run: str | None, db: Place, as_json: bool) -> None:
    """List incidents, oldest first: of RUN and its sub-agents, or of the whole journal, whose every row is then read.

    Exit status: 0; 2 no such run.
    """

    async def read(journal: Journal) -> tuple[list[Incident], int]:
        if run is not None:
            await require_run(journal, run)
        return await read_incidents(journal, run), await journal.now()

    found, now = with_journal(db, read)
    if as_json:
        tell_json([incident.to_json() for incident in found])
        return
    for incident in found:
        call = f" {plain(incident.tool_call_id)}" if incident.tool_call_id else ""
        source = f"{plain(incident.source)}/{plain(incident.action)}"
        tell(f"{age(incident.at, now)} ago  {source}  {plain(incident.run_id)}{call}: {short(incident.message)}")
        if incident.detail:
            tell(f"  {short(dict(incident.detail))}")
    if not found:
        complain("no incidents")
