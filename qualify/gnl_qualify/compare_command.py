"""`compare` as a command."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import click

from gnl_core.errors import GnlError, MissingExtraError
from gnl_qualify.inputs import load, paths
from gnl_qualify.status import PROGRAM, USAGE
from gnl_qualify.terminal import complain, plain, tell

_FILE = click.Path(path_type=Path)


@click.command()
@click.argument("transcripts", nargs=-1, type=_FILE, metavar="A.transcript.jsonl B.transcript.jsonl ...")
@click.option(
    "--fixtures", multiple=True, metavar="A.json,B.json", help="The pairs. Default: the shipped set of that id."
)
@click.option("--html", type=_FILE, help="Write the comparison as one HTML file.")
@click.option("--json", "json_", type=_FILE, help="Write the comparison as JSON.")
@click.option("--list", "listed", type=click.IntRange(min=0), default=20, show_default=True, help="Pairs to list.")
@click.option("--redact", is_flag=True, help="Put length and a short hash in place of the pairs' texts.")
def compare(
    *,
    transcripts: tuple[Path, ...],
    fixtures: tuple[str, ...],
    html: Path | None,
    json_: Path | None,
    listed: int,
    redact: bool,
) -> None:
    """Hold the sittings of several judges or prompts on the same pairs against each other.

    Exit status: 0 compared, whoever is better; 2 the options or files cannot be used, or are of different sets.
    """
    from gnl_qualify.comparison import MOST, compare_transcripts  # noqa: PLC0415
    from gnl_qualify.comparison_text import render_comparison  # noqa: PLC0415
    from gnl_qualify.outputs import check_outputs, write_output  # noqa: PLC0415
    from gnl_reports.comparison import redacted_comparison, render_comparison_html  # noqa: PLC0415
    from gnl_reports.comparison_model import comparison_to_json  # noqa: PLC0415

    if not 2 <= len(transcripts) <= MOST:
        raise click.UsageError(f"name 2 to {MOST} transcripts, not {len(transcripts)}")
    files = paths(fixtures)
    check_outputs({"--html": html, "--json": json_}, inputs=[*transcripts, *files])
    if html and not all(map(find_spec, ("jinja2", "matplotlib"))):
        raise MissingExtraError("an HTML report", "qualify")
    report = compare_transcripts(transcripts, load(files, "heldout") if files else None)
    if redact:
        report = redacted_comparison(report)
    faults: list[GnlError] = []
    try:
        if json_ is not None:
            write_output(json_, json.dumps(comparison_to_json(report), ensure_ascii=False, indent=2) + "\n")
    except GnlError as error:
        faults.append(error)
    try:
        if html is not None:
            write_output(html, render_comparison_html(report, redact=redact))
    except GnlError as error:
        faults.append(error)
    tell(render_comparison(report, listed=listed))
    for fault in faults:
        complain(f"{PROGRAM}: {plain(str(fault))}")
    if faults:
        raise click.exceptions.Exit(USAGE)
