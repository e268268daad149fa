"""`export` as a command: answered questions of a journal as a fixtures file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gnl_core.journal.port import Journal
from gnl_core.opening import Place
from gnl_qualify.live_options import Since, live_options, read_live
from gnl_qualify.status import FAILED
from gnl_qualify.terminal import complain, plain, tell
from gnl_semantic.telemetry import Skipped, asked_questions

if TYPE_CHECKING:
    from gnl_qualify.export_merge import Merged
    from gnl_qualify.export_pairs import Exported

_MOST_NAMED = 20
"""Pairs with a label against the journal that are named."""


@click.command("export")
@live_options
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The fixtures file to write.")
def export_live(*, db: Place, since: Since, org: str | None, out: Path) -> None:
    """Write the answered questions of a journal as labelled pairs.

    A pair holds what describe(), or the identity fields, made of two calls, never their arguments; read it before you
    pass it on. Where people did not say whether it is one job or two, its label is null: fill it in by hand, for the
    exam and calibrate refuse the file until then.

    Written over an earlier export, every label that stands there stays, and so do labelled pairs that are not found
    again; what stays is told on standard error. Any other file at --out is refused.

    Exit status: 0 written; 1 there is no pair to write; 2 the options or files cannot be used.
    """
    from gnl_qualify.export_merge import merge, standing  # noqa: PLC0415
    from gnl_qualify.export_pairs import Exporter  # noqa: PLC0415
    from gnl_qualify.outputs import check_outputs, write_output  # noqa: PLC0415

    check_outputs({"--out": out}, inputs=[db.file] if db.file else [])
    before = standing(out)
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
    merged = merge(found, before)
    write_output(out, merged.exported.to_text())
    _tell_kept(merged)
    total, unlabelled = len(merged.exported.pairs), merged.exported.unlabelled
    tell(f"{plain(str(out))}: {_pairs(total)}, {unlabelled} of them without a label")


def _tell_kept(merged: Merged) -> None:
    """Say what stood in the file and stays, and what the journal says against it."""
    if merged.kept:
        labels = "label" if merged.kept == 1 else "labels"
        complain(f"kept {merged.kept} {labels} of the file that the journal does not say")
    for name, label, says in merged.against[:_MOST_NAMED]:
        complain(f"kept {label} of pair '{plain(name[:80])}', of which the journal says {says}; look at it again")
    if len(merged.against) > _MOST_NAMED:
        complain(f"kept {len(merged.against) - _MOST_NAMED} more labels that the journal says something else of")
    if merged.only_here:
        complain(f"kept {_pairs(merged.only_here)} of the file, with a label, that this export has not found")
    if merged.dropped:
        complain(f"left out {_pairs(merged.dropped)} of the file, without a label, that this export has not found")


def _pairs(number: int) -> str:
    return f"{number} {'pair' if number == 1 else 'pairs'}"
