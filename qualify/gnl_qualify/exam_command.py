"""The exam as a command: its options, the order of its checks, its outputs."""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gnl_core.errors import GnlError, MissingExtraError
from gnl_qualify.inputs import is_file, load, paths
from gnl_qualify.limits import MAX_REPEATS, MAX_VALID_DAYS
from gnl_qualify.status import FAILED, INTERRUPTED, PASSED, PROGRAM, USAGE
from gnl_qualify.terminal import complain, plain, tell

if TYPE_CHECKING:
    from gnl_fixtures import FixtureSet
    from gnl_qualify.exam import Settings, Sitting, Tick

_FILE = click.Path(path_type=Path)
_Command = TypeVar("_Command", bound=Callable[..., Any])
_OPTIONS = (
    click.option(
        "--judge", metavar="JUDGE", help="builtin:NAME, recorded:FILE, openai:URL, FILE.py[:NAME] or MODULE:NAME."
    ),
    click.option("--model", metavar="ID", help="Id of the judge's model; the certificate binds it."),
    click.option("--fixtures", multiple=True, metavar="A.json,B.json", help="Pairs to put. Default: the held-out set."),
    click.option("--out", type=_FILE, default="gnl-judge-cert.json", show_default=True, help="The certificate."),
    click.option("--transcript", type=_FILE, help="Answers as they come. Default: beside --out, *.transcript.jsonl."),
    click.option("--resume", is_flag=True, help="Go on with the transcript of an exam that was broken off."),
    click.option("--html", type=_FILE, help="Write the report as one HTML file."),
    click.option("--json", "json_", type=_FILE, help="Write the report as JSON."),
    click.option("--limit", type=click.IntRange(min=1), help="Put an even sample: N >= 20, five for each label."),
    click.option("--concurrency", type=click.IntRange(1, 256), default=4, show_default=True, help="Calls in flight."),
    click.option(
        "--timeout",
        type=click.FloatRange(0, 3600, min_open=True),
        default=30.0,
        show_default=True,
        help="Seconds a call.",
    ),
    click.option("--seed", type=int, default=1, show_default=True, help="Decides order and samples."),
    click.option("--prompt", metavar="VERSION", help="Version of the prompt. Default: the one in force."),
    click.option(
        "--repeat-sample",
        type=click.IntRange(min=0),
        default=30,
        show_default=True,
        help="Pairs to ask again; 0: none.",
    ),
    click.option(
        "--repeats",
        type=click.IntRange(0, MAX_REPEATS),
        default=1,
        show_default=True,
        help="How often to ask them again; 0: never.",
    ),
    click.option(
        "--order-sample",
        type=click.IntRange(min=0),
        default=30,
        show_default=True,
        help="Pairs to put in reverse order; 0: none.",
    ),
    click.option("--list", "listed", type=click.IntRange(min=0), default=20, show_default=True, help="Pairs to list."),
    click.option("--valid-days", type=click.IntRange(1, MAX_VALID_DAYS), help="Write an expiry into the certificate."),
    click.option("--key-env", metavar="NAME", help="Environment variable that holds the server's key."),
    click.option("--max-tokens", type=click.IntRange(min=1), help="Longest answer of a server's model."),
    click.option("--extra-body", metavar="JSON", help="Further fields of a request to a server, as a JSON object."),
)


def exam_options(command: _Command) -> _Command:
    """Give a command the options of the exam, in the order of the help."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def run_exam(ctx: click.Context, options: dict[str, Any]) -> int:
    """Sit the exam that the options describe, write its outputs and return the exit status."""
    from gnl_qualify.exam import Settings  # noqa: PLC0415
    from gnl_qualify.outputs import check_outputs  # noqa: PLC0415
    from gnl_semantic.judge.load import load_judge  # noqa: PLC0415
    from gnl_semantic.judge.prompt import PROMPT_VERSION  # noqa: PLC0415

    files = paths(options["fixtures"])
    out: Path = options["out"]
    transcript: Path = options["transcript"] or out.parent / f"{out.stem}.transcript.jsonl"
    outputs = {"--out": out, "--transcript": transcript, "--html": options["html"], "--json": options["json_"]}
    check_outputs(outputs, inputs=[*files, *_recording(options["judge"])])
    # The code of a judge may change the working folder.
    out, transcript, html, json_ = (path and path.absolute() for path in outputs.values())
    if html and not all(map(find_spec, ("jinja2", "matplotlib"))):
        raise MissingExtraError("an HTML report", "qualify")
    fixtures = load(files, "heldout")
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
    return _publish(sitting, out, html, json_, listed=options["listed"])


def _sit(judge: Any, fixtures: FixtureSet, settings: Settings, transcript: Path, *, resume: bool) -> Sitting | None:
    from gnl_qualify.exam import sit_exam  # noqa: PLC0415
    from gnl_qualify.progress import shown_progress  # noqa: PLC0415

    # Counted before this sitting's own transcript stands there; a resumed one carries its number.
    beforehand = _beforehand(fixtures, settings, None if resume else transcript.parent)
    try:
        with shown_progress() as progress:

            def start(total: int, done: int) -> Tick:
                for line in beforehand:
                    complain(line)
                return progress(total, done)

            return asyncio.run(
                sit_exam(judge, fixtures, settings, transcript=transcript, resume=resume, progress=start)
            )
    except KeyboardInterrupt:
        complain(f"interrupted: the answers so far stand in {plain(str(transcript))}; go on with --resume")
        return None


def _beforehand(fixtures: FixtureSet, settings: Settings, folder: Path | None) -> list[str]:
    """Return what should be known before the first question: what the pairs can prove, how often they were seen."""
    from gnl_qualify.capacity import sentences  # noqa: PLC0415
    from gnl_qualify.looks import sitting_number  # noqa: PLC0415
    from gnl_qualify.sample import limited  # noqa: PLC0415
    from gnl_reports.text import ordinal  # noqa: PLC0415

    lines = list(sentences(limited(fixtures, settings.limit, seed=settings.seed)))
    if folder is not None:
        number = sitting_number(fixtures.set_id, folder=folder, private=fixtures.private)
        lines.append(f"{ordinal(number)} sitting on this set, by the ledger and the transcripts beside this one")
    return lines


def _publish(sitting: Sitting, out: Path, html: Path | None, json_: Path | None, *, listed: int) -> int:
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
    tell(render_text(sitting.report, listed=listed))
    for fault in faults:
        complain(f"{PROGRAM}: {plain(str(fault))}")
    if faults:
        return USAGE
    return FAILED if sitting.certificate is None else PASSED


def _recording(judge: str) -> list[Path]:
    """Return the files that a judge is made of."""
    name = judge.removeprefix("recorded:")
    return [path for path in (Path(name), Path(name.rpartition(":")[0] or name)) if is_file(path)]


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
        if name in ("judge", "extra_body", "resume", "listed") or not given(ctx, name):
            continue
        value = options[name]
        for item in value if isinstance(value, tuple) else (value,):
            words += [parameter.opts[0], str(item)]
    return shlex.join(words)


def given(ctx: click.Context, name: str) -> bool:
    """Tell whether an option stood on the command line."""
    return ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
