"""`traffic` as a command: the suite of conversations in which work is asked for twice."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gnl_qualify.inputs import paths
from gnl_qualify.status import FAILED, INTERRUPTED
from gnl_qualify.terminal import complain, plain, tell

if TYPE_CHECKING:
    from gnl_fixtures.conversations import Conversation
    from gnl_qualify.traffic.played import PlayedConversation
    from gnl_qualify.traffic.settings import Setting
    from gnl_qualify.traffic.suite import Playing

_FILE = click.Path(path_type=Path)


@click.command()
@click.option("--conversations", multiple=True, metavar="A.json,B.json", help="Conversations. Default: those shipped.")
@click.option("--only", multiple=True, metavar="ID", help="Play this conversation; may be given several times.")
@click.option("--live", metavar="URL", help="Let a live model write the arguments: an OpenAI-compatible server.")
@click.option("--model", metavar="ID", help="Id of the live model.")
@click.option("--key-env", metavar="NAME", help="Environment variable that holds the server's key.")
@click.option(
    "--rungs",
    type=click.Choice(["exact", "rules", "judge"]),
    multiple=True,
    help="Which rungs are on. Default: each in turn; with --live, judge.",
)
@click.option("--timeout", type=click.FloatRange(0, 3600, min_open=True), default=120.0, help="Seconds a live answer.")
@click.option("--json", "json_", type=_FILE, help="Write every call and every count as JSON.")
def traffic(**options: Any) -> None:
    """Play conversations in which work is asked for twice, and count what a person was asked about.

    A regression suite: scripted conversations and arguments, whose rates are not those of a live model. With --live the
    same users speak to a live model. Exit status: 0 played, 1 played in part, 2 the options or files cannot be used,
    130 interrupted (what was played stands in --json).
    """
    from gnl_qualify.outputs import check_outputs  # noqa: PLC0415

    json_ = options["json_"].absolute() if options["json_"] else None
    files = paths(options["conversations"])
    check_outputs({"--json": json_}, inputs=files)
    chosen = _chosen(files, options["only"])
    live = options["live"] is not None
    for name in ("model", "key_env"):
        if options[name] is not None and not live:
            raise click.UsageError(f"--{name.replace('_', '-')} is for --live")
    playings, stopped = _live(chosen, options) if live else _scripted(chosen, options)
    _report(playings, json_, live=live)
    if stopped:
        raise click.exceptions.Exit(INTERRUPTED)
    if not all(playing.whole for playing in playings):
        raise click.exceptions.Exit(FAILED)


def _chosen(files: list[Path], only: tuple[str, ...]) -> tuple[Conversation, ...]:
    from gnl_fixtures.conversations import load_conversation_files, load_conversations  # noqa: PLC0415

    found = load_conversation_files(files) if files else load_conversations()
    unknown = sorted(set(only) - {one.id for one in found})
    if unknown:
        raise click.UsageError(f"--only {unknown[0]}: there is no such conversation")
    return tuple(one for one in found if not only or one.id in only)


def _scripted(chosen: tuple[Conversation, ...], options: dict[str, Any]) -> tuple[tuple[Playing, ...], bool]:
    from gnl_qualify.progress import shown_stages  # noqa: PLC0415
    from gnl_qualify.traffic.settings import SETTINGS  # noqa: PLC0415
    from gnl_qualify.traffic.suite import play_suite  # noqa: PLC0415

    with shown_stages() as progress:
        return asyncio.run(play_suite(chosen, settings=options["rungs"] or SETTINGS, progress=progress)), False


def _live(chosen: tuple[Conversation, ...], options: dict[str, Any]) -> tuple[tuple[Playing, ...], bool]:
    from gnl_qualify.traffic.live import open_model, play_live  # noqa: PLC0415
    from gnl_qualify.traffic.suite import Playing  # noqa: PLC0415

    if not options["model"]:
        raise click.UsageError("--live needs --model: the id of the model, as the server spells it")
    rungs: tuple[Setting, ...] = options["rungs"] or ("judge",)
    if len(rungs) > 1:
        raise click.UsageError("--live plays once, since a live model never writes the same twice: give one --rungs")
    model = open_model(
        options["model"], base_url=options["live"], api_key=_key(options["key_env"]), timeout_s=options["timeout"]
    )
    played: list[PlayedConversation] = []

    async def work() -> None:
        async for one in play_live(chosen, model, setting=rungs[0], step_seconds=options["timeout"]):
            played.append(one)
            complain(f"{len(played)} of {len(chosen)} conversations" + _faults(one))

    stopped = False
    try:
        asyncio.run(work())
    except KeyboardInterrupt:
        stopped = True
    playing = Playing(model=options["model"], setting=rungs[0], conversations=tuple(played), expected=len(chosen))
    return (playing,), stopped


def _faults(played: PlayedConversation) -> str:
    return "".join(f"; {played.id} broke off at turn {t.number}: {plain(t.fault)}" for t in played.turns if t.fault)


def _key(name: str | None) -> str | None:
    if name is None:
        return None
    key = os.environ.get(name)
    if not key:
        raise click.UsageError(f"--key-env {name}: that variable is not set")
    return key


def _report(playings: tuple[Playing, ...], json_: Path | None, *, live: bool) -> None:
    from gnl_qualify.outputs import write_output  # noqa: PLC0415
    from gnl_qualify.traffic.score import score_all  # noqa: PLC0415
    from gnl_qualify.traffic.table import CAPTION, LIVE_CAPTION, render_text  # noqa: PLC0415

    scores = score_all(playings)
    if json_ is not None:
        value = {
            "v": 1,
            "suite": "traffic",
            "caption": LIVE_CAPTION if live else CAPTION,
            "live": live,
            "whole": all(playing.whole for playing in playings),
            "scores": [score.to_json() for score in scores],
            "playings": [playing.to_json() for playing in playings],
        }
        write_output(json_, json.dumps(value, ensure_ascii=False, indent=1) + "\n")
    for line in render_text(scores, live=live).splitlines():
        tell(plain(line))
