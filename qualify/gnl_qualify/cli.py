"""The program `gnl-semantic-qualify`: the report on standard output, all talk on standard error.

Nothing heavy is imported before a command runs, so that help and faults in the options come at once.
"""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
import traceback
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gnl_core.errors import GnlError, MissingExtraError
from gnl_qualify.terminal import complain, forgive_encoding, plain, tell

if TYPE_CHECKING:
    from gnl_fixtures import FixtureSet
    from gnl_qualify.exam import Settings, Sitting

PROGRAM = "gnl-semantic-qualify"
PASSED, FAILED, USAGE, INTERNAL, INTERRUPTED = 0, 1, 2, 70, 130
_FILE = click.Path(path_type=Path)


@click.group(invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--judge", metavar="JUDGE", help="builtin:NAME, recorded:FILE, openai:URL, FILE.py[:NAME] or MODULE:NAME."
)
@click.option("--model", metavar="ID", help="Id of the judge's model; the certificate binds it.")
@click.option("--fixtures", multiple=True, metavar="A.json,B.json", help="Pairs to put. Default: the held-out set.")
@click.option("--out", type=_FILE, default="gnl-judge-cert.json", show_default=True, help="The certificate.")
@click.option("--transcript", type=_FILE, help="Answers as they come. Default: beside --out, *.transcript.jsonl.")
@click.option("--resume", is_flag=True, help="Go on with the transcript of an exam that was broken off.")
@click.option("--html", type=_FILE, help="Write the report as one HTML file.")
@click.option("--json", "json_", type=_FILE, help="Write the report as JSON.")
@click.option("--limit", type=click.IntRange(min=1), help="Put an even sample: N >= 20, five for each label.")
@click.option("--concurrency", type=click.IntRange(1, 256), default=4, show_default=True, help="Calls in flight.")
@click.option(
    "--timeout", type=click.FloatRange(0, 3600, min_open=True), default=30.0, show_default=True, help="Seconds a call."
)
@click.option("--seed", type=int, default=1, show_default=True, help="Decides order and samples.")
@click.option("--prompt", metavar="VERSION", help="Version of the prompt. Default: the one in force.")
@click.option(
    "--repeat-sample", type=click.IntRange(min=0), default=30, show_default=True, help="Pairs to ask again; 0: none."
)
@click.option(
    "--repeats",
    type=click.IntRange(0, 100),
    default=1,
    show_default=True,
    help="How often to ask them again; 0: never.",
)
@click.option(
    "--order-sample",
    type=click.IntRange(min=0),
    default=30,
    show_default=True,
    help="Pairs to put in reverse order; 0: none.",
)
@click.option("--valid-days", type=click.IntRange(1, 3650), help="Write an expiry into the certificate.")
@click.option("--key-env", metavar="NAME", help="Environment variable that holds the server's key.")
@click.option("--max-tokens", type=click.IntRange(min=1), help="Longest answer of a server's model.")
@click.option("--extra-body", metavar="JSON", help="Further fields of a request to a server, as a JSON object.")
@click.version_option(package_name="gnl-semantic", prog_name=PROGRAM)
@click.pass_context
def cli(ctx: click.Context, /, **options: Any) -> None:
    """Put labelled pairs to a judge, blind, and write a certificate if it passes.

    Exit status: 0 passed, 1 failed, 2 the options or files cannot be used, 70 a fault of the program, 130 interrupted
    (the answers so far stand in the transcript; --resume goes on).
    """
    if ctx.invoked_subcommand is not None:
        given = [name for name in options if _given(ctx, name)]
        if given:
            raise click.UsageError(
                f"--{given[0].strip('_').replace('_', '-')} belongs to the exam, not to '{ctx.invoked_subcommand}'"
            )
        return
    if not options["judge"]:
        raise click.UsageError("--judge is missing: name the judge that sits the exam, for instance --judge ./judge.py")
    ctx.exit(_exam(ctx, options))


