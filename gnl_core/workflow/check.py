"""What must hold of a workflow's names and calls: they are written together, so each has the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from gnl_core.run_view import RunView


def check_names(view: RunView) -> Iterator[tuple[Literal["note", "fault"], str]]:
    """Yield what is wrong with a workflow's names: a level, and what was found in a sentence.

    A name without its call is no fault before the run is over: that of a step that only reads is written before its
    body runs, and a call that a limit blocked has a name as well.
    """
    if view.workflow is None:
        return
    run_id = view.run.run_id
    calls, named = {call.id for call in view.calls}, {step.call for step in view.workflow.steps}
    for step in view.workflow.steps:
        if step.call in calls:
            continue
        what = f"step {step.name!r} of run {run_id!r} is named as call {step.call}, of which there is no record"
        if view.workflow.over:
            yield "fault", f"{what}, although the run is over"
        else:
            yield "note", f"{what}: it only read, and was broken off, or it was not let begin; else a row was lost"
    for call in sorted(calls - named):
        yield "fault", f"call {call} of run {run_id!r} has no name among the workflow's steps, and is never replayed"
