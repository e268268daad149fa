"""How far an exam has come, on standard error: a bar on a terminal, else a line now and then."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gnl_qualify.exam import Tick
from gnl_qualify.terminal import complain
from gnl_qualify.transcript import Answer

if TYPE_CHECKING:
    from rich.progress import TaskID

EVERY = 25
"""Answers between two plain lines."""


@contextmanager
def shown_progress() -> Iterator[Callable[[int, int], Tick]]:
    """Yield what `sit_exam` takes as `progress`."""
    if sys.stderr is None or not sys.stderr.isatty():  # None: it was closed before the start
        yield _lines
        return
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:

        def start(total: int, done: int) -> Tick:
            task = bar.add_task("asking", total=total, completed=done)
            failed = 0

            def tick(answer: Answer) -> None:
                nonlocal failed
                failed += answer.error is not None
                bar.update(task, advance=1, description=f"asking, {failed} failed" if failed else "asking")

            return tick

        yield start


@contextmanager
def shown_stages() -> Iterator[Callable[[str, int, int], None]]:
    """Yield what `calibrate` takes as `progress`: called with the stage, what is done of it, and all of it."""
    if not sys.stderr.isatty():
        yield _stage_lines()
        return
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        tasks: dict[str, TaskID] = {}

        def show(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bar.add_task(stage, total=total)
            bar.update(tasks[stage], completed=done)

        yield show


def _stage_lines() -> Callable[[str, int, int], None]:
    """Return what writes a line at each tenth of a stage."""
    told: dict[str, int] = {}

    def show(stage: str, done: int, total: int) -> None:
        tenth = 10 * done // total
        if tenth > told.get(stage, 0):
            told[stage] = tenth
            complain(f"{stage}: {done} of {total}")

    return show


def _lines(total: int, done: int) -> Tick:
    failed = 0

    def tick(answer: Answer) -> None:
        nonlocal done, failed
        done += 1
        failed += answer.error is not None
        if done % EVERY == 0 or done == total:
            complain(f"{done} of {total} questions answered" + (f", {failed} calls failed" if failed else ""))

    return tick
