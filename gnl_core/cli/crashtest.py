"""`gnl crashtest`: kill an agent at every point, resume it, and count its effects."""

from __future__ import annotations

from pathlib import Path

import click

from gnl_core.cli.database import json_option
from gnl_core.cli.target import load
from gnl_core.cli.terminal import DONE, WAITS, complain, plain, tell, tell_json


@click.command()
@click.argument("scenario", metavar="MODULE:FUNCTION")
@click.option("--kills", type=click.IntRange(min=1), default=1, show_default=True, help="Kills in a row.")
@click.option("--jobs", type=click.IntRange(min=1), help="Points tried at a time. [default: one a processor]")
@click.option("--timeout", type=float, default=30.0, show_default=True, help="Seconds after which a process hangs.")
@click.option(
    "--folder",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Where journals are made. [default: a new folder in memory, or in the system's temporary one]",
)
@json_option
@click.pass_context
def crashtest(
    ctx: click.Context,
    /,
    *,
    scenario: str,
    kills: int,
    jobs: int | None,
    timeout: float,
    folder: Path | None,
    as_json: bool,
) -> None:
    """Kill an agent at every write and around every effect, resume it, and count what really happened.

    MODULE:FUNCTION is an async function of (journal, effects) that starts the run, or resumes it, with that very
    journal; its tools call effects.fire("name", context, output) where a real tool would act on the world. No real
    journal is touched. The module must be importable without running anything.

    Exit status: 0 no call acted twice and every run came to an end or waits for a person, 1 otherwise, 2 the scenario
    cannot be used, or leaves nothing to judge.
    """
    function = load(scenario)
    from gnl_core.testing.matrix import crashtest as run_crashtest  # noqa: PLC0415 - help must not wait for it

    complain(f"killing {scenario}; this may take some seconds")
    report = run_crashtest(function, folder=folder, kills=kills, jobs=jobs, child_timeout=timeout)
    if as_json:
        tell_json(report.to_json())
    else:
        for line in report.text().splitlines():
            tell(plain(line))
    ctx.exit(DONE if report.ok else WAITS)
