"""The options of a workflow, and how a call of one becomes a plan: which run it is, for whom, and what it is to do."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from gnl_core import keys
from gnl_core.codec import decode, encode
from gnl_core.composable import NoModel
from gnl_core.door import Door
from gnl_core.errors import ConfigError, NotCanonicalError
from gnl_core.journal import get
from gnl_core.journal.port import Journal, JsonValue
from gnl_core.rollover import newest_execution
from gnl_core.run import make_plan
from gnl_core.run_options import DriveOptions, HoldOptions
from gnl_core.tools import ToolPolicy, check_tool_policy
from gnl_core.work import Work, WorkScope, name_work
from gnl_core.workflow.sending import check_send

if TYPE_CHECKING:
    from gnl_core.admission import Asked

Workflow: TypeAlias = Callable[..., Awaitable[Any]]
"""An async function of a `Flow` and of what it is to work on, by name."""


class WorkflowHoldOptions(HoldOptions, total=False):
    """Options of a workflow that hold for all of its runs."""

    tool_policy: ToolPolicy | None


class WorkflowCallOptions(WorkflowHoldOptions, total=False):
    """Options of one call of a workflow beside the name of its work."""

    thread_id: str | None
    resource_id: str | None
    channel: str | None


_AGENTS_ONLY = frozenset(DriveOptions.__annotations__) - frozenset(WorkflowHoldOptions.__annotations__)
_counter = itertools.count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowPlan:
    """A call of a workflow, checked, before anything is read under its lock.

    Attributes:
        asked: What admission is asked.
        function: The workflow.
        policy: What its steps must say about themselves.
        send: What is sent along, by wait.
        warnings: What its caller should read.
    """

    asked: Asked
    function: Workflow
    policy: ToolPolicy | None
    send: Mapping[str, Any]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """How a workflow is called.

    Attributes:
        function: The workflow.
        name: Its name.
        work_key: The caller's name for the work.
        run_id: A run's own id instead.
        work_scope: Within what a work key is one job.
        input: What it is to work on, by name; None: what it began with.
        send: What is sent along, by wait.
        explicit_limits: Whether this very call passed limits.
    """

    function: Workflow
    name: str
    work_key: str | None
    run_id: str | None
    work_scope: WorkScope
    input: Mapping[str, Any] | None
    send: Mapping[str, Any] | None
    explicit_limits: bool


def held(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return shared options without those that mean something to agents alone: tools, a system prompt, and so on."""
    return {name: value for name, value in options.items() if name not in _AGENTS_ONLY}


