"""`export` as a command: answered questions of a journal as a fixtures file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gnl_core.journal.port import Journal
from gnl_qualify.live_options import Since, live_options, read_live
from gnl_qualify.status import FAILED
from gnl_qualify.terminal import complain, plain, tell
from gnl_semantic.telemetry import Skipped, asked_questions

if TYPE_CHECKING:
    from gnl_qualify.export_pairs import Exported


@click.command("export")
@live_options
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The fixtures file to write.")
def export_live(*, db: Path, since: Since, org: str | None, out: Path) -> None:
    """Write the answered questions of a journal as labelled pairs.

    A pair holds what describe(), or the identity fields, made of two calls, never their arguments; read it before you
    pass it on. Where people did not say whether it is one job or two, its label is null: fill it in by hand, for the
    exam and calibrate refuse the file until then.

    Exit status: 0 written; 1 there is no pair to write; 2 the options or files cannot be used.
    """
    from gnl_qualify.export_pairs import Exporter  # noqa: PLC0415
    from gnl_qualify.outputs import check_outputs, write_output  # noqa: PLC0415

    check_outputs({"--out": out}, inputs=[db])
    skipped = Skipped()

    async def read(journal: Journal) -> Exported:
        exporter = Exporter()
        async for asked in asked_questions(journal, since=since.on(await journal.now()), skipped=skipped):
            exporter.add(asked)
        return exporter.done()

    found = read_live(db, org, read)
    for reason, number in found.left_out.items():
        complain(f"left out {number}: {reason}")
    if skipped.unreadable:
        complain(f"left out {skipped.unreadable} unreadable rows; run `gnl doctor`")
    if not found.pairs:
        complain("there is no pair to write")
        raise click.exceptions.Exit(FAILED)
    write_output(out, found.to_text())
    total = len(found.pairs)
    tell(f"{plain(str(out))}: {total} {'pair' if total == 1 else 'pairs'}, {found.unlabelled} of them without a label")
