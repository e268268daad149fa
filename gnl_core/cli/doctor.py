"""`gnl doctor`: what is wrong with a journal, what waits, and the way out."""

from __future__ import annotations

from pathlib import Path

import click

from gnl_core.cli.database import check_file, db_option, json_option, with_journal
from gnl_core.cli.terminal import DONE, WAITS, complain, plain, tell, tell_json
from gnl_core.doctor import Finding, examine_file, examine_runs
from gnl_core.errors import GnlError
from gnl_core.journal.port import Journal

_MARKS = {"ok": "ok   ", "note": "note ", "waits": "WAITS", "fault": "FAULT"}


@click.command()
@db_option
@json_option
@click.pass_context
def doctor(ctx: click.Context, /, db: Path, as_json: bool) -> None:
    """Look at a journal: the file, each row, each run. It reads all of it, page by page, and changes nothing.

    Exit status: 0 nothing to do; 1 something is wrong, or waits for a person; 2 the file is no journal.
    """
    import asyncio  # noqa: PLC0415 - help must not wait for it

    check_file(db)
    findings = asyncio.run(examine_file(db))

    async def look(journal: Journal) -> list[Finding]:
        return [finding async for finding in examine_runs(journal)]

    try:
        findings += with_journal(db, look)
    except GnlError as error:
        findings.append(Finding(check="store", level="fault", text=str(error)))
    faults = sum(finding.level == "fault" for finding in findings)
    waits = sum(finding.level == "waits" for finding in findings)
    if as_json:
        tell_json({"faults": faults, "waits": waits, "findings": [finding.to_json() for finding in findings]})
    else:
        for finding in findings:
            org = f" [{plain(finding.org)}]" if finding.org else ""
            tell(f"{_MARKS[finding.level]}  {finding.check}{org}: {plain(finding.text)}")
            if finding.advice:
                tell(f"       {plain(finding.advice)}")
    complain(f"{faults} faults, {waits} things that wait")
    ctx.exit(WAITS if faults or waits else DONE)