def check_options(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Refuse options that no workflow has.

    Raises:
        TypeError: Naming the first.
    """
    known = WorkflowCallOptions.__annotations__.keys()
    unknown = sorted(given.keys() - known)
    if unknown:
        raise TypeError(f"there is no option {unknown[0]!r} of a workflow; there are: {', '.join(sorted(known))}")
    return given


def check_held(journal: Journal, name: str, function: object, options: Mapping[str, Any]) -> None:
    """Refuse a workflow that cannot work, before anybody calls it.

    Raises:
        ConfigError: It is no workflow, or an option of it cannot be.
        IdInvalidError: Its name may not become part of a key.
    """
    check_workflow(function, name)
    check_tool_policy({}, options.get("tool_policy"))
    given = {option: value for option, value in options.items() if option != "tool_policy"}
    make_plan(run_id="any", journal=journal, model=NoModel(), messages=[], door=_DOOR, **given)


async def plan(journal: Journal, call: Call, options: Mapping[str, Any]) -> WorkflowPlan:
    """Check a call before anything is written.

    Raises:
        ConfigError: It cannot work.
        JournalError: The store cannot be read.
    """
    check_workflow(call.function, call.name)
    policy = options.get("tool_policy")
    check_tool_policy({}, policy)
    send = {} if call.send is None else call.send
    check_send(send)
    run_id, work, warnings = _identify(journal, call, policy, options.get("resource_id"))
    given = {name: value for name, value in options.items() if name != "tool_policy"}
    agent = f"wf:{call.name}"
    # The ids are checked before the store is asked for them.
    make_plan(run_id=run_id, journal=journal, model=NoModel(), messages=[], door=_DOOR, agent=agent, **given)
    if work is not None:
        run_id = await newest_execution(journal, run_id)
    job = await _job(journal, run_id, call)
    made = make_plan(
        run_id=run_id,
        journal=journal,
        model=NoModel(),
        messages=[],
        door=Door(kind="workflow", job=job),
        agent=agent,
        **given,
    )
    asked = dataclasses.replace(
        made.asked,
        model="",
        explicit_limits=call.explicit_limits,
        terms=dataclasses.replace(made.asked.terms, work=work),
    )
    return WorkflowPlan(asked=asked, function=call.function, policy=policy, send=send, warnings=warnings)


_DOOR = Door(kind="workflow")


def check_workflow(function: object, name: object) -> None:
    """Refuse what is no workflow.

    Raises:
        ConfigError: It is no async function that takes a flow.
        IdInvalidError: Its name may not become part of a key.
    """
    keys.check_id("the name of a workflow", name)
    if not inspect.iscoroutinefunction(function):
        raise ConfigError(
            f"workflow {name!r} is {type(function).__name__}, must be an async function: "
            "async def pay(flow: Flow, order: str) -> dict"
        )
    if not inspect.signature(function).parameters:
        raise ConfigError(f"workflow {name!r} takes no arguments; its first one is the flow: async def pay(flow)")


def name_of(function: object) -> str:
    """Return the name of a function that is passed without one.

    Raises:
        ConfigError: It has none of its own, as a partial has: two of them would be one work.
    """
    name = getattr(function, "__name__", None)
    if callable(function) and not isinstance(name, str):
        raise ConfigError(
            f"the workflow is {type(function).__name__}, which has no name of its own, so that two of them would be "
            "one work: pass name=…",
            option="name",
        )
    return str(name or type(function).__name__)


def arguments_of(function: Workflow, name: str, job: JsonValue) -> dict[str, Any]:
    """Return what a workflow is called with, as it was frozen.

    Raises:
        ConfigError: It takes other arguments by now.
    """
    given = decode(job["input"] if isinstance(job, dict) else None)
    arguments: dict[str, Any] = given if isinstance(given, dict) else {}
    _check_fits(function, name, arguments)
    return arguments


async def _job(journal: Journal, run_id: str, call: Call) -> JsonValue:
    """Return what the run is to do; None where it is to go on with what it began with."""
    given: Any = call.input  # a caller may pass anything
    if given is None:
        if not _fits(call.function, {}) or await get(journal, keys.input_of(run_id)) is not None:
            return None
        given = {}
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise ConfigError(
            f"input is {type(given).__name__}, must be a mapping of the workflow's parameters to their values",
            option="input",
        )
    _check_fits(call.function, call.name, given)
    try:
        return {"name": call.name, "input": encode(dict(given))}
    except NotCanonicalError as error:
        raise ConfigError(f"the input of workflow {call.name!r} cannot be stored: {error}", option="input") from None


def _fits(function: Workflow, arguments: Mapping[str, Any]) -> bool:
    try:
        inspect.signature(function).bind(None, **arguments)
    except TypeError:
        return False
    return True


def _check_fits(function: Workflow, name: str, arguments: Mapping[str, Any]) -> None:
    try:
        inspect.signature(function).bind(None, **arguments)
    except TypeError as error:
        raise ConfigError(
            f"workflow {name!r} cannot be called with the input {sorted(arguments)}: {error}", option="input"
        ) from None


def _identify(
    journal: Journal, call: Call, policy: object, resource_id: str | None
) -> tuple[str, Work | None, tuple[str, ...]]:
    """Return the run, the work that its id was derived from, and what to say of it."""
    if call.work_key is not None and call.run_id is not None:
        raise ConfigError(
            "both a work_key and a run_id were passed: a call names its work by work_key, or a run by run_id",
            option="work_key",
        )
    if call.run_id is not None:
        return call.run_id, None, ()
    if call.work_key is not None:
        run_id, work = name_work(
            entity=f"wf:{call.name}",
            work_scope=call.work_scope,
            work_key=call.work_key,
            resource_id=resource_id,
            org=journal.org,
        )
        return run_id, work, ()
    if policy == "strict-critical":
        raise ConfigError(
            f"workflow {call.name!r} is critical, and its run has no name: pass work_key or run_id, so that the same "
            "job is one run whoever asks for it",
            option="work_key",
        )
    run_id = f"wf-{call.name}-{time.time_ns() // 1_000_000}-{next(_counter)}-{uuid.uuid4().hex[:8]}"
    return (
        run_id,
        None,
        (
            f"the run is anonymous ({run_id}): asked for again, its work is done again. Pass work_key or run_id, and "
            "keep this id to go on with it",
        ),
    )
