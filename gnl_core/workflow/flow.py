"""What a workflow's function is handed: its steps, its waits."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gnl_core.workflow.results import StepOutcome

if TYPE_CHECKING:
    from gnl_core.tools import Tool
    from gnl_core.workflow.course import Course


class Flow:
    """One drive of a workflow, as its function sees it.

    Whatever acts on the world, or may come out otherwise another time (a clock, a random number, a file, the network),
    belongs in a step: the function is called anew in every drive, and must then take the same way. What its steps came
    to is read from their records. Names, and not the order of calls, say which record is whose.

    Attributes:
        run_id: The run.
    """

    def __init__(self, course: Course, prefix: str = "") -> None:
        self.run_id = course.request.root
        self._course = course
        self._prefix = prefix

    def under(self, name: str) -> Flow:
        """Return the same flow for a part of the work: its steps and waits are called '<name>/…'.

        Raises:
            BaseException: It can be no part of a name; as `step`.
        """
        return Flow(self._course, f"{self._prefix}{self._course.check_name('part', name)}/")

    async def step(self, name: str, function: Tool | Callable[..., Any], /, **arguments: Any) -> Any:
        """Do one step, at most once, and return what its function returned; recorded, its record is returned.

        It is a call of the engine: guard, confirmation, duplicates, limits, claim, `recover`, retries all hold. An
        undeclared function is taken for a side effect. `Context.idempotency_key` is the same in every attempt of the
        step, also after a crash. Steps may run side by side, in `asyncio.gather` or a `TaskGroup`: they are claimed one
        after another.

        Args:
            name: Its name, once in a workflow; in a loop f"charge/{i}".
            function: A tool, or a plain function with a name and types of its parameters; sync or async.
            **arguments: What it is called with, plain data or what its annotations read from plain data.

        Steps and waits are called by the workflow's function and by what it calls, not by the body of another step.

        Returns:
            What it returned, in the form the journal keeps.

        Raises:
            ToolError: It failed, or was refused. Catch it to tell of it, and raise it on: no new step begins in this
                drive, and the next one tries again. To go on after a failure, use `attempt`.
            BaseException: The workflow goes no further in this drive: it waits, is in doubt, or was stopped. It is
                meant for `run_workflow`: never catch `BaseException` around a step.
        """
        outcome = await self._course.step(self._named("step", name), function, arguments, final=False)
        if outcome.error is not None:
            raise outcome.error
        return outcome.output

    async def attempt(self, name: str, function: Tool | Callable[..., Any], /, **arguments: Any) -> StepOutcome:
        """Do one step that may fail, and return how it ended: a way on for either case.

        A failure is final: it is recorded before it is returned, and is the same in every later drive. A side effect
        that raised anything but `NotPerformedError` has no outcome: it is in doubt, and the workflow stops at it.

        Args:
            name: As for `step`.
            function: As for `step`.
            **arguments: As for `step`.

        Raises:
            BaseException: As `step`.
        """
        return await self._course.step(self._named("step", name), function, arguments, final=True)

    async def wait(self, name: str, *, reason: str = "") -> Any:
        """Return what was sent to this wait; where nothing was, the run ends suspended, until it is driven again.

        Args:
            name: Its name, once in a workflow.
            reason: What it waits for, for people.

        Raises:
            BaseException: Nothing was sent; as `step`.
        """
        return await self._course.wait(self._named("wait", name), reason)

    def _named(self, what: str, name: str) -> str:
        return self._prefix + self._course.check_name(what, name)
