"""The program `gnl-semantic-qualify`: the report on standard output, all talk on standard error.

Nothing heavy is imported before a command runs, so that help and faults in the options come at once.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from gnl_core.errors import GnlError
from gnl_qualify.calibrate_command import calibrate
from gnl_qualify.compare_command import compare
from gnl_qualify.exam_command import exam_options, given, run_exam
from gnl_qualify.export_command import export_live
from gnl_qualify.report_command import report_live
from gnl_qualify.sign_command import keygen, sign
from gnl_qualify.status import INTERNAL, INTERRUPTED, PASSED, PROGRAM, USAGE
from gnl_qualify.terminal import complain, forgive_encoding, plain, tell
from gnl_qualify.traffic_command import traffic
from gnl_qualify.verify_command import verify

_FILE = click.Path(path_type=Path)


@click.group(invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@exam_options
@click.version_option(package_name="gnl-semantic", prog_name=PROGRAM)
@click.pass_context
def cli(ctx: click.Context, /, **options: Any) -> None:
    """Put labelled pairs to a judge, blind, and write a certificate if it passes.

    Exit status: 0 passed, 1 failed, 2 the options or files cannot be used, 70 a fault of the program, 130 interrupted
    (the answers so far stand in the transcript; --resume goes on).
    """
    if ctx.invoked_subcommand is not None:
        foreign = [name for name in options if given(ctx, name)]
        if foreign:
            raise click.UsageError(
                f"--{foreign[0].strip('_').replace('_', '-')} belongs to the exam, not to '{ctx.invoked_subcommand}'"
            )
        return
    if not options["judge"]:
        raise click.UsageError("--judge is missing: name the judge that sits the exam, for instance --judge ./judge.py")
    ctx.exit(run_exam(ctx, options))


@cli.command()
@click.argument("report", type=_FILE)
@click.option("--commit", required=True, help="Hash of the commit that was measured.")
def sitting(report: Path, commit: str) -> None:
    """Print the line of the ledger of sittings for REPORT, the JSON report of an exam."""
    from gnl_qualify.errors import ReportInvalidError  # noqa: PLC0415
    from gnl_qualify.sittings import sitting_line  # noqa: PLC0415

    try:
        line = sitting_line(json.loads(report.read_text(encoding="utf-8")), commit=commit)
    except (OSError, ValueError, RecursionError, ReportInvalidError) as error:
        raise ReportInvalidError(f"{report}: {error}") from None
    tell(plain(line))


for _command in (calibrate, compare, report_live, export_live, verify, sign, keygen, traffic):
    cli.add_command(_command)


def main(args: Sequence[str] | None = None) -> None:
    """Run the program and exit with its status. No traceback for anything a user may get wrong."""
    forgive_encoding()
    try:
        code = cli.main(args=None if args is None else list(args), prog_name=PROGRAM, standalone_mode=False)
    except click.ClickException as error:
        complain(f"{PROGRAM}: {plain(error.format_message())}")
        code = USAGE
    except GnlError as error:
        complain(f"{PROGRAM}: {plain(str(error))}")
        code = USAGE
    except (click.Abort, KeyboardInterrupt):
        code = INTERRUPTED
    except Exception:
        # 1 says that a judge failed; a fault of ours must not look like one.
        traceback.print_exc()
        complain(f"{PROGRAM}: this is a fault of the program, please report it")
        code = INTERNAL
    sys.exit(code if isinstance(code, int) else PASSED)
