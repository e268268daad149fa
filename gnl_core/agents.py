"""Named agents and workflows over one journal: work is named, and the same work is one run, whoever asks for it."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Required, Unpack

from gnl_core import keys
from gnl_core.batch.host import BatchHost
from gnl_core.composable import NoModel
from gnl_core.errors import ConfigError, RefusedError
from gnl_core.journal.port import Journal
from gnl_core.ledger import note_refusal
from gnl_core.model.router import ModelLike
from gnl_core.presets import Preset, expand_preset, layered
from gnl_core.results import DurableResult
from gnl_core.rollover import newest_execution, rollover_run
from gnl_core.run import Plan, make_plan
from gnl_core.run_options import DriveOptions, Messages, check_listener
from gnl_core.stream import DurableStream, OnBlocked, open_stream
from gnl_core.sync import SyncStream, outside
from gnl_core.work import Work, WorkScope, check_scope, name_work
from gnl_core.workflow.options import (
    Call,
    Workflow,
    WorkflowCallOptions,
    WorkflowHoldOptions,
    check_held,
    check_options,
    held,
    plan,
)
from gnl_core.workflow.run import drive

if TYPE_CHECKING:
    from gnl_core.workflow.results import WorkflowResult


class AgentOptions(DriveOptions, total=False):
    """What an agent is: its model, and any option of `run_durable` that holds for all of its runs.

    `approvals` and `actor` belong to a call and are refused here. `work_scope` says within what a work key is one job:
    'resource' (the default) one person's, 'org' the organisation's that the journal is scoped to, or the deployment's.
    """

    model: Required[ModelLike]
    work_scope: WorkScope


class WorkflowOptions(WorkflowHoldOptions, total=False):
    """What a workflow is: its function, and any option of `run_workflow` that holds for all of its runs.

    `approvals` and `actor` belong to a call and are refused here. `work_scope` is as an agent's.
    """

    workflow: Required[Workflow]
    work_scope: WorkScope


class CallOptions(DriveOptions, total=False):
    """What a call of an agent takes beside the name of its work: any option of `run_durable` but `agent`."""

    prompt: str | None
    messages: Messages | None
    thread_id: str | None
    resource_id: str | None
    channel: str | None


class Gnl(BatchHost):
    """Agents and workflows by name, over one journal.

    A call names its work by `work_key`, or a run by `run_id`. The same work again: while it runs, `RunBusyError` says
    when to come back; once it has ended, the recorded answer is replayed and no model is asked; after a failure it goes
    on. A work key stays that work for as long as its run is in the journal, and goes to the newest execution of work
    that was rolled over (`rollover`); a run id goes to exactly that run. The key stands in the run's record and in
    refusals: keep secrets out of it. The name of the agent is part of the identity: an agent with another name does
    other work, and so does a workflow of the same name.

    Options are merged from the preset, those given here, the agent's or the workflow's, and the call's: the later wins,
    limits field by field. A run keeps the limits that it began under, unless a call passes limits itself.
    """

    def __init__(
        self,
        journal: Journal,
        *,
        agents: Mapping[str, AgentOptions] | None = None,
        workflows: Mapping[str, Workflow | WorkflowOptions] | None = None,
        preset: Preset | None = None,
        **shared: Unpack[DriveOptions],
    ) -> None:
        """Name the agents and the workflows.

        Args:
            journal: Where their runs live.
            agents: By name, each a mapping as `AgentOptions`.
            workflows: By name, each an async function, or a mapping as `WorkflowOptions`.
            preset: 'critical', 'assistant' or 'headless': see `gnl_core.presets`.
            **shared: Options for every agent; a workflow takes those of them that it has.

        Raises:
            ConfigError: An option that cannot be, naming the agent or the workflow; or an agent without a model.
            IdInvalidError: A name that may not become part of a key.
            ToolDeclarationError: A tool that cannot be used, or that says too little about itself for the tool policy.
        """
        self.journal = journal
        self._base = base = layered(expand_preset(preset), shared)
        _check_names("Gnl", shared, DriveOptions.__annotations__.keys() - _OF_A_CALL)
        agents = {} if agents is None and workflows is not None else _mapping("agents", agents)
        self._agents = {name: self._read(name, options, base) for name, options in agents.items()}
        workflows = {} if workflows is None else _mapping("workflows", workflows)
        self._workflows = {name: self._read_workflow(name, given, held(base)) for name, given in workflows.items()}

    def _read(self, name: str, options: object, base: Mapping[str, Any]) -> tuple[ModelLike, WorkScope, dict[str, Any]]:
        keys.check_id("the name of an agent", name)
        given = _mapping(f"agent {name!r}", options)
        _check_names(f"agent {name!r}", given, AgentOptions.__annotations__.keys() - _OF_A_CALL)
        if given.get("model") is None:
            raise ConfigError(f"agent {name!r} has no model; give {{'model': …}}, a model or 'provider/model'")
        merged = layered(base, given)
        scope = check_scope(merged.pop("work_scope", "resource"))
        model: ModelLike = merged.pop("model")
        make_plan(run_id="any", journal=self.journal, model=NoModel(), **merged)  # what cannot work is told at once
        return model, scope, merged

    def _read_workflow(
        self, name: str, options: object, base: Mapping[str, Any]
    ) -> tuple[Workflow, WorkScope, dict[str, Any]]:
        given = {"workflow": options} if callable(options) else _mapping(f"workflow {name!r}", options)
        _check_names(f"workflow {name!r}", given, WorkflowOptions.__annotations__.keys() - _OF_A_CALL)
        if given.get("workflow") is None:
            raise ConfigError(f"workflow {name!r} has no function; give it, or {{'workflow': …}} with its options")
        merged = layered(base, given)
        scope = check_scope(merged.pop("work_scope", "resource"))
        function: Workflow = merged.pop("workflow")
        check_held(self.journal, name, function, merged)  # what cannot work is told at once
        return function, scope, merged

    async def run(
        self, agent: str, *, work_key: str | None = None, run_id: str | None = None, **options: Unpack[CallOptions]
    ) -> DurableResult:
        """Do a piece of work, go on with it, or replay its answer; the result's `run_id` is the run's handle.

        Args:
            agent: Name of the agent.
            work_key: Your name for the work, 1 to 2,048 characters; not a conversation's, and no secret.
            run_id: A run's own id instead.
            **options: Every other option of `run_durable` but `agent`; an agent whose work belongs to a person needs
                `resource_id` beside a work key.

        Raises:
            ConfigError: No such agent; both a work key and a run id, or neither; or no person where the work is one's.
            RunBusyError: The work is being done; `retry_after` says for how long at most.
            RunInputMismatchError: This work key began with other content.
            GnlError: As `run_durable`.
        """
        plan = await self._plan(agent, work_key, run_id, options)
        return await plan.drive("generate")

    async def stream(
        self,
        agent: str,
        *,
        work_key: str | None = None,
        run_id: str | None = None,
        on_blocked: OnBlocked | None = None,
        **options: Unpack[CallOptions],
    ) -> DurableStream:
        """Do the same while its events are read; the stream's `run_id` is known at once.

        Args:
            agent: As for `run`.
            work_key: As for `run`.
            run_id: As for `run`.
            on_blocked: As for `stream_durable`.
            **options: As for `run`.

        Raises:
            GnlError: As `run`, until the run is admitted; later errors come from the stream.
        """
        check_listener("on_blocked", on_blocked)
        return await open_stream(await self._plan(agent, work_key, run_id, options), on_blocked)

    async def resume(
        self, agent: str, *, work_key: str | None = None, run_id: str | None = None, **options: Unpack[CallOptions]
    ) -> DurableResult:
        """Go on with a run from what it began with.

        Args:
            agent: The agent that began it.
            work_key: As for `run`.
            run_id: As for `run`.
            **options: As for `run`, but no prompt and no messages; a `resource_id` and a `thread_id` must be the run's.

        Raises:
            RunNotFoundError: There is no such run.
            ConfigError: A prompt or messages.
            GnlError: As `run`.
        """
        given = [name for name in ("prompt", "messages") if options.get(name) is not None]
        if given:
            raise ConfigError(
                f"resume takes no {' and no '.join(given)}: a run goes on with what it began with; use run to begin one"
            )
        plan = await self._plan(agent, work_key, run_id, options)
        return await plan.drive("generate")

    def run_sync(
        self, agent: str, *, work_key: str | None = None, run_id: str | None = None, **options: Unpack[CallOptions]
    ) -> DurableResult:
        """Do as `run` without `await`, for scripts.

        Raises:
            SyncInsideLoopError: An event loop runs in this thread: await `run` there.
            GnlError: As `run`.
        """
        outside("run")
        return asyncio.run(self.run(agent, work_key=work_key, run_id=run_id, **options))

    def resume_sync(
        self, agent: str, *, work_key: str | None = None, run_id: str | None = None, **options: Unpack[CallOptions]
    ) -> DurableResult:
        """Do as `resume` without `await`, for scripts.

        Raises:
            SyncInsideLoopError: An event loop runs in this thread: await `resume` there.
            GnlError: As `resume`.
        """
        outside("resume")
        return asyncio.run(self.resume(agent, work_key=work_key, run_id=run_id, **options))

    def stream_sync(
        self,
        agent: str,
        *,
        work_key: str | None = None,
        run_id: str | None = None,
        on_blocked: OnBlocked | None = None,
        **options: Unpack[CallOptions],
    ) -> SyncStream:
        """Do as `stream` without `await`: its events are read by a plain `for`, and the run is driven meanwhile.

        Raises:
            SyncInsideLoopError: An event loop runs in this thread: await `stream` there.
            GnlError: As `stream`.
        """
        outside("stream")
        return SyncStream(self.stream(agent, work_key=work_key, run_id=run_id, on_blocked=on_blocked, **options))

    async def run_workflow(
        self,
        workflow: str,
        *,
        work_key: str | None = None,
        run_id: str | None = None,
        input: Mapping[str, Any] | None = None,  # noqa: A002 - as `run_workflow`'s
        send: Mapping[str, Any] | None = None,
        **options: Unpack[WorkflowCallOptions],
    ) -> WorkflowResult:
        """Do a piece of work by a workflow, go on with it, or give its recorded result.

        Args:
            workflow: Name of the workflow.
            work_key: As for `run`.
            run_id: As for `run`; without either the run is anonymous, and a warning says so.
            input: What it works on, by name; None goes on with what the run began with.
            send: What is sent to waits of the run, by their names.
            **options: Every other option of `run_workflow` but `name`, `work_scope` and `preset`.

        Raises:
            ConfigError: No such workflow.
            GnlError: As `run_workflow`.
        """
        if workflow not in list(self._workflows):
            names = ", ".join(map(repr, self._workflows)) or "none"
            raise ConfigError(f"there is no workflow {workflow!r}; there are: {names}")
        function, scope, base = self._workflows[workflow]
        call = Call(
            function=function,
            name=workflow,
            work_key=work_key,
            run_id=run_id,
            work_scope=scope,
            input=input,
            send=send,
            explicit_limits=options.get("limits") is not None,
        )
        return await drive(await plan(self.journal, call, check_options(layered(base, options))))

    def run_workflow_sync(
        self,
        workflow: str,
        *,
        work_key: str | None = None,
        run_id: str | None = None,
        input: Mapping[str, Any] | None = None,  # noqa: A002 - as above
        send: Mapping[str, Any] | None = None,
        **options: Unpack[WorkflowCallOptions],
    ) -> WorkflowResult:
        """Do as `run_workflow` without `await`, for scripts.

        Raises:
            SyncInsideLoopError: An event loop runs in this thread: await `run_workflow` there.
            GnlError: As `run_workflow`.
        """
        outside("run_workflow")
        return asyncio.run(
            self.run_workflow(workflow, work_key=work_key, run_id=run_id, input=input, send=send, **options)
        )

    async def rollover(
        self, agent: str, *, work_key: str | None = None, run_id: str | None = None, resource_id: str | None = None
    ) -> str:
        """Make a new execution of a piece of work and return its run's id; from then on the work key goes there.

        What the earlier one did is done again, see `rollover_run`. Called again before the new one was driven, it
        returns the same id.

        Args:
            agent: The agent that does it.
            work_key: Your name for the work: its newest execution is rolled over.
            run_id: A run's own id instead.
            resource_id: The person, where the work is one's; where it is passed, the run must be that person's.

        Raises:
            ConfigError: No such agent; both a work key and a run id, or neither; or no person where the work is one's.
            GnlError: As `rollover_run`.
        """
        plan = await self._plan(agent, work_key, run_id, {"resource_id": resource_id})
        try:
            return await rollover_run(self.journal, plan.asked.run_id, agent=agent, resource_id=resource_id)
        except RefusedError as refusal:
            work = plan.asked.terms.work
            if work is not None:
                refusal.detail.setdefault("work_key", work.key)
            await note_refusal(plan.asked, refusal)
            raise

    def rollover_sync(
        self, agent: str, *, work_key: str | None = None, run_id: str | None = None, resource_id: str | None = None
    ) -> str:
        """Do as `rollover` without `await`, for scripts.

        Raises:
            SyncInsideLoopError: An event loop runs in this thread: await `rollover` there.
            GnlError: As `rollover`.
        """
        outside("rollover")
        return asyncio.run(self.rollover(agent, work_key=work_key, run_id=run_id, resource_id=resource_id))

    def run_id_of(self, agent: str, work_key: str, *, resource_id: str | None = None) -> str:
        """Return the id of the run that does a piece of work, whether or not it has begun.

        It is computed and not looked up: work that was rolled over goes on under a later id.

        Raises:
            ConfigError: No such agent, or no person where the work is one's.
            IdInvalidError: A work key that cannot be one.
        """
        return self._name(agent, work_key, resource_id)[0]

    def _name(self, agent: str, work_key: object, resource_id: str | None) -> tuple[str, Work]:
        return name_work(
            entity=f"agent:{agent}",
            work_scope=self._agent(agent)[1],
            work_key=work_key,
            resource_id=resource_id,
            org=self.journal.org,
        )

    def _agent(self, name: str) -> tuple[ModelLike, WorkScope, dict[str, Any]]:
        if name not in list(self._agents):
            raise ConfigError(f"there is no agent {name!r}; there are: {', '.join(map(repr, self._agents)) or 'none'}")
        return self._agents[name]

    def _addressed(
        self, agent: str, work_key: str | None, run_id: str | None, resource_id: str | None
    ) -> tuple[str, Work | None]:
        """Return the run that a call addresses, and the work if it named that."""
        if (work_key is None) == (run_id is None):
            which = "both a work_key and a run_id were passed" if run_id is not None else "no work_key was passed"
            raise ConfigError(
                f"{which}: a call names its work by work_key, or a run by run_id, and never by both", option="work_key"
            )
        return self._name(agent, work_key, resource_id) if run_id is None else (run_id, None)

    async def _plan(self, agent: str, work_key: str | None, run_id: str | None, options: CallOptions) -> Plan:
        model, _, base = self._agent(agent)
        named, work = self._addressed(agent, work_key, run_id, options.get("resource_id"))
        plan = make_plan(run_id=named, journal=self.journal, model=model, agent=agent, **layered(base, options))
        terms = dataclasses.replace(plan.asked.terms, work=work, system_asked=options.get("system") is not None)
        if work is not None:  # only now: what cannot work is told before anything is read
            named = await newest_execution(self.journal, named)
        explicit = options.get("limits") is not None
        plan.asked = dataclasses.replace(plan.asked, run_id=named, terms=terms, explicit_limits=explicit)
        return plan


_OF_A_CALL = {"approvals", "actor"}


def _mapping(what: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping) or not value:
        raise ConfigError(f"{what} is {type(value).__name__}, must be a mapping that is not empty, of names to values")
    return value


def _check_names(where: str, given: Mapping[str, Any], known: set[str]) -> None:
    unknown = sorted(map(str, given.keys() - known))
    if unknown:
        raise ConfigError(f"{where} has no option {unknown[0]!r}; there are: {', '.join(sorted(known))}")
