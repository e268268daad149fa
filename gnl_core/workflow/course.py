"""How far one drive of a workflow has come: its steps in flight, where it waits, and what stopped it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from gnl_core import keys
from gnl_core.errors import ConfigError, GnlError, ToolError
from gnl_core.journal import get
from gnl_core.journal.port import JsonValue, Op, Put
from gnl_core.records import FORMAT
from gnl_core.workflow.arguments import StepTools, to_json
from gnl_core.workflow.names import StepNames
from gnl_core.workflow.results import StepOutcome, Wait
from gnl_core.workflow.steps import Failed, Stepper, Waiting
from gnl_core.workflow.stops import Stop
from gnl_core.workflow.values import from_row

if TYPE_CHECKING:
    from gnl_core.approvals import Interrupt
    from gnl_core.request import Request
    from gnl_core.tools import Tool, ToolPolicy


class Course:
    """One drive of one workflow.

    Attributes:
        waits: Where it waits to be sent something, by name.
        interrupts: Questions that its steps wait on, by the step's name.
        error: What stopped it; the first counts.
        late: That something new was to begin after a failure had been handed on.
        failures: Failures of steps, in the order they came in.
        pending: What is written with the drive's end.
        over: Whether the function has ended: nothing begins any more.
    """

    def __init__(self, request: Request, policy: ToolPolicy | None) -> None:
        self.request = request
        self.names = StepNames(request.root, request.rows)
        self.waits: dict[str, Wait] = {}
        self.interrupts: dict[str, tuple[Interrupt, ...]] = {}
        self.error: BaseException | None = None
        self.late: ConfigError | None = None
        self.failures: list[ToolError] = []
        self.pending: list[Op] = []
        self.over = False
        self.used: dict[str, None] = {}
        self._used_waits: dict[str, None] = {}
        self._broken = False
        self._loop = asyncio.get_running_loop()
        self._tools = StepTools(policy, request.options.limits)
        self._stepper = Stepper(request, self.names)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._looks: set[asyncio.Task[object]] = set()

    @property
    def stopped(self) -> bool:
        """Whether the function may go no further in this drive."""
        return self.error is not None or self.late is not None or bool(self.waits or self.interrupts)

    def counts(self) -> dict[str, JsonValue]:
        """Return what the run's head counts; a workflow has no model steps."""
        questions = sum(map(len, self.interrupts.values()))
        return {"steps": 0, "calls": len(self.used), "questions": questions, "waits": len(self.waits)}

    def open_waits(self) -> tuple[Wait, ...]:
        """Return where it waits, in the order in which its function came there; reads answer in any order."""
        return tuple(self.waits[name] for name in self._used_waits if name in self.waits)

    def unread(self) -> list[str]:
        """Return the waits that were sent something and never come to: they lie ahead, or are misspelt."""
        root, rows = self.request.root, self.request.rows
        sent = sorted(key[4] for key in rows if len(key) == 5 and key[3] == "sent")
        return [name for name in sent if name not in self._used_waits and keys.workflow_wait(root, name) not in rows]

    def open_questions(self) -> tuple[Interrupt, ...]:
        """Return what its steps ask, in the order in which its function came to them."""
        return tuple(one for name in self.used for one in self.interrupts.get(name, ()))

    # Steps ---------------------------------------------------------------------------------------------------------

    async def step(
        self, name: str, function: Tool | Callable[..., Any], arguments: Mapping[str, Any], *, final: bool
    ) -> StepOutcome:
        """Bring one step to its end.

        Args:
            name: Its whole name.
            function: What it does.
            arguments: With what.
            final: Whether a failure is an outcome, recorded as final before it is returned.

        Raises:
            Stop: The workflow goes no further in this drive.
            asyncio.CancelledError: Its caller was cancelled. What has begun goes on to its end.
        """
        self._enter("step", name, self.used, known=name in self.names.known)
        try:
            tool = self._tools.of(function)
            args = to_json(tool, arguments, check=self._matters(name))
        except GnlError as error:
            raise self.stop(error) from error
        task = asyncio.ensure_future(self._bring(name, tool, args, final=final))
        self._tasks.add(task)
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            # A sibling failed, or a time is over. A later drive may see it otherwise: nothing new begins in this one.
            self._broken = True
            if not self._stepper.has_begun(name):
                task.cancel()
            raise
        outcome = task.result()
        if self.error is not None:
            raise Stop(self.error)
        if name in self.interrupts:
            raise Stop
        return outcome

    def _matters(self, name: str) -> bool:
        """Whether a step's arguments must fit: those of one that has ended need not, its record is what counts."""
        named = self.names.known.get(name)
        record = self._stepper.recorded(named.step) if named is not None else None
        tried_again = record is not None and record.status == "failed" and named is not None and not named.failed
        return record is None or not record.terminal or tried_again

    async def _bring(self, name: str, tool: Tool, args: dict[str, Any], *, final: bool) -> StepOutcome:
        """Bring a step as far as it goes; what stops the drive is noted, since nobody may be there to read it."""
        try:
            ended = await self._stepper.bring(name, tool, args, final=final)
        except asyncio.CancelledError:
            self._broken = True
            raise
        except Stop as stop:
            self.stop(stop.error or self._within(name))
            return StepOutcome(ok=False)
        except BaseException as error:
            self.stop(error)
            return StepOutcome(ok=False)
        match ended:
            case Waiting(interrupts):
                self.interrupts[name] = interrupts
                return StepOutcome(ok=False)
            case Failed(failure):
                if not final:
                    self.failures.append(failure)
                return StepOutcome(ok=False, error=failure)
            case value:
                return StepOutcome(ok=True, output=value)

    # Waits ---------------------------------------------------------------------------------------------------------

    async def wait(self, name: str, reason: str) -> object:
        """Return what was sent to a wait.

        Raises:
            Stop: Nothing was, so that the run waits.
        """
        sent = self.request.rows.get(keys.workflow_sent(self.request.root, name))
        asked = self.request.rows.get(keys.workflow_wait(self.request.root, name))
        self._enter("wait", name, self._used_waits, known=sent is not None or asked is not None)
        look = asyncio.ensure_future(self._look(name, str(reason)))
        self._tasks.add(look)
        self._looks.add(look)
        try:
            await asyncio.sleep(0)  # what is called side by side with it is listed, too, before one of them stops all
            while unfinished := {one for one in self._looks if not one.done()}:
                await asyncio.wait(unfinished)
        except asyncio.CancelledError:
            self._broken = True
            raise
        if self.error is not None:
            raise Stop(self.error)
        if name in self.waits:
            raise Stop
        return look.result()

    async def _look(self, name: str, reason: str) -> object:
        """Read what was sent to a wait, or list it among those that wait."""
        key, row = keys.workflow_sent(self.request.root, name), keys.workflow_wait(self.request.root, name)
        try:
            sent = self.request.rows.get(key) or await get(self.request.journal, key)
            if sent is not None:
                return from_row(sent)
        except GnlError as error:
            self.stop(error)
            return None
        asked = self.request.rows.get(row)
        known = asked.value if asked is not None and isinstance(asked.value, dict) else {}
        at = known.get("at")
        at = at if isinstance(at, int) else self.request.now
        self.waits[name] = Wait(name=name, reason=reason, asked_at=at)
        if known.get("reason") != reason:
            value: JsonValue = {"f": FORMAT, "reason": reason, "at": at}
            self.pending.append(Put(row, value))
        return None

    def _within(self, name: str) -> ConfigError:
        """Return the error of a step whose body came to a wait or a question of its own workflow."""
        return ConfigError(
            f"the body of step {name!r} of run {self.request.root!r} called a step or a wait of its own workflow, and "
            "that one waits: no body can stand still until it is answered. Call it in the workflow's function",
            run_id=self.request.root,
            step=name,
        )

    # Both ----------------------------------------------------------------------------------------------------------

    def _enter(self, what: str, name: str, used: dict[str, None], *, known: bool) -> None:
        root = self.request.root
        if self.over:
            raise ConfigError(
                f"the workflow of run {root!r} has ended; {what} {name!r} was called after that. Await all steps "
                "before the function returns",
                run_id=root,
            )
        if asyncio.get_running_loop() is not self._loop:
            raise self.stop(
                ConfigError(
                    f"{what} {name!r} of run {root!r} was called in another event loop than its workflow's, whose "
                    "locks and store it cannot wait for. Let the step's function go to the thread, as a plain one does",
                    run_id=root,
                )
            )
        if self.stopped:
            raise Stop(self.error or self.late)
        self.check_name(what, name)
        if name in used:
            raise self.stop(
                ConfigError(
                    f"two {what}s of run {root!r} are called {name!r}; each needs a name of its own, in a loop for "
                    f'instance f"{name}/{{i}}"',
                    run_id=root,
                )
            )
        if not known and (self.failures or self._broken):
            self.late = ConfigError(
                f"{what} {name!r} of run {root!r} was to begin after another step had failed or was cancelled: a later "
                "drive may see that one succeed, and would take another branch. Use flow.attempt where a failure is "
                "one of the ways on: its outcome is recorded",
                run_id=root,
            )
            raise Stop(self.late)
        used[name] = None

    def check_name(self, what: str, name: str) -> str:
        """Return a name that may become part of a key.

        Raises:
            Stop: It may not, whatever the function makes of that.
        """
        try:
            return keys.check_id(f"the name of a {what}", name)
        except GnlError as error:
            raise self.stop(error) from error

    def stop(self, error: BaseException) -> Stop:
        """Note what stops the drive; the first error counts."""
        if self.error is None:
            self.error = error
        return Stop(error)

    def cancel(self) -> None:
        """Stop the steps in flight; what they have begun is recorded as in doubt where it acts on the world.

        Nothing new begins, in a `finally` either: the next drive goes on where this one was, and comes there later.
        """
        self._broken = True
        for task in self._tasks:
            task.cancel()

    async def settle(self) -> None:
        """Wait until no step is in flight.

        Raises:
            asyncio.CancelledError: The caller was cancelled meanwhile, and so were the steps; they have ended.
        """
        cancelled: asyncio.CancelledError | None = None
        while unfinished := {task for task in self._tasks if not task.done()}:
            try:
                await asyncio.wait(unfinished)
            except asyncio.CancelledError as one:
                cancelled = one
                self.cancel()
        if cancelled is not None:
            raise cancelled
