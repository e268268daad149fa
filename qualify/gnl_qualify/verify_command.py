"""`verify` as a command: a certificate against its transcript, against a public key, or both."""

from __future__ import annotations

from pathlib import Path

import click

from gnl_qualify.inputs import load, paths
from gnl_qualify.sign_command import signature_faults
from gnl_qualify.status import FAILED
from gnl_qualify.terminal import plain, tell

_FILE = click.Path(path_type=Path)


@click.command()
@click.argument("certificate", type=_FILE)
@click.option("--transcript", type=_FILE, help="The transcript of the exam.")
@click.option(
    "--fixtures", multiple=True, metavar="A.json,B.json", help="The pairs. Default: the shipped set of that id."
)
@click.option("--key", type=_FILE, help="Public key, PEM: it must have signed the certificate as it stands.")
def verify(certificate: Path, transcript: Path | None, fixtures: tuple[str, ...], key: Path | None) -> None:
    """Compute every number of CERTIFICATE again from the transcript, and check its signature.

    At least one of --transcript and --key is needed; a key alone says who signed, not that the numbers are right.

    Exit status: 0 all is as stated, 1 something is not (each field is named), 2 the files cannot be used.
    """
    from gnl_qualify.verify import verify_certificate  # noqa: PLC0415

    if transcript is None and key is None:
        raise click.UsageError("name the --transcript of the exam, the --key of the signer, or both")
    if fixtures and transcript is None:
        raise click.UsageError("--fixtures says nothing without --transcript")
    found = [] if key is None else signature_faults(certificate, key)
    held = [] if key is None else ["it is signed by this key as it stands"]
    if transcript is not None:
        files = paths(fixtures)
        found += verify_certificate(certificate, transcript, load(files, "heldout") if files else None)
        held.append("every field follows from the transcript")
    for line in found:
        tell(plain(line))
    if found:
        raise click.exceptions.Exit(FAILED)
    tell(f"{plain(str(certificate))}: {', and '.join(held)}")
