"""What stops a workflow where `except Exception` of its own code could swallow it, and what stopped a drive in the end.

A step that waits, or is in doubt, must never become a branch: the next drive would take another one. So it is raised as
a `BaseException` inside the function, remembered by the drive, and unwrapped outside.
"""

from __future__ import annotations

from collections.abc import Iterator


class Stop(BaseException):
    """Ends the function of a workflow; never seen outside of `run_workflow`.

    Attributes:
        error: What is raised outside; None where the run waits.
    """

    def __init__(self, error: BaseException | None = None) -> None:
        super().__init__(
            "this workflow stops here: leave it to run_workflow, and catch no BaseException in its function"
        )
        self.error = error


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield the exceptions in a group, however nested; of any other exception itself."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves(inner)
    else:
        yield error


def own_error(error: BaseException) -> BaseException | None:
    """Return what a function raised of its own accord: without the stops in it, None where nothing is left."""
    if isinstance(error, BaseExceptionGroup):
        return error.split(Stop)[1]
    return None if isinstance(error, Stop) else error