def _exam(ctx: click.Context, options: dict[str, Any]) -> int:
    from gnl_qualify.exam import Settings  # noqa: PLC0415
    from gnl_qualify.outputs import check_outputs  # noqa: PLC0415
    from gnl_semantic.judge.load import load_judge  # noqa: PLC0415
    from gnl_semantic.judge.prompt import PROMPT_VERSION  # noqa: PLC0415

    files = _paths(options["fixtures"])
    out: Path = options["out"]
    transcript: Path = options["transcript"] or out.parent / f"{out.stem}.transcript.jsonl"
    outputs = {"--out": out, "--transcript": transcript, "--html": options["html"], "--json": options["json_"]}
    check_outputs(outputs, inputs=[*files, *_recording(options["judge"])])
    # The code of a judge may change the working folder.
    out, transcript, html, json_ = (path and path.absolute() for path in outputs.values())
    if html and not all(map(find_spec, ("jinja2", "matplotlib"))):
        raise MissingExtraError("an HTML report", "qualify")
    fixtures = _load(files, "heldout")
    more = {"max_tokens": options["max_tokens"]} if options["max_tokens"] else {}
    judge = load_judge(
        options["judge"],
        model=options["model"],
        timeout_s=options["timeout"],
        key_env=options["key_env"],
        extra_body=_object(options["extra_body"]),
        **more,
    )
    settings = Settings(
        seed=options["seed"],
        limit=options["limit"],
        concurrency=options["concurrency"],
        timeout_s=options["timeout"],
        repeat_sample=options["repeat_sample"],
        repeats=options["repeats"],
        order_sample=options["order_sample"],
        prompt_version=options["prompt"] or PROMPT_VERSION,
        valid_days=options["valid_days"],
        command=_command(ctx, options, judge.info.spec),
    )
    sitting = _sit(judge, fixtures, settings, transcript, resume=options["resume"])
    if sitting is None:
        return INTERRUPTED
    return _publish(sitting, out, html, json_)


def _sit(judge: Any, fixtures: FixtureSet, settings: Settings, transcript: Path, *, resume: bool) -> Sitting | None:
    from gnl_qualify.exam import sit_exam  # noqa: PLC0415
    from gnl_qualify.progress import shown_progress  # noqa: PLC0415

    try:
        with shown_progress() as progress:
            return asyncio.run(
                sit_exam(judge, fixtures, settings, transcript=transcript, resume=resume, progress=progress)
            )
    except KeyboardInterrupt:
        complain(f"interrupted: the answers so far stand in {plain(str(transcript))}; go on with --resume")
        return None


def _publish(sitting: Sitting, out: Path, html: Path | None, json_: Path | None) -> int:
    """Write every output, then the report; a file that cannot be written costs none of the others."""
    from gnl_qualify.outputs import write_output  # noqa: PLC0415
    from gnl_qualify.text_report import render_text  # noqa: PLC0415
    from gnl_reports.model import to_json  # noqa: PLC0415
    from gnl_semantic.judge.certificate import write_certificate  # noqa: PLC0415

    faults: list[GnlError] = []
    try:
        if sitting.certificate is not None:
            write_certificate(out.resolve(), sitting.certificate)
            complain(f"certificate ({sitting.certificate.status}): {plain(str(out))}")
        elif out.exists():
            complain(f"{plain(str(out))} is left from an earlier exam; this one earned no certificate")
    except GnlError as error:
        faults.append(error)
    try:
        if json_ is not None:
            write_output(json_, json.dumps(to_json(sitting.report), ensure_ascii=False, indent=2) + "\n")
    except GnlError as error:
        faults.append(error)
    try:
        if html is not None:
            from gnl_reports.exam import render_exam_html  # noqa: PLC0415

            write_output(html, render_exam_html(sitting.report))
    except GnlError as error:
        faults.append(error)
    tell(render_text(sitting.report))
    for fault in faults:
        complain(f"{PROGRAM}: {plain(str(fault))}")
    if faults:
        return USAGE
    return FAILED if sitting.certificate is None else PASSED


