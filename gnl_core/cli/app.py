"""The commands of `gnl` under one roof, and how each of its ends is told.

Nothing of the runtime is imported before a command runs, so that help and faults in the options come at once.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence

import click

from gnl_core.approvals import Interrupt
from gnl_core.cli.approvals import approvals
from gnl_core.cli.claims import claims
from gnl_core.cli.crashtest import crashtest
from gnl_core.cli.database import DB_HELP, PLACE, PREFIX_HELP, SCHEMA_HELP, Named
from gnl_core.cli.doctor import doctor
from gnl_core.cli.incidents import incidents
from gnl_core.cli.purge import purge
from gnl_core.cli.runs import runs
from gnl_core.cli.sweep import sweep
from gnl_core.cli.terminal import DONE, INTERNAL, INTERRUPTED, PROGRAM, USAGE, WAITS, complain, forgive_encoding
from gnl_core.cli.workflow import workflow
from gnl_core.errors import DoubtError, GnlError, LimitError, ModelError, RefusedError, ToolError


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--db", metavar=PLACE, help=DB_HELP)
@click.option("--schema", metavar="NAME", help=SCHEMA_HELP)
@click.option("--prefix", metavar="NAME", help=PREFIX_HELP)
@click.version_option(package_name="gnl-semantic", prog_name=PROGRAM)
@click.pass_context
def cli(ctx: click.Context, /, db: str | None, schema: str | None, prefix: str | None) -> None:
    """Look at the runs in a journal, and answer their questions.

    --db, --schema and --prefix may stand before a command's name or behind it. A password is better kept out of the
    URL, where other users of the machine can read it: in GNL_DB, PGPASSWORD or libpq's password file.

    Data goes to standard output, all talk to standard error. With --json, texts are ASCII and safe to show.

    Exit status: 0 done, also for a list with open questions in it; 2 the options or files cannot be used, or the
    journal refused; 70 a fault of the program; 130 interrupted. 1 is a result, told by the help of each command that
    has it: a resumed run waits for a person or failed, doctor found something to do, a crash test failed, a row could
    not be read.
    """
    ctx.obj = Named(db, schema, prefix)


for _command in (runs, approvals, claims, incidents, doctor, crashtest, sweep, purge, workflow):
    cli.add_command(_command)


def main(args: Sequence[str] | None = None) -> None:
    """Run the program and exit with its status. No traceback for anything a user may get wrong."""
    forgive_encoding()
    try:
        code = cli.main(args=None if args is None else list(args), prog_name=PROGRAM, standalone_mode=False)
    except click.ClickException as error:
        complain(f"{PROGRAM}: {error.format_message()}")
        if isinstance(error, click.UsageError) and error.ctx is not None:
            complain(f"see {error.ctx.command_path} --help")
        code = USAGE
    except GnlError as error:
        complain(f"{PROGRAM}: {error}")
        for question in _questions(error):
            complain(f"waits: {question.question}  ({question.tool_name}: {question.reason})")
        code = _status(error)
    except (click.Abort, KeyboardInterrupt):
        code = INTERRUPTED
    except Exception:
        # 1 says that something waits or failed; a fault of ours must not look like one.
        for line in traceback.format_exc().splitlines():
            complain(line)
        complain(f"{PROGRAM}: this is a fault of the program, please report it")
        code = INTERNAL
    sys.exit(code if isinstance(code, int) else DONE)


def _status(error: GnlError) -> int:
    """Return the exit status of an error: what stopped a run that had begun is a failure, all else was refused."""
    failed = isinstance(error, DoubtError | LimitError | ModelError | ToolError)
    return WAITS if failed or _questions(error) else USAGE


def _questions(error: GnlError) -> Sequence[Interrupt]:
    return error.interrupts if isinstance(error, RefusedError | DoubtError) else ()
