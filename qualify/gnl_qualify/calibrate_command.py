"""`calibrate` as a command: an embedder, the ladder and perhaps a judge on labelled pairs."""

from __future__ import annotations

import asyncio
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gnl_core.errors import MissingExtraError
from gnl_qualify.inputs import is_file, load, paths
from gnl_qualify.terminal import complain, plain, tell

if TYPE_CHECKING:
    from gnl_qualify.calibration import Calibration
    from gnl_qualify.calibration.measure import Progress
    from gnl_semantic.judge.transport import JudgeTransport

_FILE = click.Path(path_type=Path)


@click.command()
@click.option(
    "--fixtures", multiple=True, metavar="A.json,B.json", help="Labelled pairs. Default: the calibration set."
)
@click.option(
    "--embedder",
    default="local",
    show_default=True,
    metavar="NAME",
    help="'local', a model's folder, a hub name in the local cache, a function of your own as my_embed.py:embed or "
    "package.module:embed (texts in, vectors out, sync or async), or 'hashing' (no model).",
)
@click.option("--embed-model-id", metavar="ID", help="Stamp of a function's vectors, as the gate has it.")
@click.option("--judge", metavar="JUDGE", help="Let a judge answer the gray pairs; named as in the exam.")
@click.option("--model", metavar="ID", help="Id of the judge's model.")
@click.option("--key-env", metavar="NAME", help="Environment variable that holds the judge's server's key.")
@click.option("--timeout", type=click.FloatRange(0, 3600, min_open=True), default=30.0, help="Seconds a judge's call.")
@click.option("--concurrency", type=click.IntRange(1, 256), default=4, help="Calls of the judge in flight.")
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True, help="Decides halves and threads.")
@click.option("--html", type=_FILE, help="Write the report as one HTML file.")
@click.option("--json", "json_", type=_FILE, help="Write every figure as JSON.")
@click.option("--csv", type=_FILE, metavar="DIR", help="Write every table as a CSV file into this folder.")
def calibrate(**options: Any) -> None:
    """Measure an embedder's cosines, its candidate threshold and the whole chain on labelled pairs.

    The pairs must hold dup-paraphrase and near-miss, one of each at the least: about 370 paraphrases give the
    threshold's interval both ends. What needs dup-exact or unrelated pairs is told as not measured where there are
    none, as in an export.

    Exit status: 0 done, 2 the options or files cannot be used, 130 interrupted.
    """
    from gnl_qualify.calibration import calibrate as run  # noqa: PLC0415
    from gnl_qualify.calibration.text import render_text  # noqa: PLC0415
    from gnl_qualify.embedders import embedder_of  # noqa: PLC0415
    from gnl_qualify.progress import shown_stages  # noqa: PLC0415

    files = paths(options["fixtures"])
    # The code of a judge may change the working folder.
    html, json_, csv = (path and path.absolute() for path in (options["html"], options["json_"], options["csv"]))
    _check(html, json_, csv, inputs=files)
    pairs = load(files, "calibration")
    judge = _load_judge(options)
    embedder = embedder_of(options["embedder"], options["embed_model_id"])

    async def work(progress: Progress) -> Calibration:
        try:
            limits = {"timeout_s": options["timeout"], "concurrency": options["concurrency"]}
            return await run(embedder, pairs, judge=judge, seed=options["seed"], progress=progress, **limits)
        finally:
            if judge is not None:
                await judge.aclose()

    with shown_stages() as progress:
        calibration = asyncio.run(work(progress))
    _write(calibration, html, json_, csv)
    tell(render_text(calibration.report))


def _load_judge(options: dict[str, Any]) -> JudgeTransport | None:
    from gnl_semantic.judge.load import load_judge  # noqa: PLC0415

    if options["judge"] is None:
        return None
    return load_judge(
        options["judge"], model=options["model"], timeout_s=options["timeout"], key_env=options["key_env"]
    )


def _check(html: Path | None, json_: Path | None, csv: Path | None, *, inputs: list[Path]) -> None:
    """Refuse outputs that could not be written at the end, before anything is embedded."""
    from gnl_qualify.calibration.frames import NAMES  # noqa: PLC0415
    from gnl_qualify.errors import OutputPathError  # noqa: PLC0415
    from gnl_qualify.outputs import check_outputs  # noqa: PLC0415

    if html and not all(map(find_spec, ("jinja2", "matplotlib"))):
        raise MissingExtraError("an HTML report", "qualify")
    files = {"--html": html, "--json": json_}
    check_outputs(files, inputs=inputs)
    if csv is None:
        return
    if not find_spec("pandas"):
        raise MissingExtraError("CSV tables", "qualify")
    if is_file(csv):
        raise OutputPathError(f"--csv {csv}: is a file: name a folder")
    try:
        csv.mkdir(exist_ok=True)
    except OSError as error:
        raise OutputPathError(f"--csv {csv}: cannot be made: {error.strerror}") from None
    check_outputs({**files, **{f"--csv {name}": csv / f"{name}.csv" for name in NAMES}}, inputs=inputs)


def _write(calibration: Calibration, html: Path | None, json_: Path | None, csv: Path | None) -> None:
    from gnl_qualify.calibration.frames import csv_of  # noqa: PLC0415
    from gnl_qualify.outputs import write_output  # noqa: PLC0415

    if json_ is not None:
        write_output(json_, calibration.to_json())
    if csv is not None:
        for name, frame in calibration.frames().items():
            write_output(csv / f"{name}.csv", csv_of(frame))
    if html is not None:
        write_output(html, calibration.to_html())
        complain(f"report: {plain(str(html))}")
