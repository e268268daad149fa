"""`report` as a command: what live questions came to, from a journal."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import click

from gnl_core.errors import GnlError, MissingExtraError
from gnl_core.journal.port import Journal
from gnl_core.opening import Place
from gnl_qualify.live_options import Since, live_options, read_live
from gnl_qualify.status import PROGRAM, USAGE
from gnl_qualify.terminal import complain, plain, tell
from gnl_semantic.telemetry import Telemetry, read_telemetry

_FILE = click.Path(path_type=Path)


@click.command("report")
@live_options
@click.option("--html", type=_FILE, help="Write the report as one HTML file.")
@click.option("--json", "json_", type=_FILE, help="Write every figure as JSON.")
@click.option("--redact", is_flag=True, help="Put length and a short hash in place of what calls were about.")
def report_live(
    *, db: Place, since: Since, org: str | None, html: Path | None, json_: Path | None, redact: bool
) -> None:
    """Count the questions about earlier work in a journal, and what people said to them.

    Exit status: 0 told, whatever the figures; 2 the options or files cannot be used.
    """
    from gnl_qualify.outputs import check_outputs, write_output  # noqa: PLC0415
    from gnl_qualify.report_text import render_live  # noqa: PLC0415

    check_outputs({"--html": html, "--json": json_}, inputs=[db.file] if db.file else [])
    if html and not all(map(find_spec, ("jinja2", "matplotlib"))):
        raise MissingExtraError("an HTML report", "qualify")

    async def read(journal: Journal) -> Telemetry:
        return await read_telemetry(journal, since=since.on(await journal.now()))

    told = read_live(db, org, read)
    if redact:
        from gnl_reports.live import redacted_live  # noqa: PLC0415

        told = redacted_live(told)
    faults: list[GnlError] = []
    try:
        if json_ is not None:
            write_output(json_, json.dumps(told.to_json(), ensure_ascii=False, indent=2) + "\n")
    except GnlError as error:
        faults.append(error)
    try:
        if html is not None:
            write_output(html, _page(told, redact=redact))
            complain(f"report: {plain(str(html))}")
    except GnlError as error:
        faults.append(error)
    tell(render_live(told))
    for fault in faults:
        complain(f"{PROGRAM}: {plain(str(fault))}")
    if faults:
        raise click.exceptions.Exit(USAGE)


def _page(told: Telemetry, *, redact: bool) -> str:
    from gnl_reports.live import render_live_html  # noqa: PLC0415

    return render_live_html(told, redact=redact)
