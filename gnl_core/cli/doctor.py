"""`gnl doctor`: what is wrong with a journal, what waits, and the way out."""

from __future__ import annotations

import asyncio
from collections import Counter

import click

from gnl_core.cli.database import db_option, json_option, opened
from gnl_core.cli.terminal import DONE, WAITS, complain, plain, tell, tell_json
from gnl_core.doctor import Finding, examine_file, examine_runs
from gnl_core.errors import GnlError
from gnl_core.opening import Place

_MARKS = {"ok": "ok   ", "note": "note ", "waits": "WAITS", "fault": "FAULT"}
_MOST = 20
"""Findings of one kind on the console; what waits may be thousands, and `gnl approvals list` is for that."""


@click.command()
@db_option
@click.option("--all", "every", is_flag=True, help=f"Print each finding, also beyond {_MOST} of one kind.")
@json_option
@click.pass_context
def doctor(ctx: click.Context, /, db: Place, every: bool, as_json: bool) -> None:
    """Look at a journal: the file or the server, each row, each run. It reads all of it, by pages, and changes nothing.

    Exit status: 0 nothing to do; 1 something is wrong, or waits for a person; 2 no journal is there, or the server is
    away.
    """
    findings = asyncio.run(_look(db))
    faults = sum(finding.level == "fault" for finding in findings)
    waits = sum(finding.level == "waits" for finding in findings)
    if as_json:
        tell_json({"faults": faults, "waits": waits, "findings": [finding.to_json() for finding in findings]})
    else:
        counts = Counter[tuple[str, str]]()
        for finding in findings:
            counts[finding.level, finding.check] += 1
            if every or counts[finding.level, finding.check] <= _MOST:
                _tell(finding)
        for (level, check), count in counts.items():
            if not every and count > _MOST:
                tell(f"{_MARKS[level]}  {check}: and {count - _MOST:,} more; --all prints them")
    complain(f"{faults} faults, {waits} things that wait")
    ctx.exit(WAITS if faults or waits else DONE)


def _tell(finding: Finding) -> None:
    org = f" [{plain(finding.org)}]" if finding.org else ""
    tell(f"{_MARKS[finding.level]}  {finding.check}{org}: {plain(finding.text)}")
    if finding.advice:
        tell(f"       {plain(finding.advice)}")


async def _look(place: Place) -> list[Finding]:
    from gnl_core.doctor_rows import examine_rows  # noqa: PLC0415 - help must not wait for the runtime
    from gnl_core.doctor_store import examine_store  # noqa: PLC0415 - ditto

    async with opened(place) as storage:
        # A file's rows are looked at by the process that looks at the file, in one transaction.
        findings = await examine_file(place.file) if place.file is not None else []
        try:
            found, usable = await examine_store(storage)
            findings += found
            if usable:
                findings += await examine_rows(storage.runs) if place.file is None else []
                findings += [finding async for finding in examine_runs(storage.runs)]
        except GnlError as error:
            if place.file is None and not findings:
                raise  # nothing is there to look at
            findings.append(Finding(check="store", level="fault", text=str(error)))
    return findings