@cli.command()
@click.argument("certificate", type=_FILE)
@click.option("--transcript", type=_FILE, required=True, help="The transcript of the exam.")
@click.option(
    "--fixtures", multiple=True, metavar="A.json,B.json", help="The pairs. Default: the shipped set of that id."
)
def verify(certificate: Path, transcript: Path, fixtures: tuple[str, ...]) -> None:
    """Compute every number of CERTIFICATE again from the transcript.

    Exit status: 0 every field follows, 1 some do not (each is named), 2 the files cannot be used.
    """
    from gnl_qualify.verify import verify_certificate  # noqa: PLC0415

    files = _paths(fixtures)
    found = verify_certificate(certificate, transcript, _load(files, "heldout") if files else None)
    for line in found:
        tell(plain(line))
    if found:
        raise click.exceptions.Exit(FAILED)
    tell(f"{plain(str(certificate))}: every field follows from the transcript")


@cli.command()
@click.option(
    "--fixtures", multiple=True, metavar="A.json,B.json", help="Labelled pairs. Default: the calibration set."
)
@click.option("--embedder", default="local", show_default=True, help="'local', or the folder of a model.")
@click.option("--json", "json_", type=_FILE, help="Write the table as JSON.")
def calibrate(fixtures: tuple[str, ...], embedder: str, json_: Path | None) -> None:
    """Show where an embedder's cosines lie on labelled pairs, and what the rule ladder settles.

    Exit status: 0 done, 2 the options or files cannot be used.
    """
    from gnl_qualify.embedder_table import embedder_table  # noqa: PLC0415
    from gnl_qualify.embedder_text import render_table  # noqa: PLC0415
    from gnl_qualify.outputs import check_outputs, write_output  # noqa: PLC0415
    from gnl_semantic.embedder import load_embedder  # noqa: PLC0415

    files = _paths(fixtures)
    check_outputs({"--json": json_}, inputs=files)
    table = asyncio.run(embedder_table(load_embedder(embedder), _load(files, "calibration")))
    if json_ is not None:
        write_output(json_, json.dumps(table.to_json(), ensure_ascii=False, indent=2) + "\n")
    tell(render_table(table))


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


def _paths(values: Sequence[str]) -> list[Path]:
    """Split lists at commas, but never a path that exists with one in its name."""
    paths: list[Path] = []
    for value in values:
        names = [value] if _is_file(Path(value)) else value.split(",")
        if not all(name.strip() for name in names):
            raise click.BadParameter(f"--fixtures {value!r}: holds an empty name")
        paths += map(Path, names)
    return paths


def _recording(judge: str) -> list[Path]:
    """Return the files that a judge is made of."""
    name = judge.removeprefix("recorded:")
    return [path for path in (Path(name), Path(name.rpartition(":")[0] or name)) if _is_file(path)]


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # too long for a name, as a list of names may be
        return False


def _load(files: Sequence[Path], shipped: str) -> FixtureSet:
    from gnl_fixtures import load_files, load_shipped  # noqa: PLC0415

    return load_files(files) if files else load_shipped(shipped)  # type: ignore[arg-type]


def _object(text: str | None) -> dict[str, object] | None:
    if text is None:
        return None
    try:
        value = json.loads(text)
        # What a request cannot carry: NaN, infinities, half a character.
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise click.BadParameter(f"--extra-body: is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise click.BadParameter(f"--extra-body: is {type(value).__name__}, must be a JSON object")
    return value


def _command(ctx: click.Context, options: dict[str, Any], spec: str) -> str:
    """Return the command line for the report: what was given, the judge as it names itself, without secrets."""
    words = [PROGRAM, "--judge", spec]
    for parameter in ctx.command.params:
        name = parameter.name or ""
        if name in ("judge", "extra_body", "resume") or not _given(ctx, name):
            continue
        value = options[name]
        for item in value if isinstance(value, tuple) else (value,):
            words += [parameter.opts[0], str(item)]
    return shlex.join(words)


def _given(ctx: click.Context, name: str) -> bool:
    return ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
