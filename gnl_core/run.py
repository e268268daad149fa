"""Run an agent durably: begin, go on after a crash, replay what is recorded."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from gnl_core import keys
from gnl_core.admission import Admitted, Asked, admit
from gnl_core.belonging import check_id
from gnl_core.closing import close
from gnl_core.door import AGENT, Door
from gnl_core.drive import Agent, Drive, Outcome, StopWhen
from gnl_core.duplicates import check_duplicates
from gnl_core.errors import (
    ConfigError,
    DoubtError,
    GnlError,
    RefusedError,
    describe,
)
from gnl_core.events import Event, EventKind, Listener, tell
from gnl_core.journal.port import Journal, JsonValue, Op
from gnl_core.limits import RunLimits, Timeouts
from gnl_core.lock import Heartbeat
from gnl_core.model.messages import ModelSettings, as_messages
from gnl_core.model.router import ModelLike, resolve_model
from gnl_core.options import ApprovalScope, Disclosure, Options, ReplayPolicy
from gnl_core.passed import Approvals
from gnl_core.policy import Guard
from gnl_core.request import Request
from gnl_core.results import DurableResult
from gnl_core.run_options import FROZEN, DriveOptions, Messages, RunOptions, check_run_options
from gnl_core.step import Entry
from gnl_core.terms import AuditOnReject, Terms, TombstonePolicy
from gnl_core.tools import ToolPolicy, check_tool_policy, check_tools

LOCK_TTL_S = 300.0
MAX_STEPS = 12


async def run_durable(
    *,
    run_id: str,
    journal: Journal,
    model: ModelLike,
    tools: Sequence[Any] | Mapping[str, Any] = (),
    prompt: str | None = None,
    messages: Messages | None = None,
    system: str | None = None,
    settings: ModelSettings | None = None,
    approvals: Approvals | None = None,
    guard: Guard | None = None,
    limits: RunLimits | None = None,
    timeouts: Timeouts | None = None,
    max_steps: int = MAX_STEPS,
    stop_when: StopWhen | None = None,
    replay: ReplayPolicy = "lenient",
    replay_disclosure: Disclosure = "envelope",
    exclusive_model_step: bool = False,
    approval_scope: ApprovalScope = "question",
    tool_policy: ToolPolicy | None = None,
    agent: str | None = None,
    thread_id: str | None = None,
    resource_id: str | None = None,
    actor: str | None = None,
    channel: str | None = None,
    context: Any = None,
    lock_ttl: float = LOCK_TTL_S,
    on_event: Listener | None = None,
    strict_input: bool = False,
    bind_actor: bool = False,
    tombstone_policy: TombstonePolicy | None = None,
    conflict_ledger: bool = False,
    audit_on_reject: AuditOnReject = "best-effort",
    shared_thread: bool = False,
) -> DurableResult:
    """Drive a run to its end, or to where it waits for a person. Called again with the same id, it goes on.

    A tool call that is recorded as done never runs again. One whose end is not known is settled by the tool's `recover`
    or by a person; without either it raises. Model answers are replayed from the journal; what comes after
    them is live.

    Args:
        run_id: Name of this piece of work, at most 512 characters without white space: never a session's.
        journal: Where the run lives.
        model: A model, 'provider/model', or a list of them (a fallback chain).
        tools: Tools or plain functions, in a sequence or by name.
        prompt: What is asked, as the last user message.
        messages: A conversation to begin with: `Message` or {'role': …, 'content': …}.
        system: System prompt; of a run that goes on, None keeps the one it began with.
        settings: How to generate.
        approvals: Answers by question ('<run>/<call>/<kind>/<attempt>') or by call id: True, False, or an `Approval`.
        guard: Policy that sees each call before it runs: a function of a `GuardCall` (tool_name, args, tool_call_id,
            run_id, tainted) that returns `Allow()`, `Deny(reason)` or `RequireApproval(reason)`; sync or async.
        limits: Budgets, loops, taint, repeated side effects; frozen at the first start, and a value given later wins.
        timeouts: Bounds in seconds.
        max_steps: Most model steps, at least 1.
        stop_when: A function of the `Step`s so far that says whether the run ends here; sync or async.
        replay: 'lenient' warns where a recorded request differs from the present one, 'strict' raises.
        replay_disclosure: 'envelope' lists replayed calls on the result; 'explain' also tells the model, once.
        exclusive_model_step: Claim each live model step.
        approval_scope: 'question': an answer is spent by the claim it allows; 'call': it stands for the call's life.
        tool_policy: 'strict' or 'strict-critical' refuses tools that do not say how they behave.
        agent: Name of the agent, for lists.
        thread_id: Conversation that the run belongs to.
        resource_id: Person on whose behalf it works.
        actor: Who drives it.
        channel: Where the request came from.
        context: What tools see as `Context.deps`.
        lock_ttl: Seconds without a sign of life after which another host may take the run over.
        on_event: Told what happens.
        strict_input: Refuse other content under the id of a run that is there; without it, a warning. An answer to a
            call of the run lets a grown conversation in.
        bind_actor: Refuse another actor than the run's first, where both are named.
        tombstone_policy: 'reject' refuses a run that a sweep removed, where it left a tombstone.
        conflict_ledger: Note who was refused the run, outside of it: `read_idem_ledger`.
        audit_on_reject: 'best-effort', or 'require': a refusal that cannot be noted raises the ledger's error instead.
        shared_thread: Several persons work in the conversation; without it, it is its first person's.

    Raises:
        ConfigError: What was asked for cannot work; nothing was done.
        RunBusyError: Somebody else drives the run; `retry_after` says for how long at most.
        RunOwnerMismatchError, RunAgentMismatchError, RunThreadMismatchError, RunActorMismatchError: The run began for,
            with, in or by another one than the call names.
        ThreadOwnerMismatchError: The conversation is another person's.
        NotAnAgentRunError: It is a workflow's run, or a batch's.
        RunInputMismatchError: It began with other content, and `strict_input` is set or a work key gave its id.
        RunSweptError: It was removed by a sweep.
        RunFollowedError: It was not done, and its work was begun anew as another run (`rollover_run`).
        SideEffectRetryBlockedError: A call began and nobody knows how it ended; `.interrupts` holds the question.
        StepTimeoutError: A model step or a side effect took too long.
        LimitError: A limit stopped it.
        CanceledError, CompensatedRunError: Nothing new starts in this run.
        ModelError: The provider did not answer; drive the run again to go on.
        EffectNotRecordedError, ResultNotRepresentableError: An effect happened and its result is on the error.
        JournalError: The store cannot be used.
    """
    return await make_plan(**locals()).drive("generate")


_DEFAULTS = {
    name: parameter.default
    for name, parameter in inspect.signature(run_durable).parameters.items()
    if parameter.default is not parameter.empty
}


_TERMS = ("strict_input", "bind_actor", "tombstone_policy", "conflict_ledger", "audit_on_reject", "shared_thread")


async def resume_run(
    *, run_id: str, journal: Journal, model: ModelLike, **options: Unpack[DriveOptions]
) -> DurableResult:
    """Go on with a run from its frozen input, under its frozen limits.

    Args:
        run_id: The run.
        journal: Where it lives.
        model: As for `run_durable`.
        **options: Every other option of `run_durable` except what the run began with: prompt, messages, thread_id,
            resource_id, channel, agent.

    Raises:
        RunNotFoundError: There is no such run.
        ConfigError: An option that the run began with.
        GnlError: As `run_durable`.
    """
    given = [name for name in FROZEN if options.get(name) is not None]
    if given:
        raise ConfigError(
            f"resume_run takes no {', '.join(given)}: a run goes on with what it began with; use run_durable to "
            "begin one"
        )
    return await make_plan(run_id=run_id, journal=journal, model=model, **options).drive("generate")


def make_plan(
    *, run_id: str, journal: Journal, model: ModelLike, door: Door = AGENT, **options: Unpack[RunOptions]
) -> Plan:
    """Check what a caller asks for, before anything is read or written.

    Args:
        run_id: As for `run_durable`.
        journal: As for `run_durable`.
        model: As for `run_durable`.
        door: Whose door the run is entered through.
        **options: Those of `run_durable`, with its defaults.

    Raises:
        ConfigError: It cannot work.
        TypeError: There is no such option.
    """
    unknown = options.keys() - _DEFAULTS.keys()
    if unknown:
        raise TypeError(f"there is no option {min(unknown)!r} of a run; there are: {', '.join(sorted(_DEFAULTS))}")
    given: dict[str, Any] = {**_DEFAULTS, **options}
    check_id(run_id)
    if not hasattr(journal, "apply"):
        raise ConfigError(
            f"journal is {type(journal).__name__}, must be a journal: for instance SqliteStorage('runs.db').runs"
        )
    check_run_options(given)
    tools = check_tools(given["tools"])
    check_tool_policy(tools, given["tool_policy"])
    chosen = resolve_model(model)
    begins = given["prompt"] is not None or given["messages"] is not None
    try:
        messages = as_messages(given["prompt"], given["messages"]) if begins else None
    except ValueError as error:
        raise ConfigError(str(error), option="messages") from None
    shared = (
        "guard",
        "replay",
        "replay_disclosure",
        "approval_scope",
        "exclusive_model_step",
        "actor",
        "resource_id",
        "thread_id",
        "channel",
    )
    asked = Asked(
        run_id=run_id,
        journal=journal,
        messages=messages,
        system=given["system"],
        agent=given["agent"],
        model=chosen.spec,
        approvals=given["approvals"] or {},
        options=Options(
            limits=given["limits"] or RunLimits(),
            timeouts=given["timeouts"] or Timeouts(),
            deps=given["context"],
            listener=given["on_event"],
            **{name: given[name] for name in shared},
        ),
        explicit_limits=given["limits"] is not None,
        lock_ttl=given["lock_ttl"],
        door=door,
        terms=Terms(**{name: given[name] for name in _TERMS}),
        check=lambda limits: check_duplicates(limits.duplicates, tools, asks=True),
    )
    return Plan(
        asked,
        Agent(
            model=chosen,
            tools=tools,
            system=given["system"],
            settings=given["settings"] or ModelSettings(),
            max_steps=given["max_steps"],
            stop_when=given["stop_when"],
        ),
    )


class Plan:
    """A run that is about to be driven."""

    def __init__(self, asked: Asked, agent: Agent) -> None:
        self.asked = asked
        self.agent = agent

    async def drive(self, mode: Entry) -> DurableResult:
        """Admit the run and drive it."""
        return await self.go(await admit(self.asked), mode)

    async def go(self, admitted: Admitted, mode: Entry) -> DurableResult:
        """Drive a run that was admitted; the lock is given back however it ends."""
        request = admitted.request
        beat = Heartbeat(request.journal, request.root, request.fence or 0, max(1, int(self.asked.lock_ttl * 1000)))
        pending: list[Op] = []
        drive: Drive | None = None
        try:
            await beat.start()
            agent = dataclasses.replace(self.agent, system=admitted.system)
            drive = Drive(request, agent, part=keys.ROOT, messages=admitted.messages, mode=mode, pending=pending)
            outcome = await drive.drive()
        except GeneratorExit:
            request.release()  # its loop is gone: nothing can be awaited, and the hold of no task is no hold
            raise
        except BaseException as error:
            try:
                tell(request.options.listener, event_of(error, request.root))
            finally:  # whatever a listener raises, the run is given back
                open_ones = error.interrupts if isinstance(error, RefusedError | DoubtError) else ()
                await close(admitted, beat, pending, counts=_counts(drive), interrupts=open_ones, error=error)
            raise
        await close(admitted, beat, pending, counts=_counts(drive, outcome), interrupts=outcome.interrupts)
        result = _result(request, drive, outcome)
        tell(
            request.options.listener,
            Event(
                kind="finished",
                run_id=request.root,
                replayed=all(step.replayed and all(call.replayed for call in step.calls) for step in result.steps),
                text=result.text,
                detail={"finish_reason": outcome.reason},
            ),
        )
        return result


def event_of(error: BaseException, run_id: str) -> Event:
    """Return what listeners are told of what stopped a drive."""
    code, message = describe(error)
    detail = error.detail if isinstance(error, GnlError) else {}
    kind: EventKind = "blocked" if isinstance(error, RefusedError | DoubtError) else "error"
    return Event(kind=kind, run_id=run_id, text=message, detail={**detail, "code": code})


def _counts(drive: Drive | None, outcome: Outcome | None = None) -> dict[str, JsonValue]:
    return drive.counts(len(outcome.interrupts) if outcome else 0) if drive is not None else {}


def _result(request: Request, drive: Drive, outcome: Outcome) -> DurableResult:
    return DurableResult(
        run_id=request.root,
        text=outcome.text,
        messages=tuple(drive.transcript.messages),
        steps=tuple(drive.steps),
        usage=request.log.usage,
        interrupts=outcome.interrupts,
        replayed_tool_calls=tuple(request.log.replayed),
        unused_approvals=tuple(sorted(request.unused)),
        warnings=tuple(request.warnings),
        finish_reason=outcome.reason,
    )
